"""Search a fair instruction for a judge that compares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from rich.console import Group

from evalbias.cli.items import compared
from evalbias.cli.run import Run, RunOutcome, Split, keep
from evalbias.cli.terminal import say
from evalbias.data import by_input, count_pairs, hold_pairs, pairs, world
from evalbias.evaluation import BIASES, compare_with_baselines
from evalbias.evaluation.answers import criteria_of, instruction_place_for, language_of
from evalbias.evaluation.rankings import PROMPTS, Row
from evalbias.optimizers import ZEPO, objectives
from evalbias.optimizers.base import FEWEST_TO_CHOOSE
from evalbias.optimizers.proposers import GrammarParaphraser, LMParaphraser
from evalbias.options import MeasuringModels, OptimizeOptions, Out
from evalbias.programs import PairwiseJudge
from evalbias.programs.ranking import most_comparisons
from evalbias.report.tables import rows_table

# Search an instruction on some documents; baselines, plots and the judge on the others.

OBJECTIVES: dict[str, Callable[[], objectives.Objective]] = {
    "fairness": objectives.Fairness,
    "debiased": objectives.DebiasedFairness,
    "confidence": objectives.Confidence,
    "context-free": objectives.ContextFreeConfidence,
    "calibration": objectives.CalibrationGap,
}


def optimize_command(options: OptimizeOptions, models: MeasuringModels, out: Out) -> None:
    objective_of(options)
    (criterion,) = criteria_of(options, [options.criterion])
    split = compared(options, criterion, searches=True)
    with Run("optimize", options, models, out, more=split.settings()) as run:
        run.leave(search(run, run.options, split, world.GENERAL)[0])


def objective_of(options: OptimizeOptions) -> objectives.Objective:
    """Return the objective that is named: one of ``OBJECTIVES``, a registered bias that has one, or a probe."""
    name = options.objective
    if name in OBJECTIVES:
        return OBJECTIVES[name]()
    if name in BIASES and BIASES[name].objective:
        return objectives.BiasObjective(BIASES[name])
    if name.startswith("probe:"):
        return objectives.probe_of(name, seed=options.seed)
    known = [*OBJECTIVES, *(bias.name for bias in BIASES.values() if bias.objective), "probe:KIND"]
    raise ValueError(f"`objective` {name} is unknown: choose one of {', '.join(known)}.")


def search(
    run: Run, options: OptimizeOptions, split: Split, grammar: Iterable[Iterable[str]]
) -> tuple[RunOutcome, Mapping[str, Row]]:
    """Search on pairs of training documents, and measure judge -> its row on the others; leave plots and a judge."""
    (criterion,), train, test, limit = split.criteria, split.train, split.test, options.pairs
    judge = PairwiseJudge(
        criterion,
        ties=options.ties,
        instruction=options.instruction,
        instruction_place=options.instruction_place or instruction_place_for(options.lm),
        language=language_of(options),
    )
    objective = objective_of(options)
    proposer: Any = GrammarParaphraser(grammar)
    if options.proposer_lm != "grammar":
        proposer = LMParaphraser(options.proposer_lm)
    elif not proposer.makes(criterion, judge.predict.signature.instructions):
        proposer.check(criterion, judge.predict.signature.instructions)
        say(
            "The grammar cannot reword this instruction: its own wordings compete with it. To reword it, name a model "
            "with --proposer-lm."
        )
    zepo = ZEPO(
        proposer,
        population=options.population,
        objective=objective,
        epochs=options.epochs,
        racing=not options.exact,
        select=not options.bare,
        seed=options.seed,
        log_dir=run.folder.path / "search",
    )
    ordered = not objective.debiased  # both orders of a pair are averaged
    drawn = pairs(train, limit=limit, ordered=ordered, seed=options.seed)
    all_pairs = count_pairs(train, ordered=ordered)
    few, documents = len(by_input(drawn)), len(by_input(train))
    if not options.bare and few < FEWEST_TO_CHOOSE <= documents:
        raise ValueError(
            f"`pairs` {limit} draws pairs of {few} of the {documents} documents to search on, and choosing needs "
            f"{FEWEST_TO_CHOOSE}: raise `pairs`, or take the result unchecked (`bare`)."
        )
    asked = len(objective.searched(drawn)) * (1 if ordered else 2)
    with run.progress((1 + options.population * options.epochs) * asked):
        compiled = zepo.compile(judge, trainset=drawn, lm=options.lm)
    tested = count_pairs(test) if limit is None else min(count_pairs(test), limit)
    # Comparisons of ranking every document once; pairs are not ranked.
    ranked = 0 if hold_pairs(test) else sum(most_comparisons(len(group)) for group in by_input(test).values())
    with run.progress(8 * tested + sum(PROMPTS.values()) * ranked):
        rows = compare_with_baselines(judge, compiled, test, lm=options.lm, limit=limit, seed=options.seed)
    report, path = compiled.report, run.folder.path
    better = rows["searched"].comparisons
    written = keep(compiled, report, path / "judge.json", compared=better, keep_worse=options.keep_worse)
    counts = {"search": len(drawn), "all": all_pairs}
    result: dict[str, Any] = {"search": report, "rows": rows, "pairs": counts}
    run.folder.write_result(result)
    brief = {
        "instruction": compiled.predict.signature.instructions,
        "judgments": report.judgments,
        "rows": {
            title: {name: m.to_dict(items=False) for name, m in row.measurements.items()} for title, row in rows.items()
        },
        "decision": report.decision,
        "written": written,
        "pairs": counts,
    }
    coverage = {"comparisons": np.array([row.measurements["position"].coverage for row in rows.values()])}
    table = rows_table(rows, report, pairs=(len(drawn), all_pairs))
    shown = [Group(table, *filter(None, [report.decision, written]))]
    return RunOutcome(result, brief, shown, coverage), rows
