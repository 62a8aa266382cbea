"""Exports written by each tool's own serializer are read with their texts, raters and judges."""

import datetime
import json
import os
import uuid
from types import SimpleNamespace

import pytest

from evalbias import data
from evalbias.data.importers import recognised

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def read(tool, path):
    assert recognised(path) == tool
    return data.read(f"{tool}:{path}")


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory):
    """MLflow in a store of one experiment; traces are logged at once, as feedback needs."""
    mlflow = pytest.importorskip("mlflow")
    os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"
    folder = tmp_path_factory.mktemp("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.create_experiment("exported", artifact_location=str(folder / "exported"))
    mlflow.set_experiment("exported")
    yield mlflow
    del os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"]


@pytest.fixture(scope="module")
def traces(mlflow):
    @mlflow.trace
    def inner(text):
        return text.lower()

    @mlflow.trace
    def answer(question, history=None):
        return inner("Four. " * 400)  # MLflow's preview is shorter

    answer("2 + 2?")
    trace = mlflow.get_last_active_trace_id()
    for kind, who, value in (("HUMAN", "ann", True), ("HUMAN", "ben", False), ("LLM_JUDGE", "gpt", "yes")):
        source = mlflow.entities.AssessmentSource(source_type=kind, source_id=who)
        mlflow.log_feedback(trace_id=trace, name="tone", value=value, source=source)
    mlflow.log_expectation(trace_id=trace, name="tone", value="4")
    return mlflow.search_traces(return_type="list")


def test_mlflow(mlflow, traces, tmp_path):
    (path := tmp_path / "traces.jsonl").write_text("\n".join(trace.to_json() for trace in traces))
    frame = mlflow.search_traces()
    frame.drop(columns=["trace", "spans"]).to_json(tmp_path / "frame.json", orient="records")
    for file in (path, tmp_path / "frame.json"):
        (item,) = read("mlflow", file)
        assert (item.source, item.output) == ("2 + 2?", "four. " * 400)
        assert (item.ratings, item["gpt/tone"]) == ({"tone": [1, 0]}, 1)


def test_inspect(tmp_path):
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.log import ProvenanceData, edit_score, read_eval_log, write_eval_log
    from inspect_ai.scorer import Score, match, mean, scorer
    from inspect_ai.scorer._metric import ScoreEdit

    @scorer(metrics={"tone": [mean()]})
    def graded():
        async def score(state, target):
            return Score.unscored() if state.sample_id == 2 else Score(value={"tone": 3})

        return score

    samples = [inspect_ai.dataset.Sample(input=text, target="4", id=k) for k, text in ((1, "2 + 2?"), (2, "A prime?"))]
    outputs = [inspect_ai.model.ModelOutput.from_content("mockllm/model", text) for text in "4495"]
    task = inspect_ai.Task(dataset=samples, scorer=[match(), graded()], epochs=2)
    model = inspect_ai.model.get_model("mockllm/model", custom_outputs=outputs)
    options = {"display": "none", "max_connections": 1, "max_samples": 1}
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(tmp_path / "logs"), **options)
    log = read_eval_log(log.location)
    by_id = {(sample.id, sample.epoch): sample for sample in log.samples}
    change = ScoreEdit(value="P", provenance=ProvenanceData(author="ann"))
    edit_score(log, 1, "match", change, recompute_metrics=False, epoch=1)
    for kind in ("json", "eval"):
        write_eval_log(log, str(tmp_path / f"log.{kind}"))
        items = {item.id: item for item in read("inspect", tmp_path / f"log.{kind}")}
        assert len(items) == 4
        for (name, epoch), sample in by_id.items():
            item = items[f"mockllm/model/{name}/{epoch}"]
            assert (item.source, item.output) == (sample.input, sample.output.completion)
            assert item.match == {"C": 1, "I": 0}[(sample.scores["match"].history or [sample.scores["match"]])[0].value]
            assert item.get("graded/tone") == (3 if name == 1 else None)
        assert items["mockllm/model/1/1"].ratings == {"match": [0.5]}
        assert str(items["mockllm/model/2/1"].ratings) == "{'match': [nan]}"


def test_pydantic_evals(tmp_path):
    evals = pytest.importorskip("pydantic_evals")
    from pydantic_evals.evaluators import Evaluator
    from pydantic_evals.reporting import EvaluationReportAdapter

    class Judge(Evaluator):
        def evaluate(self, ctx):
            return {"tone": 0.5, "short": len(ctx.output) < 9, "topic": "sums"}

    cases = [evals.Case(name="t1", inputs={"question": "2 + 2?"}), evals.Case(name="t2", inputs={"question": "3?"})]
    dataset = evals.Dataset(name="sums", cases=cases, evaluators=[Judge()])
    report = dataset.evaluate_sync(lambda inputs: "Four." * len(inputs["question"]), name="m-1", progress=False)
    (path := tmp_path / "report.json").write_bytes(EvaluationReportAdapter.dump_json(report))
    first, second = read("pydantic-evals", path)
    assert (first.source, first.output, first.system) == ("2 + 2?", "Four." * 6, "m-1")
    assert [first.tone, first.short, second.short, first.topic] == [0.5, 0, 0, "sums"]


