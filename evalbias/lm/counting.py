"""A measuring LM that counts what it is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from evalbias.lm.contract import drawn, written
from evalbias.lm.sampled_answers import Sampling
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, MeasuringLM, Prompt, PromptRefused
from evalbias.lm.wrapped import WrappedLM


class CountingLM(WrappedLM):
    """A measuring LM that counts; every other attribute is the wrapped model's.

    Attributes:
        judgments: Prompts whose choices were measured so far.
        likelihoods: Texts whose likelihood was measured so far.
        texts: Texts that the model wrote so far.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        super().__init__(lm)
        self.judgments = 0
        self.likelihoods = 0
        self.texts = 0

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability of every choice after every prompt; see ``MeasuringLM``."""
        with self._counted("judgments", len(prompts)):
            return self._lm.choice_logprobs(prompts, choices)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Log-probability of each continuation after its context; see ``MeasuringLM``."""
        with self._counted("likelihoods", len(pairs)):
            return self._lm.loglikelihood(pairs)

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """Greedily decoded text after every prompt; see ``evalbias.lm.contract.written``."""
        with self._counted("texts", len(prompts)):
            return written(self._lm, prompts, max_tokens=max_tokens)

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sampled text after every prompt; see ``evalbias.lm.contract.drawn``."""
        with self._counted("texts", len(prompts)):
            return drawn(self._lm, prompts, seeds, sampling)

    @contextmanager
    def _counted(self, kind: str, items: int) -> Iterator[None]:
        """Count the items of a call; of a call that the model refused, those that it answered."""
        try:
            yield
        except PromptRefused as error:
            setattr(self, kind, getattr(self, kind) + len(error.answered))
            raise
        setattr(self, kind, getattr(self, kind) + items)
