"""Commands about refine loops: running, compiling and measuring them, recorded or live."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import typer

from evalbias import data
from evalbias.cli.models import identity, open_lm
from evalbias.cli.options import SAME, LoopOptions, MetricOptions, ModelOptions, RefineOptions
from evalbias.cli.run import ModelWatch, keep, print_result
from evalbias.cli.terminal import Resumable, counting, say
from evalbias.data.columns import parse_mapping
from evalbias.data.files import decoded
from evalbias.data.loops import RecordedLoop, loop_items, quantile_map, recorded_loop
from evalbias.evaluation import (
    CachedScorer,
    Loop,
    LoopScores,
    Paraphrased,
    compare_loops,
    doublings,
    measure_aspects,
    measure_style,
    run_loops,
    summarize_loop,
)
from evalbias.evaluation.loops import conclude_quality, conclude_self, conclude_style
from evalbias.lm.contract import measuring
from evalbias.measures import QuantileMap
from evalbias.measures.arrays import FloatArray
from evalbias.optimizers.refine import ExternalFeedbackRefine
from evalbias.programs.criterion import FLUENCY, UNDERSTANDABILITY
from evalbias.programs.feedback import (
    PROMPT,
    ConsistencyFeedback,
    FeedbackSource,
    InstructScore,
    JudgeFeedback,
    ReferenceFeedback,
    on_one_scale,
)
from evalbias.programs.judges import PointwiseJudge
from evalbias.programs.learned import LearnedFeedback
from evalbias.programs.loops import BestOfK, Improvement, SelfRefine
from evalbias.programs.saved import read_state
from evalbias.programs.tasks import TASKS, TEMPERATURE, RefineTask, check_items, read_examples
from evalbias.report.blocks import Section
from evalbias.report.page import write_report
from evalbias.report.sections import loop_sections
from evalbias.report.tables import (
    aspects_table,
    differences_plot,
    loop_table,
    loops_table,
    pairs_table,
    refine_table,
    scores_plot,
    self_bias_table,
    sides_plot,
    style_table,
    trajectory_plot,
)
from evalbias.runs import RESULT, SETTINGS, RunFolder, write_jsonl
from evalbias.values import digest, file_digest, message, read_json

# Self-bias of recorded loops: tables, plots, and tests of the last round against the first and between loops.


OWN, EXPECTED, BY = "self_score", "expected", "iteration"
"""Default names of the fields."""
INPUTS = ("source", "concepts")
"""Fields of a recorded output that tell, besides its id, which input it answers to."""


@dataclass(frozen=True)
class Rounds(LoopScores):
    """The scores of a loop's file or folder.

    Attributes:
        sha256: Hash of the data.
        by: What the rounds are numbered by, ``"iteration"`` or ``"k"``.
        outside: Number of expected scores outside the range to which the quantile map was fitted.
        texts: (n,) input and last output of each item, where the loop recorded them.
    """

    sha256: str
    by: str
    outside: int = 0
    texts: Sequence[dspy.Example] = ()


def measure_recorded(
    data: Sequence[Path],
    *,
    columns: list[str] | None,
    own: str,
    expected: str,
    by: str,
    map_file: Path | None,
    resamples: int,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure recorded loops, print the result, and leave a folder.

    Raises:
        ValueError: Own and expected scores are one field, or a loop has no item with both.
    """
    if own == expected:
        raise ValueError(
            f"--own and --expected both name {own!r}, and a loop would seem to have no Bias: name the field of each."
        )
    _check_one_kind(data, own, expected, by)
    to_mqm, map_sha256 = (None, None) if map_file is None else quantile_map(map_file)
    mapping = parse_mapping(columns or ())
    loops = [
        _from_run(path, to_mqm) if path.is_dir() else _from_file(path, mapping, own, expected, by, to_mqm)
        for path in data
    ]
    if len({loop.by for loop in loops}) > 1:
        raise ValueError("Some of the runs refine and some draw the best of k: measure them one kind at a time.")
    by = loops[0].by
    names = [loop.name for loop in loops]
    loops = [
        replace(loop, name=f"{loop.name} ({n})") if names.count(loop.name) > 1 else loop
        for n, loop in enumerate(loops, start=1)
    ]
    for path, loop in zip(data, loops, strict=True):
        if np.isnan(loop.own - loop.expected).all():
            raise ValueError(f"{path} has no output with both an own and an expected score.")
    settings = {
        "command": "measure self",
        "data": [str(path) for path in data],
        "data_sha256": [loop.sha256 for loop in loops],
        **({"map": mapping} if mapping else {}),
        "seed": seed,
        "own": own,
        "expected": expected,
        "by": by,
        "map_sha256": map_sha256,
        "resamples": resamples,
    }
    with RunFolder(out, settings) as folder:
        summaries = [
            summarize_loop(x.name, x.own, x.expected, numbers=x.numbers, n_resamples=resamples, seed=seed)
            for x in loops
        ]
        trajectory_plot(summaries, folder.path / "trajectory.png", rounds=by)
        for loop in loops:
            _plot(folder, loop, by, alone=len(loops) == 1)
        pairs = compare_loops(loops, n_resamples=resamples, seed=seed)
        conclusions = [conclude_self(summary, rounds=by) for summary in summaries]
        result: dict[str, Any] = {"loops": summaries, "pairs": pairs, "conclusions": conclusions}
        if to_mqm is not None:
            result["outside_map"] = {loop.name: loop.outside for loop in loops}
            _report_outside(loops, to_mqm)
        folder.write_result(result)
        write_report(folder.path, result, examples=loops[0].texts)
        alone = len(summaries) == 1
        shown: list[Any] = [self_bias_table(summaries[0], rounds=by) if alone else loops_table(summaries, rounds=by)]
        if pairs:
            shown.append(pairs_table(pairs, rounds=by))
        elif not alone:
            shown.append("The loops are not compared: no two have an item and a round in common.")
        print_result(result, as_json, [*shown, *conclusions], folder)


