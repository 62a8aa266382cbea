"""Every server dialect in short: the numbers are the model's own, and those of another model are noticed."""

import asyncio
import dataclasses
import json
import math
import re
from copy import deepcopy

import dspy
import numpy as np
import pytest
import torch
from commands import as_jsonl, evalbias
from fake_decisions import REFUSED, asked
from fake_server import TOKENIZED, FakeServer, opened, served, serving
from fakes import outcome
from texts import writer

from evalbias import PointwiseJudge
from evalbias.cli.run import ModelWatch
from evalbias.lm import dialect as tokenized
from evalbias.lm import types
from evalbias.lm.cache import CachedLM, measuring
from evalbias.lm.decisions import by_state
from evalbias.lm.dialect import CONTROL, Endpoint
from evalbias.lm.dialects import DIALECTS
from evalbias.lm.dspy_seam import LOGPROBS, Engine, judgment_request, read_judgment
from evalbias.lm.fingerprint import same_sample
from evalbias.lm.render import Prepared
from evalbias.lm.server import Served, find_dialect
from evalbias.lm.transport import StatusError
from evalbias.lm.types import ChoiceLogprobs, Choices, Decision, Likelihood, ModelChanged, Refused, Text, Unanswered
from evalbias.programs import Criterion
from evalbias.runs import RunFolder

ENDPOINTS = {"systemone": "systemone", "sglang-systemone": "systemone", "decisions": "decisions"}
UNCOVERED = ("decisions",)  # OpenAI gives the shares of the options only
QUESTION = Decision.instructions
KINDS = (*TOKENIZED, "chat", *ENDPOINTS)
PROMPTS = [[{"role": "user", "content": f"the cat {word}"}] for word in ("sat", "on", "the", "mat", "naïve", "café")]
QUESTIONS = [Choices(prompt, ("1", "2")) for prompt in PROMPTS]
CHOICES = ["1", "the", "10", "naïve café"]


def truth(local, fake, kind, prompt):
    """Return choices that a kind of server can answer, and their log-probabilities as the model gives them itself."""
    if kind in TOKENIZED:
        return CHOICES, local.choice_logprobs([prompt], CHOICES).logprobs[0]
    if kind == "chat":  # answers with first tokens: those that are one token as a text too
        choices = fake.one_token_texts(prompt)[:3]
        return choices, local.choice_logprobs([prompt], choices).logprobs[0]
    message, letters = asked(prompt[0]["content"], QUESTION, CHOICES)
    row = local.choice_logprobs([[{"role": "user", "content": message}]], list(letters)).logprobs[0]
    return CHOICES, row - np.log(np.exp(row).sum()) if kind in UNCOVERED else row


class Direct:  # a connection to a fake server in this process
    def __init__(self, fake):
        self.fake, self.base_url, self.last_answer = fake, "direct", 0.0

    async def post(self, path, body, *, heavy=False):
        self.fake.requests.append((path, body))
        answer = self.fake.answer(path, json.loads(json.dumps(body)))
        if answer is None or isinstance(answer, int):
            raise StatusError(answer or 404, "made to fail")
        return answer


MODELS = [*((kind, "qwen2-chat") for kind in KINDS), *((kind, "llama") for kind in TOKENIZED)]


@pytest.fixture(params=MODELS)
def spoken(request, lms):
    """The model, its fake server, and the dialect that was found out for it."""
    kind, name = request.param
    local = lms[name]
    fake = FakeServer(local, kind)
    tokenizer = local.engine.loaded.tokenizer if kind in TOKENIZED else None
    endpoint = Endpoint(Direct(fake), "tiny", tokenizer, context_length=256 if tokenizer else None)
    (only,) = [dialect for dialect in DIALECTS if dialect.name == ENDPOINTS.get(kind, kind)]
    return local, fake, kind, asyncio.run(find_dialect(endpoint, Served(), [only]))


