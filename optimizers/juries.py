"""A jury of recorded judges: how to combine them, whom to ask first, and whether that beats the best judge alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evalbias.evaluation.agreement import agreement_of_scores
from evalbias.evaluation.estimates import Estimate, Number
from evalbias.evaluation.judged import HUMAN_SCORES, RATINGS, Judged, mean_of_raters
from evalbias.evaluation.juries import Shared, shared_biases
from evalbias.evaluation.words import joined, percent, signed
from evalbias.measures.agreement import estimate_pearson
from evalbias.measures.arrays import FloatArray, defined
from evalbias.measures.families import higher_than_first
from evalbias.measures.juries import JuryRule, fit_rules
from evalbias.measures.resample import Draws
from evalbias.optimizers.likelihood_rules import (
    LOSS,
    agreement_errors,
    folds_of,
)
from evalbias.optimizers.selection import GIVEN, Candidate, Cost, Rule, choose

PEARSON = "pearson"  # name of the agreement that decides
COST = "cost"  # key of ``provenance``: cost of an answer of a jury
ALLOWED = 0.02  # fall in agreement (Pearson's r) that the items must rule out where fewer members are asked
TOLERANCES = (0.0, 0.25, 0.5, 1.0, 1.5)  # differences of standardized scores up to which members agree
PASSES, WINS = (0.0, 1.0), (-1.0, 1.0)  # values of verdicts: fail and pass, second and first


@dataclass(frozen=True)
class LearnedJury:
    """A jury that was learned from rated items.

    Attributes:
        judges: Names of the members.
        rule: How their scores become one, fitted to all items; that of the best judge alone where no jury is better.
        sentences: What was chosen and why, what asking some first saves, and which biases the jury keeps.
        answers: Scores of the jury on the items, each by a fit on other inputs.
        chosen: The way to combine the members, or the name of the best judge.
        agreement: Pearson's correlation with people of the best judge, and of the jury.
        costs: Cost of an item where all members are asked, and where some are asked first.
        shared: Biases of the members and of the chosen jury, of judges that score.
    """

    judges: tuple[str, ...]
    rule: JuryRule
    sentences: tuple[str, ...]
    answers: FloatArray
    chosen: str
    agreement: tuple[float, float]
    costs: tuple[float, float]
    shared: tuple[Shared, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.sentences)


class AgreementAlone(Rule):
    """A jury is better if it agrees with people significantly better (Pearson); of those as good, the cheaper is."""

    aim = "better agreement with people"
    unshown = "does not agree significantly better"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def estimates(self, judged: Judged) -> dict[str, Estimate]:
        return {PEARSON: _pearson(judged).estimate(judged.clusters, seed=self.seed)}

    def p_values(self, judged: Sequence[Judged], given: Judged) -> list[float]:
        return [float(p) for p in higher_than_first(*agreement_errors([given, *judged], seed=self.seed))]

    def costs(self, judged: Judged) -> tuple[float, ...]:
        return -_pearson(judged).value(judged.clusters), judged.provenance[COST]


def _pearson(judged: Judged) -> Number:
    return next(one for one in agreement_of_scores(judged) if one.name == PEARSON)


def learn_jury(
    judged: Sequence[Judged],
    *,
    costs: Mapping[str, float] | None = None,
    reliability: float | None = None,
    seed: int = 0,
) -> LearnedJury:
    """Learn from rated items how to combine judges (``judge`` of each is its name), if that is better than the best.

    Every combination of ``fit_rules`` scores each item by a fit on other inputs (ten folds), as it would a new item.
    One is taken where it agrees with people significantly better than the judge that agrees best on these items, and
    else that judge alone. Then members are asked first, the cheapest ones, and the others only where these differ,
    if that is cheaper and a loss of agreement of ``ALLOWED`` is ruled out.

    Raises:
        ValueError: Items that do not tell quality; see ``measures.juries.Panel``.
    """
    names, first = tuple(one.judge for one in judged), judged[0]
    prices = np.array([(costs or {}).get(name, 1.0) for name in names])
    table, verdicts = _table(judged)
    known: dict[str, Any] = {"reliability": reliability, "mirrored": first.both_orders, "names": names}
    people = {RATINGS: first.ratings, HUMAN_SCORES: mean_of_raters(first.ratings)}
    bare = replace(first, answers=np.empty(0), covariates=people, writers=(), ties=False, content_free=None)

    def answered(scores: FloatArray, cost: float) -> Judged:
        return replace(bare, answers=scores, provenance={**bare.provenance, COST: cost})

    # 1 each way to combine them, on inputs that took no part in the fit, beside the judge that agrees best
    folds, crossed = folds_of(first, seed), dict[str, FloatArray]()
    for fold in np.unique(folds):
        inside = folds == fold
        for name, rule in fit_rules(table[~inside], first.ratings[~inside], verdicts=verdicts, **known).items():
            crossed.setdefault(name, np.full(len(table), np.nan))[inside] = rule(table[inside])
    rules, whole = fit_rules(table, first.ratings, verdicts=verdicts, **known), defined(table)
    alone = [answered(np.where(whole, column, np.nan), price) for column, price in zip(table.T, prices, strict=True)]
    best = int(np.argmax(agreement_errors(alone, seed=seed)[0]))
    only = tuple(np.eye(len(names))[best].tolist())
    single = replace(next(iter(rules.values())), kind="mean", weights=only, offset=0.0)
    chosen = choose(
        Candidate(GIVEN, single, answers=alone[best]),
        [Candidate(n, r, answers=answered(crossed[n], prices[list(r.members)].sum())) for n, r in rules.items()],
        [AgreementAlone(seed)],
        test=lambda _: alone[best],
        spent=Cost,
        inputs=len(set(first.inputs or first.ids)),
    )
    rule, answers = chosen.chosen.program, chosen.answers
    assert answers is not None
    said = str(chosen.fields["decision"]).replace("The given program", f"The best judge alone, {names[best]},")
    members = joined([f"{names[k]} ({rule.weights[k]:.2f})" for k in rule.members])
    sentences = [said, f"Members and weights: {members}."] if len(rule.members) > 1 else [said]
    # 2 members that are asked first, and the biases that are left
    rule, more = _asking_first(rule, answers, table, prices, names, seed)
    shared = list[Shared]()
    if not first.pairwise:
        whose = replace(first, answers=answers.answers, scale=None, judge="chosen jury")
        shared = shared_biases(judged, whose, reliability)
    sentences += [more, *filter(None, (one.sentence() for one in shared))]
    spent = float(prices[list(rule.members)].sum()), rule.cost(table[whole], prices)
    agreement = _pearson(alone[best]).value(), _pearson(answers).value()
    name = names[best] if chosen.chosen.name == GIVEN else chosen.chosen.name
    told = tuple(filter(None, sentences))
    return LearnedJury(names, rule, told, answers.answers, name, agreement, spent, tuple(shared))


def _table(judged: Sequence[Judged]) -> tuple[FloatArray, tuple[float, float] | None]:
    """Return scores (n, K), of pairs from -1 (second) to 1 (first), and the values of verdicts if all are verdicts."""
    if judged[0].pairwise:
        return np.column_stack([2 * one.win_shares - 1 for one in judged]), WINS
    table = np.column_stack([one.answers for one in judged])
    return table, PASSES if np.isin(table[~np.isnan(table)], PASSES).all() else None


def _asking_first(
    rule: JuryRule, answers: Judged, table: FloatArray, prices: FloatArray, names: Sequence[str], seed: int
) -> tuple[JuryRule, str]:
    """Return the rule that asks the cheapest members first where that is shown to lose little, and what it saves."""
    order, before = np.argsort(prices, kind="stable"), prices[list(rule.members)].sum()
    sets = [tuple(sorted(order[:k].tolist())) for k in range(2, len(names)) if prices[order[:k]].sum() < before]
    tolerances = TOLERANCES[: 1 if rule.kind == "verdict" else None]
    tried = [replace(rule, first=one, tolerance=t) for one in sets for t in tolerances]
    kept, human = defined(table), answers.covariate(HUMAN_SCORES)
    best, cost, told = rule, before, ""
    for one in tried:
        spent = one.cost(table[kept], prices)
        early = np.where(one.settled(np.nan_to_num(table)), one(np.nan_to_num(table)), answers.answers)
        draws = Draws(seed=seed, confidence=1 - 2 * LOSS / len(tried))
        change = estimate_pearson(early, human, before=answers.answers, clusters=answers.clusters, draws=draws)
        if spent < cost and change.low > -ALLOWED:
            best, cost = one, spent
            asked = joined([names[place] for place in one.first])
            told = (
                f"Asking {asked} first, and the others only where these differ, settles "
                f"{percent(float(one.settled(table[kept]).mean()))} of the items and costs {spent:.3g} instead of "
                f"{before:.3g} an item; Pearson with people changes by {signed(change.value)} (at worst "
                f"{signed(change.low)})."
            )
    if not tried:
        return rule, ""
    return best, told or "Asking some first, and the others where these differ, is not shown to lose little enough."
