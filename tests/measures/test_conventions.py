"""What all measures have in common: defaults, frozen results, and intervals that say what they were computed from."""

import dataclasses
import importlib
import inspect
import math
import pkgutil

import numpy as np
import pytest

import evalbias.measures
from evalbias.measures import pairs as decision_statistics
from evalbias.measures.agreement import (
    AlphaStatistic,
    CalibrationStatistic,
    CeilingStatistic,
    KappaStatistic,
    KendallStatistic,
    PearsonStatistic,
)
from evalbias.measures.effect_statistic import EffectStatistic
from evalbias.measures.likelihood import RankStatistic
from evalbias.measures.loops import SkewnessStatistic
from evalbias.measures.pairs import BalancedRate, BothOrdersStatistic, FairnessStatistic, GapStatistic, OddsStatistic
from evalbias.measures.resample import (
    CELLS,
    BoundedStatistic,
    CorrelationStatistic,
    MeanCorrelationStatistic,
    MeanStatistic,
    ShareStatistic,
    Statistic,
    chunks,
    paired_permutation_test,
)
from evalbias.measures.scale_use import EntropyStatistic, QualitySlopeStatistic, SpreadStatistic, TopTwoStatistic

NAMES = [one.name for one in pkgutil.iter_modules(evalbias.measures.__path__)]
MODULES = [importlib.import_module(f"evalbias.measures.{name}") for name in NAMES]
CLASSES = {kind for module in MODULES for kind in vars(module).values() if isinstance(kind, type)}
RESULTS = {kind for kind in CLASSES if dataclasses.is_dataclass(kind) and kind.__name__ != "_Reader"}  # that collects
FUNCTIONS = {
    value
    for kind in [*MODULES, *CLASSES]
    for value in vars(kind).values()
    if inspect.isfunction(value) and value.__module__.startswith("evalbias.measures.")
}
DEFAULTS = {"n_resamples": 10_000, "confidence": 0.95}

