"""HTTP with servers: connections, retries, limits, keys and errors.

Requests run on an event loop in a thread. aiohttp is called directly: at 64 to 1024 requests in flight it takes .4 to
.6 ms of CPU a request; the openai client takes 1.7 to 1.9 ms on aiohttp's transport and 8 to 19 ms on its own.
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
from contextlib import nullcontext, suppress
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import aiohttp
import certifi

from evalbias.lm.reading import Unreadable
from evalbias.lm.types import CREDIT_REMEDY, KEY_REMEDY
from evalbias.values import get_logger, key_blanker

Result = TypeVar("Result")

MAX_ANSWER = 1 << 27  # largest answer in bytes, decompressed; the log-probabilities of 256k tokens take about a third
MAX_IN_FLIGHT = 1 << 27  # bytes of all answers in flight; above it, answers are read one at a time
HEAVY_IN_FLIGHT = 8  # simultaneous heavy requests: for likelihoods, vLLM and SGLang hold the logits of all tokens


class Pool:
    """Connections of this process to servers, opened by the first request, and again in a forked process.

    The key is sent with every request and stored nowhere else; an unusable key is a ValueError. ``in_flight``
    limits the simultaneous requests to each server, over all threads; ``timeout`` is the limit of a single attempt and
    ``patience`` that of a request with all its retries, in seconds.
    """

    def __init__(self, *, api_key: str | None, in_flight: int, timeout: float, patience: float) -> None:
        if in_flight < 1 or timeout <= 0 or patience < 0:
            raise ValueError("in_flight must be at least 1, timeout above 0 seconds, and patience not negative.")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise ValueError("The key contains a space, a line break or a letter outside ASCII: give the key alone.")
        self.in_flight, self.patience = in_flight, patience
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._without_key = key_blanker(api_key)
        self._timeout = timeout
        self._opening = threading.Lock()
        self._opened: _Opened | None = None

    @property
    def opened(self) -> _Opened:
        """Open connections of this process."""
        with self._opening:
            if self._opened is None or self._opened.process != os.getpid():
                self._opened = _Opened()
            return self._opened

    def run(self, job: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the event loop and return its result; an interrupt cancels it."""
        future = asyncio.run_coroutine_threadsafe(job, self.opened.loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def slots(self, base_url: str, *, heavy: bool = False) -> asyncio.Semaphore:
        """Return the semaphore that limits requests to a server, or its heavy requests."""
        limit = HEAVY_IN_FLIGHT if heavy else self.in_flight
        return self.opened.slots.setdefault((base_url, heavy), asyncio.Semaphore(limit))

    async def send(self, method: str, url: str, body: bytes | None, options: dict[str, Any]) -> Any:
        """Send a request (GET or POST) and return the JSON answer; ``options`` are those of aiohttp.

        Raises RequestError, including for redirects, and ``Unreadable`` if the answer is longer than ``MAX_ANSWER``.
        """
        try:
            session = self.opened.session(self._headers, self._timeout)
            async with session.request(method, url, data=body, allow_redirects=False, **options) as response:
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
        """Return an error status with the server's reason, read from any of the usual forms."""
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


class _Opened:
    """An event loop in a thread, with the connections and limits that live on it."""

    def __init__(self) -> None:
        # poll, not epoll: an epoll instance is shared with forked processes, so that a child that drops its copies of
        # the sockets would also drop them from the parent's. poll keeps its list in the process, and is as fast here.
        poll = hasattr(selectors, "PollSelector") and hasattr(os, "fork")
        self.loop = asyncio.SelectorEventLoop(selectors.PollSelector()) if poll else asyncio.new_event_loop()
        self.slots: dict[tuple[str, bool], asyncio.Semaphore] = {}  # by address, and True for heavy requests
        self.held = 0  # bytes of all answers in flight
        self.growing = asyncio.Lock()  # held by the only answer that may grow beyond the limit
        self.process = os.getpid()
        self._sessions: list[aiohttp.ClientSession] = []  # at most one, opened by the first request
        self.thread = threading.Thread(target=_run, args=(self.loop,), name="evalbias-server", daemon=True)
        self.thread.start()
        weakref.finalize(self, _stop, self.loop, self.thread, self._sessions, self.process)

    def session(self, headers: dict[str, str], timeout: float) -> aiohttp.ClientSession:
        """Return the session, which must be opened on the event loop."""
        if not self._sessions:
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # ``Pool.slots`` limits the requests
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout),
            )
            self._sessions.append(session)
        return self._sessions[0]


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _stop(
    loop: asyncio.AbstractEventLoop, thread: threading.Thread, sessions: list[aiohttp.ClientSession], process: int
) -> None:
    if os.getpid() != process:  # in a forked process: the parent closes the session
        loop.set_exception_handler(lambda *_: None)
        return

    async def close() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for session in sessions:
            await session.close()
        loop.stop()

    asyncio.run_coroutine_threadsafe(close(), loop)
    if threading.current_thread() is not thread:  # this thread may drop the last reference
        thread.join(10.0)