def ask(dialect, *questions):
    answers: dict = {}
    requests, passed = by_state(questions, answers, dialect.most_questions)
    for number, one in enumerate(dialect.prepared(requests)):
        passed[number] = one if isinstance(one, Refused) else asyncio.run(dialect.ask(one))
    return [answers[place] for place in range(len(questions))]


def test_a_dialect_gives_the_models_probabilities_of_choices(spoken):
    local, fake, kind, dialect = spoken
    begun = [*PROMPTS[1], {"role": "assistant", "content": "It is"}]
    for prompt in [*PROMPTS[:2], *(["Source: the cat sat", begun] if kind in TOKENIZED else [])]:
        choices, expected = truth(local, fake, kind, prompt)
        (answer,) = ask(dialect, Choices(prompt, tuple(choices)))
        np.testing.assert_allclose(answer.logprobs[0], expected, atol=1e-4)
        assert (answer.choices, np.isfinite(expected).all()) == (tuple(choices), True)
        assert len(choices) >= 3
        assert answer.renormalized == (kind in UNCOVERED)
    again, once_more = (asyncio.run(dialect.sample()) for _ in range(2))
    assert np.isfinite(again).all()
    np.testing.assert_array_equal(again, once_more)


def test_a_dialect_reports_the_tokens_that_a_question_took(spoken):
    local, fake, kind, dialect = spoken
    prompt, choices, own = PROMPTS[0], ("1", "2"), {}
    fake.requests.clear()
    (answer,) = ask(dialect, Choices(prompt, choices))
    if kind in ENDPOINTS:
        message, choices = asked(prompt[0]["content"], QUESTION, choices)
        prompt = [{"role": "user", "content": message}]
    local.answer([Choices(prompt, tuple(choices))], own)
    assert own[0].usage.completion == 0
    written, sent = {"decisions": None}.get(kind, 1), len(fake.requests)
    assert answer.usage == types.Usage(sent * own[0].usage.prompt, written and sent * written)


def test_a_dialect_gives_the_models_likelihoods_or_says_that_there_are_none(spoken):
    local, _, kind, dialect = spoken
    pairs = [(PROMPTS[0], "a cat was sitting"), ("Source: the cat", " sat on the mat"), (PROMPTS[4], " 10")]
    questions = [Likelihood(*pair) for pair in pairs]
    if not dialect.likelihoods:
        assert kind not in ("vllm", "sglang")
        with pytest.raises(NotImplementedError, match="returns no likelihoods of given texts"):
            dialect.prepared(questions)
        return
    for answer, expected in zip(ask(dialect, *questions), local.loglikelihood(pairs), strict=True):
        np.testing.assert_allclose(answer.per_token, expected.per_token, atol=1e-4)


def test_a_dialect_gives_the_models_texts_or_says_that_there_are_none(spoken):
    local, fake, kind, dialect = spoken
    questions = [Text(prompt, 4, 0.0, seed=3, stop=("xyz",)) for prompt in PROMPTS[:2]]
    if kind in ENDPOINTS:
        with pytest.raises(NotImplementedError, match="writes no texts"):
            dialect.prepared(questions)
        return
    expected: dict = {}
    local.answer(questions, expected)
    for place, answer in enumerate(ask(dialect, *questions)):
        assert (answer.text, answer.usage, answer.finished) == (expected[place].text, expected[place].usage, False)
    _, body = fake.requests[-1]
    assert (body["temperature"], body["seed"], body["stop"]) == (0.0, 3, ["xyz"])
    assert 4 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    if local.engine.render(PROMPTS[0]).lead:  # a base model may begin with the blank before an answer
        fake.written = lambda _: " so"
        assert ask(dialect, Text(PROMPTS[0], 4))[0].text == "so"


