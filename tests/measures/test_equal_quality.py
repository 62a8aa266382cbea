"""Effects at equal quality: by hand and by linearmodels, what makes them undefined, and what does not matter."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linearmodels.iv import IV2SLS
from planted import likelihood_effect
from refusals import refusals
from scipy import stats

from evalbias.measures import EqualQuality
from evalbias.measures import ratings as raters_module
from evalbias.measures.equal_quality import ONE_INPUT, Effect, regressed, weak_test, within_scale
from evalbias.measures.ratings import pool

LS = [-9.0, -4.0, -6.0, -5.0, -8.0, -3.0, -9.0, -4.0]
SCORES = [1.4, 2.9, 2.6, 4.1, 4.2, 2.5, 3.1, 5.2]
RATINGS = [[1, 1], [2, 3], [3, 2], [4, 4], [5, 4], [2, 2], [3, 4], [5, 5]]


def simulate(n, effect=0.0, *, seed, raters=2, noise=0.7, outputs=1, shared=0.0):
    """LS that correlates .5 with quality; scores of variance 1 that follow both; ratings from 1 to 5."""
    rng = np.random.default_rng(seed)

    def draw():
        document = np.repeat(rng.normal(size=n // outputs), outputs)
        return np.sqrt(shared) * document + np.sqrt(1 - shared) * rng.normal(size=n)

    quality, error, rest = draw(), draw(), draw()
    ls = 0.5 * quality + np.sqrt(0.75) * error
    scores = 0.5 * quality + effect * ls + np.sqrt(0.75 - effect**2 - 0.5 * effect) * rest
    ratings = np.clip(np.round(3 + quality[:, None] + noise * rng.normal(size=(n, raters))), 1, 5)
    return ls, scores, ratings


def of_levels(systems):
    return {f"system {one}": np.asarray(systems) == one for one in sorted(set(systems))[1:]}


def zscore(values):
    values = np.asarray(values, dtype=float)
    return (values - values.mean()) / values.std()


@pytest.mark.parametrize(("rare", "untold"), [("a", {"b", "c", "d"}), ("z", {"z"})])
def test_a_level_of_one_cluster_has_no_standard_error(rare, untold):
    rng = np.random.default_rng(0)
    quality, ls = rng.normal(size=(2, 60))
    clusters, systems = np.repeat(np.arange(20), 3), np.array([rare] * 3 + ["b", "c", "d"] * 19)
    ratings, scores = quality[:, None] + 0.5 * rng.normal(size=(60, 2)), quality + 0.3 * rng.normal(size=60)

    def model(kept):
        levels = of_levels(systems[kept])
        features = {"likelihood": ls[kept], **levels}
        return EqualQuality(scores[kept], ratings[kept], features, clusters=clusters[kept].tolist(), unscaled=[*levels])

    items = model(clusters >= 0)
    found = items.effect("likelihood")
    _, left_out = regressed(items.scores, items.x, pool(ratings), items.codes, scaled=items.scaled)
    errors = np.sqrt(19 * left_out[:, :, 0].var(axis=0))  # of the constant, the likelihood, three levels, the quality
    levels = dict(zip(items.names[2:], errors[2:5], strict=True))
    assert {name[-1] for name, error in levels.items() if np.isnan(error)} == untold
    without = [model(clusters != cluster).effect("likelihood").value for cluster in range(20)]
    # the raters' levels are fitted once, and in the slow way without each cluster
    assert found.standard_error == pytest.approx(np.sqrt(19 * np.var(without)), rel=2e-3)
    assert errors[1] == found.standard_error
    assert 0 < errors[-1] < 1
    assert all(error < 0.5 for error in levels.values() if not np.isnan(error))


@pytest.mark.parametrize(("elsewhere", "untold"), [(4e-5, False), (4e-6, True)])
def test_a_column_that_all_but_vanishes_without_a_cluster_is_told_by_its_share_there(elsewhere, untold):
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(20), 3)
    column = np.where(clusters == 0, 1.0, elsewhere * rng.choice([-1.0, 1.0], size=60))
    # of the column's sum of squares, the other 57 items hold 3e-8 or 3e-10, below a billionth
    rated = pool(rng.normal(size=60)[:, None] + 0.5 * rng.normal(size=(60, 2)))
    matrix = np.column_stack([np.ones(60), column])
    _, left_out = regressed(rng.normal(size=(60, 1)), matrix, rated, clusters, scaled=np.zeros(2))
    assert np.isnan(left_out[0, :, 0]).tolist() == [False, untold, False]
    assert not np.isnan(left_out[1:]).any()


def by_linearmodels(ls, scores, ratings, clusters, covariates=None):
    """Two-stage least squares on all ordered pairs of ratings, items weighted equally."""
    pairs = []
    for i, row in enumerate(ratings):
        given = [h for h in row if not np.isnan(h)]
        for j, k in itertools.permutations(range(len(given)), 2):
            pairs.append((i, given[j], given[k], 1 / (len(given) * (len(given) - 1))))
    frame = pd.DataFrame(pairs, columns=["item", "rating", "instrument", "weight"])
    exogenous = pd.DataFrame({"constant": 1.0, "likelihood": zscore(ls), **(covariates or {})})
    y, x = pd.Series(zscore(scores)[frame.item]), exogenous.iloc[frame.item].reset_index(drop=True)
    model = IV2SLS(y, x, frame.rating, frame.instrument, weights=frame.weight)
    found = model.fit(cov_type="clustered", clusters=np.asarray(clusters)[frame.item], debiased=False)
    n, k, groups = len(ratings), exogenous.shape[1] + 1, len(set(clusters))
    return found, np.sqrt(groups / (groups - 1) * (n - 1) / (n - k))


def level_free(ratings):
    """Remove the columns' levels as a regression with one level an item and one a rater does."""
    ratings = np.asarray(ratings, dtype=float)
    items, raters = np.nonzero(~np.isnan(ratings))
    design = np.zeros((len(items), sum(ratings.shape)))
    design[np.arange(len(items)), items] = design[np.arange(len(items)), len(ratings) + raters] = 1
    levels = np.linalg.lstsq(design, ratings[items, raters], rcond=None)[0][len(ratings) :]
    return ratings - (levels - levels.mean())


