"""Tables of the methods, with the published figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.likelihood_bias.table import markdown
from benchmarks.zepo.methods import OBJECTIVES, CriterionResult, Outcome
from benchmarks.zepo.published import DEBIASED, JUDGES, PROMPTS, ROWS, SPEARMAN
from benchmarks.zepo.published import OBJECTIVES as PUBLISHED_OBJECTIVES
from evalbias.evaluation.words import count, mark
from evalbias.measures import quadratic_fit, spearman
from evalbias.optimizers.zepo import CurvePoint


def report(dataset: str, results: Mapping[str, CriterionResult], settings: str) -> str:
    """Return the report of one data set as Markdown; results are by criterion."""
    first = next(iter(results.values()))
    searched, ranked = first.documents
    used = f"{searched} documents with {first.pairs} ordered pairs for the search, {ranked} others for the ranking."
    parts = [f"### {dataset}", f"{settings} {used}", agreement_table(dataset, results)]
    if dataset == "newsroom":
        rows = ", ".join(f"{name} {value}" for name, value in ROWS.items())
        parts.append(f"Published, {JUDGES[1]}, average: {rows}.")
    parts += [cost_table(results), search_table(results), objective_table(results)]
    return "\n\n".join(parts)


def agreement_table(dataset: str, results: Mapping[str, CriterionResult]) -> str:
    """Return Spearman with people: one row per method, one column per criterion; the published figures are last."""
    names = list(next(iter(results.values())).outcomes)
    body = []
    for name in names:
        outcomes = [result.outcomes[name] for result in results.values()]
        values = [o.spearman for o in outcomes]
        defined = [v for v in values if not math.isnan(v)]
        average = _number(float(np.mean(defined))) if defined else "undefined"
        missing = f" (of {len(defined)})" if defined and len(defined) < len(values) else ""
        body.append([name, *(_outcome(o) for o in outcomes), average + missing])
    published = SPEARMAN.get(dataset, {})
    for index, judge in enumerate(JUDGES):
        if published:
            cells = [published[c][index] if c in published else "-" for c in results]
            body.append([f"published: {judge}, pairwise -> ZEPO", *cells, "-"])
    note = (
        "Mean Spearman over documents; in brackets the win rate of the first position, for judges that compare. "
        "\\* p < .05, † p < .06 against pairwise + PairS (paired permutation test over documents)."
    )
    return f"{markdown(['method', *results, 'average'], body)}\n\n{note}"


def _outcome(outcome: Outcome) -> str:
    sign = mark(outcome.p_value) if outcome.p_value is not None else ""
    rate = f" ({outcome.decision_rate:.2f})" if outcome.decision_rate is not None else ""
    undefined = f", {count(outcome.undefined, 'document')} undefined" if outcome.undefined else ""
    return f"{_number(outcome.spearman)}{sign}{rate}{undefined}"


def cost_table(results: Mapping[str, CriterionResult]) -> str:
    """Return the mean cost of each search, with that of the published code."""
    body = []
    for name in next(iter(results.values())).costs:
        costs = [result.costs[name] for result in results.values()]
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
    headings = ["search, mean over criteria", "judgments", "relative to published code", "tokens processed", "seconds"]
    return markdown(headings, body)


def search_table(results: Mapping[str, CriterionResult]) -> str:
    """Return the first and last fairness of each search, and whether racing finds the same wording."""
    body = []
    for name, result in results.items():
        whole, part = (r.tried[r.best] for r in (result.search, result.racing))
        saved = 1 - result.racing.judgments / result.search.judgments
        same = "the same" if whole.instruction == part.instruction else f"another ({_signed(part.objective)})"
        body.append(
            [
                name,
                f"{_signed(result.search.tried[0].objective)} -> {_signed(whole.objective)}",
                f"{same}, {saved:.0%} fewer judgments",
                str(len(result.search.rejected)),
                whole.instruction.replace("|", "\\|"),
            ]
        )
    return markdown(["criterion", "fairness", "winner with racing", "wordings rejected", "instruction"], body)


def objective_table(results: Mapping[str, CriterionResult]) -> str:
    """Return each objective's correlation with agreement over the wordings, and the quadratic fit of the curve."""
    body = []
    for objective in OBJECTIVES:
        cells = []
        for result in results.values():
            values = [p.objectives[objective.name] for p in result.points]
            cells.append(_number(spearman(values, [p.agreement for p in result.points]).value))
        body.append([objective.name, *cells, PUBLISHED_OBJECTIVES.get(objective.name, "-")])
    for suffix, curves, published in (
        ("", [result.points for result in results.values()], ("-", "near quadratic, .5")),
        (" after permutation", [result.debiased for result in results.values()], (DEBIASED, "near quadratic, .5")),
    ):
        body.append([f"decision rates, agreement{suffix}", *map(_ranges, curves), published[0]])
        body.append([f"quadratic fit{suffix}: R², peak", *map(_fit, curves), published[1]])
    return markdown(["objective against agreement, Spearman over wordings", *results, "published"], body)


def _ranges(curve: Sequence[CurvePoint]) -> str:
    """Return the ranges of the wordings' decision rates and of their agreement."""
    columns = [p.decision_rate for p in curve], [p.agreement for p in curve]
    defined = [[v for v in column if not math.isnan(v)] for column in columns]
    return ", ".join(f"{min(c):.2f} to {max(c):.2f}" if c else "undefined" for c in defined)


def _fit(curve: Sequence[CurvePoint]) -> str:
    fit = quadratic_fit([p.decision_rate for p in curve], [p.agreement for p in curve])
    return f"{_number(fit.r_squared)}, {_number(fit.top)}"


def _number(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.2f}"


def _signed(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:+.2f}"