def test_a_dialect_refuses_what_it_cannot_take_before_anything_is_sent(spoken):
    local, fake, kind, dialect = spoken
    sent = len(fake.requests)
    long = [{"role": "user", "content": "the cat sat on the mat " * 60}]
    token = local.engine.loaded.tokenizer.eos_token
    spelled = [{"role": "user", "content": f"the {token} cat"}]
    fine, beyond, control = dialect.prepared([Choices(prompt, ("1", "2")) for prompt in (PROMPTS[0], long, spelled)])
    assert isinstance(fine, Prepared)
    assert isinstance(beyond, Refused) == (kind in TOKENIZED)
    assert kind not in TOKENIZED or (beyond.too_long and "the server's context is 256" in beyond.reason)
    if kind in ("vllm", "sglang", "llama.cpp"):  # they take tokens, and so read no control token in a text
        same: dict = {}
        local.answer([Choices(spelled, ("1", "2")), Text(spelled, 4, 0.0)], same)
        row, text = ask(dialect, Choices(spelled, ("1", "2")), Text(spelled, 4, 0.0))
        np.testing.assert_allclose(row.logprobs, same[0].logprobs, atol=1e-4)
        assert text.text == same[1].text
        sent = len(fake.requests)
    else:
        others = [Likelihood(PROMPTS[0], token)] * dialect.likelihoods + [Text(spelled, 1)] * (kind not in ENDPOINTS)
        for refused in (control, *dialect.prepared(others)):
            assert f"contains '{token}', which" in refused.reason
    for choices in ((), ("1", "1"), ("1", "")):
        with pytest.raises(ValueError, match=r"no choices|repeat|is empty"):
            dialect.prepared([Choices(PROMPTS[0], choices)])
    assert len(fake.requests) == sent
    keys = [one.key for one in dialect.prepared(QUESTIONS)]
    assert len(set(keys)) == len(keys)


ENDING = [{"role": "assistant", "content": "2"}, {"role": "user", "content": "Output: a cat.\nQuality:"}]


@pytest.mark.parametrize("kind", ENDPOINTS)
def test_a_decision_endpoint_is_asked_about_one_text_and_a_declined_one_costs_itself_alone(lms, kind, tmp_path):
    shown = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Output: a mat.\nQuality:"}, *ENDING]
    questions = [Choices(prompt, ("1", "2")) for prompt in (shown, "the cat", REFUSED)]
    with served(lms["qwen2-chat"], kind) as (lm, fake):
        assert lm.capabilities.startswith(f"{ENDPOINTS[kind]}: closed questions with the probability")
        before = len(fake.requests)
        answers, refused, _ = outcome(CachedLM(lm, tmp_path / "j.jsonl"), questions)
        sent = [body.get("state", body.get("input")) for _, body in fake.requests[before:]]
        measured = read_judgment(lm(judgment_request(lm.model, shown, ["1", "2"])), ["1", "2"])
        again, _, _ = outcome(CachedLM(lm, tmp_path / "j.jsonl"), questions[:2])
        fake.faults = lambda *_: lambda answer: {**answer, "answers": {"answer": {"probabilities": {"1": 0, "2": 1}}}}
        zero, _, _ = outcome(lm, questions[:1])
        alone = read_judgment(lm(judgment_request(lm.model, shown, ["1", "2"])), ["1", "2"])
    assert set(sent) == {"Judge.\n\nOutput: a mat.\nQuality: 2\n\nOutput: a cat.\nQuality:", "the cat", REFUSED}
    assert len(sent) == 3  # no trial with a harmless text: the server names the reason
    assert refused == ({2: "is refused by tiny: the model declined the question."} if kind == "decisions" else {})
    np.testing.assert_array_equal(again[0].logprobs, answers[0].logprobs)
    np.testing.assert_allclose(measured.logprobs, answers[0].logprobs, atol=1e-9)
    for one in (*answers.values(), *again.values(), measured):
        assert one.renormalized == np.isnan(one.coverage).all() == (kind in UNCOVERED)
    if ENDPOINTS[kind] == "systemone":
        assert zero[0].logprobs[0, 0] == alone.logprobs[0, 0] == -math.inf


