"""Thresholds: from which score on a judge lets an output pass, chosen where that is shown to be right often enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dspy
import numpy as np

from evalbias.evaluation.bias import share_number
from evalbias.evaluation.estimates import Estimate, Number
from evalbias.evaluation.judged import HUMAN_SCORES, RATINGS, Judged, judge_examples, mean_of_raters, passed_by_people
from evalbias.evaluation.words import count
from evalbias.lm.dspy_seam import anchored_threshold
from evalbias.measures.arrays import FloatArray, cluster_codes
from evalbias.measures.families import nested
from evalbias.measures.resample import estimate_mean, share_above
from evalbias.optimizers.base import JudgeOptimizer, Problem
from evalbias.optimizers.selection import GIVEN, Candidate, CompileReport, Cost, Rule, Selection, Tried, choose
from evalbias.programs.pointwise import PointwiseJudge

MOST_THRESHOLDS = 40  # more scores are thinned to quantiles, as DSPy's ReAnchor does


@dataclass(frozen=True, kw_only=True, repr=False)
class ThresholdReport(CompileReport):
    """Report of ``ThresholdTuning``."""

    threshold: float = math.nan  # lowest score that passes; NaN where none reaches what is asked for
    # "given", "chosen", "ReAnchor" (fitted to agree with people), "all pass" -> precision, recall and coverage on the
    # valset, which took no part; empty without one
    tested: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)


class ThresholdRule(Rule):
    """A threshold is taken if it is shown to reach a precision, a recall, or a lower cost than the given one.

    The answers are verdicts, 1 (pass) or 0, of one judge at ascending thresholds, and ``ratings`` are people's
    verdicts. Each of these is an outcome, as of forecasts: of what the judge passes, the precision is the share of
    them that are pass; the recall is the share of people's passes that it passes. Where people contradict each other,
    no judge reaches 1. The rates of ``PassOrFail`` are of a latent truth instead, and need errors that are independent.

    Tests are one-sided by Wilson's statistic over inputs (``share_above``), adjusted for all thresholds: what passes at
    one is part of what passes at a lower one (``nested``), and recalls are tested from the lowest threshold up, as far
    as they hold. Of two demands, both must be shown. Of the thresholds that are shown to do, the one of highest recall
    is taken; where only a recall is asked for, of highest precision; else of lowest cost.
    """

    unshown = "is not shown to reach it"

    def __init__(
        self, *, precision: float | None = None, recall: float | None = None, cost: float | None = None, seed: int = 0
    ) -> None:
        shares = {"precision": precision, "recall": recall}
        self.asked = {name: least for name, least in shares.items() if least is not None}
        if bool(self.asked) == (cost is not None):
            raise ValueError("Say what a threshold must reach: `precision`, `recall` or both, or else the `cost`.")
        for name, least in self.asked.items():
            if not 0 < least < 1:
                raise ValueError(f"`{name}` is {least}: give a share between 0 and 1, such as 0.9.")
        if cost is not None and not 0 < cost < math.inf:
            raise ValueError(f"`cost` is {cost}: give the number of false fails that one false pass costs, such as 5.")
        self.precision, self.recall, self.cost, self.seed = precision, recall, cost, seed
        self.aim = " and ".join(f"a {name} of {least:g} or more" for name, least in self.asked.items())
        self.aim = self.aim or f"a lower cost (a false pass costs {cost:g} false fails)"

    def estimates(self, judged: Judged) -> dict[str, Estimate]:
        """Return precision and recall over people's verdicts, the share that passes, and the cost for an output."""
        d, y, units = _outcomes(judged)
        rows = {"precision": (np.where(d == 1, y, np.nan), d == 0), "recall": (np.where(y == 1, d, np.nan), y == 0)}
        numbers = [share_number(name, name, x, excluded=int(no.sum())) for name, (x, no) in rows.items()]
        if self.cost is not None:
            numbers.append(Number("cost", "cost", self._costs(d, y), estimate_mean, signed=False))
        shares = {one.name: one.estimate(units, seed=self.seed) for one in numbers}
        coverage = share_number("coverage", "coverage", judged.answers).estimate(judged.clusters, seed=self.seed)
        return {**shares, "coverage": coverage}

    def lead(self, tried: Tried) -> float:
        """Return by how much the interval of each share that is asked for lies above it, or minus the cost."""
        if self.cost is not None:
            return -tried.estimates["cost"].value
        leads = (tried.estimates[name].low - least for name, least in self.asked.items())
        return min(-1.0 if math.isnan(one) else one for one in leads)

    def p_values(self, judged: Sequence[Judged], given: Judged) -> list[float]:
        """Return the p that each threshold does not reach what is asked for, adjusted for all of them."""
        rows = [_outcomes(one) for one in judged]
        p = np.zeros(len(judged))
        if self.precision is not None:
            p = np.maximum(p, self._nested([(np.where(d == 1, y, np.nan), self.precision, u) for d, y, u in rows]))
        if self.recall is not None:
            alone = [share_above(np.where(y == 1, d, np.nan), self.recall, clusters=u) for d, y, u in rows]
            p = np.maximum(p, np.maximum.accumulate(alone))
        if self.cost is not None:  # what changes must pass, or fail, often enough: above the given threshold and below
            known, break_even = _outcomes(given)[0], self.cost / (1 + self.cost)
            more = [(np.where((d == 1) & (known == 0), y, np.nan), break_even, u) for d, y, u in rows]
            less = [(np.where((d == 0) & (known == 1), 1 - y, np.nan), 1 - break_even, u) for d, y, u in rows]
            p = np.minimum(2 * np.fmin(self._nested(more), self._nested(less)), 1.0)
        return [float(one) for one in p]

    def _nested(self, tests: Sequence[tuple[FloatArray, float, Sequence[object]]]) -> FloatArray:
        alone = [share_above(x, least, clusters=units) for x, least, units in tests]
        return nested(alone, [int((~np.isnan(x)).sum()) for x, _, _ in tests], seed=self.seed)

    def _costs(self, d: FloatArray, y: FloatArray) -> FloatArray:
        return np.where(d == 1, (self.cost or 0.0) * (1 - y), y) + 0.0 * d  # NaN where no verdict is known

    def costs(self, judged: Judged) -> tuple[float, ...]:
        """Return the cost, or minus recall and precision, what is not asked for first."""
        if self.cost is not None:
            d, y, _ = _outcomes(judged)
            return (float(np.nanmean(self._costs(d, y))),)
        estimates = self.estimates(judged)
        shares = -estimates["recall"].value, -estimates["precision"].value
        return shares if self.precision is not None else shares[::-1]


