"""evalbias jury, from Python and as a command: what a panel is worth, in words, tables and JSON."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import answered, as_jsonl, evalbias, refused

from benchmarks.juries import drawn
from evalbias import jury
from evalbias.evaluation.juries import MEAN, Shared, named
from evalbias.measures.resample import Interval

PANEL = Path(__file__).parents[2] / "docs/data/panel.csv"
MAP = {"source": "facts", "output": "reply"}
JUDGES = ["large", "small-1", "small-2", "other"]
COMMAND = ["jury", "--data", PANEL, "--map", "source=facts,output=reply"]


@pytest.fixture(scope="module")
def worth():
    return jury(PANEL, mapping=MAP, judges=JUDGES, costs={"large": 10}, families=["small*"])


def test_the_first_sentence_is_the_answer(worth):
    first, second, third, without, family = worth.paragraphs
    assert first.startswith("These 4 judges are worth 2.9 independent votes (95 % interval 1.9 to")
    assert "seem to correlate at +0.40" in first
    assert worth.seeming > worth.error_correlation.high  # the raters' noise alone
    assert "the best judge alone, large, at +0.88" in second
    assert second.endswith("not shown to be better or worse: -0.01 (95 % interval -0.10 to +0.07).")
    assert "large, small-1 and other (cost 12 of 13)" in third
    assert without == "The mean is better without small-2 (+0.03)."
    assert family.startswith("Judges small* err more alike than others: error correlation +0.83")


def test_one_judge_is_what_the_others_lack(worth):
    assert worth.best == "large"
    assert worth.worth["large"].low > 0 > worth.worth["small-2"].high
    assert worth.correlations[1, 2] == worth.correlations.max(where=~np.eye(4, dtype=bool), initial=-1) > 0.5
    assert [one.cost for one in worth.subsets] == [1, 2, 10, 11, 12]


def test_the_command_says_what_python_says(worth, tmp_path):
    result = answered(*COMMAND, "--judges", ",".join(JUDGES), "--cost", "large=10", "--family", "small*", cwd=tmp_path)
    assert result["schema"] == "evalbias.jury/1"
    assert result["paragraphs"] == [*worth.paragraphs]
    assert result["votes"]["value"] == pytest.approx(worth.votes.value)
    assert result["subsets"][0] == {"judges": ["other"], "cost": 1, "validity": pytest.approx(0.683, abs=0.01)}
    assert result["shared"]["verbosity"].keys() == {*JUDGES, MEAN}
    (report,) = tmp_path.glob("runs/*/report.html")
    assert "worth 2.9 independent votes" in report.read_text()
    shown = evalbias(*COMMAND, "--judges", "large,other", cwd=tmp_path).stdout
    assert "These two judges are worth" in " ".join(shown.split())


def test_pairs_and_verdicts_in_words(tmp_path):
    """Choices in both orders, of judges who lean to the first position; and of verdicts in words without texts."""
    rng, pairs, verdicts = np.random.default_rng(0), [], []
    for i in range(300):
        better = int(rng.integers(2))
        right = rng.random((2, 3)) < [0.9, 0.7, 0.7]
        first = rng.random(3) < [0.0, 0.3, 0.0]  # the second leans to the first position
        row = {"id": str(i), "outputs": [f"a{i}", f"b{i}"], "better": better}
        for k, name in enumerate("xyz"):
            row[name] = 0 if first[k] else better if right[0, k] else 1 - better
            row[f"{name}/2"] = 1 if first[k] else better if right[1, k] else 1 - better
        pairs.append(row)
        words = ["pass" if good else "fail" for good in (right[0] if better else ~right[0])]
        verdicts.append(dict(zip("xyz", words, strict=True)) | {"label": "yes" if better else "no"})
    file = as_jsonl(tmp_path / "pairs.jsonl", pairs)
    found = jury(file, judges=list("xyz"), swapped_field="{judge}/2", reliability=1)
    (position,) = (one for one in found.shared if one.bias == "position")
    assert set(position.biased) == {"y"}
    assert 0.03 < position.mean.value < position.members["y"].value
    assert found.best == "x"
    judged = jury(as_jsonl(tmp_path / "verdicts.jsonl", verdicts), judges=list("xyz"), reliability=1)
    assert judged.validities["x"].value == pytest.approx(0.8, abs=0.08)
    assert json.dumps(judged.to_dict())


def test_what_members_share_stays_and_what_differs_cancels():
    def estimate(name, value, half):
        return named(name, Interval(value, value - half, value + half, p_value=0.001, unit="standard deviations"))

    members = {"a": estimate("a", 0.3, 0.05), "b": estimate("b", -0.3, 0.05)}
    for mean, half, said in ((0.3, 0.05, "does not remove it"), (0.0, 0.05, "cancels it"), (0.0, 0.4, "too few items")):
        assert said in Shared("verbosity", members, estimate(MEAN, mean, half)).sentence()


def test_what_a_user_can_correct(tmp_path):
    scores, ratings, _ = drawn(np.random.default_rng(0), 40, 2, 0.3)
    rows = [
        {"output": f"t{i}", "a": s[0], "b": s[1], "c": 3, "rating_1": r[0]}
        for i, (s, r) in enumerate(zip(scores, ratings, strict=True))
    ]
    file = as_jsonl(tmp_path / "rows.jsonl", rows)
    ask = ["jury", "--data", file, "--judges"]
    assert "name two or more fields, each once" in refused(*ask, "a", cwd=tmp_path)
    assert "name two or more fields, each once" in refused(*ask, "a,a", cwd=tmp_path)
    assert "No item has a field 'd'" in refused(*ask, "a,d", cwd=tmp_path)
    assert "state the --reliability of one rating" in refused(*ask, "a,b", cwd=tmp_path)
    assert "judge 'c' gives all the same score" in refused(*ask, "a,c", "--reliability", "1", cwd=tmp_path)
    assert "--cost names 'd'" in refused(*ask, "a,b", "--reliability", "1", "--cost", "d=3", cwd=tmp_path)
    assert "--cost: write JUDGE=COST" in refused(*ask, "a,b", "--cost", "a=dear", cwd=tmp_path)
    assert "is matched by all judges" in refused(*ask, "a,b", "--reliability", "1", "--family", "*", cwd=tmp_path)
    few = as_jsonl(tmp_path / "few.jsonl", rows[:29])
    said = refused("jury", "--data", few, "--judges", "a,b", "--reliability", "1", cwd=tmp_path)
    assert "29 items are scored by all judges and rated: give 30 or more" in said
    for row in rows:
        del row["rating_1"]
    file = as_jsonl(tmp_path / "unrated.jsonl", rows)
    assert "Nobody rated the items" in refused("jury", "--data", file, "--judges", "a,b", cwd=tmp_path)
