"""Align: the judge that agrees better with people, chosen among readings, demonstrations, wordings and guidelines."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import dspy
import numpy as np

from evalbias.data.items import TIE, human_score, input_key
from evalbias.evaluation.bias import Bias, Block, Quote, Section
from evalbias.evaluation.estimates import Comparison, Estimate, Measurement
from evalbias.evaluation.findings import AGREEMENT
from evalbias.evaluation.judged import LEVEL_SHARES, Judged, judge_examples
from evalbias.evaluation.words import count
from evalbias.lm.cache import model_identity
from evalbias.lm.dspy_seam import tokens_of
from evalbias.measures.arrays import SLACK
from evalbias.measures.corrections import ScoreCorrection
from evalbias.optimizers import offers
from evalbias.optimizers.base import FEWEST_TO_CHOOSE, JudgeOptimizer, Problem, both_halves, some_inputs
from evalbias.optimizers.offers import COMBINATION, DEMOS, GUIDELINES, LIBRARY, LINE, ORDERS, READING, Offer
from evalbias.optimizers.race import Race, Ran, combination, reading
from evalbias.optimizers.rules import (
    CHOICE_LEVEL,
    ERROR_LEVEL,
    PEARSON,
    AgreementMeasure,
    Rule,
    agreement_of,
    agreement_rule,
    comparable_biases,
    error_rule,
    mean_error,
)
from evalbias.optimizers.selection import Candidate, CompileReport, Selection
from evalbias.programs.items import people_choice
from evalbias.programs.judges import likelihood_scores
from evalbias.programs.metrics import agreement_feedback
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.values import get_logger

ENOUGH = 240  # inputs from which half are held back
CHANGED = "What changed in the prompt:"
SHARES = (0.25, 0.5)  # parts of the labels in a learning curve, before all of them


@dataclass(frozen=True, kw_only=True, repr=False)
class AlignReport(CompileReport):
    """Report of ``Align``.

    Attributes:
        kind: Kind of the candidate that was chosen, such as "library"; empty where the judge was kept.
        measure: How agreement is measured: "pearson", "kappa" or "accuracy".
        agreement: "before" and "after" -> the agreement on inputs that the judge was not made from.
        biases: Bias -> the given judge against the chosen one on the same inputs; empty where it was kept.
        prompt_difference: Lines of the prompt that were removed (-) and added (+), of the first item.
        unanswered: Number of the items to choose on to which the chosen judge gave no answer.
        learning_curve: (labels, agreement) of the chosen kind, found with a part of the labels; empty without a curve.
    """

    kind: str = ""
    measure: str = ""
    agreement: Mapping[str, Estimate] = field(default_factory=dict)
    biases: Mapping[str, Comparison] = field(default_factory=dict)
    unanswered: int = 0
    prompt_difference: str = ""
    learning_curve: tuple[tuple[int, Estimate], ...] = ()

    @property
    def by_labels(self) -> str:
        """Sentence on what fewer labels reach; empty without a learning curve."""
        reached = ", ".join(f"{labels}: {estimate.with_interval}" for labels, estimate in self.learning_curve)
        return f"{self.learning_curve[0][1].label} by the number of labels: {reached}." if reached else ""

    @property
    def lost(self) -> str:
        """Sentences on items without an answer, and on what the search had to do without; empty without any."""
        lost = f"{count(self.unanswered, 'item')} took no part: the judge gave no answer that can be read."
        asked = {GUIDELINES, "GEPA", *self.settings.get("optimizers", ())}
        left_out = [(name, why) for name, why in self.left_out.items() if name.split()[0] in asked]  # as "SIMBA 2"
        missed = [f"{name} ({why.rstrip('.')})" for name, why in left_out]
        missing = f"Not tried: {'; '.join(missed)}." if missed else ""
        return " ".join(filter(None, [lost if self.unanswered else "", missing]))

    @property
    def remarks(self) -> list[str]:
        """Further remarks on the choice: the change in the prompt, what fewer labels reach, and what is missing."""
        changed = f"{CHANGED}\n{self.prompt_difference}" if self.prompt_difference else ""
        return [*filter(None, [changed, self.by_labels, self.lost])]

    @property
    def paragraphs(self) -> list[str]:  # type: ignore[override]  # made of the numbers, not kept
        return [*super().paragraphs, *self.remarks]

    def sections(self) -> list[Section]:
        (choice,) = super().sections()
        changed: list[Block] = [CHANGED, Quote(self.prompt_difference)] if self.prompt_difference else []
        return [replace(choice, blocks=[*choice.blocks, *changed, *filter(None, [self.by_labels, self.lost])])]


@dataclass(eq=False, repr=False)
class Align(JudgeOptimizer):
    """Compiles the judge that agrees best with people, if it is shown to agree better than the given one.

    Candidates, each the best of its kind by the searched items:

    * reading: the given judge with a line through its scores, alone and with weights of the levels where the model
      reports their probabilities, or with a cut of its passes, learned on the labels; of pairs, both orders averaged;
    * demonstrations: random, spread over people's scores, and of highest RS;
    * library: general edits of the question (``evalbias.programs.edits``), which need no model, and no cue;
    * with a ``reflection_lm``, guidelines distilled from people's reasons, and an instruction by ``dspy.GEPA``;
    * with ``reasoning``, the judge that writes reasons before it answers;
    * what each of ``optimizers`` compiles;
    * combinations of these, searched by Optuna.

    Half of the inputs are held back to choose on. Fewer than 240 inputs are cross-fitted instead: each half is judged
    by what the other half found, and the judge is made from all. ``agreement_rule`` chooses, or else, for a judge that
    scores, ``error_rule``; a judge that gives all items one score is replaced by one that is shown to agree above
    chance. Of what agrees best within a standard error, the shortest prompt is taken.

    The trainset holds human-rated items (``scores`` by criterion, or ``score``), or pairs with people's choice
    (``preference`` or ``better``); those without are left out. It also takes the options of every optimizer; see
    ``JudgeOptimizer``.

    Args:
        reflection_lm: Model that writes guidelines and instructions, any ``dspy.LM``; None for the kinds without.
        budget: Judgments, approximately, that racing the candidates may take; None has all of them judge every searched
            item. Half of it is the largest number of metric calls of ``dspy.GEPA``.
        optimizers: DSPy teleprompters, such as ``dspy.SIMBA(...)``, whose programs are candidates too.
        k: Numbers of demonstrations to try.
        reasoning: Whether to try the judge with reasons, which takes four texts a judgment (``evalbias.Reasoning``).
        reason: Field of an item in which people say why they rated it so.
        learning_curve: Whether to search again with a quarter and a half of the labels, if a judge was chosen.
        log_dir: Folder that keeps the answers, so that a search that was stopped asks nothing twice.
    """

    report_type: ClassVar[type[CompileReport]] = AlignReport
    counts_distinct = keeps_answers = True
    enough = ENOUGH

    _: KW_ONLY
    reflection_lm: Any = None
    budget: int | None = 1_200
    optimizers: Sequence[Any] = ()
    k: Sequence[int] = (2, 4, 8, 16)
    reasoning: bool = False
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
        if self.reason != Align.reason and not any(self.reason in item for item in trainset):
            fields = ", ".join(sorted({*map(repr, chain(*trainset))}))
            raise ValueError(f"`reason` {self.reason!r:.80}: no item has this field. They have {fields:.400}.")
        inputs = len(set(map(input_key, trainset)))
        if inputs < FEWEST_TO_CHOOSE // 2:
            raise ValueError(f"People labeled {count(inputs, 'input')}: align needs {FEWEST_TO_CHOOSE} or more.")
        compares = isinstance(student, PairwiseJudge)
        labels = {people_choice(e) if compares else human_score(e, student.criterion.name) for e in trainset}
        if labels == {TIE} or (len(labels) == 1 and not compares):
            raise ValueError(f"People say the same of all items ({labels.pop():g}): label some of which they differ.")

    def settings(self) -> dict[str, Any]:
        own = JudgeOptimizer.settings(replace(self, optimizers=(), reflection_lm=None))  # others' may hold anything
        model = None if self.reflection_lm is None else model_identity(self.reflection_lm)
        return own | {"optimizers": [type(optimizer).__name__ for optimizer in self.optimizers], "reflection_lm": model}

    def prepare(self, problem: Problem) -> None:
        """Have the model report likelihoods of outputs, if it can; warn of unread reasons and its own taste."""
        if self.reflection_lm is None and self.reason != Align.reason:
            get_logger(__name__).warning("People's reasons are not read without a reflection model (`reflection_lm`).")
        if self.reflection_lm is not None and getattr(self.reflection_lm, "model", None) == problem.lm.model:
            get_logger(__name__).warning(
                "The reflection model is the judge's own, %s: it may write what it likes to read. Give another one.",
                problem.lm.model,
            )
        if not isinstance(problem.student, PairwiseJudge):
            with suppress(NotImplementedError):
                likelihood_scores(problem.fit[:1], problem.student.criterion, problem.lm)
                problem.likelihood_lm = problem.lm

    def candidates(self, problem: Problem) -> list[Candidate]:
        ran, candidates = self._run(problem), dict[str, Candidate]()
        for kind, runner in best(ran).items():
            if problem.only in ("", kind):
                found = reading(runner.judged, seed=self.seed, weighs=kind != LINE)
                alike = [other for other in ran if other.offer.kind == kind]
                candidates[kind] = replace(offered(problem, runner.offer, found), search=alike)
        crosses = bool(problem.given.items)  # then the other half may find weights
        return [*(candidates if crosses else once(candidates)).values()]

    def made_from_all(
        self, problem: Problem, halves: Sequence[Problem], made: Sequence[Mapping[str, Candidate]]
    ) -> dict[str, Candidate]:
        """Make what came first on both halves together; its scores are read in one way for all of them."""
        first, second = halves
        before, candidates = problem.given.answers, dict[str, Candidate]()
        assert before is not None
        answers = self.tested(problem.on((), problem.fit), problem.student)
        listed = {offer.name: offer for offer in self._offers(problem, answers)}
        for kind in [kind for kind in made[1] if kind in made[0]]:
            ran = [by_kind[kind].search for by_kind in made]
            offer = remade(problem.student, [*ran[0], *ran[1]], listed)
            if offer is not None:
                programs = [best(some)[kind].offer.program for some in ran]
                raw = [self.answers(problem, programs[i], halves[i].held_back) for i in (1, 0)]
                found = reading(both_halves(before, raw), seed=self.seed, weighs=kind != LINE)
                candidates[kind] = offered(problem, offer, found)
        problem.left_out |= first.left_out | second.left_out
        return once(candidates)

    def rules(self, problem: Problem) -> list[Rule]:
        """Better agreement at no larger bias; or else, of scores, fewer points from people's."""
        if problem.given.answers is None:
            problem.given = replace(problem.given, answers=self.tested(problem, problem.student))
        before = problem.given.answers
        assert before is not None
        measure = self.measure(problem, before)
        biases = comparable_biases(before)
        if never_differs(before):  # at half the level, as a two-sided interval above 0
            return [agreement_rule(measure, level=CHOICE_LEVEL / 2, from_chance=True, seed=self.seed)]
        if measure.name != PEARSON.name or not before.on_peoples_scale:
            return [agreement_rule(measure, biases=biases, seed=self.seed)]
        agreeing = agreement_rule(measure, biases=biases, level=CHOICE_LEVEL - ERROR_LEVEL, seed=self.seed)
        return [agreeing, error_rule(measure, biases=biases, seed=self.seed)]

    def measure(self, problem: Problem, judged: Judged) -> AgreementMeasure:
        """Return how agreement is measured: of cross-fitted scores within each half, as each has a line of its own."""
        measure = agreement_of(judged)
        return measure.within(len(problem.fit)) if measure is PEARSON and problem.given.items else measure

    def tested(self, problem: Problem, program: Any) -> Judged:
        """Have a program judge the held-back items, with their likelihood as a covariate where a model reports one."""
        scorer = problem.likelihood_lm
        return judge_examples(program, problem.held_back, lm=problem.lm, likelihood_lm=scorer, progress=self.progress)

    def validate(self, problem: Problem, selection: Selection) -> dict[str, Any]:
        """Also say what changed on inputs that the judge was not made from, in the prompt, and with fewer labels."""
        fields, judged_before = super().validate(problem, selection), problem.given.answers
        if selection.answers is None or judged_before is None:
            return fields
        measure, chosen = self.measure(problem, judged_before), selection.chosen
        before, after = (measure.estimate(judged, self.seed) for judged in (judged_before, selection.answers))
        fields |= {"measure": measure.name, "agreement": {"before": before, "after": after}}
        fields["unanswered"] = selection.answers.unanswered
        if chosen.program is problem.student:
            return fields
        old, new = (_prompt(judge, problem.held_back[0]) for judge in (problem.student, chosen.program))
        changed = difflib.unified_diff(old, new, n=0, lineterm="")
        lines = [line for line in changed if not line.startswith(("---", "+++", "@@"))]
        fields |= {"biases": self.compare(judged_before, selection.answers), "prompt_difference": "\n".join(lines)}
        if self.learning_curve:
            labels = len(problem.fit) + (len(problem.held_back) if problem.given.items else 0)
            fields["learning_curve"] = (*self._curve(problem, str(chosen.details["kind"])), (labels, after))
        return fields

    def measured(self, bias: Bias, judged: Judged) -> Measurement:
        """Also measure how far scores are from people's, which a judge may be chosen for."""
        measurement = super().measured(bias, judged)
        if not (bias.name == AGREEMENT and judged.on_peoples_scale and agreement_of(judged) is PEARSON):
            return measurement
        return replace(measurement, numbers={**measurement.numbers, "error": mean_error(judged)})

    def _curve(self, problem: Problem, kind: str) -> list[tuple[int, Estimate]]:
        """Return the agreement of the same kind of candidate, found with a part of the labels."""
        points, crosses = [], bool(problem.given.items)
        sides = [problem.fit, problem.held_back] if crosses else [problem.fit]
        for share in SHARES:
            fits = [some_inputs(side, share, self.seed) for side in sides]
            part = problem.on(problem.fit if crosses else fits[0], problem.held_back, only=kind)
            candidates = self.crossed(part, share) if crosses else self.candidates(part)
            problem.calls, problem.tokens = problem.calls + part.calls, problem.tokens + part.tokens
            for candidate in candidates:
                if candidate.program is problem.student:
                    continue
                answers = candidate.answers or self.tested(problem, candidate.program)
                points.append((sum(map(len, fits)), self.measure(part, answers).estimate(answers, self.seed)))
        return points

    # The search for what agrees best with people on the items of a problem.

    def _run(self, problem: Problem) -> list[Ran]:
        """Race everything, and then combinations of what came first; the given judge is there to be read."""
        before = self.tested(problem.on((), problem.fit), problem.student)
        if not problem.only and math.isnan(agreement_of(before).value(before)) and not never_differs(before):
            raise ValueError(
                f"The given judge's agreement on {count(len(before.ids), 'item')} is undefined: it left "
                f"{before.unanswered} without an answer, and people say the same of the others. Give it a "
                "prompt or a model whose answers can be read (of a model that reasons first, more `sample_tokens`)."
            )
        race = Race(
            problem.student, problem.fit, before, partial(self.answers, problem), budget=self.budget, seed=self.seed
        )
        if never_differs(before):
            race.measure = race.measure.from_chance()
        ran = race.run(self._offers(problem, before))
        if problem.only in ("", COMBINATION):
            ran += race.combined(ran)
        # Weights of the levels may let a bias show, which the line by itself does not.
        weighs = LEVEL_SHARES in before.covariates and agreement_of(before) is PEARSON
        kinds = (READING, LINE) if weighs else (READING,)
        return [*ran, *(Ran(Offer(kind, "the given judge", problem.student), 0.0, before) for kind in kinds)]

    def _offers(self, problem: Problem, before: Judged) -> list[Offer]:
        """Return what can be made of the items and the given judge's answers to them."""
        judge, listed, requests = problem.student, list[Offer](), getattr(self.reflection_lm, "history", [])
        earlier = len(requests)
        searched = (problem.only,) if problem.only not in ("", COMBINATION) else (LIBRARY, DEMOS, GUIDELINES)
        if LIBRARY in searched:
            listed += offers.worded(judge)
        if DEMOS in searched:
            listed += offers.demonstrated(problem, before, self.k, seed=self.seed)
        if GUIDELINES in searched and self.reflection_lm is not None:
            listed += offers.distilled(problem, before, self.reflection_lm, self.reason)
        if isinstance(judge, PairwiseJudge) and judge.debias is None:
            both: PairwiseJudge = judge.deepcopy()
            both.debias = "permutation"
            listed.append(Offer(ORDERS, "both orders averaged", both))
        if self.reasoning and judge.reasoning is None and problem.only in ("", offers.REASONING):
            thinking = judge.deepcopy()
            thinking.reasoning = True
            listed.append(Offer(offers.REASONING, "reasons before the answer", thinking))
        listed += self._taught(problem)
        problem.calls += len(requests) - earlier
        asked = [entry for entry in requests[earlier:] if not getattr(entry["response"], "cache_hit", False)]
        problem.tokens += tokens_of(entry["usage"] for entry in asked)
        return listed

    def _taught(self, problem: Problem) -> list[Offer]:
        """Return what DSPy's GEPA, with a model that reflects, and the user's own optimizers make of the judge."""
        optimizers = dict[str, Any]()
        for optimizer in self.optimizers:
            name, alike = type(optimizer).__name__, sum(type(o) is type(optimizer) for o in optimizers.values())
            optimizers[f"{name} {alike + 1}" if alike else name] = optimizer
        if self.reflection_lm is not None and "GEPA" not in optimizers:
            optimizers["GEPA"] = dspy.GEPA(
                metric=agreement_feedback(problem.student, reason=self.reason),
                reflection_lm=self.reflection_lm,
                max_metric_calls=(self.budget + 1) // 2 if self.budget else 10 * len(problem.fit),
                num_threads=1,
                track_stats=False,
                seed=self.seed,
            )
        if problem.only:
            optimizers = {name: own for name, own in optimizers.items() if offers.taught_by(name) == problem.only}
        return offers.taught(problem, optimizers)


