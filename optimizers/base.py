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

from evalbias.data.pairing import input_key
from evalbias.evaluation.comparison import Comparison, compare
from evalbias.evaluation.judged import Judged, judge_examples
from evalbias.evaluation.registry import measure_all
from evalbias.lm.contract import measuring, resolve_lm
from evalbias.lm.counting import CountingLM
from evalbias.optimizers.compile_report import CompileReport, Cost
from evalbias.optimizers.inside import find_part, tell_ignored, with_part
from evalbias.optimizers.selection import Candidate, Rule, choose
from evalbias.optimizers.splits import check_disjoint, hold_back, identity
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.usable import check_pairs, usable_item, usable_pair
from evalbias.runs.fingerprint import describe
from evalbias.runs.lock import lock_folder

NOT_SETTINGS = ("kind", "log_dir", "progress", "seed")
"""Attributes of an optimizer that decide no number."""


@dataclass(frozen=True)
class Outcome:
    """Result of a search.

    Attributes:
        candidates: Programs that may be compiled, at least one; the bare method compiles the first.
        given: The program that was given, with what the report says if it is kept.
        baseline: The program that the bare method's result is compared with on the valset.
        details: Fields of the optimizer's report, beyond those that every report has and those of the candidates.
    """

    candidates: Sequence[Candidate]
    given: Candidate
    baseline: Any
    details: Mapping[str, Any]


@dataclass
class Problem:
    """Input of a search.

    Attributes:
        student: The program to compile; the search leaves it as it is.
        trainset: Training examples to search on, without those that are held back.
        held_back: Training examples to choose on; empty with ``select=False``.
        valset: Validation examples, which only report; empty where none were given.
        lm: The student's model, counted; None where it is resolved module by module.
        counter: The counting model under ``lm``; None where it is resolved module by module.
        likelihood_lm: Model whose likelihood defines LS; None where the method needs none.
        calls: Requests to generate text so far; the search adds them up.
    """

    student: Any
    trainset: list[dspy.Example]
    valset: list[dspy.Example]
    lm: Any
    held_back: list[dspy.Example] = field(default_factory=list)
    counter: CountingLM | None = None
    likelihood_lm: Any = None
    calls: int = 0


