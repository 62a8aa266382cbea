"""One run of a command: its folder, its models behind the store of answers, and its outcome."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from evalbias.cli.items import Task
from evalbias.cli.models import hosted_name, identity, open_lm, sampling_of
from evalbias.cli.options import ModelOptions
from evalbias.cli.terminal import PlainConsole, Resumable, Shown, plan, print_json, progress
from evalbias.evaluation.conclusions import worsened
from evalbias.evaluation.estimates import Comparison
from evalbias.evaluation.words import coverage_warning
from evalbias.lm.cache import JournaledLM
from evalbias.lm.contract import ContractLM, measuring
from evalbias.lm.fingerprint import same_sample
from evalbias.lm.types import ModelChanged
from evalbias.measures.arrays import FloatArray
from evalbias.optimizers.selection import GIVEN, CompileReport
from evalbias.report.blocks import Section
from evalbias.report.page import FILE, write_report
from evalbias.report.tables import coverage_note
from evalbias.runs import RunFolder, write_whole
from evalbias.values import read_json, to_json

# Write a compiled program only if it is better than the one that was given, or if asked to.


def keep(
    program: Any,
    report: CompileReport,
    path: Path,
    *,
    compared: Mapping[str, Comparison],
    keep_worse: bool,
    kind: str = "judge",
) -> str:
    """Write a compiled program if it is better than the given one; returns a sentence that says what was done.

    An optimizer that chooses on held-back items has decided what is better. The bare method of a paper decides nothing;
    its result is written unless the test items show that it is worse.

    Args:
        program: What the optimizer returned.
        report: Its report.
        path: JSON file to write.
        compared: Bias or agreement -> the given against the compiled program on the test items.
        keep_worse: Write it all the same.
        kind: What the program is, in words.
    """
    if report.candidates:
        if any(one.chosen and one.name != GIVEN for one in report.candidates):
            program.save(str(path))
            return f"{path.name} holds the compiled {kind}."
        if not keep_worse:
            return (
                f"No {kind} was written, because nothing was better than the given one; --keep-worse writes the given "
                "one."
            )
        program.save(str(path))
        return f"{path.name} holds the {kind} as it was given, because nothing was better."
    worse = worsened(compared)
    if worse and not keep_worse:
        return (
            f"No {kind} was written, because the bare method made it worse on the test items ({'; '.join(worse)}); "
            "--keep-worse writes it all the same."
        )
    program.save(str(path))
    if worse:
        return f"{path.name} holds a {kind} that is worse than the given one on the test items ({'; '.join(worse)})."
    return (
        f"{path.name} holds the bare method's {kind}; nothing was kept back to show that it is better, and the test "
        "items do not show that it is worse."
    )


# An open run of a command: models behind the run folder's journal, a progress bar, and the printed result.


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
        self._left, self._planned, self._verified = 0, False, 0
        self._name, self._yes, self._exact = lm or likelihood_lm or "", opened.yes, opened.exact_resume
        self._hosted = None if opened.api_base is not None else hosted_name(self._name)
        self.folder = RunFolder(out, settings)
        try:
            asked = None if judge is None else measuring(judge)
            self._watch = ModelWatch(
                self.folder, asked, lambda: [self.folder.journal], sampled=self._sampling is not None
            )
            self._journals = [] if judge is None else [self._journaled(asked, self.folder.journal)]
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
                self._check_model()
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
        self._check_model()
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
            between=self._watch.check_again,
            exact_resume=self._exact,
        )

    def _plan(self, questions: Sequence[Any]) -> None:
        """Tell the plan before the first question of the run, if it is a long one, and look whose answers come."""
        if not self._planned and self._shown is not None:
            self._planned = True
            with self._shown.paused():
                plan(questions, self._left, self._name, hosted=self._hosted, yes=self._yes)
        self._watch.check_again()

    def _check_model(self) -> None:
        """Compare the model with the first one, if it answered since that was done; see ``ModelWatch.check``."""
        asked = sum(lm.asked for lm in self._journals)
        if asked > self._verified:
            self._watch.check()
            self._verified = asked

    def _advance(self, count: int) -> None:
        self._left -= count
        if self._shown is not None:
            self._shown.advance(count)


class ModelWatch:
    """Refuses the answers of another model under the name of a run's model: any weights may be served under it.

    The model is asked for its sample (see ``evalbias.lm.fingerprint``) before the first answer of a run that begins
    or goes on, every ``EVERY`` seconds, and after the last answer; never if all answers are there. Where two samples
    in a row differ, the answers between them may be either model's: they are cut off the run's journals.

    Args:
        folder: The run's folder, which keeps the first sample.
        lm: Model of the run. One without samples is known by its files, and not watched.
        journals: Function that returns the files to which answers are appended.
        sampled: Whether probabilities are estimated from answers. Any ``dspy.LM``, which need not report them then, is
            only known by the names in its answers.

    Raises:
        ValueError: The sample in the folder is damaged.
    """

    EVERY = 60.0
    ATTEMPTS = 3  # now and then a hosted model differs from itself by more than rounding

    def __init__(
        self, folder: RunFolder, lm: Any, journals: Callable[[], Iterable[Path]], *, sampled: bool = False
    ) -> None:
        self._folder, self._lm, self._journals = folder, lm, journals
        self._file = folder.path / "sample.json"
        self._watched = hasattr(lm, "samples")
        self._unsampled = sampled and isinstance(lm, ContractLM)
        self._first: FloatArray | None = None
        self._sure: dict[Path, int] | None = None  # sizes of the journals at the last check
        self._checked = -math.inf
        if self._watched:
            self._read()

    def check_again(self) -> None:
        """Compare the model with the first one if that was never done, or ``EVERY`` seconds ago; see ``check``."""
        if self._watched and time.monotonic() - self._checked >= self.EVERY:
            self.check()

    def check(self) -> None:
        """Compare the model with the first one.

        Raises:
            ModelChanged: It is another one. What was journaled since the last check is cut off.
        """
        if not self._watched:
            return
        sizes = {path: path.stat().st_size for path in filter(Path.exists, self._journals())}
        for _ in range(self.ATTEMPTS):
            samples = [] if self._unsampled else self._lm.samples()
            if self._first is None or all(same_sample(self._first, sample) for sample in samples):
                break
        else:
            raise ModelChanged(
                f"{self._lm.model} answers otherwise than when {self._folder.path} was begun: is there another model "
                f"under the same name? {self._cut()}Serve the first model again and repeat the command, or choose "
                "another --out or delete the folder."
            )
        if self._sure is None and self._first is None and samples:
            self._first = samples[0]
        self._sure, self._checked = sizes, time.monotonic()
        self._write()

    def _cut(self) -> str:
        """Cut the answers since the last check off the journals and say how many, unless the run is only going on."""
        if self._sure is None:
            return ""
        lost = 0
        for path in filter(Path.exists, self._journals()):
            sure = self._sure.get(path, 0)
            lost += path.read_bytes()[sure:].count(b"\n")
            os.truncate(path, sure)
        return f"Its last {lost} answers are dropped, as they may be either model's. " if lost else ""

    def _read(self) -> None:
        """Read the first model's sample and names, where the run goes on.

        Raises:
            ModelChanged: Answers carry other names.
            ValueError: The file is damaged.
        """
        if not self._file.exists():
            return
        kept = read_json(self._file)
        try:
            self._first = None if kept["sample"] is None else np.array(kept["sample"], dtype=np.float64)
            names = {kind: list(map(str, known)) for kind, known in kept["names"].items() if known}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self._file} is damaged ({error!r}): delete the folder {self._folder.path} to start over."
            ) from error
        for answering in self._lm.answering:
            answering.expect(names)

    def _write(self) -> None:
        names: dict[str, list[str]] = {}
        for answering in self._lm.answering:
            for kind, name in answering.names.items():
                names[kind] = sorted({*names.get(kind, []), name})
        content = json.dumps({"sample": None if self._first is None else self._first.tolist(), "names": names})
        if not self._file.exists() or self._file.read_text(encoding="utf-8") != content:
            write_whole(self._file, content)


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
        print_json(to_json(brief))
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
