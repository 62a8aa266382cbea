"""Rule by which a pointwise judge agrees with people better than the given one, at no larger likelihood bias."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evalbias.evaluation.advice import MARGINS
from evalbias.evaluation.estimates import clusters_of
from evalbias.evaluation.judged import HUMAN_SCORES, Judged
from evalbias.measures import performance_statistic
from evalbias.measures.arrays import FloatArray
from evalbias.measures.family_wise import higher_than_first
from evalbias.measures.statistic import SCORE_SD
from evalbias.optimizers.likelihood_rule import DRAWS, LOSS, OnHeldBack, last_items, standard_error
from evalbias.optimizers.selection import LEVEL

RISE = MARGINS[SCORE_SD]
"""Rise in the magnitude of the bias that the items must rule out: what an audit calls an effect worth finding."""


class AgreementRule(OnHeldBack):
    """A judge is better if it agrees with people significantly better, and its likelihood bias is not larger.

    This is the second rule of the optimizers against likelihood bias, for given judges whose bias no candidate is shown
    to lessen. Such a judge may have little bias because its scores say little, and demonstrations of the same search
    may make it useful.

    The performances are compared by one-sided permutation tests, adjusted for all judges (``higher_than_first``), in
    families as in ``LikelihoodRule``. Not larger means two things, as for the performance there: the magnitude of the
    bias is not significantly larger, and the items rule out that it is larger by more than ``RISE``. And the judge must
    agree with people at all: the interval of its performance lies above 0, because a calibration can raise -.05 to -.01
    significantly, which makes no useless judge useful. Of several such judges, the one with the smallest bias is taken
    among those whose performance is within one standard error of the best.
    """

    level = LEVEL / 2
    aim = "better agreement with people at no larger likelihood bias"

    def p_values(self, answers: Sequence[Judged], given: Judged) -> list[float]:
        """Return the p that the performance of each is no higher, adjusted for all of them."""

        def higher(judges: list[Judged]) -> FloatArray:
            return higher_than_first(
                performance_statistic(judges[0].covariate(HUMAN_SCORES)),
                [one.answers for one in judges],
                clusters=clusters_of(judges[0]),
                n_resamples=self.n_resamples,
                seed=self.seed,
            )

        return [float(p) for p in np.minimum(1.0, self.tested_in_families(answers, given, higher))]

    def loss(self, answers: Judged, given: Judged) -> str:
        """Say whether the bias is larger, or may be larger by more than ``RISE``, or no agreement is shown."""
        objective, judges = self.objective_for(given), [last_items(given, len(answers.ids)), answers]
        values, errors = objective.with_errors(judges, draws=DRAWS, seed=self.seed)
        if np.isnan(values).any():
            return f"may be more biased: the {objective.label} is undefined"
        before, after = np.abs(values)
        least, most = np.quantile(np.diff(np.abs(values + errors), axis=1), [LOSS, 1 - LOSS])
        rise = f"{objective.label} {before:.2f} -> {after:.2f} in magnitude"
        if least > 0:
            return f"is more biased ({rise})"
        if most > RISE:
            return f"may be more biased ({rise}, change at worst {most:+.2f})"
        performance = self.performance(answers)
        shown = f"performance {performance.text()}, {performance.interval}"
        return "" if performance.low > 0 else f"is not shown to agree with people ({shown})"

    def error(self, answers: Judged) -> float:
        """Return the standard error of the performance on the held-back items."""
        return standard_error(self.performance(self.compared(answers)))

    def costs(self, answers: Judged) -> tuple[float, ...]:
        """Return minus the performance, and the magnitude of the bias, on the held-back items."""
        size, performance = self.size_and_performance(answers)
        return -performance, size
