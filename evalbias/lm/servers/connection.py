"""Requests to one server, retried with backoff.

Transient failures are retried: timeouts, broken connections, answers that are cut off, and the statuses 408, 409, 429
and 5xx. An answer that is not JSON is retried only at a path that answered in JSON before: elsewhere the address is
wrong. Every other error is final. A request is given up once it has failed for ``patience`` seconds.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import json
import os
import random
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

import orjson

from evalbias.lm.servers.errors import NotJSON, RequestError, StatusError, describe_error, is_denied, is_transient
from evalbias.lm.servers.transport import Pool, proxy_of
from evalbias.runs.visible import get_logger

FIRST_PATIENCE = 10.0
"""Longest time in seconds to wait for a server's first answer: its address may be wrong."""

SPARE_PATIENCE = 2.0
"""Longest time in seconds for which a request is retried at one of several servers, before another one is asked."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 20.0
"""Longest random pause in seconds after the first failure, which doubles with every failure, and its limit."""

BETWEEN_WARNINGS = 30.0
"""Shortest time in seconds between two warnings; a server that limits the rate refuses some requests all the time."""


class Connection:
    """An HTTP connection to one server.

    Args:
        base_url: Address of the server, ending in ``/v1``.
        pool: Pool through which requests are sent.
        patience: Time in seconds for which a request is retried.

    Attributes:
        base_url: Address of the server.
        last_answer: Monotonic time of the last answer.
        spare: Whether other servers answer the same requests; a failing one is given up soon then.

    Raises:
        ValueError: The address is malformed or contains a password, or ``patience`` is negative.
    """

    def __init__(self, base_url: str, pool: Pool, *, patience: float) -> None:
        _check_address(base_url)
        if patience < 0:
            raise ValueError("patience must be at least 0 seconds.")
        self.base_url = base_url.rstrip("/")
        self.last_answer = 0.0
        self._answered: set[str] = set()  # paths
        self.spare = False
        self._root = self.base_url.removesuffix("/v1")
        self._pool = pool
        self._patience = patience
        self._warned = -BETWEEN_WARNINGS

    async def get(self, path: str) -> Any:
        """Return the JSON at a path, with retries; None if the server has none there.

        Args:
            path: Path after the address without its ``/v1``.

        Raises:
            RequestError: The server did not answer in time, or denies access.
        """
        try:
            return await self._retried("GET", path, None, patience=min(self._patience, FIRST_PATIENCE))
        except StatusError as error:
            if is_denied(error):
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
            async with self._pool.transport.line(self.base_url).heavy:
                return await self.post(path, body)
        return await self._retried("POST", path, _json(body), patience=self._patience)

    async def _retried(self, method: str, path: str, body: bytes | None, *, patience: float) -> Any:
        transport, started = self._pool.transport, time.monotonic()
        line = transport.line(self.base_url)
        for attempt in itertools.count():
            try:
                answer = await transport.send(line, method, self._root + path, body)
            except RequestError as error:
                limit = min(patience, SPARE_PATIENCE) if self.spare else patience
                wait = pause(error, attempt)
                wrong_address = isinstance(error, NotJSON) and path not in self._answered
                if wrong_address or not is_transient(error) or time.monotonic() + wait - started >= limit:
                    raise
                if not self.spare:
                    self._log_outage(error, limit)
                await asyncio.sleep(wait)
            else:
                self.last_answer = time.monotonic()
                self._answered.add(path)
                return answer

    def _log_outage(self, error: RequestError, patience: float) -> None:
        """Warn that requests are being retried, unless that was said a short time ago."""
        now = time.monotonic()
        if now - self._warned >= BETWEEN_WARNINGS:
            self._warned = now
            get_logger(__name__).warning(
                "%s: %s Retrying for up to %.0f seconds.", self.base_url, describe_error(error), patience
            )


def key_for(addresses: Sequence[str], given: str | None = None) -> str | None:
    """Return the key for servers: the given one, or the one that the environment holds for them; None if it has none.

    ``OPENAI_API_KEY`` is for OpenAI's own address alone, ``EVALBIAS_API_KEY`` for every other one.

    Raises:
        ValueError: An address is malformed or holds a password, or others could read the key on its way.
    """
    hosts = [_check_address(address) for address in addresses]
    openai = all(host.scheme == "https" and host.netloc.lower() == "api.openai.com" for host in hosts)
    key = given or os.environ.get("OPENAI_API_KEY" if openai else "EVALBIAS_API_KEY") or None
    for host in hosts if key is not None else []:
        if host.scheme == "http" and (not _is_loopback(host.hostname or "") or proxy_of(host.geturl())):
            raise ValueError(
                f"The key would leave this machine unencrypted, for http://{host.netloc}: use https, or send no key "
                "(leave out api_key and --api-key-env, and unset EVALBIAS_API_KEY). An address of this machine must "
                "not be reached through a proxy (NO_PROXY)."
            )
    return key


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_address(base_url: str) -> SplitResult:
    """Return the parts of a server's address; no error shows an address that may hold a password or a key.

    Raises:
        ValueError: The address is malformed or contains a password.
    """
    if "@" in base_url:
        raise ValueError("The server's address contains a user name or password: give the key alone, as api_key.")
    if "?" in base_url or "#" in base_url:
        raise ValueError("The server's address contains '?' or '#': give it up to /v1, and the key as api_key.")
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{base_url!r:.80} is not a server's address: give one such as http://HOST:PORT/v1.")
    return parts


def pause(error: Exception, attempt: int) -> float:
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
