"""Refine loops: measure recorded loops, run a loop, and measure a model's preference for its own style."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import typer

from evalbias import evaluation
from evalbias.cli.run import Run, RunOutcome
from evalbias.cli.terminal import say
from evalbias.data.items import input_key
from evalbias.data.loops import loop_items, quantile_map, recorded_loop
from evalbias.evaluation.loops import LoopRun, conclude_quality, conclude_self, conclude_style
from evalbias.evaluation.words import count
from evalbias.measures import QuantileMap
from evalbias.measures.arrays import FloatArray
from evalbias.options import Models, Out
from evalbias.program_options import FeedbackOptions, LoopOptions, RefineOptions, SelfOptions, StyleOptions
from evalbias.programs import feedback
from evalbias.programs.loops import Improvement, SelfRefine
from evalbias.programs.tasks import TASKS, TEMPERATURE, RefineTask, check_items
from evalbias.report import tables
from evalbias.report.page import loop_sections, worst_items
from evalbias.runs import RESULT, SETTINGS, write_jsonl
from evalbias.values import digest, file_digest, message, read_json

# Recorded loops, of a file or a run folder: tests of the last round against the first, and between loops.

INPUTS = ("source", "concepts")  # fields of a recorded output that identify its input, besides its id


@dataclass(frozen=True)
class Recorded(evaluation.LoopScores):
    """The scores of a loop's file or folder."""

    sha256: str  # of the data
    outside: int = 0  # number of expected scores outside the range to which the quantile map was fitted
    texts: Sequence[dspy.Example] = ()  # (n,) input and last output of each item, where they were recorded


def refine_measure_command(options: SelfOptions, out: Out) -> None:
    to_mqm = None if options.quantile_map is None else quantile_map(options.quantile_map)[0]
    loops = _recorded_loops(options, to_mqm)
    by, alone = options.by, len(loops) == 1
    paths = [str(path) for path in options.loops]
    more = {"data": paths, "data_sha256": [loop.sha256 for loop in loops], "by": by}
    with Run("refine measure", options, None, out, more=more) as run:
        summarize = partial(evaluation.summarize_loop, n_resamples=options.resamples, seed=options.seed)
        summaries = [
            summarize(loop.name, loop.own, loop.expected, numbers=loop.numbers, inputs=loop.inputs) for loop in loops
        ]
        pairs = evaluation.compare_loops(loops, n_resamples=options.resamples, seed=options.seed)
        conclusions = [conclude_self(summary, rounds=by) for summary in summaries]
        result: dict[str, Any] = {"loops": summaries, "pairs": pairs, "conclusions": conclusions}
        if to_mqm is not None:
            result["outside_map"] = {loop.name: loop.outside for loop in loops}
        for loop in loops:
            if loop.outside and to_mqm is not None:
                say(
                    f"{loop.name}: {loop.outside} of {(~np.isnan(loop.expected)).sum()} scores of {to_mqm.metric!r} "
                    f"lie outside the map's {to_mqm.source[0]:g} to {to_mqm.source[-1]:g} and take its nearest MQM "
                    "score."
                )
        table = tables.self_bias_table(summaries[0], rounds=by) if alone else tables.loops_table(summaries, rounds=by)
        printed: list[Any] = [table]
        if pairs:
            between = {f"{pair.first} -> {pair.second}, {by} {pair.number}": pair.comparison for pair in pairs}
            note = f"two-sided, on the items of both, not corrected for {count(len(pairs), 'pair')}"
            printed.append(tables.headlines_table(between, of="loops", title="Between loops", note=note))
        elif not alone:
            printed.append("The loops are not compared: no two have an item and a round in common.")
        worst = worst_items(summaries[0].rounds[summaries[0].last], loops[0].texts)
        run.leave(RunOutcome(result, result, [*printed, *conclusions], more=[worst]))


def _recorded_loops(options: SelfOptions, to_mqm: QuantileMap | None) -> list[Recorded]:
    folders = [path for path in options.loops if path.is_dir()]
    if folders and len(folders) < len(options.loops):
        raise ValueError("Run folders and files of recorded loops are measured one kind at a time.")
    if folders and any(getattr(options, name) != getattr(SelfOptions, name) for name in ("own", "expected", "by")):
        raise ValueError(f"{folders[0]} is a run folder: --own, --expected and --by are for recorded loops.")
    loops = [_from_run(path, to_mqm) if path.is_dir() else _from_file(path, options, to_mqm) for path in options.loops]
    for path, loop in zip(options.loops, loops, strict=True):
        if np.isnan(loop.own - loop.expected).all():
            raise ValueError(f"{path} has no output with both an own and an expected score.")
    names = [loop.name for loop in loops]
    return [
        replace(loop, name=f"{loop.name} ({n})") if names.count(loop.name) > 1 else loop
        for n, loop in enumerate(loops, start=1)
    ]


