"""The seam with DSPy: what its requests, engines and errors are to us."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import dspy
import numpy as np
from dspy import lm15
from dspy._vendor.lm15.judgments import non_judgment_properties, request_judgments
from dspy._vendor.lm15.serde import request_to_dict, response_from_dict, response_to_dict
from dspy.adapters.types.decision import Choice, Noul, Score, decision_type
from dspy.clients.base_lm import LM_CLASS_STATE_KEY as LM_CLASS
from dspy.clients.engines.base import validate_request
from dspy.utils.exceptions import LMError, LMInvalidRequestError, LMUnsupportedModelError

from evalbias.lm.reading import first_token_row, first_tokens
from evalbias.lm.types import (
    STATUSES,
    ChoiceLogprobs,
    Message,
    NoProbabilities,
    PromptRefused,
    PromptTooLong,
    RequestRefused,
)

# DSPy names that evalbias needs and that DSPy does not export publicly.
#
# Every other module imports them from here, so that a new DSPy release has to be checked in one file only. All of them
# were seen in DSPy 3.4.1; the package requires ``dspy>=3.4.1,<3.5``.
#
# * ``request_judgments``, ``non_judgment_properties`` (``dspy._vendor.lm15.judgments``): read the judgments that a
#   request asks for. ``dspy.lm15`` exports only ``judgments``, which writes them.
# * ``request_to_dict``, ``response_to_dict``, ``response_from_dict`` (``dspy._vendor.lm15.serde``): the JSON form of
#   requests and responses. ``dspy.lm15`` exports the types without it.
# * ``validate_request`` (``dspy.clients.engines.base``): the check that every DSPy engine runs first.
#   ``dspy.clients.engines`` exports the engines without it.
# * ``LM_CLASS`` (``dspy.clients.base_lm.LM_CLASS_STATE_KEY``): the key of a saved model's class in its state.
# * ``active_trace`` (``dspy.settings.trace``, also in DSPy 2): the trace that optimizers read. The setting is public to
#   read but its list, which evalbias edits in place, has no documented interface.
# * ``decision_type`` (``dspy.adapters.types.decision``): which outputs are decisions; experimental in DSPy.
# * ``calling_predictor`` (``dspy.settings.caller_modules``): the module that is being called, as DSPy's own decision
#   evidence finds it.
# * ``without_truncation_warning`` (logger ``dspy.clients.lm``): DSPy warns of every answer that reached its token
#   limit, and offers no setting for answers that are meant to be short.


__all__ = [
    "LM_CLASS",
    "active_trace",
    "calling_predictor",
    "is_decision",
    "non_judgment_properties",
    "request_judgments",
    "request_to_dict",
    "response_from_dict",
    "response_to_dict",
    "validate_request",
    "without_truncation_warning",
]

_short: ContextVar[bool] = ContextVar("_short", default=False)


def _keep(record: logging.LogRecord) -> bool:
    return not (_short.get() and "truncated" in record.getMessage())


logging.getLogger("dspy.clients.lm").addFilter(_keep)


def active_trace() -> list[Any] | None:
    """Return the list to which DSPy appends (predictor, inputs, prediction), or None while nothing is traced."""
    trace: list[Any] | None = dspy.settings.trace
    return trace


def calling_predictor() -> Any:
    """Return the predictor that is being called in this context, or None."""
    caller = (dspy.settings.caller_modules or [None])[-1]
    return caller if isinstance(caller, dspy.Predict) else None


def is_decision(field: Any) -> bool:
    """Return whether an output field is declared as one of DSPy's decisions, with its options."""
    declared = any(
        isinstance(kind, type) and issubclass(kind, Noul | Score | Choice)
        for kind in (field.annotation, *field.metadata)
    )
    return declared and decision_type(field) is not None


@contextmanager
def without_truncation_warning() -> Iterator[None]:
    """Silence DSPy's warning of truncated answers in this context: one token was asked for."""
    token = _short.set(True)
    try:
        yield
    finally:
        _short.reset(token)


# Base of our engines: DSPy's calls that follow from ``complete``, and their asynchronous form.


THREADS = 64
"""Number of simultaneous asynchronous requests to a local model, which batches them."""


