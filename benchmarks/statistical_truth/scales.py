"""An unbiased judge beside fixed panels whose raters move different numbers of points for one of quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.likelihood_bias.table import markdown
from evalbias.measures import likelihood_effect
from evalbias.measures.arrays import FloatArray

PANELS = ((1.0, 1.0, 1.0), (0.7, 1.0, 1.3), (0.5, 1.0, 1.5), (1.0, 1.0), (0.8, 1.2), (0.6, 1.4))


def drawn(rng: np.random.Generator, scales: Sequence[float], n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return LS (n,), which is correlated .6 with quality, scores (n,), .9 with it alone, and ratings (n, r)."""
    quality, other, own = rng.normal(size=(3, n))
    ratings = quality[:, None] * np.asarray(scales) + 0.7 * rng.normal(size=(n, len(scales)))
    return 0.6 * quality + 0.8 * other, 0.9 * quality + np.sqrt(0.19) * own, ratings


def check_scales(n: int, *, sets: int, seed: int) -> list[dict[str, Any]]:
    """Return how often the judge is called biased with n items, by panel."""
    rows = []
    for scales in PANELS:
        effects = [likelihood_effect(*drawn(np.random.default_rng([seed, i]), scales, n)) for i in range(sets)]
        values, p_values = np.array([(one.effect, one.p_value) for one in effects]).T
        rows.append(
            {
                "scales": list(scales),
                "n": n,
                "sets": sets,
                "mean": float(np.nanmean(values)),
                "found": float((p_values <= 0.05).mean()),
                "undefined": int(np.isnan(p_values).sum()),
            }
        )
    return rows


def scales_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown table; shares that miss their goal are bold."""
    head = ["points for one of quality", "n", "sets", "mean effect", "undefined", "p <= .05"]
    body = []
    for row in sorted(rows, key=lambda r: (-len(r["scales"]), PANELS.index(tuple(r["scales"])), r["n"])):
        share = f"{100 * row['found']:.1f} %"
        undefined = f"{100 * row['undefined'] / row['sets']:.1f} %"
        body.append(
            [
                ", ".join(f"{scale:g}" for scale in row["scales"]),
                str(row["n"]),
                str(row["sets"]),
                f"{row['mean']:+.3f}",
                undefined,
                share if row["found"] <= 0.06 else f"**{share}**",
            ]
        )
    text = (
        "The judge has no effect, scores the quality nearly without error, and LS is correlated .6 with quality, which "
        "is where the scales matter most. Goal: p <= .05 in at most 6 %. The scales of two raters cannot be told apart."
    )
    return f"{text}\n\n{markdown(head, body)}"