@pytest.mark.parametrize("are_named", [True, False])
def test_answers_belong_to_the_questions_that_they_name_and_without_names_one_is_asked(lms, are_named):
    criteria = {name: Decision("the cat", ("1", "2"), "choice", f"How {name}?", name=name) for name in ("fair", "kind")}

    def changed(answer):
        named = answer["answers"] if are_named else [{**one, "name": None} for one in answer["answers"]]
        return {**answer, "answers": named[::-1]}

    with serving(lms["qwen2-chat"], "decisions") as (address, fake):
        expected, _, _ = outcome(opened(address, lms["qwen2-chat"], "decisions"), [*criteria.values()])
        fake.faults = lambda _, path, __: changed if path == "/v1/decisions" else None
        lm = opened(address, lms["qwen2-chat"], "decisions")
        before = len(fake.requests)
        answers, _, _ = outcome(lm, [*criteria.values()])
    assert [len(body["questions"]) for _, body in fake.requests[before:]] == ([2] if are_named else [1, 1])
    rows = [[one[place].logprobs[0, 0] for place in range(2)] for one in (answers, expected)]
    np.testing.assert_allclose(*rows, atol=1e-9)
    assert rows[0][0] != rows[0][1]


@pytest.mark.parametrize("kind", ["chat", *dict.fromkeys(ENDPOINTS.values())])
def test_a_tokenizer_that_would_not_be_used_is_refused(lms, kind):
    local = lms["qwen2-chat"]
    with serving(local, kind) as (address, _), pytest.raises(ValueError, match=f"'{kind}' tokenizes prompts itself"):
        opened(address, local, kind, dialect=kind, tokenizer=local.engine.loaded.source.model)


def test_an_error_without_a_text_is_named_by_its_kind(lms, monkeypatch):
    def broken(*_, **__):
        raise OSError

    monkeypatch.setattr("evalbias.lm.server.load_tokenizer", broken)
    with serving(lms["qwen2-chat"], "vllm") as (address, _), pytest.raises(ValueError, match=r"tiny: OSError\)"):
        opened(address, lms["qwen2-chat"], tokenizer=None)


def test_every_dialect_is_tested():
    assert {ENDPOINTS.get(kind, kind) for kind in KINDS} == {dialect.name for dialect in DIALECTS}


@pytest.fixture(scope="module")
def other(lms):
    """Other weights of the same shape and tokenizer."""
    loaded = lms["qwen2-chat"].engine.loaded
    model = deepcopy(loaded.model)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.mul_(1.0 + 0.2 * (-1) ** number)
    return dataclasses.replace(loaded, model=model)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_command_refuses_other_weights_from_some_request_on(lms, other, kind, tmp_path):
    local, rows = lms["qwen2-chat"], [{"id": str(n), "source": "the cat", "output": f"a cat {n}"} for n in range(24)]
    as_jsonl(tmp_path / "items.jsonl", rows)
    command = ["judge", "--criterion", "quality: is it good?", "--data", "items.jsonl", "--lm", "tiny"]
    command += ["--dialect", ENDPOINTS.get(kind, kind), "--in-flight", "2", "--refused", "undefined"]
    command += ["--tokenizer", local.engine.loaded.source.model] if kind in TOKENIZED else []
    with serving(local, kind) as (address, fake):
        fake.context = 4096
        command += ["--api-base", address]
        evalbias(*command, "--out", "whole", cwd=tmp_path)
        first, start = fake.loaded, len(fake.requests)

        def swap(number, *_):
            fake.loaded = other if number > start + 20 else first

        fake.faults = swap
        swapped = evalbias(*command, "--out", "run", cwd=tmp_path, check=False)
        assert swapped.returncode == 2
        assert "another model under the same name? Its last 24 answers are dropped" in swapped.stderr
        assert not (tmp_path / "run" / "scores.jsonl").exists()
        resumed = evalbias(*command, "--out", "run", cwd=tmp_path, check=False)
        assert (resumed.returncode, "another model under" in resumed.stderr) == (2, True)
        fake.faults, fake.loaded = lambda *_: None, first
        evalbias(*command, "--out", "run", cwd=tmp_path)
    scores = [(tmp_path / name / "scores.jsonl").read_text() for name in ("whole", "run")]
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_a_loop_refuses_other_weights_from_some_request_on(lms, other, tmp_path):
    local = lms["qwen2-chat"]
    item = {"source": "Hallo", "reference": "Hello", "source_language": "German", "target_language": "English"}
    as_jsonl(tmp_path / "texts.jsonl", [{"id": str(n), **item} for n in range(4)])
    command = ["refine", "run", "--task", "translation", "--data", "texts.jsonl", "--lm", "tiny", "--threads", 1]
    command += ["--tokenizer", local.engine.loaded.source.model, "--max-iterations", 0, "--max-tokens", 4]
    with serving(local) as (address, fake):
        fake.context = 4096
        command += ["--api-base", address, "--out", "run"]
        first, written = fake.loaded, []

        def swap(_, path, body):
            written.extend([path] * (path == "/v1/completions" and body["max_tokens"] == 4))
            fake.loaded = other if len(written) > 1 else first

        fake.faults = swap
        swapped = evalbias(*command, cwd=tmp_path, check=False)
        fake.faults, fake.loaded = lambda *_: None, first
        assert (swapped.returncode, "another model under the same name? Its last" in swapped.stderr) == (2, True)
        assert not (tmp_path / "run" / "outputs.jsonl").exists()
        evalbias(*command, cwd=tmp_path)
    assert len((tmp_path / "run" / "outputs.jsonl").read_text().splitlines()) == 4


