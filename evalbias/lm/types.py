"""Questions to a language model, their answers, and the interface of every model that answers them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evalbias.measures.arrays import FloatArray
from evalbias.values import json_number

Message = Mapping[str, str]
Prompt = str | Sequence[Message]

SAME_MODEL = 0.2  # largest difference in nats between two runs of a server's model (16-bit weights, any batch)
MOST = math.exp(SAME_MODEL)  # largest sum of probabilities of choices, each possibly from another run
CHUNK = 256  # default number of questions in a call of a model
MAX_TOKENS = 256  # default limit of new tokens in a text


def chunk_of(lm: Any) -> int:
    """Return the number of questions for a call of any language model."""
    return int(getattr(lm, "chunk", CHUNK))


def as_messages(prompt: Prompt) -> Sequence[Message]:
    """Return a prompt as messages; a text becomes a user message."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


# Answers.


@dataclass(frozen=True)
class Usage:
    """Tokens that an answer took; None where the model does not report them."""

    prompt: int | None = None  # tokens read
    completion: int | None = None  # tokens written


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Return the tokens of several requests; None if the number of any request is unknown."""
    prompts, completions = zip(*((usage.prompt, usage.completion) for usage in usages), strict=True)
    return Usage(*(None if None in counts else sum(counts) for counts in (prompts, completions)))


@dataclass(frozen=True)
class LogLikelihood:
    """Log-probabilities in nats of a continuation's n >= 1 tokens, ``per_token`` of shape (n,)."""

    per_token: FloatArray
    usage: Usage | None = None  # None if the answer was cached

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
        return float(self.per_token.mean())


@dataclass(frozen=True)
class ChoiceLogprobs:
    """Log-probabilities of the same c choices after each of n prompts, in nats, not renormalized.

    ValueError if the probabilities of a row sum to more than ``MOST``: the choices exclude each other.
    """

    choices: tuple[str, ...]  # in the caller's order
    logprobs: FloatArray  # (n, c), each of a choice's whole token sequence
    renormalized: bool = False  # whether the model returned only shares that sum to 1; the coverage is NaN then
    samples: int | None = None  # number of answers from which each row is estimated; None if measured
    usage: Usage | None = None  # of a single row; None if the answer was cached
    reasons: tuple[str, ...] = ()  # texts written before the answer; a row is the mean over them

    def __post_init__(self) -> None:
        with np.errstate(over="ignore"):
            total = float(np.fmax.reduce(np.exp(self.logprobs).sum(axis=1), initial=0.0))  # NaN are passed over
        if total > MOST:
            raise ValueError(
                f"the probabilities of the choices {list(self.choices)!r:.80} sum to {total:.3g}, not to at most 1"
            )

    @property
    def coverage(self) -> FloatArray:
        """(n,) probability that any of the choices follows, in [0, 1]; NaN if ``renormalized``."""
        if self.renormalized:
            return np.full(len(self.logprobs), np.nan)
        return np.asarray(np.exp(self.logprobs).sum(axis=1), dtype=np.float64)

    @property
    def probabilities(self) -> FloatArray:
        """(n, c) shares of the coverage, each row summing to 1; NaN if no choice has any probability."""
        with np.errstate(invalid="ignore"):  # a row of -inf becomes NaN: undefined, not uniform
            shares = np.exp(self.logprobs - self.logprobs.max(axis=1, keepdims=True))
            return np.asarray(shares / shares.sum(axis=1, keepdims=True), dtype=np.float64)


def unanswered(choices: Sequence[str]) -> ChoiceLogprobs:
    """Return an answer for a prompt that is not sent to a model: NaN for every choice."""
    return ChoiceLogprobs(tuple(choices), np.full((1, len(choices)), np.nan))


def stacked(rows: Sequence[ChoiceLogprobs], choices: Sequence[str]) -> ChoiceLogprobs:
    """Stack answers about the same choices, shape (n, c); n is 0 without answers."""
    return ChoiceLogprobs(
        tuple(choices),
        np.concatenate([np.empty((0, len(choices))), *(row.logprobs for row in rows)]),
        renormalized=any(row.renormalized for row in rows),
        samples=next((row.samples for row in rows if row.samples is not None), None),
    )


@dataclass(frozen=True)
class Written:
    """A text that a model wrote."""

    text: str
    finished: bool = True  # True if it ended by itself or at a stop string, not at the token limit
    usage: Usage | None = None  # None if the text was cached


