"""What holds for every judge, whether it scores or compares: calls, batches, refusals, callbacks, demonstrations."""

import asyncio
import copy
import itertools
import math
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import dspy
import numpy as np
import pytest
from dspy.utils.callback import ACTIVE_CALL_ID, BaseCallback
from fakes import Comparer, FormulaLM
from texts import writer

from evalbias.evaluation import judge_examples
from evalbias.lm import types
from evalbias.lm.types import PromptTooLong
from evalbias.measures.corrections import ScoreCorrection, Slope
from evalbias.programs import Criterion, PairwiseJudge, PairwiseRanker, PointwiseJudge
from evalbias.programs.judges import LowCoverage, UnlabeledDemos

C = Criterion("quality", "is it good?")


@dataclass(frozen=True)
class Kind:
    make: type
    lm: type  # a model whose answers follow q
    fields: Callable[[float], dict]
    value: Callable  # the number of a prediction, which rises with q
    metric: str
    label: dict

    def item(self, quality, **more):
        return dspy.Example({"source": "s"} | self.fields(quality) | more).with_inputs("source", *self.fields(quality))

    def short(self):
        """Refuses prompts of over 500 characters."""
        return self.lm(refuses=lambda question: len(question.prompt[-1]["content"]) > 500)


SCORES = PointwiseJudge, FormulaLM, lambda q: {"output": f"q={q} z=0"}, lambda p: p.score
COMPARES = PairwiseJudge, Comparer, lambda q: {"candidates": [f"q={q} z=0", "q=2.5 z=0"]}, lambda p: p.probability
KINDS = {"scores": Kind(*SCORES, "judge_metric", {"score": 4})}
KINDS |= {"compares": Kind(*COMPARES, "preference_metric", {"preference": "A"})}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def test_a_batch_keeps_the_order_asks_in_chunks_and_takes_the_options_of_dspys(kind):
    items, seen, judge, lm = [kind.item(q) for q in (5, 1, 3)], [], kind.make(C), kind.lm()
    lm.chunk = 2
    found = judge.batch(items, lm=lm, progress=seen.append, num_threads=4, disable_progress_bar=True)
    assert np.argsort([kind.value(p) for p in found]).tolist() == [1, 2, 0]
    assert seen == [2, 1]
    assert [p.toDict() for p in judge.batch(items, lm=kind.lm())] == [p.toDict() for p in found]
    assert judge.batch([], lm=kind.lm()) == []
    for options, error, match in (
        ({"threads": 4}, TypeError, "unexpected keyword argument 'threads'"),
        ({"return_failed_examples": True}, TypeError, "return_failed_examples is not needed"),
        ({"refused": "drop"}, ValueError, "refused='drop' is unknown: choose 'undefined' or 'raise'"),
    ):
        with pytest.raises(error, match=match):
            judge.batch(items, lm=kind.lm(), **options)
    with pytest.raises(TypeError, match=r"dspy\.configure"):
        judge.batch(items)


CALIBRATED = [
    (PointwiseJudge, {}),
    (PointwiseJudge, {"correction": ScoreCorrection({"likelihood": Slope(0.3, -20.0)})}),
    (PairwiseJudge, {"debias": "permutation", "ties": True}),
    *((PairwiseJudge, {"debias": "permutation", "calibration": c}) for c in ("batch", "pride")),
]


@pytest.mark.parametrize(("make", "options"), CALIBRATED)
def test_every_way_of_asking_gives_the_same_prediction(lms, make, options):
    judge = make(C, **options, **({"min_coverage": 0.0} if make is PairwiseJudge else {}))
    judge.predict.lm = lms["qwen2-chat"]
    if options.get("calibration") in ("batch", "pride"):
        pairs = [KINDS["compares"].item(q) for q in range(12)]
        judge.calibrate(pairs, lm=Comparer(lean=1.0))
        assert judge.corrections
    judged = {"output": "sat on it"} if make is PointwiseJudge else {"candidates": ["a cat", "the mat sat"]}
    given = {"source": "the cat"} | judged
    (batched,) = judge.batch([dspy.Example(**given)])
    for single in (judge(**given), asyncio.run(judge.acall(**given))):
        assert set(single.keys()) == set(batched.keys())
        for name, value in batched.toDict().items():
            if isinstance(value, list | float):
                np.testing.assert_allclose(np.array(single[name]), np.array(value), atol=1e-5, err_msg=name)
            elif isinstance(value, dict):
                assert single[name] == pytest.approx(value, abs=1e-5)
            else:
                assert single[name] == value
    if "correction" in options:
        assert batched.score != pytest.approx(batched.raw_score)


