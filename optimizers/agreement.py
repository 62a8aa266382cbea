"""The rules by which a judge agrees better with people, and no bias of it is larger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from evalbias.evaluation.agreement import choices_of
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, LIKELIHOODS, Judged
from evalbias.evaluation.words import ends
from evalbias.measures import EqualQuality
from evalbias.measures.agreement import counted_kappa, counted_pearson
from evalbias.measures.arrays import FloatArray, complete
from evalbias.measures.equal_quality import CHOICES, RELIABILITIES, effects_on_judges
from evalbias.measures.families import higher_than_first
from evalbias.measures.resample import Draws, Statistic, estimate_coefficient, influences, left_out, mean
from evalbias.optimizers.selection import CHOICE_LEVEL, Rule, last_items
from evalbias.programs.items import length_feature

LOSS = 0.05  # level of the one-sided tests that a number that should stay gets worse
ERROR_DRAWS = 5_000  # draws of the errors of all judges' numbers, from which the adjusted p-values are read
SLIGHT = 0.02  # fall in agreement that two lines, one fitted to each half of the items, may cause between them
ERROR_LEVEL = 0.01  # part of the chance of a false choice that is left to scores nearer to people's

Errors = tuple[FloatArray, FloatArray]
"""(s,) numbers of judges, NaN where undefined, and (draws, s) joint draws of how far they may err together."""


def undefined(judges: Sequence[Judged]) -> Errors:
    """Return numbers that are not defined."""
    return np.full(len(judges), np.nan), np.full((ERROR_DRAWS, len(judges)), np.nan)


def drawn_errors(influence: FloatArray, seed: int) -> FloatArray:
    """Draw (draws, s) errors of s numbers from the multivariate t of the jackknife's influences (inputs, s)."""
    rng, inputs = np.random.default_rng(seed), len(influence)
    normal = rng.standard_normal((ERROR_DRAWS, inputs)) @ influence
    return np.asarray(normal / np.sqrt(rng.chisquare(inputs - 1, size=(ERROR_DRAWS, 1)) / (inputs - 1)))


def jackknifed(
    statistic: Statistic, judges: Sequence[Judged], columns: Sequence[FloatArray], *shared: FloatArray, seed: int
) -> Errors:
    """Measure a statistic of each judge's column (n,) and what all share, on the items that define all of them.

    The errors are those of the jackknife over inputs; all is NaN for fewer than two inputs.
    """
    kept, codes = complete(*columns, *shared, clusters=judges[0].clusters)
    if len(np.unique(codes)) < 2:
        return undefined(judges)
    counts, shared = np.concatenate([np.ones((1, len(codes))), *left_out(codes)]), tuple(kept[len(columns) :])
    values = np.column_stack([statistic(counts, x, *shared) for x in kept[: len(columns)]])
    return values[0], drawn_errors(influences(values[1:]), seed)


# How a judge agrees with people, as one number: of scores, of verdicts, of comparisons.


@dataclass(frozen=True)
class AgreementMeasure:
    """A measure of agreement: a statistic of a judge's answers x and people's y, (n,) each; higher is better."""

    name: str
    label: str
    counted: Statistic  # f(counts (k, n), x, y) -> (k,)
    columns: Callable[[Judged], tuple[FloatArray, FloatArray]]

    def value(self, judged: Judged) -> float:
        """Compute the agreement on the items that define it; NaN without any."""
        (x, y), _ = complete(*self.columns(judged), clusters=judged.clusters)
        return float(self.counted(np.ones((1, len(x))), x, y)[0]) if len(x) > 1 else float("nan")

    def estimate(self, judged: Judged, seed: int) -> Estimate:
        """Estimate it with the jackknife's 95 % interval over inputs."""
        x, y = self.columns(judged)
        draws = Draws(seed=seed, swaps=0)
        interval = estimate_coefficient(self.counted, x, y, clusters=judged.clusters, draws=draws)
        known = {**vars(interval), "undefined": len(x) - interval.n}
        return Estimate(name=self.name, label=self.label, signed=self is not ACCURACY, **known)

    def errors(self, judges: Sequence[Judged], seed: int) -> Errors:
        """Measure judges' agreement on the items that all of them answered, with draws of the errors."""
        columns = [self.columns(judged) for judged in judges]
        return jackknifed(self.counted, judges, [x for x, _ in columns], columns[0][1], seed=seed)


def _scores(judged: Judged) -> tuple[FloatArray, FloatArray]:
    return judged.answers, judged.covariate(HUMAN_SCORES)


def _verdicts(judged: Judged) -> tuple[FloatArray, FloatArray]:
    """Return 1 for a pass, 0 for a failure, .5 where the raters are split in halves."""
    passed = np.where(np.isnan(judged.answers), np.nan, judged.answers >= 0.5)
    return passed, (1 + np.sign(judged.covariate(HUMAN_SCORES) - 0.5)) / 2


def _comparisons(judged: Judged) -> tuple[FloatArray, FloatArray]:
    """Return the share of the orders of a pair in which the judge chooses its first candidate, and people's choice."""
    orders = [choices_of(judged, order) for order in range(judged.answers.shape[1])]
    return np.mean(orders, axis=0), judged.preferred


