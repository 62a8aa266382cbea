"""Answers that are asked once: what is told once, is remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from evalbias.lm.types import ChoiceLogprobs, FloatArray, LogLikelihood, MeasuringLM, Prompt


class LikelihoodMemo:
    """A measuring LM that remembers every likelihood it told, in memory.

    Args:
        lm: Whose likelihoods are meant.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        self._lm = lm
        self._told: dict[str, LogLikelihood] = {}

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Log-probability of each continuation after its context; see ``MeasuringLM``."""
        keys = [repr(pair) for pair in pairs]
        unseen = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in self._told}
        if unseen:
            self._told.update(zip(unseen, self._lm.loglikelihood(list(unseen.values())), strict=True))
        return [self._told[key] for key in keys]

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability of every choice after every prompt, asked every time; see ``MeasuringLM``."""
        return self._lm.choice_logprobs(prompts, choices)


class ChoiceMemo:
    """A measuring LM that remembers the log-probabilities of every prompt's choices, in memory.

    Args:
        lm: Who is asked.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        self._lm = lm
        self._told: dict[str, FloatArray] = {}
        self._renormalized = False

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability of every choice after every prompt; see ``MeasuringLM``."""
        choices = tuple(choices)
        keys = [hashlib.sha256(repr((prompt, choices)).encode()).hexdigest() for prompt in prompts]
        unseen = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in self._told}
        if unseen:
            found = self._lm.choice_logprobs(list(unseen.values()), choices)
            self._renormalized = self._renormalized or found.renormalized
            self._told.update(zip(unseen, found.logprobs, strict=True))
        rows = np.array([self._told[key] for key in keys], dtype=np.float64).reshape(len(keys), len(choices))
        return ChoiceLogprobs(choices, rows, renormalized=self._renormalized)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Log-probability of each continuation after its context, asked every time; see ``MeasuringLM``."""
        return self._lm.loglikelihood(pairs)
