"""In-memory caches of a measuring LM's answers; every other attribute is the cached model's."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from evalbias.lm.contract import drawn
from evalbias.lm.refusals import remembered
from evalbias.lm.sampled_answers import Sampling
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, MeasuringLM, Prompt, stacked
from evalbias.lm.wrapped import WrappedLM


class LikelihoodMemo(WrappedLM):
    """A measuring LM that caches every likelihood in memory.

    Args:
        lm: Model to ask.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        super().__init__(lm)
        self._likelihoods: dict[str, LogLikelihood] = {}

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context; see ``MeasuringLM``."""
        keys = [repr(pair) for pair in pairs]
        return remembered(self._lm.loglikelihood, pairs, keys, self._likelihoods)

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability of every choice after every prompt, uncached; see ``MeasuringLM``."""
        return self._lm.choice_logprobs(prompts, choices)


class ChoiceMemo(WrappedLM):
    """A measuring LM that caches the log-probabilities of every prompt's choices, and every sampled text, in memory.

    Args:
        lm: Model to ask.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        super().__init__(lm)
        self._rows: dict[str, ChoiceLogprobs] = {}  # key -> answer to one prompt
        self._texts: dict[str, str] = {}

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability of every choice after every prompt; see ``MeasuringLM``."""
        choices = tuple(choices)
        keys = [hashlib.sha256(repr((prompt, choices)).encode()).hexdigest() for prompt in prompts]
        rows = remembered(lambda some: self._lm.choice_logprobs(some, choices).rows(), prompts, keys, self._rows)
        return stacked(rows, choices)

    @property
    def sampling(self) -> Sampling | None:
        """Settings by which the model is sampled; None if it measures."""
        return getattr(self._lm, "sampling", None)

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sample a text after every prompt, each with its own seed; see ``evalbias.lm.contract.drawn``."""
        questions = list(zip(prompts, seeds, strict=True))
        keys = [hashlib.sha256(repr((question, sampling)).encode()).hexdigest() for question in questions]

        def ask(some: list[tuple[Prompt, int]]) -> list[str]:
            some_prompts, their_seeds = zip(*some, strict=True)
            return drawn(self._lm, some_prompts, their_seeds, sampling)

        return remembered(ask, questions, keys, self._texts)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context, uncached; see ``MeasuringLM``."""
        return self._lm.loglikelihood(pairs)
