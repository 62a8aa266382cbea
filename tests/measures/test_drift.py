"""A changed mean and a gain in their parts, on judges and versions whose truth is known."""

import numpy as np
import pytest

from evalbias.measures.corrections import split_gain
from evalbias.measures.drift import anchors_needed, split_change
from evalbias.measures.equal_quality import EqualQuality
from evalbias.measures.resample import Draws

FEW = Draws(resamples=50)
RNG = np.random.default_rng(0)


def scored(quality, noise, *shape, rng=RNG):
    return quality.reshape(-1, *[1] * len(shape)) + noise * rng.normal(size=(len(quality), *shape))


def part(found, name="judge"):
    return found.parts[name].value


def test_tied_scores_get_the_mean_of_their_places_quantiles():
    old, new = [1, 1, 2, 2], [1, 2, 2, 4]  # places 0 to .5 hold 1 and 2, those from .5 hold 2 and 4
    found = split_change([1, 2, 2], [3.0], old, new, draws=FEW)
    assert found.levels.tolist() == [1, 2]
    assert found.mapped[:, 0].tolist() == [1.5, 3]
    assert part(found) == pytest.approx((1.5 + 3 + 3) / 3 - 5 / 3)
    assert part(found, "system") == pytest.approx(3 - 2.5)
    assert part(found, "change") == pytest.approx(3 - 5 / 3)
    assert (found.apart, found.beyond) == (pytest.approx(5 / 3 - 1.5), 0)
    assert found.spread == pytest.approx(np.std([0, 1, 0, 2], ddof=1))
    assert np.isnan(found.parts["judge"].low)  # of four inputs


def test_between_scores_the_map_is_straight_and_beyond_them_the_last_shift_holds():
    found = split_change([0.0, 2.0, 6.0], [1.0], [1, 3, 5], [2, 5, 6], draws=FEW)
    assert part(found) == pytest.approx((1 + 3.5 + 7) / 3 - 8 / 3)
    assert found.beyond == pytest.approx(2 / 3)


def test_noise_does_not_flatten_the_map_of_anchors_that_are_worse_than_the_period():
    anchors, period = RNG.normal(size=20_000) - 1, RNG.normal(size=20_000)
    old, new = (scored(anchors, 0.8) for _ in range(2))
    found = split_change(scored(period, 0.8), [0.0], old, new, draws=Draws(resamples=0))
    assert abs(part(found)) < 0.03
    slope = np.cov(old, new)[0, 1] / old.var()  # a regression would take the period down by about .4
    assert (1 - slope) * found.apart > 0.35


def test_of_repeated_scores_noise_that_differs_is_removed():
    anchors, period = RNG.normal(size=20_000) - 1, RNG.normal(size=20_000)
    old, new = scored(anchors, 0.8, 3), scored(anchors, 0.2, 3)
    before = scored(period, 0.8, 3)
    kept = split_change(before, [0.0], old, new, draws=Draws(resamples=0))
    single = split_change(before.mean(axis=1), [0.0], old.mean(axis=1), new.mean(axis=1), draws=Draws(resamples=0))
    assert abs(part(kept)) < 0.03 < 0.06 < abs(part(single)) < single.unsure
    assert kept.unsure == 0
    before[:, 1:] = np.nan  # one score each: the noise in the period is that of the same judge on the anchors
    anchored = split_change(before, [0.0], old, new, draws=Draws(resamples=0))
    assert abs(part(anchored)) < 0.04
    assert anchored.unsure == 0
    assert split_change(before, [0.0], old, new[:, :1], draws=Draws(resamples=0)).unsure > 0


def test_intervals_allow_for_noise_of_one_judge_alone():
    rng = np.random.default_rng(4)
    anchors, period = rng.normal(size=300) - 1, rng.normal(size=300)
    old, new, before = (scored(q, s, rng=rng) for q, s in ((anchors, 0.8), (anchors, 0.0), (period, 0.8)))
    found = split_change(before, scored(period, 0.0), old, new)
    slopes = new.var(ddof=1) / np.cov(old, new)[0, 1], new.std() / old.std()
    far = np.sqrt(found.apart**2 - 2 * 2 * 1.64 / 300)  # of two groups of 300 whose scores have a variance of 1.64
    assert found.unsure == pytest.approx(far * (slopes[0] - slopes[1]), rel=0.02)
    assert found.parts["judge"].low < 0 < found.parts["judge"].high  # the same judge without its noise
    half = found.parts["judge"].high - part(found)
    twice = split_change(*(np.repeat(one[:, None], 2, axis=1) for one in (before, period, old, new)))  # known to be 0
    without = twice.parts["judge"].high - part(twice)
    assert half == pytest.approx(np.hypot(without, found.unsure * 1.968 * np.sqrt(300 / 299)), rel=0.001)  # Student's t
    assert part(twice) == part(found)
    against = split_change(before, period, old, -new)
    assert against.unsure == np.inf
    assert np.isnan(against.parts["system"].high)
    assert against.parts["judge"].reason.startswith("the scores of the two judges do not rise together")


