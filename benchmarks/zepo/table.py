"""The methods as tables, with the published figures beside."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from benchmarks.likelihood_bias.table import markdown
from benchmarks.zepo.methods import OBJECTIVES, Found, Outcome
from benchmarks.zepo.published import JUDGES, PROMPTS, ROWS, SPEARMAN
from benchmarks.zepo.published import OBJECTIVES as PUBLISHED_OBJECTIVES
from evalbias.evaluation.formatting import mark
from evalbias.measures import quadratic_fit, spearman


def report(dataset: str, found: Mapping[str, Found], told: str) -> str:
    """One data set as Markdown."""
    parts = [f"### {dataset}", told, agreement_table(dataset, found)]
    if dataset == "newsroom":
        rows = ", ".join(f"{name} {value}" for name, value in ROWS.items())
        parts.append(f"Published, {JUDGES[1]}, average: {rows}.")
    parts += [cost_table(found), search_table(found), objective_table(found)]
    return "\n\n".join(parts)


def agreement_table(dataset: str, found: Mapping[str, Found]) -> str:
    """Spearman with people: a row a method, a column a criterion; the published search below."""
    names = list(next(iter(found.values())).outcomes)
    body = []
    for name in names:
        outcomes = [f.outcomes[name] for f in found.values()]
        values = [o.spearman for o in outcomes]
        known = [v for v in values if not math.isnan(v)]
        average = _number(float(np.mean(known))) if known else "undefined"
        missing = f" (of {len(known)})" if known and len(known) < len(values) else ""
        body.append([name, *(_outcome(o) for o in outcomes), average + missing])
    published = SPEARMAN.get(dataset, {})
    for index, judge in enumerate(JUDGES):
        if published:
            cells = [published[c][index] if c in published else "-" for c in found]
            body.append([f"published: {judge}, pairwise -> ZEPO", *cells, "-"])
    note = (
        "Mean Spearman by document; in brackets how often the first position wins, where the judge compares; \\* p < "
        ".05, † p < .06 against pairwise + PairS (paired permutation test over documents)."
    )
    return f"{markdown(['method', *found, 'average'], body)}\n\n{note}"


def _outcome(outcome: Outcome) -> str:
    sign = mark(outcome.p_value) if outcome.p_value is not None else ""
    rate = f" ({outcome.decision_rate:.2f})" if outcome.decision_rate is not None else ""
    undefined = f", {outcome.undefined} documents undefined" if outcome.undefined else ""
    return f"{_number(outcome.spearman)}{sign}{rate}{undefined}"


def cost_table(found: Mapping[str, Found]) -> str:
    """What the searches took, beside the published code."""
    body = []
    for name in next(iter(found.values())).costs:
        costs = [f.costs[name] for f in found.values()]
        judgments = float(np.mean([c.judgments for c in costs]))
        tokens = float(np.mean([c.tokens for c in costs]))
        seconds = float(np.mean([c.seconds for c in costs]))
        body.append(
            [
                name,
                f"{judgments:.0f}",
                f"{judgments / PROMPTS:.2f}",
                f"{tokens:.3g}" if tokens else "-",
                f"{seconds:.0f}",
            ]
        )
    body.append([f"published code, SummEval: {PROMPTS} prompts", str(PROMPTS), "1.00", "-", "-"])
    headings = ["search, mean over the criteria", "judgments", "share of the published", "tokens run", "seconds"]
    return markdown(headings, body)


def search_table(found: Mapping[str, Found]) -> str:
    """Where the search began and ended, and whether halving ends there too."""
    body = []
    for name, f in found.items():
        whole, part = (r.tried[r.best] for r in (f.search, f.halving))
        saved = 1 - f.halving.judgments / f.search.judgments
        same = "the same" if whole.instruction == part.instruction else f"another ({_signed(part.objective)})"
        body.append(
            [
                name,
                f"{_signed(f.search.tried[0].objective)} -> {_signed(whole.objective)}",
                f"{same}, {saved:.0%} fewer judgments",
                str(len(f.search.rejected)),
                whole.instruction.replace("|", "\\|"),
            ]
        )
    return markdown(["criterion", "fairness", "winner under halving", "wordings rejected", "instruction"], body)


def objective_table(found: Mapping[str, Found]) -> str:
    """Correlation of each objective with agreement over the wordings tried, and the parabola of the decision rate."""
    body = []
    for objective in OBJECTIVES:
        cells = []
        for f in found.values():
            told = spearman([p.objectives[objective.name] for p in f.points], [p.agreement for p in f.points])
            cells.append(_number(told.value))
        body.append([objective.name, *cells, PUBLISHED_OBJECTIVES.get(objective.name, "-")])
    fits = [quadratic_fit([p.decision_rate for p in f.points], [p.agreement for p in f.points]) for f in found.values()]
    body.append(
        ["parabola: R², top", *(f"{_number(f.r_squared)}, {_number(f.top)}" for f in fits), "near quadratic, .5"]
    )
    return markdown(["objective against agreement, Spearman over wordings", *found, "published"], body)


def _number(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.2f}"


def _signed(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:+.2f}"