@dataclass(frozen=True)
class Refused:
    """Answer to a question that a model cannot take; other questions may still be answered."""

    reason: str  # the rest of a sentence that begins with the prompt: "has 99 tokens, but ..."
    too_long: bool = False  # True if it exceeds the model's context


# Questions. ``dump`` and ``load`` convert an answer to JSON data and back.


@dataclass(frozen=True)
class Choices:
    """Which of the choices follows a prompt? The answer is a ``ChoiceLogprobs`` with a single row."""

    prompt: Prompt
    choices: tuple[str, ...]

    def dump(self, answer: ChoiceLogprobs) -> Any:
        return {"logprobs": answer.logprobs[0], "renormalized": answer.renormalized}

    def load(self, kept: Any) -> ChoiceLogprobs:
        row = np.array([json_number(value) for value in kept["logprobs"]]).reshape(1, len(self.choices))
        return ChoiceLogprobs(self.choices, row, renormalized=kept["renormalized"])


@dataclass(frozen=True)
class Likelihood:
    """How likely is a continuation after a context? The answer is a ``LogLikelihood``."""

    context: Prompt
    continuation: str

    def dump(self, answer: LogLikelihood) -> Any:
        return {"per_token": answer.per_token}

    def load(self, kept: Any) -> LogLikelihood:
        return LogLikelihood(np.array([json_number(value) for value in kept["per_token"]]))


@dataclass(frozen=True)
class Text:
    """Request for the text after a prompt. The answer is a ``Written``, kept without its usage."""

    prompt: Prompt
    max_tokens: int | None = None  # None leaves this and the other settings to the model's defaults
    temperature: float | None = None  # 0 takes the most probable token
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()  # the text ends before the first stop string in it

    def dump(self, answer: Written) -> Any:
        return {"written": answer.text, **({} if answer.finished else {"finished": False})}

    def load(self, kept: Any) -> Written:
        return Written(str(kept["written"]), kept.get("finished", True))


@dataclass(frozen=True)
class Decision(Choices):
    """A closed question about a state, in the form of models that answer with the probability of every option.

    ``prompt`` is the state, any JSON: the judged texts by name, and demonstrations. ``choices`` label the options as
    they are sent: the levels of a score, lowest first; no and yes of a yes/no question, DSPy's ``Noul``.
    """

    kind: str = "choice"  # "choice", "score" or "noul"
    instructions: Any = "Which answer follows?"
    meanings: tuple[Any, ...] = ()  # description of each option, None without one; () if no option has one
    name: str = "answer"  # some servers put it into the prompt

    @property
    def options(self) -> dict[str, Any]:
        """Label -> its meaning or None, in the order in which they are sent."""
        return dict(zip(self.choices, self.meanings or [None] * len(self.choices), strict=True))


@dataclass(frozen=True)
class Decisions:
    """Several closed questions about the same state, sent in one request. The answer is a ``Decided``."""

    questions: tuple[Decision, ...]


@dataclass(frozen=True)
class Decided:
    """Answers to several closed questions about the same state."""

    answers: tuple[ChoiceLogprobs | Refused, ...]
    usage: Usage | None = None


Question = Choices | Likelihood | Text
Answer = ChoiceLogprobs | LogLikelihood | Written | Decided | Refused
Answers = MutableMapping[int, Any]  # place of a question in a call -> its answer