@pytest.mark.slow
def test_a_long_run_compares_the_model_again_and_again(lms, other, tmp_path, monkeypatch):
    local = lms["qwen2-chat"]
    monkeypatch.setattr(ModelWatch, "EVERY", 0.0)
    monkeypatch.setattr(ModelWatch, "ATTEMPTS", 1)
    monkeypatch.setattr(tokenized, "PROBE_TEXT", "the cat sat on the mat.")
    with RunFolder(tmp_path, {"command": "judge"}) as folder, serving(local) as (address, fake):
        lm = opened(address, local, "vllm")
        watch = ModelWatch(folder, lm, lambda: [folder.journal])

        def between():
            watch.check_again()
            fake.loaded = other

        journal = CachedLM(lm, folder.journal, chunk=1, between=between)
        with pytest.raises(ModelChanged, match="Its last 1 answers are dropped"):
            journal.choice_logprobs(PROMPTS, CHOICES)
        assert len(CachedLM(lm, folder.journal)._kept) == 1
        asked = len(fake.requests)
        ModelWatch(folder, lm, lambda: [folder.journal])  # a run that has all its answers asks nothing
        assert len(fake.requests) == asked


def named(names):
    """Return a fault that writes the next of some models' names into each answer."""

    def change(answer):
        if not isinstance(answer, dict):  # the server has nothing there
            return answer
        return {**answer, "model": names.pop(0) if len(names) > 1 else names[0]}

    return lambda _, path, __: change if path.startswith(("/v1/c", "/v1/d", "/v1/s", "/c", "/g")) else None


@pytest.mark.parametrize("kind", ["vllm", "sglang", "chat", "decisions"])
def test_an_answer_by_another_name_is_refused_and_the_others_are_kept(lms, kind):
    local = lms["qwen2-chat"]
    with serving(local, kind, named(["an alias"])) as (address, fake):  # not the name that is asked for
        lm = opened(address, local, kind)
        choices = truth(local, fake, kind, PROMPTS[0])[0] if kind == "chat" else ["1", "2"]  # one request for each item
        lm.choice_logprobs(PROMPTS[:1], choices)
        fake.faults = named(["an alias", "an alias", "\x1bother"])
        answers, _, ended = outcome(lm, [Choices(prompt, tuple(choices)) for prompt in PROMPTS])
    assert isinstance(ended, Unanswered)
    assert "by the model '\\x1bother', but earlier ones are by 'an alias'" in str(ended)
    assert len(answers) == 2


