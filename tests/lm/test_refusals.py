"""One item that a model or its server refuses costs its own answer alone; a wrong setting ends the call."""

import asyncio
import json
import logging
import pickle

import dspy
import numpy as np
import pytest
from dspy.utils.exceptions import LMInvalidRequestError
from fake_server import serving
from fakes import FormulaLM
from texts import writer

from evalbias import Sampling, ServerLM
from evalbias.lm.cache import ChoiceMemo, CountingLM, JournaledLM, LikelihoodMemo
from evalbias.lm.contract import SampledLM, measuring, written
from evalbias.lm.types import (
    HARMLESS,
    Interrupted,
    NoProbabilities,
    PromptRefused,
    PromptTooLong,
    RequestRefused,
    Unanswered,
    each,
    harmless,
    settled,
)
from evalbias.programs import Criterion, PointwiseJudge, judge_metric

pytestmark = pytest.mark.slow

C = Criterion("quality", "is it good?", (1, 3))
WORDS = ("cat", "dog", "sat", "poison", "mat", "hat")
ITEMS = [dspy.Example(id=f"i{i}", source="s", output=f"a {w}").with_inputs("source") for i, w in enumerate(WORDS)]

BODIES = {  # as the servers send them
    "openai-length": {
        "error": {
            "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    },
    "openai-policy": {
        "error": {
            "message": "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_prompt",
        }
    },
    "azure-filter": {
        "error": {
            "message": "The response was filtered due to the prompt triggering the content management policy.",
            "type": None,
            "param": "prompt",
            "code": "content_filter",
            "status": 400,
            "innererror": {"code": "ResponsibleAIPolicyViolation"},
        }
    },
    "vllm": {"error": {"message": "max_tokens must be at least 1, got -186.", "type": "BadRequestError", "code": 400}},
    "sglang": {
        "object": "error",
        "message": "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    },
    "llama.cpp": {
        "error": {
            "code": 400,
            "message": "the request exceeds the available context size, try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 14429,
            "n_ctx": 8192,
        }
    },
}


TOO_LONG = {"error": {"message": "The input (61709 tokens) is longer than the context.", "type": "BadRequestError"}}


def words_of(body):
    """What DSPy's engine passes on of a body; SGLang's has no ``error``."""
    return body["error"]["message"].rstrip(".") if "error" in body else "status 400, and DSPy passes no reason on"


def openai(address, **options):
    return dspy.LM("openai/tiny", api_base=address, api_key="none", cache=False, num_retries=0, **options)


def server(address, local, **options):
    options = {"patience": 5.0, **options}
    return ServerLM("tiny", base_url=address, tokenizer=local.engine.loaded.arguments["model"], **options)


def poisoned(fake, body):
    """Whether a request is about the refused item."""
    prompt = body.get("prompt", body.get("input_ids", body.get("messages")))
    text = fake.text(prompt) if prompt and isinstance(prompt[0], int) else json.dumps(prompt)
    return "poison" in text


def refuse_the_poisoned(fake, answer=(400, TOO_LONG)):
    """Refuse requests about one item from now on; returns where the requests begin."""
    fake.faults = lambda _, path, body: answer if poisoned(fake, body) else None
    return len(fake.requests)


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llama.cpp", "echo", "chat"])
def test_a_server_that_refuses_one_item_answers_the_others_and_is_asked_nothing_twice(lms, tmp_path, kind):
    local = lms["qwen2-chat"]
    prompts = [[{"role": "user", "content": f"the {word}"}] for word in WORDS]
    with serving(local, kind) as (address, fake):
        lm = ServerLM("tiny", base_url=address, patience=5.0) if kind == "chat" else server(address, local)
        lm.choice_logprobs(prompts[:1], ["1", "2"])
        before = len(fake.requests)
        lm.choice_logprobs(prompts[:1], ["1", "2"])
        each_costs = len(fake.requests) - before
        start = refuse_the_poisoned(fake)
        journal = JournaledLM(lm, tmp_path / "j.jsonl", model="m")
        with pytest.raises(
            PromptRefused, match=r"^Text 3 of the call is refused by tiny: status 400, The input \(61709"
        ):
            journal.choice_logprobs(prompts, ["1", "2"])
        sent = [json.dumps(request) for request in fake.requests[start:]]
        with pytest.raises(PromptRefused) as raised:
            JournaledLM(lm, tmp_path / "j.jsonl", model="m").choice_logprobs(prompts, ["1", "2"])
    assert len(sent) == len(set(sent)) == 6 * each_costs + 1  # a refusal ends its item; the harmless text is one more
    assert list(raised.value.refused) == [3]
    assert (journal.asked, sorted(raised.value.answered)) == (5, [0, 1, 2, 4, 5])
    if kind != "chat":
        truth = local.choice_logprobs([p for i, p in enumerate(prompts) if i != 3], ["1", "2"]).logprobs
        rows = np.concatenate([raised.value.answered[i].logprobs for i in (0, 1, 2, 4, 5)])
        np.testing.assert_allclose(rows, truth, atol=1e-4)


def test_likelihoods_and_texts_of_the_other_items_are_kept_too(lms):
    local = lms["qwen2"]
    with serving(local, "vllm") as (address, fake):
        lm = server(address, local)
        start = refuse_the_poisoned(fake)
        pairs = [("the cat", f" {word}") for word in WORDS]
        answers, refused = settled(lm.loglikelihood, pairs)
        assert (list(answers), list(refused)) == ([0, 1, 2, 4, 5], [3])
        texts, refused = settled(lambda some: lm.written(some, max_tokens=2), list(WORDS))
        assert (list(texts), list(refused)) == ([0, 1, 2, 4, 5], [3])
        assert len(fake.requests) - start == 2 * (6 + 1)
        direct = PointwiseJudge(C, scoring="direct").batch(ITEMS, lm=lm)
    assert [i for i, p in enumerate(direct) if p.get("undefined")] == [3]
    assert answers[0].total == pytest.approx(local.loglikelihood(pairs[:1])[0].total, abs=1e-4)


def test_a_setting_that_a_server_refuses_ends_the_call_at_once(lms):
    local = lms["qwen2"]
    with serving(local, "vllm") as (address, fake):
        lm = server(address, local, in_flight=2)
        start = len(fake.requests)
        fake.faults = lambda *_: (400, {"error": {"message": "top_k is not supported"}})
        with pytest.raises(
            RequestRefused, match=r"item 0 of 40 .*top_k is not supported\. A harmless text .* is refused"
        ):
            lm.choice_logprobs([f"the cat {n}" for n in range(40)], ["1", "2"])
        assert len(fake.requests) - start <= 4
        fake.faults = lambda n, *_: 404 if n > start else None
        with pytest.raises(Unanswered, match=r"status 404, .* Check the address and the model's name"):
            lm.choice_logprobs(["the cat"], ["1", "2"])
        fake.faults = lambda _, path, body: 400 if poisoned(fake, body) else "drop"
        with pytest.raises(Unanswered, match=r"0 answered, 1 failed.*cannot be used"):
            lm.choice_logprobs(["poison"], ["1", "2"])  # the harmless text tells nothing here


@pytest.mark.parametrize("name", BODIES)
def test_an_ordinary_model_that_refuses_one_item_judges_the_others(lms, caplog, name):
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown = set()
        refuse_the_poisoned(fake, (400, BODIES[name]))
        with caplog.at_level(logging.WARNING):
            predictions = PointwiseJudge(C).batch(ITEMS, lm=openai(address))
        sent = [json.dumps(body) for _, body in fake.requests]
    assert [i for i, p in enumerate(predictions) if p.get("undefined")] == [3]
    assert predictions[3].undefined.startswith("The prompt of the item 'i3' is refused by openai/tiny: ")
    assert words_of(BODIES[name]) in predictions[3].undefined
    assert np.isnan(predictions[3].score)
    assert "'i3'" in caplog.text
    assert len(sent) == len(set(sent))


@pytest.mark.slow  # litellm takes seconds to import
@pytest.mark.parametrize("name", ["openai-length", "azure-filter", "vllm"])
def test_a_model_behind_litellm_that_refuses_one_item_judges_the_others(lms, name):
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown = set()
        refuse_the_poisoned(fake, (400, BODIES[name]))
        predictions = PointwiseJudge(C).batch(ITEMS, lm=openai(address, engine="litellm"))
    assert [i for i, p in enumerate(predictions) if p.get("undefined")] == [3]
    assert words_of(BODIES[name]) in predictions[3].undefined


@pytest.mark.slow
def test_one_judgment_of_a_refused_item_raises_its_reason(lms):
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown = set()
        refuse_the_poisoned(fake)
        for scoring in ("expected", "sampled", "direct"):
            judge = PointwiseJudge(C, scoring=scoring)
            judge.predict.lm = openai(address)
            for call in (judge, lambda judge=judge, **inputs: asyncio.run(judge.acall(**inputs))):
                with pytest.raises(
                    PromptRefused, match=r"^The prompt is refused by .*tiny: The input \(61709 tokens\)"
                ):
                    call(source="s", output="a poison")


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ((400, {"error": {"message": "Unsupported parameter: 'top_p'", "code": "unsupported_parameter"}}),
         RequestRefused, r"Unsupported parameter: 'top_p'.*\. A harmless text with the same settings is refused too"),
        ((400, {"error": {"message": "The model `tiny` does not exist", "code": "model_not_found"}}),
         ConnectionError, "does not exist"),
        ((404, {"error": {"message": "The model `tiny` does not exist"}}), ConnectionError, "does not exist"),
        ((401, {"error": {"message": "Incorrect API key"}}), ConnectionError, "Incorrect API key"),
    ],
)  # fmt: skip
def test_a_wrong_setting_of_an_ordinary_model_ends_the_run(lms, fault, error, message):
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown = set()
        fake.faults = lambda *_: fault
        for scoring in ("expected", "direct", "sampled"):
            with pytest.raises(error, match=message) as raised:
                PointwiseJudge(C, scoring=scoring).batch(ITEMS[:2], lm=openai(address))
            assert not isinstance(raised.value, PromptRefused)


def test_demonstrations_that_do_not_fit_are_no_fault_of_the_items(lms):
    judge = PointwiseJudge(C)
    judge.predict.demos = [dspy.Example(source="s", output="poison", score=2)]
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown = set()
        refuse_the_poisoned(fake)
        with pytest.raises(RequestRefused, match="longer than the context"):
            judge.batch(ITEMS[:2], lm=openai(address))


def test_an_answer_without_log_probabilities_is_its_items_alone(lms):
    def without(answer):
        return {**answer, "choices": [{**answer["choices"][0], "logprobs": None}]}

    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown = set()
        refuse_the_poisoned(fake, without)
        predictions = PointwiseJudge(C).batch(ITEMS, lm=openai(address))
        assert [i for i, p in enumerate(predictions) if p.get("undefined")] == [3]
        assert "tiny without token probabilities" in predictions[3].undefined
        fake.faults = lambda *_: without
        with pytest.raises(NoProbabilities, match="scoring='sampled'"):
            PointwiseJudge(C).batch(ITEMS, lm=openai(address))


def refusing(texts):
    """An ordinary model that refuses one item, and its engine, which counts every request."""
    lm, engine = writer(lambda *_: texts)
    answer, seen = engine.complete, []

    def complete(request):
        seen.append((request.messages[-1].text, request.config.seed))
        if "poison" in request.messages[-1].text:
            raise dspy.lm15.InvalidRequestError("flagged", status=400)
        return answer(request)

    engine.complete = complete
    return lm, seen


def test_sampled_and_written_answers_are_not_drawn_again(tmp_path):
    lm, seen = refusing({"1": 0.5, "3": 0.5})
    judge = PointwiseJudge(C, scoring="sampled", sampling=Sampling(samples=4))
    journal = JournaledLM(measuring(lm), tmp_path / "j.jsonl", model="m")
    predictions = judge.batch(ITEMS, lm=journal)
    assert [i for i, p in enumerate(predictions) if np.isnan(p.score)] == [3]
    assert "flagged" in predictions[3].undefined
    assert len(seen) == len(set(seen)) == 6 * 4 + 1
    assert (journal.asked, [text for text, _ in seen].count(HARMLESS)) == (20, 1)
    seen.clear()
    predictions = PointwiseJudge(C, scoring="direct").batch(ITEMS, lm=lm)
    assert [i for i, p in enumerate(predictions) if p.get("undefined")] == [3]
    assert len(seen) == len(set(seen)) == 6 + 1


def test_a_metric_counts_a_refused_item_as_undefined():
    lm, _ = refusing({"3": 1.0})
    judge = PointwiseJudge(C, scoring="sampled", sampling=Sampling(samples=2))
    judge.predict.lm = lm
    metric = judge_metric(judge)

    class Program(dspy.Module):
        def forward(self, source):
            return dspy.Prediction(output=source)

    devset = [dspy.Example(id=e.id, source=e.output).with_inputs("source") for e in ITEMS]
    result = dspy.Evaluate(devset=devset, metric=metric, num_threads=2, max_errors=1)(Program())
    assert result.score == pytest.approx(100 * 5 / 6, abs=0.01)
    assert metric.undefined_items == ["i3"]


class Refusing(FormulaLM):
    """Refuses prompts that name poison: in a first call without answering any, or beside the other answers."""

    def __init__(self, *, answers):
        super().__init__()
        self.answers, self.asked = answers, []

    def _all(self, texts, ask):
        bad = {i: "is poison." for i, text in enumerate(texts) if "poison" in text}
        good = [i for i in range(len(texts)) if i not in bad]
        if bad and not self.answers:
            raise PromptRefused(bad)
        self.asked += [texts[i] for i in good]
        answers = ask(good)
        if bad:
            raise PromptRefused(bad, dict(zip(good, answers, strict=True)))
        return answers

    def choice_logprobs(self, prompts, choices):
        def ask(good):
            return FormulaLM.choice_logprobs(self, [prompts[i] for i in good], choices)

        if not any("poison" in p[-1]["content"] for p in prompts):
            self.asked += [p[-1]["content"] for p in prompts]
            return ask(range(len(prompts)))
        return self._all([p[-1]["content"] for p in prompts], lambda good: ask(good).rows())

    def loglikelihood(self, pairs):
        return self._all([text for _, text in pairs], lambda good: super(Refusing, self).loglikelihood(
            [pairs[i] for i in good]))  # fmt: skip


@pytest.mark.parametrize("answers", [True, False])
def test_wrapped_models_say_which_items_are_refused(tmp_path, answers):
    texts = [f"q={1 + i % 3} z={i / 10}" for i in range(6)]
    texts[2] += " poison"
    prompts = [[{"role": "system", "content": "Judge."}, {"role": "user", "content": text}] for text in texts]
    prompts.append(prompts[0])  # asked once
    wraps = (CountingLM, ChoiceMemo, LikelihoodMemo, lambda lm: JournaledLM(lm, tmp_path / "j", model="m", chunk=2))
    for wrap in wraps:
        (tmp_path / "j").unlink(missing_ok=True)
        lm = Refusing(answers=answers)
        wrapped = wrap(lm)
        found, refused = settled(lambda some, w=wrapped: w.choice_logprobs(some, C.labels).rows(), prompts)
        assert refused == {2: "is poison."}
        assert list(found) == [0, 1, 3, 4, 5, 6]
        truth = FormulaLM().choice_logprobs([p for i, p in enumerate(prompts) if i != 2], C.labels).logprobs
        np.testing.assert_array_equal(np.concatenate([row.logprobs for row in found.values()]), truth)
        once = wrap not in (CountingLM, LikelihoodMemo)
        assert len(lm.asked) == (5 if once else 6)
    lm = Refusing(answers=answers)
    counting = CountingLM(lm)
    memo = LikelihoodMemo(counting)
    pairs = [("c", text) for text in texts]
    for _ in range(2):
        found, refused = settled(memo.loglikelihood, pairs)
        assert (list(found), list(refused)) == ([0, 1, 3, 4, 5], [2])
    assert (len(lm.asked), counting.likelihoods) == (5, 5)


def test_answers_before_an_outage_are_kept():
    calls = []

    def ask(items):
        calls.append(items)
        if len(calls) == 1:
            raise PromptRefused({1: "is bad."}, {0: "A"})
        raise Unanswered("down", {1: "D"})

    with pytest.raises(Unanswered, match="down") as raised:
        settled(ask, ["a", "b", "c", "d"])
    assert calls == [["a", "b", "c", "d"], ["c", "d"]]
    assert raised.value.answered == {0: "A", 3: "D"}


@pytest.mark.parametrize("end", [lambda answers: Unanswered("down", answers), Interrupted])
def test_wrapped_models_number_what_was_answered_before_an_outage_by_the_items_of_the_call(tmp_path, end):
    """Items 0 and 1 are known, and 2 and 3 are the same; the model breaks off after one more prompt, or six texts."""

    class Down(FormulaLM):
        asked = 0

        def choice_logprobs(self, prompts, choices):
            Down.asked += len(prompts)
            rows = FormulaLM.choice_logprobs(self, prompts, choices).rows()
            if any("z=0.4" in prompt[-1]["content"] for prompt in prompts):
                raise end(dict(enumerate(rows[:1])))
            return FormulaLM.choice_logprobs(self, prompts, choices)

        def drawn(self, prompts, seeds, sampling):
            if any("z=0.4" in prompt[-1]["content"] for prompt in prompts):
                raise end(dict.fromkeys(range(6), "3"))
            return ["3"] * len(prompts)

    prompts = [[{"role": "user", "content": f"q=2 z={z}"}] for z in (0.0, 0.1, 0.2, 0.2, 0.3, 0.4)]
    for wrap in (ChoiceMemo, lambda lm: JournaledLM(lm, tmp_path / "j", model="m", chunk=8)):
        wrapped = wrap(Down())
        wrapped.choice_logprobs(prompts[:2], C.labels)
        with pytest.raises((Unanswered, Interrupted)) as raised:
            settled(lambda some, w=wrapped: w.choice_logprobs(some, C.labels).rows(), prompts)
        assert list(raised.value.answered) == [0, 1, 2, 3]
        before = Down.asked
        again = wrapped.choice_logprobs(prompts[:4], C.labels)  # nothing that was answered is asked again
        assert Down.asked == before
        truth = FormulaLM().choice_logprobs(prompts[:4], C.labels)
        np.testing.assert_array_equal(again.logprobs, truth.logprobs)
    for wrapped_by in (None, ChoiceMemo, lambda lm: JournaledLM(lm, tmp_path / "k", model="m")):
        sampled = SampledLM(Down() if wrapped_by is None else wrapped_by(Down()), Sampling(samples=2))
        with pytest.raises((Unanswered, Interrupted)) as raised:
            settled(lambda some, w=sampled: w.choice_logprobs(some, C.labels).rows(), prompts)
        rows = raised.value.answered
        assert {i: row.probabilities[0].tolist() for i, row in rows.items()} == {i: [0, 0, 1] for i in rows}
        assert list(rows) == ([0, 1, 2] if wrapped_by is None else [0, 1, 2, 3])


def test_a_model_that_gives_too_few_answers_is_not_asked_for_ever():
    with pytest.raises(ValueError, match="gave 1 answers to 2 prompts"):
        settled(lambda items: items[:1], ["a", "b"])


def test_a_refusal_names_its_items():
    error = PromptTooLong({4: "has 99 tokens.", 2: "has 88 tokens."}, {0: 1.0})
    assert str(error) == "Text 2 of the call has 88 tokens. (1 more of the call are refused.)"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.answered) == (PromptTooLong, str(error), {0: 1.0})
    with pytest.raises(ValueError, match="No item is refused"):
        PromptRefused({})

    def check(item):
        if item > 3:
            raise PromptTooLong({0: f"has {item} tokens."})
        return item

    assert each(check, [1, 2]) == [1, 2]
    with pytest.raises(PromptTooLong) as raised:
        each(check, [1, 5, 2, 7])
    assert raised.value.refused == {1: "has 5 tokens.", 3: "has 7 tokens."}