def _outcomes(judged: Judged) -> tuple[FloatArray, FloatArray, Sequence[object]]:
    """Return the judge's verdict (n r,) beside each of people's verdicts (n r,), and the unit of each, its input."""
    people = judged.covariate(RATINGS)
    units = cluster_codes(judged.clusters, np.ones(len(judged.ids), dtype=bool))
    return np.repeat(judged.answers, people.shape[1]), people.ravel(), np.repeat(units, people.shape[1]).tolist()


def beside_verdicts(judged: Judged, answers: FloatArray, pass_mark: float | None) -> Judged:
    """Return answers from 0 to 1 beside people's ratings as verdicts: 1 from ``pass_mark`` on, or their own 1 and 0."""
    passed = passed_by_people(judged, pass_mark)
    if passed is None:
        raise ValueError("Say from which rating on people let an output pass: `pass_mark`, such as 4 of 5.")
    said = {RATINGS: passed, HUMAN_SCORES: mean_of_raters(passed)}
    return replace(judged, answers=answers, covariates={**judged.covariates, **said}, scale=(0, 1))


def verdicts_at(judged: Judged, threshold: float, pass_mark: float | None) -> Judged:
    """Return a judge's scores as verdicts, 1 from the threshold on, and people's ratings as 1 from ``pass_mark`` on."""
    verdicts = np.where(np.isnan(judged.answers), np.nan, judged.answers >= threshold)
    return beside_verdicts(judged, verdicts, pass_mark)


