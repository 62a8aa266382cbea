"""Simulated judges with planted biases, on items whose length and likelihood go honestly with quality.

People's ratings are noisy, rounded and clipped to the scale, as are the scores of the judges. An unbiased judge sees
the quality with noise of its own.
"""

from dataclasses import replace

import numpy as np

from evalbias.evaluation import Bias, Judged
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS
from evalbias.measures import EqualQuality


def likert(values):
    return np.clip(np.round(values), 1, 5)


def text(rng, shape):
    """Quality, log length and LS, the last two correlated .5 with quality."""
    quality = rng.normal(size=shape)
    return quality, *(0.5 * quality + np.sqrt(0.75) * rng.normal(size=shape) for _ in range(2))


def likelihood_effect(likelihoods, model_scores, ratings, *, covariates=None, **options):
    features = {"likelihood": likelihoods, **(covariates or {})}
    return EqualQuality(model_scores, ratings, features, **options).effect("likelihood")


def ids(n):
    return tuple(map(str, range(n)))


def by_hand(answers, *, ties=False, scale=None, **covariates):
    """Answers, and what is known of their items, as a test writes them out."""
    answers, columns = np.array(answers, dtype=float), {k: np.array(v, dtype=float) for k, v in covariates.items()}
    return Judged(ids(len(answers)), "quality", answers, columns, ties=ties, scale=scale)


def scored(rng, n, *, length=0.0, likelihood=0.0, own=0.0, raters=2, noise=0.7, error=0.5, squeeze=1.0):
    quality, log_length, ls = text(rng, n)
    mine = rng.random(n) < 1 / (1 + np.exp(-quality))  # the judge's own system writes better text
    pull = quality + length * log_length + likelihood * ls + own * mine + error * rng.normal(size=n)
    ratings = likert(3 + quality[:, None] + noise * rng.normal(size=(n, raters)))
    covariates = {LENGTHS: np.exp(5 + log_length), LIKELIHOODS: ls}
    people = {RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}
    writers = np.where(mine, "mine", rng.choice(["other", "third"], size=n)).tolist()
    scores = likert(3 + squeeze * pull)
    return Judged(ids(n), "quality", scores, covariates | people, writers=writers, scale=(1, 5))


def with_effect(effect, *, n=200, noise=0.5, seed=0, ratings=2):
    """Unrounded scores with a planted effect of likelihood at equal quality; the items depend on the seed only."""
    rng = np.random.default_rng(seed)
    quality, other = rng.normal(size=(2, n))
    likelihoods = 0.5 * quality + np.sqrt(0.75) * other
    people = quality[:, None] + rng.normal(size=(n, ratings))
    scores = quality + effect * likelihoods + noise * np.random.default_rng(seed + 1).normal(size=n)
    covariates = {LIKELIHOODS: likelihoods, HUMAN_SCORES: people.mean(axis=1)}
    if ratings > 1:
        covariates[RATINGS] = people
    return Judged(ids=tuple(map(str, range(n))), criterion="quality", answers=scores, covariates=covariates)


def compared(rng, n, *, length=0.0, likelihood=0.0, own=0.0, first=0.0, raters=2, noise=0.7, verdicts=False, orders=2):
    quality, log_length, ls = text(rng, (n, 2))
    mine = rng.random((n, 2)) < 1 / (1 + np.exp(-quality))
    pull = (quality + length * log_length + likelihood * ls + own * mine) @ [1, -1]
    odds = [first + sign * pull + 0.5 * rng.normal(size=n) for sign in (1, -1)[:orders]]
    wins = 1 / (1 + np.exp(-2 * np.array(odds).T))  # (n, orders) of the first position
    if verdicts:
        wins = (wins > 0.5).astype(float)
    ratings = likert(3 + quality[:, None] + noise * rng.normal(size=(n, raters, 2)))
    covariates = {LENGTHS: np.exp(5 + log_length), LIKELIHOODS: ls, RATINGS: ratings @ [1, -1]}
    writers = [tuple("mine" if one else "other" for one in pair) for pair in mine]
    return Judged(ids(n), "quality", np.stack([wins, 1 - wins], axis=2), covariates, writers=writers)


def having(judged, **covariates):
    return replace(judged, covariates={**judged.covariates, **covariates})


def without(judged, *names):
    return replace(judged, covariates={n: c for n, c in judged.covariates.items() if n not in names})


def partly(judged, known):
    """Only the first items have a human score, and nothing else is known of them."""
    human = judged.covariates[HUMAN_SCORES].copy()
    human[known:] = np.nan
    return replace(judged, covariates={HUMAN_SCORES: human})


def rated_once(judged, n):
    """The first items have one rating, where the others have two."""
    ratings = judged.covariates[RATINGS].copy()
    ratings[:n, 1] = np.nan
    return having(judged, **{RATINGS: ratings})


def entangled(rng, draw, **planted):
    """A judge on items whose length goes with LS beyond what quality explains."""
    judged = draw(rng, 400, **planted)
    ls = judged.covariates[LIKELIHOODS] + 0.8 * np.log(judged.covariates[LENGTHS])
    return having(judged, **{LIKELIHOODS: ls})


def taste(*headlines):
    """A bias of which nothing is known but its name and what a short table shows of it."""
    return type("Taste", (Bias,), {"name": "taste", "title": "taste", "question": "taste?", "headlines": headlines})()


def numbers(bias, judged):
    return {one.name: one for one in bias.numbers(judged)}


def flagged(bias, name, draw, *, sets, seed=0):
    """Share of the data sets in which an estimate's test, or else its interval, excludes an unbiased judge."""
    hits = 0
    for index in range(sets):
        judged = draw(np.random.default_rng([seed, index]))
        found = numbers(bias, judged)[name].estimate(seed=index, n_resamples=400)
        hits += found.p_value < 0.05  # an undefined interval flags nothing
    return hits / sets
