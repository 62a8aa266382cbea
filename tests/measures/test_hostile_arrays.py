"""What every public measure does with pandas objects, other orders and units, and constant scores."""

import dataclasses
import inspect

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn
from hypothesis.extra import pandas as hp
from refusals import refusals

import evalbias.measures as m
from evalbias.measures.agreement import counted_pearson
from evalbias.measures.arrays import common_index, numbers, vectors
from evalbias.measures.equal_quality import Effect
from evalbias.measures.resample import mean
from evalbias.measures.scale_use import counted_spread

N = 24
RNG = np.random.default_rng(0)
QUALITY = RNG.uniform(0, 1, N)
RATINGS = np.round(5 * QUALITY[:, None] + RNG.normal(size=(N, 3)))
HUMAN, LIKELIHOODS = QUALITY + RNG.normal(size=N) / 4, RNG.normal(-40, 5, N)
OUTCOMES, PEOPLE = (RNG.random(N) < 0.6) * 1.0, (RNG.random(N) < 0.5) * 1.0
LABELS = np.where(np.arange(N) % 3 > 0, 1.0, np.nan)
DRAWN = {"draws": m.Draws(resamples=30, swaps=30)}


def pair(x):
    """Probabilities of two classes, of which the second follows from the first."""
    return np.stack([x, 1 - np.asarray(x)], axis=1)


def frame(x):
    """The same as pandas, with the index of x if it has one."""
    return pd.DataFrame(pair(x), index=x.index) if isinstance(x, pd.Series) else pair(x)


def choices(x):
    """Zeros and ones that keep NaN and an index."""
    return x - x % 1 + (x >= 0.5) if isinstance(x, pd.Series) else x * 0 + (x >= 0.5)