class Engine:
    """Base of our engines: what they hold is freed with them, and shared by copies of a program."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer one request; see ``dspy.clients.engines.Engine``."""
        raise NotImplementedError

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """Return the whole answer as one stream of events."""
        return iter(lm15.response_to_events(self.complete(request)))

    def close(self) -> None:
        """Do nothing: nothing is open that outlives the engine."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return the engine itself."""
        return self


class AsyncEngine:
    """The async form of one of our engines.

    An engine with ``complete_async`` answers without threads. Otherwise each request waits in a thread, where it is
    batched with the others.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __deepcopy__(self, memo: dict[int, Any]) -> AsyncEngine:
        """Return the engine itself: copies of a program share the model."""
        return self

    async def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer one request."""
        if hasattr(self._engine, "complete_async"):
            response: lm15.Response = await self._engine.complete_async(request)
            return response
        run = functools.partial(contextvars.copy_context().run, self._engine.complete, request)
        return await asyncio.get_running_loop().run_in_executor(_threads(os.getpid()), run)

    async def stream(self, request: lm15.Request) -> AsyncIterator[Any]:
        """Yield the whole answer as one stream of events."""
        for event in lm15.response_to_events(await self.complete(request)):
            yield event

    async def aclose(self) -> None:
        """Do nothing: the engine itself holds the model."""


@functools.cache
def _threads(_: int) -> ThreadPoolExecutor:
    """Return the threads of a process, by its id; asyncio's own are 6 on 2 cores, and batches would be as small."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="evalbias-async")


# One judgment of a ``dspy.LM``: the requests for its probabilities, and how to read their answers.


FIELD = "score"
LOGPROBS = "candidate_logprobs"
"""Key of ``Response.provider_data`` under which our engines return the log-probabilities before renormalizing."""

COVERAGE = "coverage"
"""Key under which DSPy's own engine returns the probability that any of the choices follows."""


def judgment_request(model: str, messages: Sequence[Message], choices: Sequence[str]) -> lm15.Request:
    """Return the request that asks which of the choices follows the messages, with its probability."""
    fmt = lm15.judgments(**{FIELD: lm15.choice("Which answer follows?", list(choices))})
    return chat_request(model, messages, lm15.Config(response_format=fmt, probabilities="required"))


def first_token_request(model: str, messages: Sequence[Message], top: int) -> lm15.Request:
    """Return the request for the ``top`` most probable first tokens of the answer to the messages."""
    return chat_request(model, messages, lm15.Config(max_tokens=1, temperature=1.0, top_p=1.0, logprobs=top))


def chat_request(model: str, messages: Sequence[Message], config: lm15.Config) -> lm15.Request:
    """Return messages as a request: system messages become its system text, the others its turns.

    Raises:
        ValueError: A message has a role other than system, user and assistant.
    """
    system = "\n\n".join(m["content"] for m in messages if m["role"] == "system") or None
    makers = {"user": lm15.Message.user, "assistant": lm15.Message.assistant}
    turns = []
    for number, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if message["role"] not in makers:
            raise ValueError(f"Message {number} has the role {message['role']!r:.80}: use system, user or assistant.")
        turns.append(makers[message["role"]](message["content"]))
    return lm15.Request(model=model, system=system, messages=tuple(turns), config=config)


def is_measured(response: lm15.Response) -> bool:
    """Return whether a response holds the measured probabilities of a judgment."""
    part = _data(response)
    return part is not None and part.probabilities is not None


