"""Gather the scores and ratings from which effects at equal quality are estimated."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from evalbias.evaluation.estimates import Sample
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, RATINGS, Judged
from evalbias.measures.arrays import FloatArray, ratio
from evalbias.measures.effect_statistic import EffectStatistic

MOST_DRAWS = 100
"""Largest number of drawn answers, of which a tie counts as two, whose shares are told from a model's probabilities."""


def is_rated_by_people(judged: Judged) -> bool:
    """Return whether people's view of the items is known."""
    return not {RATINGS, HUMAN_SCORES, BETTER}.isdisjoint(judged.covariates)


def people_ratings(judged: Judged) -> FloatArray:
    """Return (n, r) what people say of each item's quality; of a pair, its first candidate's less its second's.

    Single ratings come first, because several of them tell how noisy one is. Without them, the human score is the one
    rating, or people's choice between the candidates of a pair: 1 for the first, -1 for the second.

    Raises:
        ValueError: Nobody rated the items.
    """
    ratings = judged.covariates.get(RATINGS)
    if ratings is not None:
        return ratings
    if judged.pairwise and BETTER in judged.covariates:
        return np.asarray(1.0 - 2.0 * judged.covariate(BETTER))[:, None]
    scores = judged.covariate(HUMAN_SCORES)
    return (scores if scores.ndim == 1 else scores[:, 0] - scores[:, 1])[:, None]


def rated_once(judged: Judged) -> int:
    """Return the number of items with one rating where others have several: effects at equal quality leave them out."""
    counts = (~np.isnan(judged.covariates.get(RATINGS, np.empty((0, 0))))).sum(axis=1)
    return int((counts == 1).sum()) if (counts > 1).any() else 0


def preferred(judged: Judged) -> FloatArray:
    """Return (n,) 1 where people prefer the first candidate of a pair, 0 the second, NaN where neither.

    It is their choice where one is given, else the side of their mean rating.
    """
    if BETTER in judged.covariates:
        return np.asarray(1.0 - judged.covariate(BETTER))
    return side(mean_of_raters(people_ratings(judged)))


def side(difference: FloatArray) -> FloatArray:
    """Return 1 for positive numbers, 0 for negative ones, NaN for 0."""
    return np.where(difference == 0, np.nan, (1 + np.sign(difference)) / 2)


def agreeing(choice: FloatArray, other: FloatArray) -> FloatArray:
    """Return (n,) 1 for equal choices, 0 for different ones, .5 where one is a tie; NaN where undefined."""
    return np.asarray(choice * other + (1 - choice) * (1 - other))


def mean_of_raters(ratings: FloatArray) -> FloatArray:
    """Return (n,) means of the ratings (n, r) that are defined; NaN without any."""
    present = ~np.isnan(ratings)
    return ratio(np.where(present, ratings, 0.0).sum(axis=1), present.sum(axis=1).astype(np.float64))


def judge_scores(judged: Judged) -> FloatArray:
    """Return (n,) scores, or for pairs how strongly the judge prefers the first candidate.

    The preference is the mean over the orders of the log-odds of the candidate's win, NaN where one is certain. A judge
    that gives verdicts without probabilities has the mean verdict instead: 1 first, -1 second, 0 tie or disagreement of
    the orders. So has one whose probabilities are shares of a few drawn answers, of which 0 and 1 are no certainty:
    without them, only pairs that it was unsure of would count.
    """
    if not judged.pairwise:
        return judged.answers
    odds = _advantages(judged)
    return np.asarray((odds * np.array([1.0, -1.0])[: odds.shape[1]]).mean(axis=1))


def position_scores(judged: Judged) -> FloatArray:
    """Return (n,) how strongly the judge prefers the first position, averaged over both orders; as ``judge_scores``."""
    return np.asarray(_advantages(judged).mean(axis=1))


