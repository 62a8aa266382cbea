"""Seam with DSPy: its requests, engines and errors in our terms."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import math
import os
import re
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import dspy
import numpy as np
from dspy import lm15
from dspy._vendor.lm15 import registry
from dspy._vendor.lm15.judgments import non_judgment_properties, request_judgments
from dspy.adapters.types.decision import Choice as Choice
from dspy.adapters.types.decision import Noul as Noul
from dspy.adapters.types.decision import Score as Score
from dspy.adapters.types.decision import decision_type as decision_type
from dspy.clients import base_lm
from dspy.clients.backend_selection import select_backend
from dspy.clients.engines.base import validate_request
from dspy.clients.engines.lm15_engine import LM15Engine
from dspy.predict.parameter import Parameter as Parameter
from dspy.teleprompt import Teleprompter as Teleprompter
from dspy.utils.callback import BaseCallback as BaseCallback
from dspy.utils.callback import with_callbacks as with_callbacks
from dspy.utils.usage_tracker import UsageTracker as UsageTracker

from evalbias.lm import types
from evalbias.lm.reading import TOP, answer_of, first_token_row, first_tokens
from evalbias.lm.types import ChoiceLogprobs, Choices, Message, NoProbabilities, PromptRefused, Refused, Text, Usage
from evalbias.values import SECRET, SHORTEST_SECRET, key_blanker

# Names that DSPy 3.4.1 does not export publicly are imported only here, so that a new release has to be checked in
# one file. ``dspy._vendor.lm15`` reads judgments and lists providers; ``validate_request`` is the check that every
# engine of DSPy runs first; ``select_backend`` and ``LM15Engine.plan`` say without a request what a model's route
# takes. ``decision_type`` recognizes decision outputs, and is experimental. ``settings.trace`` and
# ``caller_modules`` are public to read; the list of the trace, which is edited in place, has no documented interface;
# nor has the logger ``dspy.clients.lm``.

LM_CLASS = base_lm.LM_CLASS_STATE_KEY  # key of a saved model's class

_short: ContextVar[bool] = ContextVar("_short", default=False)


logging.getLogger("dspy.clients.lm").addFilter(lambda record: not (_short.get() and "truncated" in record.getMessage()))


def active_trace() -> list[Any] | None:
    """Return the list to which DSPy appends (predictor, inputs, prediction), or None without a trace."""
    trace: list[Any] | None = dspy.settings.trace
    return trace


def calling_predictor() -> Any:
    """Return the predictor that is being called in this context, or None."""
    caller = (dspy.settings.caller_modules or [None])[-1]
    return caller if isinstance(caller, dspy.Predict) else None


def is_provider(name: str) -> bool:
    """Return whether DSPy can reach a provider, the part of a model's name before the slash, without an address."""
    return registry.lookup(name) is not None


@contextmanager
def without_truncation_warning() -> Iterator[None]:
    """Silence DSPy's warning of truncated answers in this context, where answers are short on purpose."""
    token = _short.set(True)
    try:
        yield
    finally:
        _short.reset(token)


# Usage: tokens of answers, counted as DSPy's trackers count its own requests.


def add_usage(tracker: UsageTracker, model: str, usage: Usage | None) -> None:
    """Add an answer's tokens, as far as the model reports them, to a tracker; none for a cached answer."""
    if usage is not None:
        counts = {"prompt_tokens": usage.prompt, "completion_tokens": usage.completion}
        if None not in counts.values():
            counts["total_tokens"] = sum(filter(None, counts.values()))
        tracker.add_usage(model, {name: count for name, count in counts.items() if count is not None})


def usage_in(tracker: UsageTracker) -> Usage | None:
    """Return the tokens that a tracker counted; None if DSPy's cache answered all requests."""
    requests = [request for entries in tracker.usage_data.values() for request in entries]
    counts = [Usage(_count(r.get("prompt_tokens")), _count(r.get("completion_tokens"))) for r in requests]
    return types.total_usage(counts) if counts else None


def tokens_of(usages: Iterable[Mapping[str, Any]]) -> float:
    """Return the tokens of requests, by what DSPy reports of each; NaN if a model reports none."""
    counts = [_count(usage.get(name)) for usage in usages for name in ("prompt_tokens", "completion_tokens")]
    return float(sum(math.nan if number is None else number for number in counts))


