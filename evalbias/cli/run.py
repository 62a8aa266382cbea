"""A run of a command: its folder, its models behind the store of answers, and its outcome."""

from __future__ import annotations

import errno
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer

from evalbias import data
from evalbias.cli.models import hosted_name, open_lm
from evalbias.cli.terminal import STOPPED, PlainConsole, Progress, print_json, progress, tell_plan
from evalbias.evaluation.bias import Report, Section
from evalbias.evaluation.estimates import Comparison, worsened
from evalbias.evaluation.words import count, coverage_warning
from evalbias.lm.cache import CachedLM, measuring, model_identity
from evalbias.lm.contract import AnyLM, Sampling
from evalbias.lm.fingerprint import same_sample
from evalbias.lm.types import ModelChanged
from evalbias.measures.arrays import FloatArray
from evalbias.optimizers.selection import GIVEN, CompileReport
from evalbias.options import MODELS, MeasuringModels, Models, Out, recorded
from evalbias.programs.criterion import Criterion
from evalbias.programs.judges import LowCoverage
from evalbias.programs.pairwise import OnePlace
from evalbias.report.page import FILE, write_report
from evalbias.runs import RunFolder, check_free, write_whole
from evalbias.values import digest, read_json, to_json

FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a disk or a quota that is full
NO_MODEL = "grammar"  # word in the place of a model's name


@dataclass(frozen=True)
class Split:
    """Items on two sides of a split, and the criteria that they are judged on."""

    dataset: data.Dataset  # data that were read, with their hash and the rows left out
    criteria: tuple[Criterion, ...]  # at least one
    test: Sequence[Any]  # a judge is measured on them
    train: Sequence[Any] = ()  # for demonstrations, or for a search

    def settings(self) -> dict[str, Any]:
        """Return settings that affect the numbers besides the options: items and criteria themselves, not names."""
        return {
            "data_sha256": self.dataset.sha256,
            "left_out": {reason: len(ids) for reason, ids in self.dataset.left_out.items()},
            "train": _fingerprint(self.train),
            "test": _fingerprint(self.test),
            "criteria": [asdict(c) for c in self.criteria],
        }


def _fingerprint(items: Sequence[Any]) -> dict[str, Any]:
    return {"items": len(items), "ids": digest([str(e.get("id", i)) for i, e in enumerate(items)])}


@dataclass(frozen=True)
class RunOutcome:
    """Results that a command leaves in its folder and prints."""

    result: Mapping[str, Any]  # result.json
    brief: Mapping[str, Any]  # result for ``--json``
    printed: Sequence[Any]  # tables and sentences that are printed otherwise
    coverage: Mapping[str, Any] = field(default_factory=dict)  # criterion -> (n,) probability that the labels hold
    page: Any = None  # object to report, if the result holds only its numbers
    more: Sequence[Section | None] = ()  # further sections of the report
    verdict: Sequence[str] = ()  # first lines of the report; none leave them to the findings

    @classmethod
    def of(cls, report: Report, *, without: Sequence[str] = ()) -> RunOutcome:
        """Return the outcome of a command from its report; ``--json`` prints the report ``without`` some parts."""
        content, printed = to_json(report), [*report.paragraphs, *report.tables]
        brief = {name: value for name, value in content.items() if name not in without}
        return cls(content, brief, printed, page=report, verdict=report.paragraphs[:1])


