"""HTTP with servers: connections, retries, limits, keys and errors.

Requests run on an event loop in a thread, with one pool of connections for all threads of the process. aiohttp is
called directly. At 64 to 1024 requests in flight it takes .4 to .6 ms of CPU a request; the openai client takes 1.7 to
1.9 ms on aiohttp's transport and 8 to 19 ms on its own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import json
import os
import random
import re
import selectors
import ssl
import threading
import time
import urllib.request
import weakref
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import aiohttp
import certifi
import orjson

from evalbias.lm.types import KEY_REMEDY, ModelChanged
from evalbias.values import get_logger

Result = TypeVar("Result")

MAX_ANSWER = 1 << 27
"""Largest answer in bytes, after decompression; the log-probabilities of 256k tokens take about a third."""

MAX_IN_FLIGHT = 1 << 27
"""Bytes of all answers in flight, from which on only one of them is read further at a time."""

SHORTEST_SECRET = 8
"""Length of the shortest key that is hidden wherever a server repeats it; local servers take words such as EMPTY."""

HEAVY_IN_FLIGHT = 8
"""Number of simultaneous heavy requests: for a text's likelihood vLLM and SGLang hold the logits of all its tokens."""


class Pool:
    """The connections of the running process to servers: opened by the first request, and anew in a forked process.

    The key is sent with every request and stored nowhere else. ``in_flight`` limits the simultaneous requests to each
    server, over all threads; ``timeout`` is one request's, in seconds. A key that cannot be sent is a ValueError.
    """

    def __init__(self, *, api_key: str | None, in_flight: int, timeout: float) -> None:
        if in_flight < 1 or timeout <= 0:
            raise ValueError("in_flight must be at least 1, and timeout above 0 seconds.")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise ValueError("The key contains a space, a line break or a letter outside ASCII: give the key alone.")
        self.in_flight = in_flight
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._repeated = None if api_key is None else _Repeated(api_key)
        self._timeout = timeout
        self._opening = threading.Lock()
        self._opened: _Opened | None = None
        if hasattr(os, "register_at_fork"):
            forget = weakref.WeakMethod(self._forget)
            os.register_at_fork(after_in_child=lambda: (method := forget()) and method())

    @property
    def opened(self) -> _Opened:
        """What this process has open."""
        with self._opening:
            if self._opened is None:
                self._opened = _Opened()
            return self._opened

    def submit(self, job: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Start a coroutine on the event loop."""
        return asyncio.run_coroutine_threadsafe(job, self.opened.loop)

    def run(self, job: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the event loop and return its result; an interrupt cancels it."""
        future = self.submit(job)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _forget(self) -> None:
        """Give up, in a forked process, the event loop and the connections that belong to its parent."""
        self._opening = threading.Lock()  # another thread may have held it
        if self._opened is not None:
            self._opened.abandon()
            self._opened = None

    def line(self, base_url: str) -> _Line:
        """Return what is kept for the server at an address; called on the event loop."""
        lines = self.opened.lines
        if base_url not in lines:
            lines[base_url] = _Line(base_url, self.in_flight)
        return lines[base_url]

    async def send(self, line: _Line, method: str, url: str, body: bytes | None = None) -> Any:
        """Send a request (GET or POST) and return the JSON answer.

        Raises RequestError (``NoAnswer``, ``StatusError`` also for redirects, ``NotJSON``), and ``Unreadable`` if the
        answer is longer than ``MAX_ANSWER``.
        """
        async with line.slots:
            try:
                session = self.opened.session(self._headers, self._timeout)
                async with session.request(method, url, data=body, allow_redirects=False, **line.options) as response:
                    return await self._answer(response, url)
            except asyncio.TimeoutError as error:
                raise NoAnswer("the request timed out. Raise timeout, or lower in_flight.") from error
            except (aiohttp.ClientError, OSError) as error:
                reason = self._without_key(str(error)) or type(error).__name__
                raise NoAnswer(f"{reason}. Check that the server runs, and its address.") from None

    async def _answer(self, response: aiohttp.ClientResponse, url: str) -> Any:
        opened, content, growing = self.opened, bytearray(), False
        try:
            async for part in response.content.iter_any():
                if content and opened.held > MAX_IN_FLIGHT and not growing:
                    growing = await opened.growing.acquire()
                content += part
                opened.held += len(part)
                if len(content) > MAX_ANSWER:
                    response.close()
                    raise Unreadable(f"it is longer than {MAX_ANSWER} bytes")
            if response.status >= 300:
                raise self._status_error(response, content.decode("utf-8", "replace"))
            with suppress(ValueError, RecursionError):
                return json.loads(self._without_key(content.decode("utf-8-sig", "surrogatepass")))
            raise NotJSON(url, self._without_key(content.decode("utf-8", "replace")))
        finally:
            opened.held -= len(content)
            content.clear()  # an error keeps the variables of this function
            if growing:
                opened.growing.release()

    def _status_error(self, response: aiohttp.ClientResponse, text: str) -> StatusError:
        """Return an error status with the reason that the server gives, in one of the usual forms."""
        if response.status < 400:
            text = f"it redirects to {response.headers.get('Location', 'no address')}"
        reason: Any = self._without_key(text)
        with suppress(ValueError, RecursionError):
            reason = json.loads(reason)
        code = ""
        for name in ("error", "message"):
            if isinstance(reason, dict):
                code, reason = str(reason.get("code", code)), reason.get(name, reason)
        after = response.headers.get("Retry-After", "")
        retry_after = int(after) if re.fullmatch("[0-9]{1,6}", after) else None
        return StatusError(response.status, str(reason), retry_after, code)

    def _without_key(self, text: str) -> str:
        """Return a server's words without the key, which some servers repeat."""
        return text if self._repeated is None else self._repeated.blanked(text)


class _Line:
    """What is kept for one server, made on the event loop; ``options`` are the arguments of every request."""

    def __init__(self, base_url: str, in_flight: int) -> None:
        self.slots = asyncio.Semaphore(in_flight)  # of all simultaneous requests
        self.heavy = asyncio.Semaphore(HEAVY_IN_FLIGHT)  # of those whose answers take much of the server's memory
        secure = urlsplit(base_url).scheme == "https"
        self.options: dict[str, Any] = {"proxy": proxy_of(base_url), "ssl": _certificates() if secure else True}


class _Opened:
    """An event loop in a thread, with the connections and limits that live on it."""

    def __init__(self) -> None:
        # poll, not epoll: an epoll instance is shared with forked processes, so that a child that drops its copies of
        # the sockets would also drop them from the parent's. poll keeps its list in the process, and is as fast here.
        poll = hasattr(selectors, "PollSelector") and hasattr(os, "fork")
        self.loop = asyncio.SelectorEventLoop(selectors.PollSelector()) if poll else asyncio.new_event_loop()
        self.lines: dict[str, _Line] = {}  # by address
        self.held = 0  # bytes of all answers in flight
        self.growing = asyncio.Lock()  # of the one answer that may grow beyond the limit
        self._sessions: list[aiohttp.ClientSession] = []  # at most one, opened by the first request
        self.thread = threading.Thread(target=_run, args=(self.loop,), name="evalbias-server", daemon=True)
        self.thread.start()
        self._stop = weakref.finalize(self, _stop, self.loop, self.thread, self._sessions)

    def session(self, headers: dict[str, str], timeout: float) -> aiohttp.ClientSession:
        """Return the session, opened on the event loop, where it belongs."""
        if not self._sessions:
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # each line limits its own requests
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout),
            )
            self._sessions.append(session)
        return self._sessions[0]

    def abandon(self) -> None:
        """Leave the event loop and the connections to the parent process."""
        self._stop.detach()
        self.loop.set_exception_handler(lambda *_: None)  # the parent closes what is reported as unclosed here


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, sessions: list[aiohttp.ClientSession]) -> None:

    async def close() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for session in sessions:
            await session.close()
        loop.stop()

    asyncio.run_coroutine_threadsafe(close(), loop)
    if threading.current_thread() is not thread:  # which may be the one that drops the last reference
        thread.join(10.0)


def proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for an address (``HTTPS_PROXY``, ``NO_PROXY`` and the like)."""
    parts, proxies = urlsplit(url), urllib.request.getproxies()
    if urllib.request.proxy_bypass(parts.netloc):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")


def _certificates() -> ssl.SSLContext:
    """Return the system's certificates and certifi's, because some Pythons find none of the system's."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


# Requests to one server. Transient failures are retried with backoff: timeouts, broken connections, answers that are
# cut off, and the statuses 408, 409, 429 and 5xx. An answer that is not JSON is retried only at a path that answered in
# JSON before: elsewhere the address is wrong. A request is given up once it has failed for ``patience`` seconds.


FIRST_PATIENCE = 10.0
"""Longest time in seconds to wait for a server's first answer: its address may be wrong."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 20.0
"""Longest random pause in seconds after the first failure, which doubles with every failure, and its limit."""

BETWEEN_WARNINGS = 30.0
"""Shortest time in seconds between two warnings; a server that limits the rate refuses some requests all the time."""


class Connection:
    """An HTTP connection to a server at an address that ends in ``/v1``; requests are retried for ``patience`` seconds.

    A malformed address, one that contains a password, or a negative ``patience`` is a ValueError.
    """

    def __init__(self, base_url: str, pool: Pool, *, patience: float) -> None:
        _check_address(base_url)
        if patience < 0:
            raise ValueError("patience must be at least 0 seconds.")
        self.base_url = base_url.rstrip("/")
        self.last_answer = 0.0  # monotonic time
        self._answered: set[str] = set()  # paths
        self._root = self.base_url.removesuffix("/v1")
        self._pool = pool
        self._patience = patience
        self._warned = -BETWEEN_WARNINGS

    async def get(self, path: str) -> Any:
        """Return the JSON at a path (after the address without ``/v1``), with retries; None if there is none."""
        try:
            return await self._retried("GET", path, None, patience=min(self._patience, FIRST_PATIENCE))
        except StatusError as error:
            if is_denied(error):
                raise
            return None
        except NotJSON:
            return None

    async def post(self, path: str, body: dict[str, Any], *, heavy: bool = False) -> Any:
        """Send JSON to a path (after the address without ``/v1``) and return the JSON answer, with retries.

        ``heavy``: whether the answer takes much of the server's memory, so that few may be in flight.
        """
        if heavy:
            async with self._pool.line(self.base_url).heavy:
                return await self.post(path, body)
        return await self._retried("POST", path, _json(body), patience=self._patience)

    async def _retried(self, method: str, path: str, body: bytes | None, *, patience: float) -> Any:
        line, started = self._pool.line(self.base_url), time.monotonic()
        for attempt in itertools.count():
            try:
                answer = await self._pool.send(line, method, self._root + path, body)
            except RequestError as error:
                wait = pause(error, attempt)
                wrong_address = isinstance(error, NotJSON) and path not in self._answered
                if wrong_address or not is_transient(error) or time.monotonic() + wait - started >= patience:
                    raise
                if time.monotonic() - self._warned >= BETWEEN_WARNINGS:
                    self._warned = time.monotonic()
                    said = "%s: %s Retrying for up to %.0f seconds."
                    get_logger(__name__).warning(said, self.base_url, describe_error(error), patience)
                await asyncio.sleep(wait)
            else:
                self.last_answer = time.monotonic()
                self._answered.add(path)
                return answer


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


# Keys: which one goes where, and out of what a server answers.


def key_for(addresses: Sequence[str], given: str | None = None) -> str | None:
    """Return the given key for servers, or the environment's, or None; ValueError if others could read it.

    ``OPENAI_API_KEY`` is for OpenAI's own address alone, ``EVALBIAS_API_KEY`` for every other one.
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
    """Return the parts of an address, or raise ValueError; no error shows one that may hold a password or a key."""
    if "@" in base_url:
        raise ValueError("The server's address contains a user name or password: give the key alone, as api_key.")
    if "?" in base_url or "#" in base_url:
        raise ValueError("The server's address contains '?' or '#': give it up to /v1, and the key as api_key.")
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{base_url!r:.80} is not a server's address: give one such as http://HOST:PORT/v1.")
    return parts


