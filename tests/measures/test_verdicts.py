"""Rates of a judge that passes or fails: by hand, by direct maximization, by simulation; see also test_corrected."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from evalbias.measures import Draws, corrected_rate, estimate_dependence, estimate_rate, estimate_share
from evalbias.measures.verdicts import DISAGREE, UNTESTED, latent_rates

NAN = math.nan
FEW = Draws(resamples=100)


def drawn(rng, n, prevalence, *rates):
    """Draw verdicts (n, r) of raters with these true positive and true negative rates, independent given the truth."""
    deserving = rng.random(n) < prevalence
    verdicts = [np.where(deserving, rng.random(n) < tpr, rng.random(n) >= tnr) for tpr, tnr in rates]
    return np.stack(verdicts, axis=1).astype(float), deserving


def probabilities(rates, patterns):
    """Probabilities of patterns under rates (1 + 2r,)."""
    share, tpr, tnr = rates[0], *np.split(np.asarray(rates[1:]), 2)
    good = np.where(patterns == 1, tpr, np.where(patterns == 0, 1 - tpr, 1)).prod(axis=1)
    bad = np.where(patterns == 1, 1 - tnr, np.where(patterns == 0, tnr, 1)).prod(axis=1)
    return share * good + (1 - share) * bad


@pytest.mark.parametrize("raters", [3, 4])
def test_expected_counts_give_the_rates_back(raters):
    patterns = np.stack(np.meshgrid(*[[0.0, 1.0]] * raters), axis=-1).reshape(-1, raters)
    judges = [0.3, *[0.8, 0.9, 0.85, 0.7][:raters], *[0.95, 0.6, 0.9, 0.8][:raters]]
    useless = [0.3, *[0.6, 0.9, 0.85, 0.7][:raters], *[0.4, 0.6, 0.9, 0.8][:raters]]
    cells = 500 * np.stack([probabilities(one, patterns) for one in (judges, useless)])
    found = latent_rates(cells, patterns)
    assert found[0] == pytest.approx(judges, abs=1e-4)
    assert found[1, [1, 1 + raters]] == pytest.approx([0.6, 0.4], abs=1e-4)  # whatever the truth, it passes .6


@pytest.mark.parametrize("seed", range(3))
def test_the_fit_is_the_most_likely_one_with_and_without_missing_verdicts(seed):
    rng = np.random.default_rng(seed)
    verdicts, _ = drawn(rng, 150, 0.4, (0.8, 0.9), (0.85, 0.9), (0.9, 0.8), (0.8, 0.8))
    verdicts[:, 1:][rng.random((150, 3)) < 0.2] = -1
    patterns, cells = np.unique(verdicts, axis=0, return_counts=True)
    found = latent_rates(cells[None].astype(float), patterns)[0]

    def surprise(rates):
        return -(cells * np.log(np.clip(probabilities(rates, patterns), 1e-12, 1))).sum()

    direct = optimize.minimize(surprise, found, bounds=[(1e-6, 1 - 1e-6)] * len(found), tol=1e-10)
    other = optimize.minimize(surprise, np.full(len(found), 0.75), bounds=[(1e-6, 1 - 1e-6)] * len(found), tol=1e-10)
    assert surprise(found) <= min(direct.fun, other.fun) + 1e-4
    assert found == pytest.approx(other.x, abs=0.01)


def test_one_annotator_is_the_truth():
    judge = [1.0] * 9 + [0.0] + [1.0] * 2 + [0.0] * 7 + [NAN, 1.0]
    people = [1.0] * 10 + [0.0] * 10 + [NAN]
    found = estimate_rate(judge, people, of="tpr")
    assert found == estimate_share([1.0] * 9 + [0.0] + [NAN] * 11)
    assert (estimate_rate(judge, people, of="tnr").value, estimate_rate(judge, people, of="tnr").n) == (7 / 9, 9)
    assert estimate_rate(judge, people, of="prevalence").value == 0.5
    # of 19 items with both, 16 are alike; by chance .5263 x .5789 + .4737 x .4211
    chance = 10 / 19 * 11 / 19 + 9 / 19 * 8 / 19
    assert estimate_rate(judge, people, of="kappa").value == pytest.approx((16 / 19 - chance) / (1 - chance))
    assert "taken for the truth" in estimate_rate(judge, people, of="annotator_tpr").reason
    # several who never contradict each other are one, also where each rated other items
    twice = np.column_stack([people, people])
    shared = twice.copy()
    shared[::2, 0], shared[1::2, 1] = NAN, NAN
    assert estimate_rate(judge, twice, of="tpr") == estimate_rate(judge, shared, of="tpr") == found
    assert math.isnan(estimate_rate(judge[:10], people[:10], of="tnr").value)  # nothing was failed


def test_an_error_of_an_annotator_is_none_of_the_judge():
    rng = np.random.default_rng(0)
    verdicts, _ = drawn(rng, 2_000, 0.6, (0.98, 0.98), (0.85, 0.85), (0.85, 0.85))
    judge, people = verdicts[:, 0], verdicts[:, 1:]
    assert estimate_rate(judge, people[:, 0], of="tpr").high < 0.92  # one of them alone would charge it with errors
    truths = {"tpr": 0.98, "tnr": 0.98, "annotator_tpr": 0.85, "annotator_tnr": 0.85, "prevalence": 0.6}
    for of, truth in truths.items():
        found = estimate_rate(judge, people, of=of, draws=FEW)
        assert found.value == pytest.approx(truth, abs=0.025), of
        assert found.low <= truth <= found.high, of
    ours, theirs = (estimate_rate(judge, people, of=of, draws=FEW) for of in ("kappa", "annotator_kappa"))
    assert ours.low > theirs.high


def test_what_passes_may_be_called_fail_and_the_annotators_stand_in_any_order():
    rng = np.random.default_rng(1)
    verdicts, _ = drawn(rng, 300, 0.3, (0.8, 0.9), (0.9, 0.8), (0.85, 0.95))
    turned = 1 - verdicts
    rates = {of: estimate_rate(verdicts[:, 0], verdicts[:, 1:], of=of, draws=FEW) for of in ("tpr", "tnr")}
    for of, other in (("tpr", "tnr"), ("tnr", "tpr")):
        one = estimate_rate(turned[:, 0], turned[:, [2, 1]], of=of, draws=FEW)
        both = [(found.value, found.low, found.high) for found in (one, rates[other])]
        assert both[0] == pytest.approx(both[1], abs=1e-4)


def test_verdicts_at_random_tell_no_truth():
    rng = np.random.default_rng(2)
    judge, people = (rng.random(200) < 0.5).astype(float), (rng.random((200, 2)) < 0.5).astype(float)
    found = estimate_rate(judge, people, of="tpr")
    assert (math.isnan(found.value), found.reason, found.n) == (True, DISAGREE, 200)
    assert corrected_rate(judge, np.vstack([people[:100], np.full((100, 2), NAN)])).reason == DISAGREE
    always = np.column_stack([np.ones(200), people[:, 1]])  # one annotator passes everything
    assert estimate_rate(judge, always, of="tpr").reason == DISAGREE
    with pytest.raises(ValueError, match=r"ratings\[1, 0\] is 2: a verdict is 1, 0, or NaN"):
        estimate_rate([1.0, 0.0], [[1.0, 0.0], [2.0, 1.0]], of="tpr")


def simulated(n, prevalence, judge, annotators, *, draws, seed=0):
    """Return (draws, 2, 2) intervals of both rates."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        verdicts, _ = drawn(rng, n, prevalence, judge, *annotators)
        rates = [estimate_rate(verdicts[:, 0], verdicts[:, 1:], of=of, draws=FEW) for of in ("tpr", "tnr")]
        found.append([(one.low, one.high) for one in rates])
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize(("accuracy", "raters"), [(0.85, 2), (0.95, 3)])
def test_intervals_hold_the_truth_and_a_judge_at_the_limit_gets_no_certificate(accuracy, raters):
    """Over 1,200 draws they hold the TPR in 95.9 % and certify .8 in 1.7 %; these 30 notice a fault."""
    found = simulated(200, 0.6, (0.8, 0.95), [(accuracy, accuracy)] * raters, draws=30)
    holds = (found[:, :, 0] <= [0.8, 0.95]) & (found[:, :, 1] >= [0.8, 0.95])
    assert holds.mean() >= stats.binom.ppf(0.001, 60, 0.95) / 60
    assert (found[:, 0, 0] > 0.8).sum() <= stats.binom.ppf(0.999, 30, 0.025)
    assert np.median(found[:, 0, 1] - found[:, 0, 0]) < 0.21  # and says something


