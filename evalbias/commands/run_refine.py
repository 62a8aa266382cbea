"""A refine loop on the command line: run it, compile it, or measure the model's preference for its own style."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer

from evalbias import data
from evalbias.commands.models import identity, open_lm
from evalbias.commands.options import ModelOptions
from evalbias.commands.refine_options import SAME, RefineOptions
from evalbias.commands.run import print_result, progress_bar
from evalbias.commands.translation_metric import TranslationMetric, notice_of_scales
from evalbias.data.refinements import load_items
from evalbias.evaluation import CachedScorer, Loop, Paraphrased, measure_aspects, measure_style, run_loops
from evalbias.lm.contract import measuring
from evalbias.optimizers.external_refine import ExternalFeedbackRefine
from evalbias.programs.best_of_k import BestOfK
from evalbias.programs.criteria import FLUENCY, UNDERSTANDABILITY
from evalbias.programs.examples import read_examples
from evalbias.programs.feedback import ConsistencyFeedback, FeedbackSource, InstructScore, JudgeFeedback
from evalbias.programs.feedback.instructscore import PROMPT
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.refine import Improvement, SelfRefine
from evalbias.programs.saving import read_state
from evalbias.programs.tasks import TASKS, TEMPERATURE, RefineTask, check_items
from evalbias.report.refine import aspects_table, loop_table, refine_table, sides_plot, style_table
from evalbias.report.self_bias import differences_plot
from evalbias.runs.folder import Closable, RunFolder
from evalbias.runs.journal import write_jsonl


class Refining(Closable):
    """An open run of a loop; use it in a ``with``, which releases its folder.

    Args:
        command: Command as the user typed it.
        task: Name in ``TASKS``.
        path: File of the items.
        lm: Name of the model.
        models: Options that decide how models are opened.
        max_tokens: Largest length of an answer; None leaves it to the task.
        options: Options of the command.
        limit: Use only the first so many items.
        seed: Seed for the draws, the split and the tests.
        out: Run folder; by default one under runs/.
    """

    def __init__(
        self,
        command: str,
        task: str,
        path: Path,
        lm: str,
        models: ModelOptions,
        max_tokens: int | None,
        options: RefineOptions,
        *,
        limit: int | None,
        seed: int,
        out: Path | None,
    ) -> None:
        if models.samples is not None:
            raise ValueError("A refine loop uses no probabilities: leave --samples out.")
        self.config: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
        options.check()
        iterations = 10 if options.max_iterations is None else options.max_iterations
        self.metric = TranslationMetric(task, options.metric)
        examples = None if options.examples is None else read_examples(options.examples)
        given = self.metric.arguments | ({} if examples is None else {"examples": examples})
        self.task = TASKS[task](max_iterations=iterations, seed=seed, **given, **self.config)
        state = None if options.program is None else read_state(options.program, SelfRefine.kind)
        if state is not None:
            _load(_with_refiner(self.task), state, options.program, seed=seed)
        items, sha256 = load_items(path)
        self.items = items[:limit]
        check_items(self.task, self.items)
        if options.instructscore is not None:
            _check_instructscore(self.task, command, options.feedback)
        self.seed, self.options = seed, options
        self.lm = open_lm(lm, models)
        self.lm.cache = False  # a stopped run continues from the log, and tokens are counted as spent
        self.external: FeedbackSource = self.task.external
        settings = {
            "command": command,
            "task": task,
            "data": str(path),
            "data_sha256": sha256,
            "seed": seed,
            "limit": limit,
            "max_tokens": max_tokens,
            "temperature": TEMPERATURE,
            "lm": identity(self.lm),
            **asdict(options),
            "program": state,
            "prompt": None,
            "examples": None if examples is None else examples.to_dict(),
            "metric": self.metric.settings,
            "aspects_lm": None,
            "aspects_api_base": None,  # an address does not decide the numbers
        }
        self.aspects_lm: Any = None
        if options.aspects_lm is not None:
            server = replace(models, api_base=options.aspects_api_base, tokenizer=None, template_options=None)
            self.aspects_lm = self.lm if options.aspects_lm == SAME else open_lm(options.aspects_lm, server)
            settings["aspects_lm"] = identity(self.aspects_lm)
        if options.instructscore is not None:
            request = PROMPT if options.prompt is None else options.prompt.read_text(encoding="utf-8")
            judge = open_lm(options.instructscore, replace(models, api_base=None, template_options=None))
            self.external = InstructScore(judge, prompt=request)
            settings |= {"instructscore": identity(judge), "prompt": request}
        self.folder = RunFolder(out, settings)
        self.scorer = CachedScorer(self.task.external, self.folder.path / "quality.jsonl")

    def close(self) -> None:
        """Release the run's folder and stop the metric."""
        self.folder.close()
        self.metric.close()

    def refine(self, *, threads: int, as_json: bool) -> None:
        """Run the loop; report its outputs and their quality by the task's external source."""
        loop, source = self.task.loop, self.task.external
        if self.options.feedback == "external":
            loop = _with_refiner(self.task)
            loop.feedback = self.external
            if isinstance(loop.accept, Improvement):
                loop.accept = Improvement()  # a compiled margin is in points of the model's own feedback
        best_of = self.options.best_of
        program = (
            loop
            if best_of is None
            else BestOfK(loop.generate, loop.feedback, k=best_of, seed=self.seed, field=loop.field)
        )
        judges = self._aspects()
        with progress_bar(len(self.items), "refining") as advance:
            run = run_loops(
                program, self.items, lm=self.lm, log_dir=self.folder.path, num_threads=threads, progress=advance
            )
        if len(run.failed) == len(run.loops):
            raise ValueError(f"No item came through the loop: {next(iter(run.failed.values()))}")
        quality = run.quality(self.items, self.scorer)
        rows = [_output(one) for one in run.loops]
        write_jsonl(self.folder.path / "outputs.jsonl", rows)
        aspects = measure_aspects(run, self.items, judges, seed=self.seed)
        failed = {name: error for one in (*judges, self.scorer) for name, error in one.failed.items()} | run.failed
        result = {
            "loops": rows,
            "ranges": {"own": [run.low, run.high], "quality": [source.low, source.high]},
            "own": run.own(),
            "quality": quality,
            "by": "iteration" if best_of is None else "k",
            "distinct": run.distinct,
            "tokens": run.tokens(),
            "calls": run.calls(),
            "aspects": aspects,
            "failed": failed,
        }
        shown = [loop_table(run, quality, source.name, best_of=best_of)]
        if aspects:
            shown.append(aspects_table(aspects, judge=self._judge_name()))
        self._finish(result, shown, as_json, failed)

    def compile(self, *, threads: int, as_json: bool) -> None:
        """Compile the loop; report own and external feedback side by side."""
        student = _with_refiner(self.task)
        train, test = data.split(self.items, seed=self.seed, test_fraction=self.options.test_fraction)
        optimizer = ExternalFeedbackRefine(
            self.external,
            quality=self.task.external,
            k=self.options.k,
            until=self.options.until,
            budget=self.options.budget,
            num_threads=threads,
            seed=self.seed,
            log_dir=self.folder.path / "loops",
        )
        with progress_bar((len(optimizer.margins) + 2) * len(train) + 2 * len(test), "refining") as optimizer.progress:
            compiled = optimizer.compile(student, trainset=train, valset=test, lm=self.lm)
        compiled.save(str(self.folder.path / "program.json"))
        report = compiled.report
        sides_plot(report, self.folder.path / "sides.png")
        loops = [loop for loop in (*report.own, report.external, report.shown) if loop is not None]
        failed = {name: error for loop in loops for name, error in loop.failed.items()} | report.failed
        self._finish({"report": report}, [refine_table(report)], as_json, failed)

    def style(self, *, threads: int, as_json: bool) -> None:
        """Paraphrase the items' outputs; report the model's own scores before and after beside the quality."""
        for item in self.items:
            if not str(item.get("output") or "").strip():
                raise ValueError(f"The item {item.id!r} has no 'output': give an output of another author.")
        program = Paraphrased(self.task.loop.feedback, **self.config)
        with progress_bar(len(self.items), "refining") as advance:
            report = measure_style(
                program,
                self.items,
                self.task.external,
                lm=self.lm,
                log_dir=self.folder.path,
                num_threads=threads,
                progress=advance,
                seed=self.seed,
            )
        before, after = (side.samples["bias"].values for side in (report.before, report.after))
        names = ("given output", "own paraphrase")
        differences_plot(before, after, self.folder.path / "differences.png", names=names)
        self._finish({"report": report}, [style_table(report)], as_json, report.failed)

    def _aspects(self) -> list[CachedScorer]:
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

    def _judge_name(self) -> str:
        same = identity(self.aspects_lm) == identity(self.lm)
        return "the model that wrote the texts" if same else str(self.aspects_lm.model)

    def _finish(self, result: Mapping[str, Any], shown: list[Any], as_json: bool, failed: Mapping[str, str]) -> None:
        self.folder.write_result(result)
        for name, error in failed.items():
            typer.echo(f"The item {name!r} failed: {error}", err=True)
        if notice := notice_of_scales(self.task):
            typer.echo(notice, err=True)
        print_result(result, as_json, shown, self.folder)


def _check_instructscore(task: RefineTask, command: str, feedback: str) -> None:
    """Refuse InstructScore where it has nothing to compare with, or would not be heard."""
    if "reference" not in task.fields:
        raise ValueError(f"--instructscore compares with a reference: the task {task.name} has none.")
    if command == "refine" and feedback == "own":
        raise ValueError("--instructscore is external feedback: add --feedback external.")


def _with_refiner(task: RefineTask) -> SelfRefine:
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


def _output(one: Loop) -> dict[str, Any]:
    last = one.at(one.steps[-1].iteration) if one.steps else None
    output = {"output": None, "score": None} if last is None else {"output": last.output, "score": last.score}
    return {"id": one.id, **output, "stopped": one.stopped, "error": one.error, "steps": one.steps}
