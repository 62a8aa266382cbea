"""False alarms on data that were collected, or are shaped, in ways that mislead: each row is one promise.

A row of ``ALARMS`` draws one data set whose truth is known and says whether evalbias errs on it: an unbiased judge is
called biased, an interval misses the truth, or a test finds what is not there. At most 6 % should; a row that plants
something should be found. ``benchmarks.statistical_truth`` writes the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtr

from benchmarks.harness import markdown, marked
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, RATINGS, Judged
from evalbias.evaluation.probes import estimate_probe
from evalbias.measures import Draws, estimate_effect, pearson
from evalbias.measures.arrays import FloatArray
from evalbias.measures.equal_quality import EqualQuality
from evalbias.measures.forecasts import counted_calibration_error, estimate_flawless_error
from evalbias.measures.juries import Panel, error_correlation
from evalbias.measures.missing import missing_by_level, selected_columns
from evalbias.measures.repeats import estimate_disagreement, rating_moments, sample_moments
from evalbias.measures.verdicts import decided_alone, estimate_dependence
from evalbias.optimizers.correction import learn_correction

GOAL = 0.06
Rng = np.random.Generator


@dataclass(frozen=True)
class Alarm:
    """One promise: whether evalbias errs on a data set that is drawn, or finds what is planted."""

    draw: Callable[[Rng], bool]
    planted: bool = False  # whether something is there to be found
    sets: int = 400


def read(ratings: FloatArray) -> FloatArray:
    """Return the ratings (n, r) that count, as of data that are read."""
    return np.delete(ratings, selected_columns(ratings)[0], axis=1)


def disputed(ratings: FloatArray, apart: float = 2.0) -> FloatArray:
    """Return ratings (n, 3) of which the third was given where the first two differ so far."""
    third = np.where(np.abs(ratings[:, 0] - ratings[:, 1]) >= apart, ratings[:, 2], np.nan)
    return np.column_stack([ratings[:, :2], third])


def people(rng: Rng, quality: FloatArray, raters: int = 3, noise: float = 1.0) -> FloatArray:
    """Draw ratings (n, r) from 1 to 5 in whole points."""
    return np.clip(np.round(3 + quality[:, None] + noise * rng.normal(size=(len(quality), raters))), 1, 5)


def texts(rng: Rng, n: int, *, effect: float = 0.0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draw quality, log length, which correlates .6 with it, and a judge's scores, with an effect of length."""
    quality, own, noise = rng.normal(size=(3, n))
    length = 0.6 * quality + 0.8 * own
    return quality, length, 3 + 0.6 * quality + effect * length + 0.4 * noise


def called_biased(rng: Rng, n: int, collected: Callable[[Rng, FloatArray], FloatArray], effect: float = 0.0) -> bool:
    """Say whether an effect of length is found with the ratings that are collected."""
    quality, length, scores = texts(rng, n, effect=effect)
    return estimate_effect(scores, read(collected(rng, people(rng, quality))), length, names=("length",)).p_value < 0.05


def unwarned(rng: Rng, n: int, collected: Callable[[Rng, FloatArray], FloatArray]) -> bool:
    """Say whether no warning is given."""
    return not selected_columns(collected(rng, people(rng, rng.normal(size=n))))[1]


def misses_errors_of_a_jury(rng: Rng) -> bool:
    """Say whether the correlation of four judges' errors, .3, is outside its interval."""
    quality, shared = rng.normal(size=(2, 400, 1))
    scores = quality + 0.9 * (np.sqrt(0.3) * shared + np.sqrt(0.7) * rng.normal(size=(400, 4)))
    e = Panel(scores, read(disputed(people(rng, quality[:, 0])))).estimate(error_correlation)
    return not e.low <= 0.3 <= e.high


def misses_part_of_raters(rng: Rng) -> bool:
    """Say whether the raters' part of a disagreement, 1 of 1 + .16 / .36, is outside its interval."""
    quality = rng.normal(size=(200, 1))
    scores = 3 + 0.6 * quality + 0.4 * rng.normal(size=(200, 2))
    ratings = read(disputed(quality + rng.normal(size=(200, 3)), 1.5))
    how: dict[str, Any] = {"part": "raters", "draws": Draws(resamples=500)}
    e = estimate_disagreement(sample_moments(scores), rating_moments(ratings), **how)
    return not e.low <= 1 / (1 + 0.16 / 0.36) <= e.high


def called_dependent(rng: Rng) -> bool:
    """Say whether three annotators, right in 85 %, and a judge are said to err together."""
    truth = rng.random((400, 1)) < 0.5
    verdicts = np.where(rng.random((400, 4)) < 0.85, truth, ~truth).astype(np.float64)
    annotators = read(disputed(verdicts[:, 1:], 1.0))
    return estimate_dependence(verdicts[:, 0], annotators, draws=Draws(resamples=1)).p_value < 0.05


