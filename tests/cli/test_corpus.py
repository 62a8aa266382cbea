"""A corpus that is read in parts: the scores of one call, and a stopped run goes on where it was."""

import json

import pytest
from commands import as_jsonl, records

from evalbias import PointwiseJudge
from evalbias.cli.judge import judge_command, rows_of, summary
from evalbias.cli.models import open_lm
from evalbias.data import DataError, read, world
from evalbias.data.files import file_chunks
from evalbias.data.reading import read_chunks
from evalbias.lm.types import MeasuringLM, Unanswered
from evalbias.options import MeasuringModels, Out
from evalbias.program_options import JudgeOptions
from evalbias.programs.criterion import SYNTHETIC
from evalbias.values import to_json

pytestmark = pytest.mark.slow

ITEMS = 700


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with items.jsonl and judge.json."""
    folder = tmp_path_factory.mktemp("corpus")
    rows = [
        {"id": f"i{n}", "source": item.source, "output": item.output if n != 300 else " "}
        for n, item in enumerate(world.examples(ITEMS, seed=3))
    ]
    as_jsonl(folder / "items.jsonl", rows)
    PointwiseJudge(SYNTHETIC).save(folder / "judge.json")
    return folder


@pytest.fixture(scope="module")
def lm():
    """The embedded judge, opened once; it counts what it is asked and fails on demand."""
    return Watched(open_lm("embedded"))


@pytest.fixture(scope="module")
def expected(corpus, lm):
    """What one process writes."""
    items = read(corpus / "items.jsonl")
    found = PointwiseJudge(SYNTHETIC).batch(items, lm=lm)
    return [json.loads(json.dumps(to_json(row))) for row in rows_of(items, found)]


class Watched(MeasuringLM):
    """A model that notes the sizes of its calls; ``fault`` is the number of the call that answers half and fails."""

    def __init__(self, lm):
        self.lm, self.model, self.sizes, self.fault = lm, lm.model, [], None
        self.provenance = lm.provenance

    def answer(self, questions, answers):
        self.sizes.append(len(questions))
        failing = len(self.sizes) == self.fault
        self.lm.answer(questions[: len(questions) // 2] if failing else questions, answers)
        if failing:
            raise Unanswered("3 workers died")


@pytest.fixture
def judged(corpus, lm, monkeypatch):
    """Function that judges a corpus in a folder, with a model that is asked about so many items at once."""
    monkeypatch.setattr("evalbias.cli.run.open_lm", lambda name, models, *, writes=False: lm)
    monkeypatch.chdir(corpus)

    def judge(out, chunk=256, data="items.jsonl", fault=None, **options):
        lm.sizes, lm.fault, lm.chunk = [], fault, chunk
        asked = JudgeOptions(data, lm="embedded", judge=corpus / "judge.json")
        given = frozenset({"data", "lm", "judge"})
        judge_command(asked, MeasuringModels(workers="ray", **options), Out(out=out, given=given))
        return json.loads((out / "result.json").read_text())

    return judge


def same(file, expected):
    rows = records(file)
    assert [row["id"] for row in rows] == [row["id"] for row in expected]
    assert [row["score"] for row in rows] == pytest.approx([row["score"] for row in expected], abs=1e-5)
    assert len(rows) == ITEMS - 1  # one output is empty


def test_a_file_is_read_in_chunks_as_in_one(corpus, tmp_path):
    file = corpus / "items.jsonl"
    chunks, sha256 = file_chunks(file, 256)
    whole, parts = read(file), [read_chunks(file, [chunk]) for chunk in chunks]
    assert [chunk.lines for chunk in chunks] == [256, 256, 188]
    assert [dict(e) for part in parts for e in part] == [dict(e) for e in whole]
    assert [dict(e) for e in read_chunks(file, chunks[1:])] == [dict(e) for part in parts[1:] for e in part]
    assert (sha256, parts[1].left_out) == (whole.sha256, whole.left_out)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"source": "a", "output": "b"}\n' * 5 + '{"source": "a"}\n')
    with pytest.raises(DataError, match=r"bad.jsonl:6: 'output' is missing"):
        read_chunks(bad, file_chunks(bad, 4)[0][1:])


@pytest.mark.parametrize(("chunk", "sizes"), [(256, [256, 255, 188]), (512, [511, 188]), (1024, [699])])
def test_scores_are_those_of_one_call_and_calls_have_the_size_that_the_model_takes(
    judged, lm, expected, tmp_path, chunk, sizes
):
    brief = judged(tmp_path / "run", chunk)
    assert (brief["left_out"], brief["n"]) == ({"empty output": 1}, ITEMS - 1)
    assert lm.sizes == sizes
    same(tmp_path / "run/scores.jsonl", expected)
    assert len(summary(tmp_path / "run/scores.jsonl")[2]) == ITEMS - 1
    assert json.loads((tmp_path / "run/run.json").read_text())["lm"] == lm.provenance()
    assert not (tmp_path / "run/judgments.jsonl").exists()


def test_a_call_that_fails_keeps_its_answers_and_the_run_goes_on_there_with_other_workers(
    judged, lm, expected, tmp_path
):
    with pytest.raises(Unanswered, match="3 workers died"):
        judged(tmp_path / "run", fault=2)
    assert len(records(tmp_path / "run/scores.jsonl")) == 256
    judged(tmp_path / "run", 512)
    assert lm.sizes == [255 - 127 + 188]  # half of the second call is journaled, and calls are twice as large now
    same(tmp_path / "run/scores.jsonl", expected)


def test_what_a_kill_tore_is_judged_again_and_what_came_before_is_kept(judged, lm, expected, tmp_path):
    judged(tmp_path / "run")
    log, scores = tmp_path / "run/chunks.jsonl", tmp_path / "run/scores.jsonl"
    whole = log.read_text()
    first = whole.splitlines()[0]
    before = scores.read_bytes()[: json.loads(first)["bytes"]]
    for torn, kept in ((first + "\n" + '{"line": 257, "ch', None), (whole, len(before) + 10)):
        log.write_text(torn)
        scores.write_bytes(scores.read_bytes()[:kept])
        judged(tmp_path / "run")
        assert lm.sizes == [255, 188]
        assert scores.read_bytes()[: len(before)] == before
        same(scores, expected)


def test_a_bad_line_is_named_and_the_scores_before_it_are_kept(judged, corpus, tmp_path):
    lines = (corpus / "items.jsonl").read_text().splitlines(keepends=True)
    (corpus / "bad.jsonl").write_text("".join([*lines[:256], '{"source": "a"}\n', *lines[256:]]))
    with pytest.raises(ValueError, match=r"bad.jsonl:257: 'output'"):
        judged(tmp_path / "run", data="bad.jsonl")
    assert len(records(tmp_path / "run/scores.jsonl")) == 256


def test_a_format_may_be_named_and_blank_lines_end_the_bar(judged, corpus, tmp_path, monkeypatch):
    lines = (corpus / "items.jsonl").read_text().splitlines(keepends=True)
    (corpus / "blank.jsonl").write_text("\n".join(lines[:20]))
    counted = []
    monkeypatch.setattr("evalbias.cli.terminal.Progress.advance", lambda self, count: counted.append(count))
    assert judged(tmp_path / "run", data="jsonl:blank.jsonl")["n"] == 20
    assert sum(counted) == 39  # an item or a blank line each


def test_a_corpus_without_items_is_refused(judged, corpus, tmp_path):
    (corpus / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="holds no items"):
        judged(tmp_path / "run", data="empty.jsonl")
