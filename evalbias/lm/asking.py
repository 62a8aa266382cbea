"""One judgment of any ``dspy.LM``, measured or estimated, in as many requests as the model needs.

A *conversation* is a generator that yields the calls to make at the same time and gets their responses, or the error of
one of them. ``hold`` and ``ahold`` make the calls, so that each conversation is written once for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dspy import lm15
from dspy.utils.exceptions import ContextWindowExceededError, LMError, LMInvalidRequestError, LMUnsupportedFeatureError

from evalbias.lm.dspy_compat import without_truncation_warning
from evalbias.lm.judgment import (
    chat_request,
    first_token_request,
    is_measured,
    judgment_request,
    read_first_token,
    read_judgment,
)
from evalbias.lm.sampled_answers import Sampling, estimate
from evalbias.lm.top_logprobs import TOP
from evalbias.lm.types import (
    ChoiceLogprobs,
    Interrupted,
    MeasuringLM,
    Message,
    NoProbabilities,
    PromptRefused,
    Unanswered,
)

Item = TypeVar("Item")
Answer = TypeVar("Answer")

IN_FLIGHT = 16
"""Number of simultaneous requests to a model behind DSPy's own engines."""

TOPS = (TOP, 5)
"""Numbers of first tokens to ask for, in turn: some providers refuse more than 5."""

UNSUPPORTED = (LMUnsupportedFeatureError, lm15.UnsupportedFeatureError)
"""A model's refusal of a feature: through DSPy's execution, and from a subclass of ``dspy.BaseLM``."""

REFUSED = (*UNSUPPORTED, LMInvalidRequestError)


@dataclass(frozen=True)
class Call:
    """One call of a model: the request, and DSPy's own options (``cache``, ``rollout_id``)."""

    request: lm15.Request
    options: dict[str, Any]


Conversation = Generator[list[Call], list[lm15.Response], Answer]


def ask(
    lm: Any, messages: Sequence[Message], choices: Sequence[str], sampling: Sampling | None = None, **options: Any
) -> ChoiceLogprobs:
    """Return the log-probabilities of choices after messages, shape (1, c).

    Args:
        lm: Any ``dspy.LM``.
        messages: Messages of the prompt.
        choices: Texts of the choices.
        sampling: Estimate the probabilities from repeated answers; None measures them.
        **options: DSPy's own options of a call: ``cache`` and ``rollout_id``.

    Raises:
        NoProbabilities: The model reports no probabilities.
        PromptRefused: The model cannot take the prompt, for example because it is too long.
    """
    return hold(lm, _judgment(lm, messages, choices, sampling, options))


async def aask(
    lm: Any, messages: Sequence[Message], choices: Sequence[str], sampling: Sampling | None = None, **options: Any
) -> ChoiceLogprobs:
    """Return the log-probabilities of choices after messages asynchronously; see ``ask``."""
    return await ahold(lm, _judgment(lm, messages, choices, sampling, options))


def _judgment(
    lm: Any, messages: Sequence[Message], choices: Sequence[str], sampling: Sampling | None, options: dict[str, Any]
) -> Conversation[ChoiceLogprobs]:
    if sampling is None:
        return _measured(lm, messages, choices, options)
    return _sampled(lm, messages, choices, sampling, options)


def _measured(
    lm: Any, messages: Sequence[Message], choices: Sequence[str], options: dict[str, Any]
) -> Conversation[ChoiceLogprobs]:
    """Ask for a measured judgment; a model that measures none is asked for its most probable first tokens."""
    model = str(lm.model)
    try:
        (response,) = yield [Call(judgment_request(model, messages, choices), options)]
        if is_measured(response) or isinstance(lm, MeasuringLM):
            return read_judgment(response, choices)
    except UNSUPPORTED:
        if isinstance(lm, MeasuringLM):  # its own refusal is about these choices
            raise
    for top in TOPS:
        try:
            (response,) = yield [Call(first_token_request(model, messages, top), options)]
        except REFUSED as error:
            refusal = error
        else:
            return read_first_token(response, choices)
    raise NoProbabilities(model, f"it refuses to report them ({refusal})") from refusal


def _sampled(
    lm: Any, messages: Sequence[Message], choices: Sequence[str], sampling: Sampling, options: dict[str, Any]
) -> Conversation[ChoiceLogprobs]:
    """Ask for the same answer k times."""
    seeds = sampling.seeds(list(messages), options.get("rollout_id"))
    config = lm15.Config(temperature=sampling.temperature, max_tokens=sampling.max_tokens)
    texts = yield from texts_of(lm, messages, config, seeds, options)
    return estimate([texts], choices, sampling.samples)


