"""``ServerLM``: how a server is found out and asked, and no answer lost when it fails."""

import json
from concurrent.futures import ThreadPoolExecutor

import chat_models
import numpy as np
import pytest
from fake_server import KEY, TOKENIZED, opened, served, serving
from fakes import outcome

from evalbias import LocalLM, ServerLM
from evalbias.lm.cache import CachedLM
from evalbias.lm.types import Choices, PromptTooLong, Unanswered, chunk_of

pytestmark = pytest.mark.slow

CHAT = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Output: a cat.\nQuality:"}]
PROMPTS = [f"the cat {word}" for word in "abcdefghij"]
CHOICES = ("1", "2")
QUESTIONS = [Choices(prompt, CHOICES) for prompt in PROMPTS]


@pytest.fixture
def local(lms):
    return lms["qwen2"]


def test_template_options_reach_a_servers_prompts(tmp_path):
    folder, options = chat_models.save(chat_models.chatml, tmp_path), {"enable_thinking": True}
    plain, thinking = (LocalLM(folder, device="cpu", dtype="float32", template_options=o) for o in (None, options))
    with serving(plain) as (address, _):
        lm, other = opened(address, plain), opened(address, plain, template_options=options)
        row = other.choice_logprobs([CHAT], CHOICES).logprobs
        np.testing.assert_allclose(row, thinking.choice_logprobs([CHAT], CHOICES).logprobs, atol=1e-4)
        assert not np.allclose(row, lm.choice_logprobs([CHAT], CHOICES).logprobs, atol=1e-3)
        assert lm.provenance()["tokenizer"] != other.provenance()["tokenizer"]
        assert other.dump_state()["template_options"] == options
    with serving(plain, "chat") as (address, _), pytest.raises(ValueError, match="No chat template is used here"):
        opened(address, plain, "chat", template_options=options)


def test_prompts_are_sent_in_order_of_their_prefixes_one_request_each(local):
    prompts = [f"{a}: the cat sat {b}" for b in ("on", "the", "mat") for a in ("Source", "Output")]
    with served(local, in_flight=1) as (lm, fake):
        before = len(fake.requests)
        answer = lm.choice_logprobs(prompts, ["1", "2", "3"])
        bodies = [body for _, body in fake.requests[before:]]
    assert [body["prompt"] for body in bodies] == sorted(body["prompt"] for body in bodies)
    assert len(bodies) == 6
    assert all(len(body["logprob_token_ids"]) == 3 and body["max_tokens"] == 1 for body in bodies)
    assert all("prompt_logprobs" not in body for body in bodies)  # vLLM reads no cached prefix for those
    np.testing.assert_allclose(answer.logprobs, local.choice_logprobs(prompts, ["1", "2", "3"]).logprobs, atol=1e-4)


def test_many_choices_are_split_into_requests(local):
    words = [chr(code) for code in (*range(0x21, 0x7F), *range(0xC0, 0x100))]
    with serving(local) as (address, fake):
        answer = opened(address, local).choice_logprobs(["the cat"], words)
        most = max(len(body.get("logprob_token_ids", [])) for _, body in fake.requests)
    assert most <= 128
    np.testing.assert_allclose(answer.logprobs, local.choice_logprobs(["the cat"], words).logprobs, atol=1e-4)


def test_chats_return_first_tokens_only(lms):
    local, choices = lms["qwen2-chat"], ["1", "2", "3"]
    with served(local, "chat") as (lm, fake):
        assert lm.provenance() == {"model": "server/tiny", "server": "chat"}
        assert "no likelihoods" in lm.capabilities
        with pytest.raises(ValueError, match="which a chat server cannot continue"):
            lm.choice_logprobs([[*CHAT, {"role": "assistant", "content": "It is"}]], choices)
        assert not set(choices) <= set(fake.one_token_texts(CHAT))  # this model does not answer with digits
        assert np.isnan(lm.choice_logprobs([CHAT], choices).logprobs).all()
    assert np.isfinite(local.choice_logprobs([CHAT], choices).logprobs).all()


@pytest.mark.parametrize("fault", [500, 503, 429, 408, "close", "cut", b"<html>", 10.0])
def test_transient_failures_are_retried(local, fault):
    with served(local, timeout=1.0 if fault == 10.0 else 60.0) as (lm, fake):
        start = len(fake.requests)
        fake.faults = lambda n, *_: fault if (n - start) % 3 == 1 and n - start < 10 else None
        answer = lm.choice_logprobs(PROMPTS, CHOICES)
        requests = len(fake.requests) - start
    assert requests > len(PROMPTS)
    np.testing.assert_allclose(answer.logprobs, local.choice_logprobs(PROMPTS, CHOICES).logprobs, atol=1e-4)


