"""Several servers of one model: what begins alike stays together, and a server that fails costs no answer."""

import json
import logging
import math
import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler

import numpy as np
import pytest
from fake_server import Server, serving

from evalbias import ServerLM
from evalbias.lm import calls as fleets
from evalbias.lm import transport as connections
from evalbias.lm.calls import Fleet, Replica
from evalbias.lm.dialect import Job
from evalbias.lm.transport import Connection, Pool
from evalbias.lm.types import PromptRefused, Unanswered

pytestmark = pytest.mark.slow


class Stub:
    """A server that repeats the item and notes it; ``fault`` is a function from the item to a status or None."""

    def __init__(self):
        self.asked, self.answered, self.fault = [], [], lambda _: None


@contextmanager
def stub():
    found = Stub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            item = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["item"]
            found.asked.append(item)
            status = found.fault(item)
            if status is None:
                found.answered.append(item)
            sent = json.dumps({"item": item}).encode()
            self.send_response(status or 200)
            self.send_header("Content-Length", str(len(sent)))
            if status == 429:
                self.send_header("Retry-After", "900000")
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=partial(server.serve_forever, 0.01), daemon=True).start()
    found.address = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def three(monkeypatch):
    monkeypatch.setattr(connections, "SPARE_PATIENCE", 0.3)
    with ExitStack() as stack:
        yield [stack.enter_context(stub()) for _ in range(3)]


def fleet_of(stubs, *, in_flight=8, patience=120.0):
    pool = Pool(api_key="key", in_flight=in_flight, timeout=60.0)
    connected = [Connection(one.address, pool, patience=patience) for one in stubs]
    return Fleet([Replica(one, one) for one in connected], pool, patience=patience)  # a job posts through its "dialect"


def job_of(item):
    async def ask(at):
        return (await at.post("/", {"item": item}))["item"]

    return Job(ask, item.encode())


def documents(count, outputs):
    return [f"{'demonstrations':100}{d:100}{o:100}" for d in range(count) for o in range(outputs)]


def until(condition):
    """Wait for a condition for at most half a minute."""
    limit = time.monotonic() + 30
    while not condition() and time.monotonic() < limit:
        time.sleep(0.001)


def answered(fleet, items):
    return fleet.all([job_of(item) for item in items], lambda _: job_of("harmless"), name="m")


def test_each_servers_prompts_begin_alike(three):
    items = documents(24, 5)
    assert answered(fleet_of(three, in_flight=120), items) == items  # all at once: no server takes another's
    places = [{item[:200] for item in one.asked} for one in three]
    assert sum(map(len, places)) == 24  # no document is on two servers
    assert min(map(len, places)) >= 4
    assert sum(len(one.asked) for one in three) == 120


@pytest.mark.parametrize("status", [503, 404])
def test_another_server_answers_for_one_that_fails(three, caplog, monkeypatch, status):
    monkeypatch.setattr(fleets, "REST", math.inf)
    items, fleet = documents(24, 5), fleet_of(three, in_flight=4)
    three[0].fault = three[2].fault = lambda _: until(lambda: fleet.replicas[1].failed)  # they cannot take its items
    three[1].fault = lambda _: status if len(three[1].answered) >= 10 else None
    with caplog.at_level(logging.WARNING):
        assert answered(fleet, items) == items
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{three[1].address}: status {status}" in caplog.text
    assert "Its requests go to the other servers (2)" in caplog.text
    before = len(three[1].asked)
    assert answered(fleet, items[::-1]) == items[::-1]
    assert len(three[1].asked) == before  # it rests


def test_a_server_that_rested_is_asked_again(three, monkeypatch):
    monkeypatch.setattr(fleets, "REST", 0.0)
    items = documents(24, 5)
    three[1].fault = lambda _: 404
    fleet = fleet_of(three, in_flight=120)  # all at once: no server takes another's
    assert answered(fleet, items) == items
    three[1].fault, three[1].asked = (lambda _: None), []
    assert answered(fleet, items) == items
    assert len(three[1].asked) >= 20


def test_if_all_servers_fail_no_answer_is_lost_and_each_is_named(three):
    items = documents(24, 5)
    for one in three:
        one.fault = lambda _, one=one: 503 if len(one.answered) >= 10 else None
    with pytest.raises(Unanswered, match="The other servers failed before") as raised:
        answered(fleet_of(three, in_flight=4, patience=0.8), items)
    kept = raised.value.answered
    assert sorted(kept.values()) == sorted(item for one in three for item in one.answered)
    assert all(items[number] == item for number, item in kept.items())
    assert 27 <= len(kept) < 120
    assert sum(one.address in str(raised.value) for one in three) == 2
    assert "status 503" in str(raised.value)