def test_a_batch_asks_what_calls_ask(kind, monkeypatch):
    judge, lm = kind.make(C), kind.lm()
    judge.predict.demos, items = [kind.item(q, **kind.label) for q in (1, 2)], [kind.item(q) for q in range(5)]
    monkeypatch.setattr(types, "CHUNK", 2)
    judge.batch(items, lm=lm)
    assert [question.prompt for question in lm.questions] == [judge.messages(item) for item in items]


def test_an_item_that_is_too_long_is_undefined_named_and_costs_no_other(kind, caplog):
    items = [kind.item(1 + k % 5, id=f"i{k}") for k in range(9)]
    expected = kind.make(C).batch(items, lm=kind.lm())
    for k in (3, 6):
        items[k].source = "s" * 600
    for k, (found, other) in enumerate(zip(kind.make(C).batch(items, lm=kind.short()), expected, strict=True)):
        if k in (3, 6):
            assert np.isnan([kind.value(found), found.coverage]).all()
            assert found.undefined.startswith(f"The prompt of the item 'i{k}' has 99 tokens, but")
            assert set(found.keys()) == {*other.keys(), "undefined"}
        else:
            assert found.toDict() == other.toDict()
    (record,) = caplog.records
    assert "'i3'" in record.message
    assert "The same holds for 1 more." in record.message
    with pytest.raises(PromptTooLong, match=r"^The prompt of the item 'i3' has 99 tokens"):
        kind.make(C).batch(items, lm=kind.short(), refused="raise")
    judged = judge_examples(kind.make(C), items, lm=kind.short())
    assert np.flatnonzero(np.isnan(judged.answers).reshape(9, -1).any(axis=1)).tolist() == [3, 6]
    assert set(judged.asked.reasons) == {"i3", "i6"}


NO_EXAMPLES = (("a", "b"), {"source": "a", "output": "b", "candidates": ["a", "b"]}, "a")
BAD = {f"The example 0 is a {type(one).__name__}: give dspy.Example": one for one in NO_EXAMPLES}
BAD_ITEMS = {
    "'source' of the item 'x' is empty: give a text": {"source": " "},
    "'source' of the item 'x' is None: give a text": {"source": None},
    r"'source' of the item 'x' is a list, not a text": {"source": ["s"]},
    r"'source' of the item 'x' holds the lone surrogate U\+D83D at": {"source": "caf\ud83d"},
}
BAD_TEXTS = {
    PointwiseJudge: {
        "'output' of the item 'x' is empty: give a text": {"output": ""},
        "'output' of the item 'x' is None: give a text": {"output": None},
        "'output' of the item 'x' is nan: give a text": {"output": math.nan},
        r"'output' of the item 'x' holds the lone surrogate U\+DC00": {"output": "b\udc00"},
    },
    PairwiseJudge: {
        "The item 'x' has the candidates .*: give a list of 2 to 26 texts": {"candidates": ["a"]},
        "The item 'x' has the candidates 'ab': give a list": {"candidates": "ab"},
        "Two candidates of the item 'x' are equal": {"candidates": ["a", "b", "a"]},
        "Candidate 2 of the item 'x' is empty": {"candidates": ["a", " "]},
        r"Candidate 2 of the item 'x' holds the lone surrogate U\+DC00": {"candidates": ["a", "b\udc00"]},
        "The item 'x' does not have two candidates: give pairs": {"candidates": None},
    },
}


def test_what_cannot_be_read_is_refused_by_name(kind):
    judge, cases = kind.make(C), {**BAD_ITEMS, **BAD_TEXTS[kind.make]}
    for message, bad in {**BAD, **{m: kind.item(1, id="x", **fields) for m, fields in cases.items()}}.items():
        for judged in (judge.batch, lambda some, lm: judge_examples(judge, some, lm=lm)):
            with pytest.raises(ValueError, match=message):
                judged([bad, kind.item(1)], lm=kind.lm())
    for message, fields in cases.items():  # a call has no id
        given = kind.item(1, **fields).inputs().toDict()
        with pytest.raises(ValueError, match=message.replace("the item 'x'", ".*").replace("The item 'x'", ".*")):
            judge(**given)