@dataclass(kw_only=True, eq=False, repr=False)
class ThresholdTuning(JudgeOptimizer):
    """Compiles the threshold at which a judge is shown to be right often enough, or keeps the judge: none may be.

    The threshold, or the cut below ``pass_mark``, is written where DSPy keeps it, in ``judge.predict.fields``, so the
    prediction's ``level`` follows it, and a saved judge has it. The criterion needs ``levels``. ``ThresholdRule`` says
    what is shown, on all of the trainset; precision, recall and coverage of the result are those on the valset
    (``report.tested``), which takes no part. It also takes the options of every optimizer, and always chooses
    (``select``).

    Args:
        precision: Share of what passes that people must let pass, in (0, 1).
        recall: Share of what people let pass that must pass, in (0, 1).
        cost: Number of false fails that one false pass costs, above 0, in place of both.
        pass_mark: Lowest rating that passes, on people's scale, which is the judge's unless that is from 0 to 1.
            Not needed where people say 1 (pass) or 0.
    """

    report_type = ThresholdReport
    compiles = (PointwiseJudge,)
    biases = ()  # see ``report.tested``
    counts_distinct = True

    precision: float | None = None
    recall: float | None = None
    cost: float | None = None
    pass_mark: float | None = None

    def __post_init__(self) -> None:
        if not self.select:
            raise ValueError("select=False: ThresholdTuning always chooses, as DSPy's ReAnchor does without a test.")
        self._rule = ThresholdRule(precision=self.precision, recall=self.recall, cost=self.cost, seed=self.seed)
        self._mark = 1 if self.pass_mark is None else self.pass_mark

    def check(self, student: PointwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """Refuse a judge that decides by no threshold, or a pass mark off its scale."""
        student.threshold(self._mark)
        super().check(student, trainset, valset)

    def rules(self, problem: Problem) -> list[Rule]:
        """Return the rule for what is asked for."""
        return [self._rule]

    def scores(self, problem: Problem, examples: Sequence[dspy.Example]) -> Judged:
        """Have the student score examples, without its correction: the level follows from the probabilities."""
        judge: PointwiseJudge = problem.student.deepcopy()
        judge.correction = None
        return judge_examples(judge, examples, lm=problem.lm, progress=self.progress)

    def answers(self, problem: Problem, program: PointwiseJudge, examples: Sequence[dspy.Example]) -> Judged:
        """Return a judge's verdicts, whether the level is the pass mark or more, beside people's."""
        return verdicts_at(self.scores(problem, examples), program.threshold(self._mark), self.pass_mark)

    def candidates(self, problem: Problem) -> list[Candidate]:
        """Return the judge with every threshold between two of its scores, with its verdicts on the trainset."""
        judge, judged = problem.student, self.scores(problem, [*problem.fit, *problem.held_back])
        problem.given, candidates = self._tried(
            judged, problem.given, judge.threshold(self._mark), lambda score: judge.with_threshold(self._mark, score)
        )
        return candidates

    def _tried(
        self, judged: Judged, given: Candidate, threshold: float, make: Callable[[float], Any]
    ) -> tuple[Candidate, list[Candidate]]:
        """Return the given judge with its verdicts, and a candidate for each threshold that is tried."""
        where = count(len(set(judged.inputs)), "training input")
        candidates = [
            Candidate(f"threshold {t:.4g}", make(t), {"threshold": t}, verdicts_at(judged, t, self.pass_mark), where)
            for t in thresholds(judged)
        ]
        return replace(given, answers=verdicts_at(judged, threshold, self.pass_mark), items=where), candidates

    def validate(self, problem: Problem, selection: Selection) -> dict[str, Any]:
        """Also measure precision, recall and coverage on the valset, beside those of ReAnchor's threshold."""
        fields = {**super().validate(problem, selection), "decision": self._decision(selection, problem.given)}
        if problem.valset:
            judged = self.scores(problem, [*problem.fit, *problem.held_back])
            start, test = problem.student.threshold(self._mark), self.scores(problem, problem.valset)
            fields["tested"] = self._tested(judged, test, start, selection)
        return fields

    def of_scores(self, judged: Judged, test: Judged) -> ThresholdReport:
        """Choose a threshold of scores of which no judge is known, such as recorded ones, as ``compile`` does.

        ``judged`` are scores of items to choose on, ``test`` those of others. The threshold to compare with is .5
        on a scale from 0 to 1, the pass mark where people rate on the judge's other scale; else all pass.
        """
        start = 0.5 if judged.scale == (0, 1) else self._mark if judged.on_peoples_scale else -math.inf
        given, candidates = self._tried(judged, Candidate(GIVEN, None), start, lambda score: None)
        selection = choose(given, candidates, [self._rule], test=lambda _: judged, spent=Cost, inputs=0)
        fields = {**selection.fields, **selection.chosen.details, "decision": self._decision(selection, given)}
        tested = self._tested(judged, test, start, selection)
        return ThresholdReport(chosen=selection.chosen.name, tested=tested, seed=self.seed, **fields)

    def _tested(
        self, judged: Judged, test: Judged, start: float, selection: Selection
    ) -> dict[str, Mapping[str, Estimate]]:
        """Return what each threshold does on the test items, those that are no choice of ours included."""
        # 1. DSPy's ReAnchor fits its threshold to agree with people, on scores put from 0 to 1.
        passed = verdicts_at(judged, 0.0, self.pass_mark).covariate(HUMAN_SCORES)
        known = ~np.isnan(judged.answers) & ~np.isnan(passed)
        low, high = judged.scale or (float(np.nanmin(judged.answers)), float(np.nanmax(judged.answers)))
        p = (judged.answers[known] - low) / (high - low)
        place = anchored_threshold(p.tolist(), [(1 - y, y) for y in passed[known].tolist()])
        # 2. Each threshold's verdicts on the test items.
        marks = {"given": start, "chosen": selection.chosen.details.get("threshold", math.nan)}  # NaN: none is chosen
        marks |= {"ReAnchor": low + (high - low) * place, "all pass": -math.inf}
        verdicts = {name: verdicts_at(test, t, self.pass_mark) for name, t in marks.items() if not math.isnan(t)}
        return {name: self._rule.estimates(one) for name, one in verdicts.items()}

    def _decision(self, selection: Selection, given: Candidate) -> str:
        """Say that no threshold reaches what is asked for, and how near the nearest comes, or which one does."""
        if selection.chosen is not given:
            return str(selection.fields["decision"])
        tried = selection.fields["candidates"][1:]
        nearest = max(tried, key=self._rule.lead)
        reached = ", ".join(f"{e.label} {e.shown}" for e in nearest.estimates.values())
        return (
            f"No threshold reaches {self._rule.aim}: none of {len(tried)} is shown to on {given.items}. The nearest, "
            f"{nearest.name}, has {reached} there. The given threshold is kept."
        )


def thresholds(judged: Judged) -> list[float]:
    """Return thresholds that separate scores, ascending: the first lets all pass. ValueError without a score above."""
    scores = np.unique(judged.answers[~np.isnan(judged.answers)])
    if not len(scores):
        raise ValueError("The judge scored no item, so that no threshold can be chosen.")
    low = scores[0] - 1.0 if judged.scale is None else judged.scale[0]
    ends = np.concatenate([[low] if low < scores[0] else [], scores])
    between = (ends[1:] + ends[:-1]) / 2
    if not len(between):
        raise ValueError(f"The judge gives all items its lowest score, {low:g}: no threshold separates them.")
    places = np.unique(np.linspace(0, len(between) - 1, min(len(between), MOST_THRESHOLDS)).round().astype(int))
    return [float(one) for one in between[places]]