class _Repeated:
    """A key in a server's JSON, where characters may be escaped, also in JSON within a JSON string.

    A short key may be a common word: only behind "Bearer " is it taken for the key.
    """

    def __init__(self, key: str) -> None:
        self._before = "Bearer " if len(key) < SHORTEST_SECRET else ""
        self._plain = self._before + key
        letters = [rf"(?:\\{{0,8}}{re.escape(letter)}|\\{{1,8}}u00(?i:{ord(letter):02x}))" for letter in key]
        self._escaped = re.compile(f"(?<={self._before})" + "".join(letters))
        # Letters are escaped as \u0041. The search for escapes is faster than the one for the key by a factor of ten.
        self._escapes = re.compile(r"\\u00[2-7]" + r'|\\[/"\\]' * bool(set(key) & set('/"\\')))

    def blanked(self, text: str) -> str:
        """Return a text with ``[key]`` in place of the key."""
        text = text.replace(self._plain, f"{self._before}[key]")
        return self._escaped.sub("[key]", text) if self._escapes.search(text) else text


# Errors of requests, which of them a retry may cure, and what to do about the others.


TRANSIENT = frozenset({408, 409, 429})
"""Statuses below 500 that are retried."""

DENIED = frozenset({401, 402, 403})
"""Statuses of a missing or wrong key, of an account without credit, or of a key without permission."""