def _prompt(judge: Any, item: dspy.Example) -> list[str]:
    return "\n".join(message["content"] for message in judge.messages(item)).split("\n")


def offered(problem: Problem, offer: Offer, found: ScoreCorrection | None) -> Candidate:
    """Return an offer as a candidate, its scores read as was found."""
    program, name = offer.program, offer.name
    if found and getattr(program, "correction", None) is None:
        words = "a line through the scores" if len(found.reading) == 2 else "a cut of the scores"
        program, name = program.deepcopy(), f"{name}, with {'weights of the levels' if found.slopes else words}"
        program.correction = found
    prompts = 2 if isinstance(program, PairwiseJudge) and program.debias else 1
    price = prompts * len("\n".join(_prompt(program, problem.fit[0])))
    return Candidate(name, program, {"kind": offer.kind}, price=price, kind=offer.kind)


def never_differs(judged: Judged) -> bool:
    """Return whether a judge that scores gives all items the same score, which has no correlation with people."""
    answered = judged.answers[~np.isnan(judged.answers)]
    return agreement_of(judged) is PEARSON and len(answered) > 0 and float(np.ptp(answered)) <= SLACK


def once(candidates: Mapping[str, Candidate]) -> dict[str, Candidate]:
    """Return the candidates by kind, without the reading if it is the line."""
    line = candidates.get(LINE)
    return {kind: own for kind, own in candidates.items() if kind != READING or line is None or own.name != line.name}


def best(ran: Sequence[Ran]) -> dict[str, Ran]:
    """Return kind -> the offer that gained most."""
    leaders: dict[str, Ran] = {}
    for runner in ran:
        leader = leaders.get(runner.offer.kind)
        if runner.gain > (leader.gain if leader else -math.inf):
            leaders[runner.offer.kind] = runner
    return leaders


def remade(judge: Any, ran: Sequence[Ran], by_name: Mapping[str, Offer]) -> Offer | None:
    """Return the offer of a kind that gained most on both halves, made from all items; None where it cannot be made."""
    gains: dict[str, list[float]] = {}
    for runner in ran:
        gains.setdefault(runner.offer.name, []).append(runner.gain)
    name = max(gains, key=lambda name: (len(gains[name]), np.mean(gains[name])))
    first = next(runner.offer for runner in ran if runner.offer.name == name)
    if first.kind in (READING, LINE):
        return first
    if first.parts:
        return combination(judge, [by_name[part] for part in first.parts]) if {*first.parts} <= {*by_name} else None
    return by_name.get(name)