class Answers:  # an engine that answers as its model does, under a name that depends on the last message
    def __init__(self, engine, names, fingerprints=()):
        self.engine, self.names, self.fingerprints = engine, names, list(fingerprints)

    def complete(self, request):
        name = self.names.get(request.messages[-1].text, self.names[""])
        data = {"system_fingerprint": self.fingerprints.pop(0)} if self.fingerprints else None
        return dataclasses.replace(self.engine.complete(request), model=name, provider_data=data)


def ordinary(probabilities, name, fingerprints=(), **names):
    _, engine = writer(probabilities, top=9)
    lm = dspy.LM("test/alias", engine=Answers(engine, {"": name, **names}, fingerprints), cache=False, num_retries=0)
    return measuring(lm)


def test_ordinary_models_are_known_by_their_answers_and_names(tmp_path, caplog):
    digits = {str(n): n / 45 for n in range(1, 10)}
    with RunFolder(tmp_path, {"command": "judge"}) as folder:
        watched = lambda lm, **options: ModelWatch(folder, lm, lambda: [], **options)  # noqa: E731
        watched(ordinary(lambda *_: digits, "a")).check()
        watched(ordinary(lambda *_: {n: (int(n) + 1) / 54 for n in digits}, "a")).check()
        with pytest.raises(ModelChanged, match="test/alias answers otherwise"):
            watched(ordinary(lambda *_: dict(zip(digits, reversed(digits.values()), strict=True)), "a")).check()
        with pytest.raises(ConnectionError, match=r"test/alias: an answer is by the model 'b', but .* by 'a'"):
            watched(ordinary(lambda *_: digits, "b")).check()
        estimated = ordinary(lambda *_: digits, "b")
        watched(estimated, sampled=True).check()  # it is not asked until its first answer
        with pytest.raises(ConnectionError, match="by the model 'b'"):
            estimated.texts(PROMPTS, max_tokens=1)
    assert not caplog.text
    with pytest.raises(ValueError, match="robabilities do not sum to 1"):  # of the engine itself
        ordinary(lambda *_: {"1": 0.5}, "a").choice_logprobs(PROMPTS[:1], ["1"])
    lm = ordinary(lambda *_: digits, "a", fingerprints=["f1", "f1", "f2", "f3"])
    lm.choice_logprobs(PROMPTS[:4], list(digits))
    assert caplog.text.count("system_fingerprint 'f") == 1
    lm = ordinary(lambda *_: digits, "a", **{"the cat the": "b"})
    lm.choice_logprobs(PROMPTS[:2], list(digits))
    answers, _, ended = outcome(lm, [Choices(prompt, tuple(digits)) for prompt in PROMPTS[:3]])
    assert isinstance(ended, Unanswered)
    assert 2 not in answers


def test_a_model_that_reports_no_probabilities_has_no_sample(tmp_path):
    with RunFolder(tmp_path, {"command": "judge"}) as folder:
        lm = measuring(writer(lambda *_: {"fine": 1.0})[0])
        ModelWatch(folder, lm, lambda: []).check()
    assert json.loads((tmp_path / "sample.json").read_text())["sample"] is None


def test_a_damaged_sample_is_named_and_samples_differ_by_more_than_rounding(lms, tmp_path):
    with RunFolder(tmp_path, {"command": "judge"}) as folder:
        for content in ("[]", "{}", '{"sample": "x", "names": {}}', '{"sample": null, "names": []}'):
            (tmp_path / "sample.json").write_text(content)
            with pytest.raises(ValueError, match=r"sample.json (is damaged|holds \[\]) .*: delete "):
                ModelWatch(folder, ordinary(lambda *_: {"1": 1.0}, "a"), lambda: [])
        ModelWatch(folder, lms["gpt2"], lambda: []).check()  # a local model is identified by its weights
    sample = np.log([0.5, 0.3, 0.2])
    assert same_sample(sample, sample + 0.19)
    assert not same_sample(sample, sample + np.array([0, 0.21, 0]))
    assert not same_sample(sample, sample[:2])


