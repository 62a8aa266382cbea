"""Effects on judges that compare: pairs count both ways, so it does not matter which candidate the data name first."""

import numpy as np
import pytest
import scipy

from evalbias.measures import effect_at_equal_quality


def pairs(n, *, seed=0):
    """Differences of length, score and two ratings; longer candidates stand first more often, and win more often."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    length = 0.7 + 0.5 * quality + rng.normal(size=n)
    score = quality + 0.4 * length + 0.8 * rng.normal(size=n)
    return length, score, quality[:, None] + 0.7 * rng.normal(size=(n, 2))


def turned(values, sides):
    return [
        side * value if value.ndim == 1 else side[:, None] * value
        for value, side in zip(values, (sides,) * 3, strict=True)
    ]


def by_definition(length, score, ratings):
    """Regression through the origin, the product of two ratings instead of the squared mean rating."""
    mean, product = ratings.mean(axis=1), ratings.prod(axis=1)
    normal = [[length @ length, length @ mean], [length @ mean, product.sum()]]
    slope = np.linalg.solve(normal, [length @ score, mean @ score])[0]
    return slope * np.sqrt((length @ length) / (score @ score))


def test_the_effect_is_that_of_a_regression_through_the_origin():
    # the raters' own levels are 0 in both, because every pair counts both ways
    found = effect_at_equal_quality(*pairs(60), mirrored=True, differences=True)
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


@pytest.mark.parametrize("sides", ["random", "longer first", "better first"])
def test_it_does_not_matter_which_candidate_the_data_name_first(sides):
    length, _, ratings = given = pairs(80, seed=1)
    side = {
        "random": np.random.default_rng(2).choice([-1.0, 1.0], size=80),
        "longer first": np.sign(length),
        "better first": np.sign(ratings.mean(axis=1)),
    }[sides]
    for options in (
        {"differences": True},
        {"clusters": np.arange(80) // 2},
        {"covariates": {"length again": length**3}},
    ):
        one = effect_at_equal_quality(*given, mirrored=True, **options)
        if "covariates" in options:
            options = {"covariates": {"length again": side * length**3}}
        other = effect_at_equal_quality(*turned(given, side), mirrored=True, **options)
        numbers = [(f.value, f.low, f.high, f.p_value, f.reliability, f.score_sd, f.n) for f in (one, other)]
        assert numbers[1] == pytest.approx(numbers[0], rel=1e-9)
    before, after = (
        effect_at_equal_quality(v[0], v[1], v[2], before=0.3 * v[1] + v[0], mirrored=True)
        for v in (given, turned(given, side))
    )
    assert (after.value, after.low, after.p_value) == pytest.approx((before.value, before.low, before.p_value))


def test_choices_that_people_made_alike_hold_the_quality_fixed():
    length, score, ratings = pairs(80, seed=3)
    side = np.sign(ratings[:, :1])
    chosen, taken = (np.sign(ratings[:, :1]), np.ones((80, 1)))
    found = effect_at_equal_quality(length, score, chosen, reliability=0.6, mirrored=True)
    first = effect_at_equal_quality(side[:, 0] * length, side[:, 0] * score, taken, reliability=0.6, mirrored=True)
    assert first.value == pytest.approx(found.value)
    with_constant = effect_at_equal_quality(side[:, 0] * length, side[:, 0] * score, taken, reliability=0.6)
    assert with_constant.reason == "all items have the same rating"