def test_a_number_is_judged_as_it_is_written(kind):
    judge, (lm, engine) = kind.make(C), writer(lambda *_: {"4": 0.6, "A": 0.4}, top=2)
    judge.set_lm(lm)
    for texts in ({"output": 7, "candidates": [7, 2.5]}, {"output": "7", "candidates": ["7", "2.5"]}):
        judge(source="s", **{name: text for name, text in texts.items() if name in kind.item(1)})
    asked = [request.messages for request in engine.requests]
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]


def test_a_judge_passed_as_the_metric_itself_says_what_to_pass(kind):
    with pytest.raises(TypeError, match=rf"pass metric=evalbias\.{kind.metric}\(judge\)"):
        kind.make(C)(kind.item(1), dspy.Prediction(output="o"))


def test_a_pipelines_examples_are_no_demonstrations_of_the_judge_in_it(kind):
    class Pipeline(dspy.Module):
        def __init__(self):
            super().__init__()
            self.write, self.judge = dspy.Predict("question -> answer"), kind.make(C)
            self.judge.tunable = True

        def forward(self, question):
            return self.judge(**kind.item(4).inputs())

    examples = [dspy.Example(question="2 + 2?", answer="4").with_inputs("question")] * 2
    compiled = dspy.LabeledFewShot(k=2).compile(Pipeline(), trainset=examples)
    assert len(compiled.judge.predict.demos) == 2
    with pytest.warns(UnlabeledDemos, match="2 of 2 demonstrations are not shown to the judge of quality"):
        (batched,) = compiled.judge.batch([kind.item(4)], lm=kind.lm())
    assert batched.toDict() == kind.make(C).batch([kind.item(4)], lm=kind.lm())[0].toDict()
    compiled.set_lm(writer(lambda *_: {"4": 0.5, "A": 0.4, "2": 0.1, "B": 0.0}, top=3)[0])
    compiled.judge.predict.demos.append(kind.item(4, **kind.label))
    with pytest.warns(UnlabeledDemos, match="2 of 3"):
        assert kind.value(compiled(question="2 + 2?")) > 0.9


# DSPy's callbacks, through which tracing tools see programs, are told of a batch's judgments.


class Recorder(BaseCallback):
    def __init__(self):
        self.open, self.calls = {}, []

    def on_module_start(self, call_id, instance, inputs):
        self.open[call_id] = (type(instance), inputs)

    def on_module_end(self, call_id, outputs, exception=None):
        self.calls.append((*self.open.pop(call_id), outputs))

    def on_adapter_format_start(self, call_id, instance, inputs):
        self.calls.append(inputs)  # the prompts of a batch are no calls of their own


def test_each_judgment_of_a_batch_is_told_as_a_call(kind, monkeypatch):
    monkeypatch.setattr(types, "CHUNK", 2)
    recorder, items, judge = Recorder(), [kind.item(q) for q in range(5)], kind.make(C)
    with dspy.context(callbacks=[recorder]):
        predictions = judge.batch(items, lm=kind.lm())
    assert recorder.open == {}
    asked = [{"args": (), "kwargs": item.inputs().toDict()} for item in items]
    assert recorder.calls == [(kind.make, *call) for call in zip(asked, predictions, strict=True)]
    recorder.calls.clear()
    judge.callbacks = [recorder]
    judge.batch(items[:2], lm=kind.lm())
    assert len(recorder.calls) == 2


class Spans(BaseCallback):
    def __init__(self):
        self.modules, self.parents = {}, {}

    def on_module_start(self, call_id, instance, inputs):
        self.modules[call_id], self.parents[call_id] = type(instance), ACTIVE_CALL_ID.get()


