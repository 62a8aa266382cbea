"""A correction of recorded scores, for judges that cannot be changed: what is free to remove, and what the rest costs.

Some bias is an error: where quality does not rise with length, a judge that likes length agrees better without it. Some
is a good proxy: likely outputs are better ones, and a judge that no longer follows likelihood knows less. Then equal
treatment at equal quality and the best agreement contradict each other, whatever the method. So by default only what is
free is removed, and the trade of the rest is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from evalbias.evaluation.agreement import agreement_of_scores
from evalbias.evaluation.bias import Bias, measure, share_number
from evalbias.evaluation.estimates import Comparison, Estimate, Number, compare_judges
from evalbias.evaluation.judged import (
    HUMAN_SCORES,
    LENGTHS,
    LIKELIHOODS,
    RATINGS,
    Judged,
    mean_of_raters,
    rated_again,
    ratings_left_out,
)
from evalbias.evaluation.words import ends, signed
from evalbias.measures import estimate_effect, estimate_mean
from evalbias.measures.arrays import FloatArray, IntArray
from evalbias.measures.corrections import ScoreCorrection, fit_score_correction
from evalbias.measures.equal_quality import EqualQuality
from evalbias.optimizers import rules
from evalbias.optimizers.rules import PEARSON, Rule, effect_errors
from evalbias.optimizers.selection import GIVEN, Candidate, Cost, choose
from evalbias.programs.items import length_feature
from evalbias.programs.pointwise import LENGTH, LIKELIHOOD

FOLDS = 10  # parts of the inputs; each is corrected by a correction that was fitted on the others
STRENGTHS = (0.25, 0.5, 0.75, 1.0)  # parts of an effect that corrections subtract
COVARIATES = {LENGTH: LENGTHS, LIKELIHOOD: LIKELIHOODS}
"""Feature of every output -> the covariate of a judge's answers that holds it."""
SIGNIFICANT = 0.05  # level of the tests which features an effect belongs to, and whether scores are shifted
Model = TypeVar("Model")


@dataclass(frozen=True)
class Point:
    """Scores at one strength of a correction, on inputs that took no part in its fit."""

    feature: str
    strength: float  # part of the feature's effect that is subtracted
    effect: float  # what is left of it, in standard deviations of the score
    agreement: float  # Pearson's correlation with people
    chosen: bool
    reason: str


@dataclass(frozen=True)
class LearnedCorrection:
    """Correction that was learned from rated items, with what it does to their scores.

    Attributes:
        correction: The correction, fitted to all items; of nothing where nothing may be removed.
        sentences: What was removed and why, or why it stays: one sentence a feature, and the shift.
        front: Feature by feature, the effect and the agreement at every strength, beginning with 0.
        comparison: The scores before and after on all items, each corrected by a fit on other inputs.
    """

    correction: ScoreCorrection
    sentences: tuple[str, ...]
    front: tuple[Point, ...]
    comparison: Comparison

    def __str__(self) -> str:
        return "\n".join(self.sentences)


class CorrectedScores(Bias):
    """Effects of features on a judge's scores, and the agreement of these with people."""

    name, title = "corrected_scores", "the scores"

    def __init__(self, features: Sequence[str], *, differences: bool, reliability: float | None) -> None:
        self.features, self.differences, self.reliability = features, differences, reliability

    def numbers(self, judged: Judged) -> list[Number]:
        scores, human = judged.answers, judged.covariate(HUMAN_SCORES)
        agreement = {number.name: replace(number, tested=False) for number in agreement_of_scores(judged)}
        numbers = [self.effect(feature, judged) for feature in self.features]
        numbers += [agreement[name] for name in ("pearson", "tied_accuracy", "spearman")]
        if self.differences:
            chosen, wanted = ((1 + np.sign(values)) / 2 for values in (scores, human))
            agreed = np.where(wanted == 0.5, np.nan, 1 - np.abs(chosen - wanted))
            numbers.append(share_number("accuracy", "accuracy", agreed, says="Same choice as people"))
        return numbers

    def effect(self, feature: str, judged: Judged) -> Number:
        columns = judged.covariate(RATINGS), judged.covariate(feature)
        estimator = partial(
            estimate_effect, names=(feature,), reliability=self.reliability, differences=self.differences
        )
        name, label = f"{feature}_effect", f"effect of {feature}"
        return Number(name, label, judged.answers, estimator, columns=columns, null=0.0, tested=False)


