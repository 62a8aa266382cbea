"""What servers are asked for, and answers that do not have the form they should have."""

import asyncio
import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from commands import as_jsonl, evalbias
from dspy import lm15
from fake_decisions import ENDPOINTS
from fake_server import TOKENIZED, opened, served, serving
from fakes import outcome
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbias.lm.dialect import PROBE_TEXT
from evalbias.lm.dspy_seam import judgment_request, read_judgment
from evalbias.lm.transport import HEAVY_IN_FLIGHT
from evalbias.lm.types import Choices, Likelihood, PromptTooLong, Text, Unanswered

pytestmark = pytest.mark.slow

PROMPTS = ["the cat", "the mat", "a cat sat"]


def put(value, *path):
    """Return a function that replaces the value at a path of an answer; ``...`` deletes it."""

    def change(answer):
        place = answer
        for step in path[:-1]:
            place = place[step]
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        return answer

    return change


CHOICES = [Choices(prompt, ("1", "2")) for prompt in PROMPTS]
LIKELIHOODS = [Likelihood(prompt, " sat") for prompt in PROMPTS]
TEXTS = [Text(prompt, 2, temperature=0.0) for prompt in PROMPTS]


def believe(answer):
    """Give each of two tokens a probability of .53."""
    tops = answer["choices"][0]["logprobs"]["top_logprobs"]
    tops[0] = dict.fromkeys(tops[0], math.log(0.53))
    return answer


CHOICE = ("choices", 0)
CHAT_TOP = (*CHOICE, "logprobs", "content", 0, "top_logprobs")
SHARES, SHARE = ("answers", "answer", "probabilities"), {"value": "1", "probability": 0.5}
MALFORMED = [
    ("llama.cpp", CHOICES, put(..., "completion_probabilities", 0, "top_logprobs", 0, "id"), "id is missing"),
    ("llama.cpp", CHOICES, put("1", "completion_probabilities", 0, "top_logprobs", 0, "id"), "id is a str"),
    ("llama.cpp", CHOICES, put(7, "completion_probabilities", 0, "top_logprobs"), "top_logprobs is a int, .* a list"),
    ("vllm", CHOICES, put(None, "choices"), "choices.0 is missing"),
    ("vllm", CHOICES, lambda _: "fine", "choices.0 is missing"),
    ("vllm", CHOICES, believe, "of the next token sum to 1.06"),
    ("vllm", LIKELIHOODS, put([3] * 4, *CHOICE, "prompt_logprobs"), "prompt_logprobs for|is missing"),
    ("vllm", CHOICES, put([1, 2], "usage"), "usage is a list, but must be a dict"),
    ("vllm", LIKELIHOODS, put("3", "usage", "completion_tokens"), "completion_tokens is a str, but must be a int"),
    ("llama.cpp", CHOICES, put(2.5, "tokens_evaluated"), "tokens_evaluated is a float, but must be a int"),
    ("sglang", CHOICES, put(-2, "meta_info", "prompt_tokens"), "prompt_tokens is -2"),
    ("sglang", LIKELIHOODS, put(10**4000, "meta_info", "prompt_tokens"), "prompt_tokens is 10{79}"),
    ("vllm", TEXTS, put(True, "usage", "prompt_tokens"), "prompt_tokens is a bool, but must be a int"),
    ("vllm", TEXTS, put(-1, "usage", "prompt_tokens"), "prompt_tokens is -1"),
    ("vllm", TEXTS, put(3, *CHOICE, "text"), "text is a int, but must be a str"),
    ("sglang", LIKELIHOODS, put("x", "meta_info", "input_token_logprobs", -1, 0), "'x' is not a log-probability"),
    ("chat", CHOICES, put(7, *CHAT_TOP, 0, "token"), "token is a int, but must be a str"),
    ("sglang", CHOICES, put([[[-1.0]]], "meta_info", "output_token_ids_logprobs"), "1 is missing"),
    ("sglang", LIKELIHOODS, put({}, "meta_info", "input_token_logprobs"), "input_token_logprobs is a dict"),
    ("systemone", CHOICES, put({"1": 0.5, "2": 0.2}, *SHARES), "sum to 0.700, not to 1"),
    ("systemone", CHOICES, put({"1": 0.5, "3": 0.5}, *SHARES), r"of \['1', '3'\], not of \['1', '2'\]"),
    ("systemone", CHOICES, put({"1": 1.5, "2": -0.5}, *SHARES), "1.5 is not a probability"),
    ("systemone", CHOICES, put({"1": True, "2": False}, *SHARES), "True is not a probability"),
    ("systemone", CHOICES, put({"1": None, "2": 1.0}, *SHARES), "None is not a probability"),
    ("systemone", CHOICES, put(["1", "2"], *SHARES), "value is missing"),
    ("decisions", CHOICES, put([SHARE, SHARE], "answers", 0, "probabilities"), "an option twice"),
    ("decisions", CHOICES, put("other", "answers", 0, "name"), "to .'other'., the questions .'answer'"),
    ("decisions", CHOICES, lambda a: {"answers": a["answers"] * 2}, "to .'answer', 'answer'., the questions"),
    ("decisions", CHOICES, put("score", "answers", 0, "type"), "type 'score', the question of 'choice'"),
    ("systemone", CHOICES, put("noul", "answers", "answer", "type"), "type 'noul', the question of 'choice'"),
    ("chat", CHOICES, put("no", *CHAT_TOP, 0), "token is missing"),
    ("chat", CHOICES, put(0.0, *CHAT_TOP, 1, "logprob"), "the probabilities of the first token sum to"),
    ("chat", TEXTS, put(4, *CHOICE, "message", "content"), "an entry is a int, but must be a str"),
]


