"""The pairwise judge that a command means, and what it ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import typer

from evalbias.commands.run import Run
from evalbias.commands.task import named_criterion
from evalbias.data import by_input
from evalbias.evaluation.position import agreement_of
from evalbias.programs import PairwiseJudge, PairwiseRanker, load_pairwise_judge
from evalbias.programs.ranking import most_comparisons


def open_pairwise(
    judge: Path | None,
    criterion: str | None,
    data: str,
    *,
    labels: tuple[str | None, str | None],
    ties: bool,
    debias: str | None,
    calibration: str | None,
) -> tuple[PairwiseJudge, dict[str, Any]]:
    """A saved judge, or a new one for a criterion; and what decides its numbers, for run.json.

    Options given beside a saved judge replace its own; None leaves them.
    """
    if (judge is None) == (criterion is None):
        raise typer.BadParameter("give either --criterion 'name: definition' or --judge FILE.")
    asked = {name: value for name, value in (("debias", debias), ("calibration", calibration)) if value is not None}
    options: dict[str, Any] = {name: None if value == "none" else value for name, value in asked.items()}
    if judge is None:
        program = PairwiseJudge(named_criterion(data, str(criterion), labels), ties=ties, **options)
    else:
        if ties or any(label is not None for label in labels):
            raise typer.BadParameter("a saved judge has its own labels and answers: leave those options out.")
        program = load_pairwise_judge(judge)
        for name, value in options.items():
            setattr(program, name, value)
    told = {"ties": program.ties, "debias": program.debias, "calibration": program.calibration}
    digest = None if judge is None else hashlib.sha256(judge.read_bytes()).hexdigest()
    return program, {**told, "judge": digest}


@dataclass(frozen=True)
class Ranked:
    """What ``evalbias rank`` found.

    Attributes:
        rows: One a document: ids best first, the score of each, and the counts of its ``Ranking``.
        brief: Sums, and the agreement with people where they rated.
        shown: The same in a line or two.
    """

    rows: list[dict[str, Any]]
    brief: dict[str, Any]
    shown: str


def ranked(run: Run, ranker: PairwiseRanker, items: Sequence[dspy.Example]) -> Ranked:
    """Rank the outputs of every document."""
    groups = by_input(items)
    asked = [dspy.Example(source=g[0].source, candidates=[e.output for e in g]) for g in groups.values()]
    with run.progress(sum(most_comparisons(len(e.candidates)) for e in asked)):
        found = ranker.batch(asked, lm=run.lm)
    rows = []
    for (key, group), ranking in zip(groups.items(), found, strict=True):
        ids = [str(e.get("id")) for e in group]
        counts = {k: v for k, v in ranking.items() if k not in ("order", "scores")}
        order = [ids[i] for i in ranking.order]
        rows.append({"input_id": key, "order": order, "scores": dict(zip(ids, ranking.scores, strict=True)), **counts})
    counted = ("comparisons", "judgments", "ties", "undefined", "contradictions")
    brief: dict[str, Any] = {"documents": len(rows), **{f: sum(row[f] for row in rows) for f in counted}}
    shown = ", ".join(f"{value} {name}" for name, value in brief.items())
    name = ranker.judge.criterion.name
    if any(name in (e.get("scores") or {}) for e in items):
        agreed = agreement_of(found, list(groups.values()), name)
        brief["agreement"] = agreed
        shown += f"\nagreement with people on {name}, mean over {agreed['spearman'].groups} documents: " + ", ".join(
            f"{measure} {value.value:+.2f}" for measure, value in agreed.items()
        )
    return Ranked(rows, brief, shown)
