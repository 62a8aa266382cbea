"""``evalbias optimize``: make a judge that scores or compares, or a refine loop, less biased, by the chosen aim."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dspy
import numpy as np
from rich.console import Group

from evalbias.cli.items import (
    check_ratings,
    compared,
    comparing_judge,
    has_ratings,
    load_items,
    narrowed,
    scored,
    scoring_judges,
)
from evalbias.cli.refine import leave_loops, task_of, with_refiner
from evalbias.cli.run import Run, RunOutcome, Split, keep
from evalbias.cli.terminal import say
from evalbias.data import by_input, count_pairs, hold_pairs, pairs, world
from evalbias.data import split as split_items
from evalbias.data.items import comparable
from evalbias.evaluation import compare_with_baselines
from evalbias.evaluation.bias import Section
from evalbias.evaluation.rankings import PROMPTS, PUBLISHED_ORDERS, Row
from evalbias.optimizers import ZEPO, objectives
from evalbias.optimizers import likelihood as optimizers
from evalbias.optimizers.align import ENOUGH, Align
from evalbias.optimizers.base import FEWEST_TO_CHOOSE, hold_back
from evalbias.optimizers.likelihood import LikelihoodOptimizer
from evalbias.optimizers.proposers import GrammarParaphraser, LMParaphraser
from evalbias.optimizers.refine import ExternalFeedbackRefine
from evalbias.options import MeasuringModels, Options, Out
from evalbias.program_options import AgreementAim, AlignOptions, ComparingAim, LoopAim, OptimizeOptions, ScoringAim
from evalbias.programs import PairwiseJudge, PointwiseJudge
from evalbias.programs.files import load
from evalbias.programs.items import people_choice
from evalbias.programs.judges import REDUCTIONS, read_for
from evalbias.programs.ranking import most_comparisons
from evalbias.report.plots import scatter
from evalbias.report.tables import headlines_table, mitigation_table, refine_table, rows_table

# Labeled items: increase the agreement of a judge with people.


DEMONSTRATED = 4  # length of a prompt of the search in those without demonstrations, of which it shows three on average


def align_command(options: AlignOptions, models: MeasuringModels, out: Out) -> None:
    """Make a saved judge, or a new one, agree with people; many items leave a fifth of the inputs for the report."""
    saved = None if options.judge is None else load(options.judge, PointwiseJudge, PairwiseJudge)
    dataset = load_items(options, saved, pairs=True)
    items = list(dataset)
    if options.limit is not None and options.limit < len(items):
        items = random.Random(options.seed).sample(items, options.limit)
    compares = hold_pairs(items) if saved is None else isinstance(saved, PairwiseJudge)
    judge: Any = comparing_judge(options) if compares else scoring_judges(options)[0]
    if not compares:
        check_ratings(items, (judge.criterion,), str(options.data))
    elif not hold_pairs(items):  # pairs of rated outputs, by the better output
        items = pairs(items, criterion=judge.criterion.name, ordered=False, seed=options.seed)
    train, test = items, list[Any]()
    if len(by_input(items)) >= 2 * ENOUGH:
        train, test = split_items(items, seed=options.seed, by="input")
    _aligner(options).divide(judge, train, test)  # which refuses too few labels before a model is opened
    split = Split(dataset, (judge.criterion,), test, train)
    with Run("align", options, models, out, more=split.settings()) as run:
        optimizer = _aligner(run.options)
        optimizer.reflection_lm = run.options.reflection_lm
        # About 20 offers race on a half of the labels, the best of each kind and 8 combinations judge all of it, and
        # the best of each kind the other half; where inputs are cross-fitted, this is done on both halves. The learning
        # curve, which knows most answers, takes a fifth more.
        n, halves = len(train), 2 if len(by_input(train)) < ENOUGH else 1
        total = round(1.2 * halves * (min(options.budget, 10 * n) + 7 * n)) + 2 * len(test)
        with run.progress(total, longer=DEMONSTRATED):
            compiled = optimizer.compile(judge, trainset=train, valset=test, lm=run.options.lm)
        report = compiled.report
        path = run.folder.path / "judge.json"
        written = keep(compiled, report, path, compared=report.comparison, sampling=run.sampling)
        result = {**vars(report), "written": written}
        brief = {name: value for name, value in result.items() if name not in ("before", "after")}
        printed = [report.candidates_table(), report.decision, *report.remarks, written]
        if options.reflection_lm is not None:
            tokens = "an unknown number of" if math.isnan(report.cost.tokens) else f"{report.cost.tokens:,.0f}"
            texts = f"Texts written for the search: {report.cost.calls:,}."
            printed.append(f"{texts} All models took {tokens} tokens; those below are the judge's.")
        run.leave(RunOutcome(result, brief, printed, page=report))


def _aligner(options: AlignOptions) -> Align:
    return Align(budget=options.budget, reason=options.reason, reasoning=options.reasoning, seed=options.seed)


# Judges that score: a judge with demonstrations and calibrations is compiled for each criterion.


def compile_scoring(options: ScoringAim, models: MeasuringModels, out: Out) -> None:
    """Compile a saved judge, or new ones, against likelihood bias or a probe."""
    optimizer, judges = _optimizer(options), scoring_judges(options)
    split = scored(options, judges)
    for judge in judges:
        optimizer.divide(judge, split.train, split.test)  # which refuses too few items before a model is opened
    with Run("optimize", options, models, out, more=split.settings()) as run:
        run.leave(compile_judges(run, run.options, split, judges, _optimizer(run.options))[1])


def _optimizer(options: ScoringAim) -> LikelihoodOptimizer:
    against = None if options.aim == ScoringAim.aim else probe_of(options)
    optimizer: LikelihoodOptimizer
    if options.bare or against is not None:
        optimizer = optimizers.BiasedDemos(options.k, objective=against, select=not options.bare)
    else:
        sizes = sorted({size for size in (2, options.k // 2, options.k) if 2 <= size <= options.k})
        optimizer = optimizers.LikelihoodMitigation(sizes, max_loss=options.max_loss)
    optimizer.likelihood_lm, optimizer.reduction = options.likelihood_lm, options.reduction
    optimizer.n_resamples, optimizer.seed = options.resamples, options.seed
    return optimizer


def probe_of(options: ScoringAim | ComparingAim) -> objectives.ProbeObjective:
    """Return the objective of the aim probe:KIND."""
    return objectives.ProbeObjective(options.aim.removeprefix(PROBE), seed=options.seed)


def compile_judges(
    run: Run, options: ScoringAim, split: Split, judges: Sequence[PointwiseJudge], optimizer: LikelihoodOptimizer
) -> tuple[optimizers.CompiledCriteria, RunOutcome]:
    """Compile every judge; plots, and judges that are better, go into the run's folder."""
    train, test = len(split.train), len(split.test)
    sets = 1 + len(optimizer.k) * len(REDUCTIONS) if isinstance(optimizer.k, tuple) else 2  # of demonstrations
    if against := getattr(optimizer, "objective", None):
        sets = 3 * (1 + 2 * len(against.kinds))  # each item as it is, with each edit and with each placebo
    crossed = optimizer.select and len(by_input(split.train)) < optimizer.enough
    # About as many answers: each text's likelihood once, the training items, half or all with every set, the others.
    with run.progress(train + test + len(judges) * (train + sets * train // (2 - crossed) + 3 * test)):
        compiled = optimizers.compile_each(optimizer, judges, trainset=split.train, valset=split.test, lm=options.lm)
    comparisons, reports = compiled.comparisons, compiled.reports
    written = {}
    for name, judge in compiled.judges.items():
        report, path = reports[name], run.folder.file("judge", name, ".json")
        written[name] = keep(judge, report, path, compared=report.comparison, sampling=run.sampling)
    sides = {name: {"before": compiled.before[name], "after": compiled.after[name]} for name in comparisons}
    plots = [Section(f"Likelihood and unfairness: {name}", [scatter(both)]) for name, both in sides.items()]
    # The judges side by side, then the choice and its reason.
    mitigated = {name: r for name, r in reports.items() if isinstance(r, optimizers.MitigationReport)}
    demonstrated = {name: r for name, r in reports.items() if isinstance(r, optimizers.BiasedDemosReport)}
    printed: list[Any] = [mitigation_table(mitigated, seed=options.seed)] if mitigated else []
    if demonstrated or len(reports) > 1:
        printed.append(headlines_table(comparisons))
    for name, report in reports.items():
        remarks = [report.decision, getattr(report, "against_baselines", ""), written[name]]
        printed.append(f"{name}: {' '.join(filter(None, remarks))}")
    decisions = {name: report.decision for name, report in reports.items()}
    result = {"likelihood": comparisons, "reports": reports}
    brief = {"likelihood": comparisons, "decisions": decisions, "written": written}
    covered = {name: compiled.after[name].asked.coverage for name in compiled.judges}
    page = {**comparisons, **reports}  # a report holds its criterion's comparison; the total has none
    return compiled, RunOutcome(result, brief, [Group(*printed)], covered, page=page, more=plots)


# Judges that compare: a wording is searched on some documents; baselines, plots and the judge on the others.


def search_wording(options: ComparingAim, models: MeasuringModels, out: Out) -> None:
    """Search a wording for a saved or new judge."""
    judge = comparing_judge(options)
    split = compared(options, judge, searches=True)
    objective_of(options)  # an unknown probe and too few documents are refused before a model is opened
    if not options.bare:
        hold_back(drawn_pairs(options, split), seed=options.seed)
    with Run("optimize", options, models, out, more=split.settings()) as run:
        run.leave(search(run, run.options, split, judge, world.GENERAL)[0])


def objective_of(options: ComparingAim) -> objectives.Objective:
    """Return the objective of an aim: fairness, or a probe."""
    return objectives.Fairness() if options.aim == ComparingAim.aim else probe_of(options)


def drawn_pairs(options: ComparingAim, split: Split) -> list[dspy.Example]:
    """Draw the pairs to search on; refuse a draw of too few documents where there are enough."""
    drawn = pairs(split.train, limit=options.pairs, seed=options.seed)
    few, documents = len(by_input(drawn)), len(by_input(split.train))
    if not options.bare and few < FEWEST_TO_CHOOSE <= documents:
        raise ValueError(
            f"`pairs` {options.pairs} draws pairs of {few} of the {documents} documents to search on, and choosing "
            f"needs {FEWEST_TO_CHOOSE}: raise `pairs`, or take the result unchecked (`bare`)."
        )
    return drawn


def search(
    run: Run, options: ComparingAim, split: Split, judge: PairwiseJudge, grammar: Iterable[Iterable[str]]
) -> tuple[RunOutcome, Mapping[str, Row]]:
    """Search on pairs of training documents, and measure judge -> its row on the others; leave plots and a judge."""
    criterion, test, limit, objective = judge.criterion, split.test, options.pairs, objective_of(options)
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
        racing=False if options.exact else None,
        select=not options.bare,
        seed=options.seed,
        log_dir=run.folder.path / "search",
    )
    drawn = drawn_pairs(options, split)
    n_prompts = len(objective.searched(drawn))
    with run.progress((1 + options.population * options.epochs) * n_prompts):
        compiled = zepo.compile(judge, trainset=drawn, lm=options.lm)
    tested = count_pairs(test) if limit is None else min(count_pairs(test), limit)
    # Comparisons of ranking every document; pairs are not ranked.
    orders, outputs = options.orders or (PUBLISHED_ORDERS if options.bare else 1), map(len, by_input(test).values())
    ranked = 0 if hold_pairs(test) else sum(most_comparisons(n, orders) for n in outputs)
    with run.progress(8 * tested + sum(PROMPTS.values()) * ranked):
        rows = compare_with_baselines(
            judge, compiled, test, lm=options.lm, limit=limit, seed=options.seed, orders=orders
        )
    report, path = compiled.report, run.folder.path / "judge.json"
    written = keep(compiled, report, path, compared=rows["searched"].comparisons, sampling=run.sampling)
    counts = {"search": len(drawn), "all": count_pairs(split.train)}
    measured = {title: {n: m.to_dict(items=False) for n, m in row.measurements.items()} for title, row in rows.items()}
    brief = {
        "instruction": compiled.predict.signature.instructions,
        "judgments": report.judgments,
        "rows": measured,
        "decision": report.decision,
        "written": written,
        "pairs": counts,
    }
    coverage = {"comparisons": np.array([row.measurements["position"].coverage for row in rows.values()])}
    table = rows_table(rows, report, pairs=(counts["search"], counts["all"]))
    printed = [Group(table, *filter(None, [report.decision, written]))]
    return RunOutcome({"search": report, "rows": rows, "pairs": counts}, brief, printed, coverage), rows


# Refine loops.


def compile_loop(options: LoopAim, models: MeasuringModels, out: Out) -> None:
    """Compile a loop on half of the items under external feedback, and compare it with the old loop on the others."""
    task, items, more = task_of(options)
    student = with_refiner(task)
    train, test = split_items(items, seed=options.seed, test_fraction=0.5, by="input")
    with Run("optimize", options, models, out, more=more, writes=True) as run:
        optimizer = ExternalFeedbackRefine(
            task.external,
            quality=task.external,
            k=options.k,
            select=not options.bare,
            budget=options.budget,
            num_threads=options.threads,
            seed=options.seed,
            log_dir=run.folder.path / "loops",
        )
        with run.progress(3 * len(train) + 2 * len(test), "refining") as optimizer.progress:
            compiled = optimizer.compile(student, trainset=train, valset=test, lm=run.options.lm)
        report, path = compiled.report, run.folder.path / "program.json"
        written = keep(compiled, report, path, compared=report.comparison, kind="loop")
        loops = [loop for loop in (report.own, report.external, report.shown) if loop is not None]
        failed = {name: error for loop in loops for name, error in loop.failed.items()} | report.failed
        result = {"report": report, "written": written}
        printed = list(filter(None, [refine_table(report), report.decision, written]))
        leave_loops(run, failed, RunOutcome(result, result, printed))


# Aims of an optimization.


@dataclass(frozen=True)
class Aim:
    """Options that an aim takes, and the function that reaches it."""

    options: type[Options]
    work: Callable[[Any, MeasuringModels, Out], None]


PROBE = "probe:"
AGREEING = Aim(AgreementAim, align_command)
SCORING, COMPARING = Aim(ScoringAim, compile_scoring), Aim(ComparingAim, search_wording)
AIMS: dict[str, Aim] = {
    "agreement": AGREEING,
    "likelihood": SCORING,
    "fairness": COMPARING,
    "self-bias": Aim(LoopAim, compile_loop),
}
PROBES = {f"{PROBE}KIND of a judge that scores": SCORING, f"{PROBE}KIND of a judge that compares": COMPARING}


def optimize_command(options: OptimizeOptions, models: MeasuringModels, out: Out) -> None:
    form = name = str(options.aim)
    if options.aim is None:
        labeled, suited, why = _suited(options)
        suited, why = (AGREEING, "people rated or compared the outputs") if labeled else (suited, why)
        form = name = next(name for name, aim in AIMS.items() if aim is suited)
        say(f"Aim: {name}, because {why}. Another is named by --aim.")
    elif name.startswith(PROBE):
        suited = _suited(options)[1]
        form = next(words for words, aim in PROBES.items() if aim is suited)
    elif name not in AIMS:
        raise ValueError(f"`aim` {name:.80} is unknown: choose one of {', '.join(AIMS)} or {PROBE}KIND.")
    forms = AIMS | PROBES
    chosen = narrowed(options, form, {words: aim.options for words, aim in forms.items()}, out.typed)
    forms[form].work(replace(chosen, aim=name), models, out)


def _suited(options: OptimizeOptions) -> tuple[bool, Aim, str]:
    """Choose the aim from the data: are they labeled, and, with a saved judge, does the judge score or compare?"""
    items = read_for(None, options, choices={"better": tuple(options.labels)})
    labeled = has_ratings(items) or any(not math.isnan(people_choice(e)) for e in items)
    if options.judge is not None:
        judge = load(options.judge, PointwiseJudge, PairwiseJudge)
        kind = COMPARING if isinstance(judge, PairwiseJudge) else SCORING
        return labeled, kind, f"{options.judge} holds a {judge.kind}"
    if hold_pairs(items):
        return labeled, COMPARING, f"{options.data} holds pairs"
    if labeled:
        return labeled, SCORING, "people rated the outputs"
    if comparable(items):
        return labeled, COMPARING, "nobody rated the outputs, and inputs have several"
    raise ValueError(
        f"{options.data} has no ratings, no pairs, and one output of each input, and a judge is made better by one of "
        f"these; 'evalbias doctor {options.data}' says what it holds."
    )
