"""Effects at equal quality do not depend on orders, names, units or the direction of a scale."""

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbias.measures import EqualQuality, likelihood_effect


def effect_of(x, scores, ratings, *, covariates=None, standardized=True, **options):
    unscaled = () if standardized else ("x",)
    return EqualQuality(scores, ratings, {"x": x, **(covariates or {})}, unscaled=unscaled, **options).effect("x")


def world(seed, n, raters, likert):
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    feature = 0.5 * quality + rng.normal(size=n)
    ratings = np.clip(np.round(3 + quality[:, None] + 0.7 * rng.normal(size=(n, raters))), 1, 5)
    scores = quality + 0.3 * feature + 0.5 * rng.normal(size=n)
    covariates = {"system": rng.choice(["a", "b", "c"], n).tolist(), "length": rng.normal(size=n).tolist()}
    clusters = [f"d{i}" for i in rng.integers(0, n // 3, n)]
    return rng, feature, np.clip(np.round(3 + scores), 1, 5) if likert else scores, ratings, covariates, clusters


def numbers(found):
    return [found.value, found.low, found.high, found.standard_error, found.p_value, *found.bounds, *found.allowance]


def turned(found):
    """Numbers of the effect of the opposite feature."""
    effect, low, high, error, p, *pairs = numbers(found)
    return [-effect, -high, -low, error, p, -pairs[1], -pairs[0], -pairs[3], -pairs[2]]


worlds = {
    "seed": st.integers(0, 999),
    "n": st.sampled_from([12, 30, 60]),
    "raters": st.integers(1, 4),
    "likert": st.booleans(),
    "standardized": st.booleans(),
}


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
    names = {"a": "z", "b": "y", "c": "x"}
    same(x, s, r, covariates={"length": [1e6 * v + 3 for v in covariates["length"]], "by": covariates["system"]})
    same(x, s, r, covariates={**covariates, "system": [names[v] for v in covariates["system"]]})
    for unit in (60.0, 1e-6):
        other = effect_of(unit * x, s, r, **options)
        per_unit = np.array([1, 1, 1, 1, 0, 1, 1, 1, 1]) if not standardized else np.zeros(9)
        expected = np.array(numbers(found)) / unit**per_unit
        assert numbers(other) == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-4, nan_ok=True)
        assert other.reason == found.reason


@settings(max_examples=40)
@given(**worlds)
def test_the_direction_of_feature_scale_and_comparison_turns_the_sign(seed, n, raters, likert, standardized):
    _, x, s, r, covariates, clusters = world(seed, n, raters, likert)
    options = {"clusters": clusters, "standardized": standardized}
    found = effect_of(x, s, r, **options)
    for other in (effect_of(-x, s, r, **options), effect_of(x, 6 - s, 6 - r, **options)):
        assert numbers(other) == pytest.approx(turned(found), rel=1e-4, abs=1e-4, nan_ok=True)
    after = s + np.array(covariates["length"])
    change, back = (
        effect_of(x, after, r, before=s, **options),
        effect_of(x, s, r, before=after, **options),
    )
    assert numbers(back) == pytest.approx(turned(change), rel=1e-4, abs=1e-4, nan_ok=True)


def test_covariates_that_take_the_place_of_another_term_are_refused():
    _, x, s, r, covariates, _ = world(0, 30, 2, likert=False)
    for name in ("likelihood", "quality"):
        with pytest.raises(ValueError, match=f"A (covariate|feature) is called '{name}'"):
            likelihood_effect(x, s, r, covariates={name: covariates["length"]})
    with pytest.raises(ValueError, match=r"length\[0\] is infinite"):
        effect_of(x, s, r, covariates={"length": [np.inf, *covariates["length"][1:]]})


def test_an_undefined_effect_or_interval_has_a_reason():
    rng, x, s, r, *_ = world(0, 60, 2, likert=False)
    found = effect_of(x, s, r, covariates={"length": 2 * x + 1e-9 * rng.normal(size=60)})
    assert np.isnan(found.value)
    assert "can hardly be told apart from what is held fixed" in found.reason
    own = np.zeros(60)
    own[:4] = 1.0  # the judge's own system answered one input only
    inputs = [str(max(i - 3, 0)) for i in range(60)]
    alone = effect_of(own, s, r, clusters=inputs, standardized=False)
    assert np.isnan(alone.low)
    assert "without the items of one input the effect is unknown" in alone.reason


# Pairs count both ways, so it does not matter which candidate the data name first.


def pairs(n, *, seed=0):
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
    found = effect_of(*pairs(60), mirrored=True, differences=True)
    side = np.random.default_rng(2).choice([-1.0, 1.0], size=60)  # whichever candidate the data name first
    turned = effect_of(*((side * one.T).T for one in pairs(60)), mirrored=True, differences=True)
    assert numbers(turned) == pytest.approx(numbers(found))
    assert found.value == pytest.approx(by_definition(*pairs(60)))
    left_out = [by_definition(*(np.delete(values, i, axis=0) for values in pairs(60))) for i in range(60)]
    assert found.standard_error == pytest.approx(np.sqrt(59 * np.var(left_out)))
    half = scipy.stats.t.ppf(0.975, 59) * found.standard_error
    assert (found.low + found.allowance[1], found.high + found.allowance[0]) == pytest.approx(
        (found.value - half, found.value + half)
    )
    assert (found.n, found.units, found.undefined) == (60, 60, 0)
    _, score, _ = pairs(60)
    assert found.score_sd == pytest.approx(np.sqrt((score @ score) / 60))
