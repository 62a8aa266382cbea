"""How often the paired test finds that two different judges differ, by statistic and number of items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.likelihood_bias.table import markdown
from benchmarks.statistical_truth.checks import shares_found
from benchmarks.statistical_truth.worlds import Draw, comparing, consistent, ranking, scoring, self_scoring

SETS = 1000
SCORING, COMPARING, SELF = ("BiasScore", "BiasScore (z)"), ("fairness", "first rate"), ("Bias", "Dskew")
PAIRS: Sequence[tuple[str, Draw, tuple[str, ...]]] = [
    *((f"likelihood effect {e:.1f} and 0", scoring(e, 0.0), SCORING) for e in (0.1, 0.2, 0.3)),
    *((f"pull of the first position {p} sd and 0", comparing(p, 0.0), COMPARING) for p in (0.25, 0.5)),
    *(
        (f"consistent in 90 % and in {100 * s:.0f} %", consistent(0.9, s), ("position consistency",))
        for s in (0.8, 0.7)
    ),
    *((f"own scores {s:.1f} points too high and 0", self_scoring(s, 0.0), SELF) for s in (0.5, 1.0)),
    *((f"ranking errors of 1 sd and {e} sd", ranking(1.0, e), ("ranking agreement",)) for e in (1.25, 1.5)),
]
"""Difference between two judges, their world, and the statistics that should show it."""


def power(n: int, *, sets: int, seed: int) -> list[dict[str, Any]]:
    """Return the share of data sets of n items in which each difference is found; one record a statistic."""
    sets = min(sets, SETS)
    return [
        {"statistic": name, "judges": judges, "n": n, "sets": sets, "found": found}
        for judges, draw, statistics in PAIRS
        for name, found in shares_found(draw, statistics, n=n, sets=sets, seed=seed).items()
    ]


def power_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown table of the records of all sizes."""
    sizes = sorted({row["n"] for row in rows})
    found = {(row["statistic"], row["judges"], row["n"]): row["found"] for row in rows}
    kinds = sorted(dict.fromkeys((row["statistic"], row["judges"]) for row in rows), key=lambda kind: kind[0])
    body = [[*kind, *(_share(found.get((*kind, n))) for n in sizes)] for kind in kinds]
    sets = {row["n"]: row["sets"] for row in rows}
    text = "Share of the data sets in which the paired test of two judges rejects at 5 %; no items share a document."
    return f"{text}\n\n{markdown(['statistic', 'judges', *(f'n = {n} ({sets[n]} sets)' for n in sizes)], body)}"


def _share(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"