class MeasuringLM:
    """A language model that answers questions. Subclasses implement ``answer``; other methods build on it."""

    model: str

    chunk = CHUNK  # number of questions in a call when there are many
    # True if an answer depends on its question alone, as a server's does, and may be kept as soon as it comes. The last
    # digits of a local model's answer depend on its call, so the answers of a call are kept together.
    answers_alone = False
    is_local = False  # True if files on this machine, which its fingerprint covers, decide its answers
    decides = False  # True if the model takes closed questions in their own form, ``Decision``

    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        """Set ``answers``, place of a question -> its answer, as they come, so that an early end loses none.

        An answer does not depend on the other questions, up to rounding; ``Refused`` answers a question that the model
        cannot take. Unless the call raises, every question is answered. Raises NotImplementedError for a kind that the
        model does not answer, ``RequestRefused`` if it refuses the settings, and so every question, ``Unanswered`` if a
        question has no answer, and ValueError for a malformed question, such as without choices.
        """
        raise NotImplementedError

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability in nats of every choice after every prompt.

        Raises ``PromptRefused`` (``PromptTooLong``) if the model cannot take a prompt, FloatingPointError if it returns
        NaN or infinite logits, and the errors of ``answer``.
        """
        if isinstance(prompts, str):
            raise ValueError(f"The prompts are the text {prompts!r:.80}: give a list of prompts.")
        choices = tuple(choices)
        return stacked(self._all([Choices(prompt, choices) for prompt in prompts]), choices)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability in nats of each continuation after its context; errors as in ``choice_logprobs``.

        ValueError also if a continuation is empty or nothing precedes it; NotImplementedError without likelihoods.
        """
        for place, pair in enumerate(pairs):
            if isinstance(pair, str) or len(pair) != 2 or not isinstance(pair[1], str):
                raise ValueError(f"Text {place} of the call is {pair!r:.80}: give a pair (context, continuation).")
        return self._all([Likelihood(context, continuation) for context, continuation in pairs])

    def texts(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """Return a text after every prompt, decoded greedily; errors as in ``choice_logprobs``."""
        return [written.text for written in self._all([Text(prompt, max_tokens, 0.0) for prompt in prompts])]

    def _all(self, questions: Sequence[Question]) -> list[Any]:
        answers: dict[int, Any] = {}
        self.answer(questions, answers)
        raise_refused(answers)
        return [answers[place] for place in range(len(questions))]


# Refusals and failures.


STATUSES = frozenset({400, 413, 422})  # HTTP, may be about the prompt: bad request, too large, unprocessable

KEY_REMEDY = (
    "Give the key as api_key, in EVALBIAS_API_KEY or in the variable that --api-key-env names; OPENAI_API_KEY is sent "
    "to https://api.openai.com only, which reads no other, as TYPESAFE_API_KEY to https://api.typesafe.ai."
)
"""Advice for a server that asks for a key."""
CREDIT_REMEDY = "Add credit to the account, or use another key."


class PromptRefused(ValueError):  # noqa: N818 - a value error like the others, named for the problem
    """A model cannot take some questions of a call; the other questions may still be answered."""

    def __init__(self, refused: Mapping[int, str], names: Mapping[int, str] | None = None) -> None:
        super().__init__(refused, names)  # the arguments, by which an error is copied and pickled
        if not refused:
            raise ValueError("No item is refused: return the answers.")
        self.refused, self.names = dict(refused), dict(names or {})  # place in the call -> reason, name in the message

    def __str__(self) -> str:
        first = min(self.refused)
        more = f" ({len(self.refused) - 1} more of the call are refused.)" if len(self.refused) > 1 else ""
        return f"{self.names.get(first, f'Text {first} of the call')} {self.refused[first]}{more}"


class PromptTooLong(PromptRefused):
    """A prompt is longer than the model's context; prompts are never truncated."""


class Unanswered(ConnectionError):  # noqa: N818 - a connection error like the others, named for the problem
    """Some questions of a call have no answer."""


class RequestRefused(Unanswered):
    """A model refuses every prompt under the settings of a call, or does not exist: change the settings."""


class NoProbabilities(ValueError):  # noqa: N818 - a value error like the others, named for the problem
    """A model reports no token probabilities; the message says what it did instead, and names the two ways out."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(model, reason)
        self.model, self.reason = model, reason

    def __str__(self) -> str:
        return (
            f"{self.model} reports no token probabilities: {self.reason}. Either measure with LocalLM, with ServerLM "
            "(vLLM, SGLang, llama.cpp) or with a model whose answers carry logprobs; or estimate the probabilities "
            "from repeated answers: scoring='sampled', or --samples on the command line."
        )


class ModelChanged(ValueError):  # noqa: N818 - a value error like the others, named for the problem
    """The model behind a name has changed since the earlier answers."""


def raise_refused(answers: Mapping[int, Any], names: Mapping[int, str] | None = None) -> None:
    """Raise ``PromptRefused`` if any of a call's questions is refused, ``PromptTooLong`` if all are too long."""
    refused = {place: answer for place, answer in sorted(answers.items()) if isinstance(answer, Refused)}
    if refused:
        kind = PromptTooLong if all(answer.too_long for answer in refused.values()) else PromptRefused
        raise kind({place: answer.reason for place, answer in refused.items()}, names)


def by_kind(questions: Sequence[Question]) -> dict[Any, list[int]]:
    """Return choices, or kind for other questions -> places of the questions that are asked together."""
    groups: dict[Any, list[int]] = {}
    for place, question in enumerate(questions):
        groups.setdefault(question.choices if isinstance(question, Choices) else type(question), []).append(place)
    return groups
