"""Pass or fail: how often a judge is right, allowing for errors of annotators, and the pass rate by people."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures import arrays, resample
from evalbias.measures.agreement import counted_kappa
from evalbias.measures.arrays import TINY, Before, Clusters, FloatArray, IntArray, checked, complete, numbers, ratio
from evalbias.measures.corrections import MIN_LABELS, labeled_first
from evalbias.measures.resample import DRAWS, MANY, SHARE, Draws, Interval, change, estimate_share, left_out

# With a single annotator, the truth is that annotator's verdict. Several annotators contradict each other, so they err,
# and a judge that contradicts an annotator may be right. Then the truth of an item is a latent class (Dawid and Skene
# 1979): it deserves to pass, with a probability that is the prevalence; each annotator, and the judge like them, passes
# what deserves it at a rate, and fails what does not at another rate. Given the truth, the errors of all of them are
# taken for independent. Two annotators and a judge are enough to find all rates (Hui and Walter 1980); from three
# annotators on, ``estimate_dependence`` tests that the errors are independent.

Rate = Literal["tpr", "tnr", "kappa", "prevalence", "annotator_tpr", "annotator_tnr", "annotator_kappa"]
ROUNDS = 1_000  # most rounds of a fit, of three steps of EM each
STEP = 1e-8  # change of every rate in a step of EM below which a fit has converged
EDGE = 1e-4  # distance from 0 and 1 up to which a rate is extrapolated: where EM starts at an end, it stays there
EMPTY = 1e-3  # number of items below which a class is empty, and the rates of its items are undefined
SIMULATIONS = 200  # data sets drawn for the test of independence
MOST_DRAWN = 1 << 24  # most verdicts in all simulated sets, of which there are at least 20
WEAK = 5.0  # annotators' agreement beyond chance, in standard errors, below which resamples of the rates are skewed
DISAGREE = "the annotators are not shown to agree beyond chance, so their verdicts do not tell what deserves to pass"
UNTESTED = "only three annotators or more of the same items show whether the errors are independent"


def latent_rates(cells: FloatArray, patterns: FloatArray) -> FloatArray:
    """Fit two latent classes to counts (k, P) of P patterns of verdicts, in each of k resamples.

    Maximum likelihood by EM (Dawid and Skene 1979), extrapolated after every two steps (SQUAREM, Varadhan and Roland
    2008). The patterns (P, r) hold the verdicts of the judge and of r - 1 annotators, 1, 0, or -1 for none. Of the two
    classes, the class whose items the annotators pass more often deserves to pass.

    Returns:
        (k, 1 + 2r) the prevalence, the true positive rates and the true negative rates; NaN for an empty class.
    """
    (passed, failed), raters = ((patterns == verdict).astype(np.float64) for verdict in (1, 0)), patterns.shape[1]
    sizes = cells.sum(axis=1)
    votes, voters = passed[:, 1:].sum(axis=1), (passed + failed)[:, 1:].sum(axis=1)
    rates = _maximized(cells, (votes + 0.5) / (voters + 1), passed, failed)
    fitted, active = rates.copy(), np.arange(len(cells))
    for _ in range(ROUNDS):
        # 1 two steps of EM, and a leap along the curve on which they lie
        first, _ = _improved(rates, cells, passed, failed)
        second, likelihood = _improved(first, cells, passed, failed)
        step, bend = np.nan_to_num(first - rates), np.nan_to_num(second - 2 * first + rates)
        stride = np.fmax(1, ratio(np.linalg.norm(step, axis=1), np.linalg.norm(bend, axis=1)))[:, None]
        leap = np.clip(rates + 2 * stride * step + stride**2 * bend, EDGE, 1 - EDGE)
        # 2 a step from there, unless the likelihood is lower
        third, further = _improved(leap, cells, passed, failed)
        rates = np.where((further >= likelihood)[:, None], third, second)
        done = np.abs(np.nan_to_num(second - first)).max(axis=1) < STEP
        fitted[active] = np.where(done[:, None], second, rates)
        active, rates, cells = active[~done], rates[~done], cells[~done]
        if not len(active):
            break
    # 3 the class that annotators pass more often deserves it
    share, tpr, tnr = np.split(fitted, [1, 1 + raters], axis=1)
    turned = (np.nan_to_num(tpr + tnr - 1)[:, 1:].sum(axis=1) < 0)[:, None]
    share, tpr, tnr = np.where(turned, 1 - share, share), np.where(turned, 1 - tnr, tpr), np.where(turned, 1 - tpr, tnr)
    tpr, tnr = (np.where(np.minimum(x, 1 - x) < EDGE / 10, np.round(x), x) for x in (tpr, tnr))
    tpr[share[:, 0] * sizes < EMPTY], tnr[(1 - share[:, 0]) * sizes < EMPTY] = np.nan, np.nan
    return np.column_stack([share, tpr, tnr])


def _improved(
    rates: FloatArray, cells: FloatArray, passed: FloatArray, failed: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the rates after a step of EM, and the log-likelihood (k,) of the rates before it."""
    inner = np.clip(np.nan_to_num(rates, nan=0.5), 1e-12, 1 - 1e-12)  # a rate that nothing depends on is undefined
    ends = [1, 1 + passed.shape[1]]
    (share, tpr, tnr), (fail, fnr, fpr) = (np.split(np.log(x), ends, axis=1) for x in (inner, 1 - inner))
    good, bad = share + tpr @ passed.T + fnr @ failed.T, fail + fpr @ passed.T + tnr @ failed.T  # (k, P) joint log p
    weights = scipy.special.expit(good - bad)
    return _maximized(cells, weights, passed, failed), (cells * np.logaddexp(good, bad)).sum(axis=1)


