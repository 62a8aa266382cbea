"""Run a refine loop, compile it, or measure the model's preference for its own style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from evalbias import data
from evalbias.commands.keeping import keep
from evalbias.commands.refining import Refining, with_refiner
from evalbias.commands.run import print_result
from evalbias.commands.terminal import counting, say
from evalbias.commands.translation_metric import notice_of_scales
from evalbias.evaluation import Loop, Paraphrased, measure_aspects, measure_style, run_loops
from evalbias.evaluation.conclusions import conclude_quality, conclude_style
from evalbias.optimizers.external_refine import ExternalFeedbackRefine
from evalbias.programs.best_of_k import BestOfK
from evalbias.programs.refine import Improvement
from evalbias.report.html.blocks import Section
from evalbias.report.html.run_page import write_report
from evalbias.report.html.texts import loop_sections
from evalbias.report.refine import aspects_table, loop_table, refine_table, sides_plot, style_table
from evalbias.report.self_bias import differences_plot
from evalbias.runs.journal import write_jsonl
from evalbias.runs.visible import message


def run_loop(run: Refining, *, threads: int, as_json: bool) -> None:
    """Run the loop; report its outputs and their quality by the task's external source."""
    loop, source = run.task.loop, run.task.external
    if run.options.feedback == "external":
        loop = with_refiner(run.task)
        loop.feedback = run.external
        if isinstance(loop.accept, Improvement):
            loop.accept = Improvement()  # a compiled margin is in points of the model's own feedback
    best_of = run.options.best_of
    program = (
        loop if best_of is None else BestOfK(loop.generate, loop.feedback, k=best_of, seed=run.seed, field=loop.field)
    )
    judges = run.aspects()
    with counting(len(run.items), "refining") as advance:
        outcome = run_loops(
            program, run.items, lm=run.lm, log_dir=run.folder.path, num_threads=threads, progress=advance
        )
    run.watch.check()
    if len(outcome.failed) == len(outcome.loops):
        raise ValueError(f"No item came through the loop: {next(iter(outcome.failed.values()))}")
    quality = outcome.quality(run.items, run.scorer)
    rows = [_output(one) for one in outcome.loops]
    write_jsonl(run.folder.path / "outputs.jsonl", rows)
    aspects = measure_aspects(outcome, run.items, judges, seed=run.seed)
    failed = {name: error for one in (*judges, run.scorer) for name, error in one.failed.items()} | outcome.failed
    conclusion = conclude_quality(quality, source.name, seed=run.seed)
    result = {
        "loops": rows,
        "ranges": {"own": [outcome.low, outcome.high], "quality": [source.low, source.high]},
        "own": outcome.own(),
        "quality": quality,
        "by": "iteration" if best_of is None else "k",
        "distinct": outcome.distinct,
        "tokens": outcome.tokens(),
        "calls": outcome.calls(),
        "aspects": aspects,
        "failed": failed,
        "conclusion": conclusion,
    }
    shown: list[Any] = [loop_table(outcome, quality, source.name, best_of=best_of)]
    if aspects:
        shown.append(aspects_table(aspects, judge=run.aspects_judge))
    shown += filter(None, [conclusion])
    limits = (source.low, source.high)
    step = "refinement" if best_of is None else "draw"
    more = loop_sections(outcome, quality, run.items, limits=limits, step=step)
    _finish(run, result, shown, as_json, failed, more=more)


def compile_loop(run: Refining, *, threads: int, as_json: bool, keep_worse: bool = False) -> None:
    """Compile the loop; report own and external feedback side by side. A loop that is not better is not written."""
    student = with_refiner(run.task)
    train, test = data.split(run.items, seed=run.seed, test_fraction=run.options.test_fraction, by="input")
    optimizer = ExternalFeedbackRefine(
        run.external,
        quality=run.task.external,
        k=run.options.k,
        until=run.options.until,
        select=not run.options.bare,
        budget=run.options.budget,
        num_threads=threads,
        seed=run.seed,
        log_dir=run.folder.path / "loops",
    )
    with counting((len(optimizer.margins) + 2) * len(train) + 2 * len(test), "refining") as optimizer.progress:
        compiled = optimizer.compile(student, trainset=train, valset=test, lm=run.lm)
    run.watch.check()
    report, path = compiled.report, run.folder.path / "program.json"
    kept = keep(compiled, report, path, compared=report.comparison, keep_worse=keep_worse, kind="loop")
    sides_plot(report, run.folder.path / "sides.png")
    loops = [loop for loop in (*report.own, report.external, report.shown) if loop is not None]
    failed = {name: error for loop in loops for name, error in loop.failed.items()} | report.failed
    shown = list(filter(None, [refine_table(report), report.decision, kept]))
    _finish(run, {"report": report, "written": kept}, shown, as_json, failed)


def run_style(run: Refining, *, threads: int, as_json: bool) -> None:
    """Paraphrase the items' outputs; report the model's own scores before and after beside the quality."""
    for item in run.items:
        if not str(item.get("output") or "").strip():
            raise ValueError(f"The item {item.id!r:.80} has no 'output': give an output of another author.")
    program = Paraphrased(run.task.loop.feedback, **run.config)
    with counting(len(run.items), "refining") as advance:
        report = measure_style(
            program,
            run.items,
            run.task.external,
            lm=run.lm,
            log_dir=run.folder.path,
            num_threads=threads,
            progress=advance,
            seed=run.seed,
        )
    run.watch.check()
    before, after = (side.samples["bias"].values for side in (report.before, report.after))
    names = ("given output", "own paraphrase")
    differences_plot(before, after, run.folder.path / "differences.png", names=names)
    conclusion = conclude_style(report.change)
    result = {"report": report, "conclusion": conclusion}
    _finish(run, result, [style_table(report), conclusion], as_json, report.failed, examples=run.items)


def _finish(
    run: Refining,
    result: Mapping[str, Any],
    shown: list[Any],
    as_json: bool,
    failed: Mapping[str, str],
    *,
    examples: Sequence[Any] = (),
    more: Sequence[Section] = (),
) -> None:
    run.folder.write_result(result)
    write_report(run.folder.path, result, examples=examples, more=more)
    for name, error in failed.items():
        typer.echo(message(f"The item {name!r:.80} failed: {error}"), err=True)
    if notice := notice_of_scales(run.task):
        say(notice)
    print_result(result, as_json, shown, run.folder)


def _output(one: Loop) -> dict[str, Any]:
    last = one.at(one.steps[-1].iteration) if one.steps else None
    output = {"output": None, "score": None} if last is None else {"output": last.output, "score": last.score}
    return {"id": one.id, **output, "stopped": one.stopped, "error": one.error, "steps": one.steps}