def test_probabilities_that_sum_to_more_than_one_are_refused():
    pair = ("yes", "no")
    for row in ([0.6, 0.6], [1.0, 0.0], [0.0, 0.0], [math.nan, 1.0]):
        with np.errstate(divide="ignore"):
            assert ChoiceLogprobs(pair, np.log([row])).logprobs.shape == (1, 2)
    for row, total in (([0.6, 0.7], "1.3"), ([1.0, 1.0], "2"), ([1e300, 1e300], "2e\\+300")):
        with pytest.raises(ValueError, match=rf"choices \['yes', 'no'\] sum to {total}, not to at most 1"):
            ChoiceLogprobs(pair, np.log([[0.1, 0.1], row]))
    with pytest.raises(ValueError, match="sum to inf"):
        ChoiceLogprobs(pair, np.array([[800.0, 0.0]]))


def test_impossible_probabilities_of_an_ordinary_model_cost_only_their_own_item(lms):
    local = lms["qwen2-chat"]
    request = judgment_request(local.model, PROMPTS[0], ["1", "2"])
    response = local.engine.complete(request)

    class Believing(Engine):
        def complete(self, request):
            row = {"1": -1.0, "2": 5.0 if request.messages[-1].text == "the cat on" else -1.0}
            return dataclasses.replace(response, provider_data={LOGPROBS: {"score": row}})

    assert read_judgment(Believing().complete(request), ["1", "2"]).coverage == pytest.approx(2 * math.exp(-1))
    answers, refused, _ = outcome(measuring(dspy.LM("test/believing", engine=Believing(), cache=False)), QUESTIONS)
    assert list(refused) == [1]
    assert re.search("answer that cannot be used: the probabilities .* sum to", refused[1])
    assert list(answers) == [0, 2, 3, 4, 5]


CONTROLS = """
[SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CALLS] [AVAILABLE_TOOLS] [TOOL_RESULTS] [THINK] [/THINK] [INST] [/INST] <<SYS>>
</s> <|im_start|> <|im_end|> <|endoftext|> <think> </think> <tool_call> </tool_call> <|eot_id|> <|header_start|> <|eot|>
<start_of_turn> <end_of_turn> <eos> <start_of_image> <turn|> <|turn> <|user|> <\uff5cUser\uff5c> [|user|] [|assistant|]
[|endofturn|] <|START_OF_TURN_TOKEN|> <EOS_TOKEN> <BOS_TOKEN> <extra_id_1> <SPECIAL_12> <seed:bos> <seed:eos> ]~b] [e~[
]~!b[ <reserved_106> [UNUSED_TOKEN_145] [gMASK] <sop> <|channel|> [BOS] [EOS] <pad> <mask:0> <EOS> <BOS> <unused7>
"""
PLAIN = """
<div class="a">x</div> <br/> <b>bold</b> <videos><boss id="1"/></videos> List<Photos> Map<Bos, Eos2> <template> <Seed>
[INFO] [ERROR] [WARNING] started [TODO] [x] [NAME] [OPTIONS] [ARGS] [1] [PREFIX] [CITATION_NEEDED] [image](url.png)
a < b | c > d; if (a<b || c>d) x |= y; std::vector<int> v; E[|X|] <= |y|; [|x|]; cat <in >out; x |> f; <a|b>
<thinking> I <think it is good> think. </thought> <tool> <masks> <T extends string|number> USER: ASSISTANT: [[link]]
"""


def test_control_tokens_of_many_families_are_known_and_ordinary_texts_have_none():
    assert [token for token in CONTROLS.split() if not CONTROL.search(f"a {token} b")] == []
    assert [line for line in PLAIN.splitlines() if CONTROL.search(line)] == []
    judge = PointwiseJudge(Criterion("quality", "is it good?"))
    assert not CONTROL.search(str(judge.messages(dspy.Example(source="s", output="o"))))
