"""Exports of evaluation and tracing tools, in small copies of their shapes: texts, raters and judges are told apart."""

import json
import re
import zipfile

import pandas
import pytest
from commands import as_jsonl
from commands import evalbias as command

import evalbias
from evalbias import data
from evalbias.data import DataError
from evalbias.data.files import ANNOTATED, EXPORTS, text_of, transcript
from evalbias.data.importers import TOOLS, recognised

ODD = [None, 0, -1, 1e400, "", "x", "\u2028", [], {}, [None], {"a": None}, [[[]]], True, 10**40, {"role": 3}, ["\x00"]]


def export(folder, content, name="export.json"):
    """Write an export as JSON."""
    (path := folder / name).write_text(json.dumps(content))
    return path


def assessment(kind, who, value, name="tone", **more):
    given = {"source": {"source_type": kind, "source_id": who}, "feedback": {"value": value}, "valid": True}
    return {"assessment_name": name, "trace_id": "t1", **given, **more}


IN_AND_OUT = {"mlflow.spanInputs": '{"q": "2 + 2?", "k": null}', "mlflow.spanOutputs": '"Four."'}
ASSESSED = [assessment("HUMAN", "ann", True), assessment("HUMAN", "ben", False, valid=False)]
ASSESSED += [assessment("HUMAN", "ben", True), assessment("HUMAN", "cho", "no")]
ASSESSED += [assessment("LLM_JUDGE", "gpt", "yes"), assessment("CODE", "words", 0.25)]
ASSESSED += [assessment("HUMAN", "ann", 0, "expected") | {"feedback": None, "expectation": {"value": "4"}}]
INFO = {"trace_id": "t1", "request_preview": '{"question": "2 +'}  # as MLflow cuts it
INFO |= {"trace_metadata": {"mlflow.modelId": "m-1"}, "assessments": ASSESSED}
SPANS = [{"span_id": "b", "parent_span_id": "a", "attributes": {"mlflow.spanInputs": '"inner"'}}]
SPANS += [{"span_id": "a", "parent_span_id": None, "attributes": IN_AND_OUT}]
TRACE = {"info": INFO, "data": {"spans": SPANS}}
ROW = {"trace_id": "t1", "execution_duration": 3, "request": {"q": "2 + 2?"}, "response": "Four."}
ROW |= {"trace_metadata": {"mlflow.modelId": "m-1"}, "assessments": TRACE["info"]["assessments"]}
MLFLOW = {"ratings": {"tone": [1, 1, 0]}, "gpt/tone": 1, "words/tone": 0.25, "system": "m-1"}


def score(name, source, value, author=None, **more):
    given = {"traceId": "t1", "name": name, "source": source, "dataType": "NUMERIC", "value": value}
    return given | {"stringValue": None, "authorUserId": author, "observationId": None, **more}


SCORES = [score("tone", "ANNOTATION", 4, "ann"), score("tone", "ANNOTATION", 2, "ben"), score("tone", "EVAL", 3.5)]
SCORES += [score("tone", "API", 0, dataType="BOOLEAN", stringValue="True")]
SCORES += [score("output", "ANNOTATION", 0, "ann", dataType="CORRECTION")]
SCORES += [score("topic", "EVAL", 7, dataType="CATEGORICAL", stringValue="sums")]
LANGFUSE = {"ratings": {"tone": [4, 2]}, "EVAL/tone": 3.5, "API/tone": 1, "EVAL/topic": "sums"}
ASKED = {"id": "t1", "bookmarked": False, "public": False, "input": {"q": "2 + 2?"}, "output": "Four."}

SPAN = {"name": "answer", "span_kind": "LLM", "parent_id": None, "context": {"trace_id": "T", "span_id": "t1"}}
SPAN |= {"attributes": {"input.value": "2 + 2?", "output.value": "Four.", "llm.model_name": "m-1"}}


def note(kind, score, identifier="", of="t1", label="a", **more):
    result = {"score": score, "label": label}
    return {"name": "tone", "annotator_kind": kind, "span_id": of, "identifier": identifier, "result": result, **more}


