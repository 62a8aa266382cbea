"""The shape of every optimizer of ours: the checks, the model, the comparison and the report are the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy
from dspy.teleprompt import Teleprompter

from evalbias.evaluation.comparison import Comparison, compare
from evalbias.evaluation.judged import Judged, check_pairs, judge_examples
from evalbias.evaluation.registry import measure_all
from evalbias.lm.contract import measuring, resolve_lm
from evalbias.lm.counting import CountingLM
from evalbias.lm.types import MeasuringLM
from evalbias.optimizers.inside import find_part, tell_ignored, with_part
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.runs.fingerprint import describe
from evalbias.runs.lock import lock_folder

NOT_SETTINGS = ("kind", "log_dir", "progress", "seed")
"""Attributes of an optimizer that decide no number."""


@dataclass(frozen=True)
class Cost:
    """Resources that compiling took.

    Attributes:
        judgments: Prompts that the model answered with measured choices, for the search and the comparison.
        likelihoods: Texts whose likelihood was measured.
        calls: Requests to generate text.
        seconds: Wall-clock time; not part of results, which a resumed run repeats exactly.
    """

    judgments: int = 0
    likelihoods: int = 0
    calls: int = 0
    seconds: float = field(default=0.0, compare=False, repr=False)

    def to_dict(self) -> dict[str, int]:
        """Return the reproducible amounts."""
        return {"judgments": self.judgments, "likelihoods": self.likelihoods, "calls": self.calls}


@dataclass(frozen=True, kw_only=True)
class CompileReport:
    """Report of every optimizer; each adds fields of its own.

    Attributes:
        chosen: The choice that was compiled into the program, in words.
        comparison: Bias -> the baseline against the compiled program on the valset; empty without a valset.
        before: The baseline's answers on the valset; None without one.
        after: The compiled program's answers on the valset; None without one.
        cost: Resources that compiling took.
        seed: Seed of the optimizer.
        settings: The optimizer's other settings.
    """

    chosen: str
    comparison: Mapping[str, Comparison] = field(default_factory=dict)
    before: Judged | None = None
    after: Judged | None = None
    cost: Cost = field(default_factory=Cost)
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """Result of a search.

    Attributes:
        program: The compiled program.
        baseline: The program that it is compared with.
        details: Fields of the optimizer's report, beyond those that every report has.
    """

    program: Any
    baseline: Any
    details: Mapping[str, Any]


@dataclass
class Problem:
    """Input of a search.

    Attributes:
        student: The program to compile; the search leaves it as it is.
        trainset: Training examples.
        valset: Validation examples, which only report; empty where none were given.
        lm: The student's model, counted; None where it is resolved module by module.
        likelihood_lm: Model whose likelihood defines LS; None where the method needs none.
        calls: Requests to generate text so far; the search adds them up.
    """

    student: Any
    trainset: list[dspy.Example]
    valset: list[dspy.Example]
    lm: Any
    likelihood_lm: MeasuringLM | None = None
    calls: int = 0


class JudgeOptimizer(Teleprompter):  # type: ignore[misc]
    """Base of the optimizers; a subclass writes ``search`` and, if its report has more fields, sets ``report_type``.

    Args:
        n_resamples: Swaps of each permutation test in the comparison.
        budget: Largest number of prompts or requests in the search; None sets no limit.
        seed: Seed for everything that the search draws and for the tests.
        log_dir: Folder in which the search is logged; started again, it continues from there. None keeps no log.
        progress: Called with the number of judgments done.
    """

    report_type: type[CompileReport] = CompileReport
    compiles: tuple[type, ...] = (PairwiseJudge, PointwiseJudge)
    """Classes of programs that the method compiles."""

    needs_probabilities = True
    """If True, the student's model must measure probabilities."""

    def __init__(
        self,
        *,
        n_resamples: int = 100_000,
        budget: int | None = None,
        seed: int = 0,
        log_dir: Path | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        if budget is not None and budget < 1:
            raise ValueError(f"budget={budget}: allow at least one prompt, or None for no limit.")
        self.n_resamples = n_resamples
        self.budget = budget
        self.seed = seed
        self.log_dir = log_dir
        self.progress = progress

    def compile(
        self,
        student: Any,
        *,
        trainset: Sequence[dspy.Example],
        teacher: Any = None,
        valset: Sequence[dspy.Example] | None = None,
        lm: Any = None,
        part: str | None = None,
        **options: Any,
    ) -> Any:
        """Compile a copy of the student, or of the judge or loop inside it.

        Args:
            student: Program to compile, or a program that holds it at any depth; it is left as it is.
            trainset: Training examples; see the class for what they must hold.
            teacher: Not used, and logged: no optimizer of ours learns from another program.
            valset: Other examples, on which the baseline and the compiled program are compared.
            lm: Model for the student. Defaults to its own, else DSPy's.
            part: Path of the module to compile, such as ``"judge"``, where the student holds several.
            **options: Arguments of other optimizers (``num_threads`` and others); not used, and logged.

        Returns:
            The compiled program, with everything around it. Its ``report`` is a ``CompileReport`` of the class's
            ``report_type``.

        Raises:
            TypeError: The student holds nothing that this optimizer compiles.
            ValueError: Several modules to compile and none named, unusable examples, or shared examples.
        """
        name = type(self).__name__
        tell_ignored(name, {"teacher": teacher, **options})
        whole, (path, student) = student, find_part(student, self.compiles, part, optimizer=name)
        train, held_out = list(trainset), list(valset or [])
        self.check(student, train, held_out)
        started = time.monotonic()
        lm = CountingLM(measuring(resolve_lm(lm, student.predict))) if self.needs_probabilities else lm
        problem = Problem(student, train, held_out, lm)
        if self.log_dir is not None:
            self.log_dir.mkdir(parents=True, exist_ok=True)
        with nullcontext() if self.log_dir is None else lock_folder(self.log_dir):
            outcome = self.search(problem)
            fields = {**self.validate(problem, outcome), **outcome.details}
        cost = Cost(calls=problem.calls, seconds=time.monotonic() - started)
        if isinstance(lm, CountingLM):
            calls = problem.calls + lm.texts
            cost = replace(cost, judgments=lm.judgments, likelihoods=lm.likelihoods, calls=calls)
        settings = {name: value for name, value in describe(self).items() if name not in NOT_SETTINGS}
        program = with_part(whole, self.compiles, path, outcome.program)
        program.report = self.report_type(**fields, cost=cost, seed=self.seed, settings=settings)
        return program

    def check(self, student: Any, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """Refuse examples that the method cannot use.

        Raises:
            ValueError: There are no training examples, or some of them are in the valset.
        """
        if not trainset:
            raise ValueError("The trainset is empty: give training examples.")
        if isinstance(student, PairwiseJudge):
            check_pairs(valset)
        check_disjoint(trainset, valset, _identity)

    def search(self, problem: Problem) -> Outcome:
        """Find the program; this is all that a method has to write."""
        raise NotImplementedError

    def validate(self, problem: Problem, outcome: Outcome) -> dict[str, Any]:
        """Compare the baseline and the compiled program on the valset; returns fields of the report."""
        if not problem.valset:
            return {}
        before, after = (
            judge_examples(
                program,
                problem.valset,
                lm=problem.lm,
                likelihood_lm=problem.likelihood_lm,
                reduction=getattr(self, "reduction", "sum"),
                progress=self.progress,
            )
            for program in (outcome.baseline, outcome.program)
        )
        return {"before": before, "after": after, "comparison": self.compare(before, after)}

    def compare(self, before: Judged, after: Judged) -> dict[str, Comparison]:
        """Compare two programs' answers on every bias that applies."""
        first, second = (measure_all(judged, seed=self.seed) for judged in (before, after))
        return {
            bias: compare(first[bias], second[bias], n_resamples=self.n_resamples, seed=self.seed)
            for bias in first
            if bias in second
        }


def check_disjoint(
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
    key: Callable[[dspy.Example], Any],
    *,
    noun: str = "items",
) -> None:
    """Refuse sets that share examples.

    Args:
        trainset: Training examples.
        valset: Validation examples.
        key: What makes two examples the same.
        noun: What the error calls them.

    Raises:
        ValueError: Some examples are in both; the first is named.
    """
    seen = {key(e) for e in trainset}
    both = {key(e): e for e in valset if key(e) in seen}
    if both:
        first = next(iter(both.values()))
        name = str(first.get("id") or first.get("ids") or first.get("source"))[:60]
        raise ValueError(f"{len(both)} {noun} are in trainset and valset, the first {name!r}: split them.")


def _identity(example: dspy.Example) -> tuple[Any, ...]:
    """Return what makes an example the same as another: its id, if any, and texts; the order of a pair does not count.

    Two systems may write the same text, so the texts of two ids are not compared.
    """
    return (example.get("id"), example.source, example.get("output"), *sorted(example.get("candidates") or []))
