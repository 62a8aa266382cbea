"""Base of the optimizers: what a compilation does, how its items are split, and judges inside programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from dspy.teleprompt import Teleprompter

from evalbias.data.items import item_name
from evalbias.data.pairing import input_key
from evalbias.evaluation.biases import measure_all
from evalbias.evaluation.estimates import Comparison, compare
from evalbias.evaluation.judged import Judged, judge_examples
from evalbias.evaluation.words import count
from evalbias.lm.cache import CachedLM
from evalbias.lm.contract import resolve_lm
from evalbias.lm.types import Choices, Likelihood, Text
from evalbias.optimizers.selection import Candidate, CompileReport, Cost, Rule, choose
from evalbias.programs.items import check_two_candidates, read_item, read_pair
from evalbias.programs.judges import PointwiseJudge
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.runs import lock_folder
from evalbias.values import describe, get_logger

# Parts of programs: finding what to compile, its state, and putting the compiled form in its place.


def find_part(student: Any, kinds: tuple[type, ...], name: str | None, *, optimizer: str) -> tuple[str, Any]:
    """Return the path and the module that an optimizer compiles: the student itself, or one module inside it.

    Args:
        student: Program to search.
        kinds: Classes of programs that the optimizer compiles.
        name: Path of the module, such as ``"judge"``; None if there is only one.
        optimizer: Name of the optimizer, for errors.

    Raises:
        TypeError: The student holds no such module.
        ValueError: There are several and none is named, or the name is none of theirs.
    """
    if isinstance(student, kinds) and name is None:
        return "self", student
    found = dict(student.named_sub_modules(kinds)) if isinstance(student, dspy.Module) else {}
    parts = {path.removeprefix("self."): module for path, module in found.items()}
    wanted = " or ".join(kind.__name__ for kind in kinds)
    if not parts:
        raise TypeError(
            f"{optimizer} compiles a {wanted}, or a program that contains one; {_named(student)} is neither."
        )
    if name is None and len(parts) > 1:
        raise ValueError(
            f"{type(student).__name__} holds several programs that {optimizer} compiles: name one with "
            f"compile(..., part=NAME), one of {sorted(parts)}."
        )
    if name is not None and name not in parts:
        raise ValueError(
            f"part={name!r} is none of the programs that {optimizer} compiles: choose one of {sorted(parts)}."
        )
    path = next(iter(parts)) if name is None else name
    return path, parts[path]


def _named(student: Any) -> str:
    """Return what a student is in words; a class is one that was not instantiated."""
    if isinstance(student, type):
        return f"the class {student.__name__} (pass an instance)"
    return f"this {type(student).__name__}"


def with_part(student: Any, kinds: tuple[type, ...], path: str, compiled: Any) -> Any:
    """Return a copy of the student whose part at ``path`` has the parameters of the compiled program.

    Only parameters are taken over, so that modules which the program shares stay shared, and models stay as they are.
    """
    if path == "self":
        return compiled
    program = student.deepcopy()
    place = {name.removeprefix("self."): module for name, module in program.named_sub_modules(kinds)}[path]
    for (_, ours), (_, theirs) in zip(place.named_parameters(), compiled.named_parameters(), strict=True):
        kept = {"lm": ours.lm} if isinstance(ours, dspy.Predict) else {}
        ours.__dict__.update({**theirs.__dict__, **kept})
    return program


def state_without_model(program: Any) -> dict[str, Any]:
    """Return a program's state, as for a log's key, without the models attached to it: not every model can be saved."""
    bare = program.deepcopy()
    bare.set_lm(None)
    state: dict[str, Any] = bare.dump_state()
    return state


def tell_ignored(optimizer: str, options: dict[str, Any]) -> None:
    """Log the arguments of ``compile`` that an optimizer has no use for."""
    given = sorted(name for name, value in options.items() if value is not None)
    if given:
        get_logger(__name__).warning("%s.compile has no use for %s.", optimizer, ", ".join(given))


# Splits of examples that share nothing: held-back inputs to choose on, and a trainset apart from its valset.


FEWEST_INPUTS = 8
"""Fewest inputs that a paired test can decide on."""

FEWEST_TO_CHOOSE = 2 * FEWEST_INPUTS
"""Fewest inputs of a trainset of which half is held back to choose on."""


def hold_back(
    examples: Sequence[dspy.Example], key: Callable[[dspy.Example], str], *, seed: int
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Split a trainset by input: examples to search on, and held-back ones to choose on.

    Raises:
        ValueError: There are too few inputs to choose on.
    """
    inputs = len(set(map(key, examples)))
    if inputs < FEWEST_TO_CHOOSE:
        raise ValueError(
            f"The trainset has {count(inputs, 'input')}: choosing between candidates and the given program keeps half "
            f"of them back, and needs {FEWEST_TO_CHOOSE} or more. Give more, or select=False (--bare) for the method "
            "as it is, whose result may be worse than the given program."
        )
    return halves(examples, key, seed=seed)


def halves(
    examples: Sequence[dspy.Example], key: Callable[[dspy.Example], str], *, seed: int
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Split examples at random into two sets that share no input; the second has half of the inputs, rounded down."""
    inputs = list(dict.fromkeys(map(key, examples)))
    picks = np.random.default_rng(seed).permutation(len(inputs))[: len(inputs) // 2]
    second = {inputs[i] for i in picks}
    return [e for e in examples if key(e) not in second], [e for e in examples if key(e) in second]


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
        first = item_name(next(iter(both.values())))
        raise ValueError(f"{len(both)} {noun} are in trainset and valset, the first {first!r:.80}: split them.")


def identity(example: dspy.Example) -> tuple[Any, ...]:
    """Return what makes an example the same as another: its id, if any, and texts; the order of a pair does not count.

    Two systems may write the same text, so the texts of two ids are not compared.
    """
    return (example.get("id"), example.get("source"), example.get("output"), *sorted(example.get("candidates") or []))


# The shape of every optimizer of ours: the checks, the model, the comparison and the report are the same.


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
    counter: CachedLM | None = None
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
        counter = CachedLM(resolve_lm(lm, student.predict)) if self.needs_probabilities else None
        lm = lm if counter is None else counter
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
            return [read_pair(e, i) for i, e in enumerate(examples)]
        if isinstance(student, PointwiseJudge):
            return [read_item(e, i) for i, e in enumerate(examples)]
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
            check_two_candidates(valset)
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
    judgments, likelihoods, texts = (counter.questions[kind] for kind in (Choices, Likelihood, Text))
    return Cost(judgments, likelihoods, problem.calls + texts)