def _plot(folder: RunFolder, loop: Rounds, by: str, *, alone: bool) -> None:
    places = {
        kind: folder.path / f"{kind}.png" if alone else folder.file(kind, loop.name, ".png")
        for kind in ("scores", "differences")
    }
    scores_plot(loop.own[-1], loop.expected[-1], places["scores"])
    difference = loop.own - loop.expected
    names = (f"{by} {loop.numbers[0]}", f"{by} {loop.numbers[-1]}")
    differences_plot(difference[0], difference[-1], places["differences"], names=names)


def _check_one_kind(data: Sequence[Path], own: str, expected: str, by: str) -> None:
    folders = [path for path in data if path.is_dir()]
    if folders and len(folders) < len(data):
        raise ValueError("Run folders and files of recorded loops are measured one kind at a time.")
    if folders and (own, expected, by) != (OWN, EXPECTED, BY):
        raise ValueError(f"{folders[0]} is a run folder: --own, --expected and --by are for recorded loops.")


def _from_file(
    data: Path, mapping: Mapping[str, str], own: str, expected: str, by: str, to_mqm: QuantileMap | None
) -> Rounds:
    """Read a recorded loop; a map is applied to its expected scores.

    Raises:
        ValueError: The file lacks one of the fields.
    """
    loop = recorded_loop(data, by=by, mapping=mapping)
    fields = {name for items in loop.records.values() for record in items.values() for name in record}
    for name in (own, expected):
        if name not in fields:
            raise ValueError(
                f"{data} has no field {name!r}, only {sorted(fields)!s:.500}: choose with --own and --expected."
            )
    items = tuple(digest([item, *map(_first(loop, item).get, INPUTS)]) for item in loop.ids)
    scores, outside = _mapped(loop.scores(expected), to_mqm, expected)
    last = loop.records[loop.numbers[-1]]
    texts = [dspy.Example({**_first(loop, item), **last.get(item, {})}) for item in loop.ids]
    return Rounds(loop.name, loop.numbers, items, loop.scores(own), scores, loop.sha256, by, outside, texts)


def _mapped(scores: FloatArray, to_mqm: QuantileMap | None, metric: str) -> tuple[FloatArray, int]:
    """Return the scores on the scale of the map, and how many were outside the range it was fitted to.

    Raises:
        ValueError: The map was fitted to another metric.
    """
    if to_mqm is None:
        return scores, 0
    to_mqm.check_metric(metric)
    return to_mqm(scores.ravel()).reshape(scores.shape), to_mqm.outside(scores.ravel())


def _report_outside(loops: Sequence[Rounds], to_mqm: QuantileMap) -> None:
    for loop in loops:
        if loop.outside:
            say(
                f"{loop.name}: {loop.outside} of {(~np.isnan(loop.expected)).sum()} scores of {to_mqm.metric!r} lie "
                f"outside the map's {to_mqm.source[0]:g} to {to_mqm.source[-1]:g} and take its nearest MQM score."
            )


def _first(loop: RecordedLoop, item: str) -> Mapping[str, Any]:
    return next(records[item] for records in loop.records.values() if item in records)


