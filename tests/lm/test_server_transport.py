"""HTTP with a server: forked processes, long answers, and nothing that goes on after an error."""

import asyncio
import concurrent.futures
import gc
import json
import math
import re
import subprocess
import sys
import threading
import weakref
from contextlib import contextmanager

import pytest
from fake_server import serving
from loopback import Handler, listening

from evalbias import ServerLM
from evalbias.lm import transport
from evalbias.lm.calls import Call
from evalbias.lm.transport import Connection, NoAnswer, NotJSON, Pool, StatusError, Unreadable, describe_error, key_for
from evalbias.lm.types import Refused

FORK = """
import os, sys
from evalbias.lm.transport import Connection, Pool

pool = Pool(api_key="key", in_flight=4, timeout=60, patience=60)
connection = Connection(sys.argv[1], pool)
before = pool.run(connection.get("/version"))
child = os.fork()
assert pool.run(connection.get("/version")) == before
if child:
    assert os.waitpid(child, 0)[1] == 0
    for _ in range(20):  # one would time out if the child's end had cut the parent off
        assert pool.run(connection.get("/version")) == before
print("parent" if child else "child", before)
"""


def connect(address, api_key="key", *, patience=60.0):
    pool = Pool(api_key=api_key, in_flight=8, timeout=60.0, patience=patience)
    return pool, Connection(address, pool)


@pytest.mark.slow
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


def run_all(ask, at_once):
    """Ask ten questions on a server's event loop."""
    pool, _ = connect("http://127.0.0.1:9/v1")
    answers = {}
    call = Call(ask, answers, control=ask, refusal=lambda _: None, fatal=lambda *_: False)
    pool.run(call.run(range(10), at_once=at_once))
    return answers, call.failed


def test_whatever_an_answer_raises_costs_its_own_item_alone():
    class Large:
        pass

    held = []

    async def ask(number):
        answer = Large()
        held.append(weakref.ref(answer))
        if number == 1:
            raise OverflowError("int too large to convert to float")
        return number

    answers, failed = run_all(ask, 4)
    assert sorted(answers) == [0, *range(2, 10)]
    assert describe_error(failed[1]).endswith("cannot be used: OverflowError: int too large to convert to float.")
    assert [one() for one in held] == [None] * 10  # nor does the error keep its answer in memory


def test_an_error_that_several_questions_raise_ends_none_of_them():
    error, answers = ValueError("always the same object"), {}

    async def ask(number):
        await asyncio.sleep(number / 100)
        raise error

    call = Call(ask, answers, control=lambda _: asyncio.sleep(0.2), refusal=lambda _: Refused("is refused."))
    asyncio.run(asyncio.wait_for(call.run(range(4), at_once=4), 20))
    assert answers == dict.fromkeys(range(4), Refused("is refused."))


def test_no_job_goes_on_after_a_cancellation():
    started, ended = [], []

    async def ask(number):
        started.append(number)
        if number == 1:
            raise asyncio.CancelledError
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(number)

    with pytest.raises(concurrent.futures.CancelledError):
        run_all(ask, 4)
    assert sorted(started) == [0, 1, 2, 3]
    assert sorted(ended) == [0, 2, 3]


def test_a_connection_ends_its_thread(lms):
    with serving(lms["qwen2"]) as (address, _):
        pool, connection = connect(address)
        pool.run(connection.get("/version"))
        (thread,) = [t for t in threading.enumerate() if t is pool.opened.thread]
        del pool, connection
        gc.collect()
        thread.join(60)
    assert not thread.is_alive()


@contextmanager
def answering(status=200, content=b"{}", **headers):
    """Answer every request alike, and yield the address and the requests' headers."""
    asked = []

    class Answering(Handler):
        def reply(self, _):
            asked.append(dict(self.headers))
            self.send(status, content, **headers)

    with listening(Answering) as address:
        yield address, asked


SECRET = 'sk-0123/45"67\\89'
ESCAPED = "".join(f"\\u{ord(letter):04X}" for letter in SECRET)

REPEATED = [json.dumps({"version": f"Bearer {SECRET}", SECRET: [SECRET]})]
REPEATED += [json.dumps({"version": SECRET}).replace("/", "\\/"), f'{{"version": "Bearer {ESCAPED}"}}']
REPEATED += [json.dumps({"body": json.dumps({"version": SECRET}).replace("/", "\\/")})]
REPEATED += [json.dumps({"body": f'{{"version": "{ESCAPED}"}}'})]


@pytest.mark.parametrize("content", REPEATED)
def test_a_key_that_a_server_repeats_is_blanked_in_every_answer(content):
    with answering(content=content.encode()) as (address, asked):
        pool, connection = connect(address, api_key=SECRET)
        answer = pool.run(connection.get("/version"))
    assert asked[0]["Authorization"] == f"Bearer {SECRET}"
    assert "[key]" in json.dumps(answer)
    assert not {SECRET, ESCAPED, ESCAPED.lower(), "0123"} & set(re.findall(r"[^ ]+", str(answer)))
    assert "0123" not in str(answer)


def test_a_key_is_blanked_in_errors_too_and_a_short_one_where_it_is_the_key():
    error = {"error": {"message": f"Incorrect API key provided: {SECRET}. none of {SECRET}"}}
    with answering(401, json.dumps(error).encode()) as (address, _):
        pool, connection = connect(address, api_key=SECRET)
        with pytest.raises(StatusError, match=r"provided: \[key\]\. none of \[key\]") as raised:
            pool.run(connection.post("/nothing", {}))
    assert "0123" not in str(raised.value)
    with answering(content=b'{"a": "Bearer EMPTY", "b": "EMPTY"}') as (address, _):
        pool, connection = connect(address, api_key="EMPTY")
        assert pool.run(connection.get("/version")) == {"a": "Bearer [key]", "b": "EMPTY"}


