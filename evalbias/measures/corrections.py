"""Corrections of scores, means and gains by a labeled part of the items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures import arrays
from evalbias.measures.arrays import SLACK, TINY, Clusters, FloatArray, checked, cluster_codes, ratio, settled, vectors
from evalbias.measures.equal_quality import ONE_RATING, TOO_WEAK, Effect, EqualQuality
from evalbias.measures.resample import ALIKE, DRAWS, Draws, Interval, effective_size, variance_of_mean, worth

# Mean human scores of all items, from a judge on all of them and people on a few (rates: ``verdicts``). A judge's mean
# score is wrong by its bias; human scores of some items show by how much, if these are a random sample of all.

MIN_LABELS = 2
"""Fewest labels for an interval; for sensitivity and specificity, fewest labels of each kind."""


def corrected_mean(
    scores: ArrayLike,
    people: ArrayLike,
    *,
    before: arrays.Before = None,
    clusters: Clusters = None,
    limits: tuple[float, float] = (-math.inf, math.inf),
    draws: Draws = DRAWS,
) -> Interval:
    """Estimate the mean human score of all items (PPI++, Angelopoulos et al. 2023).

    The mean of the n human scores (n + N,), NaN where nobody labeled the item, is moved by how much the judge's mean on
    the N unlabeled items exceeds its mean on the labeled ones, times a weight:

        mean(h) + weight (mean_unlabeled(m) - mean_labeled(m))

    The weight minimizes the estimated variance (with independent items, cov(h, m) / ((1 + n/N) var(m)), with m centered
    on its mean over both samples), so it is near 0 for a judge that does not follow people. The scales of judge and
    people may differ. The interval is Student's t with u - 2 degrees of freedom for u labeled inputs of one size
    (``worth``), and its variance is multiplied by u / (u - 2), because a mean and a weight were fitted. For two inputs,
    it is the mean of the labels alone; for one, it is undefined. Ends are NaN if all labels are equal. Value and ends
    lie within the ``limits`` of people's scale. Few verdicts, from 0 to 1, may all be alike, or equal the judge's:
    their error is that with a further, different one among as many independent verdicts as the labeled inputs are worth
    (see ``estimate_share``). All judges' corrected means estimate the same number, so a difference from another judge
    (``before``) is NaN. ValueError where lengths differ or a score is infinite.

    Examples:
        >>> judge, people = [2, 3, 4, 5, 4, 4, 5, 5, 5, 4], [1, 2, 3, 4] + 6 * [np.nan]  # the judge is 1 too high
        >>> round(corrected_mean(judge, people).value, 2)  # people's mean is 2.5
        3.16
    """
    judge, human, others, codes, bare = labeled_first(scores, people, clusters)
    if bare.units < MIN_LABELS or before is not None:
        return bare
    human, judge, others = map(settled, (human, judge, others))
    # (G,) contributions of each cluster to the mean of the labels, and to the shift from labeled items to others
    deviations = np.bincount(codes[: len(human)], (human - human.mean()) / len(human), codes.max() + 1)
    everyone, shift, moved = settled(np.concatenate([judge, others])), 0.0, np.zeros_like(deviations)
    if len(others) and bare.units > 2 and np.ptp(everyone) > 0:  # two inputs cannot determine a mean and a weight
        shift, center = float(others.mean() - judge.mean()), everyone.mean()
        moved = np.bincount(codes, np.concatenate([(judge - center) / len(judge), (center - others) / len(others)]))
    spread = float((moved**2).sum())
    weight = float((deviations * moved).sum()) / spread if spread > 0 else 0.0
    estimate = float(np.clip(human.mean() + weight * shift, *limits))
    units = worth(codes[: len(human)])
    df, squares = max(units - (2 if weight else 1), 1), ((deviations - weight * moved) ** 2).sum()
    if limits == (0.0, 1.0):
        variance = variance_of_mean(human, codes[: len(human)])
        squares += 1 / min(len(human), effective_size(float(human.mean()), variance, bare.units)) ** 2
    elif np.ptp(human) == 0 or not squares > 0:  # the error of equal labels may be a rounding error of their mean
        return replace(bare, value=estimate, reason=ALIKE)
    error = np.sqrt(units / df * squares)
    half = float(scipy.special.stdtrit(df, (1 + draws.confidence) / 2) * error)
    return replace(bare, value=estimate, low=max(estimate - half, limits[0]), high=min(estimate + half, limits[1]))


def labeled_first(
    scores: ArrayLike, people: ArrayLike, clusters: Clusters
) -> tuple[FloatArray, FloatArray, FloatArray, arrays.IntArray, Interval]:
    """Return (n,) scores of judge and people on labeled items, (N,) of the judge on the others, n + N cluster codes.

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


