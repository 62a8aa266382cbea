"""One item that a model or its server refuses costs its own answer alone; a wrong setting ends the call."""

import asyncio
import json
import logging
import pickle
import re
from functools import partial

import dspy
import numpy as np
import pytest
from fake_server import opened, served, serving
from fakes import FormulaLM, messages_of, outcome
from texts import writer

from evalbias import Sampling
from evalbias.lm import types
from evalbias.lm.cache import CachedLM, measuring
from evalbias.lm.calls import HARMLESS, harmless
from evalbias.lm.types import Choices, Likelihood, PromptRefused, PromptTooLong, RequestRefused, Text, Unanswered
from evalbias.programs import Criterion, PointwiseJudge

pytestmark = pytest.mark.slow

C = Criterion("quality", "is it good?", (1, 3))
WORDS = ("cat", "dog", "sat", "poison", "mat", "hat")
ITEMS = [dspy.Example(id=f"i{i}", source="s", output=f"a {w}").with_inputs("source") for i, w in enumerate(WORDS)]

TOO_LONG = {"error": {"message": "The input (61709 tokens) is longer than the context.", "type": "BadRequestError"}}
LENGTH = {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}
FILTER = {"message": "The prompt triggers the policy", "param": "prompt", "innererror": {"code": "ResponsibleAIPolicy"}}
BODIES = {  # as the servers send them -> the words that DSPy's engine passes on
    "openai": ({"error": LENGTH}, LENGTH["message"].rstrip(".")),
    "azure": ({"error": {**FILTER, "code": "content_filter", "type": None, "status": 400}}, FILTER["message"]),
    "vllm": ({"error": {"message": "max_tokens must be at least 1.", "code": 400}}, "max_tokens must be at least 1"),
    "sglang": (
        {"object": "error", "message": "The input (61709 tokens) is too long.", "param": None, "code": 400},
        "status 400, and DSPy passes no reason on",
    ),
}


@pytest.fixture
def openai(lms):
    """A model of OpenAI's protocol as DSPy reaches it, and its server."""
    with serving(lms["qwen2-chat"], "chat") as (address, fake):
        fake.unknown = set()
        yield partial(dspy.LM, "openai/tiny", api_base=address, api_key="none", cache=False, num_retries=0), fake


def poisoned(fake, body):
    """Whether a request is about the refused item."""
    prompt = body.get("prompt", body.get("input_ids", body.get("messages")))
    text = fake.text(prompt) if prompt and isinstance(prompt[0], int) else json.dumps(prompt)
    return "poison" in text


def refuse_the_poisoned(fake, answer=(400, TOO_LONG)):
    """Refuse requests about one item from now on; returns where the requests begin."""
    fake.faults = lambda _, path, body: answer if poisoned(fake, body) else None
    return len(fake.requests)


REFUSED = "status 400, The input"
DECLINED = {"message": {"content": None, "refusal": "I cannot."}, "logprobs": None, "finish_reason": "content_filter"}


@pytest.mark.parametrize(("kind", "answer", "words"), [
    *((kind, (400, TOO_LONG), REFUSED) for kind in ("vllm", "sglang", "llama.cpp", "chat")),
    ("chat", (200, {"choices": [DECLINED]}), r".*no token probabilities .*\('I cannot.', 'content_filter'\)"),
    ("chat", (200, {"choices": []}), r".*no token probabilities .*\(it is empty\)"),
])  # fmt: skip
def test_a_server_that_refuses_one_item_answers_the_others_and_is_asked_nothing_twice(
    lms, tmp_path, kind, answer, words
):
    local = lms["qwen2-chat"]
    prompts = [[{"role": "user", "content": f"the {word}"}] for word in WORDS]
    with served(local, kind) as (lm, fake):
        lm.choice_logprobs(prompts[:1], ["1", "2"])
        before = len(fake.requests)
        lm.choice_logprobs(prompts[:1], ["1", "2"])
        each_costs = len(fake.requests) - before
        start = refuse_the_poisoned(fake, answer)
        journal = CachedLM(lm, tmp_path / "j.jsonl")
        with pytest.raises(PromptRefused, match=f"Text 3 of the call is refused by tiny: {words}"):
            journal.choice_logprobs(prompts, ["1", "2"])
        sent = [json.dumps(request) for request in fake.requests[start:]]
        questions, before = [Choices(prompt, ("1", "2")) for prompt in prompts], len(fake.requests)
        answers, refused, _ = outcome(CachedLM(lm, tmp_path / "j.jsonl"), questions)
        assert len(fake.requests) - before <= each_costs + 1  # the refused item alone
    assert len(sent) == len(set(sent)) == 6 * each_costs + 1  # a refusal ends its item; the harmless text is one more
    assert list(refused) == [3]
    assert (journal.asked.total(), list(answers)) == (5, [0, 1, 2, 4, 5])
    if kind != "chat":
        truth = local.choice_logprobs([p for i, p in enumerate(prompts) if i != 3], ["1", "2"]).logprobs
        rows = np.concatenate([answer.logprobs for answer in answers.values()])
        np.testing.assert_allclose(rows, truth, atol=1e-4)