def missing_by_system(rng: Rng, uneven: float = 1.0) -> bool:
    """Say whether judgments of 40 inputs, each lost with all its four outputs, are said to depend on the system."""
    inputs = np.repeat(np.arange(40), 4)
    systems = inputs % 4
    lost = (rng.random(40) < np.where(np.arange(40) % 4 == 0, uneven * 0.15, 0.15))[inputs]
    levels = [str(system) for system in systems]
    return bool(0 < lost.sum() < 160) and missing_by_level(lost, levels, clusters=inputs.tolist()) < 0.05


def called_uncalibrated(rng: Rng, outputs: int, shrunk: float = 0.0) -> bool:
    """Say whether forecasts of 200 items are said not to come true; items of an input correlate .6."""
    inputs = np.repeat(np.arange(200 // outputs), outputs)
    p, shared = rng.beta(1.5, 1.5, size=200), rng.normal(size=200 // outputs)[inputs]
    side = np.sqrt(0.6) * shared + np.sqrt(0.4) * rng.normal(size=200)
    y = (ndtr(side) < 0.5 + (1 - shrunk) * (p - 0.5)).astype(np.float64)
    error = counted_calibration_error(np.ones((1, 200)), p, y)[0]
    return bool(error > estimate_flawless_error(p, y[:, None], clusters=inputs.tolist()).high)


def levels_off(rng: Rng, n: int) -> bool:
    """Say whether a judge whose scores level off seems biased where the longest outputs are by far the best."""
    length = rng.normal(size=n)
    quality = 0.6 * (np.exp(0.8 * length) - 1.4) + 0.4 * rng.normal(size=n)
    scores = 3 + 1.5 * np.tanh(0.8 * quality) + 0.3 * rng.normal(size=n)
    ratings = quality[:, None] + 0.5 * rng.normal(size=(n, 2))
    return EqualQuality(scores, ratings, {"length": length}).effect("length").p_value < 0.05


def one_long_output(rng: Rng, n: int) -> bool:
    """Say whether an unbiased judge seems biased beside one output that is 200 times as long as others."""
    quality, length, scores = texts(rng, n)
    length[0] = np.log(200) / 0.4
    return estimate_effect(scores, people(rng, quality, 2, 0.7), length, names=("length",)).p_value < 0.05


def skewed_probe(rng: Rng, n: int, moved: float = 0.0) -> bool:
    """Say whether an edit is said to act that moves few scores far up and many a little down."""
    x = rng.gamma(0.5, size=n) - 0.5 + moved
    e = estimate_probe(x, unseen=4.0, draws=Draws(seed=int(rng.integers(1 << 30))))
    return e.p_value < 0.05 and not e.low <= 0 <= e.high


def costs_a_tenth(rng: Rng) -> bool:
    """Say whether a correction learned from 60 items costs .1 or more of Pearson's correlation in new items."""

    def judged(n: int) -> Judged:
        quality, own, noise = rng.normal(size=(3, n))
        likely = 0.7 * quality + np.sqrt(0.51) * own
        ratings = 3 + quality[:, None] + 0.7 * rng.normal(size=(n, 3))
        columns = {LIKELIHOODS: likely, RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}
        return Judged(tuple(map(str, range(n))), "quality", 3 + quality + 0.4 * likely + 0.8 * noise, columns)

    learned, new = learn_correction(judged(60)), judged(20_000)
    corrected = learned.correction(new.answers, {"likelihood": new.covariate(LIKELIHOODS)})
    before, after = (pearson(scores, new.covariate(HUMAN_SCORES)).value for scores in (new.answers, corrected))
    return after < before - 0.1


def decides_too_much(rng: Rng, outputs: int, wrong: float = 0.05) -> bool:
    """Say whether a judge may decide alone at 5 wrong in 100; of its errors of an input, latent ones correlate .3."""
    inputs = np.repeat(np.arange(400 // outputs), outputs)
    side = np.sqrt(0.3) * rng.normal(size=400 // outputs)[inputs] + np.sqrt(0.7) * rng.normal(size=len(inputs))
    truth = rng.random(len(inputs)) < 0.5
    return decided_alone(truth ^ (ndtr(side) < wrong), truth, error=0.05, clusters=inputs.tolist()).share > 0


def by_named(rng: Rng, ratings: FloatArray, raters: int, *, teams: bool = False) -> FloatArray:
    """Return ratings (n, r) in a column for each of so many people, .7 points apart, drawn by item or in teams of r."""
    (n, k), named = ratings.shape, np.full((len(ratings), raters), np.nan)
    team = k * (np.arange(n) * (raters // k) // n)[:, None] + np.arange(k)
    places = team if teams else np.array([rng.choice(raters, k, replace=False) for _ in range(n)])
    np.put_along_axis(named, places, ratings + 0.7 * rng.normal(size=raters)[places], axis=1)
    return named


def left_out(rng: Rng, collected: Callable[[Rng, FloatArray], FloatArray]) -> bool:
    """Say whether ratings of 300 items are said to depend on other ratings."""
    return selected_columns(collected(rng, people(rng, rng.normal(size=300)))) != ([], False)


CROWD: Any = partial(by_named, raters=60)
TEAMS: Any = partial(by_named, raters=12, teams=True)
LOST: Any = lambda rng, ratings: np.where(rng.random(ratings.shape) < 0.3, np.nan, ratings)  # noqa: E731
DISPUTED: Any = lambda _, ratings: disputed(ratings)  # noqa: E731
LOW_AGAIN: Any = lambda _, r: np.column_stack([r[:, 0], np.where(r[:, 0] <= 2, r[:, 1], np.nan)])  # noqa: E731
THIRD = "a third rating where two differ by 2 points"
ALARMS: Mapping[str, Alarm] = {
    **{f"{THIRD}, {n} items: verbosity": Alarm(partial(called_biased, n=n, collected=DISPUTED)) for n in (150, 400)},
    "30 % of three ratings lost, 400 items: verbosity": Alarm(partial(called_biased, n=400, collected=LOST)),
    "the same, an effect of .08 points": Alarm(partial(called_biased, n=400, collected=LOST, effect=0.08), True),
    f"{THIRD}, an effect of .08 points": Alarm(partial(called_biased, n=400, collected=DISPUTED, effect=0.08), True),
    f"{THIRD}: errors of a jury miss .3": Alarm(misses_errors_of_a_jury),
    f"{THIRD}: the raters' part of a disagreement is missed": Alarm(misses_part_of_raters, sets=200),
    "a third annotator where two differ: errors dependent": Alarm(called_dependent, sets=100),
    "a second rating of low ones, 400 items: no warning": Alarm(partial(unwarned, n=400, collected=LOW_AGAIN)),
    "anybody decides, 400 items: no warning": Alarm(
        partial(unwarned, n=400, collected=lambda g, r: g.permuted(disputed(r), axis=1))
    ),
    "60 raters of 15 items each: verbosity": Alarm(partial(called_biased, n=300, collected=CROWD)),
    "60 raters of 15 items each, an effect of .1": Alarm(
        partial(called_biased, n=300, collected=CROWD, effect=0.1), True
    ),
    "150 raters of 6 items each: verbosity": Alarm(partial(called_biased, n=300, collected=partial(CROWD, raters=150))),
    "teams of three share out 300 items: verbosity": Alarm(partial(called_biased, n=300, collected=TEAMS)),
    "teams of three share out 300 items: ratings left out": Alarm(partial(left_out, collected=TEAMS), sets=200),
    "inputs lost as a whole: by system": Alarm(missing_by_system, sets=200),
    "inputs of one of four systems lost three times as often": Alarm(partial(missing_by_system, uneven=3), True, 200),
    **{f"right forecasts, {k} outputs an input": Alarm(partial(called_uncalibrated, outputs=k)) for k in (1, 4, 10)},
    "forecasts that shrink by .6, 4 outputs an input": Alarm(partial(called_uncalibrated, outputs=4, shrunk=0.6), True),
    **{f"scores level off, quality skewed, {n} items": Alarm(partial(levels_off, n=n)) for n in (300, 800)},
    **{f"one output 200 times as long, {n} items": Alarm(partial(one_long_output, n=n)) for n in (40, 100)},
    **{f"probe with skewed differences, {n} inputs": Alarm(partial(skewed_probe, n=n)) for n in (15, 25, 40)},
    "probe with skewed differences, .5 points, 25 inputs": Alarm(partial(skewed_probe, n=25, moved=0.5), True),
    **{
        f"wrong in 5 of 100, {k} outputs an input: decides alone": Alarm(partial(decides_too_much, outputs=k))
        for k in (1, 4, 10)
    },
    "wrong in 1 of 100, 4 outputs an input: decides alone": Alarm(
        partial(decides_too_much, outputs=4, wrong=0.01), True
    ),
    "correct, 60 items, a good proxy: .1 of Pearson lost": Alarm(costs_a_tenth, sets=60),
}
"""Data and what is said of them -> the promise."""


def check(*, sets: int, seed: int) -> list[dict[str, Any]]:
    """Return in which share of at most ``sets`` data sets each alarm is raised."""
    rows = []
    for name, alarm in ALARMS.items():
        number = min(sets, alarm.sets)
        raised = [alarm.draw(np.random.default_rng([seed, index])) for index in range(number)]
        rows.append({"alarm": name, "sets": number, "planted": alarm.planted, "raised": float(np.mean(raised))})
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown table; shares above the goal are bold, or have a ? within two standard errors of it."""
    body = []
    for row in rows:
        error = math.sqrt(GOAL * (1 - GOAL) / row["sets"])
        share = marked(row["raised"], 0.0, 1.0 if row["planted"] else GOAL, error=error)
        body.append([row["alarm"], "yes" if row["planted"] else "no", row["sets"], share])
    return markdown(["data, and what is said of them", "planted", "sets", "said"], body)
