"""What a language model answers when it is asked for probabilities, and the protocol it answers by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Message = Mapping[str, str]
Prompt = str | Sequence[Message]
FloatArray = NDArray[np.float64]


class Unanswered(ConnectionError):  # noqa: N818 - a connection error like the others, named for what it says
    """A call was not answered in full; what was answered is kept.

    Attributes:
        answered: Place of an item in the call -> its answer.
    """

    def __init__(self, message: str, answered: dict[int, Any]) -> None:
        super().__init__(message)
        self.answered = answered


class Interrupted(KeyboardInterrupt):
    """A call was interrupted; what was answered is kept.

    Attributes:
        answered: Place of an item in the call -> its answer.
    """

    def __init__(self, answered: dict[int, Any]) -> None:
        super().__init__()
        self.answered = answered


CHUNK = 256
"""Prompts in one call of a model, where there are many."""


def chunk_of(lm: Any) -> int:
    """``CHUNK``, or more of a model that answers many at the same time: it idles where a call ends."""
    return max(CHUNK, 8 * getattr(lm, "in_flight", 0))


@dataclass(frozen=True)
class LogLikelihood:
    """Log-probability of one continuation, in nats.

    Attributes:
        per_token: (n,) log-probability of each token of the continuation, n >= 1.
    """

    per_token: FloatArray

    @property
    def tokens(self) -> int:
        """Number of tokens that hold a character of the continuation."""
        return int(self.per_token.shape[0])

    @property
    def total(self) -> float:
        """Sum over the tokens: ``log P(continuation | context)``."""
        return float(self.per_token.sum())

    @property
    def mean(self) -> float:
        """Average over the tokens."""
        return float(self.per_token.mean())


@dataclass(frozen=True)
class ChoiceLogprobs:
    """Log-probabilities of the same choices after each of several prompts, in nats, not renormalized.

    Attributes:
        choices: (c,) the choices' texts, in the caller's order.
        logprobs: (n, c) log-probability of each choice's whole token sequence.
        renormalized: Only the choices' shares were told, not their probabilities; the coverage is NaN then.
    """

    choices: tuple[str, ...]
    logprobs: FloatArray
    renormalized: bool = False

    @property
    def coverage(self) -> FloatArray:
        """(n,) probability that any of the choices follows, in [0, 1]; NaN where only shares were told."""
        if self.renormalized:
            return np.full(len(self.logprobs), np.nan)
        return np.asarray(np.exp(self.logprobs).sum(axis=1), dtype=np.float64)

    @property
    def probabilities(self) -> FloatArray:
        """(n, c) the choices' shares of their coverage; NaN where the coverage underflows to 0."""
        peak = self.logprobs.max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            weights = np.exp(self.logprobs - peak)  # a row of -inf becomes NaN: undefined, not uniform
        return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)


@runtime_checkable
class MeasuringLM(Protocol):
    """A language model that tells the probabilities of texts it is shown.

    Answers come in the order of the arguments and do not depend on what else is in the call.
    """

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Log-probability of each continuation after its context."""
        ...

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability of every choice after every prompt."""
        ...