@pytest.mark.parametrize(("kind", "call", "change", "message"), MALFORMED)
def test_a_malformed_answer_is_an_error_of_its_item_only(lms, kind, call, change, message):
    local = lms["qwen2-chat"]
    with served(local, kind) as (lm, fake):
        first = len(fake.requests) + 1
        fake.faults = lambda n, *_: change if n == first else None
        answers, _, ended = outcome(lm, call)
        assert re.search(rf"item \d of 3 \(2 answered, 1 failed\).*({message})", str(ended))
        assert len(answers) == 2
        assert len(fake.requests) < first + 9  # and nothing was sent again


NUMBERS = st.sampled_from([0, -1, 1, 10**400, -(10**400), 1e308, -1e308, -9999.0, *map(float, ("nan", "inf", "-inf"))])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(-5, 1) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def mutated(answer, draw):
    """Return a server's answer with another value at a place that is drawn."""
    if isinstance(answer, dict | list) and answer and draw(st.integers(0, 9)):
        keys = list(answer) if isinstance(answer, dict) else range(len(answer))
        key = draw(st.sampled_from(list(keys)))
        answer[key] = mutated(answer[key], draw)
        return answer
    return draw(JSON)


@pytest.mark.parametrize("kind", [*TOKENIZED, "chat", *ENDPOINTS])
def test_any_answer_gives_probabilities_or_costs_its_own_item_alone(lms, kind):
    local = lms["qwen2-chat"]
    with served(local, kind) as (lm, fake):

        @settings(max_examples=60, deadline=None)
        @given(st.data())
        def check(data):
            first = len(fake.requests) + 1
            fake.faults = lambda n, *_: (lambda answer: mutated(answer, data.draw)) if n == first else None
            answers, refused, ended = outcome(lm, CHOICES)
            assert isinstance(ended, Unanswered | None)
            assert len(answers) + len(refused) + (ended is not None) == len(PROMPTS)  # one is missing at most
            rows = np.concatenate([answer.logprobs for answer in answers.values()])
            shares = np.exp(rows[~np.isnan(rows).any(axis=1)])
            assert ((shares >= 0) & (shares <= 1)).all()
            assert (shares.sum(axis=1) <= 1.05).all()

        check()


