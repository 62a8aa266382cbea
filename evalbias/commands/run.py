"""Where a command's answers and results go: models behind the run folder's journal, a progress bar, the report."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from evalbias.commands.models import ANY, identity, open_lm
from evalbias.commands.task import Task
from evalbias.lm.contract import measuring
from evalbias.lm.journal import JournaledLM
from evalbias.report.tables import coverage_note
from evalbias.runs.folder import RunFolder
from evalbias.runs.values import to_json

OTHER = 0.2
"""Nats by which a server's answers differ at most while its model is the same, in 16 bits and in any company."""


def same_answers(folder: RunFolder, lm: Any) -> None:
    """Refuse a server that answers otherwise than when the run began: any weights may be served under a name.

    Raises:
        ValueError: It does.
    """
    sample = getattr(lm, "sample", None)
    if sample is None:
        return
    file = folder.path / "sample.json"
    if not file.exists():
        file.write_text(json.dumps(sample.tolist()), encoding="utf-8")
        return
    before = np.array(json.loads(file.read_text(encoding="utf-8")))
    if before.shape != sample.shape or not np.allclose(before, sample, rtol=0, atol=OTHER):
        raise ValueError(
            f"The server answers otherwise than when {folder.path} was begun: is there another model under the same "
            "name? Choose another --out or delete the folder."
        )


class Run:
    """An open run.

    Args:
        command: As the user typed it.
        task: What is judged.
        lm: The judge's model by name.
        likelihood_lm: The name of the model whose likelihood is meant; None for the judge's own.
        proposer_lm: The name of the model that writes; None for none.
        proposer_api_base: Its server's address.
        models: How models are opened; see ``open_lm``.
        seed: Of the command.
        out: The folder; by default one under runs/, the same for the same settings.
        options: The command's other settings that decide its numbers.

    Attributes:
        folder: The run's folder.
        lm: The judge's model, journaled.
        likelihood_lm: The likelihood's model, journaled; ``lm`` itself by default.
        proposer_lm: The model that writes, as it is; None where none is named.
    """

    def __init__(
        self,
        command: str,
        task: Task,
        *,
        lm: str,
        likelihood_lm: str | None = None,
        proposer_lm: str | None = None,
        proposer_api_base: str | None = None,
        models: Mapping[str, Any] | None = None,
        seed: int = 0,
        out: Path | None = None,
        options: Mapping[str, Any],
    ) -> None:
        opened = dict(models or {})
        if lm.startswith(ANY):
            raise ValueError(
                f"--lm {lm}: such a model tells no probabilities of given answers; --proposer-lm takes it."
            )
        raw = open_lm(lm, **opened)
        model, told = measuring(raw), identity(raw)
        other, other_told = (model, told)
        if likelihood_lm is not None:  # a local model
            local = open_lm(likelihood_lm, **{**opened, "api_base": None})
            other, other_told = measuring(local), identity(local)
        self.proposer_lm: Any = None
        if proposer_lm is not None:  # the same model is not loaded twice
            same = proposer_lm == lm and proposer_api_base is None
            server = {"api_base": proposer_api_base, "tokenizer": None}
            self.proposer_lm = raw if same else open_lm(proposer_lm, **{**opened, **server})
        settings = {
            "command": command,
            **task.settings(),
            "lm": told,
            "likelihood_lm": other_told,
            "seed": seed,
            **options,
        }
        if self.proposer_lm is not None:
            settings["proposer_lm"] = identity(self.proposer_lm)
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]
        self.folder = RunFolder(out or Path("runs") / f"{command.replace(' ', '-')}-{digest}", settings)
        same_answers(self.folder, raw)
        self._bar: Progress | None = None
        self.lm = self._journaled(model, self.folder.journal, told)
        self.likelihood_lm = self.lm
        if likelihood_lm is not None:
            self.likelihood_lm = self._journaled(other, self.folder.path / "likelihoods.jsonl", other_told)

    @contextmanager
    def progress(self, total: int) -> Iterator[None]:
        """A bar on stderr with rate and time left, until so many answers are there, or as many as it takes."""
        with _bar("judging") as self._bar:
            self._bar.add_task("", total=total, rate="")
            yield
            (task,) = self._bar.tasks
            self._bar.update(task.id, total=task.completed)
        self._bar = None

    def finish(
        self,
        result: Mapping[str, Any],
        brief: Mapping[str, Any],
        as_json: bool,
        shown: Any,
        coverage: Mapping[str, Any],
    ) -> None:
        """Write result.json; print the brief result as JSON, or what is to be shown and how far the labels cover it."""
        self.folder.write_result(result)
        lms = {id(lm): lm for lm in (self.lm, self.likelihood_lm)}.values()
        asked, replayed = (sum(getattr(lm, name) for lm in lms) for name in ("asked", "replayed"))
        note = f"answers asked {asked}, replayed {replayed}"
        print_result(brief, as_json, shown, coverage, self.folder, note)

    def _journaled(self, lm: Any, path: Path, told: Mapping[str, Any]) -> JournaledLM:
        return JournaledLM(lm, path, model=json.dumps(told, sort_keys=True), progress=self._advance)

    def _advance(self, count: int) -> None:
        if self._bar is not None:
            (task,) = self._bar.tasks
            self._bar.update(task.id, advance=count, rate=f"{task.speed:.0f}/s" if task.speed else "")


def print_result(
    brief: Mapping[str, Any],
    as_json: bool,
    shown: Any,
    coverage: Mapping[str, Any],
    folder: RunFolder,
    note: str | None = None,
) -> None:
    """Print the brief result as JSON, or what is to be shown, how far the labels cover it, and where it all is."""
    if as_json:
        sys.stdout.write(json.dumps(to_json(brief)) + "\n")
        return
    console = Console()
    console.print(shown, soft_wrap=isinstance(shown, str))
    if covered := coverage_note(coverage):
        console.print(covered)
    if note is not None:
        console.print(note, style="dim")
    console.print(f"run folder: {folder.path}", soft_wrap=True)


def _bar(doing: str) -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    return Progress(doing, *columns, console=Console(stderr=True))


@contextmanager
def progress_bar(total: int, doing: str) -> Iterator[Callable[[int], None]]:
    """A bar on stderr for so many items; yields what advances it."""
    with _bar(doing) as bar:
        task = bar.add_task("", total=total, rate="")
        yield lambda count: bar.update(task, advance=count)
