"""A refine loop as a command runs and compiles it."""

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
from evalbias.optimizers.external_refine import ExternalFeedbackRefine
from evalbias.programs.loops import LoopRun, run_loops
from evalbias.programs.tasks import TASKS, check_items
from evalbias.report.run import RunFolder, plain
from evalbias.report.self_bias import trajectory_plot
from evalbias.report.tables import loop_table, refine_table


class Refining:
    """An open run of a loop.

    Args:
        command: As the user typed it.
        task: Name in ``TASKS``.
        path: The items.
        lm: The model by name.
        models: How it is opened.
        max_iterations: Refinements at most.
        max_tokens: Of every answer; None leaves it to the task.
        limit: Only the first so many items.
        seed: Of the split and the tests.
        out: The folder; by default one under runs/.
        **options: What else decides the numbers.
    """

    def __init__(
        self,
        command: str,
        task: str,
        path: Path,
        lm: str,
        models: Mapping[str, Any],
        max_iterations: int,
        max_tokens: int | None,
        *,
        limit: int | None,
        seed: int,
        out: Path | None,
        **options: Any,
    ) -> None:
        config = {} if max_tokens is None else {"max_tokens": max_tokens}
        self.task = TASKS[task](max_iterations=max_iterations, **config)
        items, sha256 = load_items(path)
        self.items = items[:limit]
        check_items(self.task, self.items)
        self.seed, self.options = seed, options
        self.lm = open_lm(lm, **models)
        self.lm.cache = False  # the log is what a stopped run goes on from, and tokens are counted as spent
        settings = {"command": command, "task": task, "data": str(path), "data_sha256": sha256, "seed": seed}
        settings |= {
            "limit": limit,
            "max_iterations": max_iterations,
            "max_tokens": max_tokens,
            "lm": identity(self.lm),
            **options,
        }
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]
        self.folder = RunFolder(out or Path("runs") / f"{command.replace(' ', '-')}-{digest}", settings)

    def refine(self, *, threads: int, as_json: bool) -> None:
        """Run the loop; what it wrote and what an external source thinks of it."""
        loop = self.task.loop
        if self.options["feedback"] == "external":
            loop.feedback, loop.perfect = self.task.external, self.task.external.high
        with progress_bar(len(self.items)) as advance:
            run = run_loops(
                loop, self.items, lm=self.lm, log_dir=self.folder.path, num_threads=threads, progress=advance
            )
        worth = run.worth(self.items, self.task.external)
        rows = [_output(one) for one in run.loops]
        file = self.folder.path / "outputs.jsonl"
        file.write_text("".join(json.dumps(plain(row)) + "\n" for row in rows), encoding="utf-8")
        ends = {"own": [run.low, run.high], "worth": [self.task.external.low, self.task.external.high]}
        result = {
            "loops": rows,
            "ranges": ends,
            "own": run.own(),
            "worth": worth,
            "tokens": run.tokens(),
            "failed": run.failed,
        }
        self._finish(result, loop_table(run, worth, self.task.external.name), as_json, run)

    def compile(self, *, threads: int, as_json: bool) -> None:
        """Compile the loop; own and external feedback side by side."""
        train, test = data.split(self.items, seed=self.seed, test_fraction=self.options["test_fraction"])
        total = 2 * (len(train) + len(test))
        with progress_bar(total) as advance:
            optimizer = ExternalFeedbackRefine(
                self.task.external,
                k=self.options["k"],
                num_threads=threads,
                seed=self.seed,
                log_dir=self.folder.path / "loops",
                progress=advance,
            )
            compiled = optimizer.compile(self.task.loop, trainset=train, valset=test, lm=self.lm)
        compiled.save(str(self.folder.path / "program.json"))
        report = compiled.report
        sides = {
            f"own: {report.own.feedback}": report.own.bias,
            f"external: {report.external.feedback}": report.external.bias,
        }
        trajectory_plot(sides, self.folder.path / "trajectory.png")
        self._finish({"report": report}, refine_table(report), as_json, None)

    def _finish(self, result: Mapping[str, Any], shown: Any, as_json: bool, run: LoopRun | None) -> None:
        self.folder.write_result(result)
        for name, error in (run.failed if run else {}).items():
            typer.echo(f"The item {name!r} failed: {error}", err=True)
        if as_json:
            sys.stdout.write(json.dumps(plain(result)) + "\n")
            return
        console = Console()
        console.print(shown)
        console.print(f"run folder: {self.folder.path}", soft_wrap=True)


def _output(one: Any) -> dict[str, Any]:
    last = one.at(one.steps[-1].iteration) if one.steps else None
    told = {"output": None, "score": None} if last is None else {"output": last.output, "score": last.score}
    return {"id": one.id, **told, "stopped": one.stopped, "error": one.error, "steps": [asdict(s) for s in one.steps]}
