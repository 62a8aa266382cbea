"""Repairs of a judge's answers to closed questions, of their order or probabilities, that cost nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dspy
import numpy as np

from evalbias.evaluation.agreement import agreement_of_scores
from evalbias.evaluation.estimates import Estimate, Number
from evalbias.evaluation.judged import HUMAN_SCORES, Judged, judge_examples
from evalbias.evaluation.repeats import Order, counted_deviation, has_own_wording, with_criterion
from evalbias.evaluation.verdicts import Forecasts
from evalbias.lm.orders import Repair, ReversedOptions
from evalbias.measures.arrays import FloatArray, complete, defined, ratio, sums_by_cluster
from evalbias.measures.families import higher_than_first, smaller_in_magnitude
from evalbias.measures.forecasts import Curve, isotonic_curve, on_curve, platt_curve, squared_errors
from evalbias.measures.position_calibration import batch_offsets
from evalbias.measures.resample import Draws, estimate
from evalbias.optimizers.base import JudgeOptimizer, Problem
from evalbias.optimizers.likelihood_rules import AGREEMENT, LOSS, Errors, LikelihoodRule, _drawn_errors, cross_fitted
from evalbias.optimizers.selection import CHOICE_LEVEL, Candidate, Rule
from evalbias.optimizers.thresholds import beside_verdicts
from evalbias.options import ORDER
from evalbias.programs.pairwise import CONTENT_FREE
from evalbias.programs.pointwise import PointwiseJudge

KEPT = 0.5
"""Share of the spread of the scores that a repair must be shown to keep: a judge that answers alike has no order."""


class RepairRule(LikelihoodRule):
    """A rule by a number of a bias, with others beside it and the agreement with people (Pearson)."""

    level = CHOICE_LEVEL
    beside: str  # number shown beside it

    def numbers(self, judged: Judged) -> list[Number]:
        """Return the numbers of the bias."""
        raise NotImplementedError

    def estimates(self, judged: Judged) -> dict[str, Estimate]:
        numbers = {one.name: one for one in [*self.numbers(judged), *agreement_of_scores(judged)]}
        shown = (self.name, self.beside, AGREEMENT)
        return {name: numbers[name].estimate(judged.clusters, seed=self.seed) for name in shown}

    def bias(self, judged: Judged) -> Estimate:
        return self.estimates(judged)[self.name]


class OrderRule(RepairRule):
    """A judge is better if the order of its levels moves the score less, and it tells outputs apart as before.

    Less: the given judge's shift (the mean score with the levels reversed, less as declared) is shown to be more than
    is tolerated, and the judge's is smaller in magnitude, adjusted for all judges. As before: the agreement with people
    is shown and not lower, as ``LikelihoodRule`` says, and the items rule out that less than ``KEPT`` of the standard
    deviation of the scores is left.
    """

    beside = "spread"

    def __init__(self, *, what: str = "the order of levels", seed: int) -> None:
        super().__init__("shift", seed=seed)
        self.aim = f"less bias by {what} at no significant loss of agreement or spread"

    def numbers(self, judged: Judged) -> list[Number]:
        return Order(judged.scale).numbers(judged)

    def errors(self, judges: Sequence[Judged]) -> Errors:
        """Return the shifts of judges, with draws of their errors, on the items that all of them scored."""
        return _mean_errors([one.covariate(ORDER) - one.answers for one in judges], judges[0], self.seed)

    def p_values(self, judged: Sequence[Judged], given: Judged) -> list[float]:
        smaller = smaller_in_magnitude(*self.errors([given, *judged]))
        return [float(p) for p in np.maximum(smaller, self.bias(given).p_value)]

    def loss(self, judged: Judged, given: Judged) -> str:
        draws = Draws(seed=self.seed, confidence=1 - 2 * LOSS, swaps=0)
        how: dict[str, Any] = {"clusters": given.clusters, "method": "percentile", "draws": draws}
        deviation = counted_deviation
        left = estimate(lambda c, x, y: ratio(deviation(c, x), deviation(c, y)), judged.answers, given.answers, **how)
        if not left.low >= KEPT:
            before, after = (self.estimates(one)["spread"].text() for one in (given, judged))
            return (
                f"answers alike: the spread of its scores falls from {before} to {after} (at worst to {left.low:.0%})"
            )
        agreement = self.estimates(judged)[AGREEMENT]
        if not agreement.low > 0:
            return f"is not shown to agree with people (Pearson {agreement.text()}, {agreement.interval})"
        return super().loss(judged, given)

    def costs(self, judged: Judged) -> tuple[float, ...]:
        estimates = self.estimates(judged)
        return abs(estimates["shift"].value), -estimates[AGREEMENT].value


def _mean_errors(columns: Sequence[FloatArray], judged: Judged, seed: int) -> Errors:
    """Return the means of s numbers (n,) about the items, with draws of their errors; NaN for less than two inputs."""
    kept, codes = complete(*columns, clusters=judged.clusters)
    x, groups = np.column_stack(kept), int(codes.max(initial=-1)) + 1
    if groups < 2:
        return np.full(len(columns), np.nan), np.full((1, len(columns)), np.nan)
    influence = sums_by_cluster(x - x.mean(axis=0), codes) / len(x) * np.sqrt(groups / (groups - 1))
    return x.mean(axis=0), _drawn_errors(influence, seed)


@dataclass(kw_only=True, eq=False, repr=False)
class OrderRepair(JudgeOptimizer):
    """Compiles the repair of a judge's order bias that costs neither agreement nor spread, or keeps the judge.

    Of a judge that is asked closed questions about a score, candidates are the mean of both orders of the levels
    (twice the questions), the prior of the places in the answer to a content-free text (contextual calibration) or in
    the mean log-probability over the training items in both orders (batch calibration), and the mean of both orders
    less the contextual prior, which is the form of AnyJev (arXiv 2610.00831). The other order of a question of yes or
    no is its negation, of which yes is no: their mean is (P(Q) + 1 - P(not Q)) / 2. ``OrderRule`` says what is better,
    on held-back inputs; ``select=False`` returns the mean of both orders. The repair is saved with the judge
    (``judge.repair``). It also takes the options of every optimizer.

    Args:
        negation: Definition of the negated criterion, such as "is the reply rude?", of a question of yes or no.
    """

    compiles = (PointwiseJudge,)
    biases = (ORDER,)
    counts_distinct = True

    negation: str | None = None

    def check(self, student: PointwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """Refuse a question of yes or no without its negation, a negation of another one, and a recalibrated judge."""
        yes_or_no = student.criterion.scale == (0, 1)
        if yes_or_no and not self.negation:
            raise ValueError(
                "A question of yes or no has no options in an order: there is nothing to repair without its negation "
                "(negation='is the reply rude?', --negation)."
            )
        if self.negation and not (yes_or_no and has_own_wording(student)):
            raise ValueError(
                "A negation is asked of a question of yes or no (0 or 1), in the wording that the criterion gives: "
                "leave it out, or negate the instruction yourself and give Repair(True, wordings=...)."
            )
        if student.repair is not None and student.repair.curve:
            raise ValueError(
                "The judge is recalibrated (judge.repair.curve), which is of its probabilities as they are: repair the "
                "order of the judge without it, and recalibrate then."
            )
        super().check(student, trainset, valset)

    def rules(self, problem: Problem) -> list[Rule]:
        return [OrderRule(seed=self.seed, **({"what": "a negation"} if self.negation else {}))]

    def candidates(self, problem: Problem) -> list[Candidate]:
        """Return the judge with every repair that can be made."""
        bare, wordings = repaired(problem.student), self.wordings(problem.student)
        free = self.by_place(bare, problem.lm, [dspy.Example(source=CONTENT_FREE, output=CONTENT_FREE)])
        contextual = tuple(batch_offsets(free[:, :1]).tolist())
        batch = tuple(batch_offsets(self.by_place(bare, problem.lm, problem.fit)).tolist())
        both = "question and negation" if wordings else "both orders"
        repairs = {
            f"{both} averaged": Repair(True, (), wordings),
            "contextual prior": Repair(False, contextual, wordings),
            "batch prior": Repair(False, batch, wordings),
            f"{both} and contextual prior": Repair(True, contextual, wordings),
        }
        return [
            Candidate(name, repaired(bare, repair))
            for name, repair in repairs.items()
            if not np.isnan(repair.offsets).any()  # a level without probability has no prior
        ]

    def wordings(self, judge: PointwiseJudge) -> tuple[str, ...]:
        """Return the instructions of a judge's question and of its negation; () without one."""
        if self.negation is None:
            return ()
        negated = with_criterion(judge, definition=self.negation, levels=judge.criterion.levels[::-1])
        return judge.wording, negated.wording

    def by_place(self, judge: PointwiseJudge, lm: Any, examples: Sequence[dspy.Example]) -> FloatArray:
        """Return (n, 2, c) log-probabilities by the place of a level, as declared and reversed; NaN if undefined."""
        sides = [judge.batch(examples, lm=model) for model in (lm, ReversedOptions(lm, self.wordings(judge)))]
        p = np.array([[list(one.distribution.values()) for one in side] for side in sides])  # (2, n, c) by level
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.stack([p[0], p[1][:, ::-1]], axis=1)))

    def answers(self, problem: Problem, program: PointwiseJudge, examples: Sequence[dspy.Example]) -> Judged:
        """Have a judge score examples, also with the levels reversed, repaired as it is."""
        judged = judge_examples(program, examples, lm=problem.lm, progress=self.progress)
        turned = ReversedOptions(program.measuring(problem.lm), self.wordings(program))
        again = [p.score for p in repaired(program).batch(examples, lm=turned, progress=self.progress)]
        return replace(judged, covariates={**judged.covariates, ORDER: np.array(again, dtype=np.float64)})


