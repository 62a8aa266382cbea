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
    return jury(PANEL, mapping=MAP, judges=JUDGES, costs={"large": 10})


@pytest.mark.parametrize("cost", ["x", None, float("nan"), -1])
def test_a_cost_that_is_no_number_is_named(cost):
    with pytest.raises(ValueError, match=r"`costs` says .* of large: give finite numbers of 0 or more, such as 30"):
        jury(PANEL, mapping=MAP, judges=JUDGES, costs={"large": cost})


def test_one_judge_is_what_the_others_lack(worth, snapshot):
    errors = worth.errors
    assert ([*worth.paragraphs], worth.best) == (snapshot, "large")
    assert errors.seeming > errors.correlation.high  # the raters' noise alone
    assert worth.worth["large"].low > 0 > worth.worth["small-2"].high
    assert errors.correlations[1, 2] == errors.correlations.max(where=~np.eye(4, dtype=bool), initial=-1) > 0.5


@pytest.mark.slow
def test_the_command_says_what_python_says(worth, tmp_path):
    result = answered(*COMMAND, "--judges", ",".join(JUDGES), "--cost", "large=10", cwd=tmp_path)
    assert result["schema"] == "evalbias.jury/1"
    assert result["paragraphs"] == [*worth.paragraphs]
    assert result["votes"]["value"] == pytest.approx(worth.votes.value)
    assert result["validities"]["other"]["value"] == pytest.approx(0.683, abs=0.01)
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


def test_what_members_share_stays_and_what_differs_cancels(snapshot):
    def estimate(name, value, half):
        known = {"p_value": 0.001, "unit": "standard deviations"}
        return Estimate(value=value, low=value - half, high=value + half, name=name, label=name, **known)

    members = {"a": estimate("a", 0.3, 0.05), "b": estimate("b", -0.3, 0.05)}
    means = ((0.3, 0.05), (0.0, 0.05), (0.0, 0.4))  # does not remove it, cancels it, and too few items
    assert [Shared("verbosity", members, estimate(MEAN, *mean)).sentence() for mean in means] == snapshot


def written(n=400, *, own=1.0):
    rng = np.random.default_rng(3)
    quality, writers = rng.normal(size=n), np.array(["a", "b", "other"])[np.arange(n) % 3]
    scores = 2 * quality[:, None] + (writers == "a")[:, None] + rng.normal(size=(n, 3))
    scores[:, 1] += own * (writers == "b")
    judged = members_of(scores, quality[:, None] + rng.normal(size=(n, 2)))
    known = {"writers": writers.tolist(), "inputs": tuple(str(i // 4) for i in range(n))}
    return [replace(member, judge=name, **known) for member, name in zip(judged, "abc", strict=True)]


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
    sides = [np.column_stack([x, ratings]) for ratings in judged[0].covariates[RATINGS].T]
    sides = [sides, sides[::-1]]
    by_hand = np.linalg.solve(sum(z.T @ w for w, z in sides), sum(z.T @ y for _, z in sides))[1]
    assert found.own["b"].value == pytest.approx(by_hand, rel=1e-6)
    said = f"gets more at equal quality from b (+{by_hand:.2f}) than from the other judges"
    assert any(said in one for one in found.paragraphs)
    table = found.tables[-1]
    assert table.headings == ("judge", "a", "b", "other")
    assert [[cell[0] for cell in row[1:]] for row in table.rows] == [["[", "-", "-"], ["+", "[", "-"], ["+", "-", "-"]]
    assert table.rows[2][1] == f"{found.writers['c']['a'].value:+.2f}*"
    assert "in points: what outputs of a writer get more" in table.caption
    assert "No judge of the 2 that wrote outputs is shown to give its own more" in str(jury_worth(written(own=0.0)))


def test_who_wrote_what_is_told_where_it_is_known(worth):
    assert worth.writers == worth.own == {}
    each_by_its_own = [replace(one, writers=[*one.ids]) for one in written()]
    assert jury_worth(each_by_its_own).writers == {}


def test_what_is_undefined_is_said(snapshot):
    quality, noise = np.random.default_rng(4).normal(size=(2, 200))
    ratings = np.column_stack([quality, quality])
    panels = {"opposite": (quality + noise, -quality - noise), "perfect": (quality, 2 * quality)}
    panels |= {"against quality": (noise - quality, -quality)}
    found = {name: jury_worth(members_of(np.column_stack(panel), ratings)) for name, panel in panels.items()}
    assert np.isnan(found["perfect"].votes.value)
    assert "No judge is shown to follow quality at all." in found["against quality"].paragraphs
    assert {name: one.paragraphs[0] for name, one in found.items()} == snapshot


SCORES, RATED, _ = drawn(np.random.default_rng(0), 40, 2, 0.3)
ROWS = [{"output": f"t{i}", "a": a, "b": b, "c": 3, "rating_1": RATED[i, 0]} for i, (a, b) in enumerate(SCORES)]

CORRECTABLE = [(ROWS, "a", "--judges a"), (ROWS, "a,a", "--judges a"), (ROWS, "a,d", "'d'")]
CORRECTABLE += [(ROWS, "a,b", "--reliability"), (ROWS, "a,c --reliability 1", "'c' gives all the same score")]
CORRECTABLE += [(ROWS, "a,b --reliability 1 --cost d=3", "--cost names 'd'")]
CORRECTABLE += [(ROWS, "a,b --cost a=dear", "--cost: write")]
CORRECTABLE += [(ROWS[:29], "a,b --reliability 1", "29 items of 29 inputs"), ([], "a,b", "no items")]
CORRECTABLE += [([row | {"source": "q"} for row in ROWS], "a,b --reliability 1", "of one input")]
CORRECTABLE += [([{name: row[name] for name in ("output", "a", "b")} for row in ROWS], "a,b", "Nobody rated")]


@pytest.mark.parametrize(("rows", "options", "said"), CORRECTABLE)
def test_what_a_user_can_correct(tmp_path, rows, options, said):
    file = as_jsonl(tmp_path / "rows.jsonl", rows)
    assert said in refused("jury", "--data", file, "--judges", *options.split(), cwd=tmp_path)