N = 24
RNG = np.random.default_rng(0)
QUALITY = RNG.integers(1, 6, N).astype(float)
RATINGS = QUALITY[:, None] + RNG.integers(-1, 2, (N, 3))
SCORES = QUALITY + RNG.integers(-1, 2, N)
GROUP, CHOICE, SHARES = np.arange(N) % 2.0, (SCORES > 3).astype(float), RNG.dirichlet(np.ones(3), N)
CEILING = CeilingStatistic(RATINGS)
RESAMPLED = {
    "mean": (MeanStatistic(), SCORES),
    "skewness": (SkewnessStatistic(), SCORES - 2),
    "fairness of three": (FairnessStatistic(), SHARES),
    "odds": (OddsStatistic(QUALITY), SHARES[:, 0]),
    "odds at zero": (OddsStatistic(QUALITY, at_zero=True), SHARES[:, 0]),
    "entropy": (EntropyStatistic(8), SCORES),
    "spread": (SpreadStatistic(QUALITY), SCORES),
    "calibration": (CalibrationStatistic(CHOICE), SHARES[:, 0]),
}
"""Name -> statistic and scores, whose interval is read from resamples."""
EXACT = {
    "share": (ShareStatistic(), SHARES[:, 0]),
    "mean correlation": (MeanCorrelationStatistic(), 2 * SHARES[:, 0] - 1),
    "both orders": (BothOrdersStatistic(), np.repeat([1.0, 0.5, 0.5, 0.0], N // 4)),
    "fairness of two": (FairnessStatistic(), np.stack([CHOICE, 1 - CHOICE], axis=1)),
    "fairness with ties": (FairnessStatistic(ties=True), SHARES),
    "balanced": (BalancedRate(GROUP), SHARES[:, 0]),
    "gap": (GapStatistic(GROUP), SHARES[:, 0]),
    "top two": (TopTwoStatistic(8), SCORES),
    "performance": (RankStatistic(QUALITY), SCORES),
    "bias score": (RankStatistic(SHARES[:, 0], QUALITY), SCORES),
    "pearson": (PearsonStatistic(QUALITY), SCORES),
    "kendall": (KendallStatistic(QUALITY), SCORES),
    "alpha": (AlphaStatistic(QUALITY), SCORES),
    "ordinal alpha": (AlphaStatistic(QUALITY, ordinal=True), SCORES),
    "kappa": (KappaStatistic((QUALITY > 3).astype(float)), CHOICE),
    "ceiling": (CEILING, CEILING.values),
    "slope": (QualitySlopeStatistic(RATINGS), SCORES),
    "effect": (EffectStatistic(SHARES[:, 0], RATINGS), SCORES),
}
"""Name -> statistic and scores, whose interval draws no resamples, or only to estimate a variance."""
ALL = RESAMPLED | EXACT
IN_ALL = pytest.mark.parametrize("name", sorted(ALL))


@pytest.mark.parametrize("kind", sorted(RESULTS, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_results_are_frozen(kind):
    one = object.__new__(kind)
    for field in dataclasses.fields(kind):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(one, field.name, None)


def test_all_intervals_are_of_95_percent_and_draw_10_000_resamples_unless_told_otherwise():
    found = 0
    for function in FUNCTIONS - {paired_permutation_test}:
        for name, parameter in inspect.signature(function).parameters.items():
            if name in DEFAULTS and parameter.default is not parameter.empty:
                assert parameter.default == DEFAULTS[name], function
                found += 1
    assert found > 30
    assert inspect.signature(paired_permutation_test).parameters["n_resamples"].default == 100_000


def test_every_argument_can_be_given_by_name():
    parameters = [one for function in FUNCTIONS for one in inspect.signature(function).parameters.values()]
    assert len(parameters) > 200
    assert not [one for one in parameters if one.kind is one.POSITIONAL_ONLY]


def test_every_statistic_is_tried_here():
    kinds = {kind for kind in CLASSES if issubclass(kind, Statistic)}
    assert kinds - {type(one) for one, _ in ALL.values()} == {Statistic, BoundedStatistic, CorrelationStatistic}


@IN_ALL
def test_an_interval_says_how_many_resamples_it_drew_and_how_many_units_it_has(name):
    one, scores = ALL[name]
    pairs = np.repeat(np.arange(N // 2), 2).tolist()
    drawn = 40 if name in RESAMPLED else 0
    per_class = 2 if name in ("balanced", "gap") else 1
    for clusters, units in ((None, N // per_class), (pairs, N // 2)):
        found = one.interval(scores, clusters=clusters, n_resamples=40, seed=0)
        assert found.low <= found.estimate <= found.high
        assert (found.n_resamples, found.undefined, found.units, found.reason) == (drawn, 0, units, "")
    assert found.estimate == pytest.approx(one(scores))


@IN_ALL
def test_one_input_has_no_interval_and_no_p(name):
    one, scores = ALL[name]
    found = one.interval(scores, clusters=["a"] * N, n_resamples=40, seed=0)
    lost = 40 if name in RESAMPLED and name != "fairness of three" else 0
    assert np.isnan([found.low, found.high, found.p_value]).all()
    assert (found.n_resamples, found.undefined, found.units) == (lost, lost, 1)


@pytest.mark.parametrize("name", sorted(ALL.keys() - {"slope"}))  # which needs ratings that agree, too
def test_an_interval_needs_as_many_inputs_as_it_says(name):
    one, scores = ALL[name]
    of_shares = ("share", "mean correlation", "both orders", "balanced", "gap", "top two")
    fewest = 2 if name in of_shares or "fairness" in name else 5 if name == "effect" else 6
    for units in (fewest - 1, fewest):
        inputs = (np.arange(N) * units // N).tolist()
        found = one.interval(scores, clusters=inputs, n_resamples=99, seed=0)
        assert found.units == units
        assert np.isnan([found.low, found.high]).tolist() == [units < fewest] * 2


@IN_ALL
def test_undefined_items_are_left_out(name):
    one, scores = ALL[name]
    kept = np.arange(N) % 5 > 0
    holes = scores.copy()
    holes[~kept] = math.nan
    inputs = (np.arange(N) // 2).tolist()
    of_kept = [inputs[index] for index in np.flatnonzero(kept)]
    found = one.interval(holes, clusters=inputs, n_resamples=40, seed=0)
    assert found == one.keep(kept).interval(scores[kept], clusters=of_kept, n_resamples=40, seed=0)


@IN_ALL
def test_no_items_have_no_estimate(name):
    one, scores = ALL[name]
    found = one.interval(np.full_like(scores, math.nan), n_resamples=40, seed=0)
    assert np.isnan([found.low, found.high, found.estimate, found.p_value]).all()
    assert found.units == 0


@IN_ALL
def test_a_difference_is_that_of_the_two_values(name):
    one, scores = ALL[name]
    other = scores[::-1].copy()
    found = one.difference(scores, other, n_resamples=40, seed=0)
    assert found.estimate == pytest.approx(one(other) - one(scores))
    assert found.units in (N, N // 2)
    back = one.difference(other, scores, n_resamples=40, seed=0)
    assert back.estimate == pytest.approx(-found.estimate)
    inputs = ["a"] * N
    assert np.isnan(one.difference(scores, other, clusters=inputs, n_resamples=40, seed=0).low)


def test_statistics_with_a_range_state_it():
    agreement = ["performance", "bias score", "pearson", "kendall", "alpha", "ordinal alpha", "kappa", "ceiling"]
    limited = dict.fromkeys([*agreement, "mean correlation", "gap"], (-1.0, 1.0))
    limited |= dict.fromkeys(["entropy", "calibration"], (0.0, 1.0))
    assert {name: one.limits for name, (one, _) in ALL.items() if np.isfinite(one.limits).any()} == limited


@pytest.mark.parametrize("name", sorted(ALL.keys() - {"effect"}))
def test_an_interval_of_80_percent_lies_within_that_of_95(name):
    one, scores = ALL[name]
    wide, narrow = (one.interval(scores, n_resamples=400, confidence=level, seed=0) for level in (0.95, 0.8))
    assert narrow.high - narrow.low < wide.high - wide.low
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high


@IN_ALL
def test_chunks_of_resamples_do_not_change_an_interval(name, monkeypatch):
    one, scores = ALL[name]
    whole = one.interval(scores, n_resamples=20, seed=0)
    monkeypatch.setattr(chunks, "__defaults__", (3 * N,))
    monkeypatch.setattr(decision_statistics, "BLOCK", 2 * N)
    found = one.interval(scores, n_resamples=20, seed=0)
    assert dataclasses.astuple(found)[:-1] == pytest.approx(dataclasses.astuple(whole)[:-1], nan_ok=True)


def test_rows_are_split_into_chunks_that_fill_the_memory_granted():
    assert list(chunks(7, 4, 12)) == [range(3), range(3, 6), range(6, 7)]
    assert list(chunks(2, 4, 3)) == [range(1), range(1, 2)]  # a row is not split
    assert list(chunks(3, 0, 2)) == [range(2), range(2, 3)]
    assert list(chunks(0, 4, 12)) == []
    assert list(chunks(3, CELLS // 2)) == [range(2), range(2, 3)]
    assert np.zeros(CELLS).nbytes == 16 << 20
    assert np.zeros(decision_statistics.BLOCK).nbytes == 256 << 10  # fits into the cache of a core