def learn_correction(
    judged: Judged,
    *,
    features: Sequence[str] = (),
    max_loss: float = 0.0,
    reliability: float | None = None,
    seed: int = 0,
) -> LearnedCorrection:
    """Learn from rated items what a judge's scores owe to features, and subtract what it costs nothing to remove.

    Every score is first corrected by a fit on other inputs (ten folds), as a new item's would be. On these scores each
    feature is decided by itself, the one whose removal agrees best first: the strength is taken that leaves the effect
    significantly smaller and the agreement with people (Pearson, and pairwise accuracy with calibrated ties) not
    significantly lower; see ``smaller_rule``. A feature whose effect the others explain in the joint model is left
    alone. Scores on people's scale lose what they are too high; comparisons are averaged over both orders, and of one
    order lose the lean to the first position.

    Args:
        judged: Answers to rated items: scores, or comparisons, whose log-odds are corrected.
        features: Further covariates of it, besides length and likelihood where these are known.
        max_loss: Fall in Pearson's correlation that a smaller effect may cost, from 0 to below 1; 0 allows no
            significant loss, and none that may be .1 or more. Of few items, smaller losses go unnoticed.
        reliability: Share of a single rating's variance that is quality, for items with one rating each.
        seed: Seed of the folds and of the tests.

    Raises:
        ValueError: No feature is known, or what the scores owe to one is undefined, as for items with one rating.
    """
    return _Learning(judged, features, max_loss=max_loss, reliability=reliability, seed=seed).learned()


