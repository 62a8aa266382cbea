"""HTTP with servers: an event loop in a thread, and one pool of connections for all threads of the process.

aiohttp is called directly. At 64 to 1024 requests in flight it takes .4 to .6 ms of CPU a request; the openai client
takes 1.7 to 1.9 ms on aiohttp's transport and 8 to 19 ms on its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import selectors
import ssl
import threading
import urllib.request
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import certifi

from evalbias.lm.servers.errors import NoAnswer, NotJSON, StatusError, Unreadable

Answer = TypeVar("Answer")

MAX_ANSWER = 1 << 27
"""Largest answer in bytes, after decompression; the log-probabilities of 256k tokens take about a third."""

MAX_IN_FLIGHT = 1 << 27
"""Bytes of all answers in flight, from which on only one of them is read further at a time."""

SHORTEST_SECRET = 8
"""Length of the shortest key that is hidden wherever a server repeats it; local servers take words such as EMPTY."""

HEAVY_IN_FLIGHT = 8
"""Number of simultaneous heavy requests: for a text's likelihood vLLM and SGLang hold the logits of all its tokens."""


class Pool:
    """The transport of the running process: opened by the first request, and anew in a forked process.

    Args:
        api_key: Key that is sent with every request and stored nowhere else; None sends none.
        in_flight: Number of simultaneous requests to each server, over all threads.
        timeout: Time limit of one request in seconds.

    Raises:
        ValueError: The key cannot be sent, or a limit is too small.
    """

    def __init__(self, *, api_key: str | None, in_flight: int, timeout: float) -> None:
        if in_flight < 1 or timeout <= 0:
            raise ValueError("in_flight must be at least 1, and timeout above 0 seconds.")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise ValueError("The key contains a space, a line break or a letter outside ASCII: give the key alone.")
        self.in_flight = in_flight
        self._open = partial(Transport, api_key=api_key, in_flight=in_flight, timeout=timeout)
        self._opening = threading.Lock()
        self._opened: Transport | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_forget_transport, weakref.ref(self)))

    @property
    def transport(self) -> Transport:
        """The transport of this process."""
        with self._opening:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def run(self, job: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a coroutine on the event loop and return its result.

        Raises:
            Exception: Whatever the coroutine raises.
        """
        future = self.transport.submit(job)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def forget(self) -> None:
        """Give up the transport of the parent process, whose thread does not exist in a forked one."""
        self._opening = threading.Lock()  # another thread may have held it
        if self._opened is not None:
            self._opened.abandon()
            self._opened = None


def _forget_transport(reference: weakref.ref[Pool]) -> None:
    pool = reference()
    if pool is not None:
        pool.forget()


class Line:
    """State of the transport for one server; made on the event loop.

    Attributes:
        slots: Semaphore of the simultaneous requests.
        heavy: Semaphore of the requests whose answers take much of the server's memory.
        options: Arguments of every request: its proxy and its certificates.
    """

    def __init__(self, base_url: str, in_flight: int) -> None:
        self.slots = asyncio.Semaphore(in_flight)
        self.heavy = asyncio.Semaphore(HEAVY_IN_FLIGHT)
        secure = urlsplit(base_url).scheme == "https"
        self.options: dict[str, Any] = {"proxy": proxy_of(base_url), "ssl": _certificates() if secure else True}


class Transport:
    """Sends requests to servers, from any thread of the process that made it; see ``Pool``.

    Attributes:
        thread: Thread of the event loop.
    """

    def __init__(self, *, api_key: str | None, in_flight: int, timeout: float) -> None:
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._repeated = None if api_key is None else _Repeated(api_key)
        self._held = 0  # bytes of all answers in flight
        self._growing = asyncio.Lock()
        self._timeout = timeout
        self._limit = in_flight
        self._lines: dict[str, Line] = {}
        self._sessions: list[aiohttp.ClientSession] = []  # at most one, opened by the first request
        self._loop = _event_loop()
        self.thread = threading.Thread(target=_run, args=(self._loop,), name="evalbias-server", daemon=True)
        self.thread.start()
        self._stop = weakref.finalize(self, _stop, self._loop, self.thread, self._sessions)

    def submit(self, coroutine: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Start a coroutine on the event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def abandon(self) -> None:
        """Give up, in a forked process, the event loop and the connections that belong to its parent."""
        self._stop.detach()
        self._loop.set_exception_handler(lambda *_: None)  # the parent closes what is reported as unclosed here

    def line(self, base_url: str) -> Line:
        """Return what is kept for the server at an address; called on the event loop."""
        if base_url not in self._lines:
            self._lines[base_url] = Line(base_url, self._limit)
        return self._lines[base_url]

    async def send(self, line: Line, method: str, url: str, body: bytes | None = None) -> Any:
        """Send one request and return the JSON answer.

        Args:
            line: Line of the server.
            method: "GET" or "POST".
            url: Address.
            body: JSON.

        Raises:
            NoAnswer: The server did not answer in time, or the connection broke.
            StatusError: The server answered with an error status, or redirects.
            NotJSON: The answer is not JSON.
            Unreadable: The answer is longer than ``MAX_ANSWER``.
        """
        async with line.slots:
            try:
                async with self._session().request(
                    method, url, data=body, allow_redirects=False, **line.options
                ) as response:
                    return await self._answer(response, url)
            except asyncio.TimeoutError as error:
                raise NoAnswer("the request timed out. Raise timeout, or lower in_flight.") from error
            except (aiohttp.ClientError, OSError) as error:
                reason = self._without_key(str(error)) or type(error).__name__
                raise NoAnswer(f"{reason}. Check that the server runs, and its address.") from None

    async def _answer(self, response: aiohttp.ClientResponse, url: str) -> Any:
        """Read an answer and return its JSON; see ``send``."""
        content, growing = bytearray(), False
        try:
            async for part in response.content.iter_any():
                if content and self._held > MAX_IN_FLIGHT and not growing:
                    growing = await self._growing.acquire()
                content += part
                self._held += len(part)
                if len(content) > MAX_ANSWER:
                    response.close()
                    raise Unreadable(f"it is longer than {MAX_ANSWER} bytes")
            if response.status >= 300:
                raise self._status_error(response, content.decode("utf-8", "replace"))
            with suppress(ValueError, RecursionError):
                return json.loads(self._without_key(content.decode("utf-8-sig", "surrogatepass")))
            raise NotJSON(url, self._without_key(content.decode("utf-8", "replace")))
        finally:
            self._held -= len(content)
            content.clear()  # an error keeps the variables of this function
            if growing:
                self._growing.release()

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

    def _session(self) -> aiohttp.ClientSession:
        """Return the session, opened on the event loop, where it belongs."""
        if not self._sessions:
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # each line limits its own requests
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=self._timeout),
            )
            self._sessions.append(session)
        return self._sessions[0]


def _event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop whose clean-up in a forked process does not disturb the parent's.

    An epoll instance is shared with forked processes, so that a child that drops its copies of the sockets would also
    drop them from the parent's epoll. poll keeps its list in the process, and is as fast here.
    """
    if hasattr(selectors, "PollSelector") and hasattr(os, "fork"):
        return asyncio.SelectorEventLoop(selectors.PollSelector())
    return asyncio.new_event_loop()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, sessions: list[aiohttp.ClientSession]) -> None:
    """Cancel what runs on the loop, close its connections and end its thread."""

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