def test_items_of_one_input_count_together():
    rng = np.random.default_rng(3)
    verdicts, _ = drawn(rng, 60, 0.5, (0.8, 0.9), (0.9, 0.9), (0.9, 0.9))
    repeated, inputs = np.repeat(verdicts, 4, axis=0), np.repeat(np.arange(60), 4).tolist()
    single = estimate_rate(verdicts[:, 0], verdicts[:, 1:], of="tpr", draws=FEW)
    together = estimate_rate(repeated[:, 0], repeated[:, 1:], of="tpr", clusters=inputs, draws=FEW)
    apart = estimate_rate(repeated[:, 0], repeated[:, 1:], of="tpr", draws=FEW)
    assert together.value == pytest.approx(single.value, abs=1e-4)
    assert (together.units, together.n, apart.units) == (60, 240, 240)
    widths = [one.high - one.low for one in (single, together, apart)]
    assert widths[1] == pytest.approx(widths[0], rel=0.1)
    assert widths[2] < 0.7 * widths[1]


def test_dependent_errors_are_found():
    rng = np.random.default_rng(4)
    verdicts, _ = drawn(rng, 600, 0.5, (0.8, 0.8), (0.85, 0.85), (0.85, 0.85), (0.85, 0.85))
    fair = estimate_dependence(verdicts[:, 0], verdicts[:, 1:], draws=FEW)
    assert fair.p_value > 0.05
    copies = np.where(rng.random(600) < 0.5, verdicts[:, 1], verdicts[:, 0])  # half of what an annotator says
    found = estimate_dependence(copies, verdicts[:, 1:], draws=FEW)
    assert found.p_value < 0.01
    assert found.low > 0.05
    two = estimate_dependence(copies, verdicts[:, 1:3], draws=FEW)
    assert (math.isnan(two.value), two.reason) == (True, UNTESTED)