def _count(value: Any) -> int | None:
    """Return a number of tokens; None for any other value that a user's model class may report."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def usage_reported(answer: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    """Decorate a model's ``answer`` to report its tokens to DSPy's tracker, although DSPy sends no request."""

    @functools.wraps(answer)
    def reporting(self: Any, questions: Any, answers: Any) -> None:
        try:
            answer(self, questions, answers)
        finally:  # include answers before an error
            if (tracker := dspy.settings.usage_tracker) is not None:
                for result in list(answers.values()):
                    if not isinstance(result, Refused):
                        add_usage(tracker, self.model, result.usage)

    return reporting


# Base of our engines: methods that DSPy needs besides ``complete``, and their asynchronous form.

WORD = re.compile(r"\S+\s*|\s+")
THREADS = 64  # number of simultaneous asynchronous calls of judges, and requests to a local model, which batches them


class Engine:
    """Base of our engines, after ``dspy.clients.engines.Engine``: copies of a program share the engine."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer a request."""
        raise NotImplementedError

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """Yield the events of the answer once it is complete, its text in words."""
        return events_of(self.complete(request))

    def close(self) -> None:
        """Do nothing: the engine holds nothing that must be closed."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


def events_of(response: lm15.Response) -> Iterator[Any]:
    """Yield a response as a stream of events, its text word by word, so that DSPy's listeners find field markers."""
    for event in lm15.response_to_events(response):
        if event.type != "delta" or event.delta.type != "text":
            yield event
            continue
        for word in WORD.findall(event.delta.text) or [""]:
            yield replace(event, delta=replace(event.delta, text=word))


class AsyncEngine:
    """Async form of an engine: requests run in threads, where simultaneous requests are batched or sent together."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __deepcopy__(self, memo: dict[int, Any]) -> AsyncEngine:
        return self  # copies of a program share the model

    async def complete(self, request: lm15.Request) -> lm15.Response:
        response: lm15.Response = await in_thread(self._engine.complete, request)
        return response

    async def stream(self, request: lm15.Request) -> AsyncIterator[Any]:
        for event in events_of(await self.complete(request)):
            yield event

    async def aclose(self) -> None:
        """Do nothing: the engine itself holds the model."""


async def in_thread(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Run a function in a thread of this process, in the caller's context, and return its result."""
    run = functools.partial(contextvars.copy_context().run, function, *arguments, **options)
    return await asyncio.get_running_loop().run_in_executor(_threads(os.getpid()), run)


@functools.cache
def _threads(_: int) -> ThreadPoolExecutor:
    """Return the thread pool of a process, by its id; asyncio's own pool is small (6 threads on 2 cores)."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="evalbias-async")


# A judgment by a ``dspy.LM``: requests for its probabilities, and reading their answers.

FIELD = "score"
# Key of ``Response.provider_data`` under which our engines return the log-probabilities before renormalizing.
LOGPROBS = "candidate_logprobs"
COVERAGE = "coverage"  # key under which DSPy's own engine returns the probability that any of the choices follows
TOPS = (TOP, 5)  # numbers of first tokens to ask for, in turn: some providers refuse more than 5
# Settings of a ``Text`` that DSPy's configuration has under the same names, besides ``stop``.
TEXT_SETTINGS = ("max_tokens", "temperature", "top_p", "top_k", "seed")


def judgment_request(model: str, messages: Sequence[Message], choices: Sequence[str]) -> lm15.Request:
    """Return the request for the choice that follows the messages, with probabilities."""
    fmt = lm15.judgments(**{FIELD: lm15.choice("Which answer follows?", list(choices))})
    return chat_request(model, messages, lm15.Config(response_format=fmt, probabilities="required"))


refuses: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
"""Model -> whether it refuses judgments, so that no vain request, which tracers show, precedes every question."""
lacks: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()
"""Model -> other features that it refused: names of a ``Text``'s settings, or numbers in ``TOPS``."""


def refuses_judgments(lm: Any, request: lm15.Request) -> bool:
    """Return whether a model refuses judgments, as far as earlier requests or the route of DSPy's engine show."""
    if lm not in refuses and isinstance(lm, dspy.LM) and isinstance(lm.engine, str):
        selection = select_backend(lm)
        refuses[lm] = not selection.native  # the compatibility engine measures nothing
        if selection.native:
            address = selection.clients.get("api_base") or selection.clients.get("base_url")
            config = lm15.RouterConfig(env={}, base_urls={selection.resolution.provider: address} if address else None)
            with closing(LM15Engine(config, model_type=lm.model_type)) as engine:
                try:
                    engine.plan(request)
                except lm15.UnsupportedFeatureError:
                    refuses[lm] = True
    return refuses.get(lm, False)


def text_request(model: str, question: Text) -> lm15.Request:
    """Return the request for a text."""
    settings = {name: getattr(question, name) for name in TEXT_SETTINGS if getattr(question, name) is not None}
    return chat_request(model, types.as_messages(question.prompt), lm15.Config(**settings, stop=question.stop))


