"""Evaluate the embedded judge as a pairwise judge, by wording and after searches by ZEPO, on held-out seeds."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from benchmarks.embedded_judge.tokenizer import comparison_wordings
from evalbias.data import pairs, world
from evalbias.data import world as wordings
from evalbias.evaluation import Row, compare_with_baselines
from evalbias.measures import quadratic_fit
from evalbias.optimizers import ZEPO, GrammarParaphraser
from evalbias.optimizers.zepo import CurvePoint, sensitivity_curve
from evalbias.programs import SYNTHETIC, PairwiseJudge
from evalbias.report.plots import curve_plot

SEARCHED, TESTED = 2_000_003, 2_100_003
"""First seeds of the documents; training uses none of them."""

WORDINGS = 60
DOCUMENTS, OUTPUTS, PAIRS = 40, 6, 200


def documents(seed: int) -> list[dspy.Example]:
    """Return held-out documents whose score is the true quality."""
    examples = world.documents(DOCUMENTS, OUTPUTS, seed=seed)
    return [e.copy(scores={world.NAME: e.quality}) for e in examples]


def run(lm: Any, *, draws: int) -> dict[str, Any]:
    """Measure the curve over many wordings, and the four judges of each search."""
    judge = PairwiseJudge(SYNTHETIC)
    pushes = comparison_wordings()
    chosen = random.Random(0).sample(sorted(pushes), WORDINGS)
    points = sensitivity_curve(judge, chosen, documents(TESTED - 1), lm=lm, limit=PAIRS)
    searches = []
    for draw in range(draws):
        zepo = ZEPO(GrammarParaphraser(wordings.PARTS), seed=draw, select=False)
        searched = pairs(documents(SEARCHED + draw), limit=PAIRS, seed=draw)
        compiled = zepo.compile(judge, trainset=searched, lm=lm)
        rows = compare_with_baselines(judge, compiled, documents(TESTED + draw), lm=lm, limit=PAIRS, seed=draw)
        searches.append({"history": compiled.report.history, "rows": {k: _row(row) for k, row in rows.items()}})
        print(json.dumps(searches[-1]), flush=True)
    return {
        "curve": [{**asdict(p), "push": pushes[p.instruction]} for p in points],
        "fit": asdict(quadratic_fit([p.decision_rate for p in points], [p.agreement for p in points])),
        "searches": searches,
    }


def _row(row: Row) -> dict[str, float | None]:
    position = row.measurements["position"]
    return {
        "decision_rate": position["first_rate"].value,
        "position_consistency": position["position_consistency"].value,
        "spearman": row.measurements["agreement"]["spearman"].value,
        "p_value": row.comparisons["agreement"]["spearman"].p_value if row.comparisons else None,
    }


def plot(figures: dict[str, Any], path: Path) -> None:
    """Write a PNG of the curve and its fit."""
    points = [CurvePoint(p["instruction"], p["decision_rate"], p["agreement"]) for p in figures["curve"]]
    curve_plot({"embedded judge": points}, path)


def claims(figures: dict[str, Any]) -> dict[str, str]:
    """Return the claims about the pairwise judge, each with the number of searches in which it holds."""
    searches = [search["rows"] for search in figures["searches"]]
    held = {
        "the decision rate on held-out documents moves closer to .5": [
            abs(r["searched"]["decision_rate"] - 0.5) < abs(r["initial"]["decision_rate"] - 0.5) for r in searches
        ],
        "Spearman with the true order rises": [r["searched"]["spearman"] > r["initial"]["spearman"] for r in searches],
        "this rise is significant (p < .05 over documents)": [
            r["searched"]["spearman"] > r["initial"]["spearman"] and r["searched"]["p_value"] < 0.05 for r in searches
        ],
    }
    return {claim: f"{sum(values)} of {len(values)}" for claim, values in held.items()}


def record(figures: dict[str, Any]) -> list[str]:
    """Return the lines of the training record about comparisons."""
    fit = figures["fit"]
    lines = [
        f"## Comparisons: {WORDINGS} wordings, and {len(figures['searches'])} searches",
        "",
        "`curve.png` shows the agreement with the true order against the decision rate of each wording, on "
        f"{DOCUMENTS} held-out documents of {OUTPUTS} outputs. Wordings with the same decisions share a point. A "
        f"parabola explains {fit['r_squared']:.2f} of the variance, a straight line {fit['linear_r_squared']:.2f}; the "
        f"parabola peaks at {fit['top']:.2f}.",
        "",
        f"ZEPO with 5 epochs of 5 wordings on {PAIRS} pairs, measured on other documents. Mean (standard deviation):",
        "",
        "| judge | decision rate of the first position | position consistency | Spearman with the true order |",
        "|---|---|---|---|",
    ]
    for title in figures["searches"][0]["rows"]:
        cells = (
            _mean([search["rows"][title][name] for search in figures["searches"]])
            for name in ("decision_rate", "position_consistency", "spearman")
        )
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return [*lines, "", "| claim | searches |", "|---|---|", *(f"| {c} | {n} |" for c, n in claims(figures).items())]


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.2f} ({np.std(values):.2f})"