def test_the_harmless_text_replaces_the_judged_one_only():
    system, shown = {"role": "system", "content": "Judge."}, {"role": "assistant", "content": "2"}
    user = {"role": "user", "content": "text"}
    assert harmless("text") == HARMLESS
    assert harmless([system, user, shown, user]) == [system, user, shown, {"role": "user", "content": HARMLESS}]
    assert harmless([user, shown]) == [{"role": "user", "content": HARMLESS}, shown]
    assert harmless([system]) == [{"role": "system", "content": HARMLESS}]


def test_local_models_refuse_every_long_prompt_of_a_call_at_once(lms):
    local, long = lms["qwen2-chat"], "the cat sat on the mat " * 60
    prompts = ["a", long, "b", long]
    for ask, items in (
        (lambda some: local.choice_logprobs(some, ["1", "2", "3"]).rows(), prompts),
        (local.loglikelihood, [("the", text) for text in prompts]),
        (lambda some: written(local, some, max_tokens=2), prompts),
    ):
        found, refused = settled(ask, items)
        assert (list(found), list(refused)) == ([0, 2], [1, 3])
        assert "but the model's context is 256" in refused[1]
    with pytest.raises(LMInvalidRequestError, match=r"The prompt has \d+ tokens, but the model's context is 256"):
        local(long)
