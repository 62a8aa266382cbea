"""A jury of recorded judges: how to combine them, whom to ask first, and whether that beats the best judge alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evalbias.evaluation.judged import HUMAN_SCORES, RATINGS, Judged, mean_of_raters
from evalbias.evaluation.juries import Shared, prices_of, shared_biases
from evalbias.evaluation.words import count, joined, p_equals, percent, signed, with_interval
from evalbias.measures.agreement import estimate_pearson
from evalbias.measures.arrays import SLACK, BoolArray, FloatArray, IntArray, defined
from evalbias.measures.families import higher_than_first
from evalbias.measures.juries import JuryRule, Panel, fit_rules
from evalbias.measures.resample import Draws, Interval, with_variance
from evalbias.optimizers.correction import folds_of
from evalbias.optimizers.rules import CHOICE_LEVEL, LOSS, PEARSON

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
        agreement: Pearson's correlation with people of the best judge, and of the jury, on the items that chose them.
        expected: The correlation of the chosen on new items, which did not choose it, with its 95 % interval.
        costs: Cost of an item where all members are asked, and where some are asked first.
        shared: Biases of the members and of the chosen jury, of judges that score; none where one judge is kept.
    """

    judges: tuple[str, ...]
    rule: JuryRule
    sentences: tuple[str, ...]
    answers: FloatArray
    chosen: str
    agreement: tuple[float, float]
    expected: Interval
    costs: tuple[float, float]
    shared: tuple[Shared, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.sentences)


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
        ValueError: Items that do not tell quality; see ``measures.juries.Panel``. Or costs that are none.
    """
    names, first = tuple(answers.judge for answers in judged), judged[0]
    prices = np.array(prices_of(names, costs))
    table, verdicts = _table(judged)
    keys = np.array(first.inputs or first.ids)
    if len(set(keys)) < 2:
        raise ValueError("All items are of one input, and a jury is tried on others: give several inputs.")

    def fitted(rows: BoolArray) -> dict[str, JuryRule]:
        ratings, inputs, mirrored = first.ratings[rows], keys[rows].tolist(), first.both_orders
        panel = Panel(table[rows], ratings, names=names, clusters=inputs, reliability=reliability, mirrored=mirrored)
        return fit_rules(panel, table[rows], verdicts)

    people = {RATINGS: first.ratings, HUMAN_SCORES: mean_of_raters(first.ratings)}
    bare = replace(first, covariates=people, scale=None, writers=(), ties=False)
    # 1 each judge alone, and each way to combine them, on inputs that took no part in its fit
    folds, crossed = folds_of(first, seed), dict[str, FloatArray]()
    for fold in np.unique(folds):
        inside = folds == fold
        for name, rule in fitted(~inside).items():
            crossed.setdefault(name, np.full(len(table), np.nan))[inside] = rule(table[inside])
    rules, columns = fitted(np.ones(len(table), dtype=bool)), [*table.T, *crossed.values()]
    values, errors = PEARSON.errors([replace(bare, answers=scores) for scores in columns], seed)
    # 2 one that agrees significantly better than the judge that agrees best, or that judge
    k = len(names)
    best = int(np.argmax(values[:k]))
    tested = [best, *range(k, len(columns))]
    p_values = dict(zip(tested[1:], higher_than_first(values[tested], errors[:, tested]), strict=True))
    better = [place for place, p in p_values.items() if p < CHOICE_LEVEL]
    place = max(better or [*p_values], key=lambda candidate: float(values[candidate]))
    name, inputs = [*rules][place - k], count(len(set(keys)), "input")
    adjusted = f"adjusted {p_equals(float(p_values[place]))}"
    evidence = f"Pearson {values[best]:.2f} -> {values[place]:.2f}; {adjusted}, {inputs}"
    if better:
        rule, answers = rules[name], crossed[name]
        members = joined([f"{names[member]} ({rule.weights[member]:.2f})" for member in rule.members])
        sentences = [
            f'Combined by "{name}", the judges agree better with people than the best one alone, {names[best]} '
            f"({evidence})",
            f"Members and weights: {members}.",
        ]
    else:
        only = tuple(np.eye(k)[best].tolist())
        rule, answers = replace(next(iter(rules.values())), kind="mean", weights=only, offset=0.0), table[:, best]
        sentences = [
            f"The best judge alone, {names[best]}, is kept: none of {len(rules)} ways to combine the judges agrees "
            f'significantly better with people. The nearest is "{name}" ({evidence})'
        ]
        name, place = names[best], best
    # 3 what it is worth on new items, members that are asked first, and the biases that are left
    jury = replace(bare, answers=answers, judge="chosen jury")
    expected: Interval = PEARSON.estimate(jury, seed)
    if np.ptp(errors[:, place]) > SLACK:  # else it never errs here, and its errors tell of no luck
        value, variance = beyond_choice(values, errors, k)
        expected = with_variance(replace(expected, value=value), variance, df=expected.units - 1, confidence=0.95)
    note = ", where the choice does not flatter it"
    sentences[0] += f". On new items, expect Pearson {with_interval(expected, note=note)}."
    rule, saving = _asking_first(rule, jury, table, prices, names, seed)
    shared = list[Shared]()
    if better and not first.pairwise:
        shared = shared_biases(judged, replace(jury, covariates=first.covariates, writers=first.writers), reliability)
    sentences += [saving, *filter(None, (bias.sentence() for bias in shared))]
    spent = float(prices[list(rule.members)].sum()), rule.cost(table[defined(table)], prices)
    agreement = float(values[best]), float(values[place])
    told = tuple(filter(None, sentences))
    return LearnedJury(names, rule, told, answers, name, agreement, expected, spent, tuple(shared))


NOISE = 0.5  # variance of the noise that chooses anew, relative to the errors'


def beyond_choice(values: FloatArray, errors: FloatArray, members: int) -> tuple[float, float]:
    """Estimate the agreement on new items of what was chosen by ``values`` (s,), and its variance.

    The chosen owes its place partly to luck. With a noise e of ``NOISE`` times the variance of the errors (joint draws,
    (R, s)), values + e choose and values - e / ``NOISE`` tell: their errors are uncorrelated, so luck in one does not
    flatter the other (Rasines and Young 2023). The value is the mean over draws of e that choose the same kind, and its
    variance that of the same on values drawn anew. The first ``members`` are judges, the others ways to combine them.
    """
    values, errors = np.nan_to_num(values, nan=-1.0), np.nan_to_num(errors)
    noise, draws = math.sqrt(NOISE) * np.concatenate([errors[:400], -errors[:400]]), values + errors[-200:]
    gaps = errors[:, None, members:] - errors[:, :members, None]  # (R, members, ways), as are the next two
    scale = np.maximum(gaps.std(axis=0), SLACK)
    least = scale * np.quantile((gaps / scale).max(axis=2), 1 - CHOICE_LEVEL, axis=0)[:, None]

    def chosen(seen: FloatArray) -> IntArray:
        best = seen[..., :members].argmax(axis=-1)
        more = seen[..., members:] - np.take_along_axis(seen, best[..., None], axis=-1)
        better = np.where(more > least[best], more, -np.inf)
        return np.asarray(np.where(better.max(axis=-1) > 0, members + better.argmax(axis=-1), best))

    def told(seen: FloatArray) -> FloatArray:
        places = chosen(seen[:, None] + noise)
        other = np.take_along_axis(seen[:, None] - noise / NOISE, places[..., None], axis=-1)[..., 0]
        alike = (places >= members) == (chosen(seen)[:, None] >= members)
        return np.asarray((alike * other).sum(axis=1) / np.maximum(alike.sum(axis=1), 1))

    missed = told(draws) - values[chosen(draws)]
    return float(told(values[None])[0]), float((missed**2).mean())


def _table(judged: Sequence[Judged]) -> tuple[FloatArray, tuple[float, float] | None]:
    """Return scores (n, K), of pairs from -1 (second) to 1 (first), and the values of verdicts if all are verdicts."""
    if judged[0].pairwise:
        return np.column_stack([2 * judge.win_shares - 1 for judge in judged]), WINS
    table = np.column_stack([judge.answers for judge in judged])
    return table, PASSES if np.isin(table[~np.isnan(table)], PASSES).all() else None


def _asking_first(
    rule: JuryRule, answers: Judged, table: FloatArray, prices: FloatArray, names: Sequence[str], seed: int
) -> tuple[JuryRule, str]:
    """Return the rule that asks the cheapest members first where that is shown to lose little, and what it saves."""
    order, before = np.argsort(prices, kind="stable"), prices[list(rule.members)].sum()
    sets = [tuple(sorted(order[:k].tolist())) for k in range(2, len(names)) if prices[order[:k]].sum() < before]
    tolerances = TOLERANCES[: 1 if rule.kind == "verdict" else None]
    tried = [replace(rule, first=first, tolerance=t) for first in sets for t in tolerances]
    kept, human = defined(table), answers.covariate(HUMAN_SCORES)
    best, cost, sentence = rule, before, ""
    for candidate in tried:
        spent = candidate.cost(table[kept], prices)
        early = np.where(candidate.settled(np.nan_to_num(table)), candidate(np.nan_to_num(table)), answers.answers)
        draws = Draws(seed=seed, confidence=1 - 2 * LOSS / len(tried))
        change = estimate_pearson(early, human, before=answers.answers, clusters=answers.clusters, draws=draws)
        if spent < cost and change.low > -ALLOWED:
            best, cost = candidate, spent
            settled = float(candidate.settled(table[kept]).mean())
            firsts = joined([names[place] for place in candidate.first])
            sentence = (
                f"Asking {firsts} first, and the others only where these differ, settles {percent(settled)} of the "
                f"items and costs {spent:.3g} instead of {before:.3g} an item; Pearson with people changes by "
                f"{signed(change.value)} (at worst {signed(change.low)})."
            )
    if not tried:
        return rule, ""
    return best, sentence or "Asking some first, and the others where these differ, is not shown to lose little enough."
