"""A measuring LM that counts what it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, MeasuringLM, Prompt


class CountingLM:
    """Wraps a measuring LM; every other attribute is the wrapped model's.

    Attributes:
        judgments: Prompts whose choices were measured so far.
        likelihoods: Texts whose likelihood was measured so far.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        self._lm = lm
        self.judgments = 0
        self.likelihoods = 0

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability of every choice after every prompt; see ``MeasuringLM``."""
        self.judgments += len(prompts)
        return self._lm.choice_logprobs(prompts, choices)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Log-probability of each continuation after its context; see ``MeasuringLM``."""
        self.likelihoods += len(pairs)
        return self._lm.loglikelihood(pairs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lm, name)