def read_judgment(response: lm15.Response, choices: Sequence[str]) -> ChoiceLogprobs:
    """Return the measured answer as log-probabilities, shape (1, len(choices)).

    Our engines return the log-probabilities, DSPy's own engine the shares and their coverage. From a response with
    shares only, the coverage is NaN.

    Raises:
        NoProbabilities: The response has no measured probabilities.
        ValueError: The response has those of other choices.
        PromptRefused: The probabilities sum to more than 1.
    """
    part = _data(response)
    if part is None or part.probabilities is None:
        raise NoProbabilities(response.model, "it answered a judgment without measuring it")
    shares = part.probabilities[FIELD]
    if set(shares) != set(choices):
        raise ValueError(
            f"{response.model} returned probabilities of {sorted(shares)}, not of {sorted(choices)}: use another model."
        )
    details = response.provider_data or {}
    coverage = details.get(COVERAGE, {}).get(FIELD)
    if LOGPROBS in details:
        row = np.array([details[LOGPROBS][FIELD][c] for c in choices], dtype=np.float64)  # (c,)
    else:
        with np.errstate(divide="ignore"):  # a share of 0 is a log-probability of -inf
            row = np.log([shares[c] for c in choices]) + (0.0 if coverage is None else np.log(coverage))
    try:
        return ChoiceLogprobs(tuple(choices), row[None], renormalized=LOGPROBS not in details and coverage is None)
    except ValueError as error:
        raise PromptRefused({0: f"has an answer that cannot be used: {error}."}, names={0: "The prompt"}) from error


def read_first_token(response: lm15.Response, choices: Sequence[str]) -> ChoiceLogprobs:
    """Return the log-probabilities of choices from the reported first tokens, shape (1, c); see ``first_token_row``.

    Raises:
        NoProbabilities: The response has no log-probabilities, or only that of the token it wrote.
    """
    if not response.logprobs:
        raise NoProbabilities(response.model, "its answers carry no log-probabilities")
    try:
        top = first_tokens((token.token, token.logprob) for token in response.logprobs[0].top)
    except ValueError as error:
        raise NoProbabilities(response.model, str(error)) from error
    if len(response.logprobs[0].top) < 2:
        raise NoProbabilities(response.model, "its answers carry no log-probabilities of other tokens")
    return ChoiceLogprobs(tuple(choices), first_token_row(top, choices)[None])


def _data(response: lm15.Response) -> lm15.DataPart | None:
    return next((p for p in response.message.parts if isinstance(p, lm15.DataPart)), None)


# Errors of requests to any ``dspy.LM`` that may be about the prompt, and the reason that they give.


ERRORS = (LMError, lm15.LM15Error, NoProbabilities)
"""Errors of one request, of which ``reason_of`` tells those that may be about the prompt."""


def reason_of(error: BaseException) -> str | None:
    """Return why a model refused a request, as in ``PromptRefused``; None if the prompt cannot be to blame."""
    own = own_refusal(error)
    if own is not None:
        return own.refused[0]
    if isinstance(error, NoProbabilities):
        return f"is answered by {error.model} without token probabilities: {error.reason}."
    if not isinstance(error, LMInvalidRequestError | lm15.InvalidRequestError):
        return None
    if isinstance(error, LMUnsupportedModelError | lm15.UnsupportedModelError):
        return None
    if error.status is not None and error.status not in STATUSES:
        return None
    words = error.message.partition("\n\n")[0].strip()  # DSPy adds advice on conversations
    by = f" by {error.model}" if getattr(error, "model", None) else ""
    return f"is refused{by}: {words.rstrip('.') or f'status {error.status}, and DSPy passes no reason on'}."


@contextmanager
def trial_after(refusal: Exception) -> Iterator[None]:
    """Ask about a harmless text, after a refusal; that it is answered shows that the prompt is to blame.

    Raises:
        NoProbabilities: The model reports no probabilities for the harmless text either.
        RequestRefused: The model refuses the harmless text too.
    """
    try:
        yield
    except ERRORS as second:
        if isinstance(second, NoProbabilities) or reason_of(second) is None:
            raise
        raise RequestRefused(
            f"The request {reason_of(refusal)} A harmless text with the same settings is refused too: change the "
            "settings or the model.",
            {},
        ) from refusal


def own_refusal(error: BaseException | None) -> PromptRefused | None:
    """Return the refusal by one of our engines that an error of DSPy stands for."""
    while error is not None and not isinstance(error, PromptRefused):
        error = error.__cause__
    return error


# DSPy's requests and responses, as our engines read and write them.


Ask = Callable[[Sequence[Message], tuple[str, ...]], ChoiceLogprobs]


