"""Corrections of scores by a labeled part of the items."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import (
    Before,
    Clusters,
    FloatArray,
    IntArray,
    checked,
    cluster_codes,
    defined,
    settled,
    sums_by_cluster,
    vectors,
)
from evalbias.measures.resample import ALIKE, DRAWS, Draws, Interval, change

# Means that people would give to all items, from a judge on all of them and people on a few; rates: ``verdicts``.
#
# A judge's mean score is wrong by its bias. People on a random part of the items show by how much, and with the bias
# its uncertainty. The estimator is right only if the labeled items are a random sample of all items.


MIN_LABELS = 2
"""Fewest labels from which an interval is computed; of each kind where sensitivity and specificity are needed."""


def corrected_mean(
    scores: ArrayLike, people: ArrayLike, *, before: Before = None, clusters: Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Estimate the mean human score of all items (PPI++, Angelopoulos et al. 2023).

    The mean of the n human scores is moved by how much the judge's mean on the N unlabeled items exceeds its mean on
    the labeled ones, times a weight:

        mean(h) + weight (mean_unlabeled(m) - mean_labeled(m))

    The weight minimizes the estimated variance (with independent items, cov(h, m) / ((1 + n/N) var(m)), with m centered
    on its mean over both samples), so it is near 0 for a judge that does not follow people. The scales of judge and
    people may differ. The interval is Student's t with u - 2 degrees of freedom for u labeled inputs, and its variance
    is multiplied by u / (u - 2), because a mean and a weight were fitted. Two inputs have the mean of the labels alone.

    Args:
        scores: (n + N,) Score_m of all items. Items with a NaN are left out.
        people: (n + N,) Score_h, NaN where nobody labeled the item.
        before: (n + N,) scores of another judge; the difference is resampled, and has no test.
        clusters: (n + N,) input of each item.
        draws: Level of the interval; resamples and seed of a difference.

    Returns:
        The interval, in points of the human scores; NaN for fewer than two labeled inputs. Its ends are NaN where all
            labels are equal.

    Raises:
        ValueError: The lengths differ, a score is infinite.

    Examples:
        >>> judge, people = [2, 3, 4, 5, 4, 4, 5, 5, 5, 4], [1, 2, 3, 4] + 6 * [np.nan]  # the judge is 1 too high
        >>> round(corrected_mean(judge, people).value, 2)  # people's mean is 2.5
        3.16
    """
    if before is not None:
        return difference(corrected_mean, before, scores, people, clusters=clusters, draws=draws)
    judge, human, rest, codes, bare = labeled_first(scores, people, clusters)
    if bare.units < MIN_LABELS:
        return bare
    human, judge, rest = map(settled, (human, judge, rest))

    def by_cluster(labeled: FloatArray, unlabeled: FloatArray) -> FloatArray:  # what it adds to an estimate
        return sums_by_cluster(np.concatenate([labeled, unlabeled]), codes)

    deviations = by_cluster((human - human.mean()) / len(human), np.zeros(len(rest)))
    everyone = settled(np.concatenate([judge, rest]))
    if len(rest) and bare.units > 2 and np.ptp(everyone) > 0:  # two inputs cannot tell a mean and a weight
        shift, center = float(rest.mean() - judge.mean()), everyone.mean()
        moved = by_cluster((judge - center) / len(judge), (center - rest) / len(rest))
    else:
        shift, moved = 0.0, np.zeros_like(deviations)
    spread = float((moved**2).sum())
    weight = float((deviations * moved).sum()) / spread if spread > 0 else 0.0
    estimate = float(human.mean()) + weight * shift
    df = max(bare.units - (2 if weight else 1), 1)
    error = np.sqrt(bare.units / df * ((deviations - weight * moved) ** 2).sum())
    if np.ptp(human) == 0 or not error > 0:  # the error of equal labels may be a rounding error of their mean
        return replace(bare, value=estimate, reason=ALIKE)
    half = float(scipy.stats.t.ppf((1 + draws.confidence) / 2, df) * error)
    return replace(bare, value=estimate, low=estimate - half, high=estimate + half)


def labeled_first(
    scores: ArrayLike, people: ArrayLike, clusters: Clusters
) -> tuple[FloatArray, FloatArray, FloatArray, IntArray, Interval]:
    """Return judge (n,) and people (n,) on the labeled items, the judge on the others (N,), and n + N cluster codes.

    Also an interval with the counts: its units are the clusters of the labeled items.
    """
    judge, human = checked({"scores": scores, "people": people}, clusters, axes=(1,))
    kept = ~np.isnan(judge)
    judge, human, codes = judge[kept], human[kept], cluster_codes(clusters, kept)
    labeled = ~np.isnan(human)
    units = len(set(codes[labeled].tolist()))
    bare = Interval(math.nan, n=len(judge), undefined=int((~kept).sum()), units=units)
    codes = np.concatenate([codes[labeled], codes[~labeled]])
    return judge[labeled], human[labeled], judge[~labeled], codes, bare


