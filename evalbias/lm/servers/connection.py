"""Requests to one server: several in flight, retried with backoff, and no answer lost.

Transient failures are retried: timeouts, broken connections, answers that are cut off or not JSON, and the statuses
408, 409, 429 and 5xx. Every other error is final. A request is given up once it has failed for ``patience`` seconds. If
the server has answered nothing else in that time, the whole call is given up. The same happens when the server rejects
the key or does not know the address.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import httpx
import openai
import tenacity

from evalbias.lm.types import Interrupted, Unanswered

Answer = TypeVar("Answer")

TRANSIENT = frozenset({408, 409, 429})
"""Statuses below 500 that are retried."""

FATAL = frozenset({401, 403, 404})
"""Statuses that every other request of the call would get too."""

FIRST_PATIENCE = 10.0
"""Longest time in seconds to wait for a server's first answer: its address may be wrong."""

_BACKOFF = tenacity.wait_random_exponential(multiplier=0.5, max=20)


class Unreadable(ValueError):  # noqa: N818 - a value error like the others, named for the problem
    """A server's answer lacks the requested values."""


@dataclass(frozen=True)
class Job(Generic[Answer]):
    """The requests that answer one item of a call.

    Attributes:
        run: Coroutine function that sends the requests and returns the item's answer.
        ids: Tokens of the item's prompt. Jobs start in the order of their tokens: prompts with a common prefix then
            follow one another, and the server finds the prefix in its cache.
    """

    run: Callable[[], Awaitable[Answer]]
    ids: tuple[int, ...] = ()


