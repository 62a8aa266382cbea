"""DSPy's decision outputs on our models: the probabilities are the model's own, not written by it."""

import asyncio
import logging
from typing import Literal

import dspy
import numpy as np
import pytest
from dspy.adapters.decision import record_evidence
from dspy.experimental import Choice, Noul, ReAnchor, Score
from dspy.utils.exceptions import LMInvalidRequestError
from fake_server import served

from evalbias import LocalLM, PointwiseJudge
from evalbias.lm.decisions import decision_messages, question_in
from evalbias.programs import Criterion

Topic = Choice[("cat", "animals"), ("mat", "things"), ("no", None)]
Good = Score["poor", "fair", "good"]
Late = Noul[(True, "it is late")]
TEXTS = [f"{a} {b}" for a in ("the cat", "a mat", "10 9", "yes") for b in ("sat", "is good", "was 3", "or no", "on B")]
LONG = "the cat sat on the mat " * 60


class Triage(dspy.Signature):
    """Sort a message."""

    text: str = dspy.InputField(desc="what somebody wrote")
    topic: Topic = dspy.OutputField(desc="What is it about?")
    good: Good = dspy.OutputField(desc="How good is it?")
    late: Late = dspy.OutputField(desc="Is it late?")


DEMO = dspy.Example(text="a mat", topic="mat", good=1.6, late=False).with_inputs("text")
SYSTEM = "Sort a message.\n\n1. `text` (str): what somebody wrote\n\n"
PROMPTS = {
    "topic": (
        "topic: What is it about?\n- cat: animals\n- mat: things\n- no\nAnswer with cat or mat or no.",
        ["cat", "mat", "no"],
        "mat",
    ),
    "good": ("good: How good is it?\n- 0: poor\n- 1: fair\n- 2: good\nAnswer with 0 or 1 or 2.", ["0", "1", "2"], "2"),
    "late": ("late: Is it late?\n- true: it is late\n- false\nAnswer with true or false.", ["true", "false"], "false"),
}


def prompt(name, text="the cat sat", *, demo=False):
    question, choices, label = PROMPTS[name]
    shown = [("user", f"text: a mat\n{name}:"), ("assistant", label)] if demo else []
    turns = [("system", SYSTEM + question), *shown, ("user", f"text: {text}\n{name}:")]
    return [{"role": role, "content": content} for role, content in turns], choices


def shares(lm, name, **options):
    messages, choices = prompt(name, **options)
    return lm.choice_logprobs([messages], choices).probabilities[0]


def check(prediction, lm, **options):
    """Compare decisions with the choices' log-probabilities after prompts that are written out above."""
    topic, good, late = (shares(lm, name, **options) for name in PROMPTS)
    np.testing.assert_allclose(list(prediction.topic.probabilities.values()), topic, atol=1e-4)
    assert prediction.topic.value == PROMPTS["topic"][1][topic.argmax()]
    assert prediction.topic.confidence == pytest.approx(topic.max(), abs=1e-4)
    np.testing.assert_allclose(list(prediction.good.probabilities.values()), good, atol=1e-4)
    assert prediction.good.value == pytest.approx(good @ [0, 1, 2], abs=1e-4)
    assert prediction.late.probability == pytest.approx(late[0], abs=1e-4)
    assert prediction.late.value == (late[0] >= 0.5)


def on(lm, signature=Triage):
    predict = dspy.Predict(signature)
    predict.lm = lm
    return predict


@pytest.mark.parametrize("kind", ["qwen2-chat", "llama"])
def test_a_plain_predictor_gets_measured_decisions(lms, kind):
    lm = lms[kind].copy(cache=False)
    predict = on(lm)
    check(predict(text="the cat sat"), lm)
    predict.demos = [DEMO, dspy.Example(text="b")]  # the second shows none of the outputs
    check(predict(text="the cat sat"), lm, demo=True)
    check(asyncio.run(predict.acall(text="the cat sat")), lm, demo=True)


def test_native_types_and_the_evidence_with_its_coverage(lms):
    class Native(dspy.Signature):
        """Sort a message."""

        text: str = dspy.InputField(desc="what somebody wrote")
        topic: Literal["cat", "mat", "no"] = dspy.OutputField(desc="What is it about?")

    lm = lms["qwen2-chat"].copy(cache=False)
    predict = on(lm, Native)
    predict.fields = {"topic": {"weights": {"cat": 1.0, "mat": 1.0, "no": 1.0}}}
    predict.set_criteria("topic", {"cat": "animals", "mat": "things", "no": None})
    with record_evidence() as log:
        prediction = predict(text="the cat sat")
    messages, choices = prompt("topic")
    answer = lm.choice_logprobs([messages], choices)
    assert prediction.topic == choices[answer.logprobs[0].argmax()]
    ((_, name, evidence),) = log
    assert name == "topic"
    assert evidence["coverage"] == pytest.approx(answer.coverage[0], rel=1e-4)