NOTES = [note("HUMAN", 1, "ann"), note("HUMAN", 0, user_id="u2"), note("HUMAN", 0.5), note("LLM", 0.75)]
PHOENIX = {"ratings": {"tone": [1, 0, 0.5]}, "LLM/tone": 0.75, "system": "m-1"}


def feedback(kind, user, score, value=None):
    source = {"type": kind, "user_id": user, "user_name": None}
    of_run = {"id": "f", "run_id": "t1", "trace_id": "t1", "feedback_source": source}
    return of_run | {"key": "tone", "score": score, "value": value}


RUN = {"id": "t1", "run_type": "chain", "trace_id": "t1"}
RUN |= {"inputs": {"messages": [{"type": "human", "content": "2 + 2?"}]}}
RUN |= {"outputs": {"output": {"type": "ai", "content": "Four."}}, "reference_example_id": "e1"}
RUN |= {"feedback_stats": {"tone": {"n": 3, "avg": 0.5}}}
RUNS = [RUN, feedback("app", "ann", True), feedback("app", "ben", 0), feedback("model", None, None, "correct")]
LANGSMITH = {"ratings": {"tone": [1, 0]}, "model/tone": 1, "tone": 0.5, "input_id": "e1"}


def sample(epoch, match, part):
    edits = [{"value": match, "provenance": None}, {"value": "P", "provenance": {"author": "ann"}}]
    said = {"content": [{"type": "reasoning", "reasoning": "2 and 2"}, {"type": "text", "text": "Four."}]}
    scores = {"match": {"value": "P", "history": edits}, "graded": {"value": {"tone": part}}}
    output = {"choices": [{"message": {"role": "assistant", **said}}]}
    texts = {"id": "t1", "epoch": epoch, "input": "2 + 2?", "target": "4", "output": output}
    return {**texts, "scores": scores, "metadata": {"human": "3"}}


HEAD = {"version": 2, "eval": {"task": "sums", "model": "m-1"}}
LOG = {**HEAD, "samples": [sample(1, "C", 3), sample(2, "N", float("nan"))]}
INSPECT = {"ratings": {"match": [0.5]}, "match": 1, "graded/tone": 3, "system": "m-1", "metadata.human": "3"}


def component(kind, passed, score, **more):
    return {"pass": passed, "score": score, "reason": "", "assertion": {"type": kind, **more}}


GRADED = [component("llm-rubric", True, 0.5, value="kind"), component("llm-rubric", True, 1, value="short")]
GRADED += [component("human", True, 1), {"pass": True, "score": 0.5}]
TESTED = {"testIdx": 0, "promptIdx": 0, "provider": {"id": "m-1", "label": ""}, "response": {"output": "Four."}}
TESTED |= {"vars": {"human": 3, "question": "2 + 2?"}}
TESTED |= {"prompt": {"raw": '[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]'}}
TESTED |= {"gradingResult": {"pass": True, "score": 1, "componentResults": GRADED}}
PROMPTFOO = {"ratings": {"human": [1]}, "llm-rubric_1": 0.5, "llm-rubric_2": 1, "system": "m-1", "metadata.human": 3}

CASE = {"name": "test_0", "input": "2 + 2?", "actualOutput": "Four.", "metricsData": [{"name": "Tone", "score": 0.5}]}
CASE |= {"additionalMetadata": {"human": 4, "topic": "sums"}}
SNAKE = {"test_cases": [{re.sub("[A-Z]", lambda m: f"_{m[0].lower()}", name): cell for name, cell in CASE.items()}]}
TALK = {"name": "c", "turns": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "Four."}]}
TALK |= {"metricsData": [{"name": "Tone", "success": True}]}
DEEPEVAL = {"Tone": 0.5, "metadata.human": 4, "metadata.topic": None}

FEEDBACK = [{"name": name, "value": value, "source": source, "created_by": who}
            for name, value, source, who in (("tone", 4, "ui", "ann"), ("facts", 0.5, "sdk", "ci"))]  # fmt: skip
LOGGED = {"id": "t1", "input": {"question": "2 + 2?"}, "output": {"answer": "Four."}, "feedback_scores": FEEDBACK}
OPIK = {"ratings": {"tone": [4]}, "ci/facts": 0.5}