def difference(
    corrected: Callable[..., Interval],
    before: ArrayLike,
    after: ArrayLike,
    people: ArrayLike,
    *,
    clusters: Clusters,
    draws: Draws,
) -> Interval:
    """Estimate the difference of two judges' corrected means or rates from resamples, without a test by swaps."""
    *judges, human = checked({"before": before, "after": after, "people": people}, clusters, axes=(1,))
    labeled = ~np.isnan(human)

    def statistic(counts: FloatArray, scores: FloatArray, people: FloatArray, labeled: FloatArray) -> FloatArray:
        known = np.where(labeled == 1, people, np.nan)
        items = [np.repeat(np.arange(len(scores)), row.astype(np.int64)) for row in counts]
        return np.array([corrected(scores[i], known[i]).value for i in items])

    given = np.where(labeled, human, 0.0), labeled.astype(np.float64)
    return change(statistic, *judges, *given, clusters=clusters, draws=replace(draws, swaps=0))


# Likelihood calibration: take the effect of likelihood out of a judge's expected scores.
#
# A judge's score follows quality and, with some slope, likelihood. The slope is fitted on items that people rated
# (``likelihood_effect``), and the part of the score that it explains is subtracted. Scores of equally likely outputs
# keep their order and their distances. Nothing is known of the slope beyond the likelihoods it was fitted on, so an
# output rarer or likelier than all of them gets the correction of the nearest.


@dataclass(frozen=True)
class LikelihoodCalibration:
    """Correction of a judge's scores for the likelihood of what it judged."""

    slope: float  # points of the score for each nat of LS, the effect that was fitted
    center: float  # LS in nats at which a score stays as it is, the mean of the items it was fitted on
    strength: float = 1.0  # part of the effect that is subtracted, in [0, 1]
    reduction: str = "sum"  # of token log-probabilities to LS, "sum" or "mean"
    bounds: tuple[float, float] | None = None  # LS in nats of the fit, lowest and highest; None if it holds everywhere

    def __post_init__(self) -> None:
        if not (np.isfinite(self.slope) and np.isfinite(self.center) and 0 <= self.strength <= 1):
            raise ValueError(
                f"slope={self.slope}, center={self.center}, strength={self.strength}: give finite numbers, and a "
                "strength between 0 and 1."
            )
        if self.bounds is not None and not -np.inf < self.bounds[0] <= self.bounds[1] < np.inf:
            raise ValueError(f"bounds={self.bounds}: give the lowest and the highest LS, both finite, or None.")

    def at(self, strength: float) -> LikelihoodCalibration:
        """Return the same correction at another strength."""
        return replace(self, strength=strength)

    def __call__(self, scores: ArrayLike, likelihoods: ArrayLike, *, scale: tuple[float, float]) -> FloatArray:
        """Correct scores (n,): ``score - strength * slope * (LS - center)``, with LS kept within the bounds.

        Clipped to the scale. LS (n,) in nats must be by the same ``reduction`` as those it was fitted on.

        Examples:
            >>> calibration = LikelihoodCalibration(slope=0.5, center=-10.0)
            >>> calibration([3.0, 3.0, 1.5], [-12.0, -8.0, -8.0], scale=(1, 5)).tolist()
            [4.0, 2.0, 1.0]
        """
        model, ls = vectors(scores=scores, likelihoods=likelihoods)
        if self.bounds is not None:
            ls = np.clip(ls, *self.bounds)
        return np.asarray(np.clip(model - self.strength * self.slope * (ls - self.center), *scale))


def fit_likelihood_calibration(
    likelihoods: ArrayLike, model_scores: ArrayLike, effect: float, *, reduction: str = "sum"
) -> LikelihoodCalibration:
    """Return the correction that takes out a likelihood effect, in standard deviations of score for one of LS.

    Of LS (n,) in nats and scores (n,). Before clipping, ``(1 - strength) * effect`` is left over on the same items.

    Examples:
        >>> fitted = fit_likelihood_calibration([-30, -20, -10], [1, 3, 5], effect=0.5)
        >>> round(fitted.slope, 3), fitted.center, fitted.bounds
        (0.1, -20.0, (-30.0, -10.0))
    """
    ls, model = vectors(likelihoods=likelihoods, model_scores=model_scores)
    kept = defined(ls, model)
    ls, model = settled(ls[kept]), settled(model[kept])
    if np.isnan(effect) or len(ls) < 2 or ls.min() == ls.max():
        raise ValueError(
            f"effect={effect} over {len(ls)} items with {len(np.unique(ls))} different likelihoods: a calibration "
            "needs a defined effect and likelihoods that differ."
        )
    slope = float(effect * model.std() / ls.std())
    bounds = float(ls.min()), float(ls.max())
    return LikelihoodCalibration(slope, float(ls.mean()), reduction=reduction, bounds=bounds)