def test_likelihoods_and_texts_of_the_other_items_are_kept_too(lms):
    local = lms["qwen2"]
    with served(local) as (lm, fake):
        start = refuse_the_poisoned(fake)
        pairs = [("the cat", f" {word}") for word in WORDS]
        answers, refused, _ = outcome(lm, [Likelihood(*pair) for pair in pairs])
        assert (list(answers), list(refused)) == ([0, 1, 2, 4, 5], [3])
        texts, refused, _ = outcome(lm, [Text(word, 2, temperature=0.0) for word in WORDS])
        assert (list(texts), list(refused)) == ([0, 1, 2, 4, 5], [3])
        assert len(fake.requests) - start == 2 * (6 + 1)
        judge = PointwiseJudge(C, scoring="sampled", sampling=Sampling(samples=2))
        predictions = judge.batch(ITEMS, lm=lm)
    assert [i for i, p in enumerate(predictions) if p.get("undefined")] == [3]
    assert answers[0].total == pytest.approx(local.loglikelihood(pairs[:1])[0].total, abs=1e-4)


def test_a_setting_that_a_server_refuses_ends_the_call_at_once(lms):
    local = lms["qwen2"]
    with serving(local, "vllm") as (address, fake):
        lm = opened(address, local, in_flight=2)
        start = len(fake.requests)
        fake.faults = lambda *_: (400, {"error": {"message": "top_k is not supported"}})
        with pytest.raises(RequestRefused, match=r"item 0 of 40 .*top_k is not supported\. A harmless .* is refused"):
            lm.choice_logprobs([f"the cat {n}" for n in range(40)], ["1", "2"])
        assert len(fake.requests) - start <= 4
        fake.faults = lambda n, *_: 404 if n > start else None
        with pytest.raises(Unanswered, match=r"status 404, .* Check the address and the model's name"):
            lm.choice_logprobs(["the cat"], ["1", "2"])
        fake.faults = lambda _, path, body: 400 if poisoned(fake, body) else "drop"
        with pytest.raises(Unanswered, match=r"0 answered, 1 failed.*cannot be used"):
            lm.choice_logprobs(["poison"], ["1", "2"])  # the harmless text tells nothing here


@pytest.mark.parametrize(("name", "engine"), [*((name, "lm15") for name in BODIES), ("azure", "litellm")])
def test_an_ordinary_model_that_refuses_one_item_judges_the_others(openai, caplog, name, engine):
    (make, fake), (body, words) = openai, BODIES[name]
    refuse_the_poisoned(fake, (400, body))
    with caplog.at_level(logging.WARNING):
        predictions = PointwiseJudge(C).batch(ITEMS, lm=make(engine=engine))
    sent = [json.dumps(body) for _, body in fake.requests]
    assert [i for i, p in enumerate(predictions) if p.get("undefined")] == [3]
    assert re.match(r"The prompt of the item 'i3' is refused by (openai/)?tiny: ", predictions[3].undefined)
    assert words in predictions[3].undefined
    assert np.isnan(predictions[3].score)
    assert "'i3'" in caplog.text
    assert engine == "litellm" or len(sent) == len(set(sent))


