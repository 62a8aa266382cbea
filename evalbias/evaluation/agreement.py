"""Agreement with people: compared with baselines that need no judge, and corrected for the judge's errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from evalbias import measures
from evalbias.evaluation.bias import Bias, people_missing, share_number
from evalbias.evaluation.estimates import LEVEL, Estimate, Measurement, Number
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS, Judged, mean_of_raters
from evalbias.evaluation.words import amount_words, count
from evalbias.measures import estimate_coefficient, estimate_mean, estimate_share, estimate_spearman, win_shares
from evalbias.measures.agreement import ceiling_columns, counted_alpha, counted_ceiling, counted_kappa
from evalbias.measures.arrays import FloatArray
from evalbias.measures.corrections import MIN_LABELS
from evalbias.measures.resample import FEWEST_UNITS, SHARE, Draws, Interval, estimate_mean_coefficient

FLOORS = {"likelihood_floor": (LIKELIHOODS, "likelihood", "rarity"), "length_floor": (LENGTHS, "length", "brevity")}
"""Number -> its covariate, and its names if more, or if less, of the covariate agrees with people."""
PREFERRED = {"likelihood alone": "likelier", "rarity alone": "less likely"}
PREFERRED |= {"length alone": "longer", "brevity alone": "shorter"}  # label of a floor -> the output that it prefers
BOTH = "accuracy_both"  # name of a group's accuracy over both orders, which decides its verdict
SWAPS = 10_000  # swaps in the test that a judge agrees with people better than a floor


class PeopleAgreement(Bias):
    """Agreement with people, compared with people's own (ceiling) and that of likelihood or length alone (floors).

    The ``human_ceiling`` of scores is Spearman's rho between a rater's ratings and the mean of the item's other
    ratings, averaged over the raters; for pairs, the share in which a rater prefers the same candidate as the mean of
    the others. If judge and people say pass (1) or fail (0), ``kappa`` is Cohen's kappa between the judge and a rater
    drawn at random for each item, and ``human_kappa`` that between two raters. A floor ranks by LS or by length, in the
    direction that agrees better with these items, so a floor near chance is slightly too high. ``leniency`` is the mean
    of the judge's score minus people's, if they rate on its scale. Krippendorff's alpha treats judge and human score as
    two raters. For pairs, a tie counts half; probabilities are averaged over the orders.
    """

    name, title, kind = "agreement", "agreement with people", "validity"
    question = "Does the judge agree with people?"
    headlines = ("spearman", "accuracy")
    beside = ("tied_accuracy",)

    def missing(self, judged: Judged) -> Iterator[str]:
        return people_missing(judged)

    def numbers(self, judged: Judged) -> list[Number]:
        people = {BETTER, RATINGS} if judged.pairwise else {HUMAN_SCORES}
        if people.isdisjoint(judged.covariates):
            return []
        return [*(_of_choices(judged) if judged.pairwise else agreement_of_scores(judged)), *_floors(judged)]

    def validity(self, measurement: Measurement, judged: Judged, *, seed: int) -> Validity | None:
        """Say whether the judge tells good from bad; None if its agreement has no interval."""
        if len(answers := judged.answers[~np.isnan(judged.answers)]) < FEWEST_UNITS:
            return None
        if not judged.pairwise and len(same := np.unique(answers)) == 1:
            sentence = f"The judge gives every output the same score, {same[0]:g}, which says nothing about quality."
            return Validity("says nothing", sentence)
        people = judged.preferred if judged.pairwise else judged.covariate(HUMAN_SCORES)
        alike = np.unique(people[~np.isnan(people)], return_counts=True)[1]
        if not judged.both_orders and len(alike) == 1 and alike[0] >= FEWEST_UNITS:
            what = "prefer the same position in every pair" if judged.pairwise else "give every output the same score"
            return Validity("undefined", f"Whether the judge tells good from bad cannot be told: people {what}.")
        # 1 the agreement: for pairs over both orders; or kappa, to which the floors do not apply
        estimates, clusters = measurement.estimates, measurement.clusters
        own = headline_number(measurement.numbers)
        floors = [estimates[name] for name in FLOORS if name in estimates and not math.isnan(estimates[name].value)]
        if judged.pass_or_fail:
            agreement, human, beside = estimates["kappa"], estimates.get("human_kappa"), []
        else:
            human, beside = estimates.get("human_ceiling"), floors
            agreement = own.estimate(clusters, seed=seed) if judged.both_orders else estimates[own.name]
        # 2 the conclusion from its interval; in one order, a shared preference for a position is agreement by chance
        decides = estimates["kappa"] if judged.pairwise and not judged.both_orders else agreement
        if decides.units < FEWEST_UNITS < decides.n:
            few = f"these outputs answer {count(decides.units, 'input')}, and it takes {FEWEST_UNITS}"
            return Validity("undefined", f"Whether the judge tells good from bad cannot be told: {few}.")
        if math.isnan(decides.low):
            return None
        status = _told_by(decides, human)
        # 3 compare with the floors
        equal = [e for e in floors if not surpasses(own, measurement.numbers[e.name].values, clusters, seed=seed)]
        chance = [decides] if decides is not agreement and status not in ("valid", "says little") else []
        figures = ", ".join(f"{e.label} {e.text()}" for e in [*chance, *filter(None, [human]), *beside])
        interval = "; ".join(filter(None, [f"95 % interval {agreement.interval}", figures]))
        sentence = f"{VALIDITIES[status]}: {agreement.label} {agreement.text()} ({interval})."
        outputs = tuple(PREFERRED[e.label] for e in equal)
        if outputs and status != "contradicts people":
            status = "no better than a floor" if status == "valid" else status
            which = " or the ".join(outputs)
            sentence += f" It is not shown to agree with people better than always preferring the {which} output would."
        return Validity(status, sentence, outputs)

    def leniency(self, measurement: Measurement, judged: Judged) -> str:
        """Say how many more points the judge gives than people; empty if the scales differ or too few are rated."""
        e = measurement.estimates.get("leniency")
        if e is None or math.isnan(e.low):
            return ""
        if judged.pass_or_fail:
            return f"Of 100 outputs, the judge passes {amount_words(e.scaled(100), 'than people do on average', 0)}."
        outside = without_outliers(judged)[1]
        left_out = f", without {count(outside, 'rating')} outside the scale" if outside else ""
        return f"The judge gives {amount_words(e, 'points than people on average', note=left_out)}."

    def beyond_chance(self, measurement: Measurement) -> str:
        """Describe agreement beyond chance with people, and with the other order, for choices; empty for scores."""
        kappa, same = (measurement.estimates.get(name) for name in ("kappa", "consistency"))
        if kappa is None or "accuracy" not in measurement or math.isnan(kappa.low):
            return ""
        both = f"; in both orders, it chooses the same output in {100 * same.value:.0f} of 100 pairs" if same else ""
        return f"Beyond chance, its choices agree by kappa {kappa.text()} (95 % interval {kappa.interval}){both}."


ValidityStatus = Literal[
    "valid", "no better than a floor", "says little", "says nothing", "not shown", "contradicts people", "undefined"
]
VALIDITIES: Mapping[ValidityStatus, str] = {
    "valid": "The judge agrees with people beyond chance",
    "says little": "The judge says little about quality as people see it",
    "says nothing": "The judge says nothing about quality as people see it",
    "not shown": "The judge is not shown to tell good from bad",
    "contradicts people": "The judge contradicts people, so check that a high score, or a win, means a good output",
}
TELLING = 0.2
"""Correlation, kappa, or 2 p - 1 of an accuracy p, below which a judge says little about quality; or half of a rater's
own agreement, if that is less."""


@dataclass(frozen=True)
class Validity:
    """Answer to the question whether a judge tells good from bad, as people see it.

    The status follows from the 95 % interval of the agreement; for pairs in one order, of kappa. ``"valid"``: above
    chance; ``"no better than a floor"``: likelihood or length alone may agree as well; ``"says little"``: above chance,
    but the interval ends below ``TELLING``; ``"says nothing"``: it includes chance and ends below ``TELLING``, or all
    outputs have the same score; ``"not shown"``: it includes chance, but is wide, or raters hardly agree either;
    ``"contradicts people"``: below chance; ``"undefined"``: people's verdicts are all alike.
    """

    status: ValidityStatus
    sentence: str  # the status with figures: the judge's agreement, a rater's, and the floors
    no_better_than: tuple[str, ...] = ()  # outputs, such as the longer, that could always be preferred


def _told_by(agreement: Estimate, human: Estimate | None) -> ValidityStatus:
    """Return the status that an agreement's interval implies, compared with a rater's agreement, if known."""
    low, high = (_beyond_chance(end, agreement) for end in (agreement.low, agreement.high))
    reached = 1.0 if human is None or math.isnan(human.value) else max(_beyond_chance(human.value, human), 0.0)
    little = high < min(TELLING, reached / 2)
    if low > 0:
        return "says little" if little else "valid"
    return "contradicts people" if high < 0 else "says nothing" if little else "not shown"


def _beyond_chance(value: float, e: Estimate) -> float:
    """Rescale an agreement so that 0 is chance and 1 is perfect: 2 p - 1 for an accuracy p."""
    return 2 * value - 1 if e.unit == SHARE else value


def headline_number(numbers: Mapping[str, Number]) -> Number:
    """Return the agreement that decides the verdict: Spearman's rho, or the accuracy over both orders of pairs."""
    own = next(numbers[name] for name in PeopleAgreement.headlines if name in numbers)
    swapped = numbers.get(f"{own.name}_swapped")
    return own if swapped is None else replace(own, values=(own.values + swapped.values) / 2)