class JudgeOptimizer(Teleprompter):  # type: ignore[misc]
    """Base of the optimizers: a search offers candidates, and one that is better than the given program is compiled.

    Half of the trainset's inputs are kept back. On their items, the candidates of the search are compared with the
    given program in paired tests, and the given program is returned unless a candidate is significantly better; the
    report says which and why. The valset only reports. A subclass writes ``search`` and ``rule``, and sets
    ``report_type`` if its report has more fields.

    Args:
        select: False searches on the whole trainset and returns the method's result as it is, which may be worse than
            the given program: the papers' bare methods.
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
        select: bool = True,
        n_resamples: int = 100_000,
        budget: int | None = None,
        seed: int = 0,
        log_dir: Path | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        if budget is not None and budget < 1:
            raise ValueError(f"budget={budget}: allow at least one prompt, or None for no limit.")
        self.select = select
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
        train, held_out = self.usable(student, trainset or ()), self.usable(student, valset or ())
        self.check(student, train, held_out)
        held_back: list[dspy.Example] = []
        if self.select:
            train, held_back = hold_back(train, self.input_of, seed=self.seed)
            self.check_fit(student, train)
        started = time.monotonic()
        lm = CountingLM(measuring(resolve_lm(lm, student.predict))) if self.needs_probabilities else lm
        counter = lm if isinstance(lm, CountingLM) else None
        problem = Problem(student, train, held_out, lm, held_back, counter)
        if self.log_dir is not None:
            self.log_dir.mkdir(parents=True, exist_ok=True)
        with nullcontext() if self.log_dir is None else lock_folder(self.log_dir):
            outcome = self.search(problem)
            chosen, baseline, fields = self._select(problem, outcome)
            fields |= {"chosen": chosen.name, **outcome.details, **chosen.details}
            fields |= self.validate(problem, baseline, chosen.program)
        cost = replace(_spent(problem), seconds=time.monotonic() - started)
        settings = {name: value for name, value in describe(self).items() if name not in NOT_SETTINGS}
        result = chosen.program.deepcopy() if chosen.program is student else chosen.program
        program = with_part(whole, self.compiles, path, result)
        program.report = self.report_type(**fields, cost=cost, seed=self.seed, settings=settings)
        return program

    def _select(self, problem: Problem, outcome: Outcome) -> tuple[Candidate, Any, dict[str, Any]]:
        """Return what is compiled, what it is compared with on the valset, and fields of the report."""
        if not self.select:
            return outcome.candidates[0], outcome.baseline, {}
        selection = choose(
            outcome.given,
            outcome.candidates,
            self.rules(problem),
            spent=lambda: _spent(problem),
            inputs=len(set(map(self.input_of, problem.held_back))),
        )
        fields = {**selection.fields, **self.beside(problem, outcome, selection.answers)}
        return selection.chosen, outcome.given.program, fields

    def beside(self, problem: Problem, outcome: Outcome, answers: Any) -> dict[str, Any]:
        """Return further fields of the report about the chosen program's answers on the held-back items."""
        return {}

    def usable(self, student: Any, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Return the examples as the student reads them.

        Raises:
            ValueError: An example lacks a text that the student reads; it is named.
        """
        if isinstance(student, PairwiseJudge):
            return [usable_pair(e, i) for i, e in enumerate(examples)]
        if isinstance(student, PointwiseJudge):
            return [usable_item(e, i) for i, e in enumerate(examples)]
        return list(examples)

    def input_of(self, example: dspy.Example) -> str:
        """Identify the input of an example; the examples of one input are kept back together."""
        return input_key(example)

    def check(self, student: Any, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """Refuse examples that the method cannot use.

        Raises:
            ValueError: There are no training examples, or some of them are in the valset.
        """
        if not trainset:
            raise ValueError("The trainset is empty: give training examples.")
        if isinstance(student, PairwiseJudge):
            check_pairs(valset)
            for key in (input_key, lambda e: e.source):  # outputs of one input are compared with each other
                check_disjoint(trainset, valset, key, noun="inputs")
        check_disjoint(trainset, valset, identity)

    def check_fit(self, student: Any, trainset: Sequence[dspy.Example]) -> None:
        """Refuse a trainset that is too small to search on once half of it is held back.

        Raises:
            ValueError: It is too small for the method.
        """
        try:
            self.check(student, trainset, ())
        except ValueError as error:
            raise ValueError(
                f"{error} Half of the inputs are kept back to choose on: give more, or select=False."
            ) from error

    def search(self, problem: Problem) -> Outcome:
        """Find candidates; the program that was given is not one of them."""
        raise NotImplementedError

    def rules(self, problem: Problem) -> Sequence[Rule]:
        """Return the rules by which a candidate is better than the given program on ``problem.held_back``, in order."""
        raise NotImplementedError

    def validate(self, problem: Problem, baseline: Any, program: Any) -> dict[str, Any]:
        """Compare the baseline and the compiled program on the valset; returns fields of the report."""
        if not problem.valset:
            return {}
        before = self.judge(problem, baseline, problem.valset)
        after = before if program is baseline else self.judge(problem, program, problem.valset)
        return {"before": before, "after": after, "comparison": self.compare(before, after)}

    def judge(self, problem: Problem, program: Any, examples: Sequence[dspy.Example]) -> Judged:
        """Have a judge answer examples, with the covariates of the method."""
        return judge_examples(program, examples, lm=problem.lm, progress=self.progress)

    def compare(self, before: Judged, after: Judged) -> dict[str, Comparison]:
        """Compare two programs' answers on every bias that applies."""
        first, second = (measure_all(judged, seed=self.seed) for judged in (before, after))
        return {
            bias: compare(first[bias], second[bias], n_resamples=self.n_resamples, seed=self.seed)
            for bias in first
            if bias in second
        }


def _spent(problem: Problem) -> Cost:
    """Return what a compilation has taken so far."""
    counter = problem.counter
    if counter is None:
        return Cost(calls=problem.calls)
    return Cost(counter.judgments, counter.likelihoods, problem.calls + counter.texts)