def test_a_judge_whose_steady_opinions_do_not_differ_is_shifted():
    noise = np.tile([[0.0, 2.0], [2.0, 0.0]], (10, 1))
    found = split_change(noise[:4], [0.0], noise, noise + 1, draws=FEW)
    assert part(found) == pytest.approx(1)


def test_without_outputs_of_its_own_a_period_is_the_anchors():
    old, new = np.arange(12.0), np.arange(12.0) / 2
    found = split_change([], [4.0] * 12, old, new, draws=FEW)
    assert part(found) == pytest.approx(-2.75)
    assert part(found, "system") == pytest.approx(4 - 2.75)
    both = split_change([], [], old, new, draws=FEW)
    assert part(both, "change") == pytest.approx(part(both)) == pytest.approx(-2.75)
    assert both.parts["system"].low == both.parts["system"].high == 0
    assert both.parts["judge"].low < -2.75 < both.parts["judge"].high


def test_inputs_are_drawn_as_a_whole_and_one_name_is_one_input():
    quality = RNG.normal(size=60).repeat(4)
    judged = [quality, quality + 0.2, quality, quality + 0.2 + np.repeat(RNG.normal(size=60), 4)]
    inputs = [f"{k // 4}" for k in range(240)]
    ends = [
        split_change(*judged, clusters=clusters, draws=Draws(resamples=300)).parts["judge"]
        for clusters in ((None, None, None), (inputs, inputs, inputs))
    ]
    assert (ends[1].high - ends[1].low) > 1.6 * (ends[0].high - ends[0].low)
    assert (ends[0].units, ends[1].units) == (240, 60)


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        (([1.0], [1.0], [np.nan], [1.0]), "No anchor has scores of both judges"),
        (([np.nan], [1.0], [1.0], [1.0]), "or a period has none"),
        (([1.0], [1.0], [1.0, 2.0], [1.0]), "different lengths"),
        (([1.0], [np.inf], [1.0], [1.0]), "infinite"),
    ],
)
def test_what_cannot_be_split_is_refused(scores, told):
    with pytest.raises(ValueError, match=told):
        split_change(*scores)


def test_the_number_of_anchors_falls_with_the_square_of_the_change():
    assert anchors_needed(0.2, 1.0) == 197  # (1.960 + 0.842)^2 25
    assert anchors_needed(0.4, 1.0) == 50
    assert anchors_needed(0.4, 1.0, power=0.5) == 25
    with pytest.raises(ValueError, match=r"change=0, spread=1.0"):
        anchors_needed(0, 1.0)


# The parts of a gain, on versions whose parts are known.


def version(rng, n, quality=0.0, length=0.0, *, worth=0.3, lean=0.0, raters=2):
    """Return scores, ratings and lengths of n outputs whose mean quality and length are given."""
    q, x = rng.normal(size=(2, n))
    x = length + 0.4 * q + x
    q = q + quality
    return 3 + 0.8 * q + worth * x + lean + 0.4 * rng.normal(size=n), q[:, None] + 0.6 * rng.normal(size=(n, raters)), x


def both(n=2000, *, seed=0, rated="versions", **second):
    rng = np.random.default_rng(seed)
    (s0, h0, x0), (s1, h1, x1) = version(rng, n), version(rng, n, **second)
    inputs = [f"{k}" for k in range(n)]
    features = {"length": np.concatenate([x0, x1]), "version": np.repeat([0.0, 1.0], n)}
    ratings, scores = np.concatenate([h0, h1]), np.concatenate([s0, s1])
    model = EqualQuality(scores, ratings, features, clusters=inputs * 2, unscaled=[*features])
    sides = [
        {"gain": s, "length": x} | ({"people": h.mean(axis=1)} if rated == "versions" else {})
        for s, h, x in ((s0, h0, x0), (s1, h1, x1))
    ]
    return split_gain(*sides, model, clusters=(inputs, inputs, inputs * 2))


