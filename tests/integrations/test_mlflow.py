"""Judges and optimizers in MLflow, against the real package and a sqlite store."""

import json
import math
import os
from typing import Literal

import dspy
import pytest

mlflow = pytest.importorskip("mlflow", reason="MLflow has an environment of its own: make test-integrations")

from mlflow.entities import AssessmentSource  # noqa: E402
from mlflow.genai.judges import make_judge  # noqa: E402

import evalbias  # noqa: E402
from evalbias.data import world  # noqa: E402
from evalbias.integrations.mlflow import JudgeAlignment, MeasuredJudge, autolog  # noqa: E402
from evalbias.programs import SYNTHETIC  # noqa: E402

PERSON = AssessmentSource(source_type="HUMAN", source_id="ann")


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    """Log traces at once into a new store: MLflow drops feedback on traces that wait in its queue."""
    os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"
    folder = tmp_path_factory.mktemp("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    yield folder
    del os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"]


@pytest.fixture
def experiment(request, store):
    """Trace into an experiment of the test's own."""
    name = request.node.name
    mlflow.create_experiment(name, artifact_location=str(store / name))
    mlflow.set_experiment(name)
    yield name
    mlflow.dspy.autolog(disable=True)


def traces():
    return mlflow.search_traces(return_type="list")


def spans(trace):
    return {span.name: span for span in trace.data.spans}


def test_a_judgment_is_a_trace_with_its_score_and_probabilities(experiment, judge):
    (item,) = world.examples(1, seed=1)
    autolog()
    prediction = judge(source=item.source, output=item.output)
    (trace,) = traces()
    root = spans(trace)["PointwiseJudge.forward"]
    assert root.parent_id is None
    assert root.inputs == {"source": item.source, "output": item.output}
    assert root.outputs["score"] == pytest.approx(prediction.score, abs=1e-4)
    assert root.outputs["distribution"] == pytest.approx(prediction.distribution, abs=1e-4)
    assert root.outputs["coverage"] == pytest.approx(prediction.coverage, abs=1e-4)
    below = [name for name in spans(trace) if name != "PointwiseJudge.forward"]
    assert below == ["Predictor.forward", "LocalLM.__call__"]


def test_a_batch_is_a_trace_for_each_item(experiment, judge, lm):
    items = world.examples(5, seed=2)
    autolog()
    predictions = judge.batch(items)
    found = {trace.data.spans[0].inputs["output"]: trace.data.spans[0].outputs for trace in traces()}
    assert len(found) == 5
    for item, prediction in zip(items, predictions, strict=True):
        assert found[item.output]["score"] == pytest.approx(prediction.score, abs=1e-4)
        assert found[item.output]["distribution"] == pytest.approx(prediction.distribution, abs=1e-4)
    one, other = items[:2]
    pair = dspy.Example(source=one.source, candidates=[one.output, other.output]).with_inputs("source", "candidates")
    compares = evalbias.PairwiseJudge(SYNTHETIC, debias="permutation", instruction_place="first")
    (prediction,) = compares.batch([pair], lm=lm)
    assert prediction.preference is not None
    (root,) = (t.data.spans[0] for t in traces() if t.data.spans[0].name == "PairwiseJudge.forward")
    assert root.inputs == {"source": one.source, "candidates": [one.output, other.output]}
    assert root.outputs["probabilities"] == pytest.approx(list(prediction.probabilities), abs=1e-4)


def test_compiling_is_a_run_and_no_flood_of_traces(experiment, judge, tmp_path):
    autolog(log_compiles=True)
    optimizer = evalbias.BiasedDemos(k=4, seed=0, n_resamples=200, select=False)
    compiled = optimizer.compile(judge, trainset=world.examples(40, seed=4))
    assert traces() == []
    (run,) = mlflow.search_runs(output_format="list")
    path = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="best_model.json")
    saved = evalbias.load(path)
    assert [dict(demo) for demo in saved.predict.demos] == [dict(demo) for demo in compiled.predict.demos]
    assert len(saved.predict.demos) == 4


def test_a_judge_as_the_metric_of_an_evaluation_is_feedback_on_the_traces(experiment, judge):
    class Writer(dspy.Module):
        def forward(self, source):
            return dspy.Prediction(output=f"{source.split()[1]} is all there is .")

    devset = [example.with_inputs("source") for example in world.examples(3, seed=5)]
    autolog()
    metric = evalbias.judge_metric(judge)
    result = dspy.Evaluate(devset=devset, metric=metric, num_threads=1)(Writer())
    written = [t for t in traces() if "Writer.forward" in spans(t)]
    values = [a.feedback.value for trace in written for a in trace.info.assessments if a.name == "quality"]
    assert sorted(values) == pytest.approx(sorted(value for _, _, value in result.results), abs=1e-4)
    assert len(values) == 3


def rated_traces(items):
    """Log an application's traces with human feedback, which the optimizers read."""
    for item in items:
        with mlflow.start_span(name="app") as span:
            span.set_inputs({"source": item.source})
            span.set_outputs(item.output)
        score = item.scores["quality"]
        mlflow.log_feedback(trace_id=span.trace_id, name="quality", value=score, source=PERSON)
    return traces()


