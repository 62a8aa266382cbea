"""A model of which several workers hold a copy: the items of a call are cut into parts that they answer side by side.

Parts have the same items however many workers there are. Workers keep their prefix caches from part to part, so the
last digits of an answer depend on which parts its worker had before, unless ``forget`` was called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from evalbias.lm.sampled_answers import Sampling
from evalbias.lm.types import (
    ChoiceLogprobs,
    Interrupted,
    LogLikelihood,
    Prompt,
    PromptRefused,
    Unanswered,
    stacked,
)
from evalbias.lm.worker import About, Outcome, Part

PART = 64
"""Largest number of items in a part."""


class WorkerPool(Protocol):
    """Workers with copies of the same model; see ``evalbias.lm.worker.Worker``."""

    @property
    def size(self) -> int:
        """Number of workers."""
        ...

    def about(self) -> About:
        """Return the model of the workers.

        Raises:
            ValueError: A worker cannot open it.
        """
        ...

    def answers(self, parts: Sequence[Part]) -> Iterator[tuple[int, Outcome]]:
        """Yield the number of each part with its outcome, in any order.

        Raises:
            ValueError: A worker that takes another's place cannot open the model, or has a different one.
        """
        ...


class DistributedLM:
    """A measuring LM whose calls the workers of a pool carry out; see ``MeasuringLM``.

    It also writes and samples texts for whole calls, but is not a ``dspy.LM``.

    Args:
        pool: Workers.

    Attributes:
        model: Name of the model.
        in_flight: Number of items with which all workers are busy; see ``chunk_of``.

    Raises:
        ValueError: The workers cannot open the model.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        about = pool.about()
        self.model, self._identity = about.name, about.identity
        self.in_flight = PART * pool.size
        self._afresh = False

    def provenance(self) -> dict[str, Any]:
        """Return the settings that decide the numbers: those of the workers' model."""
        return dict(self._identity)

    def forget(self) -> None:
        """Let the workers clear their prefix caches before each part of the next call."""
        self._afresh = True

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability of every choice after every prompt; see ``MeasuringLM``."""
        choices = tuple(choices)
        rows = self._answers("choices", prompts, choices)
        return stacked(rows, choices)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context; see ``MeasuringLM``."""
        return self._answers("likelihoods", pairs)

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """Generate a text after every prompt; see ``evalbias.lm.contract.written``."""
        return self._answers("written", prompts, max_tokens)

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sample a text after every prompt, each with its own seed; see ``evalbias.lm.contract.drawn``."""
        return self._answers("drawn", list(zip(prompts, seeds, strict=True)), sampling)

    def _answers(self, kind: str, items: Sequence[Any], *arguments: Any) -> list[Any]:
        """Return the answers to all items.

        Raises:
            PromptRefused: The model refuses items; the exception holds the answers of the others.
            Unanswered: Parts have no answer; the exception holds all other answers.
            Interrupted: The user interrupted the call; the exception holds all answers so far.
        """
        starts = range(0, len(items), PART)
        parts = [Part(kind, tuple(items[start : start + PART]), arguments, self._afresh) for start in starts]
        self._afresh = False
        answered: dict[int, Any] = {}
        refused: dict[int, str] = {}
        failed: dict[int, str] = {}  # first item of a part -> error
        try:
            for number, outcome in self._pool.answers(parts):
                start = starts[number]
                answered |= {start + i: answer for i, answer in outcome.answered.items()}
                refused |= {start + i: reason for i, reason in outcome.refused.items()}
                if outcome.error is not None:
                    failed[start] = outcome.error
        except KeyboardInterrupt as error:
            raise Interrupted(answered) from error
        except ValueError as error:
            raise Unanswered(str(error), answered) from error
        if failed:
            start = min(failed)
            last = min(start + PART, len(items)) - 1
            more = f" ({len(failed) - 1} more parts of the call failed.)" if len(failed) > 1 else ""
            raise Unanswered(f"{self.model}: items {start} to {last} of a call: {failed[start]}{more}", answered)
        if refused:
            raise PromptRefused(refused, answered)
        return [answered[number] for number in range(len(items))]