def test_langsmith(tmp_path):
    schemas = pytest.importorskip("langsmith.schemas")
    name = uuid.uuid4()
    texts = {"inputs": {"question": "2 + 2?"}, "outputs": {"answer": "Four."}}
    run = schemas.Run(id=name, name="answer", start_time=NOW, run_type="chain", trace_id=name, **texts)
    said = [("app", "ann", True), ("app", "ben", False), ("model", None, 0.5)]
    of_run = {"created_at": NOW, "modified_at": NOW, "run_id": name, "trace_id": name, "key": "tone"}
    sources = [schemas.FeedbackSourceBase(type=kind, user_id=user) for kind, user, _ in said]
    scores = zip(sources, (score for *_, score in said), strict=True)
    given = [schemas.Feedback(id=uuid.uuid4(), score=s, feedback_source=source, **of_run) for source, s in scores]
    (path := tmp_path / "runs.jsonl").write_text("\n".join(one.model_dump_json() for one in (run, *given)))
    (item,) = read("langsmith", path)
    assert (item.source, item.output, item.ratings) == ("2 + 2?", "Four.", {"tone": [1, 0]})
    assert item["model/tone"] == 0.5


def test_langfuse(tmp_path):
    pytest.importorskip("langfuse")
    from langfuse.api.commons.types.observation_v2 import ObservationV2
    from langfuse.api.commons.types.score import Score_Boolean, Score_Numeric
    from langfuse.api.scores.types.score_subject_v3 import ScoreSubjectV3_Observation
    from langfuse.api.scores.types.score_v3 import ScoreV3_Boolean, ScoreV3_Categorical, ScoreV3_Numeric

    times = {"timestamp": NOW, "created_at": NOW, "updated_at": NOW, "environment": "default"}
    given = {"id": "o1", "trace_id": "t1", "start_time": NOW, "project_id": "p", "type": "GENERATION"}
    asked = ObservationV2(**given, input="2 + 2?", output="Four.")
    old = [
        Score_Numeric(id="1", trace_id="t1", name="tone", source="ANNOTATION", value=4, author_user_id="ann", **times),
        Score_Numeric(id="2", trace_id="t1", name="tone", source="ANNOTATION", value=2, author_user_id="ben", **times),
        Score_Boolean(id="3", trace_id="t1", name="safe", source="EVAL", value=1, string_value="True", **times),
    ]
    subject = ScoreSubjectV3_Observation(id="o1", trace_id="t1")
    names = {"project_id": "p", "name": "tone", "subject": subject, **times}
    new = [
        ScoreV3_Numeric(id="1", value=4, source="ANNOTATION", author_user_id="ann", **names),
        ScoreV3_Numeric(id="2", value=2, source="ANNOTATION", author_user_id="ben", **names),
        ScoreV3_Boolean(id="3", value=True, source="EVAL", **{**names, "name": "safe"}),
        ScoreV3_Categorical(id="4", value="sums", source="EVAL", **{**names, "name": "topic"}),
    ]
    for k, scores in enumerate((old, new)):
        (folder := tmp_path / str(k)).mkdir()
        (folder / "observations.jsonl").write_text(asked.json(by_alias=True))
        (folder / "scores.jsonl").write_text("\n".join(one.json(by_alias=True) for one in scores))
        assert recognised(folder / "scores.jsonl") == recognised(folder / "observations.jsonl") == "langfuse"
        (item,) = data.read(f"langfuse:{folder}")
        assert (item.source, item.output, item.ratings, item["EVAL/safe"]) == ("2 + 2?", "Four.", {"tone": [4, 2]}, 1)


def test_opentelemetry(tmp_path):
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    spans = []
    provider = sdk.TracerProvider()
    ending = {"on_end": spans.append, "_on_ending": lambda _: None, "shutdown": lambda: None}
    provider.add_span_processor(SimpleNamespace(on_start=lambda *_, **__: None, **ending))
    parts = {"user": [{"type": "text", "content": "2 + 2?"}], "assistant": [{"type": "text", "content": "Four."}]}
    said = [json.dumps([{"role": role, "parts": some}]) for role, some in parts.items()]
    texts = dict(zip(("gen_ai.input.messages", "gen_ai.output.messages"), said, strict=True))
    with provider.get_tracer("t").start_as_current_span(
        "chat", attributes={**texts, "gen_ai.request.model": "m-1"}
    ) as span:
        result = {"gen_ai.evaluation.name": "tone", "gen_ai.evaluation.score.value": 0.5}
        span.add_event("gen_ai.evaluation.result", result)
    (path := tmp_path / "console.json").write_text("\n".join(one.to_json(indent=None) for one in spans))
    (item,) = read("otel", path)
    assert (item.source, item.output, item.tone, item.system) == ("2 + 2?", "Four.", 0.5, "m-1")
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    from google.protobuf.json_format import MessageToJson

    for kept in (False, True):
        text = MessageToJson(encoder.encode_spans(spans), preserving_proto_field_name=kept)
        (path := tmp_path / "otlp.json").write_text(text)
        (same,) = read("otel", path)
        assert same.toDict() == {**item.toDict(), "id": same.id}
