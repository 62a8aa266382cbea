"""Corrections of scores, means and gains by a labeled part of the items."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    ratio,
    settled,
    vectors,
)
from evalbias.measures.equal_quality import MIN_CLUSTERS, QUALITY, TOO_WEAK, Effect, EqualQuality
from evalbias.measures.resample import ALIKE, DRAWS, Draws, Interval, change, influences

# Means that people would give to all items, from a judge on all of them and people on a few (rates: ``verdicts``). A
# judge's mean score is wrong by its bias; people on some items show by how much, if these are a random sample of all.


MIN_LABELS = 2
"""Fewest labels from which an interval is computed; of each kind where sensitivity and specificity are needed."""


def corrected_mean(
    scores: ArrayLike, people: ArrayLike, *, before: Before = None, clusters: Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Estimate the mean human score of all items (PPI++, Angelopoulos et al. 2023).

    The mean of the n human scores (n + N,), NaN where nobody labeled the item, is moved by how much the judge's mean on
    the N unlabeled items exceeds its mean on the labeled ones, times a weight:

        mean(h) + weight (mean_unlabeled(m) - mean_labeled(m))

    The weight minimizes the estimated variance (with independent items, cov(h, m) / ((1 + n/N) var(m)), with m centered
    on its mean over both samples), so it is near 0 for a judge that does not follow people. The scales of judge and
    people may differ. The interval is Student's t with u - 2 degrees of freedom for u labeled inputs, and its variance
    is multiplied by u / (u - 2), because a mean and a weight were fitted. Two inputs have the mean of the labels alone,
    one has none. Ends are NaN where all labels are equal. The difference from another judge (``before``) is resampled,
    and has no test. ValueError where lengths differ or a score is infinite.

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
    # (G,) what each cluster adds to the mean of the labels, and to the shift from the labeled items to the others
    deviations = np.bincount(codes[: len(human)], (human - human.mean()) / len(human), codes.max() + 1)
    everyone, shift, moved = settled(np.concatenate([judge, rest])), 0.0, np.zeros_like(deviations)
    if len(rest) and bare.units > 2 and np.ptp(everyone) > 0:  # two inputs cannot tell a mean and a weight
        shift, center = float(rest.mean() - judge.mean()), everyone.mean()
        moved = np.bincount(codes, np.concatenate([(judge - center) / len(judge), (center - rest) / len(rest)]))
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


# Score correction: subtract from a judge's scores what they owe to features of the text, such as its length. The slopes
# are fitted on items that people rated, at equal quality and together (``EqualQuality``). Scores of outputs with equal
# features keep their order and their distances. Nothing is known of a slope beyond the values it was fitted on, so an
# output that is longer or likelier than all of them gets the correction of the nearest.


@dataclass(frozen=True)
class Slope:
    """Part of a score that is owed to one feature; ValueError for numbers that are not finite."""

    slope: float  # points of the score, or log-odds of a win, for one unit of the feature
    center: float = 0.0  # value at which a score stays as it is: the mean of the fit, 0 for a difference within pairs
    bounds: tuple[float, float] | None = None  # lowest and highest value of the fit; None if it holds everywhere

    def __post_init__(self) -> None:
        if not (np.isfinite(self.slope) and np.isfinite(self.center)):
            raise ValueError(f"slope={self.slope}, center={self.center}: give finite numbers.")
        if self.bounds is not None and not -np.inf < self.bounds[0] <= self.bounds[1] < np.inf:
            raise ValueError(f"bounds={self.bounds}: give the lowest and the highest value, both finite, or None.")


@dataclass(frozen=True)
class ScoreCorrection:
    """Correction of a judge's scores for what they owe to features of the judged text.

    Examples:
        >>> correction = ScoreCorrection({"words": Slope(0.01, center=200.0)}, shift=0.5)
        >>> correction([3.0, 3.0, np.nan], {"words": [100, 300, 200]}).tolist()
        [3.5, 1.5, nan]
    """

    slopes: Mapping[str, Slope]  # by feature: "likelihood" in nats, "length" as its logarithm, or any other
    shift: float = 0.0  # points that every score is too high; of comparisons in one order, the lean to the first place
    reduction: str = "sum"  # of token log-probabilities to the likelihood (LS), "sum" or "mean"
    length: str = "characters"  # that are counted, or "graphemes"
    pairs: bool = False  # whether it is of comparisons, in log-odds, and no scores
    criterion: str | None = None  # that people rated; None where it is not told
    likelihood_lm: str | None = None  # model that measured the likelihood; None where it is not told
    # Points (score, what it reads as), ascending in both, between which a score is read along straight lines before
    # anything is subtracted; none where it reads as itself.
    reading: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not all(isinstance(name, str | None) for name in (self.criterion, self.likelihood_lm)):
            raise ValueError(f"criterion={self.criterion!r:.80}, likelihood_lm={self.likelihood_lm!r:.80}: give names.")
        if not np.isfinite(self.shift) or not isinstance(self.pairs, bool):
            raise ValueError(f"shift={self.shift}, pairs={self.pairs!r:.80}: give a finite number, and True or False.")
        if self.reduction not in ("sum", "mean") or self.length not in ("characters", "graphemes"):
            raise ValueError(
                f"reduction={self.reduction!r:.80}, length={self.length!r:.80}: give 'sum' or 'mean', and 'characters' "
                "or 'graphemes'."
            )
        points = np.array(self.reading, dtype=np.float64)
        steps = np.diff(points, axis=0) if points.ndim == 2 and points.shape[1] == 2 else np.empty((0, 2))
        if len(points) and not (len(steps) and (steps[:, 0] > 0).all() and (steps[:, 1] >= 0).all()):  # NaN is not
            raise ValueError(f"reading={self.reading!r:.80}: give two or more (score, reading), ascending in both.")
        object.__setattr__(self, "reading", tuple((float(x), float(y)) for x, y in points))  # JSON returns lists

    def at(self, strength: float) -> ScoreCorrection:
        """Return the correction that subtracts this part of everything, in [0, 1]."""
        return replace(self, slopes={}, shift=0.0).towards(self, strength)

    def towards(self, other: ScoreCorrection, strength: float) -> ScoreCorrection:
        """Return the correction between this one (strength 0) and another (1); ValueError for a strength beyond.

        Each slope changes linearly, and so does every effect that is left over.
        """
        if not 0 <= strength <= 1:
            raise ValueError(f"strength={strength}: give a number between 0 and 1.")
        none, slopes = Slope(0.0), {}
        for name in {**self.slopes, **other.slopes}:
            own, theirs = (one.slopes.get(name, none).slope for one in (self, other))
            known = other.slopes.get(name, self.slopes.get(name, none))
            slopes[name] = replace(known, slope=(1 - strength) * own + strength * theirs)
        return replace(other, slopes=slopes, shift=(1 - strength) * self.shift + strength * other.shift)

    def __call__(
        self,
        scores: ArrayLike,
        features: Mapping[str, ArrayLike],
        *,
        scale: tuple[float, float] = (-math.inf, math.inf),
    ) -> FloatArray:
        """Correct scores (n,): ``score - shift - sum of slope * (feature - center)``, features kept within the bounds.

        The score is first read along ``reading``, if there is one. Clipped to the scale. Features (n,) by name, in the
        units of the fit; NaN where a score or a feature is.
        """
        if missing := [name for name in self.slopes if name not in features]:
            raise ValueError(f"The correction needs the feature {missing[0]!r:.80}, and {sorted(features)} are given.")
        model, *values = vectors(scores=scores, **{name: features[name] for name in self.slopes})
        corrected = (np.interp(model, *np.transpose(self.reading)) if self.reading else model) - self.shift
        for one, x in zip(self.slopes.values(), values, strict=True):
            corrected = corrected - one.slope * ((x if one.bounds is None else np.clip(x, *one.bounds)) - one.center)
        return np.asarray(np.clip(corrected, *scale))


def fit_score_correction(
    scores: ArrayLike,
    ratings: ArrayLike,
    features: Mapping[str, ArrayLike],
    *,
    differences: bool = False,
    clusters: Clusters = None,
    reliability: float | None = None,
) -> ScoreCorrection:
    """Fit the correction that leaves none of the features an effect at equal quality, alone or beside the others.

    Arguments as those of ``EqualQuality``; ``differences`` have no centers. ValueError where an effect is undefined.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> quality, length = rng.normal(size=(2, 400))
        >>> ratings = quality[:, None] + 0.3 * rng.normal(size=(400, 2))
        >>> scores = quality + 0.2 * length + 0.1 * rng.normal(size=400)
        >>> fitted = fit_score_correction(scores, ratings, {"length": length})
        >>> round(fitted.slopes["length"].slope, 1)
        0.2
    """
    columns = dict(zip(features, vectors(**features), strict=True))
    options: dict[str, Any] = {"clusters": clusters, "reliability": reliability, "differences": differences}
    model, slopes = EqualQuality(scores, ratings, columns, unscaled=list(columns), **options), {}
    for name, x in columns.items():
        effect = model.effect(name)
        if math.isnan(effect.value):
            raise ValueError(f"What the scores owe to {name!r:.80} is undefined: {effect.reason}.")
        center, bounds = 0.0 if differences else float(np.nanmean(x)), (float(np.nanmin(x)), float(np.nanmax(x)))
        slopes[name] = Slope(effect.value * effect.score_sd, center, bounds)
    return ScoreCorrection(slopes, pairs=differences)


# What a gain in the judge's scores is made of. From one version's outputs to another's on the same inputs, the mean
# score rises by G, feature j by D_j, and the mean rating by D_q. At equal quality, a unit of the feature is worth c_j
# points, and with the features held fixed a point of quality is worth b (``EqualQuality``, from rated items). Then c_j
# D_j of the gain is the feature's, b D_q is quality, as raters' errors have a mean of 0, and the rest is neither. An
# input that is left out changes c, b, D and G at once: to first order, its influence on c_j D_j is D_j influence(c_j) +
# c_j influence(D_j), and squared influences add up to the variance (Efron and Stein 1981). Where the rated items are
# both versions', which of them an item is stands in the model too: else what the judge gives for the version alone
# would be called length where the second one is longer.

GAIN, REST, PEOPLE = "gain", "rest", "people"
NOBODY = "nobody rated items, so what the judge gives for it at equal quality is not known"


def split_gain(
    before: Mapping[str, ArrayLike],
    after: Mapping[str, ArrayLike],
    model: EqualQuality | None,
    *,
    clusters: tuple[Sequence[str], Sequence[str], Sequence[str]],
) -> dict[str, Interval]:
    """Split the gain in a judge's mean score from one version of a system to another into the parts of features.

    Args:
        before: ``"gain"`` -> (n,) scores of the first version's outputs; name -> (n,) numbers of each feature; where
            people rated them, ``"people"`` -> (n,) their mean ratings. NaN where undefined.
        after: The same of the second version, (m,) each.
        model: Scores, ratings and these features, ``unscaled``, of items that people rated, and maybe further ones,
            such as the version; None without any.
        clusters: Input of each output before and after, and of each item of the model. Inputs that one version lacks,
            or has without a score or a feature, are left out.

    Returns:
        ``"gain"``, each feature's part, ``"quality"`` where people rated both versions, and ``"rest"``, in points of
        the score; and ``"people"``, the gain in ratings. NaN where not known. The errors are joint, over the inputs of
        both versions and the model.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> quality, length = rng.normal(size=(2, 400))
        >>> ratings = quality[:, None] + 0.3 * rng.normal(size=(400, 2))
        >>> scores, inputs = quality + 0.2 * length + 0.1 * rng.normal(size=400), [f"{k}" for k in range(400)]
        >>> model = EqualQuality(scores, ratings, {"length": length}, unscaled=["length"])
        >>> longer = {"gain": scores + 0.2 * 1.5, "length": length + 1.5}  # and no better
        >>> found = split_gain({"gain": scores, "length": length}, longer, model, clusters=(inputs, inputs, inputs))
        >>> {name: round(one.value, 1) for name, one in found.items()}
        {'gain': 0.3, 'length': 0.3, 'rest': -0.0}
    """
    features = [name for name in before if name not in (GAIN, PEOPLE)]
    names = [GAIN, *features, *[PEOPLE] * (PEOPLE in before and PEOPLE in after)]
    # 1. outputs with a score and all features, to inputs of both versions
    tables = [np.column_stack(vectors(**{name: side[name] for name in names})) for side in (before, after)]
    whole = [defined(table[:, : 1 + len(features)]) for table in tables]
    inputs = [np.asarray(side) for side in clusters[:2]]
    first, second = ({*own[rows].tolist()} for own, rows in zip(inputs, whole, strict=True))
    common = sorted(first & second)
    rated = dict.fromkeys(one for one, used in zip(clusters[2], model.kept, strict=True) if used) if model else {}
    places = {one: place for place, one in enumerate(dict.fromkeys([*common, *rated]))}
    kept = [rows & np.isin(own, common) for own, rows in zip(inputs, whole, strict=True)]
    units, n = len(common), int(sum(rows.sum() for rows in kept))
    if PEOPLE in names:  # the ratings of one version are compared with those of the other to the same inputs
        before_rated, after_rated = (own[~np.isnan(table[:, -1])] for own, table in zip(inputs, tables, strict=True))
        both = np.intersect1d(before_rated, after_rated)
        for table, own in zip(tables, inputs, strict=True):
            table[~np.isin(own, both), -1] = np.nan
    # 2. what changes between the versions, (k,), and the influence of each input on that, (U, k)
    moves, influence = np.zeros(len(names)), np.zeros((len(places), len(names)))
    for sign, table, rows, given in zip((-1, 1), tables, kept, clusters[:2], strict=True):
        codes = np.array([places[one] for one, used in zip(given, rows, strict=True) if used], dtype=np.int64)
        mean, without = _means_without(table[rows], codes, units)
        moves, influence[:units] = moves + sign * mean, influence[:units] + sign * without
    influence[:units] = influences(influence[:units]) if units else 0.0
    # 3. points for one unit of each feature, and of quality, (p,), and the influences on their parts, (U, p)
    effects = [model.effect(name) if model else Effect(math.nan, reason=NOBODY) for name in features]
    why = next((e.reason or TOO_WEAK for e in effects if math.isnan(e.value) or e.weak), "")
    names = [*features, *[QUALITY] * (PEOPLE in names)]
    slopes, moved, step = np.full(len(names), np.nan), np.zeros((len(places), len(names))), moves[1:]
    if model and features and not why:
        worth, without = model.slopes()
        used = [[*model.names[1:], QUALITY].index(name) for name in names]
        slopes = worth[used]
        moved[[places[one] for one in rated]] = influences(without[:, used])
    parts, of_parts = slopes * step, moved * step + influence[:, 1:] * slopes
    # 4. all with their errors; what the ends of the scales alone may show widens the parts
    values = {GAIN: moves[0], **dict(zip(names, parts, strict=True)), REST: moves[0] - parts.sum()}
    columns = {GAIN: influence[:, 0], **dict(zip(names, of_parts.T, strict=True))}
    columns[REST] = columns[GAIN] - of_parts.sum(axis=1)
    allowed = {
        name: sorted(e.score_sd * end * d for end in e.allowance)
        for name, e, d in zip(features, effects, step, strict=False)
    }
    allowed[REST] = [-sum(ends[1] for ends in allowed.values()), -sum(ends[0] for ends in allowed.values())]
    if QUALITY in names:
        values[PEOPLE], columns[PEOPLE] = moves[-1], influence[:, -1]
    intervals = {}
    for name, value in values.items():
        of_model = name not in (GAIN, PEOPLE) and bool(features)
        bare = Interval(math.nan, n=n, undefined=sum(map(len, tables)) - n, units=units, unit="points")
        if of_model and why:
            intervals[name] = replace(bare, reason=why)
            continue
        fewest = min(units, len(rated)) if of_model else units
        half = float(scipy.stats.t.ppf(0.975, max(fewest - 1, 1)) * np.sqrt((columns[name] ** 2).sum()))
        low, high = (value - half, value + half) if fewest >= MIN_CLUSTERS else (math.nan, math.nan)
        less, more = allowed.get(name, (0.0, 0.0))
        intervals[name] = replace(bare, value=float(value), low=float(low - more), high=float(high - less))
    return intervals


def _means_without(table: FloatArray, codes: IntArray, groups: int) -> tuple[FloatArray, FloatArray]:
    """Return (k,) means of the defined values of a table (n, k), and (G, k) without each cluster."""
    sums, counts = np.zeros((groups, table.shape[1])), np.zeros((groups, table.shape[1]))
    np.add.at(sums, codes, np.nan_to_num(table))
    np.add.at(counts, codes, ~np.isnan(table))
    total, number = sums.sum(axis=0), counts.sum(axis=0)
    return ratio(total, number), ratio(total - sums, number - counts)