def _same(counts: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    return mean(counts, x * y + (1 - x) * (1 - y))


PEARSON = AgreementMeasure("pearson", "Pearson", counted_pearson, _scores)
KAPPA = AgreementMeasure("kappa", "kappa", counted_kappa, _verdicts)
ACCURACY = AgreementMeasure("accuracy", "accuracy", _same, _comparisons)


def agreement_of(judged: Judged) -> AgreementMeasure:
    """Return the measure for a judge: accuracy of pairs, Cohen's kappa of pass or fail, else Pearson's correlation."""
    if judged.pairwise:
        return ACCURACY
    human = judged.covariate(HUMAN_SCORES)
    return KAPPA if judged.scale == (0, 1) and np.isin(human[~np.isnan(human)], (0, 0.5, 1)).all() else PEARSON


# Biases of several judges on the same items, with draws of their errors.


def effect_errors(feature: FloatArray, judges: Sequence[Judged], *, reliability: float | None, seed: int) -> Errors:
    """Measure the effects of a feature (n,) on judges' scores or log-odds, on the items that all of them answered.

    The errors are of the t distribution of the jackknife over inputs. All is NaN if the ratings are too few, or too
    weak, for it.
    """
    first, clusters = judges[0], judges[0].inputs or None
    known = EqualQuality(
        first.strength, first.ratings, {"feature": feature}, clusters=clusters, reliability=reliability
    )
    effect = known.effect("feature")
    if effect.weak or effect.reason:
        return undefined(judges)
    scores = np.column_stack([judged.strength for judged in judges])  # (n, s)
    effects, influence = effects_on_judges(feature, scores, first.ratings, clusters=clusters, reliability=reliability)
    return effects, drawn_errors(influence, seed)


def position_errors(judges: Sequence[Judged], *, seed: int) -> Errors:
    """Measure by how much the first position wins more than half of the pairs, both orders averaged."""
    wins = [judged.first_wins.mean(axis=1) - 0.5 for judged in judges]
    return jackknifed(mean, judges, wins, seed=seed)


def bias_errors(name: str, judges: Sequence[Judged], *, seed: int) -> list[Errors]:
    """Measure a bias of judges: "position", "verbosity" or "likelihood"; one measurement for each possible reliability.

    One rating an item does not tell its reliability: the effect is then measured at the lowest and the highest.
    """
    first = judges[0]
    if name == "position":
        return [position_errors(judges, seed=seed)]
    covariate = LENGTHS if name == "verbosity" else LIKELIHOODS
    values = first.covariate(covariate)
    feature = first.first_less_second(length_feature(values) if name == "verbosity" else values)
    rated = np.isfinite(first.ratings)
    reliabilities: tuple[float | None, ...] = (None,)
    if not (rated.sum(axis=1) > 1).any():
        choices = len(np.unique(first.ratings[rated])) <= 2
        reliabilities = CHOICES if choices else RELIABILITIES
    return [effect_errors(feature, judges, reliability=one, seed=seed) for one in reliabilities]


def comparable_biases(judged: Judged) -> tuple[str, ...]:
    """Return the biases that rules compare, of those that the answers can tell."""
    covariates = {"likelihood": LIKELIHOODS, "verbosity": LENGTHS}
    effects = [name for name, covariate in covariates.items() if covariate in judged.covariates]
    return (*(["position"] if judged.both_orders else []), *effects)


# The rules.


class AgreementRule(Rule):
    """A judge is better if it agrees with people significantly better, and no bias of it is significantly larger.

    Better is a one-sided test of the agreement (``agreement_of``), adjusted for all judges. The magnitude of no bias in
    ``biases`` may be significantly larger, at any reliability of the ratings that these leave open; with ``rise``, it
    must also be ruled out that it is larger by more than this. A bias that is undefined has no veto. And the interval
    of the agreement must lie above 0: a change from -.05 to -.01 makes no useless judge useful.

    Args:
        measure: Measure of the agreement.
        biases: Names of the biases that must not grow.
        level: Chance that any judge passes the test of better agreement, where none agrees better.
        rise: Growth of the magnitude that the items must rule out; infinite for any.
        seed: Seed of the draws.
    """

    def __init__(
        self,
        measure: AgreementMeasure,
        *,
        biases: Sequence[str] = (),
        level: float = CHOICE_LEVEL,
        rise: float = np.inf,
        seed: int = 0,
    ) -> None:
        self.measure, self.biases, self.level, self.rise, self.seed = measure, tuple(biases), level, rise, seed
        less = f"no larger {biases[0]} bias" if len(biases) == 1 else "no larger bias"
        self.aim = f"better agreement with people{f' at {less}' if biases else ''}"

    def estimates(self, judged: Judged) -> dict[str, Estimate]:
        """Return the agreement, and of scores how far they are from people's."""
        shown = {self.measure.name: self.measure.estimate(judged, self.seed)}
        if self.measure is PEARSON and judged.on_peoples_scale:
            shown["error"] = mean_error(judged, self.seed)
        return shown

    def p_values(self, judged: Sequence[Judged], given: Judged) -> list[float]:
        """Return the p that the agreement of each is no higher, adjusted for all of them by ``step_down``."""

        def higher(judges: list[Judged]) -> FloatArray:
            return higher_than_first(*self.measure.errors(judges, self.seed))

        return [float(p) for p in np.minimum(1.0, in_families(judged, given, higher))]

    def loss(self, judged: Judged, given: Judged) -> str:
        """Say which bias is larger, or may be larger by more than ``rise``; or that no agreement is shown."""
        judges = [last_items(given, len(judged.ids)), judged]
        if grown := self._grown(judges):
            return grown
        agreement = self.measure.estimate(judged, self.seed)
        floor = 0.5 if self.measure is ACCURACY else 0.0
        shown = f"{agreement.label} {agreement.text()}, {ends(*map(agreement.text, (agreement.low, agreement.high)))}"
        return "" if agreement.low > floor else f"is not shown to agree with people ({shown})"

    def _grown(self, judges: Sequence[Judged]) -> str:
        """Say which bias of the second judge is larger; empty if none is."""
        return next(filter(None, (self._larger(bias, judges) for bias in self.biases)), "")

    def _larger(self, bias: str, judges: Sequence[Judged]) -> str:
        found = []
        for values, errors in bias_errors(bias, judges, seed=self.seed):
            if np.isnan(values).any():
                return ""
            before, after = np.abs(values)
            least, most = np.quantile(np.diff(np.abs(values + errors), axis=1), [LOSS, 1 - LOSS])
            rise = f"{BIASES[bias].title} bias {before:.2f} -> {after:.2f} in magnitude"
            if least > 0:
                found.append(f"is more biased ({rise})")
            elif most > self.rise:
                found.append(f"may be more biased ({rise}, change at worst {most:+.2f})")
            else:
                return ""
        return found[0] if found else ""

    def error(self, judged: Judged) -> float:
        return standard_error(self.measure.estimate(judged, self.seed))

    def costs(self, judged: Judged) -> tuple[float, ...]:
        return (-self.measure.value(judged),)


def mean_error(judged: Judged, seed: int) -> Estimate:
    """Estimate the mean absolute difference between scores and people's, in points."""
    gaps = np.abs(judged.answers - judged.covariate(HUMAN_SCORES))
    interval = estimate_coefficient(mean, gaps, clusters=judged.clusters, draws=Draws(seed=seed, swaps=0))
    return Estimate(name="error", label="mean error", signed=False, **vars(interval))


class ErrorRule(AgreementRule):
    """A judge is better if its scores are nearer to people's, and it agrees with them no less.

    Nearer is a one-sided test of the mean absolute difference, adjusted for all judges. No less: the agreement is not
    significantly lower by more than ``SLIGHT``, and no bias significantly larger.
    """

    def __init__(self, measure: AgreementMeasure, **options: Any) -> None:
        super().__init__(measure, **options)
        self.aim = "scores nearer to people's at no loss of agreement"

    def p_values(self, judged: Sequence[Judged], given: Judged) -> list[float]:
        def nearer(judges: list[Judged]) -> FloatArray:
            nearness = [-np.abs(one.answers - one.covariate(HUMAN_SCORES)) for one in judges]
            return higher_than_first(*jackknifed(mean, judges, nearness, seed=self.seed))

        return [float(p) for p in np.minimum(1.0, in_families(judged, given, nearer))]

    def loss(self, judged: Judged, given: Judged) -> str:
        judges = [last_items(given, len(judged.ids)), judged]
        values, errors = self.measure.errors(judges, self.seed)
        if not np.isnan(values).any() and np.quantile(np.diff(values + errors, axis=1), 1 - LOSS) < -SLIGHT:
            return f"loses agreement ({values[0]:.2f} -> {values[1]:.2f})"
        return self._grown(judges)

    def error(self, judged: Judged) -> float:
        return standard_error(mean_error(judged, self.seed))

    def costs(self, judged: Judged) -> tuple[float, ...]:
        return (mean_error(judged, self.seed).value,)


def in_families(judged: Sequence[Judged], given: Judged, test: Callable[[list[Judged]], FloatArray]) -> FloatArray:
    """Return (m,) p-values of m judges; ``test`` gets the given judge's answers and a family's to the same items.

    Judges measured on different items (cross-fitted ones on all rated items, others on the held-back ones) are families
    that share the level equally, so their p-values may be above 1.
    """
    sizes, adjusted = [len(one.ids) for one in judged], np.empty(len(judged))
    for size in set(sizes):
        family = [index for index, own in enumerate(sizes) if own == size]
        adjusted[family] = test([last_items(given, size), *(judged[index] for index in family)])
    return adjusted * len(set(sizes))


def standard_error(estimate: Estimate) -> float:
    """Return the standard error that a 95 % interval stands for."""
    return float((estimate.high - estimate.low) / (2 * scipy.stats.norm.ppf(0.975)))
