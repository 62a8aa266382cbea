"""Requests to one server: several in flight, retried with backoff as long as there is hope, and no answer lost.

What may pass is retried: timeouts, broken connections, answers that are cut off or no JSON, and the statuses 408, 409,
429 and 5xx. Whatever else a server says is final. A request is given up once it has failed for ``patience`` seconds; if
by then the server has answered nothing else either, the whole call is given up, and so it is where the server refuses
the key or does not know the address.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import openai
import tenacity

from evalbias.lm.types import Interrupted, Unanswered

Answer = TypeVar("Answer")

PASSING = frozenset({408, 409, 429})
"""Statuses below 500 that may pass."""

HOPELESS = frozenset({401, 403, 404})
"""Statuses that every other request would get too."""

AT_FIRST = 10.0
"""Seconds for which a server is waited for that never answered yet: its address may be wrong."""

_BACKOFF = tenacity.wait_random_exponential(multiplier=0.5, max=20)


class Unreadable(ValueError):  # noqa: N818 - a value error like the others, named for what it says
    """A server's answer lacks what was asked for."""


class Connection:
    """One server.

    Args:
        base_url: Its address, which ends in ``/v1``.
        api_key: Sent with every request, and kept nowhere else.
        in_flight: Requests at the same time, over all threads.
        timeout: Seconds that one attempt may take.
        patience: Seconds for which a request is retried.

    Raises:
        ValueError: An address that is no server's or that holds a password, or a limit below its least.
    """

    def __init__(self, base_url: str, *, api_key: str, in_flight: int, timeout: float, patience: float) -> None:
        _check(base_url)
        if in_flight < 1 or timeout <= 0 or patience < 0:
            raise ValueError("in_flight must be at least 1, timeout above 0 seconds, patience at least 0 seconds.")
        self.base_url = base_url.rstrip("/")
        self._root = self.base_url.removesuffix("/v1")
        self._patience = patience
        self._at_once = in_flight
        self._in_flight = asyncio.Semaphore(in_flight)
        self._answered = 0.0  # when the server answered anything for the last time
        self._said = False  # whether it was said that it does not
        limits = httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
        self._client = openai.AsyncOpenAI(
            base_url=self.base_url,
            api_key=api_key,
            timeout=timeout,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(limits=limits),
        )
        loop = self._loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="evalbias-server", daemon=True).start()
        weakref.finalize(self, loop.call_soon_threadsafe, loop.stop)

    async def get(self, path: str) -> Any:
        """The JSON at a path behind the address without its ``/v1``, retried; None where there is none.

        Raises:
            openai.OpenAIError: There was no answer for too long, or the key was refused.
        """
        try:
            send = partial(self._client.get, self._root + path, cast_to=httpx.Response)
            return await self._retried(send, min(self._patience, AT_FIRST))
        except openai.APIStatusError as error:
            if error.status_code in (401, 403):
                raise
            return None
        except ValueError:
            return None

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON that answers a request, retried.

        Args:
            path: Behind the address without its ``/v1``.
            body: As JSON.

        Raises:
            openai.OpenAIError: The server refused, or there was no answer for too long.
            ValueError: Its answers were no JSON for too long.
        """
        send = partial(self._client.post, self._root + path, cast_to=httpx.Response, body=body)
        return await self._retried(send, self._patience)

    async def _retried(self, send: Callable[[], Awaitable[httpx.Response]], patience: float) -> Any:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_passes),
            wait=_wait,
            stop=tenacity.stop_before_delay(patience),
            before_sleep=partial(self._say, patience),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                async with self._in_flight:
                    found = (await send()).json()
                self._answered, self._said = time.monotonic(), False
        return found

    def _say(self, patience: float, state: tenacity.RetryCallState) -> None:
        """Say once in an outage that the server is waited for."""
        error = state.outcome.exception() if state.outcome else None
        if not self._said and isinstance(error, Exception):
            logging.getLogger(__name__).warning(
                "%s: %s It is asked again for up to %.0f seconds.", self.base_url, told(error), patience
            )
        self._said = True

    def run(self, job: Awaitable[Answer]) -> Answer:
        """What a coroutine gives that sends its requests here.

        Raises:
            Exception: As the coroutine does.
        """
        future = asyncio.run_coroutine_threadsafe(_awaited(job), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def all(self, jobs: Sequence[Callable[[], Awaitable[Answer]]], order: Iterable[int], *, name: str) -> list[Answer]:
        """Run every job, as many at a time as there may be requests.

        Args:
            jobs: One an item; each sends its requests by ``post``.
            order: In which they are begun.
            name: Of the model, for the error.

        Raises:
            Unanswered: An item has no answer. The others were asked all the same, unless there was no hope for them.
            Interrupted: Whoever waits was interrupted.
        """
        answered: dict[int, Answer] = {}
        try:
            return self.run(self._all(jobs, order, name, answered))
        except KeyboardInterrupt as error:
            raise Interrupted(dict(answered)) from error

    async def _all(
        self,
        jobs: Sequence[Callable[[], Awaitable[Answer]]],
        order: Iterable[int],
        name: str,
        answered: dict[int, Answer],
    ) -> list[Answer]:
        failed: dict[int, Exception] = {}
        waiting = ((number, jobs[number]) for number in order)
        await asyncio.gather(*(self._work(waiting, answered, failed) for _ in range(min(len(jobs), self._at_once))))
        if failed:
            number, error = min(failed.items())
            raise Unanswered(
                f"{name} did not answer item {number} of {len(jobs)} ({len(answered)} answered, {len(failed)} failed): "
                f"{told(error)}",
                answered,
            ) from error
        return [answered[number] for number in range(len(jobs))]

    async def _work(
        self,
        waiting: Iterator[tuple[int, Callable[[], Awaitable[Answer]]]],
        answered: dict[int, Answer],
        failed: dict[int, Exception],
    ) -> None:
        for number, job in waiting:
            started = time.monotonic()
            try:
                answered[number] = await job()
            except (openai.OpenAIError, ValueError) as error:  # what it says is no JSON, or lacks what was asked for
                failed[number] = error
                if self._hopeless(error, started):
                    for _ in waiting:  # the others are asked no more
                        pass

    def _hopeless(self, error: Exception, started: float) -> bool:
        if isinstance(error, openai.APIStatusError) and error.status_code in HOPELESS:
            return True
        return _passes(error) and self._answered < started  # nothing at all was answered while it was retried


async def _awaited(job: Awaitable[Answer]) -> Answer:
    return await job


def _check(base_url: str) -> None:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{base_url!r} is no server's address: give one such as http://HOST:PORT/v1.")
    if parts.username or parts.password:
        raise ValueError("The server's address holds a name or a password: give api_key instead, which is never kept.")
    if parts.query or parts.fragment:
        raise ValueError("The server's address goes on behind a '?' or '#': give it up to /v1, and a key as api_key.")


def _passes(error: BaseException) -> bool:
    """Whether the same request may be answered later: a timeout is a connection error, no JSON a ValueError."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in PASSING or (error.status_code >= 500 and error.status_code != 501)
    return isinstance(error, openai.APIConnectionError | ValueError) and not isinstance(error, Unreadable)


def _wait(state: tenacity.RetryCallState) -> float:
    """Seconds until the next attempt: as long as the server asks for, or ever longer and at random."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.response.headers.get("retry-after", "") if isinstance(error, openai.APIStatusError) else ""
    return float(asked) if asked.isdigit() else float(_BACKOFF(state))


def told(error: Exception) -> str:
    """An error with its remedy."""
    if isinstance(error, openai.APITimeoutError):
        return "it took too long. Raise timeout, or lower in_flight."
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        return f"{str(cause) or type(cause).__name__}. Check that the server runs, and its address."
    if not isinstance(error, openai.APIStatusError):
        return f"its answer cannot be read: {error}."
    remedy = {
        401: "Give the key as api_key or in OPENAI_API_KEY.",
        403: "Give a key that may do this.",
        404: "Check the address and the model's name.",
        429: "Lower in_flight, or raise patience.",
    }.get(error.status_code, "")
    said = error.body.get("message", error.body) if isinstance(error.body, dict) else error.body or error.message
    return f"status {error.status_code}, {said} {remedy}".rstrip()