def surpasses(
    agreement: Number, floor: FloatArray, clusters: Sequence[object] | None, *, n_resamples: int = SWAPS, seed: int
) -> bool:
    """Return whether a judge's agreement with people is significantly above a floor's (n,) (paired, one-sided, 5 %)."""
    above = agreement.change(floor, clusters, seed=seed, n_resamples=0, swaps=n_resamples)
    return bool(above.value > 0 and above.p_value / 2 < LEVEL)


def agreement_of_scores(judged: Judged) -> list[Number]:
    """Return the agreement of a judge that scores with people, and people's agreement with each other."""
    human, scores = judged.covariate(HUMAN_SCORES), judged.answers

    number, of = partial(Number, columns=(human,), tested=False), measures.agreement
    ranks, line = "Rank correlation with people (Spearman)", "Linear correlation with people (Pearson)"
    same = "Same order or tie as people, of pairs"
    numbers = [
        number("spearman", "Spearman", scores, estimate_spearman, says=ranks, tested=True),
        number("pearson", "Pearson", scores, of.estimate_pearson, says=line),
        number("tied_accuracy", "accuracy of order", scores, of.estimate_tied_accuracy, says=same, signed=False),
    ]
    inside = without_outliers(judged)[0]
    alike = judged.scale is None and judged.on_peoples_scale  # and, if the scale is unknown, both reach the same ends
    reached = (scores, judged.ratings) if alike else ()
    if rated_on_its_scale(inside) or judged.pass_or_fail or len({(np.nanmin(x), np.nanmax(x)) for x in reached}) == 1:
        above, says = scores - inside.covariate(HUMAN_SCORES), "Points above people's, on average"
        points = partial(estimate_points, verdicts=judged.pass_or_fail)
        numbers.append(Number("leniency", "above people", above, points, says=says))
    if judged.on_peoples_scale:
        alpha, says = partial(estimate_coefficient, counted_alpha), "Agreement in points (Krippendorff's alpha)"
        numbers.append(number("alpha_interval", "alpha (interval)", scores, alpha, says=says))
    if judged.pass_or_fail:
        kappa, says = partial(estimate_coefficient, counted_kappa), "Agreement with one annotator beyond chance (kappa)"
        numbers.append(number("kappa", "kappa with one annotator", scores, kappa, says=says))
    columns = ceiling_columns(judged.ratings)
    if not np.isnan(columns).all():
        kinds = {"human_ceiling": ("one rater", CEILING, measures.agreement.counted_spearman)}
        if judged.pass_or_fail:
            kinds["human_kappa"] = ("kappa between annotators", f"{CEILING}, beyond chance (kappa)", counted_kappa)
        for name, (label, says, statistic) in kinds.items():
            ceiling = partial(estimate_coefficient, partial(counted_ceiling, statistic=statistic))
            numbers.append(Number(name, label, columns, ceiling, says=says, tested=False))
    return numbers