def _maximized(cells: FloatArray, weights: FloatArray, passed: FloatArray, failed: FloatArray) -> FloatArray:
    """Return the rates if patterns deserve to pass with the probabilities ``weights``; NaN for an empty class."""
    good, bad = cells * weights, cells * (1 - weights)
    hits, misses, alarms, rejections = good @ passed, good @ failed, bad @ passed, bad @ failed
    share = ratio(good.sum(axis=1), cells.sum(axis=1))
    return np.column_stack([share, ratio(hits, hits + misses), ratio(rejections, rejections + alarms)])


# Estimates from the fits of the data and of resamples of them.


@arrays.remembered
def _fits(verdicts: FloatArray, clusters: IntArray, *, draws: Draws) -> FloatArray:
    """Return (1 + k, 1 + 2r) ``latent_rates`` of verdicts (n, r) and of resamples (jackknife of many clusters)."""
    many = int(clusters.max()) + 1 > MANY
    resampled = left_out(clusters) if many else resample.bootstrapped(clusters, draws.resamples, draws.seed)
    return np.concatenate([_fitted(counts, verdicts) for counts in chain([np.ones((1, len(clusters)))], resampled)])


def _fitted(counts: FloatArray, verdicts: FloatArray) -> FloatArray:
    """Fit verdicts (n, r) in resamples (k, n)."""
    patterns, places = np.unique(verdicts, axis=0, return_inverse=True)
    members = scipy.sparse.csr_array((np.ones(len(verdicts)), (np.arange(len(verdicts)), places.ravel())))
    return latent_rates(np.asarray(counts @ members), patterns)


def estimate_rate(
    verdicts: ArrayLike,
    ratings: ArrayLike,
    *,
    of: Rate,
    before: Before = None,
    clusters: Clusters = None,
    draws: Draws = DRAWS,
) -> Interval:
    """Estimate how often a judge, or an annotator, is right about what deserves to pass.

    If no annotator contradicts another, the truth is their verdict, and rates are shares (``estimate_share``).
    Otherwise it is the class of ``latent_rates``, and annotators' errors do not count against the judge. The interval
    is then Wilson's with the variance of resamples, and a change from ``before`` has no test; if annotators agree by
    less than ``WEAK`` standard errors beyond chance, it also covers the middle 95 % of the skewed resamples.

    Args:
        verdicts: (n,) verdicts of the judge, 1 for pass, 0 for fail, NaN where undefined.
        ratings: (n,) or (n, r) verdicts of r annotators, NaN where an annotator gave none; items without any are left
            out. A column may hold different persons for different items, if they are assigned at random.
        of: ``"tpr"`` (share passed of what deserves it), ``"tnr"`` (share failed of what does not), ``"kappa"``
            (Cohen's, of the judge and the truth), ``"prevalence"`` (share that deserves to pass), or for a verdict of
            an annotator: ``"annotator_tpr"``, ``"annotator_tnr"``, ``"annotator_kappa"``.
        before: (n,) verdicts of another judge, whose rate is subtracted.
        clusters: (n,) input of each item.
        draws: Resamples, seed and level of the interval.

    Raises:
        ValueError: The lengths differ, or a verdict is not 0, 1 or NaN.

    Examples:
        >>> judge, people = [1] * 9 + [0] + [1] * 2 + [0] * 8, [1] * 10 + [0] * 10
        >>> estimate_rate(judge, people, of="tpr").value, estimate_rate(judge, people, of="tnr").value
        (0.9, 0.8)
    """
    ours, votes = _votes(verdicts, clusters, ratings=ratings)
    if not _contradict(votes):
        return _of_one(ours, votes.max(axis=1), of, before=before, clusters=clusters, draws=draws)
    return _of_several(ours, votes, of, before, clusters, draws)