@pytest.mark.parametrize(
    ("second", "parts"),
    [
        ({"quality": 0.5}, {"length": 0.0, "quality": 0.4, "rest": 0.0}),
        ({"length": 0.5}, {"length": 0.15, "quality": 0.0, "rest": 0.0}),
        ({"quality": 0.5, "length": 0.5}, {"length": 0.15, "quality": 0.4, "rest": 0.0}),
        ({"quality": 0.5, "length": 0.5, "lean": 0.3}, {"length": 0.15, "quality": 0.4, "rest": 0.3}),
    ],
)
def test_planted_parts_are_found_and_add_up(second, parts):
    found = both(**second)
    for name, value in parts.items():
        assert found[name].value == pytest.approx(value, abs=0.06), name
        assert found[name].low < value < found[name].high, name
        assert found[name].high - found[name].low < 0.2, name
    assert sum(found[name].value for name in parts) == pytest.approx(found["gain"].value)
    assert found["people"].value == pytest.approx(second.get("quality", 0.0), abs=0.06)
    assert (found["gain"].n, found["gain"].units, found["gain"].undefined) == (4000, 2000, 0)


def test_without_ratings_of_both_versions_quality_is_in_the_rest():
    found = both(rated="elsewhere", quality=0.5, length=0.5)
    assert [*found] == ["gain", "length", "rest"]
    assert found["rest"].value == pytest.approx(0.4, abs=0.06)


def test_the_error_of_a_mean_difference_is_that_of_paired_inputs():
    rng = np.random.default_rng(1)
    base = rng.normal(size=40)
    first, second = base + 0.1 * rng.normal(size=40), base + 0.2 + 0.1 * rng.normal(size=40)
    inputs = [f"{k}" for k in range(40)]
    found = split_gain({"gain": first}, {"gain": second}, None, clusters=(inputs, inputs, []))["gain"]
    apart = second - first
    half = 2.0227 * apart.std(ddof=1) / np.sqrt(40)
    assert found.value == pytest.approx(apart.mean())
    assert (found.low, found.high) == (
        pytest.approx(apart.mean() - half, abs=1e-3),
        pytest.approx(apart.mean() + half, abs=1e-3),
    )
    assert split_gain({"gain": first}, {"gain": second[::-1]}, None, clusters=(inputs, inputs[::-1], []))[
        "gain"
    ].high == pytest.approx(found.high)


def test_what_cannot_be_said_is_undefined_and_says_why():
    inputs = [f"{k}" for k in range(20)]
    x = np.arange(20.0)
    sides = {"gain": x, "length": x**2}, {"gain": x + 1, "length": x**2 + x}
    found = split_gain(*sides, None, clusters=(inputs, inputs, []))
    assert found["gain"].value == pytest.approx(1)
    for name in ("length", "rest"):
        assert np.isnan([found[name].value, found[name].low]).all()
        assert found[name].reason.startswith("nobody rated items")
    rng = np.random.default_rng(0)
    noise = EqualQuality(
        rng.normal(size=20), rng.normal(size=(20, 2)), {"length": x}, clusters=inputs, unscaled=["length"]
    )
    assert split_gain(*sides, noise, clusters=(inputs, inputs, inputs))["length"].reason


def test_inputs_that_one_version_lacks_or_has_without_a_number_are_left_out():
    inputs = [f"{k}" for k in range(12)]
    first = {"gain": np.arange(12.0), "length": np.ones(12)}
    second = {"gain": np.arange(12.0) + 1, "length": np.ones(12)}
    second["gain"][3], first["length"][5] = np.nan, np.nan
    second["gain"][0] = 99
    found = split_gain(first, second, None, clusters=(inputs, ["else", *inputs[1:]], []))["gain"]
    assert found.value == pytest.approx(1)
    assert (found.n, found.units, found.undefined) == (18, 9, 6)
    few = split_gain({"gain": [1.0, 2.0]}, {"gain": [2.0, 3.0]}, None, clusters=(["a", "b"], ["a", "b"], []))["gain"]
    assert (few.value, np.isnan(few.low)) == (1, True)


def test_ratings_are_compared_on_the_inputs_that_have_them_in_both_versions():
    inputs, ratings = [f"{k}" for k in range(12)], np.arange(12.0)
    second = np.where(ratings > 5, ratings + 0.5, np.nan)  # the better half was rated
    sides = {"gain": ratings, "people": ratings}, {"gain": ratings, "people": second}
    found = split_gain(*sides, None, clusters=(inputs, inputs, []))
    assert found["people"].value == pytest.approx(0.5)
    assert found["people"].high == pytest.approx(0.5)