def _from_file(path: Path, options: SelfOptions, to_mqm: QuantileMap | None) -> Recorded:
    """Read a recorded loop; a map is applied to its expected scores."""
    loop = recorded_loop(path, by=options.by, mapping=options.mapping)
    fields = {name for items in loop.records.values() for record in items.values() for name in record}
    for name in (options.own, options.expected):
        if name not in fields:
            raise ValueError(
                f"{path} has no field {name!r}, only {sorted(fields)!s:.500}: choose with --own and --expected."
            )
    last = loop.records[loop.numbers[-1]]
    firsts = [next(records[item] for records in loop.records.values() if item in records) for item in loop.ids]
    items = tuple(digest([item, *map(first.get, INPUTS)]) for item, first in zip(loop.ids, firsts, strict=True))
    texts = [dspy.Example({**first, **last.get(item, {})}) for item, first in zip(loop.ids, firsts, strict=True)]
    scores, outside = _mapped(loop.scores(options.expected), to_mqm, options.expected)
    own = loop.scores(options.own)
    inputs = [input_key(dspy.Example({**first, "id": item})) for item, first in zip(loop.ids, firsts, strict=True)]
    return Recorded(loop.name, loop.numbers, items, own, scores, loop.sha256, outside, texts, inputs=inputs)


def _mapped(scores: FloatArray, to_mqm: QuantileMap | None, metric: str) -> tuple[FloatArray, int]:
    """Return the scores on the scale of the map, and how many were outside the range it was fitted to."""
    if to_mqm is None:
        return scores, 0
    to_mqm.check_metric(metric)
    return to_mqm(scores.ravel()).reshape(scores.shape), to_mqm.outside(scores.ravel())


def _from_run(folder: Path, to_mqm: QuantileMap | None) -> Recorded:
    """Read the folder that evalbias refine run left; a map is applied to the quality."""
    file = folder / RESULT
    if not file.exists() or not {"ranges", "own", "quality", "loops"} <= (result := read_json(file)).keys():
        raise ValueError(f"{folder} holds no finished run of evalbias refine run.")
    ranges = result["ranges"]
    own, quality = (np.array(result[side], dtype=np.float64) for side in ("own", "quality"))  # null becomes NaN
    if to_mqm is None and ranges["own"] != ranges["quality"]:
        (low, high), (worst, best) = ranges["own"], ranges["quality"]
        raise ValueError(
            f"{folder} has no Bias: own scores lie in {low:g} to {high:g}, and the quality in {worst:g} to {best:g}. "
            "Map the quality with --quantile-map FILE, pairs of the metric's scores and human MQM scores."
        )
    if to_mqm is not None and ranges["own"] == ranges["quality"]:
        raise ValueError(
            f"The quality in {folder} is on the scale of its own scores already: leave --quantile-map out."
        )
    numbers = tuple(range(len(own)))
    settings = read_json(folder / SETTINGS)
    quality, outside = _mapped(quality, to_mqm, (settings.get("metric") or {}).get("name", "an unnamed metric"))
    items = tuple(digest([settings["data_sha256"], loop["id"]]) for loop in result["loops"])
    return Recorded(folder.name, numbers, items, own, quality, file_digest(file), outside)


# The task of a loop, its items and its sources of feedback.


def task_of(options: LoopOptions) -> tuple[RefineTask, list[Any], dict[str, Any]]:
    """Return the task of a loop, its items, and, for run.json, all that affects the numbers besides the options."""
    config: dict[str, Any] = {} if options.max_tokens is None else {"max_tokens": options.max_tokens}
    more: dict[str, Any] = {"temperature": TEMPERATURE, "metric": {}}
    if options.task == "translation":
        metric, to_mqm = feedback.ReferenceFeedback(options.metric), options.quantile_map
        config |= {"metric": metric, "to_mqm": None if to_mqm is None else quantile_map(to_mqm)[0]}
        more["metric"] = {"name": metric.name, "signature": metric.signature}
    if isinstance(options, FeedbackOptions):
        own = {"max_iterations": options.max_iterations, "feedback_temperature": options.feedback_temperature}
        config |= {name: value for name, value in own.items() if value is not None}
    elif options.task in ("translation", "constrained-generation"):
        config["feedback_temperature"] = 0.0  # a fixed score per text, so that versions can be compared
    task = TASKS[options.task](seed=options.seed, **config)
    if isinstance(options, RefineOptions) and options.program is not None:
        _load(with_refiner(task), options.program, options.seed)
    items, more["data_sha256"] = loop_items(options.data, mapping=options.mapping)
    items = items[: options.limit]
    check_items(task, items)
    if why := _no_bias(task):
        if isinstance(options, StyleOptions):
            raise ValueError(why)
        say(why)
    return task, items, more