# Requests to a server. Transient failures are retried with backoff: timeouts, broken connections, answers that are
# cut off, and the statuses 408, 409, 429 and 5xx. An answer that is not JSON is retried only at a path that answered in
# JSON before: elsewhere the address is wrong. A request is given up once it has failed for ``patience`` seconds.


FIRST_PATIENCE = 10.0  # longest time in seconds to wait for a server's first answer: its address may be wrong
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 20.0  # longest random pause in seconds, doubled by each failure, and its limit
BETWEEN_WARNINGS = 30.0  # shortest time in seconds between warnings; a server that limits the rate refuses all the time


class Connection:
    """An HTTP connection to a server at an address that ends in ``/v1``; failing requests are retried."""

    def __init__(self, base_url: str, pool: Pool) -> None:
        self.base_url = base_url.rstrip("/")
        self.last_answer = 0.0  # monotonic time
        self._answered: set[str] = set()  # paths
        self._root = self.base_url.removesuffix("/v1")
        self._pool = pool
        self._options: dict[str, Any] = {"proxy": proxy_of(base_url)}
        if self.base_url.startswith("https:"):  # some Pythons find none of the system's certificates
            self._options["ssl"] = ssl.create_default_context()
            self._options["ssl"].load_verify_locations(certifi.where())
        self._warned = -BETWEEN_WARNINGS

    async def get(self, path: str) -> Any:
        """Return the JSON at a path (after the address without ``/v1``), with retries; None if not found."""
        try:
            return await self._retried("GET", path, None, patience=min(self._pool.patience, FIRST_PATIENCE))
        except StatusError as error:
            if error.denied:
                raise
            return None
        except NotJSON:
            return None

    async def post(self, path: str, body: dict[str, Any], *, heavy: bool = False) -> Any:
        """Send JSON to a path (after the address without ``/v1``) and return the JSON answer, with retries.

        ``heavy``: True if the answer takes much of the server's memory, so that few may be in flight.
        """
        async with self._pool.slots(self.base_url, heavy=True) if heavy else nullcontext():
            return await self._retried("POST", path, json.dumps(body).encode(), patience=self._pool.patience)

    async def _retried(self, method: str, path: str, body: bytes | None, *, patience: float) -> Any:
        slots, started = self._pool.slots(self.base_url), time.monotonic()
        for attempt in itertools.count():
            try:
                async with slots:
                    answer = await self._pool.send(method, self._root + path, body, self._options)
            except RequestError as error:
                wait = _pause(error, attempt)
                wrong_address = isinstance(error, NotJSON) and path not in self._answered
                if wrong_address or not error.transient or time.monotonic() + wait - started >= patience:
                    raise
                if time.monotonic() - self._warned >= BETWEEN_WARNINGS:
                    self._warned = time.monotonic()
                    text = "%s: %s Retrying for up to %.0f seconds."
                    get_logger(__name__).warning(text, self.base_url, error, patience)
                await asyncio.sleep(wait)
            else:
                self.last_answer = time.monotonic()
                self._answered.add(path)
                return answer


def _pause(error: RequestError, attempt: int) -> float:
    """Return the seconds until the next attempt: the server's ``Retry-After``, or a random exponential backoff."""
    if isinstance(error, StatusError) and error.retry_after is not None:
        return float(error.retry_after)
    return random.uniform(0.0, min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(attempt, 10)))


def proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for an address (``HTTPS_PROXY``, ``NO_PROXY`` and the like)."""
    parts, proxies = urlsplit(url), urllib.request.getproxies()
    if urllib.request.proxy_bypass(parts.netloc):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")


# Keys: the right key for each server.

CLOUDFLARE = "https://api.cloudflare.com/"
"""Address at which a model's URL is itself the endpoint, and ``result`` holds the answer."""