@pytest.mark.parametrize("rare", [1, 2, 8])
@pytest.mark.parametrize("step", [20, 7])
def test_a_group_of_few_items_is_told_from_two_inputs_on(rare, step):
    rng, own = np.random.default_rng(0), np.zeros(200)
    quality, own[: rare * step : step] = rng.normal(size=200), 1
    ratings = np.clip(np.round(3 + quality[:, None] + 0.5 * rng.normal(size=(200, 2))), 1, 5)
    scores = np.clip(np.round(3 + quality + 0.5 * rng.normal(size=200)), 1, 5)
    found = EqualQuality(scores, ratings, {"own": own}, unscaled=["own"]).effect("own")
    assert found.first_stage_f > 10
    assert found.reason == (ONE_INPUT if rare == 1 else "")
    assert np.isfinite([found.low, found.high, found.p_value]).all() == (rare > 1)
    if rare > 1:  # the degrees of freedom are those of the rarer group
        assert found.high - found.value + found.allowance[0] >= stats.t.ppf(0.975, rare - 1) * found.standard_error


def test_raters_who_share_nothing_leave_the_effect_of_a_group_undefined():
    for seed in range(20):  # of a part of the items, or all
        rng = np.random.default_rng(seed)
        quality, own = rng.normal(size=40), (rng.random(40) < 0.4).astype(float)
        ratings = np.clip(np.round(3 + 0.25 * quality[:, None] + rng.normal(size=(40, 2))), 1, 5)
        found = EqualQuality(quality, ratings, {"own": own}, unscaled=["own"]).effect("own")
        assert not found.first_stage_f > 10
        assert found.reason == "" or np.isnan(found.low)


def test_a_small_case_by_hand():
    ratings = np.array(RATINGS) - np.mean(RATINGS, axis=0)
    (one, other), h, z, m, n = ratings.T, ratings.mean(axis=1), zscore(LS), zscore(SCORES), len(LS)
    slope, quality = np.linalg.solve([[z @ z, z @ h], [z @ h, one @ other]], [z @ m, h @ m])
    found = likelihood_effect(LS, SCORES, RATINGS)
    expected = (slope, quality, one @ other / (h @ h), np.std(SCORES))
    assert (found.value, found.quality, found.reliability, found.score_sd) == pytest.approx(expected, rel=1e-9)
    # first stage: how far the product of two ratings follows their mean square, both with the likelihood held fixed
    shift = (h - (z @ h) / (z @ z) * z) ** 2 - h**2
    agreement, spread = one * other + shift, (one**2 + other**2) / 2 + shift
    noise = ((agreement - agreement.sum() / spread.sum() * spread) ** 2).sum() * n / (n - 1) * (n - 1) / (n - 3)
    assert found.first_stage_f == pytest.approx(agreement.sum() ** 2 / noise, rel=1e-9)
    assert (found.n, found.units, found.undefined, found.reason, found.weak) == (n, n, 0, "", False)
    assert found.bounds == (found.value, found.value)