def _votes(verdicts: ArrayLike, clusters: Clusters, **people: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return verdicts (n,) and people's (n, r): -1 where a person gave none, NaN where nobody gave any."""
    columns = {"verdicts": verdicts, **people}
    ours, votes = checked(columns, clusters)
    for name, values in zip(columns, (ours, votes), strict=True):
        _check_verdicts(name, values)
    votes = votes.reshape(len(ours), -1)
    none = np.isnan(votes)
    if not none.all():
        votes, none = (table[:, ~none.all(axis=0)] for table in (votes, none))
    return ours, np.where(none.all(axis=1, keepdims=True), np.nan, np.where(none, -1.0, votes))


def _check_verdicts(name: str, values: FloatArray) -> None:
    wrong = np.argwhere(~np.isnan(values) & ~np.isin(values, (0.0, 1.0)))
    if len(wrong):
        place, value = ", ".join(map(str, wrong[0])), values[tuple(wrong[0])]
        raise ValueError(f"{name}[{place}] is {value:g}: a verdict is 1, 0, or NaN where undefined.")


def _contradict(votes: FloatArray) -> bool:
    return bool(((votes == 0).any(axis=1) & (votes == 1).any(axis=1)).any())


def _of_one(ours: FloatArray, truth: FloatArray, of: Rate, *, before: Before, **options: Any) -> Interval:
    if of == "kappa":
        return resample.estimate_coefficient(counted_kappa, ours, truth, before=before, **options)
    if of not in ("tpr", "tnr", "prevalence"):
        return Interval(math.nan, reason="no annotator contradicts another, so what they say is taken for the truth")

    def right(own: FloatArray) -> FloatArray:
        return {"tpr": np.where(truth == 1, own, np.nan), "tnr": np.where(truth == 0, 1 - own, np.nan)}.get(of, truth)

    return estimate_share(right(ours), before=None if before is None else right(numbers(before, "before")), **options)


def _of_several(
    ours: FloatArray, votes: FloatArray, of: Rate, before: Before, clusters: Clusters, draws: Draws
) -> Interval:
    if before is not None:
        statistic, draws = partial(_counted_rate, of=of), replace(draws, swaps=0)
        return change(statistic, before, ours, votes, clusters=clusters, limits=(0.0, 1.0), draws=draws)
    (judge, votes), codes = complete(ours, votes, clusters=clusters)
    verdicts, n, units = np.column_stack([judge, votes]), len(codes), int(codes.max(initial=-1)) + 1
    bare = Interval(math.nan, n=n, undefined=len(ours) - n, units=units, unit="" if "kappa" in of else SHARE)
    # 1 without agreement beyond chance, any classes fit as well
    voted = votes >= 0
    deviations = np.where(voted, votes - ratio((votes == 1).sum(axis=0), voted.sum(axis=0)), 0.0)
    alike = (deviations.sum(axis=1) ** 2 - (deviations**2).sum(axis=1)) / 2
    variance = resample.variance_of_mean(alike, codes) if units > 1 else 0.0
    beyond = alike.mean() / math.sqrt(variance) if variance > 0 else math.nan  # 0 if an annotator always passes
    if not beyond > scipy.special.ndtri((1 + draws.confidence) / 2):
        return replace(bare, reason=DISAGREE)
    if units < resample.FEWEST_UNITS or not draws.resamples:
        return replace(bare, value=float(_counted_rate(np.ones((1, n)), judge, votes, of=of)[0]))
    # 2 the value, and how much it varies
    rates = _fits(verdicts, codes, draws=draws)
    value, *drawn = _read(rates, verdicts, of).tolist()
    estimates = np.array(drawn)[~np.isnan(drawn)]
    bare = replace(bare, value=value)
    if math.isnan(value) or not len(estimates):
        return bare
    variance = resample.jackknife_variance(estimates) if units > MANY else float(estimates.var()) * units / (units - 1)
    # 3 the interval; units of a class are clusters with an item of the class
    if "kappa" in of:
        rate = resample.with_variance(bare, variance, df=resample.worth(codes) - 1, confidence=draws.confidence)
    else:
        share = {"tpr": rates[0, 0], "tnr": 1 - rates[0, 0]}.get(of.removeprefix("annotator_"), 1.0)
        inside = max(2, min(units, round(share * n)))
        low, high = _ends(value, variance, inside, confidence=draws.confidence)
        rate = replace(bare, low=low, high=high)
    if beyond < WEAK and units <= MANY:
        low, high = np.quantile(estimates, [(1 - draws.confidence) / 2, (1 + draws.confidence) / 2]).tolist()
        rate = replace(rate, low=min(rate.low, low), high=max(rate.high, high))
    return rate


def _ends(value: float, variance: float, units: int, *, confidence: float) -> tuple[float, float]:
    """Return Wilson's interval of a rate over ``units`` units whose truth is uncertain.

    The variance in excess of that of known units may be less for a rate nearer to 0 or 1, like that of units that vary
    together, or constant, like the errors of annotators: the interval covers both cases.
    """
    squared = float(scipy.special.stdtrit(units - 1, (1 + confidence) / 2)) ** 2
    inner = float(np.clip(value, 1 / (units + 2), 1 - 1 / (units + 2)))  # at 0 and 1, no share varies
    spread = inner * (1 - inner)
    fewer = units if variance * units < spread else spread / variance
    ends = []
    for size, constant in ((fewer, 0.0), (units, max(0.0, variance - spread / units))):
        scale, center = 1 + squared / size, value + squared / (2 * size)
        half = math.sqrt(max(0.0, center**2 - scale * (value**2 - squared * constant)))
        ends += [(center - half) / scale, (center + half) / scale]
    return max(0.0, min(ends)), min(1.0, max(ends))


def _counted_rate(counts: FloatArray, ours: FloatArray, votes: FloatArray, *, of: Rate) -> FloatArray:
    """Compute a rate against the latent truth in resamples (k, n) of complete verdicts (n,) and votes (n, r)."""
    verdicts = np.column_stack([ours, votes])
    return _read(_fitted(counts, verdicts), verdicts, of)


def _read(rates: FloatArray, verdicts: FloatArray, of: Rate) -> FloatArray:
    """Return a number (k,) from rates (k, 1 + 2r): the judge's, or the annotators' mean weighted by verdicts."""
    share, tpr, tnr = np.split(rates, [1, 1 + verdicts.shape[1]], axis=1)
    if of == "prevalence":
        return share[:, 0]
    passed = share * tpr + (1 - share) * (1 - tnr)
    chance = share * passed + (1 - share) * (1 - passed)
    kappa = ratio(share * tpr + (1 - share) * tnr - chance, 1 - chance)
    kind = of.removeprefix("annotator_")
    numbers = {"tpr": tpr, "tnr": tnr, "kappa": kappa}[kind]
    if kind == of:
        return numbers[:, 0]
    weights = (verdicts[:, 1:] >= 0).sum(axis=0) * ~np.isnan(numbers[:, 1:])
    return ratio((np.nan_to_num(numbers[:, 1:]) * weights).sum(axis=1), weights.sum(axis=1))


def estimate_dependence(
    verdicts: ArrayLike, ratings: ArrayLike, *, before: Before = None, clusters: Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Test whether the errors of judge and annotators are independent, as ``estimate_rate`` takes them to be.

    The value is the excess correlation between the verdicts of two raters, beyond the latent classes, for the pair that
    deviates most, in [-1, 1]; 0 for independent errors. Its p-value and its interval, for all pairs together, come from
    ``SIMULATIONS`` data sets drawn from the fitted classes, fewer for many items. A judge that shares an annotator's
    errors seems better than it is; annotators who err together make it seem worse. An error that all share is not
    detected. Arguments as in ``estimate_rate``; undefined for fewer than three annotators, and for a difference.
    """
    ours, votes = _votes(verdicts, clusters, ratings=ratings)
    (judge, votes), codes = complete(ours, votes, clusters=clusters)
    data, units = np.column_stack([judge, votes]), int(codes.max(initial=-1)) + 1
    bare = Interval(math.nan, n=len(codes), undefined=len(ours) - len(codes), units=units, reason=UNTESTED)
    if before is not None or votes.shape[1] < 3 or not _contradict(votes) or not draws.resamples:
        return bare
    # 1 data sets with the fitted rates and the missing verdicts of these
    rng, (rates,) = np.random.default_rng(draws.seed), _fitted(np.ones((1, len(data))), data)
    share, tpr, tnr = np.split(np.nan_to_num(rates, nan=0.5), [1, 1 + data.shape[1]])
    sets = max(20, min(SIMULATIONS, MOST_DRAWN // data.size))
    deserve = rng.random((sets, len(data), 1), dtype=np.float32) < share
    simulated = rng.random((sets, *data.shape), dtype=np.float32) < np.where(deserve, tpr, 1 - tnr)
    drawn = np.concatenate([data[None].astype(np.int8), np.where(data < 0, np.int8(-1), simulated)])
    rows = drawn.reshape(-1, data.shape[1])
    keys = rows @ rng.integers(1 << 56, size=data.shape[1])  # numbers that tell patterns apart: sorting rows is slow
    _, firsts, places = np.unique(keys, return_index=True, return_inverse=True)
    patterns = rows[firsts].astype(np.float64)
    of_sets = places.reshape(-1, len(data))
    cells = np.stack([np.bincount(places, minlength=len(patterns)) for places in of_sets]).astype(float)
    # 2 the excess in the data and in the drawn sets
    value, *null = _excess(cells, latent_rates(cells, patterns), patterns)
    excess = np.nan_to_num(np.array(null)[:, ~np.isnan(value)])
    value, scale = value[~np.isnan(value)], excess.std(axis=0)
    if not (scale > TINY).any():
        return bare
    deviations = np.abs(np.vstack([value, excess])) / np.where(scale > TINY, scale, np.inf)
    first, largest = int(np.argmax(deviations[0])), deviations[1:].max(axis=1)
    half, estimated = float(np.quantile(largest, draws.confidence) * scale[first]), float(value[first])
    p_value = float((1 + (largest >= deviations[0, first]).sum()) / (1 + len(largest)))
    return replace(bare, value=estimated, low=estimated - half, high=estimated + half, p_value=p_value, reason="")


def _excess(cells: FloatArray, rates: FloatArray, patterns: FloatArray) -> FloatArray:
    """Return the (k, pairs) correlations between the verdicts of two raters in excess of the latent classes."""
    share, tpr, tnr = np.split(rates, [1, 1 + patterns.shape[1]], axis=1)
    a, b = np.triu_indices(patterns.shape[1], 1)
    both = (patterns[:, a] >= 0) & (patterns[:, b] >= 0)
    observed = ratio(cells @ ((patterns[:, a] == 1) & (patterns[:, b] == 1)), cells @ both)
    expected = share * tpr[:, a] * tpr[:, b] + (1 - share) * (1 - tnr[:, a]) * (1 - tnr[:, b])
    passed = share * tpr + (1 - share) * (1 - tnr)
    spread = np.sqrt(passed * (1 - passed))
    return ratio(observed - expected, spread[:, a] * spread[:, b])


# Pass rate of all items, from a judge on all of them and people on a few.


def corrected_rate(
    verdicts: ArrayLike, people: ArrayLike, *, before: Before = None, clusters: Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Estimate the rate of items that deserve to pass, from a judge on all items (Rogan and Gladen 1978).

    The judge's rate p on the unlabeled items mixes its hits and its false alarms; its true positive rate (sensitivity)
    and its true negative rate (specificity) on the labeled items undo the mixture:

        (p + specificity - 1) / (sensitivity + specificity - 1)

    The interval is the delta method's and adds the errors of all three rates, each with pseudo-counts so that a rate of
    0 or 1 in few labels is not taken for certain (Agresti and Coull 1998; Lang and Reiczigel 2014). Its quantile is
    Student's t with one degree of freedom less than labeled inputs. With fewer than two labels of a kind, the value
    is that of the rates with pseudo-counts; without unlabeled items, the prevalence. NaN if several labels of a
    kind are all from the same input, and for a judge whose sensitivity and specificity do not exceed 1 together. If
    annotators contradict each other, the latent classes of ``latent_rates`` are fitted to all items, labeled or not.

    Items to label may be chosen by what they deserve, such as as many passes as fails. For a random sample,
    ``corrected_mean`` is more precise; arguments and errors are as there, with verdicts, 1 or 0, those of several
    people (n + N, r).

    Examples:
        >>> judge = [1] * 9 + [0] * 1 + [1] * 2 + [0] * 8 + [1] * 60 + [0] * 40  # sensitivity .9, specificity .8
        >>> round(corrected_rate(judge, [1] * 10 + [0] * 10 + 100 * [np.nan]).value, 3)  # (.6 + .8 - 1) / .7
        0.571
    """
    ours, votes = _votes(verdicts, clusters, people=people)
    judge, human, unlabeled, codes, bare = labeled_first(ours, votes.max(axis=1), clusters)
    bare = replace(bare, unit=SHARE)
    if before is not None:
        return bare
    if _contradict(votes):
        return _of_several(ours, np.nan_to_num(votes, nan=-1.0), "prevalence", None, clusters, draws)
    labels, positive = codes[: len(human)], human == 1
    if not len(unlabeled):
        return replace(estimate_share(human, clusters=labels.tolist(), draws=draws), undefined=bare.undefined)
    kinds = [labels[kind].tolist() for kind in (positive, ~positive)]
    if bare.units < MIN_LABELS or any(len(set(inputs)) < MIN_LABELS <= len(inputs) for inputs in kinds):
        return bare  # outputs of a single input do not show how much others differ
    # 1 the rates, plain and with pseudo-counts
    hits, passes = judge[positive], 1 - judge[~positive]
    t = float(scipy.special.stdtrit(bare.units - 1, (1 + draws.confidence) / 2))
    rates = _padded(unlabeled, t**2 / 2), _padded(hits, 1), _padded(passes, 1)
    (rate, of_rate, _), (sensitivity, of_hits, _), (specificity, of_passes, _) = rates
    informed, few = sensitivity + specificity - 1, min(map(len, kinds)) < MIN_LABELS
    plain = informed if few else hits.mean() + passes.mean() - 1
    if min(informed, plain) <= 0:
        return replace(bare, reason=USELESS)
    center = (rate + specificity - 1) / informed
    value = center if few else (unlabeled.mean() + passes.mean() - 1) / plain
    # 2 half of the interval: contributions of each input, and of the pseudo-counts, to the error of all three
    labeled = np.empty(len(human))  # derivatives of the corrected rate, times informed
    labeled[positive], labeled[~positive] = -center * of_hits, (1 - center) * of_passes
    sums = arrays.sums_by_cluster(np.concatenate([labeled, of_rate]), codes)
    derivatives = 1.0, center, 1 - center
    pseudo = sum(d**2 * variance for d, (_, _, variance) in zip(derivatives, rates, strict=True))
    half = t * float(np.sqrt((sums**2).sum() + pseudo)) / informed
    low, high, value = (float(np.clip(v, 0, 1)) for v in (center - half, center + half, value))
    return replace(bare, value=value, low=min(low, value), high=max(high, value))


USELESS = "the judge passes what deserves it no more often than what does not, so its verdicts tell nothing"


def _padded(values: FloatArray, pseudo: float) -> tuple[float, FloatArray, float]:
    """Return the rate of (n,) zeros and ones with ``pseudo`` counts of either kind added, and parts of its error.

    These are the (n,) contributions of the items, and the sum of squares of the pseudo-counts' contributions.
    """
    size = len(values) + 2 * pseudo
    share = float((values.sum() + pseudo) / size)
    return share, (values - share) / size, pseudo * (share**2 + (1 - share) ** 2) / size**2


# Decisions that the judge may make alone: thresholds on both sides of its mark, tested from the surest decisions on.

STEPS = 20  # regions that are tested in sequence
LEVELS = (0.025, 0.0125, 0.0125)  # of the tests of regions on both sides, of passes only, of fails only: 5 % in total


@dataclass(frozen=True)
class Alone:
    """A judge's own decisions: it passes scores from ``pass_from`` on, and fails those up to ``fail_to``."""

    share: float = 0.0  # of all scores, in [0, 1]
    pass_from: float = math.inf  # infinite if it may pass no item
    fail_to: float = -math.inf  # infinite if it may fail no item


def decided_alone(
    scores: ArrayLike, people: ArrayLike, *, error: float, mark: float = 0.5, clusters: Clusters = None
) -> Alone:
    """Find the largest share of items that a judge may decide by itself, wrong in a share of up to ``error`` of them.

    The surest decisions are those farthest from the mark. Regions grow from there in ``STEPS``, up to all items: the
    same share of the passes and of the fails, or of one of them only. Each is tested by the binomial test that a share
    of ``error`` or more is wrong, and the first that fails ends its sequence (Angelopoulos et al. 2021, Learn then
    Test): what is returned is wrong more often in at most 5 % of data sets. The first region is the smallest that could
    pass. Items of the same input count as fewer, because their errors vary together.

    Args:
        scores: (n,) scores of the judge, NaN where undefined.
        people: (n,) or (n, r) verdicts of people, 1 for pass, 0 for fail; NaN where a person gave none.
        error: Share in (0, 1) of the decisions that may be wrong.
        mark: Lowest score that passes.
        clusters: (n,) input of each item.

    Raises:
        ValueError: The lengths differ, or ``error`` or a verdict is out of range.

    Example:
        >>> decided_alone([0.9] * 90 + [0.6] * 10, [1] * 90 + [0] * 10, error=0.05)
        Alone(share=0.9, pass_from=0.9, fail_to=-inf)
    """
    if not 0 < error < 1:
        raise ValueError(f"error={error:g}: give a share between 0 and 1.")
    every = numbers(scores, "scores")
    (own, wrong), codes = complete(every, wrong_decisions(every, people, mark=mark), clusters=clusters)
    alike, best = _alike(wrong, codes), Alone()
    above, below = np.sort(own[own >= mark])[::-1], np.sort(own[own < mark])
    for (up, down), level in zip(((above, below), (above, below[:0]), (above[:0], below)), LEVELS, strict=True):
        count = len(up) + len(down)
        fewest = _fewer(codes, alike) * math.log(level) / math.log1p(-error)  # labels of which none may be wrong
        for grown in np.linspace(fewest / count, 1, STEPS) if fewest <= count else ():
            pass_from = float(up[math.ceil(grown * len(up)) - 1]) if len(up) else math.inf
            fail_to = float(down[math.ceil(grown * len(down)) - 1]) if len(down) else -math.inf
            inside = (own >= pass_from) | (own <= fail_to)
            # P(X <= errors) of a binomial X, if a share of ``error`` is wrong
            n, errors = np.array([inside.sum(), wrong[inside].sum()]) / _fewer(codes[inside], alike)
            if errors >= n or not scipy.special.betainc(n - errors, errors + 1, 1 - error) <= level:
                break
            share = float(((every >= pass_from) | (every <= fail_to)).sum() / (~np.isnan(every)).sum())
            best = max(best, Alone(share, pass_from, fail_to), key=attrgetter("share"))
    return best


def wrong_decisions(scores: ArrayLike, people: ArrayLike, *, mark: float) -> FloatArray:
    """Return (n,) 1 if most people contradict a decision, 0.5 if half of them do, else 0; NaN if undefined."""
    own, votes = checked({"scores": scores, "people": people}, None)
    _check_verdicts("people", votes)
    voted = ~np.isnan(votes := votes.reshape(len(own), -1))
    passed = ratio(np.where(voted, votes, 0.0).sum(axis=1), voted.sum(axis=1).astype(np.float64))
    wrong = np.where(passed == 0.5, 0.5, np.where(own >= mark, passed < 0.5, passed > 0.5))
    return np.where(np.isnan(own + passed), np.nan, wrong)


def _alike(wrong: FloatArray, codes: IntArray) -> float:
    """Estimate the correlation of errors within an input, in [0, 1], with a further input that is wrong throughout.

    Few errors do not show how they vary together: without that input, errors of few inputs seem independent.
    """
    if (per_input := _fewer(codes, 1.0)) <= 1:
        return 0.0
    more = math.ceil(per_input)
    wrong, codes = np.append(wrong, np.ones(more)), np.append(codes, np.full(more, codes.max() + 1))
    spread = max(TINY, wrong.mean() * (1 - wrong.mean()))
    return float(np.clip((resample.variance_of_mean(wrong, codes) * len(wrong) / spread - 1) / (per_input - 1), 0, 1))


def _fewer(codes: IntArray, alike: float) -> float:
    """Return the number of items that count as a single one, if errors within an input correlate by ``alike``."""
    return 1 + alike * (float((np.bincount(codes) ** 2).sum()) / max(1, len(codes)) - 1)