CEILING = "For comparison: one person with the others"


def estimate_points(x: FloatArray, *, verdicts: bool = False, **options: Any) -> Interval:
    """Estimate the mean of (n,) points; differences of ``verdicts``, of which most may be 0, as a share is."""
    found = estimate_mean_coefficient(x, **options) if verdicts else estimate_mean(x, **options)
    return replace(found, unit="points")


FEW = 0.05  # largest share of ratings outside the judge's scale that still counts as the same scale


def without_outliers(judged: Judged) -> tuple[Judged, int]:
    """Drop human ratings outside the judge's stated scale if these are few; return the rest and their number."""
    if judged.scale is None or judged.pairwise or HUMAN_SCORES not in judged.covariates:
        return judged, 0
    low, high = judged.scale
    rated = judged.ratings
    outside = (rated < low) | (rated > high)  # NaN is neither
    if not 0 < (number := int(outside.sum())) <= FEW * (~np.isnan(rated)).sum():
        return judged, 0
    kept = np.where(outside, np.nan, rated)
    people = {HUMAN_SCORES: mean_of_raters(kept), RATINGS: kept}
    return replace(judged, covariates={**judged.covariates, **people}), number


def rated_on_its_scale(judged: Judged) -> bool:
    """Return whether people rate on the judge's stated scale: pass and fail are not a crowded 1 to 5."""
    return judged.scale is not None and judged.on_peoples_scale


