"""An open run of a command: models behind the run folder's journal, a progress bar, and the printed result."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from evalbias.commands.model_options import ModelOptions
from evalbias.commands.models import hosted_name, identity, open_lm, sampling_of
from evalbias.commands.plan import plan
from evalbias.commands.task import Task
from evalbias.commands.terminal import PlainConsole, Resumable, Shown, progress
from evalbias.evaluation.coverage import coverage_warning
from evalbias.lm.contract import measuring
from evalbias.lm.journal import JournaledLM
from evalbias.lm.types import SAME_MODEL
from evalbias.report.html.blocks import Section
from evalbias.report.html.page import FILE
from evalbias.report.html.run_page import write_report
from evalbias.report.tables import coverage_note
from evalbias.runs.folder import RunFolder
from evalbias.runs.journal import write_whole
from evalbias.runs.values import to_json


class Run(Resumable):
    """An open run; use it in a ``with``, which releases its folder.

    Args:
        command: Command as the user typed it.
        task: Items and criteria that are judged.
        lm: Name of the judge's model; None opens none, for answers that are recorded.
        likelihood_lm: Name of the model whose likelihood defines LS; None takes the judge's own.
        proposer_lm: Name of the model that writes; None opens none.
        proposer_api_base: Address of that model's server.
        models: Options that decide how models are opened.
        seed: Seed of the command.
        out: Run folder; by default one under runs/, the same for the same settings.
        options: Other settings of the command that decide its numbers; a dataclass or a mapping.

    Attributes:
        folder: The run's folder.
        lm: Journaled model of the judge, which estimates probabilities from repeated answers if the options say so;
            None where none is named.
        likelihood_lm: Journaled model of the likelihood; by default the judge's.
        proposer_lm: Model that writes, not journaled; None where none is named.
    """

    def __init__(
        self,
        command: str,
        task: Task,
        *,
        lm: str | None,
        likelihood_lm: str | None = None,
        proposer_lm: str | None = None,
        proposer_api_base: str | None = None,
        models: ModelOptions | None = None,
        seed: int = 0,
        out: Path | None = None,
        options: Any,
    ) -> None:
        opened = models or ModelOptions()
        judge = None if lm is None else open_lm(lm, opened)
        likelihood = judge
        if likelihood_lm is not None:
            likelihood = open_lm(likelihood_lm, opened.of_another())  # a local model
        self.proposer_lm: Any = None
        if proposer_lm is not None:  # the same model is not loaded twice
            same = proposer_lm == lm and proposer_api_base is None
            other = replace(opened, workers=None) if same else opened.of_another(proposer_api_base)
            self.proposer_lm = judge if same and opened.workers is None else open_lm(proposer_lm, other, writes=True)
        settings = {
            "command": command,
            **task.settings(),
            "lm": None if judge is None else identity(judge),
            "likelihood_lm": None if likelihood is None else identity(likelihood),
            "seed": seed,
            **to_json(options),
        }
        if self.proposer_lm is not None:
            settings["proposer_lm"] = identity(self.proposer_lm)
        self._sampling = sampling_of(opened, seed=seed)
        if self._sampling is not None:
            settings["sampling"] = asdict(self._sampling)
        self._shown: Shown | None = None
        self._left, self._planned = 0, False
        self._name, self._yes, self._exact = lm or likelihood_lm or "", opened.yes, opened.exact_resume
        self._hosted = None if opened.api_base is not None else hosted_name(self._name)
        self.folder = RunFolder(out, settings)
        try:
            check_same_model(self.folder, judge)
            self._journals = [] if judge is None else [self._journaled(judge, self.folder.journal)]
            self.lm: Any = None if judge is None else measuring(self._journals[0], self._sampling)
            if likelihood_lm is not None:
                self._journals.append(self._journaled(likelihood, self.folder.path / "likelihoods.jsonl"))
            self.likelihood_lm: Any = self._journals[-1] if self._journals else None
        except BaseException:
            self.folder.close()
            raise

    def close(self) -> None:
        """Release the run's folder."""
        self.folder.close()

    @contextmanager
    def progress(self, total: int) -> Iterator[None]:
        """Show progress on stderr with rate and time left, for about so many answers; plan a long run."""
        samples = 1 if self._sampling is None else self._sampling.samples
        self._left = total * samples
        with progress(self._left, "judging") as self._shown:
            try:
                yield
                self._shown.end()
            finally:
                self._shown = None

    def finish(
        self,
        result: Mapping[str, Any],
        brief: Mapping[str, Any],
        as_json: bool,
        shown: Any,
        coverage: Mapping[str, Any],
        *,
        examples: Sequence[Any] = (),
        found: Any = None,
        more: Sequence[Section | None] = (),
        verdict: str = "",
    ) -> None:
        """Write result.json and report.html; print the brief result as JSON, or what is to be shown.

        Args:
            result: Content of result.json.
            brief: Content of ``--json``.
            as_json: Whether to print that.
            shown: Tables and sentences that are printed otherwise.
            coverage: Criterion -> (n,) probability that the labels hold.
            examples: The measured items in the measurements' order, for the texts in the report.
            found: What the report is made of, where the result holds only its numbers.
            more: Further sections of the report.
            verdict: First sentence of the report; empty leaves it to the findings.
        """
        self.folder.write_result(result)
        content = result if found is None else found
        warning = coverage_warning(coverage)
        said = verdict if verdict.startswith(warning) else f"{warning} {verdict}".strip()
        write_report(self.folder.path, content, verdict=said, examples=examples, more=more)
        new, replayed = (sum(getattr(lm, name) for lm in self._journals) for name in ("asked", "replayed"))
        note = f"answers asked {new}, replayed {replayed}" if self._journals else None
        if self._sampling is not None and note is not None:
            note += f"; probabilities are estimates from {self._sampling.samples} answers to each prompt"
        print_result(brief, as_json, [shown], self.folder, coverage=coverage, note=note, verdict=verdict)

    def _journaled(self, lm: Any, path: Path) -> JournaledLM:
        model = json.dumps(identity(lm), sort_keys=True)
        return JournaledLM(
            measuring(lm),
            path,
            model=model,
            progress=self._advance,
            before=self._plan,
            exact_resume=self._exact,
        )

    def _plan(self, questions: Sequence[Any]) -> None:
        """Tell the plan before the first question of the run, if it is a long one."""
        if not self._planned and self._shown is not None:
            self._planned = True
            with self._shown.paused():
                plan(questions, self._left, self._name, hosted=self._hosted, yes=self._yes)

    def _advance(self, count: int) -> None:
        self._left -= count
        if self._shown is not None:
            self._shown.advance(count)