def test_only_predictors_with_nothing_but_decisions_are_measured(lms):
    lm = lms["qwen2-chat"]
    native = dspy.Predict("text -> ok: bool")
    configured = dspy.Predict("text -> ok: bool")
    configured.fields = {"ok": {"threshold": 0.5}}
    text = dspy.Predict("text -> summary: str")
    mixed = dspy.Predict(Triage.append("reasoning", dspy.OutputField(), str))
    judges = PointwiseJudge(Criterion("quality", "is it good?")).predict
    others = [(predict, False) for predict in (native, text, mixed, judges)]
    for predict, measured in [(dspy.Predict(Triage), True), (configured, True), *others]:
        with dspy.context(caller_modules=[predict]):
            assert lm.supports_decision_requests is measured
    assert lm.supports_decision_requests  # outside of a predictor, lm(state=..., questions=...)
    assert isinstance(lm("the cat")[0], str)


def test_a_demonstration_with_another_label_is_named(lms):
    predict = on(lms["qwen2-chat"])
    for demo, label in [({"topic": "dog"}, "dog"), ({"good": 7}, "7"), ({"late": "maybe"}, "maybe")]:
        predict.demos = [dspy.Example(text="a", **demo)]
        with pytest.raises(ValueError, match=rf"A demonstration's {next(iter(demo))} is '?{label}'?: give one of"):
            predict(text="b")


def test_a_decision_that_dspy_returned_is_a_demonstration():
    state = {"instructions": "Sort.", "input_fields": "1. `text` (str):", "inputs": {"text": "b"}}
    returned = {"value": 1.2, "confidence": 0.5, "probabilities": {0: 0.2, 1: 0.4, 2: 0.4}, "level": 1}
    question = {"type": "score", "instructions": {"ask": "how good"}, "criteria": ["poor", "fair", "good"]}
    messages = decision_messages(question_in({**state, "demos": [{"text": "a", "good": returned}]}, "good", question))
    assert messages[2]["content"] == "1"
    assert 'good: {"ask": "how good"}' in messages[0]["content"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["late", "topic"])
def test_dspys_own_optimizer_anchors_measured_decisions(folders, name):
    lm = LocalLM(folders["qwen2-chat"], device="cpu", dtype="float32")
    signature = Triage
    for other in {*PROMPTS} - {name}:
        signature = signature.delete(other)
    p = np.array([shares(lm, name, text=text) for text in TEXTS])  # (n, c)
    if name == "late":  # late is what the model finds likelier than half of the texts
        middle = np.sort(p[:, 0])[9:11]
        labels = (p[:, 0] > middle.mean()).tolist()
    else:  # the model says one topic too often
        weights = np.exp(-np.log(p).mean(axis=0))
        labels = [PROMPTS[name][1][i] for i in (p * weights).argmax(axis=1)]
    trainset = [dspy.Example(text=t, **{name: y}).with_inputs("text") for t, y in zip(TEXTS, labels, strict=True)]
    optimizer = ReAnchor(lambda e, p: float(p[name].value == e[name]), num_threads=2)
    compiled = optimizer.compile(on(lm, signature), trainset=trainset)
    report = optimizer.report
    plain = on(lm, signature)
    hits = [plain(text=e.text)[name].value == e[name] for e in trainset]
    assert report["train_score_before"] == pytest.approx(np.mean(hits))
    assert report["train_score"] > report["train_score_before"]
    if name == "late":
        assert report["train_score"] == 1.0
        assert middle[0] < compiled.fields["late"]["threshold"] < middle[1]
    hits = [compiled(text=e.text)[name].value == e[name] for e in trainset]
    assert report["train_score"] == pytest.approx(np.mean(hits))


def test_a_refused_item_is_one_failure_of_an_evaluation(lms, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("dspy"), "propagate", True)
    predict = on(lms["qwen2-chat"].copy(cache=False))
    message = r"No decision about the item text='the cat .*': The prompt has \d+ tokens, but the model's context is 256"
    for call in (predict, lambda **inputs: asyncio.run(predict.acall(**inputs))):
        with pytest.raises(dspy.ContextWindowExceededError, match=message):
            call(text=LONG)
    devset = [dspy.Example(text=text).with_inputs("text") for text in ("the cat", LONG, "a mat")]
    evaluate = dspy.Evaluate(devset=devset, metric=lambda example, prediction: 1.0, num_threads=2, max_errors=2)
    result = evaluate(predict)
    assert [score for *_, score in result.results] == [1.0, 0.0, 1.0]
    (message,) = {record.getMessage() for record in caplog.records if record.levelno == logging.ERROR}
    assert "No decision about the item text='the cat sat" in message


@pytest.mark.slow
def test_a_server_that_refuses_an_item_is_asked_for_the_others(lms):
    local = lms["qwen2-chat"]

    def refuse(_, path, body):
        prompt = body.get("prompt")
        return 400 if isinstance(prompt, list) and "poison" in fake.text(prompt) else None

    with served(local) as (lm, fake):
        fake.faults = refuse
        predict = on(lm)
        message = r"No decision about the item text='poison': The prompt is refused by tiny: status 400, made to fail"
        for call in (predict, lambda **inputs: asyncio.run(predict.acall(**inputs))):
            with pytest.raises(LMInvalidRequestError, match=message):
                call(text="poison")
        check(predict(text="the cat sat"), local)
