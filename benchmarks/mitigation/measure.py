"""Compile one judge on one criterion, and measure everything that was tried on items that it never saw."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Any

import dspy

from evalbias import LikelihoodMitigation, PointwiseJudge
from evalbias.evaluation.judged import Judged
from evalbias.optimizers.base import Outcome, Problem
from evalbias.optimizers.demonstrations import rated_items
from evalbias.optimizers.likelihood import against_baselines, baseline_facts
from evalbias.optimizers.likelihood_rules import AgreementRule, LikelihoodRule, objective_of
from evalbias.optimizers.selection import GIVEN, Cost, Selection, choose
from evalbias.programs.criterion import Criterion

PAPER = "highest RS (sum LS)"
"""End of the name of the paper's method."""
CALIBRATED = "likelihood calibration"
"""Part of the names of the calibrated judges, which share their judgments: all strengths cost no more than one."""
MAX_LOSS = 0.05
"""Loss of performance that the second choice of every row allows; the first allows no significant one."""


class KeptSearch(LikelihoodMitigation):
    """Keeps its search, so that another rule can choose from what it tried."""

    problem: Problem
    outcome: Outcome

    def beside(self, problem: Problem, outcome: Outcome, answers: Judged) -> dict[str, Any]:
        """See ``LikelihoodMitigation``."""
        self.problem, self.outcome = problem, outcome
        return super().beside(problem, outcome, answers)

    def chosen_with(self, max_loss: float) -> Selection:
        """Choose once more where a loss of performance is allowed; the model keeps its answers (``ChoiceMemo``)."""
        lenient = copy(self)
        lenient.max_loss = max_loss
        inputs = len(set(map(self.input_of, self.problem.held_back)))
        rules = lenient.rules(self.problem)
        return choose(self.outcome.given, self.outcome.candidates, rules, spent=Cost, inputs=inputs)

    def on_test_items(self, names: Collection[str]) -> dict[str, Judged]:
        """Return the answers on the valset of the given judge, the paper's method, the calibrated judges and others."""
        return {
            one.name: self.judge(self.problem, one.program, self.problem.valset)
            for one in (self.outcome.given, *self.outcome.candidates)
            if one.name in {GIVEN, *names} or one.name.endswith(PAPER) or CALIBRATED in one.name
        }


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
    optimizer = KeptSearch((k,), bins=bins, seed=seed, n_resamples=n_resamples)
    report = optimizer.compile(PointwiseJudge(criterion), trainset=train, valset=test, lm=lm).report
    chosen = next(one.name for one in report.candidates if one.chosen)
    with_loss = optimizer.chosen_with(MAX_LOSS)
    tried = optimizer.on_test_items((chosen, with_loss.chosen.name))
    given = tried[GIVEN]
    on_test_items = {"n_resamples": n_resamples, "seed": seed}
    rule, agreement = (one(lambda judge: given, **on_test_items) for one in (LikelihoodRule, AgreementRule))
    rule.objective = objective_of(given, seed=seed)
    problem = optimizer.problem
    rated = rated_items(problem.trainset, criterion)
    facts = baseline_facts(rated, criterion, problem.likelihood_lm, reduction=optimizer.reduction)
    alone = against_baselines(tried[chosen], facts, n_resamples=n_resamples, seed=seed)
    return {
        "decision": report.decision,
        "chosen": chosen,
        "chosen_with_loss": with_loss.chosen.name,
        "decision_with_loss": with_loss.fields["decision"],
        "paper": next((name for name in tried if name.endswith(PAPER)), None),
        "objective": rule.objective.label,
        "tried": {name: _row(rule, agreement, judged, given) for name, judged in tried.items()},
        "inner": {one.name: {"p_value": one.p_value, "reason": one.reason} for one in report.candidates},
        "alone": {name: _estimate(e) for name, e in alone["baselines"].items()},
        "against_baselines": alone["against_baselines"],
        "left_out": report.left_out,
        "inputs": {"train": len(set(map(optimizer.input_of, train))), "test": len(set(map(optimizer.input_of, test)))},
        "items": {"train": len(train), "test": len(test)},
        "cost": report.cost.to_dict(),
    }


def _row(rule: LikelihoodRule, agreement: AgreementRule, judged: Judged, given: Judged) -> dict[str, Any]:
    return {
        "estimates": {name: _estimate(e) for name, e in rule.estimates(judged).items()},
        "p_smaller": rule.p_values([judged], given)[0],
        "p_agrees": agreement.p_values([judged], given)[0],
        "loss": rule.loss(judged, given),
        "undefined": rule.undefined(judged, given),
    }


def _estimate(estimate: Any) -> Mapping[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}
