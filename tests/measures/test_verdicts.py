"""Rates of a judge that passes or fails, and corrected ones: by hand, by slow definitions, and how often they hold."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats

from evalbias.evaluation import Number
from evalbias.measures import Draws, corrected_mean, corrected_rate, estimate_dependence, estimate_rate, estimate_share
from evalbias.measures.resample import ALIKE
from evalbias.measures.verdicts import DISAGREE, UNTESTED, decided_alone, latent_rates, wrong_decisions

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


JUDGE, HUMAN, REST = [2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 4.0, 4.0], [4.0, 4.0, 5.0, 5.0, 5.0, 4.0]
ALONE = stats.t.interval(0.95, 3, loc=2.75, scale=stats.sem(HUMAN))  # of the four labels


def corrected(judge, human, rest, estimator=corrected_mean, **options):
    """Correct by what people say of the first items."""
    return estimator([*judge, *rest], [*human, *[NAN] * len(rest)], **options)


def variance(weight, judge, human, rest):
    """Variance of mean(h) + weight (mean_rest - mean_labeled), with m centered on its mean over both samples."""
    center = np.mean([*judge, *rest])
    labeled = np.subtract(human, np.mean(human)) - weight * np.subtract(judge, center)
    return (labeled**2).sum() / len(human) ** 2 + weight**2 * (np.subtract(rest, center) ** 2).sum() / len(rest) ** 2


def test_the_weight_minimizes_the_variance_on_any_scale_of_the_judge():
    found = corrected(JUDGE, HUMAN, REST)
    best = optimize.minimize_scalar(variance, args=(JUDGE, HUMAN, REST), tol=1e-12)
    # around 4.1 the squares of m sum up to 6.44 and 2.46: (5.5 / 16) / (6.44 / 16 + 2.46 / 36) = 165 / 226
    assert best.x == pytest.approx(165 / 226)
    assert found.value == pytest.approx(2.75 + 165 / 226 * (4.5 - 3.5))
    half = stats.t.ppf(0.975, 2) * math.sqrt(4 / 2 * best.fun)
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half))
    for unit in (-7, 0.01):
        other = corrected(100 + unit * np.array(JUDGE), HUMAN, 100 + unit * np.array(REST))
        assert (other.value, other.low, other.high) == pytest.approx((found.value, found.low, found.high))
    assert corrected([*JUDGE, NAN], [*HUMAN, 2.0], [*REST, NAN]) == replace(found, undefined=2)


@pytest.mark.parametrize(("judge", "rest"), [([3.0] * 4, [3.0] * 5), (JUDGE, []), (JUDGE, [NAN])])
def test_without_help_from_the_judge_the_labels_stand_alone(judge, rest):
    found = corrected(judge, HUMAN, rest)
    assert (found.value, found.low, found.high) == pytest.approx((2.75, *ALONE))


def test_the_judge_moves_the_mean_of_three_labels_and_not_of_two():
    judge, human, rest = [1.0, 2.0, 3.0], [1.0, 3.0, 3.0], [2.0, 4.0]
    # around 2.4 the squares of m sum up to 2.48 and 2.72: (2 / 9) / (2.48 / 9 + 2.72 / 4) = 50 / 215
    assert corrected(judge, human, rest).value == pytest.approx(7 / 3 + 50 / 215 * (3 - 2))
    assert corrected(judge[:2], human[:2], rest).value == 2.0
    one = corrected(judge[:1], human[:1], rest)
    assert (math.isnan(one.low), one.n, one.units) == (True, 3, 1)
    rounded = corrected([1, 2, 3], [0.1, 0.1, 0.1], [1, 2, 3])  # numpy's mean of three .1 is not .1
    assert np.isnan([rounded.low, rounded.high]).all()
    assert (rounded.reason, rounded.n, rounded.undefined) == (ALIKE, 6, 0)


def test_outputs_of_one_input_count_together():
    alone = corrected(JUDGE, HUMAN, REST)
    repeated = (np.repeat(one, 3) for one in (JUDGE, HUMAN, REST))
    found = corrected(*repeated, clusters=np.repeat(list("abcdefghij"), 3).tolist())
    assert (found.value, found.low, found.high) == pytest.approx((alone.value, alone.low, alone.high))
    assert (found.n, found.units) == (3 * alone.n, alone.units)
    # the same inputs on both sides: their difference of judge means is known to be 0, so it moves nothing
    shared = corrected(JUDGE, HUMAN, JUDGE, clusters=list("abcdabcd"))
    assert (shared.low, shared.high) == pytest.approx(ALONE)


def counts(true_positive, false_negative, false_positive, true_negative):
    judge = [1] * true_positive + [0] * false_negative + [1] * false_positive + [0] * true_negative
    return judge, [1] * (true_positive + false_negative) + [0] * (false_positive + true_negative)


def rate(judge, human, rest, **options):
    return corrected(judge, human, rest, corrected_rate, **options)


def test_a_rate_by_hand():
    # sensitivity 9 / 10, specificity 8 / 10, 60 of 100 called positive: (.6 + .8 - 1) / (.9 + .8 - 1) = 4 / 7
    found = rate(*counts(9, 1, 2, 8), [1] * 60 + [0] * 40)
    assert found.value == pytest.approx(4 / 7)
    # delta method by numerical derivatives, at the rates with pseudo-counts
    t = stats.t.ppf(0.975, 19)  # 20 labels
    rates = np.array([(60 + t**2 / 2) / (100 + t**2), 10 / 12, 9 / 12])
    sizes = np.array([100 + t**2, 12, 12])

    def rogan_gladen(r):
        return (r[0] + r[2] - 1) / (r[1] + r[2] - 1)

    gradient = optimize.approx_fprime(rates, rogan_gladen, 1e-7)
    half = t * math.sqrt((gradient**2 * rates * (1 - rates) / sizes).sum())
    ends = rogan_gladen(rates) - half, min(1, rogan_gladen(rates) + half)
    assert (found.low, found.high) == pytest.approx(ends, abs=1e-5)


def test_a_rate_that_the_judge_cannot_tell_is_undefined():
    assert math.isnan(rate(*counts(5, 5, 5, 5), [1, 0]).value)  # it tells nothing
    assert math.isnan(rate(*counts(2, 8, 9, 1), [1, 0]).value)  # it tells the opposite
    one = rate(*counts(3, 1, 1, 3), [1, 0, 1], clusters=list("aaaabbccdef"))  # people's yes of one input only
    assert math.isnan(one.value)
    judge, human = counts(9, 1, 2, 8)
    assert rate(judge, human, [NAN]) == replace(estimate_share(human), undefined=1)
    assert rate(*counts(10, 0, 0, 10), [1] * 10).high == 1.0
    for judge, human, named in (([1, 0.5], [1, 0], r"verdicts\[1\] is 0.5"), ([1, 0], [2, 0], r"people\[0\] is 2")):
        with pytest.raises(ValueError, match=f"{named}: a verdict is 1, 0, or NaN"):
            rate(judge, human, [1])


def test_a_rate_at_a_low_prevalence_is_defined():
    # one label of a kind, or none: with pseudo-counts, sensitivity 1 / 3 and specificity 95 / 101
    rest = [1] * 80 + [0] * 920
    for judge, human in (counts(0, 1, 5, 94), counts(0, 0, 5, 95)):
        found = rate(judge, human, rest)
        t = stats.t.ppf(0.975, len(human) - 1)
        p, positives, negatives = (80 + t**2 / 2) / (1000 + t**2), sum(human), len(human) - sum(human)
        sensitivity, specificity = 1 / (positives + 2), (negatives - 5 + 1) / (negatives + 2)
        assert found.value == pytest.approx((p + specificity - 1) / (sensitivity + specificity - 1))
        assert 0 == found.low < found.value < found.high < 0.4
    # it was 0 for certain: by 1 of 2 labels it tells less than chance, and pseudo-counts divide by less than 0
    found = rate(*counts(1, 1, 12, 8), [0] * 30)
    assert (math.isnan(found.value), "tell nothing" in found.reason) == (True, True)


def weighted_rate(weights, kind, verdict):
    """Rogan and Gladen's rate of weighted items: kind 0 unlabeled, 1 people say yes, 2 people say no."""
    p, yes, no = (np.average(verdict[kind == k], weights=weights[kind == k]) for k in range(3))
    return (p - no) / (yes - no)