@pytest.mark.parametrize("scoring", ["expected", "sampled"])
def test_one_judgment_of_a_refused_item_raises_its_reason(openai, scoring):
    make, fake = openai
    refuse_the_poisoned(fake)
    judge = PointwiseJudge(C, scoring=scoring)
    judge.predict.lm = make()
    for call in (judge, lambda **inputs: asyncio.run(judge.acall(**inputs))):
        with pytest.raises(PromptRefused, match=r"^The prompt is refused by .*tiny: The input \(61709 tokens\)"):
            call(source="s", output="a poison")


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (400, {"message": "Unsupported parameter: 'top_p'", "code": "unsupported_parameter"},
         RequestRefused, r"Unsupported parameter: 'top_p'.*\. A harmless text with the same settings is refused too"),
        (400, {"message": "`tiny` does not exist", "code": "model_not_found"}, ConnectionError, "does not exist"),
        (404, {"message": "`tiny` does not exist"}, ConnectionError, "does not exist"),
        (401, {"message": "Incorrect API key"}, ConnectionError, "Incorrect API key"),
    ],
)  # fmt: skip
def test_a_wrong_setting_of_an_ordinary_model_ends_the_run(openai, status, body, error, message):
    make, fake = openai
    fake.faults = lambda *_: (status, {"error": body})
    for scoring in ("expected", "sampled"):
        with pytest.raises(error, match=message) as raised:
            PointwiseJudge(C, scoring=scoring).batch(ITEMS[:2], lm=make())
        assert not isinstance(raised.value, PromptRefused)


def test_demonstrations_that_do_not_fit_are_no_fault_of_the_items(openai):
    make, fake = openai
    judge = PointwiseJudge(C)
    judge.predict.demos = [dspy.Example(source="s", output="poison", score=2)]
    refuse_the_poisoned(fake)
    with pytest.raises(RequestRefused, match="longer than the context"):
        judge.batch(ITEMS[:2], lm=make())


def test_an_answer_without_log_probabilities_is_its_items_alone(openai):
    def without(answer):
        return {**answer, "choices": [{**answer["choices"][0], "logprobs": None}]}

    make, fake = openai
    refuse_the_poisoned(fake, without)
    predictions = PointwiseJudge(C).batch(ITEMS, lm=make())
    assert [i for i, p in enumerate(predictions) if p.get("undefined")] == [3]
    assert "tiny without token probabilities" in predictions[3].undefined
    fake.faults = lambda *_: without
    with pytest.raises(types.NoProbabilities, match="scoring='sampled'"):
        PointwiseJudge(C).batch(ITEMS, lm=make())


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


def test_sampled_answers_are_not_drawn_again(tmp_path):
    lm, seen = refusing({"1": 0.5, "3": 0.5})
    judge = PointwiseJudge(C, scoring="sampled", sampling=Sampling(samples=4))
    journal = CachedLM(lm, tmp_path / "j.jsonl")
    predictions = judge.batch(ITEMS, lm=journal)
    assert [i for i, p in enumerate(predictions) if np.isnan(p.score)] == [3]
    assert "flagged" in predictions[3].undefined
    assert len(seen) == len(set(seen)) == 6 * 4 + 1
    assert (journal.asked.total(), [text for text, _ in seen].count(HARMLESS)) == (20, 1)