def repaired(judge: PointwiseJudge, repair: Repair | None = None) -> PointwiseJudge:
    """Return a copy of a judge with a repair, or none."""
    judge = judge.deepcopy()
    judge.repair = repair
    return judge


class ForecastRule(RepairRule):
    """A judge is better if its probabilities are better forecasts of people's verdicts, and agreement is not lower.

    Better: the Brier score is shown to be lower, adjusted for all judges, and the skill against the base rate is shown
    to be above 0, because the base rate, said of every item, is calibrated and empty. The skill stands in place of the
    spread, which an overconfident judge has to lose. Not lower: as ``LikelihoodRule`` says.
    """

    beside = "forecast_error"

    def __init__(self, *, seed: int) -> None:
        super().__init__("brier_skill", seed=seed)
        self.aim = "better forecasts at no significant loss of agreement"

    def numbers(self, judged: Judged) -> list[Number]:
        return Forecasts().numbers(judged)

    def errors(self, judges: Sequence[Judged]) -> Errors:
        """Return minus the Brier scores of judges, with draws of their errors, on the items that all of them scored."""
        shares = judges[0].covariate(HUMAN_SCORES)
        return _mean_errors([-squared_errors(one.answers, shares) for one in judges], judges[0], self.seed)

    def p_values(self, judged: Sequence[Judged], given: Judged) -> list[float]:
        return [float(p) for p in higher_than_first(*self.errors([given, *judged]))]

    def loss(self, judged: Judged, given: Judged) -> str:
        skill = self.bias(judged)
        if not skill.low > 0:
            return f"is not shown to say more than the base rate (Brier skill {skill.text()}, {skill.interval})"
        return super().loss(judged, given)

    def costs(self, judged: Judged) -> tuple[float, ...]:
        estimates = self.estimates(judged)
        return -estimates["brier_skill"].value, -estimates[AGREEMENT].value