def test_one_rating_of_known_reliability_by_hand():
    for reliability in (0.8, 1.0):  # that of 1 is least squares
        single = np.array(RATINGS)[:, :1]
        z, h, m = zscore(LS), single[:, 0] - single.mean(), zscore(SCORES)
        expected = np.linalg.solve([[z @ z, z @ h], [z @ h, reliability * (h @ h)]], [z @ m, h @ m])
        found = likelihood_effect(LS, SCORES, single, reliability=reliability)
        assert (found.value, found.quality) == pytest.approx(tuple(expected), rel=1e-9)
        assert found.reliability == pytest.approx(reliability)


@pytest.mark.parametrize(
    ("raters", "missing", "outputs", "with_covariates"), [(2, 0.0, 1, False), (5, 0.3, 1, False), (3, 0.2, 4, True)]
)
def test_estimate_error_and_interval_are_those_of_linearmodels(raters, missing, outputs, with_covariates, monkeypatch):
    monkeypatch.setattr(raters_module, "scale_correction", lambda values: 1.0)  # linearmodels knows no scales
    monkeypatch.setattr(raters_module, "noise_of_levels", lambda values, *fit: np.zeros(len(values)))
    n = 80
    ls, scores, ratings = simulate(n, 0.3, seed=1, raters=raters, outputs=outputs, shared=0.3)
    rng = np.random.default_rng(2)
    ratings[rng.random(ratings.shape) < missing] = np.nan
    ratings[:, 0] += 1.0  # a rater who is more generous than the others
    clusters = np.arange(n) // outputs
    length, system = rng.normal(size=n) + ls, rng.choice(["a", "b", "c"], size=n)
    given = {"length": length, **of_levels(system)} if with_covariates else {}
    features, how = {"likelihood": ls, **given}, {"clusters": list(map(str, clusters)), "unscaled": [*given][1:]}
    numbers, model = ["likelihood", "length"][: len(features)], EqualQuality(scores, ratings, features, **how)
    slopes = {name: model.effect(name) for name in numbers}
    ours = likelihood_effect(ls, scores, ratings, covariates=given, **how)
    assert slopes["likelihood"] == ours

    kept = np.flatnonzero((~np.isnan(ratings)).sum(axis=1) > 1)
    columns = {"length": zscore(length[kept]), **{s: (system[kept] == s).astype(float) for s in "bc"}}
    columns, free = columns if with_covariates else {}, level_free(ratings[kept])
    theirs, factor = by_linearmodels(ls[kept], scores[kept], free, clusters[kept], columns)
    assert ours.quality == pytest.approx(theirs.params["rating"], rel=1e-9)
    groups = len(np.unique(clusters[kept]))
    for name, slope in slopes.items():
        assert slope.value == pytest.approx(theirs.params[name], rel=1e-9)
        assert slope.standard_error == pytest.approx(theirs.std_errors[name] * factor, rel=0.25)  # the sandwich
        half, (low, high) = stats.t.ppf(0.975, groups - 1) * slope.standard_error, slope.allowance
        ends = slope.value - half - high, slope.value + half - low
        assert (slope.low, slope.high) == pytest.approx(ends)
        beyond = abs(slope.value - min(max(slope.value, low), high)) / slope.standard_error
        assert slope.p_value == pytest.approx(2 * stats.t.sf(beyond, groups - 1))
    assert (ours.n, ours.undefined, ours.units) == (len(kept), n - len(kept), groups)
    first = theirs.first_stage.individual["rating"].tstats["instrument"] ** 2 / factor**2
    assert ours.first_stage_f == pytest.approx(first, rel=0.1)