# Comparison of systems by mean human score. As in ``corrected_mean``, a system's mean label moves by a weight
# times how much the judge's mean of all outputs exceeds that of the labeled ones; one weight makes the differences as
# sure as it can. A correction that all share is wrong by as much as the judge favors one, and to share it until a test
# finds that out covers in few cases (``benchmarks/results/statistical_truth.md``): each is corrected by its own labels.

POWER, MOST_LEVERAGE = 0.8, 0.9  # of a number of labels; of an input on the weight, as far as it widens intervals
FEW_RATED = 4  # rated inputs of a system, of which fewer do not tell the spread of its labels about the weight's line


@dataclass(frozen=True)
class MeansCompared:
    """Means that people would give to the outputs of S systems, and the differences between all P pairs."""

    systems: tuple[str, ...]  # (S,) names, in the order of the data
    judge: FloatArray  # (S,) mean scores by the judge
    people: FloatArray  # (S,) means by people of all outputs, estimated
    outputs: FloatArray  # (S,) numbers of outputs with a score
    labels: FloatArray  # (S,) numbers of these outputs that people rated
    pairs: tuple[tuple[int, int], ...]  # (P,) indices of two systems: the difference is second minus first
    differences: tuple[Interval, ...]  # (P,) in human scores; the intervals hold jointly
    favors: tuple[Interval, ...]  # (P,) the judge's difference minus people's, in points of a common scale
    enough: FloatArray  # (P,) labels that show a difference this large in 80 % of cases; NaN if no number does


def compare_means(
    scores: ArrayLike, people: ArrayLike, systems: Sequence[str], *, clusters: Clusters = None, confidence: float = 0.95
) -> MeansCompared:
    """Compare the mean human scores of several systems, by a judge on all outputs and people on a random few of each.

    Of the outputs, (n,) each: ``scores`` by the judge (NaN: left out), scores by ``people`` (NaN where nobody labeled
    it), ``systems`` and inputs (``clusters``); what is common to the outputs of an input cancels in a difference.
    Intervals are Student's t with Welch's degrees of freedom; an input's influence is divided by 1 less its leverage on
    the weight, as in HC3. Those of several pairs hold together (Bonferroni). Differences of a system with fewer than
    ``FEW_RATED`` rated inputs are NaN, and no part of these; ends are where labels of some of its outputs are equal.

    Examples:
        >>> judge, people = [1, 2, 3, 4, 3, 4, 5, 7], [1, 2, 3, 4, 1, 2, 3, 5]  # the judge gives B two points more
        >>> compared = compare_means(judge, people, [*"AAAABBBB"], clusters=[*"12341234"])
        >>> compared.differences[0].value, compared.favors[0].value
        (0.25, 2.0)
    """
    model, human = checked({"scores": scores, "people": people}, clusters, axes=(1,))
    kept = ~np.isnan(model)
    units, names = cluster_codes(clusters, kept), tuple(dict.fromkeys(systems))
    own = np.array([names.index(name) for name in systems], dtype=np.int64)[kept]
    model, human = model[kept], human[kept]
    (outputs, judge, _), (labels, means, _) = (_by_system(values, own, units, len(names)) for values in (model, human))
    met = np.zeros((len(names), int(units.max(initial=-1)) + 1), dtype=bool)  # (S, U) True if people rated any output
    met[own[labeled := ~np.isnan(human)], units[labeled]] = True
    few = met.sum(axis=1) < FEW_RATED
    pairs, lost = tuple(combinations(range(len(names)), 2)), int((~kept).sum())
    bare = [
        Interval(math.nan, n=int(outputs[[a, b]].sum()), undefined=lost, units=int((met[a] | met[b]).sum()))
        for a, b in pairs
    ]
    lacking = [next((names[k] for k in two if few[k]), "") for two in pairs]
    why = f"fewer than {FEW_RATED} outputs of {{}} have a score and a rating"
    differences = [replace(e, reason=why.format(name)) for e, name in zip(bare, lacking, strict=True)]
    favors, enough, means = [*differences], np.full(len(pairs), np.nan), np.where(few, np.nan, means)
    if reached := [k for k, name in enumerate(lacking) if not name]:  # compared without the systems of few labels
        rated, places = ~few[own], np.cumsum(~few) - 1
        units = cluster_codes(units[rated].tolist(), np.ones(int(rated.sum()), dtype=bool))
        ends = places[np.array([pairs[k] for k in reached])]
        inputs = np.array([worth(units[labeled[rated] & (own[rated] == k)]) for k in np.flatnonzero(~few)])
        items = model[rated], human[rated], places[own[rated]], units, inputs
        means[~few], *compared, enough[reached] = _contrasts(*items, ends, [bare[k] for k in reached], confidence)
        for column, estimates in zip((differences, favors), compared, strict=True):
            for k, e in zip(reached, estimates, strict=True):
                column[k] = e
    return MeansCompared(names, judge, means, outputs, labels, pairs, tuple(differences), tuple(favors), enough)


