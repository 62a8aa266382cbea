"""HTTP with a server: forked processes, long answers, and nothing that goes on after an error."""

import asyncio
import gc
import json
import subprocess
import sys
import threading

import pytest
from fake_server import serving

from evalbias.lm.servers import transport
from evalbias.lm.servers.connection import Connection, Job, _json
from evalbias.lm.servers.errors import Unreadable

FORK = """
import os, sys, time
from evalbias.lm.servers.connection import Connection

connection = Connection(sys.argv[1], api_key="key", in_flight=4, timeout=60, patience=60)
before = connection.run(connection.get("/version"))
child = os.fork()
assert connection.run(connection.get("/version")) == before
if child:
    assert os.waitpid(child, 0)[1] == 0
    started = time.monotonic()
    for _ in range(20):
        assert connection.run(connection.get("/version")) == before
    assert time.monotonic() - started < 30, "the child's end has cut the parent off"
print("parent" if child else "child", before)
"""


def connect(address, **options):
    return Connection(address, **{"api_key": "key", "in_flight": 4, "timeout": 10.0, "patience": 1.0, **options})


def test_a_forked_process_opens_its_own_connections_and_leaves_the_parents_alone(lms):
    with serving(lms["qwen2"]) as (address, _):
        ended = subprocess.run([sys.executable, "-c", FORK, address], capture_output=True, text=True, timeout=50)
    assert ended.stderr == ""
    assert sorted(ended.stdout.splitlines()) == ["child {'version': '9.9'}", "parent {'version': '9.9'}"]


def test_an_answer_has_a_size_limit(lms, monkeypatch):
    with serving(lms["qwen2"]) as (address, fake):
        connection = connect(address)
        size = len(b'{"version": "9.9"}')
        monkeypatch.setattr(transport, "MAX_ANSWER", size)
        assert connection.run(connection.get("/version")) == {"version": "9.9"}
        monkeypatch.setattr(transport, "MAX_ANSWER", size - 1)
        before = len(fake.requests)
        with pytest.raises(Unreadable, match=f"longer than {size - 1} bytes"):
            connection.run(connection.get("/version"))
        assert len(fake.requests) == before + 1  # asking again would not make it shorter


def test_no_job_goes_on_after_an_unexpected_error(lms):
    started, ended = [], []

    def job(number):
        async def run():
            started.append(number)
            if number == 1:
                raise ZeroDivisionError("a bug")
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(number)

        return Job(run, (number,))

    with serving(lms["qwen2"]) as (address, _), pytest.raises(ZeroDivisionError, match="a bug"):
        connect(address).all([job(number) for number in range(10)], job, name="m")
    assert sorted(started) == [0, 1, 2, 3]
    assert sorted(ended) == [0, 2, 3]


def test_a_connection_ends_its_thread(lms):
    with serving(lms["qwen2"]) as (address, _):
        connection = connect(address)
        connection.run(connection.get("/version"))
        (thread,) = [t for t in threading.enumerate() if t is connection._transport.thread]
        del connection
        gc.collect()
        thread.join(5)
    assert not thread.is_alive()


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