REDIRECTS = range(300, 400)
"""Statuses that send a request on to another address, which gets neither the texts nor the key."""

MISSING = frozenset({404, 405})
"""Statuses of an address or a model that the server does not have; a server of web pages refuses POST with 405."""

SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Codes with which OpenAI's API says, under status 429, that the account has no credit left."""


class RequestError(Exception):
    """A server gave no usable answer to a request."""


class NoAnswer(RequestError):  # noqa: N818 - named for the problem
    """The server cannot be reached, the connection broke, or time ran out."""


class StatusError(RequestError):
    """The server answered with an error status."""

    REASON = 1000

    def __init__(self, status: int, reason: str, retry_after: int | None = None, code: str = "") -> None:
        self.status = status  # of HTTP
        self.reason = reason[: self.REASON]  # the server's own words
        self.retry_after = retry_after  # seconds after which the server asks to try again; None if it does not say
        self.code = code[: self.REASON]  # the server's name for the error; empty if it gives none
        super().__init__(f"status {status}, {self.reason}")


class Declined(RequestError):  # noqa: N818 - named for the problem
    """The model declines to answer about one item; the server answered, so there is no error status."""


class NotJSON(RequestError):  # noqa: N818 - named for the problem
    """An answer is not JSON, as when a proxy answers instead of the server, or a web page stands at the address."""

    SHOWN = 80

    def __init__(self, url: str, text: str) -> None:
        words = " ".join(text.split())
        super().__init__(f"{url} answers {words[: self.SHOWN]!r}{'...' * (len(words) > self.SHOWN)}, which is not JSON")


class Unreadable(ValueError):  # noqa: N818 - a value error like the others, named for the problem
    """A server's answer lacks the requested values, or they have another form."""


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed."""
    if isinstance(error, StatusError):
        again = error.status in TRANSIENT or (error.status >= 500 and error.status != 501)
        return again and error.code not in SPENT
    return isinstance(error, NoAnswer | NotJSON)


def is_denied(error: BaseException) -> bool:
    """Return whether the server denies access or redirects, so that nothing is known about what it can do."""
    return isinstance(error, StatusError) and (
        error.status in DENIED or error.status in REDIRECTS or error.code in SPENT
    )


def is_missing(error: BaseException) -> bool:
    """Return whether the server has nothing at the address, or no such model."""
    return isinstance(error, StatusError) and error.status in MISSING


def is_fatal(error: BaseException) -> bool:
    """Return whether every other request of the call would fail in the same way."""
    return is_denied(error) or is_missing(error) or isinstance(error, ModelChanged)


def describe_error(error: Exception) -> str:
    """Describe an error of a request and its remedy."""
    if isinstance(error, NoAnswer | Declined):
        return str(error)
    if isinstance(error, NotJSON):
        return f"{error}. Check the address: that of an API usually ends in /v1."
    if not isinstance(error, StatusError):
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        return f"the server's answer cannot be used: {kind}{error}."
    credit = "Add credit to the account, or use another key."
    remedy = {
        401: KEY_REMEDY,
        402: credit,
        403: f"A key with the necessary permission is needed. {KEY_REMEDY}",
        **dict.fromkeys(REDIRECTS, "Texts and keys are not sent on: give that address yourself if you trust it."),
        **dict.fromkeys(MISSING, "Check the address and the model's name."),
        429: credit if error.code in SPENT else "Ask fewer at a time (in_flight), or raise patience.",
    }.get(error.status, "")
    reason = error.reason.rstrip(" .")
    return f"status {error.status}{', ' * bool(reason)}{reason}. {remedy}".rstrip()
