"""Open the pairwise judge that a command names, and rank with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import typer

from evalbias.commands.criteria import named_criterion
from evalbias.commands.run import Run
from evalbias.commands.score_rows import beginning
from evalbias.data import by_input, is_rated
from evalbias.evaluation import Measurement, ranking_agreement
from evalbias.evaluation.agreement import COUNTS
from evalbias.evaluation.conclusions import conclude_ranking
from evalbias.programs import PairwiseJudge, PairwiseRanker, load_pairwise_judge
from evalbias.programs.ranking import most_comparisons
from evalbias.runs.fingerprint import file_digest

SHOWN = 5
"""Number of documents whose ranking is printed; all are in rankings.jsonl."""


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
    """Open a saved judge, or a new one for a criterion; also return what decides its numbers, for run.json.

    Options given beside a saved judge replace its own; None leaves them.
    """
    if (judge is None) == (criterion is None):
        raise typer.BadParameter("give either --criterion 'name: definition' or --judge FILE.")
    given = {name: value for name, value in (("debias", debias), ("calibration", calibration)) if value is not None}
    options: dict[str, Any] = {name: None if value == "none" else value for name, value in given.items()}
    if judge is None:
        program = PairwiseJudge(named_criterion(data, str(criterion), labels), ties=ties, **options)
    else:
        if ties or any(label is not None for label in labels):
            raise typer.BadParameter("a saved judge has its own labels and answers: leave those options out.")
        program = load_pairwise_judge(judge)
        for name, value in options.items():
            setattr(program, name, value)
    settings = {"ties": program.ties, "debias": program.debias, "calibration": program.calibration}
    return program, {**settings, "judge": None if judge is None else file_digest(judge)}


@dataclass(frozen=True)
class Ranked:
    """Result of ``evalbias rank``.

    Attributes:
        rows: One record per document: how its texts begin, ids best first, the score of each, the reason for each that
            is not ranked, and the counts of its ``Ranking``.
        brief: Sums, and the agreement with people where they rated.
        text: The same in a line or two.
        agreement: Agreement with people; None where nobody rated.
        documents: The outputs of each document, in the order of the rows.
    """

    rows: list[dict[str, Any]]
    brief: dict[str, Any]
    text: str
    agreement: Measurement | None
    documents: Sequence[Sequence[dspy.Example]]


def run_ranking(run: Run, ranker: PairwiseRanker, items: Sequence[dspy.Example], *, seed: int) -> Ranked:
    """Rank the outputs of every document."""
    groups = by_input(items)
    documents = [dspy.Example(source=g[0].source, candidates=[e.output for e in g]) for g in groups.values()]
    with run.progress(sum(most_comparisons(len(e.candidates)) for e in documents)):
        rankings = ranker.batch(documents, lm=run.lm)
    rows = []
    for (key, group), ranking in zip(groups.items(), rankings, strict=True):
        ids = [str(e.get("id")) for e in group]
        counts = {name: ranking[name] for name in COUNTS}
        order, scores = [ids[i] for i in ranking.order], dict(zip(ids, ranking.scores, strict=True))
        unranked = {ids[i]: reason for i, reason in ranking.unranked.items()}
        begins = {ids[i]: beginning(group[i].output) for i in (*ranking.order, *ranking.unranked)}
        row = {"input_id": key, "source_begins": beginning(group[0].source), "order": order, "begins": begins}
        rows.append({**row, "scores": scores, "unranked": unranked, **counts})
    brief: dict[str, Any] = {"documents": len(rows), **{f: sum(row[f] for row in rows) for f in COUNTS}}
    brief["unranked"] = sum(len(row["unranked"]) for row in rows)
    text = ", ".join(f"{value} {name}" for name, value in brief.items())
    agreement = None
    name = ranker.judge.criterion.name
    if any(is_rated(e, name) for e in items):
        agreement = ranking_agreement(rankings, list(groups.values()), name, seed=seed)
        brief["agreement"] = agreement.to_dict(items=False)
        text += f"\nagreement with people on {name}, mean over {agreement['spearman'].n} documents: " + ", ".join(
            f"{estimate.label} {estimate.text()} ({estimate.interval})" for estimate in agreement.estimates.values()
        )
    brief["conclusion"] = conclude_ranking(agreement, len(rows))
    return Ranked(rows, brief, f"{_shown(rows)}\n{text}\n{brief['conclusion']}", agreement, list(groups.values()))


def _shown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rankings of the first documents, best first."""
    lines = []
    for row in rows[:SHOWN]:
        lines.append(f"{row['input_id'] if len(row['input_id']) <= 40 else row['source_begins']}")
        for place, name in enumerate(row["order"], start=1):
            lines.append(f"{place:4}. {name}: {row['begins'][name]}")
        lines += [f"   -  {name}: {reason}" for name, reason in row["unranked"].items()]
    if len(rows) > SHOWN:
        lines.append(f"and {len(rows) - SHOWN} more documents")
    return "\n".join(lines)