def _from_run(folder: Path, to_mqm: QuantileMap | None) -> Rounds:
    """Read the folder that evalbias refine left; a map is applied to the quality.

    Raises:
        ValueError: The folder holds no finished loop, or own scores and quality are on different scales.
    """
    file = folder / RESULT
    if not file.exists() or "ranges" not in (result := read_json(file)):
        raise ValueError(f"{folder} holds no finished run of evalbias refine.")
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
    by = result.get("by", "iteration")  # runs of earlier versions only refined
    if by == "k":  # row i is the best of i + 1
        numbers = doublings(len(own))
        rows = np.array(numbers) - 1
        own, quality = own[rows], quality[rows]
    settings = read_json(folder / SETTINGS)
    quality, outside = _mapped(quality, to_mqm, settings.get("metric", {}).get("name", "an unnamed metric"))
    items = tuple(digest([settings["data_sha256"], loop["id"]]) for loop in result["loops"])
    return Rounds(folder.name, numbers, items, own, quality, file_digest(file), by, outside)


# The reference metric of translation, and its map onto MQM scores, as commands take them.


LEARNED = ("comet", "bleurt")


class TranslationMetric:
    """The opened metric of a translation task.

    Args:
        task: Name of the task.
        options: Options of the command.

    Attributes:
        arguments: Arguments for the task; none for other tasks.
        settings: What decides the scores, for run.json.

    Raises:
        ValueError: The task has no reference metric, or an option of the metric is missing or would do nothing.
    """

    def __init__(self, task: str, options: MetricOptions) -> None:
        self.arguments: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        if task != "translation":
            if options != MetricOptions():
                raise ValueError(
                    f"--metric and --quantile-map are for translations: the task {task} defines its own quality."
                )
            return
        sha256 = None
        to_mqm: QuantileMap | None = None
        if options.map is not None:
            to_mqm, sha256 = quantile_map(options.map)
        self._source = _open(options)
        self.arguments = {"metric": self._source, "to_mqm": to_mqm}
        signature = getattr(self._source, "signature", None)
        self.settings = {
            "name": self._source.name,
            "signature": signature,
            "checkpoint": options.checkpoint,
            "map_sha256": sha256,
        }

    def close(self) -> None:
        """Stop a learned metric's process."""
        if isinstance(source := self.arguments.get("metric"), LearnedFeedback):
            source.close()


def _open(options: MetricOptions) -> FeedbackSource:
    needs = {"--metric-python": options.python, "--checkpoint": options.checkpoint}
    if options.name not in LEARNED:
        for option, value in needs.items():
            if value is not None:
                raise ValueError(f"{option} is for --metric comet or bleurt; {options.name} runs in this Python.")
        return ReferenceFeedback(options.name)
    for option, value in needs.items():
        if value is None:
            raise ValueError(f"--metric {options.name} runs in a Python of its own: give {option} too.")
    return LearnedFeedback(options.name, str(options.checkpoint), python=str(options.python))


def notice_of_scales(task: RefineTask) -> str | None:
    """Say why there is no Bias, and how to get one; None if own and expected scores are on one scale."""
    own, expected = task.loop.feedback, task.external
    if on_one_scale(own, expected):
        return None
    return (
        f"No Bias is measured: own scores are MQM points ({own.low:g} to {own.high:g}), and {expected.name} gives "
        f"{expected.low:g} to {expected.high:g}. Map it with --quantile-map FILE, pairs of its scores and human MQM "
        f"scores: lines such as {json.dumps({expected.name: (expected.low + expected.high) / 2, 'mqm': -12.0})}."
    )


# An open run of a refine loop: its task, items, models and folder.


