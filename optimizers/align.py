"""Align: the judge that agrees better with people, chosen among readings, demonstrations, wordings and guidelines."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import dspy
import numpy as np

from evalbias.data.items import human_score, input_key
from evalbias.evaluation.estimates import Comparison, Estimate
from evalbias.evaluation.judged import LEVEL_SHARES, SAMPLES, Judged, judge_examples
from evalbias.evaluation.words import count
from evalbias.lm.cache import model_identity
from evalbias.measures.corrections import ScoreCorrection
from evalbias.optimizers import offers
from evalbias.optimizers.agreement import (
    ERROR_LEVEL,
    PEARSON,
    AgreementRule,
    ErrorRule,
    agreement_of,
    comparable_biases,
)
from evalbias.optimizers.base import FEWEST_TO_CHOOSE, JudgeOptimizer, Problem
from evalbias.optimizers.offers import COMBINATION, DEMOS, GUIDELINES, LIBRARY, ORDERS, READING, Offer
from evalbias.optimizers.race import Points, Race, Ran, along, combination, reading
from evalbias.optimizers.selection import CHOICE_LEVEL, Candidate, CompileReport, Rule, Selection
from evalbias.programs.items import people_choice
from evalbias.programs.judges import likelihood_scores
from evalbias.programs.metrics import agreement_feedback
from evalbias.programs.pairwise import PairwiseJudge

ENOUGH = 240  # inputs from which half are held back; fewer are cross-fitted, so that all of them choose
SHARES = (0.25, 0.5)  # parts of the labels in a learning curve, before all of them


@dataclass(frozen=True, kw_only=True, repr=False)
class AlignReport(CompileReport):
    """Report of ``Align``.

    Attributes:
        kind: Kind of the candidate that was chosen, such as "library"; empty where the judge was kept.
        measure: How agreement is measured: "pearson", "kappa" or "accuracy".
        agreement: "before" and "after" -> the agreement on inputs that the judge was not made from.
        biases: Bias -> the given judge against the chosen one on the same inputs; empty where it was kept.
        tested_on: Those inputs in words.
        prompt_difference: Lines of the prompt that were removed (-) and added (+), of the first item.
        left_out: Candidate -> why it could not be made.
        learning_curve: (labels, agreement) of what was chosen, searched with a part of the labels; empty where the
            judge was kept, or the curve was not asked for.
    """

    kind: str = ""
    measure: str = ""
    agreement: Mapping[str, Estimate] = field(default_factory=dict)
    biases: Mapping[str, Comparison] = field(default_factory=dict)
    tested_on: str = ""
    prompt_difference: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    learning_curve: tuple[tuple[int, Estimate], ...] = ()

    @property
    def remarks(self) -> list[str]:
        """What else is to be said of the choice: the change in the prompt, and what fewer labels reach."""
        said = [f"What changed in the prompt:\n{self.prompt_difference}"] if self.prompt_difference else []
        if self.learning_curve:
            reached = ", ".join(f"{labels}: {estimate.shown}" for labels, estimate in self.learning_curve)
            said.append(f"{self.learning_curve[0][1].label} by the number of labels: {reached}.")
        return said

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *self.remarks])


@dataclass(eq=False, repr=False)
class Align(JudgeOptimizer):
    """Compiles the judge that agrees best with people, if it is shown to agree better than the given one.

    Candidates, each the best of its kind by the searched items:

    * reading: the given judge with a line through its scores, or a cut of its passes, learned on the labels; of pairs,
      both orders averaged;
    * demonstrations: random, spread over people's scores, and of highest RS;
    * library: general edits of the question (``evalbias.programs.edits``), which need no model;
    * with a ``reflection_lm``, guidelines distilled from people's reasons, and an instruction by ``dspy.GEPA``;
    * what each of ``optimizers`` compiles;
    * combinations of these, searched by Optuna.

    Half of the inputs are held back to choose on. Fewer than 240 inputs are cross-fitted instead: each half is judged
    by what the other half found, and the judge is made from all. ``AgreementRule`` chooses, or else, for a judge that
    scores, ``ErrorRule``; of what agrees best within a standard error, the shortest prompt is taken.

    The trainset holds human-rated items (``scores`` by criterion, or ``score``), or pairs with people's choice
    (``preference`` or ``better``); those without are left out. It also takes the options of every optimizer; see
    ``JudgeOptimizer``.

    Args:
        reflection_lm: Model that writes guidelines and instructions, any ``dspy.LM``; None for the kinds without.
        budget: Judgments, approximately, that racing the candidates may take; None has all of them judge every searched
            item. It is also the largest number of metric calls of ``dspy.GEPA``.
        optimizers: DSPy teleprompters, such as ``dspy.SIMBA(...)``, whose programs are candidates too.
        k: Numbers of demonstrations to try.
        reason: Field of an item in which people say why they rated it so.
        learning_curve: Whether to search again with a quarter and a half of the labels, if a judge was chosen.
        log_dir: Folder that keeps the answers, so that a search that was stopped asks nothing twice.
    """

    report_type: ClassVar[type[CompileReport]] = AlignReport
    counts_distinct = keeps_answers = True

    _: KW_ONLY
    reflection_lm: Any = None
    budget: int | None = 600
    optimizers: Sequence[Any] = ()
    k: Sequence[int] = (2, 4, 8, 16)
    reason: str = "reason"
    learning_curve: bool = True
    log_dir: Path | None = None

    def __post_init__(self) -> None:
        self.k = tuple(self.k)
        if not all(isinstance(k, int) and k > 0 for k in self.k):
            raise ValueError(f"k={self.k}: give numbers of demonstrations, each at least 1, such as (2, 4, 8).")
        if self.budget is not None and self.budget < 1:
            raise ValueError(f"budget={self.budget}: give a number of judgments, or None for all that are needed.")

    def read(self, student: Any, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Return the examples that people labeled."""
        if isinstance(student, PairwiseJudge):
            labeled = [e for e in examples if not math.isnan(people_choice(e))]
        else:
            name = student.criterion.name
            labeled = [e for e in examples if not math.isnan(human_score(e, name, required=False))]
        if examples and not labeled:
            raise ValueError(
                f"None of {count(len(examples), 'item')} has a label on {student.criterion.name!r}: align needs what "
                "people say, a score or a preference."
            )
        return super().read(student, labeled)

    def check(self, student: Any, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """Also refuse fewer labeled inputs than a choice needs; half of them are enough to search on."""
        super().check(student, trainset, valset)
        inputs = len(set(map(input_key, trainset)))
        if inputs < FEWEST_TO_CHOOSE // 2:
            raise ValueError(f"People labeled {count(inputs, 'input')}: align needs {FEWEST_TO_CHOOSE} or more.")

    def settings(self) -> dict[str, Any]:
        own = JudgeOptimizer.settings(replace(self, optimizers=(), reflection_lm=None))  # others' may hold anything
        model = None if self.reflection_lm is None else model_identity(self.reflection_lm)
        return own | {"optimizers": [type(one).__name__ for one in self.optimizers], "reflection_lm": model}

    def candidates(self, problem: Problem) -> list[Candidate]:
        problem.likelihood_lm = self._scorer(problem)
        search = _Search(self, problem)
        problem.details = {"left_out": search.left_out}
        if search.crossed:
            everything = [*problem.fit, *problem.held_back]
            answers = self.tested_on(problem, problem.student, everything)
            where = f"all {count(len(set(answers.inputs)), 'training input')} (cross-fitted)"
            problem.given = replace(problem.given, answers=answers, items=where)
        found = list(search.candidates().values())
        if not found:
            raise ValueError(f"There is nothing to try: {'; '.join(search.left_out.values())}.")
        return found

    def rules(self, problem: Problem) -> list[Rule]:
        """Better agreement at no larger bias; or else, of scores, fewer points from people's."""
        if problem.given.answers is None:
            problem.given = replace(problem.given, answers=self.tested(problem, problem.student))
        given = problem.given.answers
        assert given is not None
        measure, biases = agreement_of(given), comparable_biases(given)
        if measure is not PEARSON or not given.on_peoples_scale:
            return [AgreementRule(measure, biases=biases, seed=self.seed)]
        agreeing = AgreementRule(measure, biases=biases, level=CHOICE_LEVEL - ERROR_LEVEL, seed=self.seed)
        return [agreeing, ErrorRule(measure, biases=biases, level=ERROR_LEVEL, seed=self.seed)]

    def tested(self, problem: Problem, program: Any) -> Judged:
        return self.tested_on(problem, program, problem.held_back)

    def tested_on(self, problem: Problem, program: Any, items: Sequence[dspy.Example]) -> Judged:
        """Have a program judge items, with their likelihood as a covariate where its model reports one."""
        scorer = problem.likelihood_lm
        return judge_examples(program, items, lm=problem.lm, likelihood_lm=scorer, progress=self.progress)

    def validate(self, problem: Problem, selection: Selection) -> dict[str, Any]:
        """Also say what changed on inputs that the judge was not made from, in the prompt, and with fewer labels."""
        fields, given = super().validate(problem, selection), problem.given.answers
        if selection.answers is None or given is None:
            return fields
        measure, chosen = agreement_of(given), selection.chosen
        before, after = (measure.estimate(judged, self.seed) for judged in (given, selection.answers))
        fields |= {"measure": measure.name, "agreement": {"before": before, "after": after}}
        fields["tested_on"] = problem.given.items or count(len(set(given.inputs)), "held-back input")
        if chosen.program is problem.student:
            return fields
        old, new = (_prompt(judge, problem.held_back[0]) for judge in (problem.student, chosen.program))
        changed = difflib.unified_diff(old, new, n=0, lineterm="")
        lines = [line for line in changed if not line.startswith(("---", "+++", "@@"))]
        fields |= {"biases": self.compare(given, selection.answers), "prompt_difference": "\n".join(lines)}
        if self.learning_curve:
            labels = len(problem.fit) + (len(problem.held_back) if problem.given.items else 0)
            fields["learning_curve"] = (*self._curve(problem, str(chosen.details["kind"])), (labels, after))
        return fields

    def _curve(self, problem: Problem, kind: str) -> list[tuple[int, Estimate]]:
        """Return the agreement of the same kind of candidate, found with a part of the labels."""
        points = []
        for share in SHARES:
            search = _Search(self, problem, share=share, only=kind)
            if (candidate := search.candidates().get(kind)) is not None:
                answers = candidate.answers or self.tested(problem, candidate.program)
                points.append((search.labels, agreement_of(answers).estimate(answers, self.seed)))
        return points

    def _scorer(self, problem: Problem) -> Any:
        """Return the model if it reports likelihoods of outputs, else None."""
        if isinstance(problem.student, PairwiseJudge):
            return None
        try:
            likelihood_scores(problem.fit[:1], problem.student.criterion, problem.lm)
        except NotImplementedError:
            return None
        return problem.lm


def _prompt(judge: Any, item: dspy.Example) -> list[str]:
    return "\n".join(message["content"] for message in judge.messages(item)).split("\n")


class _Search:
    """The search for the best candidate of each kind, on one half of the inputs or on each."""

    def __init__(self, align: Align, problem: Problem, *, share: float = 1.0, only: str = "") -> None:
        self.align, self.problem, self.judge, self.only = align, problem, problem.student, only
        self.fit, self.held_back = (_part(half, share, align.seed) for half in (problem.fit, problem.held_back))
        inputs = len(set(map(input_key, [*problem.fit, *problem.held_back])))
        self.crossed = bool(problem.held_back) and inputs < ENOUGH
        self.labels = len(self.fit) + (len(self.held_back) if self.crossed else 0)
        self.left_out: dict[str, str] = {}

    def candidates(self) -> dict[str, Candidate]:
        """Return kind -> candidate; with few inputs, each half is judged by what was found on the other one."""
        problem, seed = self.problem, self.align.seed
        first = self.run(self.fit)
        if not self.crossed:
            found = {
                kind: self.candidate(one.offer, reading(one.judged, seed=seed)) for kind, one in best(first).items()
            }
            return self.asked_for(found)
        # 1. What came first on one half judges the other one, read along the line of its own half.
        second, found = self.run(self.held_back), dict[str, Candidate]()
        given, halves = problem.given.answers, ((best(second), problem.fit), (best(first), problem.held_back))
        assert given is not None
        everything = [*self.fit, *self.held_back]
        answers = self.align.tested_on(problem, self.judge, everything)
        known = {one.name: one for one in self.offers(everything, answers)}
        for kind in [kind for kind in halves[0][0] if kind in halves[1][0]]:
            raw = [self.align.answers(problem, ran[kind].offer.program, items) for ran, items in halves]
            read = [along(reading(ran[kind].judged, seed=seed), one) for one, (ran, _) in zip(raw, halves, strict=True)]
            # 2. The judge itself is made from all items, by what came first on both halves together.
            offer = made_from_all(self.judge, [one for one in (*first, *second) if one.offer.kind == kind], known)
            if offer is not None:
                candidate = self.candidate(offer, reading(both_halves(given, raw), seed=seed))
                found[kind] = replace(candidate, answers=both_halves(given, read), items=problem.given.items)
        return self.asked_for(found)

    def asked_for(self, found: Mapping[str, Candidate]) -> dict[str, Candidate]:
        """Leave out the given judge as it is, and what is only a part of what is searched."""
        return {kind: one for kind, one in found.items() if self.only in ("", kind) and one.program is not self.judge}

    def run(self, items: Sequence[dspy.Example]) -> list[Ran]:
        """Race everything on items, and then combinations of what came first; the given judge is there to be read."""
        given = self.align.tested_on(self.problem, self.judge, items)
        race = Race(self.align, self.problem, items, given)
        ran = race.run(self.offers(items, given))
        if self.only in ("", COMBINATION):
            ran += race.combined(ran)
        return [*ran, Ran(Offer(READING, "the given judge", self.judge), 0.0, given)]

    def offers(self, items: Sequence[dspy.Example], given: Judged) -> list[Offer]:
        """Return what can be made of items and the given judge's answers to them."""
        judge = self.judge
        listed = self.wanted(LIBRARY, lambda: offers.worded(judge))
        listed += self.wanted(DEMOS, lambda: self._demonstrated(items, given))
        listed += self.wanted(GUIDELINES, lambda: self._distilled(items, given))
        if isinstance(judge, PairwiseJudge) and judge.debias is None:
            listed.append(Offer(ORDERS, "both orders averaged", _both_orders(judge)))
        return [*listed, *self._taught(items)]

    def wanted(self, kind: str, offered: Callable[[], list[Offer]]) -> list[Offer]:
        """Return the offers of a kind, if it is searched; a combination is made of others."""
        return offered() if self.only in ("", COMBINATION, kind) else []

    def _demonstrated(self, items: Sequence[dspy.Example], given: Judged) -> list[Offer]:
        align = self.align
        made, left_out = offers.demonstrated(self.judge, items, given, align.k, seed=align.seed)
        self.left_out |= left_out
        return made

    def _distilled(self, items: Sequence[dspy.Example], given: Judged) -> list[Offer]:
        if (model := self.align.reflection_lm) is None:
            return []
        offer, why, calls = offers.distilled(self.judge, items, given, model, self.align.reason)
        self.problem.calls += calls
        if offer is None:
            self.left_out[GUIDELINES] = why
        return [] if offer is None else [offer]

    def _taught(self, items: Sequence[dspy.Example]) -> list[Offer]:
        """Return what DSPy's GEPA, with a model that reflects, and the user's own optimizers make of the judge."""
        align, judge = self.align, self.judge
        optimizers = {type(one).__name__: one for one in align.optimizers}
        if align.reflection_lm is not None and "GEPA" not in optimizers:
            optimizers["GEPA"] = dspy.GEPA(
                metric=agreement_feedback(judge, reason=align.reason),
                reflection_lm=align.reflection_lm,
                max_metric_calls=align.budget or 10 * len(items),
                num_threads=1,
                track_stats=False,
                seed=align.seed,
            )
        if self.only:
            optimizers = {name: one for name, one in optimizers.items() if offers.taught_by(name) == self.only}
        before = len(getattr(align.reflection_lm, "history", ()))
        made, left_out = offers.taught(judge, items, optimizers, self.problem.lm)
        self.problem.calls += len(getattr(align.reflection_lm, "history", ())) - before
        self.left_out |= left_out
        return made

    def candidate(self, offer: Offer, points: Points) -> Candidate:
        """Return an offer as a candidate, its scores read along a line or a cut if there is one."""
        program, name = offer.program, offer.name
        if points and getattr(program, "correction", None) is None:
            program, words = program.deepcopy(), "a line through" if len(points) == 2 else "a cut of"
            program.correction, name = ScoreCorrection({}, reading=points), f"{name}, with {words} the scores"
        prompts = 2 if isinstance(program, PairwiseJudge) and program.debias else 1
        price = prompts * len("\n".join(_prompt(program, self.problem.fit[0])))
        return Candidate(name, program, {"kind": offer.kind}, price=price)


def best(ran: Sequence[Ran]) -> dict[str, Ran]:
    """Return kind -> the offer that gained most."""
    found: dict[str, Ran] = {}
    for one in (one for one in ran if one.gain > -math.inf):
        if one.offer.kind not in found or one.gain > found[one.offer.kind].gain:
            found[one.offer.kind] = one
    return found


def made_from_all(judge: Any, ran: Sequence[Ran], known: Mapping[str, Offer]) -> Offer | None:
    """Return the offer of a kind that gained most on both halves, made from all items; None where it cannot be made."""
    gains: dict[str, list[float]] = {}
    for one in ran:
        gains.setdefault(one.offer.name, []).append(one.gain)
    name = max(gains, key=lambda name: (len(gains[name]), np.mean(gains[name])))
    first = next(one.offer for one in ran if one.offer.name == name)
    if first.kind == READING:
        return first
    if first.parts:
        return combination(judge, [known[part] for part in first.parts]) if {*first.parts} <= {*known} else None
    return known.get(name)


def both_halves(given: Judged, halves: Sequence[Judged]) -> Judged:
    """Return the answers to both halves as answers to all the items that the given judge answered."""
    left_out = (LEVEL_SHARES, SAMPLES)  # of the given judge's own answers
    return replace(
        given,
        answers=np.concatenate([half.answers for half in halves]),
        coverage=np.concatenate([half.coverage for half in halves]),
        reasons={**halves[0].reasons, **halves[1].reasons},
        covariates={name: column for name, column in given.covariates.items() if name not in left_out},
    )


def _part(items: Sequence[dspy.Example], share: float, seed: int) -> list[dspy.Example]:
    """Draw a part of the items by input, in their order; a smaller one is a part of a larger one."""
    keys = [input_key(item) for item in items]
    inputs = list(dict.fromkeys(keys))
    order = np.random.default_rng(seed).permutation(len(inputs))[: math.ceil(share * len(inputs))]
    kept = {inputs[i] for i in order}
    return [item for item, key in zip(items, keys, strict=True) if key in kept]


def _both_orders(judge: PairwiseJudge) -> PairwiseJudge:
    both: PairwiseJudge = judge.deepcopy()
    both.debias = "permutation"
    return both
