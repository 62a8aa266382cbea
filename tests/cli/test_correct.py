"""evalbias correct, as a user runs it: learn from rated items, apply to new ones, and what is refused."""

import json

import numpy as np
import pytest
from commands import answered, as_jsonl, evalbias, refused

from evalbias import data
from evalbias.evaluation import recorded_scores
from evalbias.measures.corrections import ScoreCorrection, Slope
from evalbias.optimizers.correction import learn_correction
from evalbias.programs.files import load, save


def scored(n=240, *, seed=0, rated=True):
    """Replies whose judge gives points for length, and one item without a score."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        quality, words = rng.normal(), int(rng.integers(5, 60))
        row = {"id": f"r{i}", "input_id": f"i{i // 3}", "source": f"question {i // 3}"}
        row["output"] = f"{i}" + " word" * words
        row["mine"] = None if i == 7 else 3 + quality + words / 40 + 0.3 * rng.normal()
        row["tone"] = rng.normal()
        if rated:
            row["ratings"] = [3 + quality + 0.5 * rng.normal() for _ in range(2)]
        rows.append(row)
    return rows


@pytest.fixture
def file(tmp_path):
    return as_jsonl(tmp_path / "scored.jsonl", scored())


def lines(run):
    return [json.loads(line) for line in (run / "corrected.jsonl").read_text().splitlines()]


def test_a_correction_of_one_systems_outputs_names_the_others(tmp_path):
    rows = [{**row, "system": "mine" if i < 80 else "other"} for i, row in enumerate(scored(120))]
    as_jsonl(tmp_path / "some.jsonl", [row if i < 80 else {**row, "ratings": None} for i, row in enumerate(rows)])
    found = answered("correct", "--data", "some.jsonl", "--scores-field", "mine", "--out", "run", cwd=tmp_path)
    assert found["sentences"][-1].startswith("Nobody rated outputs of other, only of other systems: what the ratings")


def test_a_correction_is_learned_written_and_applied_to_items_that_nobody_rated(file, tmp_path):
    found = answered("correct", "--data", file, "--scores-field", "mine", "--out", "run", cwd=tmp_path)
    assert found["sentences"][0].startswith("Length: all of its effect is subtracted (effect +0.")
    assert (found["n"], found["undefined"]) == (239, 1)
    correction = load(tmp_path / "run/correction.json")
    assert found["correction"] == json.loads((tmp_path / "run/correction.json").read_text())
    assert correction.slopes["length"].slope == pytest.approx(0.7, abs=0.15)  # e times as long: about .7 points more
    rows = lines(tmp_path / "run")
    assert [row["id"] for row in rows] == [f"r{i}" for i in range(240)]
    assert rows[7] == {"id": "r7", "score": None, "corrected": None}
    new = scored(30, seed=3, rated=False)
    as_jsonl(tmp_path / "new.jsonl", new)
    args = ("--scores-field", "mine", "--correction", "run/correction.json", "--out", "applied")
    done = evalbias("correct", "--data", "new.jsonl", *args, cwd=tmp_path)
    assert "29 items corrected, 1 undefined" in done.stdout
    lengths = [len(row["output"]) for row in new]
    scores = [np.nan if row["mine"] is None else row["mine"] for row in new]
    expected = correction(scores, {"length": np.log(lengths)})
    written = [np.nan if row["corrected"] is None else row["corrected"] for row in lines(tmp_path / "applied")]
    assert written == pytest.approx(expected, nan_ok=True)


@pytest.mark.slow
def test_the_command_says_what_the_function_says_and_takes_a_field_as_a_feature(file, tmp_path):
    options = ("--scores-field", "mine", "--feature", "tone", "--out", "run")
    done = evalbias("correct", "--data", file, *options, cwd=tmp_path)
    text = " ".join(done.stdout.split())
    assert "tone: nothing is subtracted, because no effect is shown beside that of length." in text
    assert "Effect of tone" in text
    assert "Same order or tie" in text
    page = (tmp_path / "run/report.html").read_text()
    assert "What was learned" in page
    judged = recorded_scores(list(data.read(file, numbers=["mine"])), "mine")
    learned = learn_correction(judged)
    (row,) = [p for p in learned.front if p.strength == 1]
    assert f"{row.agreement:.3f}" in text


@pytest.mark.slow
def test_pairs_in_both_orders(tmp_path):
    rng = np.random.default_rng(1)
    rows = []
    for i in range(150):
        quality, words = rng.normal(size=2), rng.integers(5, 60, size=2)
        pull = (quality + words / 20) @ [1, -1]
        row = {"id": f"p{i}", "source": f"question {i}", "outputs": ["word " * n for n in words]}
        row["ratings"] = [float(quality @ [1, -1] + rng.normal()) for _ in range(2)]
        row |= {name: int(pull + 0.5 * rng.normal() < 0) for name in ("verdict", "turned")}
        rows.append(row | {"style": [1.0, float(rng.normal())]})
    as_jsonl(tmp_path / "pairs.jsonl", rows)
    orders = ("--winner-field", "verdict", "--swapped-field", "turned", "--feature", "style")
    found = answered("correct", "--data", "pairs.jsonl", *orders, "--out", "run", cwd=tmp_path)
    assert "Position: both orders are averaged, so neither position has an advantage." in found["sentences"]
    assert found["correction"]["slopes"].keys() == {"length"}
    assert found["comparison"]["changes"]["accuracy"]["after"]["value"] > 0.5


@pytest.mark.slow
def test_a_run_that_failed_before_its_first_answer_does_not_block_the_next(tmp_path):
    as_jsonl(tmp_path / "items.jsonl", scored(60, rated=False))
    options = ("--data", "items.jsonl", "--scores-field", "mine", "--out", "run")
    assert "Nobody rated the items" in refused("correct", *options, cwd=tmp_path)
    assert not (tmp_path / "run").exists()
    for systems in (5, 2):
        as_jsonl(tmp_path / "items.jsonl", [{**row, "system": f"s{i % systems}"} for i, row in enumerate(scored(60))])
        last = answered("correct", *options[:-1], f"run{systems}", cwd=tmp_path)["sentences"][-1]
        assert ("over systems too" in last) == (systems == 5)


def test_the_likelihood_is_measured_by_a_model(file, tmp_path, folders):
    lm = ("--likelihood-lm", folders["llama"], "--device", "cpu", "--max-loss", "0.5")
    args = ("--scores-field", "mine", *lm, "--out", "run")
    as_jsonl(tmp_path / "few.jsonl", [{**row, "output": row["output"][:20]} for row in scored(60)])
    found = answered("correct", "--data", "few.jsonl", *args, cwd=tmp_path)
    assert any(one.startswith("Likelihood: ") for one in found["sentences"])
    assert found["correction"]["criterion"] == "quality"
    assert bool(found["correction"]["likelihood_lm"]) == ("likelihood" in found["correction"]["slopes"])


REFUSED = ["", "--scores-field mine --winner-field tone"]
REFUSED += [*(f"--scores-field mine --feature {name}" for name in ("length", "nothing", "source", "ratings", "mine"))]
REFUSED += [*(f"--scores-field mine --feature {name}" for name in ("tone --feature tone", "human_scores"))]
REFUSED += [f"--scores-field mine --data {name}.jsonl" for name in ("bare", "human", "once")]
REFUSED += ["--scores-field mine --data untold.jsonl --correction long.json"]
REFUSED += [*(f"--scores-field mine --correction {name}" for name in ("scored.jsonl", "pairs.json", "wit.json"))]
REFUSED += ["--scores-field mine --correction wit.json --feature tone --max-loss .1"]
REFUSED += ["--scores-field mine --correction wit.json --length graphemes --reliability 1"]
REFUSED += ["--scores-field mine --correction wit.json --criterion tact"]
REFUSED += ["--scores-field mine --correction wit.json --likelihood-lm embedded"]


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(file, tmp_path, words, snapshot):
    as_jsonl(tmp_path / "bare.jsonl", scored(12, rated=False))
    as_jsonl(tmp_path / "human.jsonl", [{**row, "human": 3, "annotator_1": 4} for row in scored(12, rated=False)])
    as_jsonl(tmp_path / "once.jsonl", [{**row, "ratings": row["ratings"][:1]} for row in scored(30)])
    as_jsonl(tmp_path / "untold.jsonl", [{"mine": 3}, {"mine": 4}])
    save(ScoreCorrection({"length": Slope(0.1)}, pairs=True), tmp_path / "pairs.json")
    save(ScoreCorrection({"length": Slope(0.1)}), tmp_path / "long.json")
    known = {"criterion": "wit", "likelihood_lm": "other"}
    save(ScoreCorrection({"likelihood": Slope(0.1)}, **known), tmp_path / "wit.json")
    assert refused("correct", "--data", file.name, *words.split(), cwd=tmp_path) == snapshot