def _no_bias(task: RefineTask) -> str:
    """Say why a loop has no Bias, if its own scores and the expected ones are on two scales; empty otherwise."""
    own, expected = task.loop.feedback, task.external
    if feedback.on_one_scale(own, expected):
        return ""
    pair = json.dumps({expected.name: (expected.low + expected.high) / 2, "mqm": -12.0})
    return (
        f"No Bias is measured: own scores are MQM points ({own.low:g} to {own.high:g}), and {expected.name} gives "
        f"{expected.low:g} to {expected.high:g}. Map it with --quantile-map FILE, pairs of its scores and human "
        f"MQM scores: lines such as {pair}."
    )


def with_refiner(task: RefineTask) -> SelfRefine:
    """Return the task's loop if a refiner listens to its feedback: none does where votes replace the answer."""
    if not isinstance(task.loop, SelfRefine):
        raise ValueError(f"In the task {task.name} votes replace the answer, and nothing refines it: choose another.")
    return task.loop


def _load(loop: SelfRefine, file: Path, seed: int) -> None:
    """Load a compiled loop; the command's seed is used, not the saved seed."""
    state = read_json(file, "give the file of a compiled loop")
    try:
        loop.load_state(state)
    except ValueError as error:
        raise ValueError(f"{file} is no compiled loop of this task: {error}") from error
    loop.seed = seed


def leave_loops(run: Run, failed: Mapping[str, str], outcome: RunOutcome) -> None:
    """Leave the outcome, with the items that failed."""
    for name, error in failed.items():
        typer.echo(message(f"The item {name!r:.80} failed: {error}"), err=True)
    run.leave(outcome)


# Run a refine loop, or measure the model's preference for its own style.


def refine_run_command(options: RefineOptions, models: Models, out: Out) -> None:
    task, items, more = task_of(options)
    loop = with_refiner(task) if options.feedback == "external" else task.loop
    with Run("refine run", options, models, out, more=more, writes=True) as run:
        folder, source = run.folder.path, task.external
        if options.feedback == "external":
            loop.feedback = task.external
            loop.accept = Improvement()  # a compiled margin is in points of the model's own feedback
        scorer = evaluation.CachedScorer(source, folder / "quality.jsonl")
        outcome = _ran(run, loop, items)
        quality, rows = outcome.quality(items, scorer), [_output(loop) for loop in outcome.loops]
        write_jsonl(folder / "outputs.jsonl", rows)
        failed = scorer.failed | outcome.failed
        conclusion = conclude_quality(quality, source.name, seed=options.seed)
        result = {
            "loops": rows,
            "ranges": {"own": [outcome.low, outcome.high], "quality": [source.low, source.high]},
            "own": outcome.own(),
            "quality": quality,
            "tokens": outcome.tokens(),
            "calls": outcome.calls(),
            "failed": failed,
            "conclusion": conclusion,
        }
        printed = [*filter(None, [tables.loop_table(outcome, quality, source.name), conclusion])]
        sections = loop_sections(outcome, quality, items, limits=(source.low, source.high))
        leave_loops(run, failed, RunOutcome(result, result, printed, more=sections))


def _ran(run: Run, program: Any, items: Sequence[Any]) -> LoopRun:
    """Run a loop on every item, in the run's folder; ValueError where no item came through."""
    how = {"lm": run.options.lm, "log_dir": run.folder.path, "num_threads": run.options.threads}
    with run.progress(len(items), "refining") as advance:
        return evaluation.run_loops(program, items, **how, progress=advance).checked()


def _output(loop: evaluation.Loop) -> dict[str, Any]:
    last = loop.at(loop.steps[-1].iteration) if loop.steps else None
    output = {"output": None, "score": None} if last is None else {"output": last.output, "score": last.score}
    return {"id": loop.id, **output, "stopped": loop.stopped, "error": loop.error, "steps": loop.steps}


def refine_style_command(options: StyleOptions, models: Models, out: Out) -> None:
    task, items, more = task_of(options)
    for item in items:
        if not str(item.get("output") or "").strip():
            raise ValueError(f"The item {item.id!r:.80} has no 'output': give an output of another author.")
    config: dict[str, Any] = {} if options.max_tokens is None else {"max_tokens": options.max_tokens}
    with Run("refine style", options, models, out, more=more, writes=True) as run:
        outcome = _ran(run, evaluation.Paraphrased(task.loop.feedback, **config), items)
        scorer = evaluation.CachedScorer(task.external, run.folder.path / "quality.jsonl")
        report = evaluation.measure_style(outcome, items, scorer, seed=options.seed)
        conclusion = conclude_style(report.change)
        title = "Outputs of others, as given (before) and in the model's own words (after)"
        printed = [replace(report.change.table(), title=title), conclusion]
        result = {"report": report, "conclusion": conclusion}
        worst = worst_items(report.before, items)
        leave_loops(run, report.failed, RunOutcome(result, result, printed, more=[worst]))