def check_same_model(folder: RunFolder, lm: Any) -> None:
    """Refuse a server that answers otherwise than when the run began: any weights may be served under one name.

    Raises:
        ValueError: The answers to a fixed text differ.
    """
    sample = getattr(lm, "sample", None)
    if sample is None:
        return
    file = folder.path / "sample.json"
    if not file.exists():
        write_whole(file, json.dumps(sample.tolist()))
        return
    try:
        before = np.array(json.loads(file.read_text(encoding="utf-8")), dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{file} is damaged ({error}): delete the folder {folder.path} to start over.") from error
    if before.shape != sample.shape or not np.allclose(before, sample, rtol=0, atol=SAME_MODEL):
        raise ValueError(
            f"The server answers otherwise than when {folder.path} was begun: is there another model under the same "
            "name? Choose another --out or delete the folder."
        )


def print_result(
    brief: Mapping[str, Any],
    as_json: bool,
    shown: list[Any],
    folder: RunFolder,
    *,
    coverage: Mapping[str, Any] | None = None,
    note: str | None = None,
    verdict: str = "",
) -> None:
    """Print the brief result as JSON, or what is to be shown, how far the labels cover it, and the run's folder.

    A warning of low coverage comes first, unless the verdict that is shown begins with it.
    """
    if as_json:
        sys.stdout.write(json.dumps(to_json(brief), allow_nan=False) + "\n")
        return
    console = PlainConsole()
    warning = coverage_warning(coverage or {})
    first = [] if verdict.startswith(warning) else [warning, ""]
    for part in [*first, *shown]:
        console.print(part, soft_wrap=isinstance(part, str))
    if covered := coverage_note(coverage or {}):
        console.print(covered)
    if note is not None:
        console.print(note, style="dim")
    console.print(f"run folder: {folder.path}", soft_wrap=True)
    if (folder.path / FILE).exists():
        console.print(f"report: {folder.path / FILE}", soft_wrap=True)