class _Learning:
    def __init__(
        self, judged: Judged, features: Sequence[str], *, max_loss: float, reliability: float | None, seed: int
    ) -> None:
        names = [*(name for name, column in COVARIATES.items() if column in judged.covariates), *features]
        if not names:
            raise ValueError("No feature of the outputs is known: give their texts, or the name of a field.")
        self.max_loss, self.reliability, self.seed = max_loss, reliability, seed
        self.judged, self.scored = judged, as_scores(judged, names)
        self.undefined = dict[str, str]()
        for name in names:
            try:
                self.fit(self.scored, (name,))
            except ValueError as error:
                self.undefined[name] = str(error)
        if len(self.undefined) == len(names):
            raise ValueError(f"{self.undefined[names[0]]} Nothing can be corrected.")
        self.names = [name for name in names if name not in self.undefined]
        self.of = CorrectedScores(self.names, differences=judged.pairwise, reliability=reliability)

    def learned(self) -> LearnedCorrection:
        steps: list[tuple[tuple[str, ...], float]] = []  # the features that are corrected together, and the strength
        front, current, left = list[Point](), self.scored, list(self.names)
        sentences = [f"{_title(name)}: nothing is subtracted. {why}" for name, why in self.undefined.items()]
        for name, why in self.explained().items():
            left.remove(name)
            sentences.append(why)
        while left:
            taken = steps[-1][0] if steps else ()
            tried = {name: self.crossed(steps, (*taken, name)) for name in left}
            name = max(left, key=lambda feature: np.nan_to_num(PEARSON.value(tried[feature][-1]), nan=-1.0))
            left.remove(name)
            strength, sentence, points = self.decided(name, current, tried[name])
            sentences.append(sentence)
            front += points
            if strength:
                current = tried[name][STRENGTHS.index(strength)]
                steps.append(((*taken, name), strength))
        correction = self.fitted(self.scored, steps)
        shift, sentence = self.shift(correction)
        measures = [measure(self.of, answers, seed=self.seed) for answers in (self.scored, current)]
        comparison = compare_judges(*measures, n_resamples=0, seed=self.seed)
        sentences += filter(None, (sentence, *ratings_left_out(self.judged), rated_again(self.judged)))
        return LearnedCorrection(replace(correction, shift=shift), tuple(sentences), tuple(front), comparison)

    def at_equal_quality(self, model: Callable[..., Model], judged: Judged, names: Sequence[str]) -> Model:
        """Return a model of ``EqualQuality``'s arguments, of scores and features by name."""
        features = {name: judged.covariate(name) for name in names}
        of_items = partial(model, judged.answers, judged.covariate(RATINGS), features, clusters=judged.inputs or None)
        return of_items(differences=self.judged.pairwise, reliability=self.reliability)

    def fit(self, judged: Judged, names: Sequence[str]) -> ScoreCorrection:
        full, provenance = self.at_equal_quality(fit_score_correction, judged, names), judged.provenance
        return replace(full, reduction=provenance.get("reduction", "sum"), length=provenance.get(LENGTH, "characters"))

    def fitted(self, judged: Judged, steps: Sequence[tuple[tuple[str, ...], float]]) -> ScoreCorrection:
        correction = self.fit(judged, ())
        for names, strength in steps:
            correction = correction.towards(self.fit(judged, names), strength)
        return correction

    def crossed(self, steps: Sequence[tuple[tuple[str, ...], float]], names: Sequence[str]) -> list[Judged]:
        """Return the scores at every strength, each item's corrected by fits on the inputs of the other folds."""

        def fit(others: Judged) -> list[ScoreCorrection]:
            try:
                base, full = self.fitted(others, steps), self.fit(others, names)
            except ValueError:  # undefined without this fold, and so are its scores
                return []
            return [base.towards(full, strength) for strength in STRENGTHS]

        return cross_fitted(self.scored, {name: self.scored.covariate(name) for name in names}, fit, seed=self.seed)

    def explained(self) -> dict[str, str]:
        """Return features whose effect the joint model gives to another one -> a sentence that says so."""
        if len(self.names) < 2:
            return {}
        model = self.at_equal_quality(EqualQuality, self.scored, self.names)
        own = [name for name in self.names if model.effect(name).p_value < SIGNIFICANT]
        why = f"nothing is subtracted, because no effect is shown beside that of {' and '.join(own)}."
        return {name: f"{_title(name)}: {why}" for name in self.names if own and name not in own}

    def decided(self, name: str, current: Judged, tried: Sequence[Judged]) -> tuple[float, str, list[Point]]:
        """Return the strength that is taken for a feature, 0 for none; why, in a sentence; and the front."""
        effect, rule = partial(self.effect, name), self.rule(name)
        strengths = zip(STRENGTHS, tried, strict=True)
        candidates = [Candidate(f"strength {strength:g}", None, answers=answers) for strength, answers in strengths]
        unchanged, inputs = Candidate(GIVEN, None, answers=current), len(set(current.inputs or current.ids))
        chosen = choose(unchanged, candidates, [rule], test=lambda _: current, spent=Cost, inputs=inputs)
        places = zip((0.0, *STRENGTHS), (current, *tried), chosen.candidates, strict=True)
        points = [
            Point(name, place, effect(answers).value, PEARSON.value(answers), report.chosen, report.reason)
            for place, answers, report in places
        ]
        (strength,) = (point.strength for point in points if point.chosen)
        return strength, self.sentence(points, rule, current, tried), points

    def effect(self, feature: str, judged: Judged) -> Estimate:
        return self.of.effect(feature, judged).estimate(judged.inputs or None, seed=self.seed)

    def rule(self, feature: str) -> Rule:
        effect, reliability, seed = partial(self.effect, feature), self.reliability, self.seed
        return rules.smaller_rule(
            f"effect of {feature}",
            lambda judges: effect_errors(judges[0].covariate(feature), judges, reliability=reliability, seed=seed),
            effect,
            max_loss=self.max_loss,
            seed=seed,
            level=rules.CHOICE_LEVEL / len(self.names),
            estimates=lambda judged: {rules.EFFECT: effect(judged)},
            costs=lambda judged: (abs(effect(judged).value), -PEARSON.value(judged)),
        )

    def sentence(self, points: Sequence[Point], rule: Rule, current: Judged, tried: Sequence[Judged]) -> str:
        """Say what is subtracted of a feature and what that does, or what it would cost."""
        last, name, first, all_of_it = tried[-1], points[0].feature, points[0], points[-1]
        effect = self.effect(name, current)
        title, evidence = _title(name), f"effect {effect.text()}, {effect.interval}"
        (chosen,) = (point for point in points if point.chosen)
        if chosen.strength:
            part = "all" if chosen.strength == 1 else f"{100 * chosen.strength:g} %"
            worst = rules.lowest_change(tried[STRENGTHS.index(chosen.strength)], current, self.seed)
            agreement = f"{first.agreement:.3f} -> {chosen.agreement:.3f}, at worst {signed(worst)}"
            accepted = f"a loss below {self.max_loss or rules.LOSS_MARGIN:g} is accepted"
            return (
                f"{title}: {part} of its effect is subtracted (effect {signed(first.effect)} -> "
                f"{signed(chosen.effect)}, Pearson with people {agreement}; {accepted}"
                f"{'' if self.max_loss else ' unless it is significant'})."
            )
        if not (effect.low > 0 or effect.high < 0):
            return f"{title}: nothing is subtracted, because no effect is shown ({effect.reason or evidence})."
        if math.isnan(all_of_it.effect):
            return f"{title}: nothing is subtracted, because its effect cannot be told from that of the others."
        if not rule.loss(last, current):
            return f"{title}: nothing is subtracted, because no strength is shown to lessen its effect ({evidence})."
        least = rules.allowance(rules.lowest_change(last, current, self.seed))
        allowed = f"; max_loss={least:g}, --max-loss {least:g}, would allow it" if least < 1 else ""
        return (
            f"{title}: its effect stays in the scores ({evidence}), because subtracting it costs agreement with "
            f"people. All of it would take the effect to {signed(all_of_it.effect)} and Pearson from "
            f"{first.agreement:.3f} to {all_of_it.agreement:.3f}{allowed}. {rules.proxy_worth(current, name, name)}"
        )

    def shift(self, correction: ScoreCorrection) -> tuple[float, str]:
        """Return by how much all scores are too high, 0 where that is not shown, and a sentence."""
        judged, scored = self.judged, self.scored
        features = {name: scored.covariate(name) for name in correction.slopes}
        scores, human = correction(scored.answers, features), scored.covariate(HUMAN_SCORES)
        if judged.pairwise and (judged.both_orders or judged.one_stands_first):
            averaged = "Position: both orders are averaged, so neither position has an advantage."
            return 0.0, averaged if judged.both_orders else ""
        if judged.pairwise:
            model = self.at_equal_quality(EqualQuality, replace(scored, answers=scores), self.names[:1])
            effect = model.effect(self.names[0])
            human = human * effect.quality * effect.score_sd
        elif not judged.on_peoples_scale:
            return 0.0, ""
        mean = estimate_mean(scores - human, clusters=scored.clusters)
        where, unit = ("Position", "log-odds of the first") if judged.pairwise else ("Leniency", "points")
        if not (mean.low > 0 or mean.high < 0):
            return 0.0, f"{where}: nothing is subtracted, because none is shown ({signed(mean.value)} {unit})."
        interval = ends(signed(mean.low), signed(mean.high))
        return mean.value, f"{where}: {signed(mean.value)} {unit} are subtracted from every score ({interval})."