KEYS = {
    "api.openai.com": "OPENAI_API_KEY",
    "api.typesafe.ai": "TYPESAFE_API_KEY",
    "api.cloudflare.com": "CLOUDFLARE_API_TOKEN",
}
"""Host -> environment variable of its key, which is sent to no other host, and only by https."""


def key_for(addresses: Sequence[str], api_key: str | None = None) -> str | None:
    """Return ``api_key`` for servers, else the environment's key, else None; ValueError if others could read it.

    A variable in ``KEYS`` is for its own host alone, ``EVALBIAS_API_KEY`` for every other host. A malformed address or
    an address with a password is a ValueError too.
    """
    hosts = [_check_address(address) for address in addresses]
    names = {(host.hostname or "").lower().rstrip(".") if host.scheme == "https" else "" for host in hosts}
    variable = KEYS.get(names.pop() if len(names) == 1 else "", "EVALBIAS_API_KEY")
    key = api_key or os.environ.get(variable) or None
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
    """Return the parts of an address, or raise ValueError; no error repeats a possible password or key."""
    if "@" in base_url and not base_url.startswith(CLOUDFLARE):  # Cloudflare's models are named @cf/...
        raise ValueError("The server's address contains a user name or password: give the key alone, as api_key.")
    if "?" in base_url or "#" in base_url:
        raise ValueError("The server's address contains '?' or '#': give it up to /v1, and the key as api_key.")
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{base_url!r:.80} is not a server's address: give one such as http://HOST:PORT/v1.")
    return parts


# Errors of requests: each message says what is wrong, and what to do.


# Codes with status 429 by which OpenAI's API says that the account has no credit left.
SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
ADDRESS = "Check the address and the model's name."
REMEDIES = {
    **dict.fromkeys(range(300, 400), "Texts and keys are not sent on: give that address yourself if you trust it."),
    401: KEY_REMEDY,
    402: CREDIT_REMEDY,
    403: f"A key with the necessary permission is needed. {KEY_REMEDY}",
    404: ADDRESS,
    405: ADDRESS,
    429: "Ask fewer at a time (in_flight), or raise patience.",
}
"""HTTP status -> advice."""


class RequestError(Exception):
    """A server gave no usable answer to a request."""

    transient = False  # a retry may succeed
    denied = False  # the server denies access or redirects, so its capabilities stay unknown
    missing = False  # the server has nothing at the address, or no such model


class NoAnswer(RequestError):  # noqa: N818 - named for the problem
    """The server cannot be reached, the connection broke, or time ran out."""

    transient = True


class StatusError(RequestError):
    """The server answered with an error status."""

    REASON = 1000

    def __init__(self, status: int, reason: str, retry_after: int | None = None, code: str = "") -> None:
        self.status = status  # HTTP status
        self.retry_after = retry_after  # seconds after which the server asks to try again; None if it does not say
        spent = code in SPENT
        self.transient = (status in (408, 409, 429) or (status >= 500 and status != 501)) and not spent
        self.denied = status < 400 or status in (401, 402, 403) or spent
        self.missing = status in (404, 405)  # a server of web pages refuses POST with 405
        words = reason[: self.REASON].rstrip(" .")
        remedy = CREDIT_REMEDY if spent else REMEDIES.get(status, "")
        super().__init__(f"status {status}{f', {words}' if words else ''}. {remedy}".rstrip())


class NotJSON(RequestError):  # noqa: N818 - named for the problem
    """An answer is not JSON, for example from a proxy in front of the server, or from a web page at the address."""

    transient = True
    SHOWN = 80

    def __init__(self, url: str, text: str) -> None:
        words = " ".join(text.split())
        quoted = f"{words[: self.SHOWN]!r}{'...' if len(words) > self.SHOWN else ''}"
        super().__init__(
            f"{url} answers {quoted}, which is not JSON. Check the address: that of an API usually ends in /v1."
        )


def describe_error(error: Exception) -> str:
    """Describe the error of a question: a request error includes advice, other errors are about the answer."""
    if isinstance(error, RequestError):
        return str(error)
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return f"the server's answer cannot be used: {kind}{error}."
