"""How BiasScore of one judge changes with the number of items, under both normalizations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.likelihood_bias.table import markdown
from benchmarks.statistical_truth.worlds import likert
from evalbias.measures import likelihood_bias

SIZES = {30: 1500, 120: 500, 568: 150, 3000: 60}
"""Items -> data sets."""
NORMALIZATIONS = ("mean-range", "z-score")


def drift(effects: Sequence[float], *, seed: int) -> list[dict[str, Any]]:
    """Return the mean BiasScores of judges whose expected scores are continuous, by effect and number of items.

    Quality, LS and judge are normal, LS is correlated .5 with quality, and people are the mean of three Likert ratings.
    """
    rng, rows = np.random.default_rng(seed), []
    for effect in effects:
        noise = np.sqrt(1 - 0.36 - effect**2 - 0.6 * effect)
        for n, sets in SIZES.items():
            drawn_scores = []
            for _ in range(sets):
                quality, other, own = rng.normal(size=(3, n))
                ls = 0.5 * quality + np.sqrt(0.75) * other
                human = likert(3 + quality + 0.7 * rng.normal(size=(3, n))).mean(axis=0)
                model = 0.6 * quality + effect * ls + noise * own
                drawn_scores.append(
                    [likelihood_bias(ls, model, human, normalization=name).bias_score for name in NORMALIZATIONS]
                )
            rows.append(
                {"effect": effect, "n": n, **dict(zip(NORMALIZATIONS, np.mean(drawn_scores, axis=0), strict=True))}
            )
    return rows


def drift_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown table."""
    sizes = sorted({row["n"] for row in rows})
    head = ["judge", "BiasScore", *(f"n = {n}" for n in sizes)]
    body = []
    for effect in sorted({row["effect"] for row in rows}):
        for name in NORMALIZATIONS:
            means = {row["n"]: row[name] for row in rows if row["effect"] == effect}
            body.append([f"effect {effect}", name, *(f"{means[n]:+.2f}" for n in sizes)])
    text = (
        "Means over data sets of one judge with continuous scores. The range of a sample grows with n, and with it the "
        "published BiasScore moves; that of z-scores does not. Neither is 0 for the judge without an effect, because "
        "the ratings that stand for quality are noisy."
    )
    return f"{text}\n\n{markdown(head, body)}"