def _by_system(
    values: FloatArray, own: arrays.IntArray, units: arrays.IntArray, systems: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return (S,) numbers and means of the defined (n,) values, and (S, U) contributions of each input to the means."""
    rows, table = ~np.isnan(values), np.zeros((systems, int(units.max(initial=-1)) + 1))
    n = np.bincount(own[rows], minlength=systems).astype(np.float64)
    mean = ratio(np.bincount(own[rows], values[rows], systems).astype(np.float64), n)
    np.add.at(table, (own[rows], units[rows]), ((values - mean[own]) / n[own])[rows])
    return n, mean, table


def _contrasts(
    model: FloatArray,
    human: FloatArray,
    own: arrays.IntArray,
    units: arrays.IntArray,
    inputs: FloatArray,
    ends: arrays.IntArray,
    bare: Sequence[Interval],
    confidence: float,
) -> tuple[FloatArray, list[Interval], list[Interval], FloatArray]:
    """Estimate (S,) mean human scores, and for P pairs ``ends`` the differences, the judge's favor, and labels needed.

    All systems (``own``, from 0) have enough inputs with a label, ``worth`` so many ``inputs`` of one size, (S,);
    ``bare`` are intervals with the counts.
    """
    # 1. means of the labels, shifts of the judge from labeled to all outputs, and each input's contribution to both
    systems, seen = len(inputs), np.where(np.isnan(human), np.nan, model)
    columns = [_by_system(values, own, units, systems) for values in (model, human, seen)]
    (outputs, judge, of_judge), (labels, means, of_labels), (_, labeled, of_seen) = columns
    # 2. the weight that minimizes the variance of the differences, and the inputs' influences on them
    contrast = np.eye(systems)[ends[:, 1]] - np.eye(systems)[ends[:, 0]]
    moved = contrast @ (of_judge - of_seen)
    spread, about = float((moved**2).sum()), float(((contrast @ of_seen) ** 2).sum())
    has_weight = spread > SLACK * about > 0 and inputs.sum() > systems + 1
    weight = -float((contrast @ of_labels * moved).sum()) / spread if has_weight else 0.0
    free = inputs - 1 - ((of_seen**2).sum(axis=1) / (of_seen**2).sum() if has_weight else 0)  # the mean's, the weight's
    free = np.maximum(free, 1)
    errors = np.sqrt(inputs / free)[:, None] * (of_labels - weight * of_seen)  # (S, U) of the labeled
    psi, shift = contrast @ (errors + weight * of_judge), judge - labeled
    if has_weight:
        psi = psi / (1 - np.minimum((moved**2).sum(axis=0) / spread, MOST_LEVERAGE))
        psi -= np.outer(contrast @ shift, (psi * moved).sum(axis=0) / spread)  # the weight is an estimate too
    # 3. Welch's degrees of freedom, and the joint quantile
    part = (errors**2).sum(axis=1)
    df = ratio((contrast**2 @ part) ** 2, contrast**2 @ (part**2 / free))
    df = np.clip(df, 1, np.maximum(np.array([e.units for e in bare]) - 2, 1))
    level, variances = (1 - confidence) / len(ends), (psi**2).sum(axis=1)
    # 4. the differences in human scores, the judge's excess over them, and the labels that would show them
    by_people, by_judge = contrast @ (people_means := means + weight * shift), contrast @ judge

    def intervals(values: FloatArray, influence: FloatArray) -> list[Interval]:
        half = -scipy.special.stdtrit(df, level / 2) * (size := np.sqrt((influence**2).sum(axis=1)))
        p_values = np.minimum(len(ends) * 2 * scipy.special.stdtr(df, -np.abs(values) / np.maximum(size, TINY)), 1.0)
        return [
            replace(e, value=float(v), low=float(v - h), high=float(v + h), p_value=float(p))
            if (of_labels[two].any(axis=1) | (labels == outputs)[two]).all() and h > 0
            else replace(e, value=float(v), reason=ALIKE)
            for e, two, v, h, p in zip(bare, ends, values, half, p_values, strict=True)
        ]

    fixed = ((weight * contrast @ of_judge) ** 2).sum(axis=1)  # part of the variance that more labels do not reduce
    wanted = (by_people / (-scipy.special.ndtri(level / 2) + scipy.special.ndtri(POWER))) ** 2 - fixed
    enough = np.ceil(labels[ends].sum(axis=1) * ratio(np.maximum(variances - fixed, 0.0), wanted))
    enough[enough > outputs[ends].sum(axis=1)] = np.nan
    favors = intervals(by_judge - by_people, contrast @ of_judge - psi)
    return people_means, intervals(by_people, psi), favors, enough


LEVEL = "log-probability of "  # begins the names of the features of the judge's own answer, before a level

# Score correction: subtract the effect of features of the text, such as its length, from a judge's scores. The slopes
# are fitted on items that people rated, at equal quality and together (``EqualQuality``). Scores of outputs with equal
# features keep their order and their distances. Nothing is known of a slope beyond the values it was fitted on, so an
# output that is longer or likelier than all of them gets the correction of the nearest.


@dataclass(frozen=True)
class Slope:
    """Part of a score that is due to a feature; ValueError for numbers that are not finite."""

    slope: float  # points of the score, or log-odds of a win, per unit of the feature
    center: float = 0.0  # value at which a score is unchanged: the mean of the fit, 0 for a difference within pairs
    bounds: tuple[float, float] | None = None  # lowest and highest value of the fit; None if it holds everywhere

    def __post_init__(self) -> None:
        if not (np.isfinite(self.slope) and np.isfinite(self.center)):
            raise ValueError(f"slope={self.slope}, center={self.center}: give finite numbers.")
        if self.bounds is not None and not -np.inf < self.bounds[0] <= self.bounds[1] < np.inf:
            raise ValueError(f"bounds={self.bounds}: give the lowest and the highest value, both finite, or None.")


@dataclass(frozen=True)
class ScoreCorrection:
    """Correction of a judge's scores for features of the judged text, or of its own probabilities of the levels.

    Examples:
        >>> correction = ScoreCorrection({"words": Slope(0.01, center=200.0)}, shift=0.5)
        >>> correction([3.0, 3.0, np.nan], {"words": [100, 300, 200]}).tolist()
        [3.5, 1.5, nan]
    """

    # By feature: "likelihood" in nats, "length" as its logarithm, those of ``level_features``, or any other.
    slopes: Mapping[str, Slope]
    shift: float = 0.0  # points that every score is too high; of comparisons in one order, the lean to the first place
    reduction: str = "sum"  # of token log-probabilities to the likelihood (LS), "sum" or "mean"
    length: str = "characters"  # unit of length, or "graphemes"
    pairs: bool = False  # True if it corrects comparisons, in log-odds, instead of scores
    criterion: str | None = None  # criterion that people rated; None if unknown
    likelihood_lm: str | None = None  # model that measured the likelihood; None if unknown
    # Points (score, mapped score), ascending in both, between which scores are mapped linearly before anything is
    # subtracted; empty for no map.
    reading: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not all(isinstance(name, str | None) for name in (self.criterion, self.likelihood_lm)):
            raise ValueError(f"criterion={self.criterion!r:.80}, likelihood_lm={self.likelihood_lm!r:.80}: give names.")
        if not np.isfinite(self.shift) or not isinstance(self.pairs, bool):
            raise ValueError(f"shift={self.shift}, pairs={self.pairs!r:.80}: give a finite number, and True or False.")
        if self.reduction not in ("sum", "mean") or self.length not in ("characters", "graphemes"):
            fault = f"reduction={self.reduction!r:.80}, length={self.length!r:.80}"
            raise ValueError(f"{fault}: give 'sum' or 'mean', and 'characters' or 'graphemes'.")
        points = np.array(self.reading, dtype=np.float64)
        steps = np.diff(points, axis=0) if points.ndim == 2 and points.shape[1] == 2 else np.empty((0, 2))
        if len(points) and not (len(steps) and (steps[:, 0] > 0).all() and (steps[:, 1] >= 0).all()):  # NaN is not
            raise ValueError(f"reading={self.reading!r:.80}: give two or more (score, reading), ascending in both.")
        object.__setattr__(self, "reading", tuple((float(x), float(y)) for x, y in points))  # JSON returns lists

    def at(self, strength: float) -> ScoreCorrection:
        """Return the correction that subtracts only the share ``strength``, in [0, 1], of every effect."""
        return replace(self, slopes={}, shift=0.0).towards(self, strength)

    def towards(self, other: ScoreCorrection, strength: float) -> ScoreCorrection:
        """Interpolate between this correction (strength 0) and another (1); ValueError for other strengths.

        Each slope changes linearly, and so does every effect that is left over.
        """
        if not 0 <= strength <= 1:
            raise ValueError(f"strength={strength}: give a number between 0 and 1.")
        none, slopes = Slope(0.0), {}
        for name in {**self.slopes, **other.slopes}:
            own, theirs = (correction.slopes.get(name, none).slope for correction in (self, other))
            template = other.slopes.get(name, self.slopes.get(name, none))
            slopes[name] = replace(template, slope=(1 - strength) * own + strength * theirs)
        return replace(other, slopes=slopes, shift=(1 - strength) * self.shift + strength * other.shift)

    def __call__(
        self,
        scores: ArrayLike,
        features: Mapping[str, ArrayLike],
        *,
        scale: tuple[float, float] = (-math.inf, math.inf),
    ) -> FloatArray:
        """Correct scores (n,): ``score - shift - sum of slope * (feature - center)``, features kept within the bounds.

        The score is first mapped by ``reading``, if there is one. The result is clipped to the scale. Features (n,) by
        name, in the units of the fit; NaN if a score or a feature is.
        """
        if missing := [name for name in self.slopes if name not in features]:
            raise ValueError(f"The correction needs the feature {missing[0]!r:.80}, and {sorted(features)} are given.")
        model, *values = vectors(scores=scores, **{name: features[name] for name in self.slopes})
        corrected = (np.interp(model, *np.transpose(self.reading)) if self.reading else model) - self.shift
        for part, x in zip(self.slopes.values(), values, strict=True):
            inside = x if part.bounds is None else np.clip(x, *part.bounds)
            corrected = corrected - part.slope * (inside - part.center)
        return np.asarray(np.clip(corrected, *scale))


LEAST = 1e-4  # probability of a level below which no smaller one counts: its logarithm would outweigh the others


def level_features(shares: FloatArray, scale: tuple[float, float]) -> dict[str, FloatArray]:
    """Return (n,) the log-probability of every level of a scale, in nats, by the names that corrections give them.

    ``shares`` (n, K) are the probabilities of the K whole numbers of the scale; NaN stays NaN.

    Examples:
        >>> features = level_features(np.array([[0.5, 0.5], [1.0, 0.0]]), (0, 1))
        >>> {name: x.round(2).tolist() for name, x in features.items()}
        {'log-probability of 0': [-0.69, 0.0], 'log-probability of 1': [-0.69, -9.21]}
    """
    levels = range(round(scale[0]), round(scale[1]) + 1)
    columns = np.log(np.maximum(shares, LEAST)).T
    return {f"{LEVEL}{level}": column for level, column in zip(levels, columns, strict=True)}


def fit_line(scores: FloatArray, people: FloatArray, scale: tuple[float, float]) -> ScoreCorrection | None:
    """Fit people's scores (n,) along a line a + b score, by least squares; None where no line rises.

    Examples:
        >>> fit_line(np.array([3.0, 4.0, 5.0]), np.array([1.0, 3.0, 5.0]), (1, 5)).reading
        ((1.0, -3.0), (5.0, 5.0))
    """
    spread = float(((scores - scores.mean()) ** 2).sum())
    slope = float(((scores - scores.mean()) * people).sum()) / spread if spread > 1e-12 else 0.0
    ends = [(float(end), float(people.mean() + slope * (end - scores.mean()))) for end in scale]
    return ScoreCorrection({}, reading=tuple(ends)) if slope > 0 else None


def fit_level_weights(
    scores: FloatArray,
    people: FloatArray,
    features: Mapping[str, FloatArray],
    *,
    scale: tuple[float, float],
    penalty: float,
) -> ScoreCorrection | None:
    """Fit people's scores (n,) by a line through the expected score and weights of the levels; None where none rises.

    The expected score gives a level its number as its weight, whatever the model holds of it. What the line leaves,
    r (n,), is explained by the levels' log-probabilities X (n, K), each less its mean, by ridge regression:

        w = (X'X + penalty I)^-1 X'r
    """
    line = fit_line(scores, people, scale)
    if line is None:
        return None
    columns = np.stack(list(features.values()), axis=1)
    centers = columns.mean(axis=0)
    x, left = columns - centers, people - line(scores, {})
    weights = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ left)
    ends = zip(columns.min(axis=0).tolist(), columns.max(axis=0).tolist(), strict=True)
    slopes = map(Slope, (-weights).tolist(), centers.tolist(), ends)  # a correction subtracts
    return replace(line, slopes=dict(zip(features, slopes, strict=True)))


def fit_score_correction(
    scores: ArrayLike,
    ratings: ArrayLike,
    features: Mapping[str, ArrayLike],
    *,
    differences: bool = False,
    clusters: Clusters = None,
    reliability: float | None = None,
) -> ScoreCorrection:
    """Fit the correction after which no feature has an effect at equal quality, alone or with the others held fixed.

    Arguments as in ``EqualQuality``; ``differences`` have no centers. ValueError if an effect is undefined.

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
    at_equal_quality = partial(EqualQuality, scores, ratings, columns, unscaled=list(columns), clusters=clusters)
    model, slopes = at_equal_quality(reliability=reliability, differences=differences), {}
    for name, x in columns.items():
        effect = model.effect(name)
        if math.isnan(effect.value):
            how = " (`reliability` states it)" if effect.reason == ONE_RATING else ""
            raise ValueError(f"What the scores owe to {name!r:.80} is undefined: {effect.reason}{how}.")
        center, bounds = 0.0 if differences else float(np.nanmean(x)), (float(np.nanmin(x)), float(np.nanmax(x)))
        slopes[name] = Slope(effect.value * effect.score_sd, center, bounds)
    return ScoreCorrection(slopes, pairs=differences)


def part_of(difference: Interval, effect: Effect) -> Interval:
    """Return the part of a difference between two mean scores, in points, that is due to a feature.

    This is the effect of a unit of the feature at equal quality (``Effect``, unscaled) times the ``difference`` between
    its means; both errors count as independent. NaN if the effect is.
    """
    worth, half = effect.value * effect.score_sd, (effect.high - effect.low) / 2 * effect.score_sd
    if math.isnan(worth) or effect.weak:
        return replace(difference, value=math.nan, low=math.nan, high=math.nan, reason=effect.reason or TOO_WEAK)
    value, error = difference.value * worth, (difference.high - difference.low) / 2 * worth
    error = math.hypot(difference.value * half, error)
    return replace(difference, value=value, low=value - error, high=value + error, p_value=math.nan)
