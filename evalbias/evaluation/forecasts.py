"""A judge's probabilities as forecasts of what each person says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from evalbias.evaluation.bias import Bias, people_missing
from evalbias.evaluation.estimates import Measurement, Number
from evalbias.evaluation.judged import LEVEL_SHARES, Judged, mean_of_raters, passed_by_people
from evalbias.measures import estimate, forecasts
from evalbias.measures.agreement import counted_calibration_error
from evalbias.measures.arrays import FloatArray, ratio
from evalbias.measures.resample import Interval


@dataclass(frozen=True)
class Forecasts(Bias):
    """Skill of a judge's probabilities against the base rate, and what it is made of (``measures.forecasts``).

    A forecast is the probability that a person passes the output: says 1, or gives at least ``pass_mark``. Numbers:
    ``brier_skill``; ``reliability`` (0 where forecasts come true as often as they say) and ``resolution`` of the Brier
    score; ``forecast_error`` (ECE), and the ``flawless_error`` of right forecasts of these items, whose interval holds
    95 of 100. Of a judge that gives every level a probability, and people who rate in its levels, also
    ``ranked_skill``.
    """

    pass_mark: float | None = None  # the lowest rating that passes
    name, title, kind, judges = "forecasts", "probabilities as forecasts", "validity", "probabilities"
    question = "What are the judge's probabilities worth, as forecasts of what each person says?"
    headlines = ("brier_skill", "ranked_skill")

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
        shown: dict[str, Any] = {"signed": False, "tested": False}
        numbers, passed, p = [], passed_by_people(judged, self.pass_mark), self.forecasts(judged)
        if passed is not None and p is not None:
            shares = mean_of_raters(passed)
            skill = partial(estimate, forecasts.counted_brier_skill)
            error = partial(estimate, counted_calibration_error)
            reliability, resolution = (partial(forecasts.estimate_brier_part, part=one) for one in forecasts.PARTS)
            rows: dict[str, tuple[str, Callable[..., Interval], str]] = {
                "brier_skill": ("Brier skill", skill, "Skill against the base rate (Brier)"),
                "reliability": ("reliability", reliability, "Brier score that recalibration would save"),
                "resolution": ("resolution", resolution, "Brier score by which it tells items apart"),
                "forecast_error": ("ECE", error, "Calibration error (ECE)"),
            }
            numbers = [
                Number(name, label, p, estimator, given=(shares,), says=says, **{**shown, "signed": "skill" in name})
                for name, (label, estimator, says) in rows.items()
            ]
            says, bound = "For comparison: flawless forecasts", forecasts.estimate_flawless_error
            numbers.append(Number("flawless_error", "flawless", p, bound, given=(passed,), says=says, **shown))
        if (given := _levels_given(judged)) is not None:
            levels, says = judged.covariate(LEVEL_SHARES), "Skill against the climatology (RPS)"
            skill = partial(estimate, forecasts.counted_ranked_skill)
            numbers.append(Number("ranked_skill", "RPS skill", levels, skill, given=(given,), says=says, tested=False))
        return numbers

    def forecasts(self, judged: Judged) -> FloatArray | None:
        """Return (n,) probabilities of a pass; None where it is not known what passes."""
        if judged.scale == (0, 1):
            return judged.answers
        if self.pass_mark is None or judged.scale is None:
            return None
        (low, high), ratings = judged.scale, judged.ratings
        if not low < self.pass_mark <= high or ((ratings < low) | (ratings > high)).any():
            return None  # of the levels, none is known to be the one that passes
        levels = judged.covariate(LEVEL_SHARES)
        values = judged.scale[0] + np.arange(levels.shape[1])
        return np.asarray(levels @ (values >= self.pass_mark).astype(np.float64))

    def conclusion(self, measurement: Measurement) -> str:
        """Say whether the probabilities say more than the base rate, and come true as often as they say."""
        said = [_skill(measurement, *one) for one in (("brier_skill", "base rate"), ("ranked_skill", "climatology"))]
        error = measurement["forecast_error"].value if "forecast_error" in measurement else math.nan
        if not math.isnan(error):
            bound = measurement["flawless_error"].high
            shown = (
                f"their calibration error is {error:.2f}, and flawless forecasts stay below {bound:.2f} in 95 of 100"
            )
            if error > bound:
                said.append(f"They do not come true as often as they say: {shown}.")
            else:
                empty = measurement["brier_skill"].low <= 0  # NaN is not below
                said.append(f"Nothing shows that they are not calibrated ({shown}).")
                said += ["Being calibrated is empty without skill: so is the base rate, said of every item."] * empty
        if said := [one for one in said if one]:
            said.append("What is forecast is each person's own verdict, not that of their mean.")
        return " ".join(said)


def _skill(measurement: Measurement, name: str, against: str) -> str:
    if name not in measurement:
        return ""
    if math.isnan((e := measurement[name]).low):
        return f"Whether its probabilities say more than the {against} cannot be told: {e.why_undefined}."
    verdict = "say more than" if e.low > 0 else "say less than" if e.high < 0 else "are not shown to say more than"
    return f"Its probabilities {verdict} the {against}: {e.label} {e.text()} (95 % interval {e.interval})."


def _levels_given(judged: Judged) -> FloatArray | None:
    """Return (n, K) shares of an item's people who gave each level; None where ratings lie between or beyond them."""
    if LEVEL_SHARES not in judged.covariates or judged.scale is None:
        return None
    ratings = judged.ratings
    values = judged.scale[0] + np.arange(judged.covariate(LEVEL_SHARES).shape[1])
    known = ~np.isnan(ratings)
    if len(values) < 3 or not np.isin(ratings[known], values).all():
        return None
    counts = (ratings[:, :, None] == values).sum(axis=1).astype(np.float64)
    return ratio(counts, np.broadcast_to(known.sum(axis=1, keepdims=True).astype(np.float64), counts.shape))