def test_a_measured_judge_is_a_scorer_of_an_evaluation(experiment, judge):
    items = world.examples(4, seed=6)
    data = [{"inputs": {"source": item.source}, "outputs": item.output} for item in items]
    result = mlflow.genai.evaluate(data=data, scorers=[MeasuredJudge(judge)])
    truth = [prediction.score for prediction in judge.batch(items)]
    assert result.metrics["quality/mean"] == pytest.approx(sum(truth) / 4, abs=1e-4)
    found = [a for t in traces() for a in t.info.assessments]
    assert sorted(a.feedback.value for a in found) == pytest.approx(sorted(truth), abs=1e-4)
    for assessment in found:
        shares = json.loads(assessment.metadata["distribution"])
        mean = sum(int(label) * share for label, share in shares.items())
        assert mean == pytest.approx(assessment.feedback.value, abs=1e-4)
        assert assessment.rationale.startswith("The judge scored the output")


def test_an_undefined_judgment_is_feedback_with_an_error(judge, monkeypatch):
    monkeypatch.setattr(judge, "forward", lambda **_: dspy.Prediction(score=math.nan, distribution=None, mode=math.nan))
    feedback = MeasuredJudge(judge)(inputs="a", outputs="b")
    assert feedback.value is None
    assert "The judge gave no score on quality" in feedback.error.error_message


def test_alignment_compiles_as_the_optimizer_itself_does(experiment, judge, lm):
    items = world.examples(40, seed=7)
    found = rated_traces(items)
    optimizer = evalbias.BiasedDemos(k=4, seed=0, n_resamples=200, select=False)
    given = MeasuredJudge(judge)
    aligned = given.align(found, optimizer=JudgeAlignment(optimizer, lm=lm))
    order = {trace.data.spans[0].outputs: n for n, trace in enumerate(found)}
    rows = sorted(items, key=lambda item: order[item.output])
    direct = optimizer.compile(judge, trainset=rows, lm=lm)
    assert [demo.output for demo in aligned.program.predict.demos] == [d.output for d in direct.predict.demos]
    assert given.program.predict.demos == []
    assert aligned.name == "quality"
    expected = aligned(inputs=rows[0].source, outputs=rows[0].output).value
    assert aligned(trace=found[0]).value == pytest.approx(expected, abs=1e-4)


def made(instructions="Does {{ outputs }} say what is in {{ inputs }}?", kind=Literal[1, 2, 3, 4, 5], name="quality"):
    return make_judge(name=name, instructions=instructions, feedback_value_type=kind, model="openai:/none")


def test_a_judge_made_of_instructions_is_aligned(experiment, lm):
    found = rated_traces(world.examples(30, seed=8))
    optimizer = evalbias.BiasedDemos(k=2, seed=0, n_resamples=200, select=False)
    aligned = made().align(found, optimizer=JudgeAlignment(optimizer, lm=lm))
    assert "Does (the outputs below) say what is in (the inputs below)?" in aligned.instructions
    assert len(aligned.program.predict.demos) == 2
    assert 1 <= aligned(inputs="born in rome", outputs="born in rome .").value <= 5


def test_what_alignment_cannot_use_is_refused(experiment, lm):
    found = rated_traces(world.examples(2, seed=9))
    for judge, scale, match in (
        (made(name="tone"), None, r"None of the 2 traces has human feedback named 'tone': log it with"),
        (made("{{ outputs }} as {{ expectations }}"), None, "reads expectations; a pointwise judge reads inputs and"),
        (made(kind=float), None, r"feedback of type <class 'float'>, which names no lowest .* scale=\(1, 5\)"),
        (made(kind=float), (7, 9), r"The human feedback 'quality' of the trace .* is .*: give a number from 7"),
    ):
        with pytest.raises(ValueError, match=match):
            judge.align(found, optimizer=JudgeAlignment(evalbias.BiasedDemos(k=2), lm=lm, scale=scale))


def test_ratings_of_several_people_stay_apart_and_replaced_ones_are_left_out(experiment, lm):
    seen = []

    class Spy(evalbias.BiasedDemos):
        def compile(self, student, *, trainset, **_):
            seen.extend(trainset)
            return student

    found = rated_traces(world.examples(2, seed=10))
    trace = found[0]
    other = AssessmentSource(source_type="HUMAN", source_id="bob")
    first = mlflow.log_feedback(trace_id=trace.info.trace_id, name="quality", value=1, source=other)
    mlflow.override_feedback(
        trace_id=trace.info.trace_id, assessment_id=first.assessment_id, value=5, source=other, rationale="mistaken"
    )
    machine = AssessmentSource(source_type="LLM_JUDGE", source_id="m")
    mlflow.log_feedback(trace_id=trace.info.trace_id, name="quality", value=2, source=machine)
    MeasuredJudge(evalbias.PointwiseJudge(SYNTHETIC)).align(traces(), optimizer=JudgeAlignment(Spy(), lm=lm))
    ann = {one.info.trace_id: one.info.assessments[0].feedback.value for one in found}
    expected = {key: (rating, [rating, None]) for key, rating in ann.items()}
    own = ann[trace.info.trace_id]
    expected[trace.info.trace_id] = (pytest.approx((own + 5) / 2), [own, 5])  # ann's column, then bob's
    assert {e.id: (e.scores["quality"], e.ratings["quality"]) for e in seen} == expected