class Refining(Resumable):
    """An open run of a loop; use it in a ``with``, which releases its folder.

    Args:
        command: Command as the user typed it.
        loop: Task, items, model and folder.
        options: Options of the command.
        models: Options that decide how models are opened.
    """

    def __init__(self, command: str, loop: LoopOptions, *, options: RefineOptions, models: ModelOptions) -> None:
        self.config: dict[str, Any] = {} if loop.max_tokens is None else {"max_tokens": loop.max_tokens}
        options.check()
        iterations = 10 if options.max_iterations is None else options.max_iterations
        self.metric = TranslationMetric(loop.task, options.metric)
        examples = None if options.examples is None else read_examples(options.examples)
        given = self.metric.arguments | ({} if examples is None else {"examples": examples})
        self.task = TASKS[loop.task](max_iterations=iterations, seed=loop.seed, **given, **self.config)
        state = None if options.program is None else read_state(options.program, SelfRefine.kind)
        if state is not None:
            _load(with_refiner(self.task), state, options.program, seed=loop.seed)
        mapping = parse_mapping(loop.columns or ())
        items, sha256 = loop_items(loop.data, mapping=mapping)
        self.items = items[: loop.limit]
        check_items(self.task, self.items)
        if options.instructscore is not None:
            _check_instructscore(self.task, command, options.feedback)
        self.seed, self.options = loop.seed, options
        self.lm = open_lm(loop.lm, models, writes=True)
        self.lm.cache = False  # a stopped run continues from the log, and tokens are counted as spent
        self.aspects_lm = self._opened_for_aspects(models)
        self.external: FeedbackSource = self.task.external
        if options.instructscore is not None:
            request = PROMPT if options.prompt is None else decoded(options.prompt.read_bytes(), options.prompt)
            self.external = InstructScore(
                open_lm(options.instructscore, models.of_another(), writes=True), prompt=request
            )
        settings = {
            "command": command,
            "task": loop.task,
            "data": loop.data,
            "data_sha256": sha256,
            **({"map": mapping} if mapping else {}),
            "seed": loop.seed,
            "limit": loop.limit,
            "max_tokens": loop.max_tokens,
            "temperature": TEMPERATURE,
            "lm": identity(self.lm),
            **asdict(options),
            "program": state,
            "prompt": None,
            "examples": None if examples is None else examples.to_dict(),
            "metric": self.metric.settings,
            "aspects_lm": None if self.aspects_lm is None else identity(self.aspects_lm),
            "aspects_api_base": None,  # an address does not decide the numbers
        }
        if isinstance(self.external, InstructScore):
            settings |= {"instructscore": identity(self.external.lm), "prompt": self.external.prompt}
        self.folder = RunFolder(loop.out, settings)
        try:
            self.watch = ModelWatch(self.folder, measuring(self.lm), lambda: self.folder.path.rglob("*.jsonl"))
            self.watch.check()
        except BaseException:
            self.close()
            raise
        self.scorer = CachedScorer(self.task.external, self.folder.path / "quality.jsonl")

    def _opened_for_aspects(self, models: ModelOptions) -> Any:
        """Open the judge of fluency and understandability; None where none is named."""
        named = self.options.aspects_lm
        if named is None or named == SAME:
            return None if named is None else self.lm
        return open_lm(named, models.of_another(self.options.aspects_api_base))

    def close(self) -> None:
        """Release the run's folder and stop the metric."""
        self.folder.close()
        self.metric.close()

    def aspects(self) -> list[CachedScorer]:
        """Return judges of fluency and understandability, each with a log; none where no model is named for them.

        Raises:
            NotImplementedError: The model measures no probabilities.
        """
        if self.aspects_lm is None:
            return []
        measuring(self.aspects_lm)
        scorers = []
        for criterion in (FLUENCY, UNDERSTANDABILITY):
            judge = PointwiseJudge(criterion)
            judge.predict.lm = self.aspects_lm
            source = JudgeFeedback(judge, source=self.task.source)
            scorers.append(CachedScorer(source, self.folder.path / f"{criterion.name}.jsonl"))
        return scorers

    @property
    def aspects_judge(self) -> str:
        """Name of the model that judges fluency and understandability."""
        same = identity(self.aspects_lm) == identity(self.lm)
        return "the model that wrote the texts" if same else str(self.aspects_lm.model)


def _check_instructscore(task: RefineTask, command: str, feedback: str) -> None:
    """Refuse InstructScore where it has nothing to compare with, or would not be heard."""
    if "reference" not in task.fields:
        raise ValueError(f"--instructscore compares with a reference: the task {task.name} has none.")
    if command == "refine" and feedback == "own":
        raise ValueError("--instructscore is external feedback: add --feedback external.")


def with_refiner(task: RefineTask) -> SelfRefine:
    """Return the task's loop if a refiner listens to its feedback.

    Raises:
        ValueError: Votes replace the answer.
    """
    if not isinstance(task.loop, SelfRefine):
        raise ValueError(f"In the task {task.name} votes replace the answer: use --task {task.name}-refiner.")
    return task.loop


def _load(loop: SelfRefine, state: dict[str, Any], file: Path | None, *, seed: int) -> None:
    try:
        loop.load_state(state)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{file} is a compiled loop of another task: {error}") from error
    loop.seed = seed  # the command's seed decides a run, not the one that was saved
    if isinstance(loop.feedback, ConsistencyFeedback):
        loop.feedback.seed = seed


# Run a refine loop, compile it, or measure the model's preference for its own style.


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
