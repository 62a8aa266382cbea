"""A fairness search as a command runs it: searched on some documents, four rows on others, plots and the judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from evalbias.commands.run import Run
from evalbias.data import by_input, pairs
from evalbias.evaluation.rows import rows, with_scores
from evalbias.optimizers import ZEPO, GrammarParaphraser, LMParaphraser
from evalbias.optimizers.zepo import CalibrationGap, Confidence, ContextFreeConfidence, Epochs, Objective
from evalbias.optimizers.zepo.sensitivity import curve
from evalbias.programs import Criterion, PairwiseJudge
from evalbias.programs.ranking import most_comparisons
from evalbias.report.preference import consistency_bars, curve_plot, history_plot
from evalbias.report.tables import rows_table

OBJECTIVES: dict[str, Callable[[], Objective]] = {
    "confidence": Confidence,
    "context-free": ContextFreeConfidence,
    "calibration": CalibrationGap,
}
PROMPTS = {"initial": 1, "initial + permutation": 2, "searched": 1, "searched + permutation": 2}
"""Of a comparison, by row."""


@dataclass(frozen=True)
class Searched:
    """What a search found.

    Attributes:
        result: For result.json.
        brief: For ``--json``.
        shown: For the terminal.
        coverage: Of the answers.
    """

    result: dict[str, Any]
    brief: dict[str, Any]
    shown: Any
    coverage: Mapping[str, Any]


def searched(
    run: Run,
    criterion: Criterion,
    train: Sequence[dspy.Example],
    test: Sequence[dspy.Example],
    *,
    options: Mapping[str, Any],
    grammar: Iterable[Iterable[str]],
    seed: int,
) -> Searched:
    """Search on pairs of the training documents; measure on the others; leave plots and the judge in the folder."""
    judge = PairwiseJudge(criterion, ties=options["ties"], instruction=options["instruction"])
    zepo = ZEPO(
        GrammarParaphraser(grammar) if run.proposer_lm is None else LMParaphraser(run.proposer_lm),
        population=options["population"],
        objective=None if options["objective"] == "fairness" else OBJECTIVES[options["objective"]](),
        stopping=Epochs(options["epochs"]),
        halving=options["halving"],
        budget=options["budget"],
        seed=seed,
        log_dir=run.folder.path / "search",
    )
    drawn = pairs(train, limit=options["pairs"], seed=seed)
    with run.progress((1 + options["population"] * options["epochs"]) * len(drawn)):
        compiled = zepo.compile(judge, trainset=drawn, lm=run.lm)
    with run.progress(_most_answers(test, options["pairs"])):
        found = rows(judge, compiled, test, lm=run.lm, search=options["search"], limit=options["pairs"], seed=seed)
    report, path = compiled.report, run.folder.path
    compiled.save(str(path / "judge.json"))
    history_plot(report, path / "history.png")
    consistent = {name: row.preference.position_consistency for name, row in found.items()}
    consistency_bars(consistent, path / "consistency.png")
    instruction = report.tried[report.best].instruction
    brief: dict[str, Any] = {"instruction": instruction, "judgments": report.judgments, "rows": found}
    result = {"search": report, "rows": found}
    run.folder.write_result(result)
    if options["curve"]:
        rated, tried = with_scores(test, criterion.name), [t.instruction for t in report.tried]
        with run.progress(len(tried) * (1 + options["pairs"] + _most_rankings(test))):
            points = curve(judge, tried, rated, lm=run.lm, limit=options["pairs"], seed=seed)
        curve_plot(points, path / "curve.png")
        result["curve"] = points
    coverage = {"comparisons": [row.preference.coverage for row in found.values()]}
    return Searched(result, brief, rows_table(found, report), coverage)


def _most_answers(items: Sequence[dspy.Example], limit: int) -> int:
    """Of the four rows: every pair in both orders under two instructions, and the rankings."""
    return 8 * limit + sum(PROMPTS.values()) * _most_rankings(items)


def _most_rankings(items: Sequence[dspy.Example]) -> int:
    """Comparisons of ranking every document once, by the greedy search."""
    return sum(most_comparisons(len(group)) for group in by_input(items).values())