def texts_of(
    lm: Any, messages: Sequence[Message], config: lm15.Config, seeds: Sequence[int], options: dict[str, Any]
) -> Conversation[list[str]]:
    """Ask for one text per seed. A model that takes no seed is asked without one, past DSPy's cache all the same."""
    request = chat_request(str(lm.model), messages, config)
    try:
        responses = yield [
            Call(replace(request, config=replace(config, seed=seed)), {**options, "rollout_id": seed}) for seed in seeds
        ]
    except UNSUPPORTED:
        responses = yield [Call(request, {**options, "rollout_id": seed}) for seed in seeds]
    return [response.text or "" for response in responses]


def hold(lm: Any, conversation: Conversation[Answer]) -> Answer:
    """Make a conversation's calls, several at the same time, and return its answer.

    Raises:
        PromptRefused: The model cannot take the prompt.
        LMError: A call failed.
    """

    def answer_call(call: Call) -> lm15.Response:
        return respond(lm, call.request, **call.options)

    try:
        calls = next(conversation)
        while True:
            try:
                responses = [answer_call(calls[0])] if len(calls) == 1 else concurrently(answer_call, calls)
            except (LMError, lm15.LM15Error) as error:
                calls = conversation.throw(error)
            else:
                calls = conversation.send(responses)
    except StopIteration as end:
        answer: Answer = end.value
        return answer


async def ahold(lm: Any, conversation: Conversation[Answer]) -> Answer:
    """Make a conversation's calls asynchronously; see ``hold``."""
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def answer_call(call: Call) -> lm15.Response:
        async with slots:
            return await arespond(lm, call.request, **call.options)

    try:
        calls = next(conversation)
        while True:
            try:
                responses = await asyncio.gather(*map(answer_call, calls))
            except (LMError, lm15.LM15Error) as error:
                calls = conversation.throw(error)
            else:
                calls = conversation.send(responses)
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def respond(lm: Any, request: lm15.Request, **options: Any) -> lm15.Response:
    """Return a model's response to one request.

    Raises:
        PromptRefused: The model cannot take the prompt, for example because it is too long.
        LMError: The call failed.
    """
    with without_truncation_warning(), _refused_prompts():
        response: lm15.Response = lm(request, **options)
        return response


async def arespond(lm: Any, request: lm15.Request, **options: Any) -> lm15.Response:
    """Return a model's response to one request asynchronously; see ``respond``."""
    with without_truncation_warning(), _refused_prompts():
        response: lm15.Response = await lm.acall(request, **options)
        return response


@contextmanager
def _refused_prompts() -> Iterator[None]:
    """Raise ``PromptRefused`` for DSPy's errors that stand for it."""
    try:
        yield
    except (LMError, lm15.ContextLengthError) as error:
        if isinstance(error.__cause__, PromptRefused):  # our own models' error, wrapped by DSPy
            raise error.__cause__ from error
        if isinstance(error, ContextWindowExceededError | lm15.ContextLengthError):
            raise PromptRefused(str(error)) from error
        raise


def concurrently(ask: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """Ask for every item in DSPy's context, several at the same time; after an error or an interrupt no more are sent.

    Raises:
        Unanswered: There was a connection error; the exception holds the other items' answers.
        Interrupted: The user interrupted the call; requests in flight are not waited for.
        Exception: The first other error.
    """
    pool = ThreadPoolExecutor(IN_FLIGHT)
    futures = [pool.submit(copy_context().run, ask, item) for item in items]
    try:
        error = next((f.exception() for f in futures if f.exception() is not None), None)  # waits for those before it
        pool.shutdown(cancel_futures=True)
    except KeyboardInterrupt as interrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise Interrupted(_answers(futures)) from interrupt
    if isinstance(error, ConnectionError):
        raise Unanswered(str(error), _answers(futures)) from error
    if error is not None:
        raise error
    return [future.result() for future in futures]


def _answers(futures: Sequence[Future[Answer]]) -> dict[int, Answer]:
    """Return the answers that have arrived, by the index of their item."""
    ended = {i: f for i, f in enumerate(futures) if f.done() and not f.cancelled()}
    return {i: f.result() for i, f in ended.items() if f.exception() is None}