def are_verdicts(scores: FloatArray) -> bool:
    """Return whether ``judge_scores`` (n,) of pairs are mean verdicts, and not log-odds."""
    return bool((np.abs(scores[~np.isnan(scores)]) <= 1).all()) and _are_shares(scores, 2 * MOST_DRAWS)


def _advantages(judged: Judged) -> FloatArray:
    """Return (n, r) log-odds of the first position in each order, or verdicts from -1 to 1 if there are only those."""
    wins = first_position(judged)
    if np.isin(wins, (0.0, 1.0)).any() and _are_shares(wins, MOST_DRAWS):
        return np.asarray(2 * wins - 1)
    with np.errstate(divide="ignore"):
        odds = np.log(wins) - np.log1p(-wins)
    return np.where(np.isfinite(odds), odds, np.nan)


def _are_shares(values: FloatArray, most: int) -> bool:
    """Return whether all numbers between -1 and 1 are multiples of 1/m for an m up to ``most``."""
    distinct = np.unique(values[~np.isnan(values)])
    return any(np.abs(distinct * m - np.round(distinct * m)).max(initial=0) < 1e-9 for m in range(1, most + 1))


def first_position(judged: Judged) -> FloatArray:
    """Return (n, r) win probability of the first position in each order of a pair; a tie counts half."""
    return np.asarray(judged.answers[:, :, 0] + (judged.answers[:, :, 2] / 2 if judged.ties else 0))


def effect_statistic(
    judged: Judged,
    name: str,
    features: Mapping[str, FloatArray],
    *,
    standardized: bool = True,
    reliability: float | None = None,
) -> EffectStatistic:
    """Return the effect of one feature at equal quality as a statistic of ``judge_scores``.

    Args:
        judged: Answers, with people's ratings.
        name: Feature whose effect is meant; the other features are held fixed.
        features: Name -> (n,) numbers, or (n, 2) for pairs, of which the difference counts.
        standardized: Whether the effect is that of one standard deviation of the feature, or of one unit.
        reliability: Share of a single rating's variance that is quality, for items with one rating.
    """
    columns = {key: v if v.ndim == 1 else v[:, 0] - v[:, 1] for key, v in features.items()}
    feature, ratings = columns.pop(name), people_ratings(judged)
    return EffectStatistic(
        feature,
        ratings,
        name=name,
        covariates=columns,
        standardized=standardized,
        reliability=reliability,
        differences=judged.pairwise,
        mirrored=judged.pairwise and judged.answers.shape[1] == 2,
    )


def effect_sample(judged: Judged, statistic: EffectStatistic, label: str) -> Sample:
    """Return what an effect is computed from, with its column heading in tables."""
    values = np.where(statistic.usable, judge_scores(judged), np.nan)
    return Sample(values, statistic, label, null=0.0, tested=False)


def log_lengths(lengths: FloatArray) -> FloatArray:
    """Return log lengths; an empty output's is undefined."""
    return np.log(np.where(lengths > 0, lengths, np.nan))


def on_one_scale(judged: Judged) -> bool:
    """Return whether people rate on the judge's scale: their ratings lie on it and reach over half of it.

    Ratings from 1 to 5 lie within a scale from 0 to 100 and are not on it. Where the scale is unknown, the range of
    scores and ratings together stands for it, and the scores must reach over a quarter: a judge may crowd its scores.
    """
    if HUMAN_SCORES not in judged.covariates or judged.pairwise:
        return False
    rated = judged.covariates.get(RATINGS, judged.covariate(HUMAN_SCORES))
    scores, human = (values[~np.isnan(values)] for values in (judged.answers, rated))
    if not len(scores) or not len(human):
        return False
    if judged.scale is not None:
        low, high = judged.scale
        return bool(low <= human.min() and human.max() <= high and 2 * np.ptp(human) >= high - low)
    whole = np.ptp(np.concatenate([scores, human]))
    meet = scores.min() < human.max() and human.min() < scores.max()
    return bool(meet and 2 * np.ptp(human) >= whole and 4 * np.ptp(scores) >= whole)
