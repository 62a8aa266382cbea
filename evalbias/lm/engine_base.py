"""Base of our engines: DSPy's calls that follow from ``complete``, and their asynchronous form."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dspy import lm15

THREADS = 64
"""Number of simultaneous asynchronous requests to a local model, which batches them."""


class Engine:
    """Base of our engines: what they hold is freed with them, and shared by copies of a program."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer one request; see ``dspy.clients.engines.Engine``."""
        raise NotImplementedError

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """Return the whole answer as one stream of events."""
        return iter(lm15.response_to_events(self.complete(request)))

    def close(self) -> None:
        """Do nothing: nothing is open that outlives the engine."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return the engine itself."""
        return self


class AsyncEngine:
    """The async form of one of our engines.

    An engine with ``complete_async`` answers without threads. Otherwise each request waits in a thread, where it is
    batched with the others.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __deepcopy__(self, memo: dict[int, Any]) -> AsyncEngine:
        """Return the engine itself: copies of a program share the model."""
        return self

    async def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer one request."""
        if hasattr(self._engine, "complete_async"):
            response: lm15.Response = await self._engine.complete_async(request)
            return response
        run = functools.partial(contextvars.copy_context().run, self._engine.complete, request)
        return await asyncio.get_running_loop().run_in_executor(_threads(os.getpid()), run)

    async def stream(self, request: lm15.Request) -> AsyncIterator[Any]:
        """Yield the whole answer as one stream of events."""
        for event in lm15.response_to_events(await self.complete(request)):
            yield event

    async def aclose(self) -> None:
        """Do nothing: the engine itself holds the model."""


@functools.cache
def _threads(_: int) -> ThreadPoolExecutor:
    """Return the threads of a process, by its id; asyncio's own are 6 on 2 cores, and batches would be as small."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="evalbias-async")