def result(name, value):
    return {name: {"name": name, "value": value, "reason": None, "source": {"name": "LLMJudge", "arguments": None}}}


RESULTS = {"scores": result("tone", 0.5), "labels": result("topic", "sums"), "assertions": result("short", True)}
ANSWERED = {"name": "t1", "inputs": {"q": "2 + 2?"}, "output": "Four.", **RESULTS}
REPORT = {"name": "m-1", "failures": [], "cases": [ANSWERED]}
EVALS = {"tone": 0.5, "topic": "sums", "short": 1, "system": "m-1"}


def attributes(**given):
    kinds = {str: "stringValue", float: "doubleValue", int: "intValue"}
    return [{"key": k.replace("__", "."), "value": {kinds[type(v)]: v}} for k, v in given.items()]


def said(role, text):
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


TONE = attributes(gen_ai__evaluation__name="tone", gen_ai__evaluation__score__value=0.5)
ASKING = attributes(gen_ai__input__messages=said("user", "2 + 2?"), gen_ai__output__messages=said("assistant", "Four."))
ASKING += attributes(gen_ai__response__id="r1", gen_ai__request__model="m-1")
SPANS = [{"traceId": "T", "spanId": "t1", "name": "chat", "attributes": ASKING}]
SPANS[0]["events"] = [{"name": "gen_ai.evaluation.result", "attributes": TONE}]
SPANS += [{"traceId": "T", "spanId": "s2", "parentSpanId": "t1", "name": "tool", "attributes": []}]
LABEL = attributes(gen_ai__evaluation__name="short", gen_ai__evaluation__score__label="pass", gen_ai__response__id="r1")
LOGS = [{"traceId": "X", "spanId": "Y", "eventName": "gen_ai.evaluation.result", "attributes": LABEL}]
OTEL = [{"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": SPANS}]}]}]
OTEL += [{"resourceLogs": [{"resource": {}, "scopeLogs": [{"scope": {}, "logRecords": LOGS}]}]}]

TOLD = [{"completed_by": k, "result": [{"from_name": "tone", "value": {"rating": 6 - 2 * k}}]} for k in (1, 2)]
GUESS = {"model_version": "m-1", "result": [{"from_name": "tone", "value": {"number": 3}}]}
TASK = {"id": 7, "data": {"source": "2 + 2?", "output": "Four."}, "annotations": TOLD, "predictions": [GUESS]}
HIT = {"HITId": "H", "Input.source": "2 + 2?", "Input.output": "Four."}
HITS = [HIT | {"WorkerId": f"W{k}", "Answer.tone": 6 - 2 * k} for k in (1, 2)]

FILES = [
    ("mlflow", [TRACE], MLFLOW),
    ("mlflow", [ROW], MLFLOW),
    ("langfuse", [{**ASKED, "scores": SCORES, "htmlPath": "/t1", "observations": []}], LANGFUSE),
    ("langfuse", [ASKED, *SCORES], LANGFUSE),
    ("phoenix", [SPAN, *NOTES], PHOENIX),
    ("phoenix", [{**SPAN, "annotations": NOTES}], PHOENIX),
    ("phoenix", [SPAN, *({**one, "trace_id": "T", "span_id": None} for one in NOTES)], PHOENIX),
    ("langsmith", RUNS, LANGSMITH),
    ("inspect", LOG, INSPECT),
    ("promptfoo", {"evalId": "e", "results": {"version": 3, "results": [TESTED]}}, PROMPTFOO),
    ("promptfoo", [TESTED], PROMPTFOO),
    ("promptfoo", [{n: v for n, v in TESTED.items() if not n.endswith("Idx")}] * 2, PROMPTFOO),  # an older one
    ("deepeval", {"testCases": [CASE], "conversationalTestCases": []}, DEEPEVAL),
    ("deepeval", {"testCases": [CASE], "conversationalTestCases": [TALK]}, DEEPEVAL),
    ("deepeval", SNAKE, DEEPEVAL),
    ("opik", [LOGGED], OPIK),
    ("opik", {"trace": LOGGED, "spans": []}, OPIK),
    ("pydantic-evals", REPORT, EVALS),
    ("otel", OTEL, {"tone": 0.5, "short": 1, "system": "m-1"}),
    ("label-studio", [TASK], {"ratings": {"tone": [4, 2]}, "m-1/tone": 3}),
    ("label-studio", [{n: v for n, v in TASK.items() if n != "predictions"}], {"ratings": {"tone": [4, 2]}}),
    ("mturk", HITS, {"ratings": {"tone": [4, 2]}}),
]
FIRST = {tool: content for tool, content, _ in reversed(FILES)}
SHAPES = [pytest.param(*one[:2], marks=[pytest.mark.slow] * (FIRST[one[0]] is not one[1])) for one in FILES]


