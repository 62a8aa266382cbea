"""Requests to one server: several in flight, retried with backoff, and no answer lost.

Transient failures are retried: timeouts, broken connections, answers that are cut off or not JSON, and the statuses
408, 409, 429 and 5xx. Every other error is final. A request is given up once it has failed for ``patience`` seconds. If
the server has answered nothing else in that time, the whole call is given up. The same happens when the server rejects
the key or does not know the address.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import orjson

from evalbias.lm.servers.call import Call, Job
from evalbias.lm.servers.errors import FATAL, NotJSON, RequestError, StatusError, describe_error, is_transient
from evalbias.lm.servers.transport import Transport
from evalbias.lm.types import Interrupted

Answer = TypeVar("Answer")

FIRST_PATIENCE = 10.0
"""Longest time in seconds to wait for a server's first answer: its address may be wrong."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 20.0
"""Longest random pause in seconds after the first failure, which doubles with every failure, and its limit."""


class Connection:
    """An HTTP connection to one server, which forked processes make anew.

    Args:
        base_url: Address of the server, ending in ``/v1``.
        api_key: Key that is sent with every request and stored nowhere else.
        in_flight: Number of simultaneous requests, over all threads.
        timeout: Time limit of one attempt in seconds.
        patience: Time in seconds for which a request is retried.

    Raises:
        ValueError: The address is malformed or contains a password, the key cannot be sent, or a limit is too small.
    """

    def __init__(self, base_url: str, *, api_key: str, in_flight: int, timeout: float, patience: float) -> None:
        _check_address(base_url)
        if in_flight < 1 or timeout <= 0 or patience < 0:
            raise ValueError("in_flight must be at least 1, timeout above 0 seconds, patience at least 0 seconds.")
        if not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise ValueError("The key contains a space, a line break or a letter outside ASCII: give the key alone.")
        self.base_url = base_url.rstrip("/")
        self._root = self.base_url.removesuffix("/v1")
        self._patience = patience
        self._max_in_flight = in_flight
        self._last_answer = 0.0  # monotonic time
        self._outage_logged = False
        self._open = partial(Transport, self.base_url, api_key=api_key, in_flight=in_flight, timeout=timeout)
        self._opening = threading.Lock()
        self._opened: Transport | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_forget_transport, weakref.ref(self)))

    @property
    def _transport(self) -> Transport:
        with self._opening:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    async def get(self, path: str) -> Any:
        """Return the JSON at a path, with retries; None if the server has none there.

        Args:
            path: Path after the address without its ``/v1``.

        Raises:
            RequestError: The server did not answer in time, or rejected the key.
        """
        try:
            return await self._retried("GET", path, None, patience=min(self._patience, FIRST_PATIENCE))
        except StatusError as error:
            if error.status in (401, 403):
                raise
            return None
        except NotJSON:
            return None

    async def post(self, path: str, body: dict[str, Any], *, heavy: bool = False) -> Any:
        """Send a JSON body and return the JSON answer, with retries.

        Args:
            path: Path after the address without its ``/v1``.
            body: Content of the request.
            heavy: Whether the server needs much memory for the answer, so that few may be in flight.

        Raises:
            RequestError: The server refused the request, did not answer in time, or not in JSON.
            Unreadable: The answer is too long.
        """
        if heavy:
            async with self._transport.heavy:
                return await self.post(path, body)
        return await self._retried("POST", path, _json(body), patience=self._patience)

    async def _retried(self, method: str, path: str, body: bytes | None, *, patience: float) -> Any:
        started = time.monotonic()
        for attempt in itertools.count():
            try:
                answer = await self._transport.send(method, self._root + path, body)
            except RequestError as error:
                pause = _pause(error, attempt)
                if not is_transient(error) or time.monotonic() + pause - started >= patience:
                    raise
                self._log_outage(error, patience)
                await asyncio.sleep(pause)
            else:
                self._last_answer, self._outage_logged = time.monotonic(), False
                return answer

    def _log_outage(self, error: RequestError, patience: float) -> None:
        """Warn once per outage that requests are being retried."""
        if not self._outage_logged:
            logging.getLogger(__name__).warning(
                "%s: %s Retrying for up to %.0f seconds.", self.base_url, describe_error(error), patience
            )
        self._outage_logged = True

    def run(self, job: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a coroutine on the connection's event loop and return its result.

        Raises:
            Exception: Whatever the coroutine raises.
        """
        future = self._transport.submit(job)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def all(self, jobs: Sequence[Job[Answer]], control: Callable[[int], Job[Answer]], *, name: str) -> list[Answer]:
        """Run every job, ``in_flight`` at a time, and return the answers in the order of the jobs.

        Args:
            jobs: One job per item.
            control: Function from an item's number to the same job about a harmless text; see ``Call``.
            name: Name of the model, for error messages.

        Raises:
            PromptRefused: The server refuses items; the others are answered.
            Unanswered: An item has no answer. The other items were sent all the same, unless the error was fatal.
            RequestRefused: The server refuses the settings, and so every item.
            Interrupted: The user interrupted the call.
        """
        call = Call(control)
        try:
            return self.run(self._all(jobs, call, name))
        except KeyboardInterrupt as error:
            raise Interrupted(dict(call.answered)) from error

    async def one(self, job: Job[Answer], control: Callable[[int], Job[Answer]], *, name: str) -> Answer:
        """Run one job from a coroutine on any event loop; see ``all``."""
        (answer,) = await asyncio.wrap_future(self._transport.submit(self._all([job], Call(control), name)))
        return answer

    async def _all(self, jobs: Sequence[Job[Answer]], call: Call[Answer], name: str) -> list[Answer]:
        queue = iter(sorted(enumerate(jobs), key=lambda numbered: numbered[1].ids))
        workers = [asyncio.create_task(self._work(queue, call)) for _ in range(min(len(jobs), self._max_in_flight))]
        try:
            await asyncio.gather(*workers)
        finally:  # after an unexpected error or an interrupt no worker goes on
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return call.result(name, len(jobs))

    async def _work(self, queue: Iterator[tuple[int, Job[Answer]]], call: Call[Answer]) -> None:
        for number, job in queue:
            started = time.monotonic()
            try:
                call.answered[number] = await job.run()
            except (RequestError, ValueError) as error:  # a ValueError: without the requested values
                await call.explain(number, error)
                if self._is_fatal(error, started) or call.settings_refused:
                    for _ in queue:  # the remaining jobs are not started
                        pass

    def _is_fatal(self, error: Exception, started: float) -> bool:
        if isinstance(error, StatusError) and error.status in FATAL:
            return True
        return is_transient(error) and self._last_answer < started  # retried until nothing at all was answered


def _forget_transport(reference: weakref.ref[Connection]) -> None:
    """Make a forked process open its own transport: the parent's thread does not exist there."""
    connection = reference()
    if connection is not None:
        connection._opening = threading.Lock()  # another thread may have held it
        if connection._opened is not None:
            connection._opened.abandon()
            connection._opened = None


def _check_address(base_url: str) -> None:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{base_url!r} is not a server's address: give one such as http://HOST:PORT/v1.")
    if parts.username or parts.password:
        raise ValueError("The server's address contains a user name or password: pass the key as api_key instead.")
    if parts.query or parts.fragment:
        raise ValueError("The server's address contains '?' or '#': give it up to /v1, and pass the key as api_key.")


def _pause(error: RequestError, attempt: int) -> float:
    """Return the seconds until the next attempt: the server's ``Retry-After``, or a random exponential backoff."""
    if isinstance(error, StatusError) and error.retry_after is not None:
        return float(error.retry_after)
    return random.uniform(0.0, min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(attempt, 10)))


def _json(body: dict[str, Any]) -> bytes:
    """Return a request's JSON. orjson is faster, but takes neither lone surrogates nor integers beyond 64 bits."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body).encode()