def test_a_key_that_the_server_repeats_everywhere_is_written_nowhere(lms, tmp_path, monkeypatch):
    key, refused = "sk-canary/0123456789", []
    monkeypatch.setenv("EVALBIAS_API_KEY", key)
    longest = len(lms["qwen2"].engine.loaded.tokenizer(PROBE_TEXT)["input_ids"])  # of what a server is tried on
    rows = [{"id": f"i{n}", "source": "the cat sat " * 20, "output": f"sat {n}"} for n in range(3)]
    as_jsonl(tmp_path / "items.jsonl", rows)

    def filled(value):
        if isinstance(value, dict):
            return {name: value[name] if name in ("id", "owned_by") else filled(value[name]) for name in value}
        if isinstance(value, list):
            return list(map(filled, value))
        return f"Bearer {key}" if isinstance(value, str) else value

    def faults(n, path, body):
        if path == "/v1/completions" and len(body["prompt"]) > longest and not refused:
            refused.append(n)  # the first item
            return (400, {"error": {"message": f"no: {key}", "code": key}})
        return filled

    with serving(lms["qwen2"], faults=faults, key=key) as (address, fake):
        fake.context = 2048
        options = ["--lm", "tiny", "--api-base", address, "--criterion", "quality: is it good?", "-v", "--out", "run"]
        options += ["--tokenizer", lms["qwen2"].engine.loaded.source.model, "--data", "items.jsonl"]
        done = evalbias("judge", *options, cwd=tmp_path, check=False)
    assert "[key]" in done.stderr
    assert (tmp_path / "run/run.json").exists(), done.stderr
    assert refused
    written = [file.read_text() for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert not any("canary" in text for text in (done.stdout, done.stderr, *written))


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_probabilities_are_asked_for_under_neutral_sampling(lms, kind):
    with served(lms["qwen2"], kind) as (lm, fake):
        outcome(lm, CHOICES)
        outcome(lm, LIKELIHOODS)
        bodies = [body for path, body in fake.requests if path.endswith(("completions", "generate"))]
        sent = [body.get("sampling_params", body) for body in bodies]
    neutral = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    assert len(sent) >= 6
    assert all(neutral.items() <= body.items() for body in sent)


@pytest.mark.parametrize("unknown", [set(), {"top_k"}, {"max_completion_tokens"}, {"min_p", "max_completion_tokens"}])
def test_a_chat_is_asked_with_the_settings_that_it_knows(lms, unknown):
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown = unknown
        lm = opened(address, lms["qwen2-chat"], "chat")
        outcome(lm, CHOICES)
        _, body = fake.requests[-1]
    assert body["temperature"] == 1.0
    assert ("repetition_penalty" in body) is not bool(unknown & {"top_k", "min_p"})
    assert ("max_tokens" in body) is ("max_completion_tokens" in unknown)


def test_few_likelihoods_are_in_flight_at_once(lms):
    with served(lms["qwen2"], in_flight=32) as (lm, fake):
        fake.faults = lambda *_: fake.together(HEAVY_IN_FLIGHT)
        lm.loglikelihood([("the cat", f" sat {n}") for n in range(40)])
        assert fake.most_in_flight == HEAVY_IN_FLIGHT
        fake.faults = lambda *_: fake.together(HEAVY_IN_FLIGHT + 1)
        lm.choice_logprobs([f"the cat {n}" for n in range(40)], ["1", "2"])
        assert fake.most_in_flight > HEAVY_IN_FLIGHT


def test_a_text_that_leaves_no_room_for_an_answer_is_refused_before_it_is_sent(lms):
    local = lms["qwen2"]
    tokenizer = local.engine.loaded.tokenizer
    with served(local) as (lm, fake):
        ids = tokenizer("the cat sat on the mat " * 60)["input_ids"]
        texts = (tokenizer.decode(ids[:count]) for count in range(240, 300))
        text = next(text for text in texts if len(tokenizer(text)["input_ids"]) == 256)
        cut = next(i for i in range(len(text) - 1, 0, -1) if text[i] == " ")
        before = len(fake.requests)
        with pytest.raises(PromptTooLong, match=r"Text 0 .* 256 tokens, .* context is 256, of which 1 must stay free"):
            lm.loglikelihood([(text[:cut], text[cut:])])
        with pytest.raises(PromptTooLong, match=r"Text 0 of the call has 256 tokens, but the server's context is 256"):
            lm.texts([text], max_tokens=1)
        assert len(fake.requests) == before
        with pytest.raises(PromptTooLong, match=r"^Text 1 of the call has 256 tokens"):
            lm.loglikelihood([("the", " cat"), (text[:cut], text[cut:])])
        assert len(fake.requests) == before + 1  # the other text
        (fits,) = lm.choice_logprobs([text[:cut]], [text[cut:]]).logprobs  # its last token is the answer
    np.testing.assert_allclose(fits, local.choice_logprobs([text[:cut]], [text[cut:]]).logprobs[0], atol=1e-4)


def test_the_servers_word_for_its_model_never_runs_code(lms, tmp_path, monkeypatch):
    folder, marker = tmp_path / "model", tmp_path / "ran"
    folder.mkdir()
    settings = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}))
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w')\nclass Own: pass\nclass Config: pass\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # a user who agrees to everything
    with serving(lms["qwen2"]) as (address, fake):
        fake.loaded = SimpleNamespace(source=SimpleNamespace(model=str(folder)))
        with pytest.raises(ValueError, match=r"No tokenizer can be loaded for tiny"):
            opened(address, lms["qwen2"], tokenizer=None)
    assert not marker.exists()


def test_a_listing_with_values_of_other_types_is_read_as_one_without_them(lms):
    def change(answer):
        answer["data"][0] |= {"root": ["a"], "max_model_len": "long"}
        return answer

    with serving(lms["qwen2"], faults=lambda _, path, __: change if path == "/v1/models" else None) as (address, _):
        lm = opened(address, lms["qwen2"])
    assert "root" not in lm.provenance()


@pytest.mark.parametrize("kind", ["vllm", "chat"])
def test_asynchronous_calls_are_all_in_flight_and_equal_the_others(lms, kind):
    async def ask(lm, requests):
        return await asyncio.gather(*map(lm.acall, requests))

    with served(lms["qwen2-chat"], kind, in_flight=40) as (lm, fake):
        texts = [(lm15.Message.user(f"the cat {n}"),) for n in range(40)]
        config = lm15.Config(max_tokens=2, temperature=0.0)
        requests = [lm15.Request(model=lm.model, messages=one, config=config) for one in texts]
        fake.faults = lambda *_: fake.together(11)
        responses = asyncio.run(ask(lm, requests))
        assert fake.most_in_flight > 10  # six by Python's own thread pool on two cores
        fake.faults = lambda *_: None
        expected = [lm.engine.complete(request).text for request in requests[:3]]
        assert [response.text for response in responses[:3]] == expected
        if kind == "vllm":
            prompt = [{"role": "user", "content": "the cat"}]
            (response,) = asyncio.run(ask(lm, [judgment_request(lm.model, prompt, ["1", "2"])]))
            answer = read_judgment(response, ["1", "2"])
            np.testing.assert_array_equal(answer.logprobs, lm.choice_logprobs([prompt], ["1", "2"]).logprobs)