def test_a_server_that_asks_for_a_pause_beyond_patience_is_not_waited_for(three):
    items = documents(24, 5)
    for one in three:
        one.fault = lambda item: 429 if item in items[::2] else None
    with pytest.raises(Unanswered, match=r"failed\): status 429") as raised:
        answered(fleet_of(three), items)
    assert sorted(raised.value.answered.values()) == sorted(item for one in three for item in one.answered)


def test_an_item_that_every_server_refuses_costs_no_other(three):
    items = documents(24, 5)
    for one in three:
        one.fault = lambda item: 400 if item == items[7] else None
    with pytest.raises(PromptRefused) as raised:
        answered(fleet_of(three), items)
    assert list(raised.value.refused) == [7]
    assert len(raised.value.answered) == 119
    assert sum(one.asked.count(items[7]) for one in three) == 1


def test_idle_servers_take_what_a_slow_one_cannot_begin(three):
    items = documents(24, 5)
    three[0].fault = lambda _: until(lambda: len(three[1].answered + three[2].answered) == 118)
    assert answered(fleet_of(three, in_flight=1), items) == items
    assert len(three[0].asked) == 2  # what it was answering, and what it had to begin next
    assert sum(len(one.asked) for one in three) == 120


def test_lone_prompts_go_to_servers_that_are_not_busy(three):
    fleet, arrived = fleet_of(three), threading.Event()
    for one in three:
        one.fault = lambda _: None if arrived.wait(50) else 503
    threads = [threading.Thread(target=answered, args=(fleet, [item])) for item in documents(1, 12)]
    for thread in threads:
        thread.start()
    until(lambda: sum(len(one.asked) for one in three) == 12)
    arrived.set()
    for thread in threads:
        thread.join()
    assert max(len(one.asked) for one in three) <= 5  # ceil(1.25 * 12 / 3)
    assert sum(len(one.answered) for one in three) == 12
    assert [replica.asked for replica in fleet.replicas] == [0, 0, 0]


def server(addresses, local, **options):
    folder = local.engine.loaded.arguments["model"]
    return ServerLM("tiny", base_url=addresses, tokenizer=folder, timeout=60.0, patience=120.0, **options)


def test_several_servers_give_the_numbers_of_one(lms):
    local, choices = lms["qwen2"], ["1", "2", "10"]
    prompts = [f"Source: {a} the cat sat Output: {b}" for a in ("on", "the mat") for b in "abcdef"]
    with serving(local) as (one, first), serving(local) as (two, second):
        lm = server([one, two, one], local, in_flight=6)
        assert lm.in_flight == 12
        assert lm.capabilities.startswith("vllm 9.9 on 2 servers: choices and likelihoods")
        assert lm.dump_state()["base_url"] == [one, two]
        assert lm.provenance() == server(one, local).provenance()
        before = len(first.requests), len(second.requests)
        answer = lm.choice_logprobs(prompts, choices)
        assert len(first.requests) > before[0]
        assert len(second.requests) > before[1]
    np.testing.assert_allclose(answer.logprobs, local.choice_logprobs(prompts, choices).logprobs, atol=1e-4)


def test_servers_of_different_models_or_kinds_are_refused(lms):
    local = lms["qwen2"]
    with serving(local) as (one, _), serving(local, "sglang") as (two, _), serving(local) as (three, fake):
        with pytest.raises(ValueError, match=f"{two} is a sglang server, {one} a vllm server: give the addresses"):
            server([one, two], local)
        fake.processed = 1.5  # as other weights would
        with pytest.raises(ValueError, match=f"{three} gives a text other probabilities than {one}"):
            server([one, three], local)
        fake.model = "another"
        with pytest.raises(ValueError, match=f"{three} does not serve 'tiny', only another"):
            server([one, three], local)
        with pytest.raises(ConnectionError, match=r"tiny at http://127.0.0.1:9/v1 gives no usable answer"):
            ServerLM("tiny", base_url=[one, "http://127.0.0.1:9/v1"], patience=0.0)
    with pytest.raises(ValueError, match="at least one server"):
        ServerLM("tiny", base_url=[])
