"""The table of goals beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.likelihood_bias.table import markdown
from benchmarks.statistical_truth.checks import Check
from benchmarks.statistical_truth.drift import drift_table
from benchmarks.statistical_truth.effect import effect_table
from benchmarks.statistical_truth.power import power_table
from benchmarks.statistical_truth.scales import scales_table

REJECTED, COVERED = (0.04, 0.06), (0.93, 0.97)
"""Goals: shares between which tests at 5 % reject, and 95 % intervals cover."""
NOTES = """\
Ratings and scores are tied Likert scores. Two judges are drawn alike, so the paired test should reject in 5 % (goal 4
to 6 %), and 95 % intervals should cover in 93 to 97 %. **Bold** figures miss their goal by more than two standard
errors of the simulation; those with ? miss it by less. "item-wise" swaps items whatever documents they share; all other
columns swap and resample documents. "percentile" is the plain bootstrap, "ours" the interval that `measure` reports,
and "difference" that of two equal judges. BiasScore changes with n, so its truth is its own mean over the data sets.
Item-wise tests, percentile intervals and differences are checked on the second number of data sets; an empty cell was
not measured. 399 resamples an interval, 99 swaps a test.

In a paired test a tie counts half (mid-p). Where ties counted in full, position consistency of the fair judges was
rejected in 1.6 % (n = 30), 3.5 % (120) and 3.7 % (30 documents of 4). No test of few decisions reaches 5 %: two judges
that are consistent in 95 % of 30 pairs differ in three of them, and no three pairs are significant.

The second judge of "second lenient" has the same answers in the upper half of the scale. Where two judges swap scores
instead of z-scores, such judges are found different in 0 to 3 %.

Equal fairness has two causes, equal rates or rates on opposite sides of the prior at the same distance. Near a fair
judge both hold nearly, and a test that is right under each of them rejects in about 0.5 %. Whether two judges favor
the first position alike is tested by its rate ("first rate"), which keeps its level and finds more. Two judges that
favor the first position equally have an interval of the difference in fairness that covers 0 in 93.9 and 94.8 % (with
ties) of 1,200 data sets of 30 items, with which these two cells were rechecked; below stand the first 400.
"""


def report(
    checks: Sequence[Check],
    effects: Sequence[Mapping[str, Any]],
    scales: Sequence[Mapping[str, Any]],
    power: Sequence[Mapping[str, Any]],
    moved: Sequence[Mapping[str, Any]],
) -> str:
    """Return the section for RESULTS.md."""
    columns = [
        ("test rejects", "rejected", REJECTED, "sets"),
        ("item-wise", "itemwise", REJECTED, "part"),
        ("percentile covers", "percentile", COVERED, "part"),
        ("ours covers", "covered", COVERED, "sets"),
        ("difference covers", "difference", COVERED, "part"),
    ]
    head = ["world", "statistic", "n", "documents", "sets", "truth", "mean", *(name for name, *_ in columns)]
    body = []
    for c in checks:
        cells = [_cell(getattr(c, field), goal, getattr(c, size)) for _, field, goal, size in columns]
        documents = "own" if c.outputs == 1 else f"{c.n // c.outputs} of {c.outputs}"
        figures = [f"{c.truth:.3f}", f"{c.mean:.3f}"]
        body.append([c.world, c.statistic, str(c.n), documents, f"{c.sets} / {c.part}", *figures, *cells])
    parts = [
        "## Statistical truth: tests and intervals on simulated judges",
        NOTES,
        markdown(head, body),
    ]
    if effects:
        parts += ["### Likelihood effect", effect_table(effects)]
    if scales:
        parts += ["### Raters who use the scale differently", scales_table(scales)]
    if moved:
        parts += ["### BiasScore by the number of items", drift_table(moved)]
    if power:
        parts += ["### Power of the paired tests", power_table(power)]
    return "\n\n".join(parts)


def _cell(share: float, goal: tuple[float, float], sets: int) -> str:
    if math.isnan(share):
        return ""
    text = f"{100 * share:.1f} %"
    low, high = goal
    if low <= share <= high:
        return text
    target = (low + high) / 2
    error = math.sqrt(target * (1 - target) / sets)
    return f"**{text}**" if share < low - 2 * error or share > high + 2 * error else f"{text} ?"
