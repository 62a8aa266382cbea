"""Conversations with a ``dspy.LM``: the requests of one answer, held one after another or many at the same time.

A *conversation* is a generator that yields the calls to make at the same time and gets their responses, or the error of
one of them. ``hold`` and ``ahold`` make the calls, so that each conversation is written once for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from dspy import lm15
from dspy.utils.exceptions import LMError

from evalbias.lm.dspy_compat import without_truncation_warning
from evalbias.lm.refusals import harmless
from evalbias.lm.refused_requests import ERRORS, own_refusal, reason_of, trial_after
from evalbias.lm.types import (
    Interrupted,
    Message,
    PromptRefused,
    RequestRefused,
    Unanswered,
    as_messages,
)

Item = TypeVar("Item")
Answer = TypeVar("Answer")

IN_FLIGHT = 16
"""Number of simultaneous requests to a model behind DSPy's own engines."""


@dataclass(frozen=True)
class Call:
    """One call of a model: the request, and DSPy's own options (``cache``, ``rollout_id``)."""

    request: lm15.Request
    options: dict[str, Any]


Conversation = Generator[list[Call], list[lm15.Response], Answer]


def tried(
    make: Callable[[Sequence[Message]], Conversation[Answer]], messages: Sequence[Message]
) -> Conversation[Answer]:
    """Hold a conversation; if it is refused, find out by a harmless text whether the messages are to blame.

    Args:
        make: Function from messages to the conversation about them.
        messages: Messages of the prompt.

    Raises:
        PromptRefused: The model refuses the messages.
        RequestRefused: The model refuses the harmless text too.
    """
    try:
        return (yield from make(messages))
    except ERRORS as error:
        if reason_of(error) is None:
            raise
        refusal = error
    yield from explained(make(as_messages(harmless(messages))), refusal)
    raise PromptRefused({0: str(reason_of(refusal))}, names={0: "The prompt"}) from refusal


def explained(control: Conversation[Any], refusal: Exception) -> Conversation[None]:
    """Return if the prompt is to blame for a refusal: the same conversation about a harmless text is answered.

    A refusal by one of our own engines is known to be about the prompt.

    Raises:
        NoProbabilities: The model reports no probabilities for the harmless text either.
        RequestRefused: The model refuses the harmless text too.
    """
    if own_refusal(refusal) is None:
        with trial_after(refusal):
            yield from control


def hold(lm: Any, conversation: Conversation[Answer]) -> Answer:
    """Make a conversation's calls, several at the same time, and return its answer.

    Raises:
        LMError: A call failed.
    """

    def respond(call: Call) -> lm15.Response:
        with without_truncation_warning():
            return lm(call.request, **call.options)

    try:
        calls = next(conversation)
        while True:
            try:
                responses = [respond(calls[0])] if len(calls) == 1 else concurrently(respond, calls)
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

    async def respond(call: Call) -> lm15.Response:
        async with slots:
            with without_truncation_warning():
                return await lm.acall(call.request, **call.options)

    try:
        calls = next(conversation)
        while True:
            try:
                responses = await asyncio.gather(*map(respond, calls))
            except (LMError, lm15.LM15Error) as error:
                calls = conversation.throw(error)
            else:
                calls = conversation.send(responses)
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def concurrently(
    ask: Callable[[Item], Answer],
    items: Sequence[Item],
    explain: Callable[[Item, Exception], None] | None = None,
) -> list[Answer]:
    """Ask for every item in DSPy's context, several at the same time; after an error or an interrupt no more are sent.

    Args:
        ask: Function from an item to its answer.
        items: Items of the call.
        explain: Function that is called with the first item that may be refused and its error, and raises an error if
            other items would be refused too; see ``explained``. None treats a refusal as any other error.

    Raises:
        PromptRefused: Items are refused; the others are answered.
        Unanswered: There was a connection error; the exception holds the other items' answers.
        Interrupted: The user interrupted the call; requests in flight are not waited for.
        Exception: The first other error.
    """
    pool = ThreadPoolExecutor(IN_FLIGHT)
    futures: list[Future[Answer]] = []
    error, refused = None, {}
    try:
        for item in items:  # starting threads takes a while on a busy machine, in which the user may interrupt too
            futures.append(pool.submit(copy_context().run, ask, item))
        try:
            refused = _refused(futures, items, explain)
        except Exception as first:
            error = first
        pool.shutdown(cancel_futures=True)
    except KeyboardInterrupt as interrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise Interrupted(_answers(futures)) from interrupt
    if isinstance(error, ConnectionError):
        kind = RequestRefused if isinstance(error, RequestRefused) else Unanswered
        raise kind(str(error), _answers(futures)) from error
    if error is not None:
        raise error
    if refused:
        raise PromptRefused(refused, _answers(futures))
    return [future.result() for future in futures]


def _refused(
    futures: Sequence[Future[Answer]], items: Sequence[Item], explain: Callable[[Item, Exception], None] | None
) -> dict[int, str]:
    """Wait for all answers, and return why items are refused.

    Raises:
        Exception: The first error that is not about an item.
    """
    refused: dict[int, str] = {}
    for number, (item, future) in enumerate(zip(items, futures, strict=True)):
        error = future.exception()
        if error is None:
            continue
        reason = reason_of(error)
        if reason is None or explain is None or not isinstance(error, Exception):
            raise error
        if not refused:
            explain(item, error)
        refused[number] = reason
    return refused


def _answers(futures: Sequence[Future[Answer]]) -> dict[int, Answer]:
    """Return the answers that have arrived, by the index of their item."""
    ended = {i: f for i, f in enumerate(futures) if f.done() and not f.cancelled()}
    return {i: f.result() for i, f in ended.items() if f.exception() is None}
