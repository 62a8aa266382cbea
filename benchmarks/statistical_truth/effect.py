"""The likelihood effect of simulated judges: is it recovered, does its interval cover, how often is it found?"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.likelihood_bias.table import markdown
from benchmarks.statistical_truth.worlds import likert, normal
from evalbias.measures import likelihood_effect, likelihood_effect_change
from evalbias.measures.arrays import FloatArray

EFFECTS = (-0.3, -0.1, 0.0, 0.1, 0.2, 0.3)
LARGE, CLOSE = 3000, 0.02
"""Items with which a planted effect should be recovered this closely."""


def drawn(
    rng: np.random.Generator, effect: float, n: int, outputs: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return quality (n,), LS (n,), tied scores of two equal judges (2, n) and tied ratings (n, 3)."""
    quality = normal(rng, n, outputs)
    ls = 0.5 * quality + np.sqrt(0.75) * normal(rng, n, outputs)
    noise = np.sqrt(1 - 0.36 - effect**2 - 0.6 * effect) * normal(rng, n, outputs, 2)
    scores = likert(3 + 1.1 * (0.6 * quality + effect * ls + noise))
    return quality, ls, scores, likert(3 + quality + 0.7 * rng.normal(size=(3, n))).T


@functools.cache
def truth(effect: float, *, seed: int, n: int = 400_000) -> float:
    """Return the effect after rounding to the scale, by least squares on the quality itself."""
    quality, ls, scores, _ = drawn(np.random.default_rng(seed), effect, n, 1)
    columns = np.column_stack([np.ones(n), quality, (ls - ls.mean()) / ls.std()])
    return float(np.linalg.lstsq(columns, (scores[0] - scores[0].mean()) / scores[0].std(), rcond=None)[0][2])


def check_effect(effect: float, *, n: int, outputs: int, sets: int, seed: int) -> dict[str, Any]:
    """Return what becomes of one planted effect over many data sets of n items."""
    clusters = None if outputs == 1 else (np.arange(n) // outputs).tolist()
    planted, values, covered, found, changed, undefined = truth(effect, seed=seed), [], 0, 0, 0, 0
    for index in range(sets):
        _, ls, scores, ratings = drawn(np.random.default_rng([seed, index]), effect, n, outputs)
        one = likelihood_effect(ls, scores[0], ratings, clusters=clusters)
        change = likelihood_effect_change(ls, *scores, ratings, clusters=clusters)
        values.append(one.effect)
        covered += one.low <= planted <= one.high
        found += one.p_value <= 0.05
        changed += change.p_value <= 0.05
        undefined += bool(np.isnan(one.low))
    shares = {
        "covered": covered / max(sets - undefined, 1),
        "found": found / sets,
        "changed": changed / sets,
        "undefined": undefined,
    }
    return {"effect": effect, "n": n, "outputs": outputs, "sets": sets, "truth": planted,
            "mean": float(np.nanmean(values)), **shares}  # fmt: skip


def effect_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown table; figures that miss their goal are bold."""
    head = [
        "planted",
        "truth",
        "n",
        "documents",
        "sets",
        "mean",
        "undefined",
        "interval covers",
        "p <= .05",
        "two equal judges differ",
    ]
    body = []
    for row in sorted(rows, key=lambda r: (r["effect"], r["outputs"], r["n"])):
        documents = "own" if row["outputs"] == 1 else f"{row['n'] // row['outputs']} of {row['outputs']}"
        mean = f"{row['mean']:+.3f}"
        if row["n"] == LARGE and abs(row["mean"] - row["truth"]) > CLOSE:
            mean = f"**{mean}**"
        level = row["effect"] == 0
        cells = [_share(row["covered"], 0.93, 0.97), _share(row["found"], *((0.04, 0.06) if level else (0.0, 1.0)))]
        figures = [f"{row['effect']:+.1f}", f"{row['truth']:+.3f}", str(row["n"]), documents, str(row["sets"])]
        body.append(
            [
                *figures,
                mean,
                f"{100 * row['undefined'] / row['sets']:.1f} %",
                *cells,
                _share(row["changed"], 0.04, 0.06),
            ]
        )
    power = {row["effect"]: row["found"] for row in rows if (row["n"], row["outputs"]) == (120, 1)}
    said = ", ".join(f"of {effect:+.1f} in {100 * power[effect]:.0f} %" for effect in sorted(power) if effect)
    text = (
        "Scores and three ratings an item are tied; the truth is the slope with the quality itself held fixed. Goals: "
        "the interval covers in 93 to 97 % where it is defined; without an effect, and between equal judges, p <= .05 "
        "in 4 to 6 %; at "
        f"n = {LARGE} the mean lies within {CLOSE} of the truth. With 120 items, an effect is found: {said}."
    )
    return f"{text}\n\n{markdown(head, body)}"


def _share(share: float, low: float, high: float) -> str:
    text = f"{100 * share:.1f} %"
    return text if low <= share <= high else f"**{text}**"
