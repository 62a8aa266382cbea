"""In-memory caches of a measuring LM's answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from evalbias.lm.contract import drawn
from evalbias.lm.sampled_answers import Sampling
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, MeasuringLM, Prompt
from evalbias.measures.arrays import FloatArray


class LikelihoodMemo:
    """A measuring LM that caches every likelihood in memory.

    Args:
        lm: Model to ask.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        self._lm = lm
        self._likelihoods: dict[str, LogLikelihood] = {}

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context; see ``MeasuringLM``."""
        keys = [repr(pair) for pair in pairs]
        new = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in self._likelihoods}
        if new:
            self._likelihoods.update(zip(new, self._lm.loglikelihood(list(new.values())), strict=True))
        return [self._likelihoods[key] for key in keys]

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability of every choice after every prompt, uncached; see ``MeasuringLM``."""
        return self._lm.choice_logprobs(prompts, choices)


class ChoiceMemo:
    """A measuring LM that caches the log-probabilities of every prompt's choices, and every sampled text, in memory.

    Args:
        lm: Model to ask.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        self._lm = lm
        self._rows: dict[str, FloatArray] = {}  # key -> (c,)
        self._texts: dict[str, str] = {}
        self._renormalized = False
        self._samples: int | None = None

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability of every choice after every prompt; see ``MeasuringLM``."""
        choices = tuple(choices)
        keys = [hashlib.sha256(repr((prompt, choices)).encode()).hexdigest() for prompt in prompts]
        new = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in self._rows}
        if new:
            answer = self._lm.choice_logprobs(list(new.values()), choices)
            self._renormalized = self._renormalized or answer.renormalized
            self._samples = answer.samples
            self._rows.update(zip(new, answer.logprobs, strict=True))
        rows = np.array([self._rows[key] for key in keys], dtype=np.float64).reshape(len(keys), len(choices))  # (n, c)
        return ChoiceLogprobs(choices, rows, renormalized=self._renormalized, samples=self._samples)

    @property
    def sampling(self) -> Sampling | None:
        """How often the model is asked; None if it measures."""
        return getattr(self._lm, "sampling", None)

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sample a text after every prompt, each with its own seed; see ``evalbias.lm.contract.drawn``."""
        questions = list(zip(prompts, seeds, strict=True))
        keys = [hashlib.sha256(repr((question, sampling)).encode()).hexdigest() for question in questions]
        new = {key: question for key, question in zip(keys, questions, strict=True) if key not in self._texts}
        if new:
            some, their_seeds = zip(*new.values(), strict=True)
            self._texts.update(zip(new, drawn(self._lm, some, their_seeds, sampling), strict=True))
        return [self._texts[key] for key in keys]

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context, uncached; see ``MeasuringLM``."""
        return self._lm.loglikelihood(pairs)