class Connection:
    """An HTTP connection to one server.

    Args:
        base_url: Address of the server, ending in ``/v1``.
        api_key: Key that is sent with every request and stored nowhere else.
        in_flight: Number of simultaneous requests, over all threads.
        timeout: Time limit of one attempt in seconds.
        patience: Time in seconds for which a request is retried.

    Raises:
        ValueError: The address is malformed or contains a password, or a limit is too small.
    """

    def __init__(self, base_url: str, *, api_key: str, in_flight: int, timeout: float, patience: float) -> None:
        _check_address(base_url)
        if in_flight < 1 or timeout <= 0 or patience < 0:
            raise ValueError("in_flight must be at least 1, timeout above 0 seconds, patience at least 0 seconds.")
        self.base_url = base_url.rstrip("/")
        self._root = self.base_url.removesuffix("/v1")
        self._patience = patience
        self._max_in_flight = in_flight
        self._in_flight = asyncio.Semaphore(in_flight)
        self._last_answer = 0.0  # monotonic time
        self._outage_logged = False
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
        """Return the JSON at a path, with retries; None if the server has none there.

        Args:
            path: Path after the address without its ``/v1``.

        Raises:
            openai.OpenAIError: The server did not answer in time, or rejected the key.
        """
        try:
            send = partial(self._client.get, self._root + path, cast_to=httpx.Response)
            return await self._retried(send, min(self._patience, FIRST_PATIENCE))
        except openai.APIStatusError as error:
            if error.status_code in (401, 403):
                raise
            return None
        except ValueError:
            return None

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send a JSON body and return the JSON answer, with retries.

        Args:
            path: Path after the address without its ``/v1``.
            body: Content of the request.

        Raises:
            openai.OpenAIError: The server refused the request, or did not answer in time.
            ValueError: The server's answers were not JSON until time ran out.
        """
        send = partial(self._client.post, self._root + path, cast_to=httpx.Response, body=body)
        return await self._retried(send, self._patience)

    async def _retried(self, send: Callable[[], Awaitable[httpx.Response]], patience: float) -> Any:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_is_transient),
            wait=_wait,
            stop=tenacity.stop_before_delay(patience),
            before_sleep=partial(self._log_outage, patience),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                async with self._in_flight:
                    answer = (await send()).json()
                self._last_answer, self._outage_logged = time.monotonic(), False
        return answer

    def _log_outage(self, patience: float, state: tenacity.RetryCallState) -> None:
        """Warn once per outage that requests are being retried."""
        error = state.outcome.exception() if state.outcome else None
        if not self._outage_logged and isinstance(error, Exception):
            logging.getLogger(__name__).warning(
                "%s: %s Retrying for up to %.0f seconds.", self.base_url, describe_error(error), patience
            )
        self._outage_logged = True

    def run(self, job: Awaitable[Answer]) -> Answer:
        """Run a coroutine on the connection's event loop and return its result.

        Raises:
            Exception: Whatever the coroutine raises.
        """
        future = asyncio.run_coroutine_threadsafe(_awaited(job), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def all(self, jobs: Sequence[Job[Answer]], *, name: str) -> list[Answer]:
        """Run every job, ``in_flight`` at a time, and return the answers in the order of the jobs.

        Args:
            jobs: One job per item.
            name: Name of the model, for error messages.

        Raises:
            Unanswered: An item has no answer. The other items were sent all the same, unless the error was fatal.
            Interrupted: The user interrupted the call.
        """
        answered: dict[int, Answer] = {}
        try:
            return self.run(self._all(jobs, name, answered))
        except KeyboardInterrupt as error:
            raise Interrupted(dict(answered)) from error

    async def _all(self, jobs: Sequence[Job[Answer]], name: str, answered: dict[int, Answer]) -> list[Answer]:
        failed: dict[int, Exception] = {}
        queue = iter(sorted(enumerate(jobs), key=lambda numbered: numbered[1].ids))
        await asyncio.gather(*(self._work(queue, answered, failed) for _ in range(min(len(jobs), self._max_in_flight))))
        if failed:
            number, error = min(failed.items())
            raise Unanswered(
                f"{name} did not answer item {number} of {len(jobs)} ({len(answered)} answered, {len(failed)} failed): "
                f"{describe_error(error)}",
                answered,
            ) from error
        return [answered[number] for number in range(len(jobs))]

    async def _work(
        self, queue: Iterator[tuple[int, Job[Answer]]], answered: dict[int, Answer], failed: dict[int, Exception]
    ) -> None:
        for number, job in queue:
            started = time.monotonic()
            try:
                answered[number] = await job.run()
            except (openai.OpenAIError, ValueError) as error:  # a ValueError: not JSON, or without the requested values
                failed[number] = error
                if self._is_fatal(error, started):
                    for _ in queue:  # the remaining jobs are not started
                        pass

    def _is_fatal(self, error: Exception, started: float) -> bool:
        if isinstance(error, openai.APIStatusError) and error.status_code in FATAL:
            return True
        return _is_transient(error) and self._last_answer < started  # retried until nothing at all was answered


async def _awaited(job: Awaitable[Answer]) -> Answer:
    return await job


def _check_address(base_url: str) -> None:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{base_url!r} is not a server's address: give one such as http://HOST:PORT/v1.")
    if parts.username or parts.password:
        raise ValueError("The server's address contains a user name or password: pass the key as api_key instead.")
    if parts.query or parts.fragment:
        raise ValueError("The server's address contains '?' or '#': give it up to /v1, and pass the key as api_key.")


def _is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed; a timeout is a connection error, an answer that is not JSON a ValueError."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in TRANSIENT or (error.status_code >= 500 and error.status_code != 501)
    return isinstance(error, openai.APIConnectionError | ValueError) and not isinstance(error, Unreadable)


def _wait(state: tenacity.RetryCallState) -> float:
    """Return the seconds until the next attempt: the server's ``Retry-After``, or a random exponential backoff."""
    error = state.outcome.exception() if state.outcome else None
    retry_after = error.response.headers.get("retry-after", "") if isinstance(error, openai.APIStatusError) else ""
    return float(retry_after) if retry_after.isdigit() else float(_BACKOFF(state))


def describe_error(error: Exception) -> str:
    """Describe an error of a request and its remedy."""
    if isinstance(error, openai.APITimeoutError):
        return "the request timed out. Raise timeout, or lower in_flight."
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        return f"{str(cause) or type(cause).__name__}. Check that the server runs, and its address."
    if not isinstance(error, openai.APIStatusError):
        return f"the server's answer cannot be used: {error}."
    remedy = {
        401: "Give the key as api_key or in OPENAI_API_KEY.",
        403: "Give a key with the necessary permission.",
        404: "Check the address and the model's name.",
        429: "Lower in_flight, or raise patience.",
    }.get(error.status_code, "")
    reason = error.body.get("message", error.body) if isinstance(error.body, dict) else error.body or error.message
    return f"status {error.status_code}, {reason} {remedy}".rstrip()
