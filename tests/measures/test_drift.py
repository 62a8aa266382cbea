"""A changed mean and a gain in their parts, on judges and versions whose truth is known."""

from functools import partial

import numpy as np
import pytest
from refusals import refusals

from evalbias.measures.drift import split_change
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


def test_the_map_is_straight_between_scores_and_a_shift_beyond_them_or_where_opinions_do_not_differ():
    found = split_change([0.0, 2.0, 6.0], [1.0], [1, 3, 5], [2, 5, 6], draws=FEW)
    assert part(found) == pytest.approx((1 + 3.5 + 7) / 3 - 8 / 3)
    assert found.beyond == pytest.approx(2 / 3)
    noise = np.tile([[0.0, 2.0], [2.0, 0.0]], (10, 1))
    found = split_change(noise[:4], [0.0], noise, noise + 1, draws=FEW)
    assert part(found) == pytest.approx(1)


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


@pytest.mark.slow
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
    split = partial(split_change, *judged, draws=Draws(resamples=300))
    ends = [split(clusters=(clusters,) * 3).parts["judge"] for clusters in (None, inputs)]
    assert (ends[1].high - ends[1].low) > 1.6 * (ends[0].high - ends[0].low)
    assert (ends[0].units, ends[1].units) == (240, 60)


test_what_cannot_be_split_is_refused = refusals(
    lambda scores: split_change(*scores),
    (([1.0], [1.0], [np.nan], [1.0]), "No anchor has scores of both judges"),
    (([np.nan], [1.0], [1.0], [1.0]), "or a period has none"),
    (([1.0], [1.0], [1.0, 2.0], [1.0]), "different lengths"),
    (([1.0], [np.inf], [1.0], [1.0]), "infinite"),
)
