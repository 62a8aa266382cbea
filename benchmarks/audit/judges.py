"""Judges with planted biases, on items whose length and likelihood go honestly with quality.

Quality is standard normal; log length and LS correlate .5 with it, and the judge's own system writes better text. Three
people rate each output on a scale of 1 to 5 with noise, rounded and clipped. A judge sees

    quality + length * log length + likelihood * LS + own * (own system wrote it) + error,

and gives it as a score on the same scale, or compares it for two outputs in both orders. Every draw is given to ours as
``Judged`` and to the peers as plain numbers, of which ``live.py`` makes the same judge again where a peer asks one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.special import expit

from benchmarks.audit.live import CENTER
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS, Judged
from evalbias.measures.arrays import FloatArray

RATERS, NOISE, ERROR = 3, 0.7, 0.5
OWN, OTHER = "judge", "other"
SHORTEST = 20
"""Characters of the shortest output."""


@dataclass(frozen=True)
class Defects:
    """Faults that are planted in a judge."""

    pairwise: bool = False  # whether the judge compares instead of scoring
    length: float = 0.0  # weight of the log length
    likelihood: float = 0.0  # weight of LS
    own: float = 0.0  # points for an output of the judge's own system
    first: float = 0.0  # log-odds for the first position
    squeeze: float = 1.0  # factor on the distance of a score from the middle of the scale
    quality: float = 1.0  # weight of the quality; 0 is a judge of noise only
    center: float = 3.0  # rating, and score, of an output of average quality; at 4.5, half of the ratings are 5
    confidence: float = 0.0  # factor on the log-odds of a comparison; 0 gives choices instead of probabilities
    # biases whose flag is counted neither as right nor as false
    unscored: frozenset[str] = field(default_factory=frozenset)

    @property
    def planted(self) -> frozenset[str]:
        """Names of the planted biases, as in ``evalbias.BIASES``, or ``"calibration"``."""
        present = {
            "position": self.first,
            "verbosity": self.length,
            "likelihood": self.likelihood,
            "self_preference": self.own,
            "scale_use": self.squeeze != 1,
            "calibration": self.confidence > 1,
        }
        return frozenset(name for name, there in present.items() if there)


JUDGES = {
    "scores: none": Defects(),
    "scores: noise only": Defects(quality=0.0, unscored=frozenset({"scale_use"})),  # it does not follow quality at all
    "scores: verbosity": Defects(length=0.4),
    "scores: likelihood": Defects(likelihood=0.4),
    "scores: self-preference": Defects(own=0.6),
    "scores: compression": Defects(squeeze=0.5),
    "scores: all of these": Defects(length=0.4, likelihood=0.4, own=0.6, squeeze=0.5),
    "pairs: none": Defects(pairwise=True),
    "pairs: none, with probabilities": Defects(pairwise=True, confidence=1.0),
    "pairs: noise only": Defects(pairwise=True, quality=0.0),
    "pairs: position": Defects(pairwise=True, first=0.5),
    "pairs: verbosity": Defects(pairwise=True, length=0.4),
    "pairs: likelihood": Defects(pairwise=True, likelihood=0.4),
    "pairs: self-preference": Defects(pairwise=True, own=0.6),
    "pairs: over-confidence": Defects(pairwise=True, confidence=4.0),
    "pairs: all of these": Defects(pairwise=True, first=0.5, length=0.4, likelihood=0.4, own=0.6, confidence=4.0),
    "scores: none, half of the ratings 5": Defects(center=4.5),
    "pairs: none, half of the ratings 5": Defects(pairwise=True, center=4.5),
    "pairs: over-confidence, half of the ratings 5": Defects(pairwise=True, confidence=4.0, center=4.5),
}


@dataclass(frozen=True)
class Drawn:
    """One judge on n items: for ours, and as numbers for the peers."""

    judged: Judged
    numbers: dict[str, Any]


def draw(defects: Defects, n: int, rng: Generator) -> Drawn:
    """Draw n items, people's ratings of them and the judge's answers."""
    shape = (n, 2) if defects.pairwise else (n,)
    quality = rng.normal(size=shape)
    log_length, ls = (0.5 * quality + np.sqrt(0.75) * rng.normal(size=shape) for _ in range(2))
    lengths = np.maximum(np.round(np.exp(CENTER + log_length)), SHORTEST)
    mine = rng.random(shape) < expit(quality)
    ratings = likert(defects.center + quality[:, None] + NOISE * rng.normal(size=(n, RATERS, *shape[1:])))
    people = ratings.mean(axis=1)
    pull = defects.quality * quality + defects.likelihood * ls + defects.own * mine  # all but the length
    seen = pull + defects.length * (np.log(lengths) - CENTER)
    writers = np.where(mine, OWN, OTHER)
    ids = tuple(f"{i:04d}" for i in range(n))
    numbers: dict[str, Any] = {
        "pairwise": defects.pairwise,
        "own": OWN,
        "ids": ids,
        "lengths": lengths.astype(int).tolist(),
        "writers": writers.tolist(),
        "people": people.tolist(),
        "pull": pull.tolist(),
        "length": defects.length,
        "squeeze": defects.squeeze,
        "center": defects.center,
        "first": defects.first,
    }
    covariates = {LENGTHS: lengths, LIKELIHOODS: ls}
    if not defects.pairwise:
        error = rng.normal(size=n) * (1 if defects.quality == 0 else ERROR)
        scores = likert(defects.center + defects.squeeze * (seen + error))
        judged = Judged(
            ids,
            "quality",
            scores,
            covariates | {RATINGS: ratings, HUMAN_SCORES: people},
            writers=writers.tolist(),
            scale=(1, 5),
        )
        return Drawn(judged, {**numbers, "scores": scores.tolist(), "error": error.tolist()})
    error = rng.normal(size=(n, 2)) * (1 if defects.quality == 0 else ERROR)
    odds = defects.first + (seen @ [1, -1])[:, None] * [1, -1] + error  # (n, orders), for the first position
    wins = expit(2 * defects.confidence * odds) if defects.confidence else (odds > 0).astype(float)
    judged = Judged(
        ids,
        "quality",
        np.stack([wins, 1 - wins], axis=2),
        covariates | {RATINGS: ratings @ [1, -1]},
        writers=[tuple(pair) for pair in writers.tolist()],
    )
    truth = {"odds": odds.tolist(), "error": error.tolist(), "probabilities": defects.confidence > 0}
    return Drawn(judged, {**numbers, **truth, "wins": wins.tolist()})


def likert(values: FloatArray) -> FloatArray:
    """Round and clip to the scale of 1 to 5."""
    return np.clip(np.round(values), 1, 5)
