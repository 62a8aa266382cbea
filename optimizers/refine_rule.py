"""The choice between a compiled refine loop and the given one, on held-back items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dspy
import numpy as np

from evalbias.evaluation.estimates import Estimate, Sample, estimates_of
from evalbias.evaluation.external_scores import CachedScorer
from evalbias.evaluation.loops import LoopRun
from evalbias.measures import MeanStatistic, paired_permutation_test
from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import mean_of_defined
from evalbias.measures.family_wise import holm
from evalbias.optimizers.base import Problem
from evalbias.optimizers.selection import LEVEL
from evalbias.programs.refine import SelfRefine


@dataclass(frozen=True)
class Ran:
    """A loop over the held-back items: (n,) quality of the final outputs, and the requests for all items."""

    quality: FloatArray
    calls: int


class QualityRule:
    """A loop is better if its final outputs are, in a paired permutation test over the items (``Rule``).

    A loop that makes fewer requests may lose ``tolerance`` points of quality: it is better if its quality, raised by
    the tolerance, is.

    Args:
        problem: Input of the search.
        run: Runs a loop over items under a name.
        scorer: Source of the quality.
        tolerance: Points of quality that a cheaper loop may lose.
        n_resamples: Swaps of the test and resamples of the interval.
        seed: Seed for both.
    """

    level = LEVEL

    def __init__(
        self,
        problem: Problem,
        run: Callable[[SelfRefine, Sequence[dspy.Example], str], LoopRun],
        scorer: CachedScorer,
        *,
        tolerance: float,
        n_resamples: int,
        seed: int,
    ) -> None:
        self.aim = "a higher quality" + (f", or fewer requests for at most {tolerance:g} points" if tolerance else "")
        self._problem, self._run, self._scorer = problem, run, scorer
        self._tolerance, self._n_resamples, self._seed = tolerance, n_resamples, seed
        self._loops = 0

    def answers(self, program: SelfRefine) -> Ran:
        """Run a loop over the held-back items."""
        self._loops += 1
        run = self._run(program, self._problem.held_back, f"held-back-{self._loops}")
        calls = sum(loop.calls for loop in run.loops)
        self._problem.calls += calls
        return Ran(run.quality(self._problem.held_back, self._scorer)[-1], calls)

    def undefined(self, answers: Ran, given: Ran) -> int:
        """Return the number of items that it leaves without a defined quality beyond those of the given loop."""
        return int(np.isnan(answers.quality).sum()) - int(np.isnan(given.quality).sum())

    def estimates(self, answers: Ran) -> dict[str, Estimate]:
        """Return the mean quality with its interval."""
        samples = {"quality": Sample(answers.quality, MeanStatistic(), "quality", signed=False)}
        return estimates_of(samples, seed=self._seed, n_resamples=self._n_resamples)

    def p_values(self, answers: Sequence[Ran], given: Ran) -> list[float]:
        """Return the one-sided p that each quality is no higher, adjusted by Holm."""
        return holm([self._p_value(one, given) for one in answers])

    def _p_value(self, answers: Ran, given: Ran) -> float:
        allowed = self._tolerance if answers.calls < given.calls else 0.0
        test = paired_permutation_test(
            MeanStatistic(), answers.quality + allowed, given.quality, n_resamples=self._n_resamples, seed=self._seed
        )
        return test.p_value / 2 if test.difference > 0 else 1 - test.p_value / 2

    def loss(self, answers: Ran, given: Ran) -> str:
        """Return nothing: the quality is all that a loop is for."""
        return ""

    def error(self, answers: Ran) -> float:
        """Return 0: any difference decides."""
        return 0.0

    def costs(self, answers: Ran) -> tuple[float, ...]:
        """Return minus the mean quality, and the requests."""
        return (-mean_of_defined(answers.quality), float(answers.calls))
