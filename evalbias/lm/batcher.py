"""Batching of calls from many threads.

A caller queues its item. If no batch runs, it answers everything queued by then; else it waits for the batch to end.
Threads that just got an answer come back one after another, a few milliseconds apart: the next batch waits for them, so
that it holds an item of every busy thread. A lone thread never waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

PATIENCE = 0.1
"""Longest pause between two arrivals that a batch waits for, as a share of the time that the last batch took."""

LEAST_PATIENCE = 0.01
"""Shortest such pause in seconds: what a thread spends in DSPy between two calls, with others busy too."""

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
        lock = threading.Lock()
        self._arrived, self._ended = threading.Condition(lock), threading.Condition(lock)
        self._running = False
        self._busy = 1  # threads to wait for: the most that were answered or waiting, one fewer every round
        self._pause = LEAST_PATIENCE

    def __call__(self, item: Item) -> Answer:
        """Return the item's answer.

        Raises:
            Exception: Whatever ``answer`` raises for this item.
        """
        mine: Future[Answer] = Future()
        with self._ended:
            self._waiting.append((item, mine))
            self._arrived.notify()
            while self._running and not mine.done():
                self._ended.wait()
            if mine.done():
                return mine.result()
            self._running = True
        batch: list[tuple[Item, Future[Answer]]] = []
        try:
            batch = self._gathered()
            start = time.monotonic()
            self._run(batch)
            self._pause = max(LEAST_PATIENCE, PATIENCE * (time.monotonic() - start))
        finally:
            with self._ended:
                self._running = False
                self._busy = max(self._busy - 1, len(batch) + len(self._waiting))
                self._ended.notify_all()
        return mine.result()

    def _gathered(self) -> list[tuple[Item, Future[Answer]]]:
        """Take what is queued, once every busy thread is there or nobody came for a while."""
        with self._arrived:
            arrived = 0
            while arrived < len(self._waiting) < self._busy:
                arrived = len(self._waiting)
                self._arrived.wait(self._pause)
            batch, self._waiting = self._waiting, []
            return batch

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