def test_no_key_of_an_answer_that_is_no_http_is_shown():
    with answering(content=b"{}", **{"X-Key\x01": SECRET}) as (address, _):
        pool, connection = connect(address, api_key=SECRET, patience=0.0)
        with pytest.raises(NoAnswer) as raised:
            pool.run(connection.get("/version"))
    assert "0123" not in str(raised.value)


def test_a_redirect_is_refused_and_its_address_named(lms):
    with answering() as (other, asked), answering(307, Location=f"{other}/completions?key={SECRET}") as (address, _):
        pool, connection = connect(address, api_key=SECRET)
        for request in (connection.get("/version"), connection.post("/v1/completions", {"prompt": "a text"})):
            with pytest.raises(StatusError) as raised:
                pool.run(request)
            words = f"status 307, it redirects to {other}/completions?key=[key]. Texts and keys are not sent on"
            assert words in str(raised.value)
        with pytest.raises(ConnectionError, match=r"m at .* gives no usable answer: status 307, it redirects to"):
            ServerLM("m", base_url=address)
    assert asked == []


def test_answers_in_flight_share_a_budget_of_bytes(monkeypatch):
    size, budget, held = 1 << 20, 1 << 18, []
    monkeypatch.setattr(transport, "MAX_IN_FLIGHT", budget)
    with answering(content=b" " * size + b"1") as (address, _):
        pool, connection = connect(address)
        monkeypatch.setattr(pool, "_without_key", lambda text: held.append(pool.opened.held) or text)

        async def together():
            return await asyncio.gather(*(connection.get("/version") for _ in range(8)))

        assert pool.run(together()) == [1] * 8
        assert pool.opened.held == 0
    assert size <= max(held) <= size + budget + 8 * (1 << 18)  # one in full, and what the others had read before


def test_an_error_keeps_no_more_of_an_answer_than_it_shows():
    long = b"x" * 100_000
    for status, content in ((400, b'{"error": "' + long + b'"}'), (200, b"<html>" + long)):
        with answering(status, content) as (address, _):
            pool, connection = connect(address)
            with pytest.raises((StatusError, NotJSON)) as raised:
                pool.run(connection.post("/nothing", {}))
        assert len(str(raised.value)) < 1100
        assert raised.value.__context__ is None  # json's own error would hold the whole text


OWN, OTHER, HERE = "https://api.openai.com/v1", "https://host/v1", "http://127.0.0.1:8000/v1"

KEYS_GO = [([OWN], None, "openai's"), ([OTHER], None, "ours"), ([OWN, OTHER], None, "ours")]
KEYS_GO += [(["https://api.openai.com.evil/v1"], None, "ours"), (["https://evil/api.openai.com/v1"], None, "ours")]
KEYS_GO += [([OWN], "given", "given"), ([OTHER], "given", "given"), ([HERE], None, "ours")]
KEYS_GO += [(["http://localhost:8000/v1", "http://[::1]:8000/v1", "http://127.9.9.9/v1"], None, "ours")]


@pytest.mark.parametrize(("addresses", "given", "key"), KEYS_GO)
def test_a_key_goes_where_it_was_meant_to_go(addresses, given, key, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "openai's")
    monkeypatch.setenv("EVALBIAS_API_KEY", "ours")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert key_for(addresses, given) == key
    monkeypatch.delenv("EVALBIAS_API_KEY")
    assert key_for(addresses, given) == (None if key == "ours" else key)


@pytest.mark.parametrize("host", ["host", "10.0.0.1", "127.0.0.1.evil", "localhost.evil", "0.0.0.0", "api.openai.com"])
def test_a_key_is_not_sent_unencrypted_to_another_machine(host, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "openai's")
    monkeypatch.delenv("EVALBIAS_API_KEY", raising=False)
    assert key_for([HERE, f"http://{host}/v1"]) is None
    with pytest.raises(ValueError, match=rf"unencrypted, for http://{host}: use https, or send no key"):
        key_for([HERE, f"http://{host}/v1"], "sk-secret")
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    with pytest.raises(ValueError, match="not be reached through a proxy") as raised:
        key_for([HERE], "sk-secret")
    assert "sk-secret" not in str(raised.value)


@pytest.mark.parametrize(
    "address", ["http://u:PASS@h/v1", "u:PASS@h", "ftp://u:PASS@h", "ftp://h?key=PASS", "http://h#PASS"]
)
def test_no_error_shows_the_password_of_an_address(address):
    with pytest.raises(ValueError, match="The server's address contains") as raised:
        key_for([address])
    assert "PASS" not in str(raised.value)


def test_without_a_key_no_header_is_sent():
    with answering() as (address, asked):
        pool, connection = connect(address, api_key=None)
        pool.run(connection.get("/version"))
    assert "Authorization" not in asked[0]


def test_a_server_that_refuses_many_requests_is_warned_about_once_in_a_while(lms, caplog, monkeypatch):
    monkeypatch.setattr(transport, "BETWEEN_WARNINGS", math.inf)
    with serving(lms["qwen2"], faults=lambda n, *_: 429 if n % 2 else None) as (address, _):
        pool, connection = connect(address)
        for _ in range(5):
            pool.run(connection.get("/version"))
        assert len(caplog.records) == 1
        monkeypatch.setattr(transport, "BETWEEN_WARNINGS", 0.0)
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
    assert transport.proxy_of("http://judge.example/v1") == "http://proxy:3128"
    assert transport.proxy_of("http://127.0.0.1:8000/v1") is None