@pytest.mark.parametrize(("tool", "content", "expected"), FILES)
def test_texts_raters_and_judges_are_told_apart(tmp_path, tool, content, expected):
    path = export(tmp_path, content)
    items = data.read(f"{tool}:{path}")
    assert {name: items[0].get(name) for name in expected} == expected
    assert items[0].source == ("system: Be brief.\n\nuser: 2 + 2?" if tool == "promptfoo" else "2 + 2?")
    assert items[0].output == "Four."
    assert recognised(path) == tool
    if isinstance(content, list):
        assert str(data.read(f"{tool}:{as_jsonl(tmp_path / 'lines.jsonl', content)}")[0]) == str(items[0])


@pytest.mark.parametrize(("tool", "content", "expected"), FILES)
def test_an_export_of_another_tool_is_told(tmp_path, tool, content, expected):
    path = export(tmp_path, content)
    for other in set(TOOLS) - {tool}:
        try:
            assert not len(data.read(f"{other}:{path}"))
        except DataError as error:
            assert f"is an export of {tool}, not of {other}: give {tool}:" in str(error)  # noqa: PT017


def test_every_tool_has_a_file_here_and_a_plain_table_is_no_export(tmp_path):
    assert {tool for tool, _, _ in FILES} == set(TOOLS) == {*EXPORTS, *ANNOTATED}
    plain = [{"id": 1, "source": "a", "output": "b", "score": 1}]
    files = as_jsonl(tmp_path / "rows.jsonl", plain), export(tmp_path, {"test_cases": plain}), tmp_path / "rows.csv"
    (tmp_path / "rows.csv").write_text("trace_id,name,value\n1,a,2\n")
    (tmp_path / "page.csv").write_text("example_id,input,feedback.tone,feedback_scores.tone\n1,a,2,2\n")  # nobody's
    assert [*map(recognised, (*files, tmp_path / "page.csv"))] == [None] * 4


def test_what_nobody_scored_is_left_out_and_counted(tmp_path):
    path = export(tmp_path, OTEL)
    assert data.read(f"otel:{path}").left_out == {"nobody scored it": (f"{path}[0]",)}


def test_an_archive_of_inspect_is_its_json_log_whose_epochs_are_items_of_one_source(tmp_path):
    items = data.read(f"inspect:{export(tmp_path, LOG, 'log.json')}")
    assert [(item.id, item.match, item["graded/tone"]) for item in items] == [("m-1/t1/1", 1, 3), ("m-1/t1/2", 0, None)]
    assert len(data.by_input(items)) == 1
    with zipfile.ZipFile(tmp_path / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps(HEAD))
        for one in LOG["samples"]:
            archive.writestr(f"samples/t1_epoch_{one['epoch']}.json", json.dumps(one))
    assert str([*data.read(f"inspect:{tmp_path}/log.eval")]) == str([*items])
    assert recognised(tmp_path / "log.eval") == "inspect"
    with pytest.raises(DataError, match="is an export of inspect: give inspect:"):
        data.read(tmp_path / "log.json")


