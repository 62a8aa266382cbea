"""DSPy's callbacks, through which tracing tools see programs, are told of a batch's judgments."""

import dspy
from dspy.utils.callback import BaseCallback
from fakes import Comparer, FormulaLM, items, pair

from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge

QUALITY = Criterion("quality", "is it good?")


class Recorder(BaseCallback):
    def __init__(self):
        self.open, self.calls = {}, []

    def on_module_start(self, call_id, instance, inputs):
        self.open[call_id] = (type(instance).__name__, inputs)

    def on_module_end(self, call_id, outputs, exception=None):
        self.calls.append((*self.open.pop(call_id), outputs))

    def on_adapter_format_start(self, call_id, instance, inputs):
        self.calls.append(inputs)  # the prompts of a batch are no calls of their own


def test_each_judgment_of_a_batch_is_told_as_a_call():
    recorder, rated = Recorder(), items(5, seed=0)
    with dspy.context(callbacks=[recorder]):
        predictions = PointwiseJudge(QUALITY).batch(rated, lm=FormulaLM(), chunk=2)
    assert recorder.open == {}
    told = [
        ("PointwiseJudge", {"args": (), "kwargs": {"source": item.source, "output": item.output}}, prediction)
        for item, prediction in zip(rated, predictions, strict=True)
    ]
    assert recorder.calls == told


def test_each_comparison_of_a_batch_is_told_in_the_order_of_the_examples():
    recorder, pairs = Recorder(), [pair(1, 2), pair(1, 2, 3), pair(4, 3)]
    with dspy.context(callbacks=[recorder]):
        predictions = PairwiseJudge(QUALITY).batch(pairs, lm=Comparer())
    assert [call[1]["kwargs"]["candidates"] for call in recorder.calls] == [example.candidates for example in pairs]
    assert [call[2] for call in recorder.calls] == predictions


def test_a_judges_own_callbacks_are_told_too():
    judge, recorder = PointwiseJudge(QUALITY), Recorder()
    judge.callbacks = [recorder]
    judge.batch(items(2, seed=0), lm=FormulaLM())
    assert len(recorder.calls) == 2


def test_a_failing_callback_costs_no_judgment():
    class Failing(BaseCallback):
        def on_module_end(self, call_id, outputs, exception=None):
            raise RuntimeError("no disk")

    judge, rated = PointwiseJudge(QUALITY), items(3, seed=0)
    with dspy.context(callbacks=[Failing()]):
        predictions = judge.batch(rated, lm=FormulaLM())
    plain = judge.batch(rated, lm=FormulaLM())
    assert [prediction.score for prediction in predictions] == [prediction.score for prediction in plain]