class Run(AbstractContextManager["Run"]):
    """An open run; use it in a ``with``, which releases its folder. After Ctrl-C it prints how to go on.

    ``options`` holds the options, with opened models in the place of their names; models that judge are journaled.
    ``more`` are further settings that affect the numbers. If the models write (``writes``), the loops keep their
    answers.
    """

    def __init__(
        self,
        command: str,
        options: Any,
        models: Models | None,
        out: Out,
        *,
        more: Mapping[str, Any] | None = None,
        writes: bool = False,
    ) -> None:
        for category in (LowCoverage, OnePlace):
            warnings.simplefilter("ignore", category)  # the rest of the run reports it
        own = {"command": command, **recorded(options), **(more or {})}  # ``more`` replaces an option
        # 1. Refuse a folder in use before a model is opened.
        if out.out is not None:
            check_free(out.out, own)
        # 2. Each model is opened once.
        opening = MeasuringModels(**vars(models or Models()))
        opened = _open_models(options, opening, writes=writes)
        self.sampling: Sampling | None = None  # of models that estimate probabilities from answers
        if opening.samples is not None:
            self.sampling = Sampling(opening.samples, opening.sample_temperature, opening.sample_tokens, options.seed)
        # 3. The folder is of these settings.
        settings = {**own, **{name: model_identity(lm) for name, lm in opened.items()}}
        if hasattr(options, "likelihood_lm") and "lm" in settings:
            settings.setdefault("likelihood_lm", settings["lm"])
        if self.sampling is not None:
            settings["sampling"] = asdict(self.sampling)
        self.folder = RunFolder(out.out, settings)
        self._shown: Progress | None = None
        self._as_json, self._left, self._planned, self._verified = out.as_json, 0, False, 0
        self._opening = opening
        self._name = str(getattr(options, "lm", None) or getattr(options, "likelihood_lm", None) or "")
        self._models: list[CachedLM] = []
        self._asks = bool(opened)
        try:
            lm: Any = opened.get("lm")
            watched = None if lm is None else measuring(lm)
            # 4. Models that judge are called through the store of answers.
            journals = partial(self.folder.path.glob, "**/*.jsonl" if writes else self.folder.journal.name)
            self._watch = ModelWatch(self.folder, watched, journals, sampled=self.sampling is not None)
            if writes:
                lm.cache = False  # a stopped run continues from the log, and tokens are counted as spent
                self._watch.check()
            else:
                if lm is not None:
                    opened["lm"] = measuring(self._cached(watched, self.folder.journal), self.sampling)
                if "likelihood_lm" in opened:
                    path = self.folder.path / "likelihoods.jsonl"
                    opened["likelihood_lm"] = self._cached(opened["likelihood_lm"], path)
        except BaseException as error:
            self.folder.__exit__(type(error), error, None)
            raise
        self.options = replace(options, **opened)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Release the folder; after Ctrl-C and on a full disk, print what is kept and how to go on."""
        self.folder.__exit__(kind, error, trace)
        if isinstance(error, OSError) and error.errno in FULL:
            raise OSError(
                f"{error.strerror}: {error.filename or self.folder.path}. Answers that could be written are kept in "
                f"{self.folder.path}: free some space, and the same command goes on from here."
            ) from error
        if isinstance(error, KeyboardInterrupt):
            typer.echo(
                f"\nStopped. The same command goes on from here: what was answered is kept in {self.folder.path}.",
                err=True,
            )
            raise SystemExit(STOPPED)

    @contextmanager
    def progress(self, total: int, doing: str = "judging", *, longer: float = 1.0) -> Iterator[Callable[[int], None]]:
        """Show progress on stderr, with rate and time left, if a model is asked for about ``total`` answers.

        Their prompts are on average about ``longer`` times as long as the first ones.
        """
        if not self._asks:
            yield self._advance
            return
        self._left = total * (1 if self.sampling is None else self.sampling.samples)
        self._longer = longer
        with progress(self._left, doing) as self._shown:
            try:
                yield self._advance
                self.check_model()
                self._shown.end()
            finally:
                self._shown = None

    def check_model(self) -> None:
        """Compare the model with the first model, if it answered since the last check."""
        answers = self._asked()
        if answers > self._verified or not self._models:
            self._watch.check()
            self._verified = answers

    def leave(self, outcome: RunOutcome) -> None:
        """Write result.json and report.html; print the brief result as JSON, or the text for a terminal."""
        if self._models:
            self.check_model()
        self.folder.write_result(outcome.result)
        content = outcome.result if outcome.page is None else outcome.page
        warning = [*filter(None, [coverage_warning(outcome.coverage)])]
        first = [] if {*warning} <= {*outcome.verdict} else warning
        write_report(self.folder.path, content, verdict=[*first, *outcome.verdict], more=outcome.more)
        if self._as_json:
            print_json(to_json({"schema": self.folder.schema, **outcome.brief}))
            return
        console = PlainConsole()
        for part in [*first, "", *outcome.printed] if first else outcome.printed:
            console.print(part, soft_wrap=isinstance(part, str))
        if self._models:
            note = f"answers asked {self._asked()}, replayed {sum(lm.replayed for lm in self._models)}"
            if (tokens := sum(lm.tokens for lm in self._models)) > 0:  # NaN, where they are not reported, is not
                note += f"; {tokens:,.0f} tokens"
            if self.sampling is not None:
                note += f"; probabilities are estimates from {count(self.sampling.samples, 'answer')} to each prompt"
            console.print(note, style="dim")
        console.print(f"run folder: {self.folder.path}", soft_wrap=True)
        console.print(f"report: {self.folder.path / FILE}", soft_wrap=True)

    def _cached(self, lm: Any, path: Path) -> CachedLM:
        cached = CachedLM(lm, path, before=self._plan, between=self._watch.check_again, progress=self._advance)
        self._models.append(cached)
        return cached

    def _asked(self) -> int:
        return sum(lm.asked.total() for lm in self._models)

    def _plan(self, questions: Sequence[Any]) -> None:
        """Print the plan before the first question of a long run, and check which model answers."""
        if not self._planned and self._shown is not None:
            self._planned = True
            hosted = None if self._opening.api_base is not None else hosted_name(self._name)
            with self._shown.paused():
                yes = self._opening.yes
                tell_plan(questions, self._left, self._name, longer=self._longer, hosted=hosted, yes=yes)
        self._watch.check_again()

    def _advance(self, count: int) -> None:
        self._left -= count
        if self._shown is not None:
            self._shown.advance(count, known=sum(lm.replayed for lm in self._models))


def _open_models(options: Any, models: MeasuringModels, *, writes: bool) -> dict[str, Any]:
    """Open the models that options name; a model that is named twice with the same options is shared."""
    opened: dict[str, Any] = {}
    shared: dict[tuple[str, MeasuringModels], Any] = {}
    for name in MODELS:
        named = getattr(options, name, None)
        if named is None or named == NO_MODEL:
            continue
        opening, proposes = models, name in ("proposer_lm", "reflection_lm")
        address = getattr(options, "reflection_api_base" if proposes else f"{name.removesuffix('lm')}api_base", None)
        if name != "lm" and not (proposes and named == options.lm and address is None):
            opening = models.of_another(address)
        if (named, opening) not in shared:
            shared[named, opening] = open_lm(named, opening, writes=writes or proposes)
        opened[name] = shared[named, opening]
    return opened


class ModelWatch:
    """Refuses answers of another model under the name of a run's model, because a server may swap its weights.

    The model is asked for its sample (see ``evalbias.lm.fingerprint``) before the first answer of a run that begins
    or goes on, every ``EVERY`` seconds, and after the last answer; never if all answers are there. Where two samples
    in a row differ, the answers between them may be either model's: they are cut off the run's ``journals``.

    The folder keeps the first sample. A model without samples is identified by its files, and not watched. If
    probabilities are ``sampled``, a ``dspy.LM``, which need not report them, is identified by the names in its answers.
    """

    EVERY = 60.0
    ATTEMPTS = 3  # now and then a hosted model differs from itself by more than rounding

    def __init__(
        self, folder: RunFolder, lm: Any, journals: Callable[[], Iterable[Path]], *, sampled: bool = False
    ) -> None:
        self._folder, self._lm, self._journals = folder, lm, journals
        self._file = folder.path / "sample.json"
        self._watched = hasattr(lm, "samples")
        self._unsampled = sampled and isinstance(lm, AnyLM)
        self._first: FloatArray | None = None
        self._sure: dict[Path, int] | None = None  # sizes of the journals at the last check
        self._checked = -math.inf
        if self._watched:
            self._read()

    def check_again(self) -> None:
        """Compare the model with the first model, unless the last check was less than ``EVERY`` seconds ago."""
        if self._watched and time.monotonic() - self._checked >= self.EVERY:
            self.check()

    def check(self) -> None:
        """Compare the model with the first model; cut answers since the last check off the journals if they differ."""
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
        """Cut answers since the last check off the journals; return a sentence about them, empty at the first check."""
        if self._sure is None:
            return ""
        lost = 0
        for path in filter(Path.exists, self._journals()):
            sure = self._sure.get(path, 0)
            lost += path.read_bytes()[sure:].count(b"\n")
            os.truncate(path, sure)
        return f"Its last {lost} answers are dropped, as they may be either model's. " if lost else ""

    def _read(self) -> None:
        """Read the first model's sample and names, where the run goes on; answers must carry no other names."""
        if not self._file.exists():
            return
        kept = read_json(self._file)
        try:
            self._first = None if kept["sample"] is None else np.array(kept["sample"], dtype=np.float64)
            names = {kind: list(map(str, listed)) for kind, listed in kept["names"].items() if listed}
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


# Write a compiled program and describe it.


def keep(
    program: Any,
    report: CompileReport,
    path: Path,
    *,
    compared: Mapping[str, Comparison],
    kind: str = "judge",
    sampling: Sampling | None = None,
) -> str:
    """Write a compiled program, or the initial one if nothing was better, and return a sentence about it.

    An optimizer that chooses on held-back items has decided this. The bare method of a paper decides nothing,
    so the test items show what became worse: ``compared`` is bias or agreement -> initial against compiled program.
    A judge is asked as in the run, by ``sampling`` if its probabilities are estimates.
    """
    if sampling is not None:
        program.scoring, program.sampling = "sampled", sampling
    program.save(str(path))
    if any(candidate.chosen and candidate.name != GIVEN for candidate in report.candidates):
        return f"{path.name} holds the compiled {kind}."
    if report.candidates:
        return f"{path.name} holds the {kind} as it was given, because nothing was better."
    if worse := "; ".join(worsened(compared)):
        return f"{path.name} holds the bare method's {kind}, worse than the given one on the test items ({worse})."
    return (
        f"{path.name} holds the bare method's {kind}; nothing was kept back to show that it is better, and the test "
        "items do not show that it is worse."
    )
