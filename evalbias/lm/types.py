"""What models are asked and answer, and how an item is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from evalbias.measures.arrays import FloatArray

# Token probabilities, and the protocol of a language model that returns them.


Message = Mapping[str, str]
Prompt = str | Sequence[Message]

SAME_MODEL = 0.2
"""Largest difference in nats between two runs of one model behind a server (16-bit weights, any batch)."""

MOST = math.exp(SAME_MODEL)
"""Largest sum of the probabilities of choices, which exclude each other; each may come from a run of its own."""


def as_messages(prompt: Prompt) -> Sequence[Message]:
    """Return a prompt as messages; a text is the user's."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


class PromptRefused(ValueError):  # noqa: N818 - a value error like the others, named for the problem
    """A model cannot be asked about some items of a call, which says nothing about the others.

    Items that are neither refused nor answered were not asked: a call without the refused ones answers them. See
    ``evalbias.lm.types.settled``.

    Args:
        refused: Index of an item in the call -> what is wrong with its prompt, as the rest of a sentence that begins
            with the prompt: "has 99 tokens, but the model's context is 64."; at least one.
        answered: Index of an item in the call -> its answer.
        names: Index of an item in the call -> its name in the message. Defaults to the index.
    """

    def __init__(
        self,
        refused: Mapping[int, str],
        answered: Mapping[int, Any] | None = None,
        names: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(refused, answered, names)  # the arguments: workers pickle their errors
        if not refused:
            raise ValueError("No item is refused: return the answers.")
        self.refused = dict(refused)
        self.answered = dict(answered or {})
        self.names = dict(names or {})

    def __str__(self) -> str:
        first = min(self.refused)
        more = f" ({len(self.refused) - 1} more of the call are refused.)" if len(self.refused) > 1 else ""
        return f"{self.names.get(first, f'Text {first} of the call')} {self.refused[first]}{more}"


class Unanswered(ConnectionError):  # noqa: N818 - a connection error like the others, named for the problem
    """Some items of a call have no answer; the other answers are kept.

    Attributes:
        answered: Index of an item in the call -> its answer.
    """

    def __init__(self, message: str, answered: dict[int, Any]) -> None:
        super().__init__(message)
        self.answered = answered


class RequestRefused(Unanswered):
    """A model refuses every prompt under the settings of a call, or does not exist; the settings are to be changed."""


class NoProbabilities(ValueError):  # noqa: N818 - a value error like the others, named for the problem
    """A model reports no token probabilities; the message names the two ways out.

    Attributes:
        model: Name of the model.
        reason: What it did when it was asked for them.
    """

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(model, reason)
        self.model = model
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.model} reports no token probabilities: {self.reason}. Either measure with LocalLM, with ServerLM "
            "(vLLM, SGLang, llama.cpp) or with a model whose answers carry logprobs; or estimate the probabilities "
            "from repeated answers: scoring='sampled', or --samples on the command line."
        )


class ModelChanged(ValueError):  # noqa: N818 - a value error like the others, named for the problem
    """A model is no longer the one that gave the earlier answers."""


class Interrupted(KeyboardInterrupt):
    """The user interrupted a call; the answers so far are kept.

    Attributes:
        answered: Index of an item in the call -> its answer.
    """

    def __init__(self, answered: dict[int, Any]) -> None:
        super().__init__()
        self.answered = answered


ARRIVED: ContextVar[Callable[[int, Any], None] | None] = ContextVar("arrived", default=None)
"""Function that models whose class has ``tells_answers`` call with the index and the answer of an item, as it comes.

It is called from several threads, once for each answered item of the call that it was set for.
"""

CHUNK = 256
"""Number of prompts in one call of a model when there are many."""


def chunk_of(lm: Any) -> int:
    """Return the number of prompts for one call: ``CHUNK``, or more if the model serves many requests at once.

    Such a model idles at the end of a call, so calls hold eight times the requests in flight.
    """
    return max(CHUNK, 8 * getattr(lm, "in_flight", 0))


