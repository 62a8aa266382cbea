"""Search an instruction for a command: on some documents; baselines, plots and the judge on the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
import numpy as np
from rich.console import Group

from evalbias.commands.keeping import keep
from evalbias.commands.run import Run
from evalbias.commands.terminal import say
from evalbias.data import by_input, count_pairs, hold_pairs, pairs
from evalbias.evaluation import BIASES, compare_with_baselines
from evalbias.evaluation.baselines import PROMPTS, Row, with_scores
from evalbias.optimizers import ZEPO, GrammarParaphraser, LMParaphraser
from evalbias.optimizers.splits import FEWEST_TO_CHOOSE
from evalbias.optimizers.zepo import (
    BiasObjective,
    CalibrationGap,
    Confidence,
    ContextFreeConfidence,
    Epochs,
    Fairness,
    Objective,
)
from evalbias.optimizers.zepo.sensitivity import sensitivity_curve
from evalbias.programs import Criterion, PairwiseJudge
from evalbias.programs.ranking import most_comparisons
from evalbias.report.preference import consistency_bars, curve_plot, history_plot
from evalbias.report.tables import rows_table

OBJECTIVES: dict[str, Callable[[], Objective]] = {
    "fairness": Fairness,
    "confidence": Confidence,
    "context-free": ContextFreeConfidence,
    "calibration": CalibrationGap,
}


@dataclass(frozen=True)
class SearchOptions:
    """Options of ``evalbias optimize`` that decide its numbers; see ``ZEPO``."""

    proposer: str = "grammar"
    population: int = 5
    epochs: int = 5
    objective: str = "fairness"
    pairs: int | None = 200
    exact: bool = False
    budget: int | None = None
    ties: bool = False
    instruction: str | None = None
    instruction_place: str = "first"
    search: str = "greedy"
    curve: bool = False
    bare: bool = False


@dataclass(frozen=True)
class Searched:
    """Result of a search.

    Attributes:
        result: Content of result.json.
        brief: Content of ``--json``.
        rows: Judge -> its measurements on the test documents.
        table: Table for the terminal.
        coverage: Coverage of the answers.
    """

    result: dict[str, Any]
    brief: dict[str, Any]
    rows: Mapping[str, Row]
    table: Any
    coverage: Mapping[str, Any]


def objective_of(name: str) -> Objective:
    """Return an objective by name: one of ``OBJECTIVES``, or a registered bias that has one.

    Raises:
        ValueError: An unknown name.
    """
    if name in OBJECTIVES:
        return OBJECTIVES[name]()
    if name in BIASES and BIASES[name].objective:
        return BiasObjective(BIASES[name])
    known = [*OBJECTIVES, *(bias.name for bias in BIASES.values() if bias.objective)]
    raise ValueError(f"--objective {name} is unknown: choose one of {', '.join(known)}.")


def run_zepo(
    run: Run,
    criterion: Criterion,
    train: Sequence[dspy.Example],
    test: Sequence[dspy.Example],
    options: SearchOptions,
    *,
    grammar: Iterable[Iterable[str]],
    seed: int,
    keep_worse: bool = False,
) -> Searched:
    """Search on pairs of the training documents; measure on the others; leave plots and a better judge in the folder.

    A judge that is not better is left only with ``keep_worse``.
    """
    judge = PairwiseJudge(
        criterion, ties=options.ties, instruction=options.instruction, instruction_place=options.instruction_place
    )
    zepo = ZEPO(
        _grammar(grammar, judge) if run.proposer_lm is None else LMParaphraser(run.proposer_lm),
        population=options.population,
        objective=objective_of(options.objective),
        stopping=Epochs(options.epochs),
        racing=not options.exact,
        select=not options.bare,
        budget=options.budget,
        seed=seed,
        log_dir=run.folder.path / "search",
    )
    drawn = pairs(train, limit=options.pairs, seed=seed)
    if not options.bare:
        _check_documents(len(by_input(drawn)), len(by_input(train)), options.pairs)
    with run.progress((1 + options.population * options.epochs) * len(drawn)):
        compiled = zepo.compile(judge, trainset=drawn, lm=run.lm)
    compared = count_pairs(test, ordered=False)
    if options.pairs is not None:
        compared = min(compared, options.pairs)
    with run.progress(_most_answers(test, compared)):
        rows = compare_with_baselines(
            judge, compiled, test, lm=run.lm, search=options.search, limit=options.pairs, seed=seed
        )
    report, path = compiled.report, run.folder.path
    kept = keep(compiled, report, path / "judge.json", compared=rows["searched"].comparisons, keep_worse=keep_worse)
    history_plot(report, path / "history.png")
    consistent = {title: row.measurements["position"]["position_consistency"].value for title, row in rows.items()}
    consistency_bars(consistent, path / "consistency.png")
    shown = {
        title: {name: m.to_dict(items=False) for name, m in row.measurements.items()} for title, row in rows.items()
    }
    brief: dict[str, Any] = {"instruction": report.chosen, "judgments": report.judgments, "rows": shown}
    brief |= {"decision": report.decision, "written": kept}
    brief["pairs"] = {"search": len(drawn), "all": count_pairs(train)}
    result = {"search": report, "rows": rows, "pairs": brief["pairs"]}
    run.folder.write_result(result)
    if options.curve:
        rated, tried = with_scores(test, criterion.name), [t.instruction for t in report.tried]
        curves = {}
        for title, debias, orders in (("initial", None, 1), ("after permutation", "permutation", 2)):
            judge.debias = debias
            with run.progress(orders * len(tried) * (1 + compared + _most_rankings(test))):
                curves[title] = sensitivity_curve(judge, tried, rated, lm=run.lm, limit=options.pairs, seed=seed)
        curve_plot(curves, path / "curve.png")
        result["curves"] = curves
    coverage = {"comparisons": np.array([row.measurements["position"].coverage for row in rows.values()])}
    table = rows_table(rows, report, pairs=(len(drawn), count_pairs(train)))
    return Searched(result, brief, rows, Group(table, *filter(None, [report.decision, kept])), coverage)


def _check_documents(drawn: int, given: int, limit: int | None) -> None:
    """Refuse a limit that leaves the drawn pairs with too few of the given documents to choose on."""
    if drawn < FEWEST_TO_CHOOSE <= given:
        raise ValueError(
            f"--pairs {limit} draws pairs of {drawn} of the {given} documents to search on, and choosing needs "
            f"{FEWEST_TO_CHOOSE}: raise --pairs, or take the result unchecked (--bare)."
        )


def _grammar(parts: Iterable[Iterable[str]], judge: PairwiseJudge) -> GrammarParaphraser:
    """Return the proposer without a model; says on stderr if it cannot reword the first instruction."""
    proposer = GrammarParaphraser(parts)
    if not proposer.makes(judge.criterion, judge.predict.signature.instructions):
        say(
            "The grammar cannot reword this instruction: its own wordings compete with it. To reword it, name a model "
            "with --proposer-lm."
        )
    return proposer


def _most_answers(items: Sequence[dspy.Example], limit: int) -> int:
    """Return the answers of the four rows: every pair in both orders under two instructions, and the rankings."""
    return 8 * limit + sum(PROMPTS.values()) * _most_rankings(items)


def _most_rankings(items: Sequence[dspy.Example]) -> int:
    """Return the comparisons of ranking every document once, by the greedy search; pairs are not ranked."""
    return 0 if hold_pairs(items) else sum(most_comparisons(len(group)) for group in by_input(items).values())
