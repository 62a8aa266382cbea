"""A refine loop as a command runs it, compiles it, or asks it about its own style."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from evalbias import data
from evalbias.commands.models import identity, open_lm
from evalbias.commands.run import progress_bar
from evalbias.data.refinements import load_items
from evalbias.evaluation import Paraphrased, measure_aspects, measure_style
from evalbias.evaluation.external_scores import CachedScorer
from evalbias.evaluation.loops import Loop, run_loops
from evalbias.lm.contract import measuring
from evalbias.optimizers.external_refine import ExternalFeedbackRefine
from evalbias.programs.criteria import FLUENCY, UNDERSTANDABILITY
from evalbias.programs.feedback import FeedbackSource, InstructScore, JudgeFeedback
from evalbias.programs.feedback.instructscore import PROMPT
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.refine import STATE_KEY, Improvement
from evalbias.programs.saving import read_state
from evalbias.programs.tasks import TASKS, check_items
from evalbias.report.refine import aspects_table, loop_table, refine_table, sides_plot, style_table
from evalbias.report.self_bias import differences_plot
from evalbias.runs.folder import RunFolder
from evalbias.runs.values import to_json


class Refining:
    """An open run.

    Args:
        command: As the user typed it.
        task: Name in ``TASKS``.
        path: The items.
        lm: The model by name.
        models: How models are opened.
        max_tokens: Of every answer; None leaves it to the task.
        limit: Only the first so many items.
        seed: Of the split and the tests.
        out: The folder; by default one under runs/.
        max_iterations: Refinements at most.
        instructscore: The model of external feedback; None leaves it to the task.
        prompt: Its request; None takes the default.
        program: A compiled loop; None takes the task's.
        **options: What else decides the numbers.
    """

    def __init__(
        self,
        command: str,
        task: str,
        path: Path,
        lm: str,
        models: Mapping[str, Any],
        max_tokens: int | None,
        *,
        limit: int | None,
        seed: int,
        out: Path | None,
        max_iterations: int | None = None,
        instructscore: str | None = None,
        prompt: Path | None = None,
        program: Path | None = None,
        **options: Any,
    ) -> None:
        self.config: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
        if program is not None and max_iterations is not None:
            raise ValueError("--program decides the refinements: leave --max-iterations out.")
        self.task = TASKS[task](max_iterations=10 if max_iterations is None else max_iterations, **self.config)
        state = None if program is None else read_state(program, STATE_KEY, "refine loop")
        if state is not None:
            _load(self.task.loop, state, program)
        items, sha256 = load_items(path)
        self.items = items[:limit]
        check_items(self.task, self.items)
        request = PROMPT if prompt is None else prompt.read_text(encoding="utf-8")
        if instructscore is not None and "reference" not in self.task.fields:
            raise ValueError(f"--instructscore compares with a reference: the task {task} has none.")
        if instructscore is not None and options.get("feedback") == "own":
            raise ValueError("--instructscore is external feedback: add --feedback external.")
        if instructscore is None and prompt is not None:
            raise ValueError("--instructscore-prompt is a request to a model: name it with --instructscore.")
        self.seed, self.options = seed, options
        self.lm = open_lm(lm, **models)
        self.lm.cache = False  # the log is what a stopped run goes on from, and tokens are counted as spent
        self.external: FeedbackSource = self.task.external
        settings = {"command": command, "task": task, "data": str(path), "data_sha256": sha256, "seed": seed}
        settings |= {"limit": limit, "max_iterations": max_iterations, "max_tokens": max_tokens, "program": state}
        settings |= {"lm": identity(self.lm), "instructscore": None, **options}
        if instructscore is not None:
            judge = open_lm(instructscore, **{**models, "api_base": None})
            self.external = InstructScore(judge, prompt=request)
            settings["instructscore"] = {"lm": identity(judge), "prompt": request}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:10]
        self.folder = RunFolder(out or Path("runs") / f"{command.replace(' ', '-')}-{digest}", settings)
        self.worth = CachedScorer(self.task.external, self.folder.path / "worth.jsonl")

    def refine(self, *, threads: int, as_json: bool) -> None:
        """Run the loop; what it wrote and what the task's external source thinks of it."""
        loop, source = self.task.loop, self.task.external
        if self.options["feedback"] == "external":
            loop.feedback = self.external
            if isinstance(loop.accept, Improvement):
                loop.accept = Improvement()  # a compiled margin is in points of the model's own feedback
        judged = self._aspects() if self.options["aspects"] else []
        with progress_bar(len(self.items), "refining") as advance:
            run = run_loops(
                loop, self.items, lm=self.lm, log_dir=self.folder.path, num_threads=threads, progress=advance
            )
        if len(run.failed) == len(run.loops):
            raise ValueError(f"No item came through the loop: {next(iter(run.failed.values()))}")
        worth = run.worth(self.items, self.worth)
        rows = [_output(one) for one in run.loops]
        file = self.folder.path / "outputs.jsonl"
        file.write_text("".join(json.dumps(to_json(row)) + "\n" for row in rows), encoding="utf-8")
        aspects = measure_aspects(run, self.items, judged, seed=self.seed)
        failed = {name: error for source in (*judged, self.worth) for name, error in source.failed.items()} | run.failed
        result = {
            "loops": rows,
            "ranges": {"own": [run.low, run.high], "worth": [source.low, source.high]},
            "own": run.own(),
            "worth": worth,
            "tokens": run.tokens(),
            "calls": run.calls(),
            "aspects": aspects,
            "failed": failed,
        }
        shown = [loop_table(run, worth, source.name), *([aspects_table(aspects)] if aspects else [])]
        self._finish(result, shown, as_json, failed)

    def compile(self, *, threads: int, as_json: bool) -> None:
        """Compile the loop; own and external feedback side by side."""
        train, test = data.split(self.items, seed=self.seed, test_fraction=self.options["test_fraction"])
        names = ("k", "until", "budget")
        optimizer = ExternalFeedbackRefine(
            self.external,
            worth=self.task.external,
            num_threads=threads,
            seed=self.seed,
            log_dir=self.folder.path / "loops",
            **{name: self.options[name] for name in names},
        )
        with progress_bar((len(optimizer.margins) + 2) * len(train) + 2 * len(test), "refining") as optimizer.progress:
            compiled = optimizer.compile(self.task.loop, trainset=train, valset=test, lm=self.lm)
        compiled.save(str(self.folder.path / "program.json"))
        report = compiled.report
        sides_plot(report, self.folder.path / "sides.png")
        found = [*report.own, report.external, report.shown, report.validation.before, report.validation.after]
        failed = {name: error for side in found if side for name, error in side.failed.items()}
        self._finish({"report": report}, [refine_table(report)], as_json, failed)

    def style(self, *, threads: int, as_json: bool) -> None:
        """Paraphrase the items' outputs; the model's own scores before and after, beside what the texts are worth."""
        for item in self.items:
            if not str(item.get("output") or "").strip():
                raise ValueError(f"The item {item.id!r} has no 'output': give an outside output to paraphrase.")
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
        names = ("outside output", "own paraphrase")
        before, after = report.own - report.worth
        differences_plot(before, after, self.folder.path / "differences.png", names=names)
        self._finish({"report": report}, [style_table(report)], as_json, report.failed)

    def _aspects(self) -> list[CachedScorer]:
        """Judges of fluency and understandability by the same model, each with a log.

        Raises:
            NotImplementedError: The model measures no probabilities.
        """
        measuring(self.lm)
        done = []
        for criterion in (FLUENCY, UNDERSTANDABILITY):
            judge = PointwiseJudge(criterion)
            judge.predict.lm = self.lm
            source = JudgeFeedback(judge, source=self.task.source)
            done.append(CachedScorer(source, self.folder.path / f"{criterion.name}.jsonl"))
        return done

    def _finish(self, result: Mapping[str, Any], shown: list[Any], as_json: bool, failed: Mapping[str, str]) -> None:
        self.folder.write_result(result)
        for name, error in failed.items():
            typer.echo(f"The item {name!r} failed: {error}", err=True)
        if as_json:
            sys.stdout.write(json.dumps(to_json(result)) + "\n")
            return
        console = Console()
        for table in shown:
            console.print(table)
        console.print(f"run folder: {self.folder.path}", soft_wrap=True)


def _load(loop: Any, state: Mapping[str, Any], file: Path | None) -> None:
    try:
        loop.load_state(state)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{file} is a compiled loop of another task: {error}") from error


def _output(one: Loop) -> dict[str, Any]:
    last = one.at(one.steps[-1].iteration) if one.steps else None
    told = {"output": None, "score": None} if last is None else {"output": last.output, "score": last.score}
    return {"id": one.id, **told, "stopped": one.stopped, "error": one.error, "steps": [asdict(s) for s in one.steps]}
