"""evalbias jury, from Python and as a command: what a panel is worth, in words, tables and JSON."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import answered, as_jsonl, evalbias, refused

from benchmarks.juries import drawn, members_of
from evalbias import jury
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.judged import RATINGS
from evalbias.evaluation.juries import MEAN, Shared, jury_worth

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
        known = {"p_value": 0.001, "unit": "standard deviations"}
        return Estimate(value=value, low=value - half, high=value + half, name=name, label=name, **known)

    members = {"a": estimate("a", 0.3, 0.05), "b": estimate("b", -0.3, 0.05)}
    for mean, half, said in ((0.3, 0.05, "does not remove it"), (0.0, 0.05, "cancels it"), (0.0, 0.4, "too few items")):
        assert said in Shared("verbosity", members, estimate(MEAN, mean, half)).sentence()


def written(n=400, *, own=1.0):
    """In points, and against instruments worked by hand; a judge's own is what the others do not give it."""
    rng = np.random.default_rng(3)
    quality, writers = rng.normal(size=n), np.array(["a", "b", "other"])[np.arange(n) % 3]
    scores = 2 * quality[:, None] + (writers == "a")[:, None] + rng.normal(size=(n, 3))
    scores[:, 1] += own * (writers == "b")
    judged = members_of(scores, quality[:, None] + rng.normal(size=(n, 2)))
    names = ["a", "b", "c"]
    inputs = tuple(str(i // 4) for i in range(n))
    return [
        replace(one, writers=writers.tolist(), inputs=inputs, judge=name)
        for one, name in zip(judged, names, strict=True)
    ]


@pytest.mark.slow
def test_what_each_writer_gets_from_each_judge():
    """In points, and against instruments worked by hand; a judge's own is what the other judges do not give it."""
    found = jury_worth(judged := written())
    assert [*found.writers] == ["a", "b", "c"]
    assert {*found.writers["c"]} == {"a", "b", "other"}
    assert found.writers["c"]["a"].value == pytest.approx(1, abs=0.35)
    assert found.writers["c"]["a"].unit == "points"
    assert found.writers["a"]["a"].low > 0  # as all judges give it: no preference for itself
    assert {*found.own} == {"a", "b"}
    assert found.own["a"].low < 0 < found.own["b"].low
    table = np.column_stack([one.answers for one in judged])
    z = table / table.std(axis=0)
    y, x = z[:, 1] - (z[:, 0] + z[:, 2]) / 2, np.column_stack([np.ones(400), np.array(judged[0].writers) == "b"])
    first, second = judged[0].covariates[RATINGS].T
    sides = [
        (np.column_stack([x, one]), np.column_stack([x, other])) for one, other in ((first, second), (second, first))
    ]
    by_hand = np.linalg.solve(sum(z.T @ w for w, z in sides), sum(z.T @ y for _, z in sides))[1]
    assert found.own["b"].value == pytest.approx(by_hand, rel=1e-6)
    said = f"gets more at equal quality from b (+{by_hand:.2f}) than from the other judges"
    assert any(said in one for one in found.paragraphs)
    table = found.writers_table()
    assert table.headings == ("judge", "a", "b", "other")
    assert [[cell[0] for cell in row[1:]] for row in table.rows] == [["[", "-", "-"], ["+", "[", "-"], ["+", "-", "-"]]
    assert table.rows[2][1] == f"{found.writers['c']['a'].value:+.2f}*"
    assert "in points: what outputs of a writer get more" in table.caption
    assert "No judge of the 2 that wrote outputs is shown to give its own more" in str(jury_worth(written(own=0.0)))


@pytest.mark.slow
def test_the_page_shows_who_prefers_whom(tmp_path):
    rows, judged = [], written(120)
    for k in range(120):
        known = {"id": str(k), "input_id": judged[0].inputs[k], "system": judged[0].writers[k], "output": f"t{k}"}
        rows.append(known | {m.judge: m.answers[k] for m in judged} | {"ratings": judged[0].ratings[k].tolist()})
    file = as_jsonl(tmp_path / "rows.jsonl", rows)
    ran = evalbias("jury", "--data", file, "--judges", "a,b,c", cwd=tmp_path).stdout
    assert "What each writer gets" not in ran
    (folder,) = tmp_path.glob("runs/*")
    page, result = ((folder / name).read_text() for name in ("report.html", "result.json"))
    assert "What each writer gets from each judge" in page
    found = json.loads(result)
    assert found["writers"].keys() == {"a", "b", "c"}
    assert found["own"]["b"]["value"] == pytest.approx(jury_worth(written(120)).own["b"].value)


def test_who_wrote_what_is_told_where_it_is_known(worth):
    assert worth.writers == worth.own == {}
    each_by_its_own = [replace(one, writers=[*one.ids]) for one in written()]
    assert jury_worth(each_by_its_own).writers == {}


def test_what_is_undefined_is_said():
    quality, noise = np.random.default_rng(4).normal(size=(2, 200))
    ratings = np.column_stack([quality, quality])
    opposite = jury_worth(members_of(np.column_stack([quality + noise, -quality - noise]), ratings))
    assert opposite.paragraphs[0].startswith(
        "How many independent votes these two judges are worth cannot be told: their"
    )
    perfect = jury_worth(members_of(np.column_stack([quality, 2 * quality]), ratings))
    assert perfect.paragraphs[0].endswith("How their errors correlate is unknown, because one of them shows none.")
    assert np.isnan(perfect.votes.value)
    against = jury_worth(members_of(np.column_stack([noise - quality, -quality]), ratings))
    assert "No judge is shown to follow quality at all." in against.paragraphs


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
    assert "29 items of 29 inputs are scored by all judges and rated: give 30 or more, of 5 inputs or more" in said
    (tmp_path / "empty.csv").touch()
    assert "empty.csv holds no items" in refused("jury", "--data", "empty.csv", "--judges", "a,b", cwd=tmp_path)
    alone = as_jsonl(tmp_path / "alone.jsonl", [row | {"source": "q"} for row in rows])
    said = refused("jury", "--data", alone, "--judges", "a,b", "--reliability", "1", cwd=tmp_path)
    assert "All items are of one input" in said
    for row in rows:
        del row["rating_1"]
    file = as_jsonl(tmp_path / "unrated.jsonl", rows)
    assert "Nobody rated the items" in refused("jury", "--data", file, "--judges", "a,b", cwd=tmp_path)