def chat_request(model: str, messages: Sequence[Message], config: lm15.Config) -> lm15.Request:
    """Return messages as a request: system messages become its system text, the others its turns."""
    system = "\n\n".join(m["content"] for m in messages if m["role"] == "system") or None
    makers = {"user": lm15.Message.user, "assistant": lm15.Message.assistant}
    turns = []
    for number, message in enumerate(messages):
        role = message["role"]
        if role in makers:
            turns.append(makers[role](message["content"]))
        elif role != "system":
            raise ValueError(f"Message {number} has the role {role!r:.80}: use system, user or assistant.")
    return lm15.Request(model=model, system=system, messages=tuple(turns), config=config)


def measured_shares(response: lm15.Response) -> Mapping[str, float] | None:
    """Return the measured probabilities of a judgment in a response; None without any."""
    measured = [p.probabilities for p in response.message.parts if isinstance(p, lm15.DataPart) and p.probabilities]
    return measured[0][FIELD] if measured else None


def read_judgment(response: lm15.Response, choices: Sequence[str]) -> ChoiceLogprobs:
    """Return the measured answer, shape (1, c), or raise ``NoProbabilities``; ``PromptRefused`` if its sum exceeds 1.

    Our engines return log-probabilities, DSPy's engine the shares and their coverage, which is NaN if missing.
    """
    shares, details = measured_shares(response), response.provider_data or {}
    if shares is None:
        raise NoProbabilities(response.model, "it answered a judgment without measuring it")
    try:
        if LOGPROBS not in details:
            return answer_of(tuple(choices), shares, details.get(COVERAGE, {}).get(FIELD))
        logprobs = [details[LOGPROBS][FIELD][c] for c in choices]
        row = np.array([-math.inf if x is None else x for x in logprobs], dtype=np.float64)  # (c,)
        return ChoiceLogprobs(tuple(choices), row[None])
    except (KeyError, ValueError) as error:
        raise PromptRefused({0: f"has an answer that cannot be used: {error}."}, names={0: "The prompt"}) from error


def read_first_token(response: lm15.Response, choices: Sequence[str]) -> ChoiceLogprobs:
    """Return the answer from the reported first tokens, shape (1, c); ``NoProbabilities`` for fewer than two."""
    if not response.logprobs:
        raise NoProbabilities(response.model, "its answers carry no log-probabilities")
    try:
        top = first_tokens((token.token, token.logprob) for token in response.logprobs[0].top)
    except ValueError as error:
        raise NoProbabilities(response.model, str(error)) from error
    if len(response.logprobs[0].top) < 2:
        raise NoProbabilities(response.model, "its answers carry no log-probabilities of other tokens")
    return ChoiceLogprobs(tuple(choices), first_token_row(top, choices)[None])


# Errors of requests to any ``dspy.LM``, and refusals of prompts among them.

FAILED = (dspy.LMError, lm15.LM15Error)  # errors of requests: through DSPy, and from a subclass of ``dspy.BaseLM``
UNSUPPORTED = (dspy.LMUnsupportedFeatureError, lm15.UnsupportedFeatureError)  # a model's refusal of a feature
INVALID = (dspy.LMInvalidRequestError, lm15.InvalidRequestError)
TOO_LONG = (dspy.ContextWindowExceededError, lm15.ContextLengthError)


def refusal_of(error: BaseException) -> Refused | None:
    """Return an error as a refusal of the prompt; None if the prompt cannot be to blame."""
    own = own_refusal(error)
    if own is not None:
        return own
    if isinstance(error, NoProbabilities):
        return Refused(f"is answered by {error.model} without token probabilities: {error.reason}.")
    if not isinstance(error, INVALID) or isinstance(error, dspy.LMUnsupportedModelError | lm15.UnsupportedModelError):
        return None
    if error.status is not None and error.status not in types.STATUSES:
        return None
    words = message_of(error)
    by = f" by {error.model}" if getattr(error, "model", None) else ""
    words = words.rstrip(".") or f"status {error.status}, and DSPy passes no reason on"
    return Refused(f"is refused{by}: {words}.", isinstance(error, TOO_LONG))


@contextmanager
def keys_hidden(*lms: Any) -> Iterator[None]:
    """Hide the keys of models and of the environment in errors of requests: some providers repeat a key they refuse."""
    try:
        yield
    except FAILED as failure:
        keys = [word for lm in lms for word in _secrets(getattr(lm, "kwargs", None) or {})]
        keys += [word for word in _secrets(os.environ) if len(word) >= SHORTEST_SECRET]
        error: Any = failure
        while error is not None:
            for blanked in map(key_blanker, keys):
                error.args = tuple(blanked(text) if isinstance(text, str) else text for text in error.args)
                if isinstance(error, FAILED):
                    error.message = blanked(error.message)
            error = error.__cause__
        raise