def test_models_around_another_say_which_items_are_refused(tmp_path):
    texts = [f"q={1 + i % 3} z={i / 10}" for i in range(6)]
    texts[2] += " poison"
    prompts = [[{"role": "system", "content": "Judge."}, {"role": "user", "content": text}] for text in texts]
    prompts.append(prompts[0])  # asked once
    truth = FormulaLM().choice_logprobs([p for i, p in enumerate(prompts) if i != 2], C.labels).logprobs
    for wrap in (CachedLM, lambda lm: CachedLM(lm, tmp_path / "j", chunk=2)):
        lm = FormulaLM(refuses=lambda question: "poison" in messages_of(question)[-1]["content"])
        found, refused, _ = outcome(wrap(lm), [Choices(prompt, C.labels) for prompt in prompts])
        assert refused == {2: "has 99 tokens, but the model's context is 64."}
        assert list(found) == [0, 1, 3, 4, 5, 6]
        np.testing.assert_array_equal(np.concatenate([row.logprobs for row in found.values()]), truth)
        assert len(lm.judged) == 5
    lm = FormulaLM(refuses=lambda question: "poison" in question.continuation)
    counting = CachedLM(lm)
    memo = CachedLM(counting)
    for _ in range(2):
        found, refused, _ = outcome(memo, [Likelihood("c", text) for text in texts])
        assert (list(found), list(refused)) == ([0, 1, 3, 4, 5], [2])
    assert (counting.questions, memo.questions) == ({Likelihood: 5}, {Likelihood: 10})
    assert sum("poison" not in question.continuation for question in lm.questions) == 5


@pytest.mark.parametrize("end", [Unanswered("down"), KeyboardInterrupt()])
def test_answers_before_an_outage_are_kept_and_numbered_by_the_items_of_the_call(tmp_path, end):
    """Items 0 and 1 are known, and 2 and 3 are the same; the model breaks off at z=0.4."""

    class Down(FormulaLM):
        put = 0

        def answer(self, questions, answers):
            for place, question in enumerate(questions):
                if "z=0.4" in question.prompt[-1]["content"]:
                    raise end
                Down.put += 1
                if isinstance(question, Text):
                    answers[place] = types.Written("3")
                else:
                    answers[place] = FormulaLM.choice_logprobs(self, [question.prompt], question.choices)

    prompts = [[{"role": "user", "content": f"q=2 z={z}"}] for z in (0.0, 0.1, 0.2, 0.2, 0.4, 0.3)]
    questions = [Choices(prompt, C.labels) for prompt in prompts]
    for wrap in (CachedLM, lambda lm: CachedLM(lm, tmp_path / "j", chunk=8)):
        wrapped = wrap(Down())
        wrapped.choice_logprobs(prompts[:2], C.labels)
        found, _, ended = outcome(wrapped, questions)
        assert (list(found), ended) == ([0, 1, 2, 3], end)
        before = Down.put
        again = wrapped.choice_logprobs(prompts[:4], C.labels)  # nothing that was answered is asked again
        assert Down.put == before
        np.testing.assert_array_equal(again.logprobs, FormulaLM().choice_logprobs(prompts[:4], C.labels).logprobs)
    for sampled in (
        measuring(Down(), Sampling(samples=2)),
        measuring(CachedLM(Down()), Sampling(samples=2)),
        CachedLM(Down(), tmp_path / "k", sampling=Sampling(samples=2)),
    ):
        found, _, ended = outcome(sampled, questions)
        assert ended == end
        assert {i: row.probabilities[0].tolist() for i, row in found.items()} == {i: [0, 0, 1] for i in range(4)}


def test_a_refusal_names_its_items_and_the_harmless_text_replaces_the_judged_one_only():
    error = PromptTooLong({4: "has 99 tokens.", 2: "has 88 tokens."})
    assert str(error) == "Text 2 of the call has 88 tokens. (1 more of the call are refused.)"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.refused) == (PromptTooLong, str(error), error.refused)
    with pytest.raises(ValueError, match="No item is refused"):
        PromptRefused({})
    system, shown = {"role": "system", "content": "Judge."}, {"role": "assistant", "content": "2"}
    user = {"role": "user", "content": "text"}
    replaced = {"role": "user", "content": HARMLESS}
    assert harmless(Text("text", 8, seed=1)) == Text(HARMLESS, 8, seed=1)
    assert harmless(Choices([system, user, shown, user], ("1",))).prompt == [system, user, shown, replaced]
    assert harmless(Likelihood([user, shown], "text")) == Likelihood([replaced, shown], HARMLESS)
    assert harmless(Text([system])).prompt == [{"role": "system", "content": HARMLESS}]