CALLS = {
    "pearson": lambda x, of: m.pearson(x, of(HUMAN)),
    "spearman": lambda x, of: m.spearman(x, of(HUMAN)),
    "kendall": lambda x, of: m.kendall(x, of(HUMAN)),
    "pairwise_accuracy": lambda x, of: m.pairwise_accuracy(x, of(HUMAN)),
    "bias_score": lambda x, of: m.bias_score(of(LIKELIHOODS), x),
    "rs_scores": lambda x, of: np.sort(m.rs_scores(of(LIKELIHOODS), x)),
    "unfairness_scores": lambda x, of: np.sort(m.unfairness_scores(x, of(HUMAN))),
    "estimate_effect": lambda x, of: m.estimate_effect(
        x, of(RATINGS), of(LIKELIHOODS), before=of(HUMAN), names=("likelihood",)
    ),
    "brier_scores": lambda x, of: np.sort(m.brier_scores(x, of(OUTCOMES))),
    "estimate_calibration_error": lambda x, of: m.estimate_calibration_error(x, of(OUTCOMES), **DRAWN),
    "corrected_mean": lambda x, of: m.corrected_mean(x, of(LABELS * HUMAN)),
    "corrected_rate": lambda x, of: m.corrected_rate(choices(x), of(LABELS * PEOPLE)),
    "estimate_rate": lambda x, of: m.estimate_rate(choices(x), of(PEOPLE), of="tpr", **DRAWN),
    "estimate_dependence": lambda x, of: m.estimate_dependence(choices(x), of(PEOPLE), **DRAWN),
    "estimate_share": lambda x, of: m.estimate_share(x, clusters=of(np.arange(N) // 2)),
    "estimate_mean": lambda x, of: m.estimate_mean(x, clusters=of(np.arange(N) // 2), **DRAWN),
    "estimate": lambda x, of: m.estimate(counted_spread, x, of(HUMAN), clusters=of(np.arange(N) // 2), **DRAWN),
    "change": lambda x, of: m.change(mean, of(HUMAN), x, **DRAWN),
    "estimate_coefficient": lambda x, of: m.estimate_coefficient(counted_pearson, x, of(HUMAN)),
    "estimate_spearman": lambda x, of: m.estimate_spearman(x, of(QUALITY), before=of(HUMAN), **DRAWN),
    "estimate_bias_score": lambda x, of: m.estimate_bias_score(x, of(LIKELIHOODS), of(HUMAN), **DRAWN),
    "estimate_skewness": lambda x, of: m.estimate_skewness(x, clusters=of(np.arange(N) // 2), **DRAWN),
    "estimate_fairness": lambda x, of: m.estimate_fairness(frame(x), clusters=of(np.arange(N) // 2), **DRAWN),
    "estimate_first_rate": lambda x, of: m.estimate_first_rate(x, before=of(QUALITY), **DRAWN),
    "quality_slope": lambda x, of: m.quality_slope(x, of(RATINGS)),
    "win_shares": lambda x, of: np.sort(m.win_shares(frame(x), decided=True), axis=0),
    "longer_wins": lambda x, of: np.sort(m.longer_wins(x, of(HUMAN), of(QUALITY))),
    "decision_shares": lambda x, of: np.sort(m.decision_shares(frame(x)), axis=0),
    "decision_rates": lambda x, of: m.decision_rates(frame(x)),
    "negative_entropies": lambda x, of: np.sort(m.negative_entropies(frame(x))),
    "consistent_preferences": lambda x, of: np.sort(m.consistent_preferences(frame(x), frame(of(QUALITY)))),
    "split_change": lambda x, of: [
        value
        for e in m.split_change([], [], x, of(HUMAN), draws=m.Draws(resamples=0)).parts.values()
        for value in (e.value, e.n)
    ],
}
"""Name -> call with scores in [0, 1], and a function that brings what belongs to the items into the scores' form."""
ALONE = {"decision_shares", "negative_entropies", "decision_rates", "win_shares"}
"""Measures of one array, or whose rows a user has put together."""
UNITLESS = ["pearson", "spearman", "kendall", "pairwise_accuracy", "bias_score"]
UNITLESS += ["estimate_effect", "rs_scores", "unfairness_scores"]
NAN_IF_CONSTANT = [name for name in UNITLESS if name != "pairwise_accuracy"]
EACH = pytest.mark.parametrize("name", CALLS)
SCORES = hn.arrays(np.float64, N, elements=st.integers(0, 20).map(lambda i: i / 20))


def parts(value):
    """The numbers of a result, without its texts."""
    if dataclasses.is_dataclass(value):
        return [part for one in dataclasses.astuple(value) for part in parts(one)]
    if isinstance(value, dict | str):
        return [part for one in value.values() for part in parts(one)] if isinstance(value, dict) else []
    return np.ravel(value).tolist()


def same(a, b):
    assert parts(a) == pytest.approx(parts(b), nan_ok=True, rel=1e-6, abs=1e-6)


def test_every_measure_of_arrays_is_tried():
    no_arrays = {"mqm_score", "read_mqm"}
    functions = {name for name, value in vars(m).items() if inspect.isfunction(value)}
    assert functions - no_arrays == CALLS.keys()


@pytest.mark.parametrize("name", sorted(CALLS.keys() - ALONE))
@settings(max_examples=3)
@given(st.data())
def test_other_labels_are_refused_and_equal_ones_are_not(name, data):
    index = data.draw(hp.range_indexes(min_size=N, max_size=N))
    x = pd.Series(QUALITY, index=index)

    def framed(index):
        return lambda a: pd.DataFrame(a, index=index) if np.ndim(a) == 2 else pd.Series(a, index=index)

    same(CALLS[name](x, framed(index)), CALLS[name](QUALITY, lambda a: a))
    for other in (index[::-1], index + 1):
        with pytest.raises(ValueError, match="pandas indexes of the arrays differ"):
            CALLS[name](x, framed(other))


@pytest.mark.parametrize(
    "name", sorted(CALLS.keys() - {name for name in CALLS if name.startswith("estimate")} - {"change"})
)  # which draw by place
@settings(max_examples=5)
@given(SCORES, st.permutations(range(N)))
def test_the_order_of_the_items_does_not_matter(name, x, order):
    same(CALLS[name](x[order], lambda a: a[order]), CALLS[name](x, lambda a: a))


@pytest.mark.parametrize("name", UNITLESS)
@settings(max_examples=5)
@given(SCORES, st.integers(-9, 9), st.integers(1, 99))
def test_the_unit_of_the_scores_does_not_matter(name, x, offset, unit):
    found, moved = (CALLS[name](scores, lambda a: a) for scores in (x, offset + unit * x))
    if isinstance(found, Effect):
        found, moved = (dataclasses.replace(one, score_sd=0.0) for one in (found, moved))
    same(moved, found)


@EACH
@example(np.isin(np.arange(N), (20, 22)), 1.0)  # whose variance without an input is below 0 by rounding
@settings(max_examples=5)
@given(hn.arrays(np.bool_, N), st.sampled_from([1.0, 0.5]))
def test_rounding_errors_are_no_spread(name, up, size):
    # .1 + .2 is not .3
    noisy = np.where(up, 0.1 + 0.2, 0.3) * size
    same(CALLS[name](noisy, lambda a: a), CALLS[name](np.full(N, 0.3 * size), lambda a: a))


@pytest.mark.parametrize("name", NAN_IF_CONSTANT)
def test_scores_that_are_constant_up_to_rounding_have_no_measure(name):
    follows = 3 + 1e-15 * np.round(LIKELIHOODS)
    assert np.ptp(follows) > 0
    found = parts(CALLS[name](follows, lambda a: a))
    assert np.isnan(found).any()
    assert np.isnan(found[0])


@pytest.mark.parametrize("none", [None, float("nan"), np.float64("nan"), pd.NA, pd.NaT])
def test_a_missing_cluster_is_refused_with_the_item_however_it_is_made(none):
    groups = ["a", "b", none, *"c" * (N - 3)]
    calls = {
        "clusters": [
            lambda: m.estimate_share(QUALITY, clusters=groups),
            lambda: m.estimate_spearman(QUALITY, HUMAN, clusters=groups, **DRAWN),
            lambda: m.estimate_mean(QUALITY, before=HUMAN, clusters=groups, **DRAWN),
            lambda: m.estimate_effect(QUALITY, RATINGS, LIKELIHOODS, names=("likelihood",), clusters=groups),
            lambda: m.corrected_mean(QUALITY, LABELS * HUMAN, clusters=groups),
        ],
        "groups": [lambda: m.spearman(QUALITY, HUMAN, groups=groups)],
    }
    for argument, several in calls.items():
        for call in several:
            with pytest.raises(ValueError, match=rf"{argument}\[2\] is .+: give each item its group"):
                call()
    undefined = np.where(np.arange(N) == 2, np.nan, QUALITY)
    assert m.estimate_share(undefined, clusters=groups).units == 3  # an item that does not count needs none


test_what_is_no_real_number_is_refused = refusals(
    lambda values: vectors(x=values),
    ([1 + 1j], "x holds complex numbers: give real numbers"),
    (np.array(["2024-01-01"], dtype="datetime64[D]"), "x holds dates"),
    (np.array([5], dtype="timedelta64[D]"), "x holds durations"),
    ([b"1"], "x holds bytes"),
    (np.array([1.0, b"1"], dtype=object), "x holds bytes"),
    (np.array([None, np.datetime64("2024-01-01")], dtype=object), "x holds dates"),
    ([2**53 + 1], r"x holds integers beyond 2\*\*53"),
    ([-(2**63)], r"x holds integers beyond 2\*\*53"),
    ([0, 10**30], r"x holds integers beyond 2\*\*53"),
    (np.array([1, 2**64 - 1], dtype=np.uint64), r"x holds integers beyond 2\*\*53"),
    (np.ma.masked_array([1.0, 9.0], [False, True]), "x is masked: give NaN"),
)


def test_what_is_a_number_is_taken():
    assert numbers([[True, 2**53], [-(2**53), 0.5]], "x").tolist() == [[1, 2**53], [-(2**53), 0.5]]
    for none in (None, pd.NA, np.nan):
        assert numbers([1, none], "x") == pytest.approx([1, np.nan], nan_ok=True)
    assert numbers(pd.Series(pd.array([1, None], dtype="Int64")), "x") == pytest.approx([1, np.nan], nan_ok=True)
    assert numbers(np.empty((0, 3), dtype=int), "x").shape == (0, 3)


def test_arrays_without_labels_go_with_any():
    series = pd.Series([1.0, 2.0], index=["a", "b"])
    assert [one.tolist() for one in vectors(x=series, y=[3, 4])] == [[1, 2], [3, 4]]
    assert common_index([1], (1,), None, np.ones(1), "text") is None
    assert common_index(None, series, series.copy()) is series.index
    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=["b", "a"])
    with pytest.raises(ValueError, match="indexes of the arrays differ"):
        vectors(x=series, y=frame["x"])