@pytest.mark.parametrize("call", ["one", "batch", "ranking"])
def test_callbacks_are_told_of_each_judgment_once_and_inside_the_module_that_asks_for_it(call):
    class Pipeline(dspy.Module):
        def __init__(self):
            super().__init__()
            self.ranker = PairwiseRanker(PairwiseJudge(C))
            self.ranker.set_lm(writer(lambda *_: {"A": 0.6, "B": 0.4}, top=2)[0])

        def forward(self):
            pair = KINDS["compares"].item(4)
            if call == "ranking":
                return self.ranker(**pair.inputs())
            return self.ranker.judge(**pair.inputs()) if call == "one" else self.ranker.judge.batch([pair])[0]

    with dspy.context(callbacks=[spans := Spans()]):
        Pipeline()()
    (judgment,) = [one for one, kind in spans.modules.items() if kind is PairwiseJudge]
    around = spans.modules[spans.parents[judgment]]
    assert around is (PairwiseRanker if call == "ranking" else Pipeline)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda judge: judge.deepcopy()])
def test_a_copy_keeps_the_callbacks_of_its_judge(copied):
    compares, recorder = KINDS["compares"], Recorder()
    pairs, judge = [compares.item(q) for q in range(4)], PairwiseJudge(C)
    judge.callbacks = [recorder]
    copied(PairwiseRanker(judge)).judge.batch(pairs, lm=Comparer())
    assert len(recorder.calls) == 4
    judge.calibration = "batch"  # the ranker fits it on a copy
    ranked = dspy.Example(source="s", candidates=[f"q={q} z=0" for q in range(5)])
    PairwiseRanker(judge).batch([ranked], lm=Comparer())
    assert len(recorder.calls) > 8
    judge_examples(judge, pairs * 3, lm=Comparer())
    assert len(recorder.calls) > 20
    judge.lock = threading.Lock()  # which cannot be copied
    assert judge.deepcopy().callbacks == [recorder]


class Streamed(dspy.Module):
    def __init__(self, ask):
        super().__init__()
        self.ask = ask

    def forward(self, **item):
        return self.ask(item)


@pytest.mark.parametrize(("name", "options", "call"), [
    *itertools.product(KINDS, [{}, {"scoring": "sampled"}], ["one", "batch"]),
    ("compares", {}, "ranking"),
])  # fmt: skip
def test_a_judge_in_a_streamed_program_answers_once(name, options, call):
    """Neither its own answers nor what a ranking asks besides are streamed."""
    kind = KINDS[name]
    judge = kind.make(C, **options)
    judge.predict.lm = writer(lambda *_: {"4": 0.5, "A": 0.4, "2": 0.07, "B": 0.03}, top=4)[0]
    asking = {"one": lambda item: judge(**item), "batch": lambda item: judge.batch([dspy.Example(**item)])[0]}
    asking |= {"ranking": lambda item: PairwiseRanker(judge)(**item)}

    async def streamed():
        return [part async for part in dspy.streamify(Streamed(asking[call]))(**kind.item(4).inputs())]

    (found,) = asyncio.run(streamed())
    assert found.order if call == "ranking" else kind.value(found) > 0.4


@pytest.mark.parametrize(("form", "mass", "warned"), [
    (PointwiseJudge, 0.015, 2), (PairwiseJudge, 0.015, 2), (PointwiseJudge, 0.21, 0), (PairwiseJudge, 0.21, 0)
])  # fmt: skip
def test_a_model_that_hardly_answers_with_a_label_is_warned_of_once_in_calls_and_batches(form, mass, warned):
    model = FormulaLM(coverage=mass) if form is PointwiseJudge else Comparer(mass=mass)
    judge = form(Criterion("quality", "is it good?"))
    texts = {"output": "q=3 z=0"} if form is PointwiseJudge else {"candidates": ["q=3 z=0", "q=4 z=0"]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for number in range(2):
            judge.batch([dspy.Example(source=f"s{number}", **texts)] * 3, lm=model)
        judge.set_lm(writer(lambda *_: {"1": mass / 2, "A": mass / 2, "It": 1 - mass}, top=3)[0])
        judge(source="s", **texts)
    said = [str(one.message) for one in caught if one.category is LowCoverage]
    assert said == [
        f"Do not rely on the judge of quality on {name}: less than 10 % of the model's probability is on the labels "
        "(the coverage), so its answers mean little. Take another model, or reword the instruction."
        for name in [model.model, judge.get_lm().model][:warned]
    ]