def test_pairs_of_one_input_count_together_in_a_rate():
    rng = np.random.default_rng(3)
    human, judge = (rng.random(24) < 0.5).astype(float), (rng.random(24) < 0.5).astype(float)
    judge[:20] = human[:20]
    rest = (rng.random(40) < 0.6).astype(float)
    inputs = np.array([i // 4 for i in range(24)] + [i // 4 + 3 for i in range(40)])  # three are labeled in part
    found = rate(judge, human, rest, clusters=inputs.tolist())
    t = stats.t.ppf(0.975, 5)  # six labeled inputs
    # a pseudo-count is an item of its own whose weight may be a fraction
    kind = np.concatenate([np.where(human == 1, 1, 2), np.zeros(40), np.repeat([0, 1, 2], 2)])
    verdict = np.concatenate([judge, rest, np.tile([0.0, 1.0], 3)])
    weights = np.concatenate([np.ones(64), [t**2 / 2] * 2, np.ones(4)])
    effects = optimize.approx_fprime(weights, weighted_rate, 1e-7, kind, verdict)
    variance = sum(effects[:64][inputs == i].sum() ** 2 for i in set(inputs)) + (effects**2 * weights)[64:].sum()
    center, half = weighted_rate(weights, kind, verdict), t * math.sqrt(variance)
    assert (found.low, found.high) == pytest.approx((max(0, center - half), min(1, center + half)), abs=1e-5)
    assert 0 < found.low < found.high < 1
    assert found.units == 6
    assert rate(judge, human, [], clusters=inputs[:24].tolist()) == estimate_share(human, clusters=inputs[:24].tolist())


def test_the_corrected_mean_is_the_center_of_its_interval_where_items_share_an_input():
    """Twelve inputs with eight outputs each, whose judge errs alike on the outputs of an input; four are labeled."""
    rng = np.random.default_rng(137)
    quality, shared = rng.normal(3, 0.5, size=(12, 8)), rng.normal(0, 1.5, size=(12, 1))
    scores, clusters = (quality + shared + rng.normal(0, 0.2, size=(12, 8))).ravel(), np.repeat(np.arange(12), 8)
    people = np.where(np.arange(96) % 8 < 4, quality.ravel(), NAN)
    number = Number("corrected", "corrected", scores, corrected_mean, columns=(people,))
    found = number.estimate(clusters.tolist(), seed=0)
    assert found.value == pytest.approx((found.low + found.high) / 2)
    assert found.value == number.value(clusters.tolist())
    assert abs(found.value - number.value()) > 0.01  # as if every item had its own input, the weight is another


def alone(passes, fails, **options):
    """The share that a judge may decide alone, of (right, wrong) passes at .9 and fails at .1."""
    groups = zip((0.9, 0.9, 0.1, 0.1), (1, 0, 0, 1), (*passes, *fails), strict=True)
    rows = [(score, said) for score, said, n in groups for _ in range(n)]
    return decided_alone(*np.reshape(rows, (-1, 2)).T, **options)


# Of a region on both sides, p is to be .025 at most, of one side .0125: .95^72 = .0249, .95^86 = .0121.
DECIDED = [((72, 0), (0, 0), (1, 0.9, -math.inf)), ((71, 0), (0, 0), (0, math.inf, -math.inf))]
DECIDED += [((40, 0), (32, 0), (1, 0.9, 0.1)), ((86, 0), (14, 14), (86 / 114, 0.9, -math.inf))]
DECIDED += [((85, 0), (14, 15), (0, math.inf, -math.inf)), ((14, 14), (86, 0), (86 / 114, math.inf, 0.1))]
DECIDED += [((182, 3), (0, 0), (1, 0.9, -math.inf))]  # P(X <= 3) = .017 of 185 at .05
DECIDED += [((110, 3), (0, 0), (0, math.inf, -math.inf))]  # .18 of 113


@pytest.mark.parametrize(("passes", "fails", "expected"), DECIDED)
def test_what_may_be_decided_alone_by_hand(passes, fails, expected):
    found = alone(passes, fails, error=0.05)
    assert (found.share, found.pass_from, found.fail_to) == pytest.approx(expected)


def test_the_surest_are_decided_alone_and_ties_unlabeled_items_and_inputs_count():
    scores = np.repeat([0.95, 0.7, 0.3], [100, 50, 50])
    people = np.concatenate([np.ones(100), np.tile([1, 0], 50)])
    found = decided_alone(scores, people, error=0.05)
    assert (found.share, found.pass_from) == (0.5, 0.95)
    several = np.column_stack([people, people, people])
    assert decided_alone(scores, several, error=0.05) == found
    graded = decided_alone([*np.linspace(0.6, 0.99, 100), *[0.3] * 100], people, error=0.05)
    assert (graded.share, graded.pass_from, graded.fail_to) == (0.5, 0.6, -math.inf)
    assert decided_alone(5 * scores, people, mark=2.5, error=0.05).pass_from == 4.75
    more = decided_alone([*scores, *[0.99] * 200], [*people, *[math.nan] * 200], error=0.05)
    assert more.share == 0.75
    assert decided_alone(scores, people, error=0.05, clusters=(np.arange(200) // 4).tolist()).share == 0
    found = wrong_decisions([0.9, 0.1, 0.9, 0.9], [[1, 0], [1, 1], [0, NAN], [NAN, NAN]], mark=0.5)
    np.testing.assert_array_equal(found, [0.5, 1, 1, NAN])
    for wrong, message in [({"error": 0}, "give a share"), ({"error": 0.1, "people": [2] * 200}, "people.0. is 2")]:
        with pytest.raises(ValueError, match=message):
            decided_alone(scores, **{"people": people, **wrong})


@pytest.mark.slow
@pytest.mark.parametrize(("outputs", "alike"), [(1, 0.0), (5, 0.0), (5, 0.5), (10, 0.3)])
def test_a_judge_that_errs_too_often_is_seldom_let_decide_alone(outputs, alike):
    rng, units = np.random.default_rng(outputs), np.repeat(np.arange(300 // outputs), outputs)
    false = 0
    for _ in range(300):
        errs = np.where(rng.random(300) < alike, (rng.random(300) < 0.1)[units], rng.random(300) < 0.1)
        truth = rng.random(300) < 0.5
        false += decided_alone(truth ^ errs, truth, error=0.1, clusters=units.tolist()).share > 0
    assert false <= 0.05 * 300