@pytest.mark.parametrize("pages", ["/", "/v1/chat/completions"])
def test_a_web_page_in_place_of_a_server_is_told_at_once(lms, pages):
    page = f"<html>\n  {'<p>' * 40}".encode()
    served = serving(lms["qwen2"], "chat", lambda _, path, __: page if path.startswith(pages) else None)
    match = r"/v1/chat/completions answers '<html> <p>.*'\.\.\., which is not JSON. Check .* usually ends in /v1"
    with served as (address, fake):
        fake.models = lambda _: {}
        with pytest.raises(ConnectionError, match=match) as raised:
            ServerLM("tiny", base_url=address)
    assert len(str(raised.value)) < 300
    paths = [path for path, _ in fake.requests]
    assert len(paths) == len(set(paths)), "a path was asked again"


@pytest.mark.parametrize(("status", "code"), [(429, "insufficient_quota"), (402, 402)])
def test_an_account_without_credit_is_not_asked_again(local, status, code):
    with served(local, in_flight=1) as (lm, fake):
        start = len(fake.requests)
        spent = (status, {"error": {"message": "You exceeded your quota.", "code": code}})
        fake.faults = lambda n, *_: None if n - start <= 2 else spent
        answers, _, ended = outcome(lm, QUESTIONS)
        assert len(fake.requests) - start == 3
    assert "You exceeded your quota. Add credit" in str(ended)
    assert len(answers) == 2


def test_a_dead_server_is_given_up_and_its_answers_are_kept(local):
    with served(local, in_flight=2, patience=1.0) as (lm, fake):
        start = len(fake.requests)
        fake.faults = lambda n, *_: "close" if n - start > 3 else None
        answers, _, ended = outcome(lm, QUESTIONS)
        distinct = len({json.dumps(body) for _, body in fake.requests[start:]})
    assert "Check that the server runs" in str(ended)
    assert len(answers) == 3
    assert distinct <= 7  # the others were not sent


def test_calls_are_large_enough_for_the_requests_in_flight(local):
    with served(local, in_flight=1000) as (lm, _):
        assert [chunk_of(one) for one in (lm, CachedLM(lm, "unused.jsonl"), local)] == [8000, 8000, 256]


def test_no_more_requests_are_in_flight_than_allowed(local):
    with served(local, in_flight=3) as (lm, fake):
        fake.faults = lambda *_: fake.together(3)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda i: lm.choice_logprobs([f"the {w} {i}" for w in "abcd"], CHOICES), range(3)))
    assert fake.most_in_flight == 3


def test_a_key_is_sent_and_never_saved(local, monkeypatch):
    monkeypatch.delenv("EVALBIAS_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(local, key=KEY) as (address, _):
        with pytest.raises(ConnectionError, match=r"401.*in EVALBIAS_API_KEY or"):
            opened(address, local)
        lm = opened(address, local, api_key=KEY)
        assert KEY not in json.dumps(lm.dump_state()) + json.dumps(lm.provenance()) + repr(lm)
        assert address not in json.dumps(lm.provenance())
        monkeypatch.setenv("EVALBIAS_API_KEY", KEY)
        again = ServerLM(**lm.dump_state())
        logprobs = [x.choice_logprobs(["the cat"], CHOICES).logprobs for x in (lm, again)]
    np.testing.assert_array_equal(*logprobs)


UNABLE = (501, {"error": {"message": "The model does not support the structured decision API", "code": 501}})
NOWHERE = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("kind", "state", "options", "message"),
    [
        ("vllm", {"model": "other"}, {}, "does not serve 'tiny', only other"),
        ("vllm", {}, {"tokenizer": "qwen2"}, "The server's tokens of a text are"),
        ("vllm", {"shift": 1}, {}, r"gives a token .* nats after a text, but .* within the same text\. Use vLLM"),
        ("vllm", {}, {"dialect": "sglang"}, "reports no token probabilities.*as sglang: status 404"),
        ("vllm", {}, {"dialect": "other"}, r"dialect='other' is unknown: use 'auto' or one of \['vllm', "),
        ("vllm", {}, {"in_flight": 0}, "in_flight must be at least 1"),
        ("vllm", {}, {"base_url": "localhost:8000"}, "is not a server's address"),
        ("vllm", {}, {"base_url": "http://me:secret@127.0.0.1:9/v1"}, "a user name or password"),
        ("vllm", {}, {"base_url": f"{NOWHERE}?key=secret"}, r"contains '\?' or '#'"),
        ("vllm", {}, {"base_url": NOWHERE, "patience": 0}, "no usable answer.*Check that the server runs"),
        ("vllm", {}, {"path": "/v2"}, r"No model is served at .*/v2: give"),
        ("chat", {"faults": lambda _, path, __: "drop" if "chat" in path else None}, {},
         r"reports no token probabilities.*as chat.*give the folder of its tokenizer"),
        # some servers list their models without a key, and ask for one at the first prompt
        ("chat", {"faults": lambda _, path, __: (401, {"error": {"message": "No key"}}) if "chat" in path else None},
         {}, r"status 401, No key\. Give the key .*OPENAI_API_KEY"),
        ("systemone", {"faults": lambda _, path, __: UNABLE if path == "/v1/systemone" else None},
         {"dialect": "systemone"}, "as systemone: status 501.*does not support the structured decision API"),
    ],
)  # fmt: skip
def test_wrong_settings_and_contradictions_are_refused(lms, folders, kind, state, options, message):
    options = {"tokenizer": "llama", **options} if kind in TOKENIZED else options
    with serving(lms["llama" if kind in TOKENIZED else "llama-chat"], kind) as (address, fake):
        vars(fake).update(state)
        address = address.replace("/v1", options.pop("path", "/v1"))
        tokenizer = {"tokenizer": folders[options.pop("tokenizer")]} if "tokenizer" in options else {}
        with pytest.raises((ValueError, ConnectionError), match=message):
            ServerLM("tiny", **{"base_url": address, "patience": 60.0, **tokenizer, **options})