def judgments(request: lm15.Request) -> dict[str, Any]:
    """Return the judgments that a request asks for, by name; empty if it asks for a text."""
    by_name: dict[str, Any] = request_judgments(request)
    return by_name


def refuse(request: lm15.Request, engine: str) -> None:
    """Refuse a request with a feature that our engines lack, so that nothing is ignored silently.

    Args:
        request: Request from DSPy.
        engine: Name of the engine, for the message.

    Raises:
        lm15.UnsupportedFeatureError: The request uses an unsupported feature; the message names it.
    """
    config, requested = request.config, judgments(request)
    schema = (config.response_format or {}).get("schema")
    features = {
        "tools": bool(request.tools),
        "config.extensions": bool(config.extensions),
        "config.frequency_penalty": config.frequency_penalty is not None,
        "config.presence_penalty": config.presence_penalty is not None,
        "config.reasoning": config.reasoning is not None,
        "config.response_format": config.response_format is not None and not requested,
        "several judgments in a request": len(requested) > 1,
        "text fields beside a judgment": bool(requested) and bool(non_judgment_properties(schema, requested)),
    }
    for feature, used in features.items():
        if used:
            raise lm15.UnsupportedFeatureError(
                f"{engine} does not support {feature}: leave it out, or make a separate request for it."
            )


@contextmanager
def refusals_for_dspy() -> Iterator[None]:
    """Turn the refusal of a prompt into the error that DSPy defines for it.

    Raises:
        lm15.ContextLengthError: The prompt is too long; DSPy raises ``dspy.ContextWindowExceededError``.
        lm15.InvalidRequestError: The prompt is refused for another reason; DSPy raises ``LMInvalidRequestError``.
    """
    try:
        yield
    except PromptRefused as error:
        kind = lm15.ContextLengthError if isinstance(error, PromptTooLong) else lm15.InvalidRequestError
        raise kind(f"The prompt {error.refused[0]}") from error


def messages_of(request: lm15.Request, engine: str) -> list[Message]:
    """Return a request's system text and turns as messages.

    Raises:
        lm15.UnsupportedFeatureError: A message has parts other than text.
    """
    system = request.system
    if system is not None and not isinstance(system, str):
        system = "".join(part.text for part in system)
    done: list[Message] = [{"role": "system", "content": system}] if system else []
    for message in request.messages:
        if message.text is None:
            raise lm15.UnsupportedFeatureError(f"{engine} reads text only: leave out images and other parts.")
        done.append({"role": message.role, "content": message.text})
    return done


def measured(request: lm15.Request, messages: list[Message], ask: Ask) -> lm15.Response:
    """Answer a request for judgments; the response also holds the log-probabilities before renormalizing.

    Args:
        request: Request for judgments.
        messages: Messages of the request.
        ask: Function that returns the log-probabilities of choices after messages.

    Raises:
        lm15.UnsupportedFeatureError: All choices have probability 0, or the model does not report their probabilities.
    """
    value, shares, logprobs = {}, {}, {}
    for name, judgment in judgments(request).items():
        answer = ask(messages, tuple(judgment.keys))
        row = answer.probabilities[0]  # (c,)
        if np.isnan(row).any():
            raise lm15.UnsupportedFeatureError(
                f"{request.model} gives {list(judgment.keys)} no probability, or does not report it: use other choices."
            )
        best = judgment.keys[int(row.argmax())]
        value[name] = _value(judgment.kind, best)
        shares[name] = dict(zip(judgment.keys, row.tolist(), strict=True))
        if not answer.renormalized:
            logprobs[name] = dict(zip(judgment.keys, answer.logprobs[0].tolist(), strict=True))
    part = lm15.DataPart(value=value, probabilities=shares, method="candidate_sequence_likelihood")
    return lm15.Response(
        id=None,
        model=request.model,
        message=lm15.Message.assistant([part]),
        finish_reason="stop",
        usage=lm15.Usage(input_tokens=None, output_tokens=0, total_tokens=None),
        provider_data={LOGPROBS: logprobs} if logprobs else {},
    )


def _value(kind: str, key: str) -> Any:
    """Return a judgment's key as the value of its schema type."""
    return int(key) if kind == "ordered" else key == "true" if kind == "boolean" else key
