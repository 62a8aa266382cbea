"""How small a difference between systems a judge can show: planted panels, words, and the command."""

import gzip
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from commands import answered, as_jsonl, evalbias, refused
from scipy import stats
from scipy.special import ndtr

from benchmarks.statistical_truth import SLOPE, SPREAD, summarized
from benchmarks.statistical_truth import resolved as called_different
from evalbias import plan
from evalbias.measures.resolution import SHOWN, TESTED, _between, _differences, system_resolution

ERROR = 0.12
CANNOT = "This judge cannot rank these systems: its scores are not shown to rise with quality."


def resolved(rng, **planted):
    scores, ratings, who, where = summarized(rng, **planted)
    return system_resolution(scores, ratings, who, inputs=where)


def rows(rng, **planted):
    scores, ratings, who, where = summarized(rng, **planted)
    return [
        {"input_id": f"i{i}", "system": f"s{s}", "output": f"{i} {s}", "judged": y}
        | {f"rating_{r}": float(h) for r, h in enumerate(one, 1)}
        for y, one, s, i in zip(scores.tolist(), ratings, who, where, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "planted",
    [
        {},
        {"rater_error": 0.2},
        {"share": 0.5},
        {"error": 0.3, "quality": 0.8},
        {"systems": 20, "inputs": 40},
        {"raters": 1},
    ],
)
def test_planted_noise_and_errors_are_recovered_and_the_power_is_as_promised(planted):
    rng, n, error = np.random.default_rng(1), 100, planted.get("error", ERROR)
    found = [resolved(rng, **planted) for _ in range(200)]
    assert np.mean([one.spread for one in found]) == pytest.approx(SPREAD, rel=0.02)
    assert np.isnan([one.slope for one in found]).mean() < 0.05
    assert np.nanmedian([one.slope for one in found]) == pytest.approx(SLOPE, rel=0.1)
    assert np.sqrt(np.nanmean([one.error.value**2 for one in found])) == pytest.approx(error, rel=0.1)
    assert 0.9 <= np.mean([one.error.low <= error <= one.error.high for one in found]) <= 0.98
    # two new systems, by as much quality apart as is shown in 80 of 100 cases, and two of equal quality
    least, critical = (
        np.array([f(one) for one in found]) for f in (lambda r: r.smallest(n), lambda r: r.difference(TESTED, n))
    )
    differ, noise = SLOPE * least / [one.slope for one in found], math.sqrt(SPREAD**2 / n + 2 * error**2)
    assert 0.75 <= np.nanmean(ndtr((differ - critical) / noise)) <= 0.85
    assert 0.75 <= np.nanmean(ndtr((least - critical) / noise)) <= 0.85
    assert 0.03 <= np.nanmean(2 * ndtr(-critical / noise)) <= 0.07


def test_the_formulas_are_sums_over_pairs_of_inputs():
    rng = np.random.default_rng(2)
    present = (rng.random((6, 3, 2)) < 0.8).astype(float)
    cells, which = rng.normal(size=(6, 3, 2)) * present, np.array([[0.0, 1.0], [0.0, 0.0]])

    def over_inputs(s, t):
        places = [(i, k) for i in range(6) for k in range(6) if i != k and present[i, s, 0] and present[k, t, 1]]
        return np.mean([cells[i, s, 0] * cells[k, t, 1] for i, k in places])

    same = np.mean([over_inputs(s, s) for s in range(3)])
    others = np.mean([over_inputs(s, t) for s in range(3) for t in range(3) if s != t])
    assert _between(cells, present, which) == pytest.approx(same - others)
    x, known = cells[..., 0], present[..., 0]
    differences, variances, shared = _differences(x, known)
    common = known[:, 0] * known[:, 1] > 0
    apart = (x[:, 0] - x[:, 1])[common]
    assert (differences[0, 1], variances[0, 1]) == (pytest.approx(apart.mean()), pytest.approx(apart.var(ddof=1)))
    assert shared[0, 1] == len(apart)


def test_what_few_systems_tell_is_drawn_from_its_distribution():
    """Without noise it is Student's t; with it, a mixture of normals, drawn here in place of their quantiles."""
    found, rng = resolved(np.random.default_rng(0), error=0.3), np.random.default_rng(1)
    alone = replace(found, spread=0.0, noise=0.0)
    for level in (TESTED, SHOWN):
        expected = stats.t.ppf(level, 10) * math.sqrt(2 * found.residual)
        assert alone.difference(level, 60) == pytest.approx(expected, rel=0.01)
    tau = np.maximum(10 * found.residual / rng.chisquare(10, size=400_000) - found.noise, 0)
    drawn = np.sqrt(found.spread**2 / 60 + 2 * tau) * rng.normal(size=len(tau))
    assert found.difference(TESTED, 60) == pytest.approx(np.quantile(drawn, TESTED), rel=0.02)
    assert found.difference(TESTED, 60, erring=False) == pytest.approx(1.96 * found.spread / 60**0.5, rel=0.01)
    low, high = np.sqrt(np.quantile(tau, [0.025, 0.975]))
    assert (found.error.low, found.error.high) == (pytest.approx(low, rel=0.02), pytest.approx(high, rel=0.02))


@pytest.mark.slow
@pytest.mark.parametrize("systems", [3, 5, 8])
def test_a_test_at_5_percent_is_one_however_few_systems_there_are(systems):
    found = called_different(systems, 50, sets=100, seed=0)
    assert found["level"] <= 0.06
    assert found["level"] + 0.01 < found["known"]


def test_the_sentence_says_what_inputs_change_and_what_they_do_not():
    found = plan(rows(np.random.default_rng(0), error=0.3, quality=1.0), scores_field="judged", inputs=50)
    first, floor, pairs = found.paragraphs
    assert found.sentence == first
    error = found.found.error.value
    assert found.smallest > (1.959964 + 0.841621) * math.hypot(found.found.spread / 50**0.5, 2**0.5 * error)
    worth = f"{found.smallest:.2f} points ({found.smallest / found.found.slope:.2f} of quality)"
    assert first == f"With 50 inputs, this judge shows a difference of {worth} between two systems in 80 of 100 cases."
    assert floor.startswith(f"No number of inputs shows less than {found.floor:.2f} points (")
    assert f"errs by {found.found.error.value:.2f} points a system (95 % interval over 12 systems" in floor
    assert pairs.startswith(
        f"Of the 66 pairs of these systems, {found.table().rows[0][3]} differ by more; by people's "
    )
    counted = [int(row[3]) for row in found.table().rows]
    assert counted == sorted(counted)
    assert plan(rows(np.random.default_rng(0), error=0.3), scores_field="judged").inputs == 100
    erring = plan(rows(np.random.default_rng(0), error=2.0), scores_field="judged")
    assert erring.sentence.startswith(
        "This judge cannot rank these systems: none of the 66 pairs differs by as much as it shows;"
    )
    assert erring.paragraphs[1].startswith("With 100 inputs, this judge shows a difference of ")


def test_a_judge_without_errors_of_systems_may_be_that():
    found = resolved(np.random.default_rng(3), error=0.0)
    assert found.error.low == 0
    assert found.error.value < 0.05
    assert found.false_alarms(100) < 0.1
    assert 0 < found.smallest(math.inf) < 2.8 * math.sqrt(2) * found.error.high  # none, or one of that size


def test_what_cannot_be_told_is_said():
    rng = np.random.default_rng(4)
    few = plan(rows(np.random.default_rng(0), systems=2), scores_field="judged")
    assert math.isnan(few.smallest)
    assert math.isnan(few.found.error.value)
    assert few.sentence.endswith("cannot be told: three systems are needed (2 here).")
    assert len(few.paragraphs) == 2  # and what a point of quality is worth comes from single outputs
    alike = plan(rows(np.random.default_rng(0), quality=0.02), scores_field="judged")
    assert alike.found.slope == pytest.approx(0.4, abs=0.05)
    assert alike.paragraphs[-1].endswith("comes from single outputs.")
    blind = rows(np.random.default_rng(0))
    for row in blind:
        row["judged"] = float(sum(map(ord, row["output"])) % 7)
    assert plan(blind, scores_field="judged").paragraphs == (CANNOT,)
    assert plan([row | {"judged": 3.0} for row in blind], scores_field="judged").paragraphs == (CANNOT,)
    once = [{k: v for k, v in row.items() if k not in ("rating_2", "rating_3")} for row in rows(rng, quality=0.02)]
    assert plan(once, scores_field="judged").sentence.endswith("people's ratings tell too little of quality.")


def test_systems_without_common_inputs_are_compared_over_inputs_of_each():
    given = rows(np.random.default_rng(0))
    for row in given:
        row["input_id"] += row["system"]
    found = plan(given, scores_field="judged")
    assert found.inputs == 100
    assert found.found.spread == pytest.approx(math.sqrt(SPREAD**2 + 2 * (0.3**2 + 0.2**2)), rel=0.1)
    assert "66 of the 66 pairs of these systems have fewer than two inputs in common" in found.paragraphs[-1]


def test_the_command_says_what_python_says(tmp_path):
    given = rows(np.random.default_rng(0), inputs=40)
    as_jsonl(tmp_path / "items.jsonl", given)
    command = ["plan", "--data", "items.jsonl", "--scores-field", "judged", "--inputs", "200"]
    result, found = answered(*command, cwd=tmp_path), plan(given, scores_field="judged", inputs=200)
    assert result["schema"] == "evalbias.plan/1"
    assert result["paragraphs"] == [*found.paragraphs]
    assert result["smallest"] == pytest.approx(found.smallest)
    assert result["found"]["error"]["units"] == 12
    (report,) = tmp_path.glob("runs/*/report.html")
    assert "this judge shows a difference of" in report.read_text()
    assert "any number" in evalbias(*command, cwd=tmp_path).stdout


def test_bad_input_is_named(tmp_path):
    given = rows(np.random.default_rng(0), inputs=5)
    with pytest.raises(ValueError, match="`inputs` is 0: give one or more"):
        plan(given, scores_field="judged", inputs=0)
    with pytest.raises(ValueError, match="need two rated inputs each, and s0 answered one: add items"):
        plan([row for row in given if row["system"] != "s0" or row["input_id"] == "i1"], scores_field="judged")
    with pytest.raises(ValueError, match="need two rated inputs each, and 1 has such"):
        plan([row for row in given if row["system"] == "s0"], scores_field="judged")
    without = [{k: v for k, v in row.items() if k != "system"} for row in given]
    as_jsonl(tmp_path / "items.jsonl", without)
    said = refused("plan", "--data", "items.jsonl", "--scores-field", "judged", cwd=tmp_path)
    assert "The item '1' does not name the system that wrote it" in said
    part = [row | {"id": f"r{k}", "system": "" if k == 3 else row["system"]} for k, row in enumerate(given)]
    with pytest.raises(ValueError, match="The item 'r3' does not name the system"):
        plan(part, scores_field="judged")
    unrated = [{k: v for k, v in row.items() if not k.startswith("rating")} for row in given]
    with pytest.raises(ValueError, match="Nobody rated the items"):
        plan(unrated, scores_field="judged")


@pytest.mark.slow
@pytest.mark.parametrize(("criterion", "shown", "differ"), [("fluency", 0.19, 38), ("coherence", 4.26, 0)])
def test_gpt_4_ranks_summarizers_by_fluency_and_not_by_coherence(criterion, shown, differ, data_dir):
    with gzip.open(data_dir / "judges/summeval_scores.jsonl.gz", "rt") as lines:
        given = [json.loads(line) for line in lines]
    items = [
        {name: row[name] for name in ("id", "input_id", "system", "output", "ratings")}
        | {"judged": row["judges"]["gpt-4-0314"][criterion]}
        for row in given
    ]
    found = plan(items, scores_field="judged", criterion=criterion)
    assert found.smallest / found.found.slope == pytest.approx(shown, abs=0.01)
    wide = np.abs(found.found.differences) > found.smallest
    assert wide.sum() == differ
    assert (found.found.differences * found.found.rated_differences)[wide].min(initial=1.0) > 0  # as people see them