def _of_choices(judged: Judged) -> list[Number]:
    preferred, orders = judged.preferred, judged.answers.shape[1]
    chosen = [choices_of(judged, order) for order in range(orders)]
    says = "Same choice as people"
    numbers = [share_number("accuracy", "accuracy", agreeing(chosen[0], preferred), says=says)]
    if judged.both_orders:
        same, says = agreeing(chosen[1], preferred), f"{says}, other order"
        numbers.append(share_number("accuracy_swapped", "accuracy, swapped", same, says=says))
        says = "Same choice in both orders"
        numbers.append(share_number("consistency", "consistent", judged.consistent, says=says))
    beside_people = partial(Number, columns=(preferred,), tested=False)
    kappa, says = partial(estimate_coefficient, counted_kappa), "Agreement beyond chance (Cohen's kappa)"
    numbers.append(beside_people("kappa", "kappa", chosen[0], kappa, says=says))
    if not np.isin(judged.answers[~np.isnan(judged.answers)], (0.0, 1.0)).all():
        brier, error = measures.brier_scores(judged.win_shares, preferred), measures.estimate_calibration_error
        says = "Calibration error of the probabilities (ECE)"
        numbers.append(share_number("brier", "Brier", brier, says="Squared error of the probabilities (Brier)"))
        numbers.append(beside_people("calibration_error", "ECE", judged.win_shares, error, says=says, signed=False))
    if RATINGS in judged.covariates:
        rating, others = np.moveaxis(measures.agreement.one_against_the_others(judged.covariate(RATINGS)), 2, 0)
        ceiling = agreeing((1 + np.sign(rating)) / 2, side(others))  # (n, r), ties as those of the judge
        if not np.isnan(ceiling).all():
            untested = partial(Number, signed=False, tested=False)
            numbers.append(untested("human_ceiling", "one rater", ceiling, _one_rater, says=CEILING))
    return numbers


def _one_rater(
    same: FloatArray, *, before: FloatArray | None = None, clusters: Sequence[object] | None = None, draws: Draws
) -> Interval:
    """Estimate the mean of (n, r) agreements of a rater with the others, each counted once."""
    n, raters = same.shape
    codes = np.repeat(np.arange(n) if clusters is None else np.asarray(clusters, dtype=object), raters)
    earlier = None if before is None else before.ravel()
    share = estimate_share(same.ravel(), before=earlier, clusters=codes.tolist(), draws=draws)
    items = int((~np.isnan(same).all(axis=1)).sum())
    return replace(share, n=items, undefined=n - items)


def _floors(judged: Judged) -> list[Number]:
    """Return the floors, each in the direction that agrees better with people on these items."""
    floors = []
    for name, (covariate, more_of, less_of) in FLOORS.items():
        if (values := judged.covariates.get(covariate)) is not None:
            more, less = _floor(judged, name, values, more_of), _floor(judged, name, -values, less_of)
            floors.append(less if less.value() > more.value() else more)  # NaN is not above
    return floors


def _floor(judged: Judged, name: str, values: FloatArray, label: str) -> Number:
    says, label = f"For comparison: {label} in place of a judge", f"{label} alone"
    if not judged.pairwise:
        human = judged.covariate(HUMAN_SCORES)
        return Number(name, label, values, estimate_spearman, columns=(human,), says=says, tested=False)
    chosen = (1 + np.sign(values[:, 0] - values[:, 1])) / 2
    return share_number(name, label, agreeing(chosen, judged.preferred), says=says, tested=False)


def choices_of(judged: Judged, order: int) -> FloatArray:
    """Return (n,) choices in one order: 1 for the first candidate, 0 for the second, .5 for a tie."""
    shares = win_shares(measures.decision_shares(judged.answers[:, order]), ties=judged.ties)[:, 0]
    return np.asarray(shares if order == 0 else 1 - shares)


def side(difference: FloatArray) -> FloatArray:
    """Return 1 for positive numbers, 0 for negative ones, NaN for 0."""
    return np.where(difference == 0, np.nan, (1 + np.sign(difference)) / 2)


def agreeing(choice: FloatArray, other: FloatArray) -> FloatArray:
    """Return (n,) 1 for equal choices, 0 for different ones, .5 if either is a tie; NaN if undefined."""
    return np.asarray(choice * other + (1 - choice) * (1 - other))


