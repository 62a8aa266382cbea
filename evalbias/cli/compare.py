"""Judges that compare: measure their biases, search a fair instruction for one, and rank outputs with one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import dspy
import numpy as np
from rich.console import Group

from evalbias.cli.items import compared, comparing_judge
from evalbias.cli.judge import beginning
from evalbias.cli.run import Run, RunOutcome, Split, keep
from evalbias.cli.terminal import say
from evalbias.data import by_input, count_pairs, hold_pairs, is_rated, pairs, world
from evalbias.evaluation import BIASES, compare_with_baselines, judge_examples, ranking_agreement
from evalbias.evaluation.answers import criteria_of, instruction_place_for, language_of
from evalbias.evaluation.audit import findings_of, opening_of, reasons_of
from evalbias.evaluation.biases import measure_all
from evalbias.evaluation.rankings import COUNTS, PROMPTS, Row, conclude_ranking
from evalbias.optimizers import ZEPO, objectives
from evalbias.optimizers.base import FEWEST_TO_CHOOSE
from evalbias.optimizers.proposers import GrammarParaphraser, LMParaphraser
from evalbias.options import MeasuringModels, OptimizeOptions, Out, PreferenceOptions, RankOptions
from evalbias.programs import PairwiseJudge, PairwiseRanker
from evalbias.programs.ranking import most_comparisons
from evalbias.report.page import ranked_section
from evalbias.report.tables import rows_table
from evalbias.runs import write_jsonl

# Measure the biases of a pairwise judge.


def measure_preference_command(options: PreferenceOptions, models: MeasuringModels, out: Out) -> None:
    program = comparing_judge(options)
    split = compared(options, program.criterion)
    likelihood = options.likelihood or options.likelihood_lm is not None
    more = {**split.settings(), **_settings(program), "likelihood": likelihood}
    with Run("measure preference", options, models, out, more=more) as run:
        drawn = pairs(split.test, limit=options.pairs, ordered=False, seed=options.seed)
        say(f"measured on {len(drawn)} of {count_pairs(split.test, ordered=False)} pairs")
        with run.progress(2 * len(drawn) * (2 if likelihood else 1)):
            scorer = run.likelihood_lm if likelihood else None
            judged = judge_examples(program, drawn, lm=run.options.lm, likelihood_lm=scorer).counted_in(options.length)
        measurements, name = measure_all(judged, seed=options.seed), program.criterion.name
        findings = findings_of(measurements, judged, {})
        verdict = " ".join([*opening_of(findings), *reasons_of(findings)])
        brief = {"preference": {b: m.to_dict(items=False) for b, m in measurements.items()}, "verdict": verdict}
        shown: list[Any] = [*(m.table() for m in measurements.values()), verdict]
        covered = {name: judged.coverage}
        result = {"preference": measurements}
        run.leave(RunOutcome(result, brief, [Group(*shown)], covered, verdict=verdict))


def _settings(judge: PairwiseJudge) -> dict[str, Any]:
    """Return how a pairwise judge answers: a saved one may say so itself."""
    return {"ties": judge.ties, "debias": judge.debias, "calibration": judge.calibration}


# Rank the outputs of each document.

SHOWN = 5  # number of documents whose ranking is printed; all are in rankings.jsonl


def rank_command(options: RankOptions, models: MeasuringModels, out: Out) -> None:
    judge = comparing_judge(options, options.debias)
    split = compared(options, judge.criterion, pairs=False)
    with Run("rank", options, models, out, more={**split.settings(), **_settings(judge)}) as run:
        ranker = PairwiseRanker(judge, seed=options.seed, orders=options.orders)
        groups = by_input(split.test)
        documents = [dspy.Example(source=g[0].source, candidates=[e.output for e in g]) for g in groups.values()]
        with run.progress(options.orders * sum(most_comparisons(len(e.candidates)) for e in documents)):
            rankings = ranker.batch(documents, lm=run.options.lm)
        rows = [_ranked(key, group, r) for (key, group), r in zip(groups.items(), rankings, strict=True)]
        brief: dict[str, Any] = {"documents": len(rows), **{f: sum(row[f] for row in rows) for f in COUNTS}}
        brief["unranked"] = sum(len(row["unranked"]) for row in rows)
        text, agreement, name = ", ".join(f"{value} {n}" for n, value in brief.items()), None, judge.criterion.name
        if any(is_rated(e, name) for e in split.test):
            agreement = ranking_agreement(rankings, list(groups.values()), name, seed=options.seed)
            brief["agreement"] = agreement.to_dict(items=False)
            text += f"\nagreement with people on {name}, mean over {agreement['spearman'].n} documents: " + ", ".join(
                f"{estimate.label} {estimate.shown}" for estimate in agreement.estimates.values()
            )
        brief["conclusion"] = conclude_ranking(agreement, len(rows))
        file = run.folder.path / "rankings.jsonl"
        write_jsonl(file, rows)
        shown = f"{_first(rows)}\n{text}\n{brief['conclusion']}\n{file}"
        more = [ranked_section(rows, list(groups.values()))]
        run.leave(RunOutcome(brief, brief, [shown], page=[agreement], more=more))


def _ranked(key: str, group: Sequence[dspy.Example], ranking: Any) -> dict[str, Any]:
    """Return a document's record: its ids best first, the score of each, and why any is not ranked."""
    ids = [str(e.get("id")) for e in group]
    return {
        "input_id": key,
        "source_begins": beginning(group[0].source),
        "order": [ids[i] for i in ranking.order],
        "begins": {ids[i]: beginning(group[i].output) for i in (*ranking.order, *ranking.unranked)},
        "scores": dict(zip(ids, ranking.scores, strict=True)),
        "unranked": {ids[i]: reason for i, reason in ranking.unranked.items()},
        **{name: ranking[name] for name in COUNTS},
    }


def _first(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in rows[:SHOWN]:
        lines.append(f"{row['input_id'] if len(row['input_id']) <= 40 else row['source_begins']}")
        for place, name in enumerate(row["order"], start=1):
            lines.append(f"{place:4}. {name}: {row['begins'][name]}")
        lines += [f"   -  {name}: {reason}" for name, reason in row["unranked"].items()]
    if len(rows) > SHOWN:
        lines.append(f"and {len(rows) - SHOWN} more documents")
    return "\n".join(lines)


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