def test_exports_of_traces_and_of_scores_are_joined_in_a_folder(tmp_path):
    cells = {name: json.dumps(value) for name, value in ASKED.items() if name != "id"}
    pandas.DataFrame([{"id": "t1", **cells}]).to_csv(tmp_path / "traces.csv", index=False)
    pandas.DataFrame(SCORES).to_csv(tmp_path / "scores.csv", index=False)
    (item,) = data.read(f"langfuse:{tmp_path}")
    assert item.ratings == {"tone": [4, 2]}
    assert (item.source, item.output, item["API/tone"]) == ("2 + 2?", "Four.", 1)
    (tmp_path / "traces.csv").unlink()
    with pytest.raises(DataError, match="6 scores of outputs that it does not hold"):
        data.read(f"langfuse:{tmp_path}")


def test_a_parquet_file_of_mlflow_is_read(tmp_path):
    said = [assessment("HUMAN", "ann", 1.0), assessment("LLM_JUDGE", "gpt", 0.5)]
    pandas.DataFrame([{**ROW, "assessments": said}]).to_parquet(tmp_path / "traces.parquet")
    (item,) = data.read(f"mlflow:{tmp_path}/traces.parquet")
    assert (item.source, item.output, item.ratings, item["gpt/tone"]) == ("2 + 2?", "Four.", {"tone": [1]}, 0.5)


def test_a_scorer_that_knows_the_outcome_is_peoples_score_where_it_is_mapped(tmp_path):
    path = export(tmp_path, REPORT)
    (item,) = data.read(f"pydantic-evals:{path}", mapping={"score": "short"}, numbers=["tone"])
    assert (item.score, item.tone) == (1, 0.5)
    with pytest.raises(DataError, match=r"'shirt' .* Did you mean score=short"):
        data.read(f"pydantic-evals:{path}", mapping={"score": "shirt"})


def test_the_only_judge_is_audited_and_several_are_listed(tmp_path):
    """Ten traces, whose judge says what both people say."""
    judged = [("HUMAN", "ann"), ("HUMAN", "ben"), ("LLM_JUDGE", "gpt")]
    rows = [{"trace_id": f"t{k}", "request": f"q{k}", "response": "a" * (k % 7 + 1)} for k in range(10)]
    for k, row in enumerate(rows):
        row["assessments"] = [assessment(kind, who, k % 5) for kind, who in judged]
    path = export(tmp_path, rows)
    audited = evalbias.audit(f"mlflow:{path}")
    assert audited.judged.judge == "recorded scores 'gpt/tone'"
    assert audited.measurements["agreement"].estimates["spearman"].value == pytest.approx(1)
    for k, row in enumerate(rows):
        row["assessments"] += [assessment("CODE", "words", k), assessment("LLM_JUDGE", "gpt", k % 2, "safe")]
    export(tmp_path, rows)
    of_tone = "'gpt/tone', 'words/tone'"
    for options, listed in (({}, f"{of_tone}, 'gpt/safe'"), ({"criterion": "tone"}, of_tone)):
        with pytest.raises(ValueError, match=rf"Name one judge.*recorded scores {listed}\.$"):
            evalbias.audit(f"mlflow:{path}", **options)


def test_peoples_ratings_beside_an_item_are_mapped_and_no_judges(tmp_path):
    """Twenty cases of deepeval, whose people speak in metadata alone; in Opik they also score, which comes first."""
    cases = [{**CASE, "input": f"q{k}", "metricsData": [{"name": "Annotator", "score": k % 5 / 4}]} for k in range(20)]
    cases = [{**case, "additionalMetadata": {"human_score": k % 5}} for k, case in enumerate(cases)]
    path = export(tmp_path, {"testCases": cases})
    said = command("doctor", path.name, cwd=tmp_path).stdout
    assert said.partition("The command:")[2].endswith("--map score=metadata.human_score --scores-field Annotator\n")
    audited = evalbias.audit(f"deepeval:{path}", mapping={"score": "metadata.human_score"})
    assert audited.measurements["agreement"].estimates["spearman"].value == pytest.approx(1)
    path = export(tmp_path, [{**LOGGED, "id": str(k), "metadata": {"human_score": k % 5}} for k in range(20)])
    assert command("doctor", path.name, cwd=tmp_path).stdout.endswith(":export.json --scores-field ci/facts\n")


