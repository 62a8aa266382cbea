"""DSPy's callbacks, through which tracing tools see programs, are told of a batch's judgments."""

import asyncio
import copy
import logging

import dspy
import pytest
from dspy.utils.callback import BaseCallback
from fakes import Comparer, FormulaLM, items, pair
from texts import writer

from evalbias.evaluation import judge_examples
from evalbias.programs import Criterion, PairwiseJudge, PairwiseRanker, PointwiseJudge

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


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda judge: judge.deepcopy()])
def test_a_copy_keeps_the_callbacks_of_its_judge(copied):
    recorder, pairs = Recorder(), [pair(k, 2.5) for k in range(4)]
    judge = PairwiseJudge(QUALITY)
    judge.callbacks = [recorder]
    copied(PairwiseRanker(judge)).judge.batch(pairs, lm=Comparer())
    assert len(recorder.calls) == 4
    judge.calibration = "batch"  # the ranker fits it on a copy
    PairwiseRanker(judge).batch([pair(*range(5))], lm=Comparer())
    assert len(recorder.calls) > 8
    judge_examples(judge, pairs * 3, lm=Comparer())
    assert len(recorder.calls) > 20


def test_a_judge_in_a_streamed_program_answers_once():
    judge = PointwiseJudge(QUALITY)
    judge.predict.lm = writer(lambda *_: {"4": 0.9, "2": 0.1}, top=2)[0]

    async def streamed():
        return [part async for part in dspy.streamify(judge)(source="s", output="o")]

    assert [part.score for part in asyncio.run(streamed())] == [pytest.approx(3.8)]


def test_an_awaited_ranking_is_not_called_directly(caplog):
    with dspy.context(lm=Comparer()), caplog.at_level("WARNING", logger="dspy"):
        logging.getLogger("dspy").addHandler(caplog.handler)
        asyncio.run(PairwiseRanker(PairwiseJudge(QUALITY)).acall(**pair(1, 2).inputs()))
        logging.getLogger("dspy").removeHandler(caplog.handler)
    assert "is discouraged" not in caplog.text
