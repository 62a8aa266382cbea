"""HTTP with a server: forked processes, long answers, and nothing that goes on after an error."""

import asyncio
import gc
import json
import math
import subprocess
import sys
import threading

import pytest
from fake_server import serving

from evalbias import ServerLM
from evalbias.lm.servers import transport
from evalbias.lm.servers.call import Job
from evalbias.lm.servers.connection import Connection, _json
from evalbias.lm.servers.errors import StatusError, Unreadable
from evalbias.lm.servers.fleet import Fleet, Replica
from evalbias.lm.servers.heap import Heap
from evalbias.lm.servers.transport import Pool

FORK = """
import os, sys
from evalbias.lm.servers.connection import Connection
from evalbias.lm.servers.transport import Pool

pool = Pool(api_key="key", in_flight=4, timeout=60)
connection = Connection(sys.argv[1], pool, patience=60)
before = pool.run(connection.get("/version"))
child = os.fork()
assert pool.run(connection.get("/version")) == before
if child:
    assert os.waitpid(child, 0)[1] == 0
    for _ in range(20):  # one would time out if the child's end had cut the parent off
        assert pool.run(connection.get("/version")) == before
print("parent" if child else "child", before)
"""


def connect(address, api_key="key"):
    pool = Pool(api_key=api_key, in_flight=4, timeout=60.0)
    return pool, Connection(address, pool, patience=60.0)


def test_a_forked_process_opens_its_own_connections_and_leaves_the_parents_alone(lms):
    with serving(lms["qwen2"]) as (address, _):
        ended = subprocess.run([sys.executable, "-c", FORK, address], capture_output=True, text=True, timeout=300)
    assert ended.stderr == ""
    assert sorted(ended.stdout.splitlines()) == ["child {'version': '9.9'}", "parent {'version': '9.9'}"]


def test_an_answer_has_a_size_limit(lms, monkeypatch):
    with serving(lms["qwen2"]) as (address, fake):
        pool, connection = connect(address)
        size = len(b'{"version": "9.9"}')
        monkeypatch.setattr(transport, "MAX_ANSWER", size)
        assert pool.run(connection.get("/version")) == {"version": "9.9"}
        monkeypatch.setattr(transport, "MAX_ANSWER", size - 1)
        before = len(fake.requests)
        with pytest.raises(Unreadable, match=f"longer than {size - 1} bytes"):
            pool.run(connection.get("/version"))
        assert len(fake.requests) == before + 1  # asking again would not make it shorter


def test_no_job_goes_on_after_an_unexpected_error():
    started, ended = [], []

    def job(number):
        async def run(_):
            started.append(number)
            if number == 1:
                raise ZeroDivisionError("a bug")
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(number)

        return Job(run, bytes([number]))

    pool, connection = connect("http://127.0.0.1:9/v1")
    fleet = Fleet([Replica(connection, None)], pool, patience=1.0)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        fleet.all([job(number) for number in range(10)], job, name="m")
    assert sorted(started) == [0, 1, 2, 3]
    assert sorted(ended) == [0, 2, 3]


def test_a_connection_ends_its_thread(lms):
    with serving(lms["qwen2"]) as (address, _):
        pool, connection = connect(address)
        pool.run(connection.get("/version"))
        (thread,) = [t for t in threading.enumerate() if t is pool.transport.thread]
        del pool, connection
        gc.collect()
        thread.join(60)
    assert not thread.is_alive()


def test_a_key_that_a_server_repeats_is_not_shown(lms):
    key = "sk-0123456789"
    fault = (401, {"error": {"message": f"Incorrect API key provided: {key}. none of {key}"}})
    with serving(lms["qwen2"], faults=lambda *_: fault) as (address, _):
        pool, connection = connect(address, api_key=key)
        with pytest.raises(StatusError, match=r"provided: \[key\]\. none of \[key\]") as raised:
            pool.run(connection.post("/nothing", {}))
    assert key not in raised.value.reason


def test_a_server_that_refuses_many_requests_is_warned_about_once_in_a_while(lms, caplog, monkeypatch):
    monkeypatch.setattr("evalbias.lm.servers.connection.BETWEEN_WARNINGS", math.inf)
    with serving(lms["qwen2"], faults=lambda n, *_: 429 if n % 2 else None) as (address, _):
        pool, connection = connect(address)
        for _ in range(5):
            pool.run(connection.get("/version"))
        assert len(caplog.records) == 1
        monkeypatch.setattr("evalbias.lm.servers.connection.BETWEEN_WARNINGS", 0.0)
        pool.run(connection.get("/version"))
    assert len(caplog.records) == 2


@pytest.mark.parametrize("key", ["two words", "a-key\n", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(key):
    with pytest.raises(ValueError, match="The key contains a space") as raised:
        connect("http://127.0.0.1:9/v1", api_key=key)
    assert key.strip() not in str(raised.value)


def test_proxies_of_the_environment_are_used(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    assert transport._proxy("http://judge.example/v1") == "http://proxy:3128"
    assert transport._proxy("http://127.0.0.1:8000/v1") is None


def test_a_request_may_hold_what_the_fast_json_library_refuses():
    body = {"seed": 1 << 70, "prompt": "half a character: \ud83d", "ids": (1, 2)}
    assert json.loads(_json(body)) == {**body, "ids": [1, 2]}


def test_the_collector_leaves_alone_what_was_there_before_a_call(lms):
    local, seen = lms["qwen2"], []
    assert gc.get_freeze_count() == 0
    with serving(local, faults=lambda *_: seen.append(gc.get_freeze_count())) as (address, _):
        lm = ServerLM("tiny", base_url=address, tokenizer=local.engine.loaded.arguments["model"])
        seen.clear()
        lm.choice_logprobs(["the cat", "the mat"], ["1", "2"])
    assert len(seen) == 2
    assert min(seen) > 10_000
    assert gc.get_freeze_count() == 0


def test_calls_of_several_threads_share_one_freeze_and_a_programs_own_is_left_alone():
    heap = Heap()
    with heap.frozen():
        first = gc.get_freeze_count()
        later = [[n] for n in range(1000)]
        with heap.frozen():
            assert gc.get_freeze_count() >= first + len(later) - 100
            assert gc.get_freeze_count() > first / 2 > 0  # a frozen object that nobody uses is freed all the same
        assert gc.get_freeze_count() > first / 2
    assert gc.get_freeze_count() == 0
    gc.freeze()
    try:
        own = gc.get_freeze_count()
        with heap.frozen():
            assert gc.get_freeze_count() <= own
        assert gc.get_freeze_count() > own / 2
    finally:
        gc.unfreeze()
