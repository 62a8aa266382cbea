"""What commands print and write of hostile texts: in every field of the data, in names, and from a server."""

import io
import json
import re
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import dspy
import hostile
import numpy as np
import pytest
from commands import evalbias
from fake_server import serving
from fakes import FormulaLM
from hypothesis import given, settings
from hypothesis import strategies as st
from report.test_page import Reader, check_scripts

from evalbias import audit, judge_examples
from evalbias.cli.demo import introduction
from evalbias.data import world
from evalbias.evaluation import Judged
from evalbias.evaluation.judged import HUMAN_SCORES
from evalbias.programs import SYNTHETIC, Criterion, PairwiseJudge, PointwiseJudge

pytestmark = pytest.mark.drawn
LONG = "x" * 2_000_000


def check(told, codes=(0,)):
    assert told.returncode in codes, told.stderr
    hostile.check_printed(f"{told.stdout}\n{told.stderr}")


def check_audit(folder, kind, one, other, name):
    """Audit recorded scores or choices whose texts, headers and names are hostile, and check what is shown of them."""
    whole = re.sub("[\ud800-\udfff]", "", one)  # in a judged text or an id, a lone surrogate is an error
    field, rows = f"j{name}", []
    for k in range(12):
        row = {"id": f"{whole}{k}", "source": f"s {whole} {k // 4}", "group": (one, other)[k % 2], f"x{name}": 1}
        scored = {"output": f"o {whole} {k}", "system": (one, f"y{other}", "z")[k % 3], "ratings": [k % 5, k % 4]}
        paired = {"outputs": [whole + "a", whole + "bc"], "systems": [one, f"y{other}"], "better": k % 2, "swap": 0}
        rows.append({**row, "input_id": f"{k // 4}", field: k % 2, **(scored if kind == "scores" else paired)})
    (folder / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = {"scores": ["--scores-field", field, "--own-system", f"y{other}"]}
    options = ["--by", "group", *named.get(kind, ["--winner-field", field, "--swapped-field", "swap"])]
    told = evalbias("audit", "--data", "items.jsonl", *options, "--out", "run", cwd=folder, check=False)
    check(told, (0, 2))
    if told.returncode:
        return
    result = evalbias("audit", "--data", "items.jsonl", *options, "--out", "run", "--json", cwd=folder)
    check(result)
    assert json.loads(result.stdout)["judge"].endswith(repr(field))  # whole, behind escapes
    check(evalbias("runs", "show", "run", cwd=folder))
    page = (folder / "run/report.html").read_text(encoding="utf-8")
    read = Reader(page)  # which refuses attributes that run code
    assert not {"img", "iframe", "base", "object"} & set(read.tags)
    check_scripts(page)
    assert set(read.loads) <= {"data:,"}
    assert hostile.obeyed(page) == []
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(svg)


@pytest.mark.parametrize("kind", ["scores", "choices"])
def test_the_worst_text_in_every_field(tmp_path, kind):
    check_audit(tmp_path, kind, f"{hostile.WORST}\ud83d", "\u202eb", hostile.WORST)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.sampled_from(["scores", "choices"]), hostile.TEXTS, hostile.TEXTS, hostile.TEXTS)
def test_any_text_in_every_field(kind, one, other, name):
    with tempfile.TemporaryDirectory() as folder:
        check_audit(Path(folder), kind, one, other, name)


def test_the_name_of_a_folder(tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    run = tmp_path / "runs" / hostile.WORST.translate({ord("/"): "|", 0: None})[:200]
    run.mkdir()
    (run / "run.json").write_text('{"command": "judge", "versions": {"evalbias": "0"}}')
    check(evalbias("runs", "list", cwd=tmp_path))
    check(evalbias("runs", "show", run.relative_to(tmp_path), cwd=tmp_path))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    told = evalbias("runs", "delete", run.relative_to(tmp_path), cwd=tmp_path, check=False)
    check(told, (2,))
    assert "give --yes" in told.stderr  # nobody answers the question
    check(evalbias("runs", "delete", run.relative_to(tmp_path), "--yes", cwd=tmp_path))


@pytest.mark.parametrize("judge", [
    lambda: audit([{"id": "a", "source": "s", "output": "o", "rating": 1, LONG: 1.0}], scores_field="mine"),
    lambda: Criterion(f"{LONG}:", "a definition"),
    lambda: judge_examples(
        PointwiseJudge(SYNTHETIC), [dspy.Example(id=LONG, source="s", output="")], lm=FormulaLM()
    ),
    lambda: judge_examples(
        PairwiseJudge(SYNTHETIC), [dspy.Example(id=LONG, source="s", candidates=["a"])], lm=FormulaLM()
    ),
])  # fmt: skip
def test_no_message_holds_a_whole_text(judge):
    with pytest.raises(ValueError, match="xxx") as raised:
        judge()
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize(("path", "fault", "code"), [
    ("/v1/models", lambda answer: {"data": [{"id": hostile.WORST, "owned_by": "vllm"}]}, 2),
    ("/version", lambda answer: {"version": hostile.WORST}, 0),
    ("/v1/completions", (400, {"error": {"message": hostile.WORST}}), 2),
    ("/v1/completions", (503, {"error": {"message": hostile.WORST}}), 0),
])  # fmt: skip
def test_what_a_server_says(lms, tmp_path, caplog, path, fault, code):
    rows = [{"id": str(k), "source": "s", "output": e.output} for k, e in enumerate(world.examples(4, seed=1))]
    (tmp_path / "items.json").write_text(json.dumps(rows))
    asked = []

    def faults(_, asked_path, body):
        if asked_path == "/v1/completions" and isinstance(fault, tuple):
            asked.append(body)
            return fault if fault[0] == 400 or len(asked) in (2, 3) else None
        return fault if asked_path == path else None

    with serving(lms["qwen2"], "vllm", faults) as (address, fake):
        fake.context = 4096
        options = ["--lm", "tiny", "--api-base", address, "--criterion", "quality: is it good?", "--out", "run"]
        told = evalbias("judge", "--data", "items.json", *options, cwd=tmp_path, check=False)
    check(told, (code,))
    said = "\n".join([told.stderr, *(record.getMessage() for record in caplog.records)])
    hostile.check_printed(said)
    assert "error::a" in said


def test_the_example_is_the_text_that_the_judge_overrates_most():
    examples = [dspy.Example(id=name, source=f"data {name}", output=f"text {name}") for name in "abc"]
    human = {HUMAN_SCORES: np.array([4.0, 2.0, 1.0])}
    scores = np.array([[4.5, 4.25, np.nan], [4, 2.5, 1]])
    before, after = (Judged(tuple("abc"), "quality", row, human, examples=examples) for row in scores)
    text = introduction(Criterion("quality", "is it good?"), before, after)
    assert "from 1 to 5: is it good?" in text
    assert "  Source: data b\n  Output: text b\n" in text
    assert text.endswith("  Score from people 2.00, from the judge 4.25, from the compiled judge 2.50.")
