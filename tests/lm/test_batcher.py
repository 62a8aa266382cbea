"""Calls from threads are answered in batches that hold an item of every busy thread."""

import threading
import time

import pytest

from evalbias.lm import local as batcher
from evalbias.lm.local import Batcher


def started(*functions):
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    return threads


def until(condition):
    while not condition():
        time.sleep(0.001)


def test_answered_callers_return_while_another_batch_runs():
    queued, held = threading.Event(), threading.Event()
    batches, returned = [], []

    def answer(items):
        batches.append(sorted(items))
        if items == [0]:
            queued.wait()
        elif 9 not in items:  # the caller of 9 queues while this batch runs, and runs the next one
            started(lambda: batch(9))
            until(lambda: batch._waiting)
        else:
            held.wait()
        return items

    batch = Batcher(answer)
    threads = started(lambda: batch(0))
    until(lambda: batches)
    threads += started(*[lambda i=i: returned.append(batch(i)) for i in range(1, 9)])
    until(lambda: len(batch._waiting) == 8)
    queued.set()
    for thread in threads:
        thread.join(60)
    assert sorted(returned) == list(range(1, 9))
    assert batches[:2] == [[0], list(range(1, 9))]
    held.set()


def test_a_batch_waits_for_the_threads_of_the_last_round(monkeypatch):
    monkeypatch.setattr(batcher, "LEAST_PATIENCE", 60.0)
    batches, threads = [], []
    batch = Batcher(lambda items: batches.append(len(items)) or items)
    batch._busy = 4
    for i in range(4):
        until(lambda i=i: len(batch._waiting) == i)
        threads += started(lambda i=i: batch(i))
    for thread in threads:
        thread.join(60)
    assert batches == [4]


def test_a_lone_thread_never_waits(monkeypatch):
    batch = Batcher(list)
    for condition in (batch._arrived, batch._ended):
        monkeypatch.setattr(condition, "wait", lambda *_: pytest.fail("waited"))
    assert [batch(i) for i in range(50)] == list(range(50))


def test_an_error_reaches_its_own_caller_alone():
    def answer(items):
        if 3 in items:
            raise ValueError("three")
        return [2 * item for item in items]

    batch, answers = Batcher(answer), {}
    batch._busy = 5

    def ask(i):
        try:
            answers[i] = batch(i)
        except ValueError as error:
            answers[i] = str(error)

    for thread in started(*[lambda i=i: ask(i) for i in range(5)]):
        thread.join(60)
    assert answers == {0: 0, 1: 2, 2: 4, 3: "three", 4: 8}


def test_an_interrupt_frees_the_next_callers():
    def answer(items):
        raise KeyboardInterrupt

    batch = Batcher(answer)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            batch(1)