def test_pooled_ratings_by_hand():
    pooled = pool(np.array([[1.0, 3.0, np.nan], [5.0, 7.0, 9.0]]))
    # levels of the columns beside one of each item: 4, 6, 8 in the second; minus their mean: -2, 0, 2
    # free of them: 3, 3 and 7, 7, 7; less the mean of the items' means, 5: -2, -2 and 2, 2, 2
    assert pooled.mean.tolist() == pytest.approx([-2, 2])
    assert pooled.product.tolist() == pytest.approx([4, 4])
    assert pooled.square.tolist() == pytest.approx([4, 4])
    uneven = pool(np.array([[1.0, 3.0], [3.0, 1.0]]))
    assert uneven.mean.tolist() == pytest.approx([0, 0])
    assert uneven.product.tolist() == pytest.approx([-1, -1])
    assert uneven.square.tolist() == pytest.approx([1, 1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("level", [3.0, 3.1, 0.7])
def test_scores_that_differ_in_one_input_alone_do_not_tell_their_error(level, seed):
    rng, n = np.random.default_rng(seed), 40
    ratings = rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, 3))
    scores = np.full(n, level)  # without the first input its rounding errors are all that is left
    scores[:4] += rng.normal(size=4)
    found = likelihood_effect(rng.normal(size=n), scores, ratings, clusters=[i // 4 for i in range(n)])
    assert np.isnan([found.low, found.high, found.p_value]).all()
    assert found.reason.startswith("without the items of one input")


def test_one_rating_of_unknown_reliability_has_bounds():
    ls, scores, ratings = simulate(300, 0.3, seed=5, noise=0.6)
    single = ratings[:, :1]
    found = likelihood_effect(ls, scores, single)
    worst, best = (likelihood_effect(ls, scores, single, reliability=r) for r in (0.5, 1.0))
    assert np.isnan(found.value)
    assert "one rating" in found.reason
    assert found.bounds == (worst.value, best.value)
    assert worst.value < best.value  # the less the rating is trusted, the more of the slope is quality's
    assert (found.low, found.high) == (worst.low, best.high)
    assert found.p_value == max(worst.p_value, best.p_value)
    middle = likelihood_effect(ls, scores, single, reliability=0.7)
    assert found.bounds[0] < middle.value < found.bounds[1]
    *items, several = simulate(300, -0.1, seed=6)
    null = likelihood_effect(*items, several[:, :1])
    assert null.bounds[0] < 0 < null.bounds[1]
    assert null.p_value == 1.0
    assert np.isnan([found.quality, found.reliability]).all()
    choice = np.where(ratings[:, :1] > 3, 1.0, -1.0)  # one of two values: a reliability of at least 1/pi
    of_choices = likelihood_effect(ls, scores, choice)
    worst, best = (likelihood_effect(ls, scores, choice, reliability=r) for r in (1 / np.pi, 1.0))
    assert of_choices.bounds == (worst.value, best.value)
    assert (of_choices.low, of_choices.high) == (worst.low, best.high)


def test_items_with_one_rating_are_left_out_where_others_have_two():
    ratings = np.array(RATINGS, dtype=float)
    ratings[0, 1] = np.nan
    ratings[1] = np.nan
    found = likelihood_effect(LS, SCORES, ratings)
    rest = likelihood_effect(LS[2:], SCORES[2:], RATINGS[2:])
    assert (found.n, found.undefined, found.value) == (6, 2, pytest.approx(rest.value))
    gaps = likelihood_effect([np.nan, *LS[1:]], [SCORES[0], np.nan, *SCORES[2:]], RATINGS)
    assert (gaps.n, gaps.undefined, gaps.value) == (6, 2, pytest.approx(rest.value))


def test_the_sign_of_a_rounding_error_at_an_end_of_the_bounds_decides_nothing():
    """A judge that follows the one rating of each item has no effect at reliability 1, but for 1e-16."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        quality = rng.normal(size=90)
        ls, rating = 0.2 * quality + rng.normal(size=90), quality + 0.3 * rng.normal(size=90)
        design, noise = np.column_stack([np.ones(90), ls, rating]), rng.normal(size=90)
        noise -= design @ np.linalg.lstsq(design, noise, rcond=None)[0]
        found = likelihood_effect(ls, rating + noise, rating[:, None])
        assert min(abs(end) for end in found.bounds) < 1e-12
        assert found.p_value == 1.0


def test_the_change_is_the_difference_of_both_effects():
    ls, before, ratings = simulate(400, 0.3, seed=7)
    after = before - 0.3 * ls + 0.2 * np.random.default_rng(8).normal(size=400)
    after[0] = np.nan
    change = likelihood_effect(ls, after, ratings, before=before)
    first, second = (likelihood_effect(ls[1:], s[1:], ratings[1:]) for s in (before, after))
    assert change.value == pytest.approx(second.value - first.value, rel=1e-9)
    assert change.value < -0.2
    assert change.high < 0
    assert change.standard_error < np.hypot(first.standard_error, second.standard_error)
    assert (change.n, change.undefined, change.score_sd, change.allowance) == (399, 1, 1.0, (0.0, 0.0))
    assert second.allowance != (0.0, 0.0)
    assert likelihood_effect(ls, before, ratings[:, :1], reliability=0.7).allowance == (0.0, 0.0)
    back = likelihood_effect(ls, before, ratings, before=after)
    assert back.value == pytest.approx(-change.value, rel=1e-9)
    same = likelihood_effect(ls, before, ratings, before=before)
    assert np.isnan(same.value)
    assert "score alike" in same.reason


@pytest.mark.slow
def test_the_weak_interval_is_the_set_that_the_test_accepts():
    ls, scores, ratings = simulate(60, 0.2, seed=11, noise=1.2)
    y, x, rated = zscore(scores), np.column_stack([np.ones(60), zscore(ls)]), pool(ratings)
    groups = np.arange(60) // 2
    low, high, p_value = weak_test(y, x, 1, rated, groups)
    quantile = stats.t.ppf(0.975, 29) ** 2

    def distance(effect):
        z, h = x[:, 1], rated.mean
        best = np.inf
        for quality in np.linspace(-6, 6, 2401):
            rest = y - effect * z
            moments = np.stack([z * (rest - quality * h), h * rest - quality * rated.product])  # (2, n)
            sums = moments.reshape(2, 30, 2).sum(axis=2)
            covariance = np.cov(sums) * 30 * 59 / 57
            best = min(best, sums.sum(axis=1) @ np.linalg.solve(covariance, sums.sum(axis=1)))
        return best

    for end, inward in ((low, 0.02), (high, -0.02)):
        assert distance(end + inward) < quantile < distance(end - inward)
    assert p_value == pytest.approx(2 * stats.t.sf(np.sqrt(distance(0.0)), 29), abs=0.01)
    rescaled = weak_test(y, x * [1, 60], 1, rated, groups, null=0.1 / 60)  # the effect of one unit
    *ends, p_of_null = weak_test(y, x, 1, rated, groups, null=0.1)
    assert rescaled == pytest.approx((*(end / 60 for end in ends), p_of_null))
    # values that the test rejects begin right behind the ends, which lie between those that are searched first
    for end, outward in ((low, -4e-4), (high, 4e-4)):
        assert weak_test(y, x, 1, rated, groups, null=end)[2] >= 0.05 - 1e-9
        assert weak_test(y, x, 1, rated, groups, null=end + outward)[2] < 0.05


@pytest.mark.parametrize(("change", "reason"), [
    ({"likelihoods": [1.0] * 8}, "all items have the same likelihood"),
    ({"model_scores": [3.0] * 8}, "all items have the same score"),
    ({"ratings": [[3, 3]] * 8}, "all items have the same rating"),
    ({"ratings": [[np.nan, np.nan]] * 8}, "(0 items from 0 inputs): at least 5 items from 5 inputs are needed"),
    ({"covariates": {f"c{k}": [None, *LS[k:], *LS[1:k]] for k in (2, 3, 4)}}, "(7 items from 7 inputs): at least"),
    ({"clusters": [1, 1, 1, 1, 2, 2, 3, 4]}, "(8 items from 4 inputs): at least 5 items from 5"),
    ({"ratings": [[3, 4]] + [[np.nan, np.nan]] * 7}, "(1 item from 1 input): at least 5 items from 5 inputs"),
    ({"covariates": {"length": [5] * 8}}, "all items have the same length: leave it out"),
    ({"covariates": {"copy": LS}}, "likelihood, copy determine each other"),
    ({"covariates": {"copy": [2 * ls + 1e-9 * (k % 3) for k, ls in enumerate(LS)]}}, "can hardly be told apart"),
    ({"ratings": [[v + 0.1 * s] for v, s in zip(LS, SCORES, strict=True)], "reliability": 0.5}, "agrees no more"),
    ({"ratings": [[1, 5], [5, 1], [1, 5], [5, 1], [2, 4], [4, 2], [1, 4], [4, 1]]}, "agrees no more than"),
])  # fmt: skip
def test_an_effect_that_cannot_be_told_is_undefined_with_the_reason(change, reason):
    found = likelihood_effect(**{"likelihoods": LS, "model_scores": SCORES, "ratings": RATINGS, **change})
    assert np.isnan([found.value, found.low, found.high, found.p_value, *found.bounds]).all()
    assert reason in found.reason


def test_reasons_name_a_feature_in_words():
    for n, values, reason in ((3, LS, "ratings and a value of own system (3"), (8, [1.0] * 8, "same own system")):
        found = EqualQuality(SCORES[:n], RATINGS[:n], {"own_system": values[:n]}).effect("own_system")
        assert reason in found.reason


test_wrong_arguments_are_named = refusals(
    lambda change: likelihood_effect(**{"likelihoods": LS, "model_scores": SCORES, "ratings": RATINGS, **change}),
    ({"reliability": 0.0}, "reliability=0.0 is out of range"),
    ({"reliability": 1.2}, "reliability=1.2 is out of range"),
    ({"reliability": 0.8}, "have several ratings"),
    ({"ratings": [1] * 8}, r"ratings has the shape \(8,\)"),
    ({"ratings": RATINGS[1:]}, "scores 8, ratings 7, likelihood 8"),
    ({"clusters": [1] * 7}, "clusters has 7 entries"),
    ({"covariates": {"length": [1] * 9}}, "likelihood 8, length 9"),
    ({"ratings": [[np.inf, 1]] * 8}, r"ratings\[0, 0\] is infinite"),
    ({"model_scores": [1] * 7}, "different lengths"),
    ({"covariates": {"quality": LS}}, "A feature is called 'quality'"),
    ({"covariates": {"length": [np.inf, *LS[1:]]}}, r"length\[0\] is infinite"),
)


def test_ratings_that_say_nothing_leave_every_effect_possible():
    rng = np.random.default_rng(0)
    quality = rng.normal(size=30)
    x = np.column_stack([np.ones(30), zscore(quality + 0.1 * rng.normal(size=30))])
    low, high, p_value = weak_test(zscore(quality), x, 1, pool(rng.normal(size=(30, 2))), np.arange(30))
    assert (low, high) == (-np.inf, np.inf)
    assert p_value > 0.05


def effect_of(x, scores, ratings, *, covariates=None, standardized=True, **options):
    features = {"x": x, **(covariates or {})}
    unscaled = [name for name in features if name.startswith("system") or (name == "x" and not standardized)]
    return EqualQuality(scores, ratings, features, unscaled=unscaled, **options).effect("x")


def world(seed, n, raters, likert):
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    feature = 0.5 * quality + rng.normal(size=n)
    ratings = np.clip(np.round(3 + quality[:, None] + 0.7 * rng.normal(size=(n, raters))), 1, 5)
    scores = quality + 0.3 * feature + 0.5 * rng.normal(size=n)
    covariates = {**of_levels(rng.choice(["a", "b", "c"], n)), "length": rng.normal(size=n).tolist()}
    clusters = [f"d{i}" for i in rng.integers(0, n // 3, n)]
    return rng, feature, np.clip(np.round(3 + scores), 1, 5) if likert else scores, ratings, covariates, clusters


def numbers(found):
    return [found.value, found.low, found.high, found.standard_error, found.p_value, *found.bounds, *found.allowance]


def turned(found):
    """Numbers of the effect of the opposite feature."""
    effect, low, high, error, p, *pairs = numbers(found)
    return [-effect, -high, -low, error, p, -pairs[1], -pairs[0], -pairs[3], -pairs[2]]


worlds = {"seed": st.integers(0, 999), "n": st.sampled_from([12, 30, 60]), "raters": st.integers(1, 4)}
worlds |= {"likert": st.booleans(), "standardized": st.booleans()}


@pytest.mark.slow
@settings(max_examples=40)
@given(**worlds)
def test_orders_names_and_units_do_not_matter(seed, n, raters, likert, standardized):
    rng, x, s, r, covariates, clusters = world(seed, n, raters, likert)
    options = {"covariates": covariates, "clusters": clusters, "standardized": standardized}
    found = effect_of(x, s, r, **options)

    def same(*arrays, **changed):
        other = effect_of(*arrays, **{**options, **changed})
        assert numbers(other) == pytest.approx(numbers(found), rel=1e-4, abs=1e-4, nan_ok=True)
        assert other.reason == found.reason

    p = rng.permutation(n)
    moved = {name: [values[i] for i in p] for name, values in covariates.items()}
    same(x[p], s[p], r[p], covariates=moved, clusters=[clusters[i] for i in p])
    same(x, s, r[:, rng.permutation(raters)])
    same(x, 25 * s + 100, r)
    same(x, s, 1e-6 * r)
    same(x, s, 1e6 * r - 7)
    same(x, s, r, covariates={**covariates, "length": [1e6 * v + 3 for v in covariates["length"]]})
    same(x, s, r, covariates=dict(reversed(covariates.items())))
    for unit in (60.0, 1e-6):
        other = effect_of(unit * x, s, r, **options)
        per_unit = np.array([1, 1, 1, 1, 0, 1, 1, 1, 1]) if not standardized else np.zeros(9)
        expected = np.array(numbers(found)) / unit**per_unit
        assert numbers(other) == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-4, nan_ok=True)
        assert other.reason == found.reason


@given(**worlds)
def test_the_direction_of_feature_scale_and_comparison_turns_the_sign(seed, n, raters, likert, standardized):
    _, x, s, r, covariates, clusters = world(seed, n, raters, likert)
    options = {"clusters": clusters, "standardized": standardized}
    found = effect_of(x, s, r, **options)
    for other in (effect_of(-x, s, r, **options), effect_of(x, 6 - s, 6 - r, **options)):
        assert numbers(other) == pytest.approx(turned(found), rel=1e-4, abs=1e-4, nan_ok=True)
    after = s + np.array(covariates["length"])
    change, back = (effect_of(x, after, r, before=s, **options), effect_of(x, s, r, before=after, **options))
    assert numbers(back) == pytest.approx(turned(change), rel=1e-4, abs=1e-4, nan_ok=True)


# Pairs count both ways, so it does not matter which candidate the data name first.


def of_pairs(n, *, seed=0):
    """Differences of length, score and two ratings; longer candidates stand first more often, and win more often."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    length = 0.7 + 0.5 * quality + rng.normal(size=n)
    score = quality + 0.4 * length + 0.8 * rng.normal(size=n)
    return length, score, quality[:, None] + 0.7 * rng.normal(size=(n, 2))


def by_definition(length, score, ratings):
    """Regression through the origin, the product of two ratings instead of the squared mean rating."""
    mean, product = ratings.mean(axis=1), ratings.prod(axis=1)
    normal = [[length @ length, length @ mean], [length @ mean, product.sum()]]
    slope = np.linalg.solve(normal, [length @ score, mean @ score])[0]
    return slope * np.sqrt((length @ length) / (score @ score))


def test_the_effect_is_that_of_a_regression_through_the_origin():
    # the raters' own levels are 0 in both, because every pair counts both ways
    found = effect_of(*of_pairs(60), mirrored=True, differences=True)
    side = np.random.default_rng(2).choice([-1.0, 1.0], size=60)  # whichever candidate the data name first
    turned = effect_of(*((side * one.T).T for one in of_pairs(60)), mirrored=True, differences=True)
    assert numbers(turned) == pytest.approx(numbers(found))
    assert found.value == pytest.approx(by_definition(*of_pairs(60)))
    left_out = [by_definition(*(np.delete(values, i, axis=0) for values in of_pairs(60))) for i in range(60)]
    assert found.standard_error == pytest.approx(np.sqrt(59 * np.var(left_out)))
    half = stats.t.ppf(0.975, 59) * found.standard_error
    ends = found.low + found.allowance[1], found.high + found.allowance[0]
    assert ends == pytest.approx((found.value - half, found.value + half))
    assert (found.n, found.units, found.undefined) == (60, 60, 0)
    _, score, _ = of_pairs(60)
    assert found.score_sd == pytest.approx(np.sqrt((score @ score) / 60))


TWENTY = np.arange(1, 21) / 20  # reliabilities


@pytest.mark.parametrize(("slope", "effect", "taken", "ends"), [  # of length on quality, and of it on the scores
    (0.5, 0.4, 0.7, (0.4, 1.0)),
    (-0.5, 0.12, 0.5, (0.18, 0.67)),
    (0.3, -0.15, 0.6, (0.07, 1.0)),
    (0.0, 1.0, 1.0, (0.04, 1.0)),
])  # fmt: skip
def test_an_interval_excludes_0_at_every_reliability_between_the_ends_that_hold_it(slope, effect, taken, ends):
    rng = np.random.default_rng(1)
    quality, other = rng.normal(size=(2, 600))
    length = slope * quality + other
    scores = quality + effect * length + 0.7 * rng.normal(size=600)
    rating = (quality + 0.8 * rng.normal(size=600))[:, None]

    def model(reliability):
        return EqualQuality(scores, rating, {"length": length}, reliability=reliability)

    def excludes(reliability):
        e = model(reliability).effect("length")
        return e.low > 0 if effect > 0 else e.high < 0

    least, greatest = model(taken).holding("length")
    assert (least, greatest) == pytest.approx(ends, abs=0.011)
    assert all(excludes(r) for r in [*TWENTY, least, greatest] if least <= r <= greatest)
    assert not excludes(max(least - 0.011, 0.001))
    assert greatest == 1 or not excludes(greatest + 0.011)


def test_the_ends_that_hold_an_effect_are_of_the_mean_rating_and_unknown_where_nothing_is_held():
    rng = np.random.default_rng(0)
    quality, length = rng.normal(size=(2, 300))
    ratings = quality[:, None] + rng.normal(size=(300, 2))
    many = EqualQuality(quality + 0.3 * length + rng.normal(size=300), ratings, {"length": length})
    least, greatest = many.holding("length")
    assert least < many.effect("length").reliability < greatest == 1
    honest = EqualQuality(quality, ratings, {"length": rng.normal(size=300)})
    bounds = EqualQuality(quality + 2 * length, ratings[:, :1], {"length": length})
    assert bounds.effect("length").low > 0
    assert np.isnan([*honest.holding("length"), *bounds.holding("length")]).all()


def test_items_with_one_rating_count_where_its_reliability_is_stated_or_hardly_any_has_two():
    rng = np.random.default_rng(5)
    quality = rng.normal(size=2000)
    length = 0.6 * quality + 0.8 * rng.normal(size=2000)
    scores = quality + 0.1 * length + 0.5 * rng.normal(size=2000)
    ratings = quality[:, None] + 0.8 * rng.normal(size=(2000, 2))
    ratings[80:, 1] = np.nan
    models = [EqualQuality(scores, ratings, {"length": length}, reliability=r) for r in (None, 1 / 1.64)]
    alone, stated = (model.effect("length") for model in models)
    assert (alone.n, stated.n) == (80, 2000)
    true = 0.1 / scores.std() * length.std()
    assert alone.low < true < alone.high
    assert stated.low < true < stated.high
    assert stated.high - stated.low < 0.5 * (alone.high - alone.low)
    ratings[8:, 1] = np.nan  # too few to tell: bounds of all
    few = EqualQuality(scores, ratings, {"length": length}).effect("length")
    assert (few.n, np.isnan(few.value), few.low < true < few.high) == (2000, True, True)
    with pytest.raises(ValueError, match="reliability"):
        EqualQuality(scores[:8], ratings[:8], {"length": length[:8]}, reliability=0.5)


def test_an_interval_ends_where_the_scale_does_and_one_that_holds_all_of_it_tells_nothing():
    found = Effect(0.4, -0.1, 19.2, n=9, score_sd=0.4)
    cut = within_scale(found, 1.0)  # a score of 0 or 1: one that is 1 point above another is 2.5 deviations above
    assert (cut.value, cut.low, cut.high, cut.reason) == (0.4, -0.1, 2.5, "")
    assert within_scale(found, np.inf) == found
    for nothing in (replace(found, low=-5.6), replace(found, value=18.5)):
        cut = within_scale(nothing, 1.0)
        assert np.isnan([cut.value, cut.low, cut.high, cut.p_value]).all()
        assert "too few or too unreliable" in cut.reason


def test_scores_that_level_off_where_quality_is_high_do_not_look_like_a_dislike_of_what_goes_with_it():
    rng = np.random.default_rng(2)
    length = rng.normal(size=800)
    quality = 0.6 * (np.exp(0.8 * length) - 1.4) + 0.4 * rng.normal(size=800)  # the longest are by far the best
    scores = 3 + 1.5 * np.tanh(0.8 * quality) + 0.3 * rng.normal(size=800)
    ratings = quality[:, None] + 0.5 * rng.normal(size=(800, 2))
    effect = EqualQuality(scores, ratings, {"length": length}).effect("length")
    assert effect.value == pytest.approx(0.188, abs=0.001)  # a straight line in quality leaves this
    assert effect.allowance[1] == pytest.approx(0.140, abs=0.001)  # and a parabola .048
    assert effect.low < 0 < effect.high
    assert effect.p_value > 0.3  # .014 beside a straight line
    passed = EqualQuality(scores, ratings > 0, {"length": length}).effect("length")  # squares of 0 and 1 say no more
    assert passed.allowance[1] < 0.1


@pytest.mark.parametrize(("first", "factor"), [(3.0, 1.0), (13.0, 1.15)])
def test_an_interval_is_wider_where_one_input_tells_most_of_an_effect(first, factor):
    rng = np.random.default_rng(0)
    quality, length = rng.normal(size=(2, 100))
    length[0] = first  # 13 holds .64 of the squares of all lengths
    ratings = quality[:, None] + 0.6 * rng.normal(size=(100, 2))
    effect = EqualQuality(quality + 0.5 * rng.normal(size=100), ratings, {"length": length}).effect("length")
    half = (effect.high - effect.low + effect.allowance[0] - effect.allowance[1]) / 2
    assert half == pytest.approx(factor * stats.t.ppf(0.975, 99) * effect.standard_error, rel=0.005)
