"""evalbias probe, as a user runs it: emit, score, read; a judge that is asked; and what is refused."""

import json

import pandas
import pytest
from commands import answered, as_jsonl, evalbias, refused

from evalbias.data import world
from evalbias.programs import SYNTHETIC, PointwiseJudge

ROWS = [{"id": f"r{k}", "source": f"q{k // 2}", "output": f"Reply {k}. It is fine."} for k in range(40)]


@pytest.fixture
def emitted(tmp_path):
    """A file of probe emit, and its rows."""
    as_jsonl(tmp_path / "items.jsonl", ROWS)
    kinds = ("--kind", "label", "--kind", "bold")
    done = evalbias("probe", "emit", "--data", "items.jsonl", "--out", "emitted.jsonl", *kinds, cwd=tmp_path)
    assert done.stdout == (
        "emitted.jsonl: 200 rows of 40 items. Let your judge answer each row, in a field of its own, then: evalbias "
        "probe read --data emitted.jsonl --scores-field SCORE\n"
    )
    return [json.loads(line) for line in (tmp_path / "emitted.jsonl").read_text().splitlines()]


def scores(rows):
    return [{"id": row["id"], "input_id": row["input_id"], "mine": 3 + ("GPT-4" in row["output"])} for row in rows]


def test_a_file_is_emitted_scored_and_read(emitted, tmp_path):
    as_jsonl(tmp_path / "scored.jsonl", scores(emitted)[1:])  # without the texts, and without one original
    words = ("probe", "read", "--data", "scored.jsonl", "--scores-field", "mine", "--scale", "1-5")
    found = answered(*words, cwd=tmp_path)
    assert found["schema"]
    assert found["verdict"].startswith("The judge is moved by what does not change the quality: a label of its writer")
    assert found["kinds"]["label"]["status"] == "biased"
    assert found["kinds"]["label"]["estimate"]["value"] == 1
    assert (found["kinds"]["label"]["estimate"]["n"], found["kinds"]["label"]["estimate"]["units"]) == (39, 20)
    assert (found["missing"], found["left_out"]) == (["r0|original|1"], 4)
    done = evalbias(*words, "--out", "run", cwd=tmp_path)
    assert "1 row without a score (r0|original|1); 4 scores of edits or placebos left out for that." in done.stdout
    assert json.loads((tmp_path / "run/result.json").read_text())["kinds"]["bold"]["status"] == "too few items"
    assert "What moves the judge" in (tmp_path / "run/report.html").read_text()


def test_a_kind_without_a_complete_item_is_told_and_the_others_are_read(emitted, tmp_path):
    originals = [one for one in scores(emitted) if "|original|" in one["id"]]
    as_jsonl(tmp_path / "originals.jsonl", originals)
    said = refused("probe", "read", "--data", "originals.jsonl", "--scores-field", "mine", cwd=tmp_path)
    assert "Every row is an original, and none has an edit: give all rows of probe emit back." in said
    scored = [one | ({"mine": None} if one["id"].endswith("|bold|edit") else {}) for one in scores(emitted)]
    as_jsonl(tmp_path / "scored.jsonl", scored)
    found = answered("probe", "read", "--data", "scored.jsonl", "--scores-field", "mine", cwd=tmp_path)
    assert (found["kinds"]["bold"]["status"], found["kinds"]["label"]["status"]) == ("not measured", "biased")
    assert (len(found["missing"]), found["left_out"]) == (40, 40)


@pytest.mark.parametrize("exchanged", ["", "output", "id", "text_digest"])
def test_rows_whose_texts_were_exchanged_are_refused(emitted, exchanged, tmp_path):
    rows = [{**row, "mine": 3 + n % 2} for n, row in enumerate(emitted)]
    if exchanged:
        rows[0][exchanged], rows[7][exchanged] = rows[7][exchanged], rows[0][exchanged]
    pandas.DataFrame(rows).to_csv(tmp_path / "scored.csv", index=False)
    words = ("probe", "read", "--data", "scored.csv", "--scores-field", "mine")
    if exchanged:
        assert f"The row '{rows[0]['id']}'" in refused(*words, cwd=tmp_path)
    else:
        assert answered(*words, cwd=tmp_path)["missing"] == []


def test_pairs_are_emitted_and_read_in_both_orders(tmp_path):
    pairs = [{"id": f"p{k}", "source": f"q{k}", "outputs": [f"Yes {k}.", f"No {k}."]} for k in range(30)]
    as_jsonl(tmp_path / "pairs.jsonl", pairs)
    words = ("--data", "pairs.jsonl", "--out", "emitted.jsonl", "--kind", "label")
    assert "--winner-field CHOICE --swapped-field SWAPPED" in evalbias("probe", "emit", *words, cwd=tmp_path).stdout
    rows = [json.loads(line) for line in (tmp_path / "emitted.jsonl").read_text().splitlines()]
    for row in rows:
        labelled = ["GPT-4" in text for text in row["outputs"]]
        row |= {"a": labelled.index(True), "b": labelled.index(True)} if any(labelled) else {"a": 0, "b": 1}
    as_jsonl(tmp_path / "judged.jsonl", rows)
    fields = ("--winner-field", "a", "--swapped-field", "b")
    found = answered("probe", "read", "--data", "judged.jsonl", *fields, cwd=tmp_path)
    assert found["pairwise"] is True
    assert found["kinds"]["label"]["estimate"]["value"] == 0.5


@pytest.mark.slow
def test_a_judge_is_asked(tmp_path):
    rows = [dict(one) for one in world.examples(12, seed=1)]
    as_jsonl(tmp_path / "items.jsonl", rows)
    PointwiseJudge(SYNTHETIC).save(tmp_path / "judge.json")
    words = ("--data", "items.jsonl", "--judge", "judge.json", "--lm", "embedded", "--limit", 8)
    kinds = ("--kind", "authority")
    found = answered("probe", "run", *words, *kinds, "--out", "run", cwd=tmp_path)
    assert (found["n"], [*found["kinds"]]) == (8, ["authority"])
    again = evalbias("probe", "run", *words, *kinds, "--out", "run", cwd=tmp_path)
    assert "answers asked 0, replayed 24" in again.stdout


REFUSED = ["emit --data items.jsonl --out items.jsonl", "emit --data items.jsonl --out new.csv"]
REFUSED += ["emit --data items.jsonl --out new.jsonl --kind fame", "read --data items.jsonl"]
REFUSED += ["read --data items.jsonl --scores-field mine", "read --data items.jsonl --winner-field mine --scale 1-5"]
REFUSED += ["run --data items.jsonl --lm embedded"]
REFUSED += ["run --data items.jsonl --lm embedded --criterion q:good? --kind order:x"]


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(words, tmp_path, snapshot):
    as_jsonl(tmp_path / "items.jsonl", [{**row, "mine": 3} for row in ROWS])
    assert refused("probe", *words.split(), cwd=tmp_path) == snapshot
