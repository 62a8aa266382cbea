"""The same input twice: a judge's noise, and what its disagreement with people is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from evalbias.evaluation.bias import Bias, Plot, interval_plot, share_number
from evalbias.evaluation.estimates import Measurement, Number
from evalbias.evaluation.judged import SAMPLES, Judged
from evalbias.evaluation.words import percent
from evalbias.measures import estimate, estimate_coefficient, repeats
from evalbias.measures.arrays import FloatArray
from evalbias.measures.repeats import PARTS

NOISE = percent(1 - repeats.RELIABLE)
LABELS = {"raters": "between raters", "judge_noise": "the judge's noise", "systematic": "systematic"}
MOSTLY = {
    "raters": "most of it is between your raters: the rubric, not the judge, is unclear",
    "judge_noise": "most of it is the judge's noise: take the mean of more scores",
    "systematic": "most of it is systematic: neither more raters nor more scores of an input end it",
}
MOST_ITEMS = 10  # number of the items to discuss that are named for one reason


@dataclass(frozen=True)
class Repeats(Bias):
    """Noise of a judge that scored every input several times, and the parts of its disagreement with people.

    Numbers: ``test_retest``, the correlation of two scores of an input; ``noise_share`` of the variance of the audited
    means; ``flip_rate``, how often two scores of an input differ; ``noise_sd`` of one score in points; and
    ``samples_needed`` for a mean of which a tenth of the variance is noise. Of rated items also the shares ``raters``,
    ``judge_noise`` and ``systematic`` of the mean squared difference of one rating and one score.
    """

    reliability: float | None = None  # share of a single rating's variance that is quality, for items with one rating
    name, title, kind, judges = "repeats", "the same input twice", "explanation", "scores"
    question = "Does the judge give an input the same score twice, and what is its disagreement with people made of?"
    headlines = ("test_retest", "noise_share", "flip_rate")

    def numbers(self, judged: Judged) -> list[Number]:
        """Return the judge's noise, and of rated items the parts of a disagreement; nothing without repeated scores."""
        if SAMPLES not in judged.covariates:
            return []
        judge, people = self._moments(judged)
        shown: dict[str, Any] = {"signed": False, "tested": False}
        steady = partial(estimate_coefficient, repeats.counted_steadiness)
        share = partial(repeats.estimate_part, repeats.counted_noise_share)
        noise, needed = (partial(estimate, one) for one in (repeats.counted_noise, repeats.counted_needed))
        flips, says = repeats.flip_shares(judged.covariate(SAMPLES)), "Two scores of the same input differ"
        enough = f"Scores of an input whose mean is {NOISE} noise"
        numbers = [
            Number("test_retest", "test-retest", judge, steady, says="Correlation of two scores of an input", **shown),
            Number("noise_share", "noise", judge, share, says="Share of noise in the audited mean", **shown),
            share_number("flip_rate", "flip rate", flips, says=says),
            Number("noise_sd", "noise, points", judge, noise, says="Noise of one score, in points", **shown),
            Number("samples_needed", "scores needed", judge, needed, says=enough, **shown),
        ]
        for part in PARTS if judged.rated else ():
            says, share = f"Disagreement: {LABELS[part]}", partial(repeats.estimate_disagreement, part=part)
            numbers.append(Number(part, LABELS[part], judge, share, given=(people,), says=says, **shown))
        return numbers

    def _moments(self, judged: Judged) -> tuple[FloatArray, FloatArray]:
        judge = repeats.sample_moments(judged.covariate(SAMPLES))
        judge[:, 0] += judged.answers - judge[:, 0]  # a calibration moves the mean; NaN stays NaN
        ratings = judged.ratings if judged.rated else np.full((len(judge), 1), np.nan)
        return judge, repeats.rating_moments(ratings, reliability=self.reliability)

    def conclusion(self, measurement: Measurement) -> str:
        """Say how noisy the judge is, and what most of its disagreement with people is."""
        steady, needed = measurement["test_retest"], measurement["samples_needed"]
        if math.isnan(steady.low):
            why = repeats.NO_REPEATS if steady.n < 2 else "there are too few items, or all its scores are equal"
            return f"How noisy the judge is cannot be told: {why}."
        noise, low, high = (percent(min(1 - r, 1.0)) for r in (steady.value, steady.high, steady.low))
        said = (
            f"Two scores of the same input differ in {percent(measurement['flip_rate'].value)} of pairs. Of the "
            f"variance of one score over the inputs, {noise} is noise (95 % interval {low} to {high}); of that of the "
            f"mean, which is audited, {percent(measurement['noise_share'].value)}."
        )
        if not math.isnan(needed.value):
            enough = math.ceil(needed.value)
            said += f" {f'The mean of {enough} scores' if enough > 1 else 'One score'} has {NOISE} or less."
        if PARTS[0] not in measurement:
            return said
        parts = [measurement[name] for name in PARTS]
        if why := next((e.why_undefined for e in parts if math.isnan(e.low)), ""):
            return f"{said} What its disagreement with people is made of cannot be told: {why}."
        shares = ", ".join(f"{percent(e.value)} is {e.label} ({percent(e.low)} to {percent(e.high)})" for e in parts)
        most = next((MOSTLY[e.name] for e in parts if e.low > 0.5), "none is shown to be most of it")
        return f"{said} Of the disagreement of one score with one rating, {shares}: {most}."

    def discuss(self, measurement: Measurement) -> dict[str, list[str]]:
        """Return the ids of items on which raters differ most from each other, and the judge most from people."""
        judged = measurement.judged
        if judged is None or PARTS[0] not in measurement or math.isnan(measurement[PARTS[0]].low):
            return {}
        spread, distance = np.nan_to_num(np.abs(repeats.item_differences(*self._moments(judged)))).T
        orders = {"raters": np.lexsort((-distance, -spread)), "judge": np.lexsort((-spread, -distance))}
        return {name: [judged.ids[place] for place in order[:MOST_ITEMS]] for name, order in orders.items()}

    def plot(self, measurement: Measurement) -> Plot | None:
        known = PARTS[0] in measurement and not math.isnan(measurement[PARTS[0]].low)
        rows = {measurement[name].words: measurement[name] for name in (PARTS if known else self.headlines)}
        undefined = any(math.isnan(e.low) for e in rows.values())
        return None if undefined else interval_plot(rows, self.conclusion(measurement).removesuffix("."))