def test_a_label_among_numbers_is_named_by_its_item(tmp_path):
    labels = [assessment("HUMAN", "ann", 1), assessment("HUMAN", "ben", "unsure")]
    path = export(tmp_path, [{**ROW, "assessments": labels}])
    with pytest.raises(DataError, match=r"export.json\[0\]: item 't1': the score 'tone' is 'unsure'"):
        data.read(f"mlflow:{path}")


CALL = {"id": "c", "type": "function", "function": {"name": "sum", "arguments": '{"a": 2}'}}
AGENT = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
AGENT += [{"role": "tool", "content": "4"}]
AGENT += [{"role": "assistant", "content": [{"type": "text", "text": "Four."}, {"type": "image_url", "image_url": {}}]}]
AGENT += [{"role": "user", "content": "Thanks!"}]
BEFORE = 'user: 2 + 2?\n\nassistant: tool call: sum({"a": 2})\n\ntool: 4'


def test_a_conversation_becomes_paragraphs_and_its_last_answer():
    assert transcript(AGENT) == (BEFORE, "Four.\n[image_url]")
    assert transcript(json.dumps({"messages": AGENT})) == transcript(repr(AGENT)) == transcript(AGENT)
    assert transcript(AGENT[:1]) == ("2 + 2?", "")
    for none in ("[1]", "user", [], [{"a": 1}], {"role": "user"}, None, 3, [AGENT[0], "x"]):
        assert transcript(none) is None
    parts = [
        {"type": "tool_call", "name": "sum", "arguments": {"a": 2}},
        {"type": "tool_call_response", "response": "4"},
    ]
    assert text_of([{"role": "model", "parts": parts}]) == 'tool call: sum({"a": 2})\n4'


def test_cells_of_a_plain_table_may_hold_conversations(tmp_path):
    rows = [{"output": json.dumps(AGENT), "score": 4}, {"source": "2 + 2?", "output": json.dumps(AGENT), "score": 4}]
    pandas.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    for source in (tmp_path / "rows.csv", [{**row, "output": AGENT} for row in rows]):
        split, whole = data.read(source)
        assert (split.source, split.output) == (BEFORE, "Four.\n[image_url]")
        assert whole.source == "2 + 2?"
        assert whole.output == f"{BEFORE}\n\nassistant: Four.\n[image_url]\n\nuser: Thanks!"
    half = '[{"role": "user", "content": "a\\ud800"}]'  # no tokenizer takes it
    assert data.read([{"output": half}])[0].output == half
    (pair,) = data.read([{"outputs": [AGENT[:1], "b"]}])
    assert pair.candidates == ["2 + 2?", "b"]


CUT = [b"", b"{", b"\xff\xfe\x00", b"3", b"PK\x03\x04", b"[1]", b'{"a": Infinity}']
CUT += [b"[" * 100_000, b'{"n": ' + b"9" * 5000 + b"}"]


@pytest.mark.parametrize("tool", TOOLS)
def test_damaged_files_are_named(tmp_path, tool):
    for kind in ("json", "jsonl", "eval", "parquet", "txt"):
        for content in CUT:
            (path := tmp_path / f"x.{kind}").write_bytes(content)
            assert recognised(path) is None
            if content:
                with pytest.raises(DataError, match=rf"x\.{kind}") as raised:
                    data.read(f"{tool}:{path}")
                assert len(str(raised.value)) < 600


@pytest.mark.parametrize(("tool", "content"), SHAPES)
def test_odd_values_anywhere_are_read_or_named_by_the_file(tmp_path, tool, content):
    """Every value of every shape is replaced by each odd one, and left out; nothing but a DataError comes of it."""

    def places(value, way=()):
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, one in inner:
            yield (*way, key)
            yield from places(one, (*way, key))

    path = tmp_path / "odd.json"
    for k, (*way, last) in enumerate(places(content)):
        for odd in (ODD[k % len(ODD)], ODD[(k * 7 + 3) % len(ODD)]):
            changed = json.loads(json.dumps(content))
            inner = changed
            for key in way:
                inner = inner[key]
            inner[last] = odd
            path.write_text(json.dumps(changed).replace("Infinity", "1e400"))
            try:
                data.read(f"{tool}:{path}")
            except DataError as error:
                assert "odd.json" in str(error)  # noqa: PT017