def as_scores(judged: Judged, names: Sequence[str]) -> Judged:
    """Return answers as scores (n,) with features by name, the length in logarithms; of pairs log-odds, differences."""
    values = {name: judged.covariate(COVARIATES.get(name, name)) for name in names}
    if LENGTH in values:
        values[LENGTH] = length_feature(values[LENGTH])
    columns = {name: judged.first_less_second(column) for name, column in values.items()}
    people = {RATINGS: judged.ratings, HUMAN_SCORES: mean_of_raters(judged.ratings)} if judged.rated else {}
    covariates: Mapping[str, FloatArray] = {**columns, **people}
    return replace(judged, answers=judged.strength, covariates=covariates, writers=(), ties=False)


def _title(name: str) -> str:
    return name.capitalize() if name in COVARIATES else name


# Corrections that all rated items can test: each item is corrected by what other inputs tell.


def folds_of(judged: Judged, seed: int) -> IntArray:
    """Draw (n,) the fold of each item, of ten; the items of one input share it."""
    keys = judged.inputs or judged.ids
    inputs = list(dict.fromkeys(keys))
    order = np.random.default_rng(seed).permutation(len(inputs))
    fold_of = {inputs[place]: rank % FOLDS for rank, place in enumerate(order)}
    return np.array([fold_of[key] for key in keys])


def cross_fitted(
    judged: Judged,
    features: Mapping[str, FloatArray],
    fit: Callable[[Judged], Sequence[Callable[..., FloatArray]]],
    *,
    scale: tuple[float, float] = (-math.inf, math.inf),
    seed: int,
) -> list[Judged]:
    """Return the answers at every strength, corrected by fits on other inputs (ten folds); NaN in a fold without a fit.

    These are the answers that the corrections would give to new items, so they may be tested on the items they are
    fitted to: whether the bias exceeds half of what is subtracted, one interval of the bias answers for any
    subtraction. ``fit`` returns at most one correction for each of ``STRENGTHS``, and ``features`` (n,) are what these
    correct for; those that no fold has are NaN throughout.
    """
    folds = folds_of(judged, seed)
    scores = np.full((len(STRENGTHS), len(folds)), np.nan)
    for fold in np.unique(folds):
        inside = folds == fold
        own = {name: values[inside] for name, values in features.items()}
        for row, correction in zip(scores, fit(judged.take(np.flatnonzero(~inside))), strict=False):
            row[inside] = correction(judged.answers[inside], own, scale=scale)
    return [replace(judged, answers=row) for row in scores]
