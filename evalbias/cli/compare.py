"""Commands about judges that compare: search for a wording, and rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import typer
from rich.console import Group

from evalbias.cli.items import named_criterion
from evalbias.cli.judge import beginning
from evalbias.cli.run import Run, keep
from evalbias.cli.terminal import say
from evalbias.data import by_input, count_pairs, hold_pairs, is_rated, pairs
from evalbias.evaluation import BIASES, Measurement, compare_with_baselines, ranking_agreement
from evalbias.evaluation.rankings import COUNTS, PROMPTS, Row, conclude_ranking, with_scores
from evalbias.optimizers import ZEPO, GrammarParaphraser, LMParaphraser
from evalbias.optimizers.base import FEWEST_TO_CHOOSE
from evalbias.optimizers.zepo import (
    BiasObjective,
    CalibrationGap,
    Confidence,
    ContextFreeConfidence,
    Epochs,
    Fairness,
    Objective,
    sensitivity_curve,
)
from evalbias.programs import Criterion, PairwiseJudge, PairwiseRanker, load_pairwise_judge
from evalbias.programs.ranking import most_comparisons
from evalbias.report.plots import consistency_bars, curve_plot, history_plot
from evalbias.report.tables import rows_table
from evalbias.values import file_digest

# Open the pairwise judge that a command names, and rank with it.


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


# Search an instruction for a command: on some documents; baselines, plots and the judge on the others.


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