@dataclass(frozen=True)
class LogLikelihood:
    """Log-probability of one continuation, in nats.

    Attributes:
        per_token: (n,) log-probability of each token of the continuation, n >= 1.

    Example:
        >>> likelihood = LogLikelihood(np.log([0.5, 0.25]))
        >>> round(likelihood.total, 3), round(likelihood.mean, 3)
        (-2.079, -1.04)
    """

    per_token: FloatArray

    @property
    def tokens(self) -> int:
        """Number of tokens that contain a character of the continuation."""
        return int(self.per_token.shape[0])

    @property
    def total(self) -> float:
        """Sum over the tokens: ``log P(continuation | context)``."""
        return float(self.per_token.sum())

    @property
    def mean(self) -> float:
        """Mean over the tokens."""
        return float(self.per_token.mean())


@dataclass(frozen=True)
class ChoiceLogprobs:
    """Log-probabilities of the same choices after each of several prompts, in nats, not renormalized.

    Attributes:
        choices: (c,) texts of the choices, in the caller's order.
        logprobs: (n, c) log-probability of each choice's whole token sequence.
        renormalized: Whether the model returned only shares that sum to 1; the coverage is NaN then.
        samples: Number of answers from which each row is estimated; None for measured log-probabilities.

    Raises:
        ValueError: The probabilities of a row sum to more than ``MOST``: the choices exclude each other.

    Example:
        >>> answer = ChoiceLogprobs(("yes", "no"), np.log([[0.3, 0.1]]))
        >>> answer.coverage.round(3), answer.probabilities.round(3)
        (array([0.4]), array([[0.75, 0.25]]))
    """

    choices: tuple[str, ...]
    logprobs: FloatArray
    renormalized: bool = False
    samples: int | None = None

    def __post_init__(self) -> None:
        with np.errstate(over="ignore"):
            total = float(np.nanmax(np.exp(self.logprobs).sum(axis=1), initial=0.0))
        if total > MOST:
            raise ValueError(
                f"the probabilities of the choices {list(self.choices)!r:.80} sum to {total:.3g}, not to at most 1"
            )

    def rows(self) -> list[ChoiceLogprobs]:
        """Return the answers to each prompt."""
        return [replace(self, logprobs=self.logprobs[i : i + 1]) for i in range(len(self.logprobs))]

    @property
    def coverage(self) -> FloatArray:
        """(n,) probability that any of the choices follows, in [0, 1]; NaN if ``renormalized``."""
        if self.renormalized:
            return np.full(len(self.logprobs), np.nan)
        return np.asarray(np.exp(self.logprobs).sum(axis=1), dtype=np.float64)

    @property
    def probabilities(self) -> FloatArray:
        """(n, c) shares of the coverage, each row summing to 1; NaN if no choice has any probability."""
        peak = self.logprobs.max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            weights = np.exp(self.logprobs - peak)  # a row of -inf becomes NaN: undefined, not uniform
        return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)


def unanswered(choices: Sequence[str]) -> ChoiceLogprobs:
    """Return the undefined answer to a prompt that a model was not asked: NaN for every choice."""
    return ChoiceLogprobs(tuple(choices), np.full((1, len(choices)), np.nan))


def stacked(rows: Sequence[ChoiceLogprobs], choices: Sequence[str]) -> ChoiceLogprobs:
    """Return answers about these choices as one; without answers, it has no row."""
    return ChoiceLogprobs(
        tuple(choices),
        np.concatenate([np.empty((0, len(choices))), *(row.logprobs for row in rows)]),
        renormalized=any(row.renormalized for row in rows),
        samples=next((row.samples for row in rows if row.samples is not None), None),
    )


@runtime_checkable
class MeasuringLM(Protocol):
    """A language model that returns the log-probabilities of given texts.

    Results come in the order of the arguments and do not depend on the rest of the call. Items that the model cannot
    take, such as too long ones, raise ``PromptRefused``, which names them and holds the answers that the model gave.
    """

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context."""
        ...

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability of every choice after every prompt."""
        ...


