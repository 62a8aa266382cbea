"""Compile one judge on one criterion, and measure everything that was tried on items that it never saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from evalbias import LikelihoodMitigation, PointwiseJudge
from evalbias.evaluation.judged import Judged
from evalbias.optimizers.base import Outcome, Problem
from evalbias.optimizers.demos import rated_items
from evalbias.optimizers.likelihood_baselines import against_baselines, item_facts
from evalbias.optimizers.likelihood_objective import objective_of
from evalbias.optimizers.likelihood_rule import LikelihoodRule
from evalbias.programs.criterion import Criterion

PAPER = "highest RS (sum LS)"
"""End of the name of the paper's method."""
CALIBRATED = "likelihood calibration"
"""Part of the names of the calibrated judges, which share their judgments: all strengths cost no more than one."""
MAX_LOSS = 0.05
"""Loss of performance that the second choice of every row allows; the first allows no significant one."""


class MeasuredMitigation(LikelihoodMitigation):
    """Keeps answers on the valset of the given judge, the paper's method and the calibrated judges."""

    tried: dict[str, Judged]

    def beside(self, problem: Problem, outcome: Outcome, answers: Judged) -> dict[str, Any]:
        """See ``LikelihoodMitigation``."""
        self.tried = {
            one.name: self.judge(problem, one.program, problem.valset)
            for one in (outcome.given, *outcome.candidates)
            if one.name == "given" or one.name.endswith(PAPER) or CALIBRATED in one.name
        }
        rated = rated_items(problem.trainset, problem.student.criterion)
        self.facts = item_facts(rated, problem.student.criterion, problem.likelihood_lm, reduction=self.reduction)
        return super().beside(problem, outcome, answers)


def compiled(
    criterion: Criterion,
    train: list[dspy.Example],
    test: list[dspy.Example],
    lm: Any,
    *,
    k: int,
    bins: Sequence[float] | None,
    seed: int,
    n_resamples: int,
) -> dict[str, Any]:
    """Compile, and return what was chosen and every candidate's estimates on the test items.

    Returns:
        ``decision``; ``chosen``, ``chosen_with_loss`` (what is chosen where ``MAX_LOSS`` is allowed) and ``paper``,
        names of candidates; ``objective``; ``tried``: name -> estimates on the test items, with the loss of performance
        and the p-values against the given judge; ``alone``: the baselines; ``cost``.
    """
    settings = {"bins": bins, "seed": seed, "n_resamples": n_resamples}
    optimizer, lenient = (MeasuredMitigation((k,), max_loss=loss, **settings) for loss in (0.0, MAX_LOSS))
    report, with_loss = (
        one.compile(PointwiseJudge(criterion), trainset=train, valset=test, lm=lm).report
        for one in (optimizer, lenient)
    )
    given = optimizer.tried["given"]
    rule = LikelihoodRule(lambda judge: given, n_resamples=n_resamples, seed=seed)
    rule.objective = objective_of(given, seed=seed)
    chosen, also = (next(one.name for one in made.candidates if one.chosen) for made in (report, with_loss))
    tried = {**optimizer.tried, chosen: report.after, also: with_loss.after}
    alone = against_baselines(tried[chosen], optimizer.facts, n_resamples=n_resamples, seed=seed)
    return {
        "decision": report.decision,
        "chosen": chosen,
        "chosen_with_loss": also,
        "decision_with_loss": with_loss.decision,
        "paper": next((name for name in tried if name.endswith(PAPER)), None),
        "objective": rule.objective.label,
        "tried": {name: _row(rule, judged, given) for name, judged in tried.items()},
        "inner": {one.name: {"p_value": one.p_value, "reason": one.reason} for one in report.candidates},
        "alone": {name: _estimate(e) for name, e in alone["baselines"].items()},
        "against_baselines": alone["against_baselines"],
        "left_out": report.left_out,
        "inputs": {"train": len(set(map(optimizer.input_of, train))), "test": len(set(map(optimizer.input_of, test)))},
        "items": {"train": len(train), "test": len(test)},
        "cost": report.cost.to_dict(),
    }


def _row(rule: LikelihoodRule, judged: Judged, given: Judged) -> dict[str, Any]:
    return {
        "estimates": {name: _estimate(e) for name, e in rule.estimates(judged).items()},
        "p_smaller": rule.p_values([judged], given)[0],
        "loss": rule.loss(judged, given),
        "undefined": rule.undefined(judged, given),
    }


def _estimate(estimate: Any) -> Mapping[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}