# --- mean human score of all items, from a judge's answers on all and people's on a few -------------------------------


class CorrectedEstimates(Bias):
    """Mean score, or a system's win rate over another, corrected by the items that people labeled.

    Numbers: the judge's mean, people's mean over the labeled items, and ``measures.corrected_mean`` over all. For pairs
    of two systems: win rates of the alphabetically first system, a tie counting half, with ``corrected_rate`` if people
    call no pair a tie. They are right if the labeled items are a random sample, as ``label_next``'s.
    """

    name, title, kind = "corrected", "corrected by people's labels", "explanation"
    question = "What would people say of all items?"
    headlines = ("corrected_mean",)

    def numbers(self, judged: Judged) -> list[Number]:
        scores, people = _sides(judged)
        labels = people[~np.isnan(people)]
        if not MIN_LABELS <= len(labels) < len(judged.ids):
            return []
        if judged.pass_or_fail and not np.isin(labels, (0.0, 1.0)).all():  # pass or fail gives the share deserved
            return []
        limits = (0.0, 1.0) if judged.pairwise or judged.pass_or_fail else (-math.inf, math.inf)
        if judged.scale is not None and rated_on_its_scale(judged):
            limits = judged.scale
        mean: Callable[..., Interval] = estimate_share if judged.pairwise else estimate_mean
        if judged.pairwise:
            kind, who = "rate", f"{_systems(judged)[0]} wins, "
            headings = says = [f"{who}judge", f"{who}people", f"{who}corrected"]
        else:
            kind, who = "mean", ""
            headings = ["judge's mean", "people's mean", "corrected"]
            says = ["The judge's mean", "Mean of what people labeled", "Mean that people would give all items"]
        of_all = partial(Number, columns=(people,), signed=False, tested=False)
        corrected = partial(measures.corrected_mean, limits=limits)
        numbers = [
            Number(f"judge_{kind}", headings[0], scores, mean, signed=False, says=says[0]),
            Number(f"people_{kind}", headings[1], people, mean, signed=False, says=says[1]),
            of_all("corrected_mean", headings[2], scores, corrected, says=says[2]),
        ]
        verdicts = np.concatenate([scores, people])
        if judged.pairwise and np.isin(verdicts[~np.isnan(verdicts)], (0.0, 1.0)).all():
            label = f"{who}by sensitivity and specificity"
            numbers.append(of_all("corrected_rate", label, scores, measures.corrected_rate, says=label))
        return numbers

    def sentence_of_all(self, measurement: Measurement, judged: Judged) -> str:
        """Say what people would give all items on average, from a random sample of ratings; empty without interval."""
        judge, people, every, *_ = measurement.estimates.values()
        if math.isnan(every.low):
            return ""
        shares, n = judged.pairwise or judged.pass_or_fail, f"{every.n:,}"
        value, low, high, own = (f"{100 * x:.0f}" if shares else f"{x:.2f}" for x in (*every.numbers, judge.value))
        by_people, by_judge = f"People would give all {n} items {value} on average", f"the judge gives {own}"
        if judged.pass_or_fail:
            by_people, by_judge = f"Of all {n} items, people would pass {value} in 100", f"the judge passes {own}"
        if judged.pairwise:
            by_people = f"Of all {n} pairs, {_systems(judged)[0]:.80} would win {value} in 100 by people"
            by_judge = f"{own} by the judge"
        interval = f"95 % interval {low} to {high}, by the ratings of {people.n}, if these are a random few"
        return f"{by_people} ({interval}); {by_judge}."


def _sides(judged: Judged) -> tuple[FloatArray, FloatArray]:
    """Return (n,) scores of the judge and (n,) of people; for pairs of two systems, wins of the first system."""
    nobody = np.full(len(judged.ids), np.nan)
    if not judged.pairwise:
        return judged.answers, judged.covariates.get(HUMAN_SCORES, nobody)
    if not judged.rated or not (systems := _systems(judged)):
        return nobody, nobody
    ours = np.asarray(judged.writers, dtype=str)[:, 0] == systems[0]
    wins, chosen = (np.where(ours, first, 1 - first) for first in (judged.win_shares, judged.chosen))
    return wins, chosen


def _systems(judged: Judged) -> list[str]:
    """Return the two systems that every pair compares; empty if pairs differ."""
    pairs = {tuple(sorted(pair)) for pair in np.asarray(judged.writers, dtype=str).reshape(-1, 2).tolist()}
    names = sorted(pairs.pop()) if len(pairs) == 1 else []
    return names if len(set(names)) == 2 else []