def test_a_difference_of_two_judges():
    rng = np.random.default_rng(5)
    verdicts, _ = drawn(rng, 300, 0.5, (0.95, 0.9), (0.7, 0.9), (0.9, 0.9), (0.9, 0.9))
    people = verdicts[:, 2:]
    found = estimate_rate(verdicts[:, 0], people, of="tpr", before=verdicts[:, 1], draws=FEW)
    assert found.low > 0
    assert found.low < 0.25 < found.high
    assert math.isnan(found.p_value)
    alone = [estimate_rate(verdicts[:, k], people[:, 0], of="tpr") for k in (0, 1)]
    one = estimate_rate(verdicts[:, 0], people[:, 0], of="tpr", before=verdicts[:, 1])
    assert one.value == pytest.approx(alone[0].value - alone[1].value)
    assert one.p_value < 0.01


def test_many_inputs_need_no_resamples():
    rng = np.random.default_rng(6)
    verdicts, _ = drawn(rng, 6_000, 0.5, (0.8, 0.9), (0.9, 0.9), (0.9, 0.9))
    found = estimate_rate(verdicts[:, 0], verdicts[:, 1:], of="tpr", draws=Draws(resamples=2))
    few = estimate_rate(verdicts[:4_000, 0], verdicts[:4_000, 1:], of="tpr", draws=FEW)
    assert found.low < 0.8 < found.high
    assert found.high - found.low == pytest.approx((few.high - few.low) * math.sqrt(4 / 6), rel=0.3)


def test_a_rate_corrected_by_annotators_who_contradict_each_other():
    rng = np.random.default_rng(7)
    verdicts, deserving = drawn(rng, 2_000, 0.2, (0.8, 0.9), (0.9, 0.95), (0.9, 0.95))
    people = verdicts[:, 1:].copy()
    people[300:] = NAN
    found = corrected_rate(verdicts[:, 0], people, draws=FEW)
    labels = estimate_rate(verdicts[:300, 0], people[:300], of="prevalence", draws=FEW)
    assert found.low < deserving.mean() < found.high
    assert found.high - found.low < labels.high - labels.low  # the judge helps
    assert (found.n, found.unit) == (2_000, "share")
    same = corrected_rate(verdicts[:, 0], people, before=verdicts[:, 0], draws=FEW)
    assert same.value == 0