# Items that a model refuses: which of a call they are, and whether the item or the settings are to blame.
#
# A server answers "400 Bad Request" to a prompt that is too long or against its policy, and also to a setting that it
# does not know. Codes and wordings differ between servers and versions, so they are not read. The same request with a
# harmless text in place of the judged one tells the two apart: if it is answered, the refusal was about the item, which
# is left out; if it is refused too, so would be every item, and the call ends with an error.


Item = TypeVar("Item")
Answer = TypeVar("Answer")

STATUSES = frozenset({400, 413, 422})
"""HTTP statuses that may be about the prompt: bad request, too large, unprocessable."""

HARMLESS = "Answer with one digit."
"""Text in place of the judged one."""


def harmless(prompt: Prompt) -> Prompt:
    """Return a prompt with ``HARMLESS`` as its last user message; instructions and demonstrations stay as they are."""
    if isinstance(prompt, str):
        return HARMLESS
    last = max((i for i, message in enumerate(prompt) if message["role"] == "user"), default=len(prompt) - 1)
    return [{**message, "content": HARMLESS} if i == last else message for i, message in enumerate(prompt)]


def each(check: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """Apply a function to every item of a call.

    Args:
        check: Function of one item, which raises ``PromptRefused`` as for a call with this item alone.
        items: Items of the call.

    Raises:
        PromptRefused: Items are refused, all of which the exception holds.
    """
    done: list[Answer] = []
    errors: dict[int, PromptRefused] = {}
    for number, item in enumerate(items):
        try:
            done.append(check(item))
        except PromptRefused as error:
            errors[number] = error
    if errors:
        kinds = {type(error) for error in errors.values()}
        kind = kinds.pop() if len(kinds) == 1 else PromptRefused
        raise kind({number: error.refused[0] for number, error in errors.items()})
    return done


def settled(
    ask: Callable[[list[Item]], Sequence[Answer]], items: Sequence[Item]
) -> tuple[dict[int, Answer], dict[int, str]]:
    """Ask about all items, and again about those that a refused call left unanswered.

    Returns:
        Index of an item -> its answer, in the order of the items, and index of a refused item -> the reason.

    Raises:
        Unanswered: There was a connection error; the exception holds all answers so far.
        Interrupted: The user interrupted a call; the exception holds all answers so far.
        ValueError: The model gives more or fewer answers than it was asked for.
    """
    answered: dict[int, Answer] = {}
    refused: dict[int, str] = {}
    while waiting := [i for i in range(len(items)) if i not in answered and i not in refused]:
        try:
            answers: Mapping[int, Answer] = _numbered(ask([items[i] for i in waiting]), len(waiting))
        except PromptRefused as error:
            answers = error.answered
            refused |= {waiting[i]: reason for i, reason in error.refused.items()}
        except (Unanswered, Interrupted) as error:
            error.answered = answered | {waiting[i]: answer for i, answer in error.answered.items()}
            raise
        answered |= {waiting[i]: answer for i, answer in answers.items()}
    return dict(sorted(answered.items())), refused


def _numbered(answers: Sequence[Answer], asked: int) -> dict[int, Answer]:
    if len(answers) != asked:  # asking again for those that are missing might never end
        raise ValueError(f"The model gave {len(answers)} answers to {asked} prompts: correct it, one answer a prompt.")
    return dict(enumerate(answers))


def remembered(
    ask: Callable[[list[Item]], Sequence[Answer]],
    items: Sequence[Item],
    keys: Sequence[str],
    known: MutableMapping[str, Answer],
) -> list[Answer]:
    """Return the answers to all items; those that are not known yet are asked for and kept, whatever ends the call.

    Args:
        ask: Function from items to their answers.
        items: Items of the call.
        keys: Key of every item; items with the same key have the same answer.
        known: Key -> answer; new answers are added.

    Raises:
        PromptRefused: Items are refused; the exception holds the answers of the others.
        Unanswered: There was a connection error; the exception holds all answers so far.
        Interrupted: The user interrupted a call; the exception holds all answers so far.
    """
    new = {key: item for key, item in zip(keys, items, strict=True) if key not in known}
    names = list(new)
    try:
        answered, refused = settled(ask, list(new.values()))
    except (Unanswered, Interrupted) as error:
        known.update({names[i]: answer for i, answer in error.answered.items()})
        error.answered = {number: known[key] for number, key in enumerate(keys) if key in known}
        raise
    known.update({names[i]: answer for i, answer in answered.items()})
    check_refused(keys, {names[i]: reason for i, reason in refused.items()}, known.__getitem__)
    return [known[key] for key in keys]


def check_refused(keys: Sequence[str], refused: Mapping[str, str], answer: Callable[[str], Any]) -> None:
    """Check that no item of a call is refused.

    Args:
        keys: Key of every item.
        refused: Key of a refused item -> the reason.
        answer: Function from the key of any other item to its answer.

    Raises:
        PromptRefused: An item is refused.
    """
    if refused:
        raise PromptRefused(
            {number: refused[key] for number, key in enumerate(keys) if key in refused},
            {number: answer(key) for number, key in enumerate(keys) if key not in refused},
        )


FOLLOW = "\n"

Span = tuple[int, int]
"""First character of a part of a text, and the character after it."""

Closing = tuple[str, tuple[Span, ...]]
"""Text that would follow an answer, and where a chat template wrote control tokens in it, in order."""


def plain_closing() -> Closing:
    """Return what follows an answer where there is no chat template."""
    return FOLLOW, ()


@dataclass(frozen=True)
class Joined:
    """A prompt and the text after it, as one text.

    Attributes:
        text: The text.
        context: Number of characters before the text after the prompt.
        special: Whether the tokenizer adds its special tokens.
        controls: Where a chat template wrote control tokens, in order; the rest is plain text, whatever it spells.
    """

    text: str
    context: int
    special: bool
    controls: tuple[Span, ...]


@dataclass(frozen=True)
class Rendered:
    """A prompt as text.

    Attributes:
        text: Text of the prompt.
        lead: Text between the prompt and an answer that is given rather than generated.
        special: Whether the tokenizer adds its special tokens; a chat template has written them already.
        controls: Where the chat template wrote control tokens in ``text``, in order.
        closing: Function that returns what would follow the answer. Few prompts need it: those whose choices are
            prefixes of each other, which it closes.
    """

    text: str
    lead: str = ""
    special: bool = True
    controls: tuple[Span, ...] = ()
    closing: Callable[[], Closing] = field(default=plain_closing, compare=False, repr=False)

    @property
    def follow(self) -> str:
        """Text that would follow the answer."""
        return self._closed[0]

    @property
    def follow_controls(self) -> tuple[Span, ...]:
        """Where the chat template wrote control tokens in ``follow``, in order."""
        return self._closed[1]

    @cached_property
    def _closed(self) -> Closing:
        return self.closing()

    def before(self, answer: str, *, closed: bool = False) -> Joined:
        """Join the prompt and an answer that is given, possibly closed with the text that would follow it."""
        context = self.text + self.lead
        text, controls = context + answer, self.controls
        if closed:
            controls += tuple((len(text) + start, len(text) + stop) for start, stop in self.follow_controls)
            text += self.follow
        return Joined(text, len(context), self.special, controls)

    def alone(self) -> Joined:
        """Return the prompt without an answer, as a model continues it."""
        return Joined(self.text, len(self.text), self.special, self.controls)


class PromptTooLong(PromptRefused):
    """A prompt is longer than the model's context; prompts are never truncated."""


# The base of models that change or watch what another model answers.


class WrappedLM:
    """A measuring LM around another one; every attribute that a subclass does not define is the wrapped model's.

    Args:
        lm: Model to ask.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        self._lm = lm

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy is asked for these before it has the model
            raise AttributeError(name)
        return getattr(self._lm, name)