@pytest.mark.parametrize("kind", ["vllm", "chat"])
def test_a_server_generates_text_as_a_dspy_lm(lms, kind):
    local = lms["qwen2-chat"]
    with serving(local, kind) as (address, _):
        lm = ServerLM("tiny", base_url=address, max_tokens=5, temperature=0.0)  # the tokenizer is the one listed
        provenance, texts = lm.provenance(), lm(messages=CHAT)
    assert texts == local.copy(temperature=0.0, max_tokens=5, cache=False)(messages=CHAT)
    assert texts[0]
    if kind == "vllm":
        assert (provenance["server"], provenance["version"], len(provenance["tokenizer"])) == ("vllm", "9.9", 12)


# Several servers of one model: each answers a contiguous share of the sorted prompts, and its failure costs that.


def test_several_servers_give_the_numbers_of_one_and_each_gets_prompts_that_begin_alike(lms):
    local, choices = lms["qwen2"], ["1", "2", "10"]
    prompts = [f"{document} the cat sat on {output}" for output in "abcde" for document in "0123456789"]
    with serving(local) as (one, first), serving(local) as (two, second):
        second.context = 200
        lm = opened([one, two, one], local, in_flight=6)
        with pytest.raises(PromptTooLong, match="the server's context is 200"):  # the shortest one
            lm.choice_logprobs(["the cat sat " * 100], choices)
        assert lm.in_flight == 12
        assert lm.capabilities.startswith("vllm 9.9 on 2 servers: choices and likelihoods")
        assert lm.dump_state()["base_url"] == [one, two]
        assert lm.provenance() == opened(one, local).provenance()
        before = len(first.requests), len(second.requests)
        answer = lm.choice_logprobs(prompts, choices)
        sent = [fake.requests[start:] for fake, start in zip((first, second), before, strict=True)]
    documents = [{local.engine.loaded.tokenizer.decode(body["prompt"])[0] for _, body in bodies} for bodies in sent]
    assert [len(some) for some in documents] == [5, 5]
    assert not documents[0] & documents[1]
    np.testing.assert_allclose(answer.logprobs, local.choice_logprobs(prompts, choices).logprobs, atol=1e-4)


@pytest.mark.parametrize("fault", [503, 404])
def test_a_server_that_fails_leaves_its_share_unanswered_and_the_rest_is_kept(local, fault):
    questions = [Choices(f"{letter} the cat", ("1", "2")) for letter in "abcdefghij"]
    with serving(local) as (one, _), serving(local) as (two, fake):
        lm = opened([one, two], local, patience=0.5)
        before = len(fake.requests)
        fake.faults = lambda *_: fault
        answers, refused, ended = outcome(lm, questions)
        assert isinstance(ended, Unanswered)
        assert f"status {fault}" in str(ended)
        assert (list(answers), refused) == ([0, 1, 2, 3, 4], {})
        assert len({json.dumps(body) for _, body in fake.requests[before:]}) <= 5
        fake.faults = lambda *_: None
        answers, _, ended = outcome(lm, questions)  # the next call asks it again
    assert (len(answers), ended) == (10, None)


def test_servers_of_different_models_or_kinds_are_refused(local):
    with serving(local) as (one, _), serving(local, "sglang") as (two, _), serving(local) as (three, fake):
        with pytest.raises(ValueError, match=f"{two} is a sglang server, {one} a vllm server: give the addresses"):
            opened([one, two], local)
        fake.processed = 1.5  # as other weights would
        with pytest.raises(ValueError, match=f"{three} gives a text other probabilities than {one}"):
            opened([one, three], local)
        fake.model = "another"
        with pytest.raises(ValueError, match=f"{three} does not serve 'tiny', only another"):
            opened([one, three], local)
        with pytest.raises(ConnectionError, match=r"tiny at http://127.0.0.1:9/v1 gives no usable answer"):
            opened([one, "http://127.0.0.1:9/v1"], local, patience=0.0)
    with pytest.raises(ValueError, match="at least one server"):
        opened([], local)
