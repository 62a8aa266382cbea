"""Batching of calls from many threads.

A caller queues its item and waits for a lock. The caller that gets the lock answers everything queued by then. While
one batch runs, the next one fills, so no caller waits for a timer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Answers items in batches.

    Args:
        answer: Function that returns one answer per item, in order. If it raises, the items are answered one by one,
            so that only the item's own caller gets the error.
    """

    def __init__(self, answer: Callable[[Sequence[Item]], Sequence[Answer]]) -> None:
        self._answer = answer
        self._waiting: list[tuple[Item, Future[Answer]]] = []
        self._queue = threading.Lock()
        self._turn = threading.Lock()

    def __call__(self, item: Item) -> Answer:
        """Return the item's answer.

        Raises:
            Exception: Whatever ``answer`` raises for this item.
        """
        mine: Future[Answer] = Future()
        with self._queue:
            self._waiting.append((item, mine))
        with self._turn:
            if not mine.done():
                with self._queue:
                    batch, self._waiting = self._waiting, []
                self._run(batch)
        return mine.result()

    def _run(self, batch: list[tuple[Item, Future[Answer]]]) -> None:
        try:
            answers = self._answer([item for item, _ in batch])
        except BaseException as error:
            if len(batch) == 1 or not isinstance(error, Exception):
                for _, future in batch:
                    future.set_exception(error)
                return
            for one in batch:
                self._run([one])
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            future.set_result(answer)
