"""Pass or fail: how often a judge passes what deserves it, items to label, and the quality of its probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from evalbias.evaluation.bias import Bias, Plot, people_missing, share_number
from evalbias.evaluation.estimates import LEVEL, Estimate, Measurement, Number, items_needed
from evalbias.evaluation.judged import LEVEL_SHARES, Judged, mean_of_raters
from evalbias.evaluation.words import p_equals
from evalbias.measures import Interval, estimate, estimate_share, forecasts, verdicts
from evalbias.measures.arrays import FloatArray, mean_of_defined

WITHIN = 0.05  # half of a 95 % interval that is narrow enough for a rate
MOST_LABELS = 1_000_000  # largest number of labels that is recommended
RATES: Mapping[verdicts.Rate, tuple[str, str]] = {
    "tpr": ("TPR", "Passed, of what deserves to pass (true positive rate)"),
    "tnr": ("TNR", "Failed, of what deserves to fail (true negative rate)"),
    "annotator_tpr": ("one annotator's TPR", "For comparison: one annotator passes, of what deserves it"),
    "annotator_tnr": ("one annotator's TNR", "For comparison: one annotator fails, of what deserves it"),
    "prevalence": ("deserve to pass", "Share that deserves to pass (prevalence)"),
    "kappa": ("kappa with the truth", "Agreement with what is deserved, beyond chance (kappa with the truth)"),
    "annotator_kappa": ("one annotator's kappa with it", "For comparison: one annotator's kappa with what is deserved"),
}
"""Name of a number of ``estimate_rate`` -> its heading, and its words."""


class PassOrFail(Bias):
    """Rates at which a pass-or-fail judge is right, allowing for errors of annotators (``measures.verdicts``).

    Numbers: the rates of ``estimate_rate`` in ``RATES``, with an annotator's if annotators contradict each other;
    ``pass_rate``, the share that the judge passes; ``corrected_rate``, the share of all items that deserves it, if
    people labeled some; and ``dependence``, with the test that the errors of judge and annotators are independent.
    """

    name, title, kind, judges = "pass_or_fail", "pass or fail", "validity", "scores"
    question = "Does the judge pass what deserves it, and fail what does not?"
    headlines = ("tpr", "tnr")

    def missing(self, judged: Judged) -> Iterator[str]:
        answers = judged.answers[~np.isnan(judged.answers)]
        if len(answers) and np.isin(answers, (0.0, 1.0)).all():
            yield from people_missing(judged)

    def numbers(self, judged: Judged) -> list[Number]:
        if not judged.pass_or_fail:
            return []
        people = judged.ratings
        passed, failed = ((people == verdict).any(axis=1) for verdict in (1, 0))
        labeled, several, scores = passed | failed, bool((passed & failed).any()), judged.answers
        of_people, numbers = partial(Number, columns=(people,)), []
        for name, (label, says) in RATES.items():
            if several or not name.startswith("annotator"):
                used = labeled if several else {"tpr": passed, "tnr": failed}.get(name, labeled)
                tested = not several and name in ("tpr", "tnr", "kappa")
                rate = partial(of_people, signed="kappa" in name, tested=tested, excluded=int((~used).sum()))
                numbers.append(rate(name, label, scores, partial(verdicts.estimate_rate, of=name), says=says))
        numbers.append(share_number("pass_rate", "judge passes", scores, says="Share that the judge passes"))
        if not labeled.all():
            share = partial(of_people, signed=False, tested=False)
            says = "Share of all items that deserves to pass, labeled or not"
            numbers.append(share("corrected_rate", "corrected", scores, verdicts.corrected_rate, says=says))
        if several:
            says, outside = "Excess agreement of two, which independent errors do not have", int((~labeled).sum())
            excess = partial(of_people, null=0.0, tested=False, excluded=outside, says=says)
            numbers.append(excess("dependence", "dependence", scores, verdicts.estimate_dependence))
        return numbers

    def plot(self, measurement: Measurement) -> Plot | None:
        drawing = super().plot(measurement)
        return drawing and replace(drawing, title=rates_sentence(measurement).removesuffix("."))


def rates_sentence(measurement: Measurement) -> str:
    """Describe both rates in words."""
    tpr, tnr = measurement["tpr"], measurement["tnr"]
    if "annotator_tpr" in measurement:
        passes, people = measurement.numbers["tpr"].values, mean_of_raters(measurement.numbers["tpr"].columns[0])
        of_passed = mean_of_defined(passes[people > 0.5])
        of_failed = mean_of_defined(1 - passes[people < 0.5])
        most = f"Where most people passed an answer, the judge passed {_share(of_passed)}"
        most += f"; where most failed it, it failed {_share(of_failed)}."
        if math.isnan(tpr.value) and math.isnan(tnr.value):
            return f"{most} How often the judge is right cannot be told: {tpr.why_undefined}."
        rates = f"it passes {_of_100(tpr)} that deserve it, and fails {_of_100(tnr)} that do not"
        return f"{most} If the errors of judge and annotators are independent, {rates}."
    passed = f"Of the answers that people passed, the judge passed {_of_100(tpr)}"
    if not tpr.n:
        passed = "The judge answered none of those that people passed" if tpr.undefined else "People passed no answer"
    judge = "it" if tpr.n or tpr.undefined else "the judge"
    failed = f"of those that they failed, {judge} failed {_of_100(tnr)}"
    if not tnr.n:
        failed = f"{judge} answered none of those that they failed" if tnr.undefined else "they failed none"
    return f"{passed}; {failed}."


def _share(share: float) -> str:
    return "an unknown share" if math.isnan(share) else f"{100 * share:.0f} of 100"


def _of_100(e: Estimate) -> str:
    if math.isnan(e.value):
        return f"an unknown share ({e.why_undefined})"
    interval = "too few for an interval" if math.isnan(e.low) else f"{100 * e.low:.0f} to {100 * e.high:.0f}"
    return f"{100 * e.value:.0f} of 100 ({interval})"


def paragraphs_of_rates(measurement: Measurement) -> tuple[str, ...]:
    """Describe the rates, those of an annotator, whether errors are independent, and how many items to label."""
    first, more = rates_sentence(measurement), list[str]()
    if "annotator_tpr" in measurement and not math.isnan(measurement["tpr"].value):
        tpr, tnr = (100 * measurement[f"annotator_{name}"].value for name in ("tpr", "tnr"))
        test = measurement["dependence"]
        independence = f"which they are not ({p_equals(test.p_value)}): both rates may be too high or too low"
        if math.isnan(test.p_value):
            independence = f"but {test.reason}"
        elif not test.p_value < LEVEL:
            independence = f"against which nothing speaks ({p_equals(test.p_value)})"
        more.append(
            f"A single annotator passes {tpr:.0f} of 100 that deserve it, and fails {tnr:.0f} of 100 that do not. "
            f"These rates take the errors of judge and annotators to be independent, {independence}."
        )
    all_items = measurement.estimates.get("corrected_rate") if "annotator_tpr" in measurement else None
    if all_items is not None and not math.isnan(all_items.low):  # else people's mean of all items says this
        passes = f"the judge passes {100 * measurement['pass_rate'].value:.0f}"
        more.append(f"Of all answers, labeled or not, {_of_100(all_items)} deserve to pass; {passes}.")
    labels = measurement["prevalence"].n
    halves = [max(e.high - e.value, e.value - e.low) for e in map(measurement.__getitem__, ("tpr", "tnr"))]
    if not math.isnan(sum(halves)) and max(halves) > WITHIN:
        enough = math.ceil(labels * (max(halves) / WITHIN) ** 2)
        within = f"to within {100 * WITHIN:.0f} of 100"
        more.append(f"About {enough:,} labeled items would tell both rates {within} ({labels:,} do not).")
    return (first, *more)


def labels_to_decide(measurement: Measurement, name: str, limit: float) -> int | None:
    """Compute the number of labels that show with power .8 on which side of a limit an estimated rate lies.

    None if the rate is undefined, or its estimate lies too near to the limit.
    """
    rate, labels = measurement[name], measurement["prevalence"].n
    distance = abs(rate.value - limit)
    needed = items_needed(rate, distance) if distance > 0 else None  # NaN is not
    enough = None if needed is None else math.ceil(needed * labels / rate.n)
    return None if enough is None or enough > MOST_LABELS else enough


# A judge's probabilities as forecasts of each person's rating.


def passed_by_people(judged: Judged, pass_mark: float | None) -> FloatArray | None:
    """Return (n, r) 1 for a rating of at least ``pass_mark``, else 0; without a mark, verdicts of 1 and 0, or None."""
    ratings = judged.ratings
    if pass_mark is not None:
        return np.where(np.isnan(ratings), np.nan, ratings >= pass_mark)
    return ratings if np.isin(ratings[~np.isnan(ratings)], (0.0, 1.0)).all() else None


@dataclass(frozen=True)
class Forecasts(Bias):
    """Skill of a judge's probabilities against the base rate, and their calibration (``measures.forecasts``).

    A forecast is the probability that a person passes the output: says 1, or rates it at least ``pass_mark``. Numbers:
    ``brier_skill``; ``forecast_error`` (ECE), and the ``flawless_error`` of perfectly calibrated forecasts for these
    items, whose interval holds 95 of 100.
    """

    pass_mark: float | None = None  # lowest rating that passes
    name, title, kind, judges = "forecasts", "probabilities as forecasts", "validity", "probabilities"
    question = "What are the judge's probabilities worth, as forecasts of what each person says?"
    headlines = ("brier_skill",)

    def missing(self, judged: Judged) -> Iterator[str]:
        if not judged.rated:
            yield from people_missing(judged)
        elif passed_by_people(judged, self.pass_mark) is None:
            yield "the lowest rating that passes (pass_mark, --pass 4)"
        elif self.forecasts(judged) is None:
            yield "people's ratings, and the lowest that passes (pass_mark, --pass), on the judge's scale"

    def numbers(self, judged: Judged) -> list[Number]:
        if not judged.rated:
            return []
        passed, p = passed_by_people(judged, self.pass_mark), self.forecasts(judged)
        if passed is None or p is None:
            return []
        untested = partial(Number, signed=False, tested=False)
        shares = (mean_of_raters(passed),)
        skill = partial(estimate, forecasts.counted_brier_skill)
        error = partial(estimate, forecasts.counted_calibration_error)
        flawless, than = forecasts.estimate_flawless_error, "For comparison: flawless forecasts"
        says = "Skill against the base rate (Brier)"
        return [
            Number("brier_skill", "Brier skill", p, skill, columns=shares, says=says, tested=False),
            untested("forecast_error", "ECE", p, error, columns=shares, says="Calibration error (ECE)"),
            untested("flawless_error", "flawless", p, flawless, columns=(passed,), says=than),
        ]

    def forecasts(self, judged: Judged) -> FloatArray | None:
        """Return (n,) probabilities of a pass; None if it is unknown which scores pass."""
        if judged.scale == (0, 1):
            return judged.answers
        if self.pass_mark is None or judged.scale is None:
            return None
        (low, high), ratings = judged.scale, judged.ratings
        if not low < self.pass_mark <= high or ((ratings < low) | (ratings > high)).any():
            return None  # it is unknown which level is the lowest that passes
        levels = judged.covariate(LEVEL_SHARES)
        values = judged.scale[0] + np.arange(levels.shape[1])
        return np.asarray(levels @ (values >= self.pass_mark).astype(np.float64))

    def conclusion(self, measurement: Measurement) -> str:
        skill, error = measurement["brier_skill"], measurement["forecast_error"].value
        verdict = "are not shown to say more than"
        if skill.low > 0 or skill.high < 0:
            verdict = "say more than" if skill.low > 0 else "say less than"
        interval = f"95 % interval {skill.interval}"
        text = f"Its probabilities {verdict} the base rate: {skill.label} {skill.text()} ({interval})."
        if math.isnan(skill.low):
            text = f"Whether its probabilities say more than the base rate cannot be told: {skill.why_undefined}."
        bound = measurement["flawless_error"].high
        figures = f"their calibration error is {error:.2f}, and flawless forecasts stay below {bound:.2f} in 95 of 100"
        if error > bound:  # NaN is not above
            text += f" They do not come true as often as they say: {figures}."
        elif not math.isnan(error):
            text += f" Nothing shows that they are not calibrated ({figures})."
            if skill.low <= 0:  # NaN is not below
                text += " Being calibrated is empty without skill: so is the base rate, said of every item."
        return f"{text} What is forecast is each person's own verdict, not that of their mean."


# Items that the judge may decide alone.

ERRORS = (1, 2, 5, 10)  # allowed wrong decisions in 100
PARTS = {  # field of ``Alone`` -> name and description of the number
    "share": ("alone", "Decided alone, at {} wrong in 100 or fewer"),
    "pass_from": ("pass_from", "Passes from this score on, at {} in 100"),
    "fail_to": ("fail_to", "Fails up to this score, at {} in 100"),
}


@dataclass(frozen=True)
class DecidesAlone(Bias):
    """Share of items that the judge may decide alone (``measures.decided_alone``), and which to hand to people.

    Numbers, for each E in ``ERRORS`` wrong in 100 or fewer, with 95 % confidence: ``alone_E``, the share; if it is
    positive, ``pass_from_E`` and ``fail_to_E``, the lowest score that it passes alone and the highest that it fails
    alone; and ``wrong``, the share on which most people would contradict it if it decided all.
    """

    pass_mark: float | None = None  # lowest rating that passes
    name, title, kind, judges = "alone", "what it may decide alone", "validity", "scores"
    question = "Which items may the judge decide alone, and which should people?"
    headlines = tuple(f"alone_{error}" for error in ERRORS)

    def missing(self, judged: Judged) -> Iterator[str]:
        if judged.rated and passed_by_people(judged, self.pass_mark) is not None and self._mark(judged) is None:
            yield "scores from 0 to 1, or on people's scale: of these, it is not known which pass"

    def numbers(self, judged: Judged) -> list[Number]:
        people = passed_by_people(judged, self.pass_mark) if judged.rated and not judged.pairwise else None
        if people is None or (mark := self._mark(judged)) is None:
            return []
        of_people = partial(Number, columns=(people,), signed=False, tested=False)
        says, scores = "Wrong, if it decided all", judged.answers
        wrong = partial(_share_wrong, mark=mark)
        numbers = [of_people("wrong", "wrong, deciding all", scores, wrong, says=says)]
        for error in ERRORS:
            alone = verdicts.decided_alone(scores, people, error=error / 100, mark=mark, clusters=judged.clusters)
            for part, (name, words) in PARTS.items():
                if math.isfinite(getattr(alone, part)):
                    estimator, label = partial(_of_alone, part=part, error=error / 100, mark=mark), words.format(error)
                    numbers.append(of_people(f"{name}_{error}", label, scores, estimator))
        return numbers

    def _mark(self, judged: Judged) -> float | None:
        """Return the lowest score that passes; None if unknown."""
        if self.pass_mark is not None and judged.on_peoples_scale:
            return self.pass_mark
        scores = judged.answers[~np.isnan(judged.answers)]
        probable = judged.scale == (0, 1) or (self.pass_mark is None and ((scores >= 0) & (scores <= 1)).all())
        return 0.5 if probable else None

    def plot(self, measurement: Measurement) -> Plot | None:
        return None


def _share_wrong(
    scores: FloatArray, people: FloatArray, *, mark: float, before: Any = None, **options: Any
) -> Interval:
    earlier = None if before is None else verdicts.wrong_decisions(before, people, mark=mark)
    return estimate_share(verdicts.wrong_decisions(scores, people, mark=mark), before=earlier, **options)


def _of_alone(
    scores: FloatArray, people: FloatArray, *, part: str, before: Any = None, clusters: Any, draws: Any, **options: Any
) -> Interval:
    """Return a part of ``decided_alone``, or its difference from that of other scores."""
    value = getattr(verdicts.decided_alone(scores, people, clusters=clusters, **options), part)
    if before is not None:
        value -= _of_alone(before, people, part=part, clusters=clusters, draws=draws, **options).value
    return Interval(value if math.isfinite(value) else math.nan, n=int((~np.isnan(scores)).sum()))


def alone_sentence(measurement: Measurement) -> str:
    """State the share at 5 wrong in 100, or at 10 if that is 0, what to hand over, and what needs no judge."""
    shares = {error: measurement[f"alone_{error}"].value for error in ERRORS}
    error, wrong = 5 if shares[5] else 10, measurement["wrong"]
    if not shares[error]:
        fewest = math.log(verdicts.LEVELS[0]) / math.log1p(-error / 100)  # labels of which none may be wrong
        least = f"for no share of the items is that shown to be {error} or fewer"
        if wrong.n < fewest:
            return f"What it may decide alone is told by {math.ceil(fewest)} rated items or more; {wrong.n} are."
        return f"Deciding all, it is wrong in {_of_100(wrong)}; {least}."
    names = [name for name in (f"fail_to_{error}", f"pass_from_{error}") if name in measurement]
    ends, passes = [f"{measurement[name].value:.3g}" for name in names], names[-1].startswith("pass")
    handed_over = "; hand over the others"
    if shares[error] == 1:
        handed_over = ""
    elif np.isin(measurement.numbers["wrong"].values, (0.0, 1.0, math.nan)).all():
        handed_over = f", what it {'passes' if passes else 'fails'}{handed_over}"
    elif len(ends) > 1:
        handed_over = f"; hand over those above {ends[0]} and below {ends[1]}"
    else:
        its_own = f"from {ends[0]} on" if passes else f"up to {ends[0]}"
        handed_over = f", those {its_own}{handed_over}"
    people, alike = measurement.numbers["wrong"].columns[0], ""
    for verdict, always in ((1.0, "passing"), (0.0, "failing")):
        same = np.full(len(people), verdict)
        alone = verdicts.decided_alone(same, people, error=error / 100, mark=0.5, clusters=measurement.clusters)
        if alone.share >= shares[error]:
            alike = f" Always {always} would do as well."
    share = f"It may decide {_share(shares[error])} alone, at {error} wrong in 100 or fewer (95 % confidence)"
    return f"{share}{handed_over}.{alike}"
