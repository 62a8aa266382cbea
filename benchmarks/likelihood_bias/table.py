"""Tables of a finished run in the form of Table 1, with the published figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.likelihood_bias.published import JUDGES, TABLE
from evalbias.evaluation.words import mark
from evalbias.measures.agreement import rank_rows
from evalbias.programs.criterion import INTRINSIC
from evalbias.values import number as read_number

CASES = 5
"""Number of items that the report lists for each criterion."""


@dataclass(frozen=True)
class Finished:
    """Run folder of ``evalbias compile likelihood``.

    Attributes:
        dataset: Name of the data set.
        settings: Content of run.json.
        result: Content of result.json.
    """

    dataset: str
    settings: dict[str, Any]
    result: dict[str, Any]

    @classmethod
    def read(cls, dataset: str, folder: Path) -> Finished:
        """Read a run folder."""
        settings, result = (json.loads((folder / f).read_text(encoding="utf-8")) for f in ("run.json", "result.json"))
        return cls(dataset, settings, result)


@dataclass(frozen=True)
class Case:
    """An item whose score changed much.

    Attributes:
        id: Identifier of the item.
        likelihood_rank: Rank of its LS among the test items, from 0 (least likely) to 1.
        human: Human score, as rated.
        before: Score_m under the random demonstrations.
        after: Score_m under the chosen demonstrations.
    """

    id: str
    likelihood_rank: float
    human: float
    before: float
    after: float


def number(value: float | None) -> str:
    """Format as the paper does, without a leading zero; None is undefined."""
    return "undefined" if value is None else f"{value:.2f}".replace("0.", ".", 1)


def rows(run: Finished) -> list[list[str]]:
    """Return one row per criterion: our figures, then those of the published judges."""
    body = []
    for name, comparison in run.result["likelihood"].items():
        known = TABLE.get(run.dataset, {}).get(name)
        published = [f"{p.bias} / {p.performance}" for p in known] if known else ["-"] * len(JUDGES)
        changes = [comparison["changes"][estimate] for estimate in ("bias_score", "performance")]
        cells = [_change(change) for change in changes]
        p_values = " / ".join(_p_text(_p_value(change)) for change in changes)
        body.append([name, *cells, p_values, str(changes[0]["after"]["n"]), *published])
    return body


def _change(change: Mapping[str, Any]) -> str:
    before, after = (number(change[side]["value"]) for side in ("before", "after"))
    return f"{before} -> {after}{mark(_p_value(change))}"


def _p_value(change: Mapping[str, Any]) -> float:
    return read_number(change["itemwise_test"]["p_value"])  # the test behind the published stars


def _p_text(p_value: float) -> str:
    return "<.0001" if p_value < 1e-4 else f"{p_value:.4f}"


def intrinsic(run: Finished) -> list[list[str]]:
    """Return the mean BiasScore of the criteria that the output alone decides, and of the others."""
    body = []
    for heading, in_group in (("intrinsic", True), ("not intrinsic", False)):
        changes = {
            name: comparison["changes"]["bias_score"]
            for name, comparison in run.result["likelihood"].items()
            if name != "total" and (name in INTRINSIC) == in_group
        }
        if changes:
            before, after = (_mean([c[side]["value"] for c in changes.values()]) for side in ("before", "after"))
            body.append([heading, ", ".join(changes), before, after])
    return body


def _mean(values: Sequence[float | None]) -> str:
    """Average the defined values; undefined ones are counted."""
    defined = [v for v in values if v is not None]
    missing = f" ({len(values) - len(defined)} undefined)" if len(defined) < len(values) else ""
    return number(float(np.mean(defined)) if defined else float("nan")) + missing


def cases(run: Finished, criterion: str, count: int = CASES) -> list[Case]:
    """Return the items whose score changed most, the largest change first; undefined scores are left out."""
    report = run.result["reports"][criterion]
    before, after = report["before"], report["after"]
    likelihoods, first, second, human = (
        np.array(values, dtype=np.float64)  # null becomes NaN
        for values in (
            before["covariates"]["likelihoods"],
            before["answers"],
            after["answers"],
            before["covariates"]["human_scores"],
        )
    )
    moved = np.abs(second - first)
    ranks = (rank_rows(likelihoods[None])[0] - 1) / (len(likelihoods) - 1)
    order = [i for i in np.argsort(-moved, kind="stable") if np.isfinite(moved[i])][:count]
    return [Case(before["ids"][i], float(ranks[i]), float(human[i]), float(first[i]), float(second[i])) for i in order]


def markdown(headings: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def demonstration_words(run: Finished, criterion: str) -> str:
    """Return the mean words of the chosen demonstrations, and of all items; the total has no demonstrations."""
    report = run.result["reports"].get(criterion)
    if report is None:
        return "-"
    return f"{np.mean(report['demonstration_words']):.0f} ({report['mean_words']:.0f})"


def side_by_side(runs: Mapping[str, Finished]) -> list[list[str]]:
    """Return the rows of every criterion, one a reduction of LS, with the lengths of the demonstrations."""
    rows_by_run = [
        [[row[0], reduction, *row[1:5], demonstration_words(run, row[0]), *row[5:]] for row in rows(run)]
        for reduction, run in runs.items()
    ]
    return [row for group in zip(*rows_by_run, strict=True) for row in group]


def report(runs: Mapping[str, Finished]) -> str:
    """Return the report of a data set as Markdown; it names items by their ids and never quotes them.

    Args:
        runs: Reduction of token log-probabilities to LS -> run with it. The items listed are those of the first.
    """
    run = next(iter(runs.values()))
    s = run.settings
    lm, likelihood_lm = s["lm"], s["likelihood_lm"]
    judge = ", ".join(f"{k} {v}" for k, v in lm.items())
    other = "its own" if likelihood_lm == lm else likelihood_lm["model"]
    parts = [
        f"### {run.dataset}",
        f"Judge: {judge}; likelihood: {other}, {' and '.join(runs)} over tokens (the paper writes the sum; its "
        f"published tables come from code that takes the mean); scores in RS normalized by {s['normalization']}; "
        f"k = {s['k']}; seed {s['seed']}; {s['train']['items']} candidate demonstrations, {s['test']['items']} test "
        f"items; R = {s['resamples']}; data hash {s['data_sha256'][:12]}.",
        markdown(
            [
                "criterion",
                "LS",
                "BiasScore, before -> after",
                "performance",
                "p-values, bias / performance",
                "n",
                "words of the demonstrations (of all items)",
                *(f"published: {name}, bias / performance" for name in JUDGES),
            ],
            side_by_side(runs),
        ),
        "\\* p < .05, † p < .06 (two-sided paired permutation test). Mean BiasScore by kind of criterion:",
        markdown(
            ["kind", "LS", "criteria", "before", "after"],
            [[row[0], reduction, *row[1:]] for reduction, one in runs.items() for row in intrinsic(one)],
        ),
        f"Items whose score changed most with {next(iter(runs))} (LS rank: from 0, the least likely, to 1):",
    ]
    body = [
        [c, x.id, f"{x.likelihood_rank:.2f}", f"{x.human:.1f}", f"{x.before:.2f}", f"{x.after:.2f}"]
        for c in run.result["reports"]
        for x in cases(run, c)
    ]
    parts.append(markdown(["criterion", "item", "LS rank", "human", "before", "after"], body))
    return "\n\n".join(parts)
