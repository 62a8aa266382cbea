"""The base of optimizers: search on one half of the inputs, choose on the other, and report on a valset."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import dspy
import numpy as np

from evalbias.data.items import input_key, input_keys, item_name
from evalbias.evaluation.bias import Bias, measure
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.estimates import Comparison, Measurement, compare_judges
from evalbias.evaluation.judged import LEVEL_SHARES, SAMPLES, Judged, judge_examples
from evalbias.evaluation.words import count
from evalbias.lm.cache import CachedLM, named_lm, resolve_lm
from evalbias.lm.dspy_seam import Parameter, Teleprompter
from evalbias.lm.types import Choices, Decision, Likelihood, Text
from evalbias.measures.arrays import SLACK
from evalbias.optimizers.rules import Rule
from evalbias.optimizers.selection import Candidate, CompileReport, Cost, Selection, changed, choose
from evalbias.programs.items import check_two_candidates, labeled_as_in_dspy
from evalbias.programs.judges import Judge, context_of
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.runs import lock_folder
from evalbias.values import describe, get_logger

NOT_SETTINGS = ("kind", "log_dir", "progress", "seed")  # attributes of an optimizer that decide no number

FEWEST_TO_CHOOSE = 16  # fewest inputs of a trainset: a paired test needs 8, and half is held back to choose on
ENOUGH = 120  # inputs from which half are held back; fewer are cross-fitted, so that all of them choose


@dataclass
class Problem:
    """Program and examples of a search, and what it finds. The method sets ``details``, and may replace ``given``."""

    student: Any  # the part to compile; the search leaves it as it is
    fit: list[dspy.Example]  # training examples to search on, without those that are held back
    held_back: list[dspy.Example]  # training examples to choose on; empty with select=False
    valset: list[dspy.Example]  # only reports; empty where none was given
    lm: CachedLM | Any  # the student's model, asked nothing twice; else the model for all modules, or None
    given: Candidate  # the student, with what the report says if it is kept; a bare method may have its own baseline
    likelihood_lm: Any = None  # whose likelihood defines LS; None where the method needs none
    only: str = ""  # kind of candidate that is searched; empty for all
    # what the search finds, which a search on other examples begins without
    details: dict[str, Any] = field(default_factory=dict, init=False)  # fields of the report besides the usual ones
    left_out: dict[str, str] = field(default_factory=dict, init=False)  # candidate -> why it could not be made
    calls: int = field(default=0, init=False)  # requests to generate text that lm does not count
    tokens = 0.0  # of these, as far as this process made them; NaN if unreported
    other: Problem | None = field(default=None, init=False)  # the half of the inputs that was searched before

    def on(self, fit: Sequence[dspy.Example], held_back: Sequence[dspy.Example], **changes: Any) -> Problem:
        return replace(self, fit=[*fit], held_back=[*held_back], **changes)


@dataclass(kw_only=True, eq=False, repr=False)
class JudgeOptimizer(Teleprompter):  # type: ignore[misc]
    """Base of the optimizers: a method offers candidates, and one that is better than the given program is compiled.

    Half of the trainset's inputs are kept back. On their items, paired tests compare the candidates with the given
    program, which is returned unless one is significantly better. Fewer than ``enough`` inputs are cross-fitted: each
    half is judged by what the other half made, and what is compiled is made from all, and must not be worse itself on
    the items that it does not show. The valset only reports. A method writes ``candidates`` and ``rules``, and sets
    ``report_type`` if its report has more fields.

    Args:
        select: False searches on the whole trainset and returns the method's result as it is, which may be worse than
            the given program: the papers' bare methods.
        n_resamples: Swaps of each permutation test in the comparison.
        seed: Seed for everything that the search draws and for the tests.
        progress: Called with the number of judgments done.
    """

    report_type: ClassVar[type[CompileReport]] = CompileReport
    compiles: ClassVar[tuple[type, ...]] = (PairwiseJudge, PointwiseJudge)  # classes that the method compiles
    noun = "judge"  # what it compiles, in words
    measures = True  # whether the student's model must measure probabilities
    counts_distinct = False  # whether equal prompts cost once, because the method asks them for many candidates
    keeps_answers = False  # whether the folder of the log holds the model's answers
    enough = ENOUGH
    biases: ClassVar[tuple[str, ...] | None] = None  # those that are compared on the valset; None: all that apply

    select: bool = True
    n_resamples: int = 100_000
    seed: int = 0
    progress: Callable[[int], None] | None = None
    log_dir: Path | None = field(default=None, init=False)  # folder of the search's log, where the method has one

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
            teacher: Not used, and logged.
            valset: Other examples, on which the baseline and the compiled program are compared.
            lm: Model for the student. Defaults to its own, else DSPy's.
            part: Path of the module to compile, such as ``"judge"``, where the student holds several.
            **options: Arguments of other optimizers (``num_threads`` and others); not used, and logged.

        Returns:
            The compiled program, with everything around it. Its ``report`` is of the class's ``report_type``.

        Raises:
            TypeError: The student holds nothing that this optimizer compiles.
            ValueError: Several modules to compile and none named, unusable examples, or shared examples.
        """
        if unused := sorted(name for name, value in {"teacher": teacher, **options}.items() if value is not None):
            get_logger(__name__).warning("%s.compile has no use for %s.", type(self).__name__, ", ".join(unused))
        # 1. and 2. The part to compile; the examples to search on, to choose on, and to report on.
        path, inner, fit, held_back, test = self.divide(student, trainset, valset, part)
        # 3. The model counts and remembers, so that the choice asks nothing that the search asked.
        started = time.monotonic()
        if self.log_dir is not None:
            self.log_dir.mkdir(parents=True, exist_ok=True)
        with nullcontext() if self.log_dir is None else lock_folder(self.log_dir):
            answers = self.log_dir / "answers.jsonl" if self.log_dir is not None and self.keeps_answers else None
            model = CachedLM(resolve_lm(lm, inner.predict), answers) if self.measures else named_lm(lm)
            problem = Problem(inner, fit, held_back, test, model, Candidate(f"the given {self.noun}", inner))
            self.prepare(problem)
            # 4. The method's candidates, of which the bare method takes the first.
            inputs = {input_key(e) for e in (*problem.fit, *problem.held_back)}
            crosses = self.select and len(inputs) < self.enough
            candidates = self.crossed(problem) if crosses else self.candidates(problem)
            candidates = [candidate for candidate in candidates if candidate.program is not inner]
            if not candidates:
                raise ValueError(f"There is nothing to try: {'; '.join(problem.left_out.values())}.")
            # 5. The choice between them and the given program, by paired tests on what was kept back.
            selection = Selection(candidates[0])
            if self.select:
                choice = partial(
                    choose,
                    problem.given,
                    rules=self.rules(problem),
                    test=lambda program: self.tested(problem, program),
                    spent=lambda: self._spent(problem),
                    inputs=len(set(map(input_key, held_back))),
                    noun=self.noun,
                )
                selection = choice(candidates=candidates)
                while crosses and (fault := self.fault_of_whole(problem, selection)):
                    candidates = [replace(c, fault=fault) if c is selection.chosen else c for c in candidates]
                    selection = choice(candidates=candidates)
            # 6. The valset only reports.
            comparisons = self.validate(problem, selection)
        # 7. A copy of the student holds the chosen part.
        chosen = selection.chosen
        program = with_part(student, self.compiles, path, chosen.program)
        program.report = self.report_type(
            chosen=chosen.name,
            candidates=selection.candidates,
            front=selection.front,
            tested_on=problem.given.items or CompileReport.tested_on,  # the first where it is cross-fitted
            **{"decision": selection.decision, **problem.details, **chosen.details, **comparisons},
            left_out=problem.left_out,
            cost=replace(self._spent(problem), seconds=time.monotonic() - started),
            seed=self.seed,
            settings=self.settings(),
        )
        return program

    def divide(
        self,
        student: Any,
        trainset: Sequence[dspy.Example],
        valset: Sequence[dspy.Example] | None,
        part: str | None = None,
    ) -> tuple[str, Any, list[dspy.Example], list[dspy.Example], list[dspy.Example]]:
        """Return the path of the part to compile, the part, and the examples to search, choose and report on.

        No model is asked, and everything that ``compile`` refuses without one is refused.
        """
        # 1. The part to compile, and the examples as it reads them.
        path, inner = find_part(student, self.compiles, part, optimizer=type(self).__name__)
        fit, test = ([*(side or ())] for side in (trainset, valset))
        if isinstance(inner, Judge) and inner.has_own_inputs:  # as a signature's; a file's columns may be anything
            fit, test = ([labeled_as_in_dspy(e, inner.criterion) for e in side] for side in (fit, test))
        fit, test = (self.read(inner, side) for side in (fit, test))
        self.check(inner, fit, test)
        # 2. Half of the inputs are kept back to choose on; what is left must suffice the method.
        held_back: list[dspy.Example] = []
        if self.select:
            fit, held_back = hold_back(fit, seed=self.seed)
            try:
                self.check(inner, fit, ())
            except ValueError as error:
                remedy = "Half of the inputs are kept back to choose on: give more, or select=False."
                raise ValueError(f"{error} {remedy}") from error
        return path, inner, fit, held_back, test

    def _spent(self, problem: Problem) -> Cost:
        if not self.measures:
            return Cost(calls=problem.calls, tokens=problem.tokens)
        lm = problem.lm
        counted = lm.distinct if self.counts_distinct else lm.questions
        judgments = counted[Choices] + counted[Decision]
        calls = problem.calls + counted[Text] + (counted[Choices] * lm.sampling.samples if lm.sampling else 0)
        return Cost(judgments, lm.distinct[Likelihood], calls, problem.tokens + lm.tokens)

    def settings(self) -> dict[str, Any]:
        """Return what decides the numbers besides the data, the models and the seed, as JSON data."""
        return {name: value for name, value in describe(self).items() if name not in NOT_SETTINGS}

    # Few inputs: each half is judged by what the other half made, so that all of them choose. Not each tenth by what
    # the other nine made: these overlap and share their luck, and 8 % of null effects pass where 4 % should.

    def crossed(self, problem: Problem, share: float = 1.0) -> list[Candidate]:
        """Return candidates that are made from all inputs, with the answers of what each half made to the other half.

        ``share`` is the part of each half that candidates are made from. All of it answers.
        """
        # 1. The given program answers everything.
        sides = problem.fit, problem.held_back
        if problem.given.answers is None:
            answers = self.tested(problem.on((), [*sides[0], *sides[1]]), problem.student)
            where = f"all {count(len(set(answers.inputs)), 'training input')} (cross-fitted)"
            problem.given = replace(problem.given, answers=answers, items=where)
        before = problem.given.answers
        assert before is not None
        # 2. Each half makes candidates.
        fits = [some_inputs(side, share, self.seed) for side in sides]
        first, second = (problem.on(fit, side, valset=[]) for fit, side in zip(fits, sides[::-1], strict=True))
        second.other = first
        made = [kinds_of(self.candidates(half)) for half in (first, second)]
        # 3. Each kind that both halves made is made from all inputs, with the answers of the halves.
        whole, candidates = problem.on([*fits[0], *fits[1]], ()), list[Candidate]()
        for kind, candidate in self.made_from_all(whole, (first, second), made).items():
            if candidate.answers is not None:
                candidates.append(candidate)
            elif all(kind in by_kind for by_kind in made):
                halves = zip((second, first), made[::-1], strict=True)
                both = [self.tested(half, by_kind[kind].program) for half, by_kind in halves]
                candidates.append(replace(candidate, answers=both_halves(before, both), items=problem.given.items))
            else:
                whole.left_out[candidate.name] = "half of the inputs cannot make it"
        problem.details |= whole.details
        problem.left_out = whole.left_out
        problem.calls += first.calls + second.calls + whole.calls
        problem.tokens += first.tokens + second.tokens + whole.tokens
        return candidates

    def made_from_all(
        self, problem: Problem, halves: Sequence[Problem], made: Sequence[Mapping[str, Candidate]]
    ) -> dict[str, Candidate]:
        """Return kind -> candidate made from all inputs, ``problem.fit``; the two halves ``made`` theirs by kind."""
        return kinds_of(self.candidates(problem))

    def fault_of_whole(self, problem: Problem, selection: Selection) -> str:
        """Have the chosen program, which is made from all inputs, answer those that it does not show.

        What was tested is what each half made, and all inputs may give worse demonstrations. Returns what the program
        makes worse of what it was chosen for, or significantly worse of what it must keep; empty if nothing.
        """
        program, items = selection.chosen.program, [*problem.fit, *problem.held_back]
        shown, answers = shown_by(program, items), problem.given.answers
        others = [place for place in range(len(items)) if place not in shown]
        if program is problem.student or not others or answers is None:
            return ""
        rows = np.arange(len(answers.ids)).reshape(len(items), -1)  # a probe judges each item with its edits
        before = answers.take(rows[others].ravel())
        student = replace(problem.given, answers=before, items="")
        whole = problem.on(items, [items[place] for place in others], given=student)
        after = self.tested(whole, program)
        (*_, rule) = self.rules(whole)[: selection.rule + 1]  # answers to some of the items may never differ
        fault = rule.loss(after, before)
        if rule.costs(after)[0] > rule.costs(before)[0] + SLACK:  # NaN is not
            fault = f"is worse than the given {self.noun} ({changed(*map(rule.estimates, (before, after)))})"
        return fault and f"{fault} when made from all inputs"

    # What a method writes.

    def candidates(self, problem: Problem) -> Sequence[Candidate]:
        """Return the programs that may be compiled, at least one; the program that was given is none of them."""
        raise NotImplementedError

    def rules(self, problem: Problem) -> Sequence[Rule]:
        """Return the rules by which a candidate is better than the given program on ``problem.held_back``, in order."""
        raise NotImplementedError

    # What a method may change.

    def prepare(self, problem: Problem) -> None:
        """Set what the search needs besides the examples; refuse a model that cannot do it before it judges."""

    def read(self, student: Any, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Return the examples as the student reads them; ``ValueError`` names one that lacks a text."""
        return [student.read(e, i) for i, e in enumerate(examples)]

    def check(self, student: Any, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """Refuse what the method cannot use: an empty trainset, or one that shares examples with the valset."""
        if not trainset:
            raise ValueError("The trainset is empty: give training examples.")
        if isinstance(student, PairwiseJudge):
            check_two_candidates(valset)
            for key in (input_key, lambda e: context_of(e) or input_key(e)):  # outputs of one input are compared
                check_disjoint(trainset, valset, key, noun="inputs")
        check_disjoint(trainset, valset, example_key)

    def answers(self, problem: Problem, program: Any, examples: Sequence[dspy.Example]) -> Judged:
        """Run a program on examples, with the covariates of the method."""
        return judge_examples(program, examples, lm=problem.lm, progress=self.progress)

    def tested(self, problem: Problem, program: Any) -> Judged:
        """Return what the rules see: a program's answers to the held-back items."""
        return self.answers(problem, program, problem.held_back)

    def validate(self, problem: Problem, selection: Selection) -> dict[str, Any]:
        """Compare the given and the compiled program on the valset; returns fields of the report."""
        if not problem.valset:
            return {}
        baseline, program = problem.given.program, selection.chosen.program
        before = self.answers(problem, baseline, problem.valset)
        after = before if program is baseline else self.answers(problem, program, problem.valset)
        return {"before": before, "after": after, "comparison": self.compare(before, after)}

    def compare(self, before: Judged, after: Judged) -> dict[str, Comparison]:
        """Compare two programs' answers to the same items: bias -> comparison."""
        biases = BIASES.values() if self.biases is None else [BIASES[name] for name in self.biases]
        return {
            bias.name: compare_judges(
                *(self.measured(bias, judged) for judged in (before, after)),
                n_resamples=self.n_resamples,
                seed=self.seed,
            )
            for bias in biases
            if bias.applies(before) and bias.applies(after)
        }

    def measured(self, bias: Bias, judged: Judged) -> Measurement:
        return measure(bias, judged, seed=self.seed)


def kinds_of(candidates: Sequence[Candidate]) -> dict[str, Candidate]:
    """Return the candidates by kind, or by name where they have none."""
    return {candidate.kind or candidate.name: candidate for candidate in candidates}


# Parts of programs: finding what to compile, and putting the compiled form in its place.


def find_part(student: Any, kinds: tuple[type, ...], name: str | None, *, optimizer: str) -> tuple[str, Any]:
    """Return the path and the module that an optimizer compiles: the student itself, or the (named) one inside it."""
    if isinstance(student, kinds) and name is None:
        return "self", student
    parts = _parts(student, kinds) if isinstance(student, dspy.Module) else {}
    if not parts:
        wanted = " or ".join(kind.__name__ for kind in kinds)
        subject = f"this {type(student).__name__}"
        if isinstance(student, type):
            subject = f"the class {student.__name__} (pass an instance)"
        raise TypeError(f"{optimizer} compiles a {wanted}, or a program that contains one; {subject} is neither.")
    if name is None and len(parts) == 1:
        (name,) = parts
    if name is None or name not in parts:
        fault = f"part={name!r} is none of the" if name else f"{type(student).__name__} holds several"
        raise ValueError(
            f"{fault} programs that {optimizer} compiles: name one with compile(..., part=NAME), one of "
            f"{sorted(parts)}."
        )
    return name, parts[name]


def with_part(student: Any, kinds: tuple[type, ...], path: str, compiled: Any) -> Any:
    """Return a copy of the student whose part at ``path`` has the parameters of the compiled program.

    Only parameters are taken over, also of frozen parts, so that modules which the program shares stay shared, and
    models stay as they are. The copy keeps the student's callbacks, which DSPy's copies drop.
    """
    program = (student if path != "self" else compiled).deepcopy()
    if path != "self":
        place = _parts(program, kinds)[path]
        parameters = (module.named_sub_modules(Parameter) for module in (place, compiled))
        for (_, target), (_, source) in zip(*parameters, strict=True):
            kept = {"lm": target.lm} if isinstance(target, dspy.Predict) else {}
            target.__dict__.update({**source.__dict__, **kept})
    watched = dict(student.named_sub_modules(dspy.Module))
    for name, module in program.named_sub_modules(dspy.Module):
        module.callbacks = list(watched[name].callbacks) if name in watched else module.callbacks
    return program


def _parts(program: Any, kinds: Any) -> dict[str, Any]:
    """Return the parts of some kinds by path, the frozen ones that DSPy calls compiled among them."""
    return {path.removeprefix("self."): part for path, part in program.named_sub_modules(kinds)}


# Splits of examples that share nothing: held-back inputs to choose on, and a trainset apart from its valset.


def hold_back(examples: Sequence[dspy.Example], *, seed: int) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Split a trainset at random: examples to search on, and held-back ones to choose on; refuse too few inputs.

    The sets share no input; the second has half of the inputs, rounded down.
    """
    keys = input_keys(examples)
    inputs = list(dict.fromkeys(keys))
    if len(inputs) < FEWEST_TO_CHOOSE:
        raise ValueError(
            f"The trainset has {count(len(inputs), 'input')}: choosing between candidates and the given program keeps "
            f"half of them back, and needs {FEWEST_TO_CHOOSE} or more. Give more, or select=False (--bare) for the "
            "method as its paper has it, whose result may be worse than the given program."
        )
    second = {inputs[i] for i in np.random.default_rng(seed).permutation(len(inputs))[: len(inputs) // 2]}
    pairs = list(zip(examples, keys, strict=True))
    return [e for e, key in pairs if key not in second], [e for e, key in pairs if key in second]


def some_inputs(items: Sequence[dspy.Example], share: float, seed: int) -> list[dspy.Example]:
    """Draw a part of the items by input, in their order; a smaller one is a part of a larger one."""
    keys = [input_key(item) for item in items]
    inputs = list(dict.fromkeys(keys))
    order = np.random.default_rng(seed).permutation(len(inputs))[: math.ceil(share * len(inputs))]
    kept = {inputs[i] for i in order}
    return [item for item, key in zip(items, keys, strict=True) if key in kept]


def rounds(items: int, fewest: int, rivals: int = 1, budget: float = 0) -> list[int]:
    """Return how many items are judged by the end of each round of a race, each twice the one before, the last all.

    The first round has ``fewest`` items or more, and no round is added once a ``budget`` of judgments is kept.
    """
    sizes = [items]
    while len(sizes) * rivals * sizes[0] > budget and sizes[0] >= 2 * fewest:
        sizes.insert(0, -(-sizes[0] // 2))
    return sizes


def both_halves(before: Judged, halves: Sequence[Judged]) -> Judged:
    """Return the answers to both halves as answers to all the items that the given judge answered."""
    own = (LEVEL_SHARES, SAMPLES)  # covariates of the given judge's own answers
    shares = [half.covariates[LEVEL_SHARES] for half in halves if LEVEL_SHARES in half.covariates]
    theirs = {LEVEL_SHARES: np.concatenate(shares)} if len(shares) == len(halves) else {}
    first, second = (half.asked for half in halves)
    coverage = np.concatenate([first.coverage, second.coverage])
    return replace(
        before,
        answers=np.concatenate([half.answers for half in halves]),
        asked=replace(before.asked, coverage=coverage, reasons={**first.reasons, **second.reasons}),
        covariates={name: column for name, column in before.covariates.items() if name not in own} | theirs,
    )


def shown_by(judge: Any, items: Sequence[dspy.Example]) -> frozenset[int]:
    """Return the places of the items that a judge shows in its prompts."""
    demos = [inputs for inputs, _ in judge.labeled(judge.predict.demos)]
    return frozenset(place for place, item in enumerate(items) if judge.own(item) in demos)


def check_disjoint(
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
    key: Callable[[dspy.Example], Any],
    *,
    noun: str = "items",
) -> None:
    """Refuse sets that share examples, of which ``key`` tells whether two are the same."""
    seen = {key(e) for e in trainset}
    both = {key(e): e for e in valset if key(e) in seen}
    if both:
        first = item_name(next(iter(both.values())))
        raise ValueError(f"{len(both)} {noun} are in trainset and valset, the first {first!r:.80}: split them.")


def example_key(example: dspy.Example) -> tuple[Any, ...]:
    """Return what makes examples the same: id, if any, and texts (two systems may write the same), in any order."""
    return (example.get("id"), context_of(example), example.get("output"), *sorted(example.get("candidates") or []))