def _secrets(settings: Mapping[str, Any], *, inside: bool = False) -> list[str]:
    """Return the values of settings that hold a secret by their name, without words such as "Bearer" before them."""
    found = list[str]()
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found += _secrets(value, inside=inside or bool(SECRET.search(str(name))))
        elif isinstance(value, str) and value.strip() and (inside or SECRET.search(str(name))):
            found.append(value.split()[-1])
    return found


def message_of(error: Any) -> str:
    """Return what a failed request was told, without the advice that DSPy adds after it."""
    return re.split(r"\n\s*\n", error.message)[0].strip()


def own_refusal(error: BaseException | None) -> Refused | None:
    """Return the refusal by our own engine that caused an error of DSPy: it is certainly about the prompt."""
    while error is not None and not isinstance(error, PromptRefused):
        error = error.__cause__
    return None if error is None else Refused(error.refused[0], isinstance(error, types.PromptTooLong))


# DSPy's requests as questions to our engines, and their answers as its responses.


def question_of(request: lm15.Request, engine: str) -> Choices | Text:
    """Return a DSPy request as a question; refuse, never ignore, features that our engines lack."""
    validate_request(request)
    config, requested = request.config, request_judgments(request)
    schema = (config.response_format or {}).get("schema")
    features = {
        "tools": bool(request.tools),
        "config.extensions": bool(config.extensions),
        "config.frequency_penalty": config.frequency_penalty is not None,
        "config.logprobs": config.logprobs is not None,
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
    messages = _messages(request, engine)
    for judgment in requested.values():
        return Choices(messages, tuple(judgment.keys))
    return Text(messages, **{name: getattr(config, name) for name in TEXT_SETTINGS}, stop=tuple(config.stop or ()))


def _messages(request: lm15.Request, engine: str) -> list[Message]:
    system = request.system
    if system is not None and not isinstance(system, str):
        system = "".join(part.text for part in system)
    done: list[Message] = [{"role": "system", "content": system}] if system else []
    for message in request.messages:
        if message.text is None:
            raise lm15.UnsupportedFeatureError(f"{engine} reads text only: leave out images and other parts.")
        done.append({"role": message.role, "content": message.text})
    return done


def response_of(request: lm15.Request, answer: ChoiceLogprobs | types.Written | Refused) -> lm15.Response:
    """Return the answer to ``question_of(request)`` as DSPy's response, or raise the refusal as DSPy's engines do.

    DSPy makes a ``dspy.ContextWindowExceededError`` of a ``lm15.ContextLengthError``, else a ``LMInvalidRequestError``.
    """
    if isinstance(answer, Refused):
        kind = lm15.ContextLengthError if answer.too_long else lm15.InvalidRequestError
        cause = types.PromptTooLong if answer.too_long else PromptRefused
        raise kind(f"The prompt {answer.reason}") from cause({0: answer.reason}, names={0: "The prompt"})
    usage = answer.usage or Usage()
    tokens = lm15.Usage(input_tokens=usage.prompt, output_tokens=usage.completion, total_tokens=None)
    respond = functools.partial(lm15.Response, id=None, model=request.model, usage=tokens)
    if isinstance(answer, types.Written):
        ending = "stop" if answer.finished else "length"
        return respond(message=lm15.Message.assistant(answer.text), finish_reason=ending)
    # A measured judgment; ``provider_data`` holds the log-probabilities before renormalizing.
    ((name, judgment),) = request_judgments(request).items()
    keys = list(judgment.keys)
    row = answer.probabilities[0]  # (c,)
    if np.isnan(row).any():
        raise lm15.UnsupportedFeatureError(
            f"{request.model} gives {keys} no probability, or does not report it: use other choices."
        )
    best = keys[int(row.argmax())]
    value = int(best) if judgment.kind == "ordered" else best == "true" if judgment.kind == "boolean" else best
    shares, logprobs = (dict(zip(keys, values.tolist(), strict=True)) for values in (row, answer.logprobs[0]))
    logprobs = {key: None if x == -math.inf else x for key, x in logprobs.items()}  # JSON has no infinity
    part = lm15.DataPart(value={name: value}, probabilities={name: shares}, method="candidate_sequence_likelihood")
    details = {} if answer.renormalized else {LOGPROBS: {name: logprobs}}
    return respond(message=lm15.Message.assistant([part]), finish_reason="stop", provider_data=details)
