"""A short form of the simulation: tests hold their level, intervals cover, and the plain bootstrap does not."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import alarms, certificates
from benchmarks import statistical_truth as truth
from evalbias.measures import Draws

SETS = 120
"""Data sets: a share of 95 % has a standard error of 2 %."""


def checked(world, **options):
    found = truth.check(world, truth.WORLDS[world], sets=SETS, n_resamples=199, n_swaps=99, seed=1, **options)
    return {one["statistic"]: SimpleNamespace(**one) for one in found}


def holds(one):
    assert one.rejected <= 0.11
    assert 0.89 <= one.covered <= 1.0
    assert 0.84 <= one.difference <= 1.0
    assert one.sets == SETS


@pytest.fixture(scope="module")
def fair():
    return checked("fair", n=60)


@pytest.mark.slow
def test_a_fair_judge_is_not_called_unfair(fair):
    found = fair
    for one in found.values():
        holds(one)
    assert found["fairness"].truth == 0
    assert found["fairness"].mean < -0.015
    assert found["fairness"].percentile < 0.9
    assert 0.68 < found["position consistency"].truth < 0.74


@pytest.mark.slow
def test_a_model_without_self_bias_has_no_skewness():
    found = checked("symmetric", n=40)
    for one in found.values():
        holds(one)
    assert found["Dskew"].percentile == 0
    assert found["Dskew"].mean > 0.01


@pytest.mark.slow
def test_documents_are_the_units():
    found = checked("symmetric", n=80, outputs=4)["Bias"]
    holds(found)
    assert found.itemwise > found.rejected + 0.05
    assert found.outputs == 4


def test_outputs_of_a_document_share_their_part():
    x = truth.normal(np.random.default_rng(0), 40_000, 4).reshape(-1, 4)
    assert x.var() == pytest.approx(1, abs=0.05)
    assert np.corrcoef(x[:, 0], x[:, 3])[0, 1] == pytest.approx(0.4, abs=0.03)


@pytest.mark.slow
def test_the_power_of_every_statistic_is_told_by_size():
    rows = [*truth.power(30, sets=4, seed=0), *truth.power(200, sets=4, seed=0)]
    found = {(row["statistic"], row["judges"], row["n"]): row["found"] for row in rows}
    assert found["Bias", "own scores 1.0 points too high and 0", 200] == 1
    assert found["first rate", "pull of the first position 0.5 sd and 0", 200] == 1
    assert {row["statistic"] for row in rows} >= {"BiasScore", "fairness", "Dskew", "ranking agreement"}
    lines = truth.power_table(rows[::-1]).splitlines()
    assert lines[0] == "| statistic | judges | n = 30 (4 sets) | n = 200 (4 sets) |"
    assert len(lines) == 2 + len(rows) // 2


@pytest.mark.slow
def test_equal_judges_differ_in_position_as_often_as_the_level_says(fair):
    assert fair["first rate"].rejected == pytest.approx(0.05, abs=0.04)
    assert fair["position consistency"].rejected == pytest.approx(0.05, abs=0.04)
    assert fair["fairness"].rejected < 0.02  # see estimate_fairness


@pytest.mark.slow
def test_a_planted_effect_is_recovered_and_found():
    none, large = (truth.check_effect(e, n=120, outputs=1, sets=80, seed=0) for e in (0.0, 0.3))
    assert abs(none["truth"]) < 0.01 < 0.2 < large["truth"] < 0.3
    assert none["mean"] == pytest.approx(none["truth"], abs=0.04)
    assert large["mean"] == pytest.approx(large["truth"], abs=0.04)
    assert none["found"] < 0.15 < 0.6 < large["found"]
    assert min(none["covered"], large["covered"]) > 0.85
    lines = truth.effect_table([none, {**large, "n": 3000, "mean": large["truth"] + 0.03}]).splitlines()
    assert lines[-2].startswith("| +0.0 | ")
    assert f"| **{large['truth'] + 0.03:+.3f}** |" in lines[-1]


@pytest.mark.slow
def test_scales_of_three_raters_do_no_harm_and_those_of_two_are_told_apart_by_nobody():
    rows = truth.check_scales(120, sets=60, seed=0)
    found = {tuple(row["scales"]): row for row in rows}
    assert all(abs(found[scales]["mean"]) < 0.05 for scales in ((1, 1, 1), (0.7, 1, 1.3), (0.5, 1, 1.5), (1, 1)))
    assert found[0.6, 1.4]["mean"] < -0.1
    lines = truth.scales_table([{**rows[0], "found": 0.061}, {**rows[1], "found": 0.05}]).splitlines()
    assert lines[-2].endswith("| **6.1 %** |")
    assert lines[-1].startswith("| 0.7, 1, 1.3 | 120 | 60 | ")


def test_the_table_marks_what_misses_its_goal(snapshot):
    names = ("world", "statistic", "n", "outputs", "sets", "truth", "mean", "rejected", "itemwise", "covered", "part")
    names += ("percentile", "difference")
    own = ("fair", "fairness", 30, 1, 2000, 0.0, -0.1, 0.05, math.nan, 0.972, 400, 0.6, 0.95)
    shared = ("fair", "fairness", 120, 4, 2000, 0.0, -0.1, 0.02, 0.12, 0.95, 400, 0.94, 0.95)
    moved = [{"effect": 0.3, "n": n, "mean-range": m, "z-score": 0.17} for n, m in ((30, 0.1), (568, -0.09))]
    strength = {"statistic": "BiasScore", "judges": "effect .2 and 0", "n": 120, "sets": 400, "found": 0.41}
    worlds = truth.worlds_table([dict(zip(names, row, strict=True)) for row in (shared, own)])
    assert [worlds, truth.power_table([strength]), truth.drift_table(moved)] == snapshot


@pytest.mark.slow
def test_audits_of_judges_whose_bias_is_known():
    rows = truth.audited(400, sets=6, seed=3, names=[name for name in truth.AUDITED if "SummEval" not in name])
    found = {row["judge"]: row["found"] for row in rows}
    assert found["texts, one rating of reliability .3"] == found["one order, the better system always first"] == 0
    for biased in ("texts, effects of .3 and .35 points cancel", "preferences, log-odds, an effect of length of .2"):
        assert found[biased] >= 0.5
    table = truth.audited_table([row | {"found": 0.07} for row in rows])
    assert "| preferences, log-odds | no | **7.0 %** |" in table
    assert "| preferences, log-odds, an effect of length of .2 | yes | 7.0 % |" in table


@pytest.mark.slow
@pytest.mark.usefixtures("data_dir")
def test_an_expert_whose_own_effects_are_taken_out_is_seldom_called_biased():
    names = [name for name in truth.AUDITED if "SummEval" in name and "unknown" in name]
    unbiased, biased = truth.audited(300, sets=12, seed=1, names=names)
    assert (unbiased["biased"], biased["biased"]) == (False, True)
    assert unbiased["found"] <= 2 / 12
    assert biased["found"] >= 6 / 12


def test_draws_have_the_rates_that_they_are_given():
    judge, people = certificates.drawn(np.random.default_rng(0), 40_000, [(0.8, 0.95), (0.9, 0.7), (0.6, 0.9)])
    both = 0.6 * 0.9 * 0.6 + 0.4 * 0.3 * 0.1  # independent given what they deserve
    assert (people[:, 0] * people[:, 1]).mean() == pytest.approx(both, abs=0.01)
    assert judge.mean() == pytest.approx(0.6 * 0.8 + 0.4 * 0.05, abs=0.01)
    copies, people = certificates.drawn(np.random.default_rng(0), 2_000, [(0.8, 0.95), (0.9, 0.7)], copied=1.0)
    assert (copies == people[:, 0]).all()


@pytest.mark.slow
def test_what_is_counted():
    found = certificates.simulated(150, 0.9, 3, sets=6, draws=Draws(resamples=30))
    assert list(found) == ["tpr", "tnr", "prevalence", "certified", "dependent"]
    assert min(found[name] for name in ("tpr", "tnr", "prevalence")) >= 0.5
    assert max(found["certified"], found["dependent"]) <= 0.5
    copied = certificates.simulated(400, 0.9, 3, sets=3, draws=Draws(resamples=30), copied=0.6)
    assert copied["dependent"] == 1


@pytest.mark.slow
def test_each_alarm_is_a_row_and_shares_above_the_goal_are_marked():
    rows = alarms.check(sets=1, seed=0)
    assert [row["alarm"] for row in rows] == [*alarms.ALARMS]
    assert not any(row["raised"] for row in rows if "warning" in row["alarm"] or "of Pearson lost" in row["alarm"])
    for sets, cell in ((100, "7.0 % ?"), (10_000, "**7.0 %**")):
        shown = alarms.table([{**row, "raised": 0.07, "sets": sets} for row in rows]).splitlines()[2:]
        assert [line.endswith(f"| {cell} |") for line in shown] == [not row["planted"] for row in rows]