@dataclass(kw_only=True, eq=False, repr=False)
class ForecastRepair(JudgeOptimizer):
    """Compiles the recalibration of a judge's probabilities that makes them better forecasts, or keeps the judge.

    Candidates map the probability that an output passes to how often people let such outputs pass: along a logistic
    curve (Platt 1999) or an isotonic one. The levels that pass share it as before, and so do the others.
    ``ForecastRule`` says what is better, on all training inputs: each is recalibrated by a curve that was fitted to
    others (ten folds). The curve of the compiled judge is fitted to all, and saved with it (``judge.repair``). Other
    repairs of the judge stay, and a curve that it has is replaced. ``select=False`` returns the logistic curve. It also
    takes the options of every optimizer.

    Args:
        pass_mark: Lowest rating that passes. Not needed where people say 1 (pass) or 0.
    """

    compiles = (PointwiseJudge,)
    biases = ("forecasts",)
    counts_distinct = True

    pass_mark: float | None = None

    def check(self, student: PointwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """Refuse a judge whose scores, or decisions, would no longer be of its probabilities."""
        if student.correction is not None or student.predict.fields:
            raise ValueError(
                "The judge has a correction of its scores, or a threshold (predict.fields), which are of its "
                "probabilities as they are: recalibrate it first."
            )
        super().check(student, trainset, valset)

    def rules(self, problem: Problem) -> list[Rule]:
        return [ForecastRule(seed=self.seed)]

    def candidates(self, problem: Problem) -> list[Candidate]:
        """Return the judge with each curve, and the cross-fitted answers."""
        student, examples = problem.student, [*problem.fit, *problem.held_back]
        base, criterion = replace(student.repair or Repair(), passing=(), curve=()), student.criterion
        mark = 1 if criterion.scale == (0, 1) or self.pass_mark is None else self.pass_mark
        passing = tuple(one for one, value in zip(criterion.labels, criterion.values, strict=True) if value >= mark)
        judged, where = self.answers(problem, repaired(student, base), examples), f"{len(examples)} training items"
        problem.given = replace(problem.given, answers=self.answers(problem, student, examples), items=where)

        def fit(rest: Judged) -> list[Callable[..., FloatArray]]:
            return [lambda p, features, scale, curve=curve: on_curve(p, curve) for curve in _curves(rest).values()]

        crossed = cross_fitted(judged, {}, fit, scale=(0, 1), seed=self.seed)
        return [
            Candidate(name, repaired(student, replace(base, passing=passing, curve=curve)), {}, answers, where)
            for (name, curve), answers in zip(_curves(judged).items(), crossed, strict=False)
        ]

    def answers(self, problem: Problem, program: PointwiseJudge, examples: Sequence[dspy.Example]) -> Judged:
        """Return a judge's probabilities of a pass beside people's verdicts."""
        forecasts = Forecasts(self.pass_mark)
        judged = judge_examples(program, examples, lm=problem.lm, progress=self.progress)
        p = None if (why := next(forecasts.missing(judged), "")) else forecasts.forecasts(judged)
        if p is None:
            raise ValueError(f"The probability that an output passes is not known: give {why}.")
        return beside_verdicts(judged, p, self.pass_mark)


def _curves(judged: Judged) -> dict[str, Curve]:
    """Return the curves of forecasts, beside people's verdicts."""
    p, shares = judged.answers, judged.covariate(HUMAN_SCORES)
    known = defined(p, shares)
    fits = {"Platt's logistic curve": platt_curve, "isotonic curve": isotonic_curve}
    return {name: fit(p[known], shares[known]) for name, fit in fits.items()}
