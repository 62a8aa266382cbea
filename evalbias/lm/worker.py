"""A worker of a distributed model: its own copy of the model, and the parts of calls that it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalbias.lm.contract import drawn, measuring, written
from evalbias.lm.refusals import settled
from evalbias.lm.types import Unanswered

ASK: dict[str, Callable[..., Sequence[Any]]] = {
    "choices": lambda lm, prompts, choices: measuring(lm).choice_logprobs(prompts, choices).rows(),
    "likelihoods": lambda lm, pairs: measuring(lm).loglikelihood(pairs),
    "written": lambda lm, prompts, max_tokens: written(lm, prompts, max_tokens=max_tokens),
    "drawn": lambda lm, pairs, sampling: drawn(lm, [p for p, _ in pairs], [seed for _, seed in pairs], sampling),
}
"""Kind of a call -> function that asks a model about items."""


@dataclass(frozen=True)
class Part:
    """Items of one call that one worker answers.

    Attributes:
        kind: Key of ``ASK``.
        items: Items.
        arguments: Further arguments of the call, the same for all items.
        afresh: Whether the worker clears its prefix cache first.
    """

    kind: str
    items: tuple[Any, ...]
    arguments: tuple[Any, ...] = ()
    afresh: bool = False


@dataclass(frozen=True)
class Outcome:
    """Answers to a part; items are numbered within the part.

    Attributes:
        answered: Item -> its answer.
        refused: Item -> reason why the model refuses it.
        error: Reason why the remaining items have no answer; None if there are none.
    """

    answered: Mapping[int, Any] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class About:
    """Model of a worker.

    Attributes:
        name: Name of the model.
        identity: Everything that decides its numbers.
        error: Reason why the worker could not open it; None if it did.
    """

    name: str = ""
    identity: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


class Worker:
    """A copy of the model.

    Errors that a user can correct are returned, because the libraries that start workers print raised ones with the
    stack traces of two processes.

    Args:
        opening: Function that opens the model.
        identity: Function from the model to everything that decides its numbers.
    """

    def __init__(self, opening: Callable[[], Any], identity: Callable[[Any], dict[str, Any]]) -> None:
        try:
            self._lm = opening()
            self._about = About(str(self._lm.model), identity(self._lm))
        except (ValueError, OSError, ImportError) as error:
            self._about = About(error=str(error))

    def about(self) -> About:
        """Return which model this is."""
        return self._about

    def answer(self, part: Part) -> Outcome:
        """Ask the model, which was opened, about the items of a part."""
        if part.afresh and hasattr(self._lm, "forget"):
            self._lm.forget()
        try:
            answered, refused = settled(lambda items: ASK[part.kind](self._lm, items, *part.arguments), part.items)
        except Unanswered as error:
            return Outcome(error.answered, error=str(error))
        except (ValueError, OSError, FloatingPointError) as error:
            return Outcome(error=str(error))
        return Outcome(answered, refused)
