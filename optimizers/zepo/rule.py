"""The choice between an instruction that was found and the given one, on held-back examples."""

from __future__ import annotations

from collections.abc import Sequence

import dspy
import numpy as np

from evalbias.data.pairing import input_key
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.judged import Judged
from evalbias.lm.types import MeasuringLM
from evalbias.measures.arrays import SLACK
from evalbias.measures.family_wise import holm
from evalbias.measures.resampling import cluster_codes
from evalbias.optimizers.selection import LEVEL
from evalbias.optimizers.zepo.answers import mixed
from evalbias.optimizers.zepo.objectives import Objective
from evalbias.optimizers.zepo.targets import Judge, target_of

N_RESAMPLES = 2_000
"""Swaps of the permutation test, and resamples of the interval."""


class ObjectiveRule:
    """A judge is better if its objective is higher (``Rule``).

    The test swaps both judges' answers input by input, which is right whatever the objective: under the null hypothesis
    it does not matter which of them answered.

    Args:
        objective: Objective; one that asks a content-free input says nothing about examples and is refused.
        examples: Held-back examples.
        lm: Model to ask.
        seed: Seed for swaps and resamples.

    Raises:
        ValueError: The objective asks a content-free input.
    """

    level = LEVEL

    def __init__(self, objective: Objective, examples: Sequence[dspy.Example], lm: MeasuringLM, *, seed: int) -> None:
        check_held_back(objective)
        self.objective = objective
        self.aim = f"a higher {objective.name}"
        self.examples, self.lm, self._seed = list(examples), lm, seed
        self._codes = cluster_codes([input_key(e) for e in examples], np.ones(len(examples), dtype=bool))

    def answers(self, program: Judge) -> Judged:
        """Return the judge's answers to the examples in the given order."""
        target = target_of(program, self.examples, self.lm)
        (rows,) = target.probabilities([target.first], self.examples)
        return target.judged(rows, self.examples, rows[:0])

    def undefined(self, answers: Judged, given: Judged) -> int:
        """Return the number of examples that it leaves without an answer beyond those of the given judge."""
        return _undefined(answers) - _undefined(given)

    def estimates(self, answers: Judged) -> dict[str, Estimate]:
        """Return the objective with its interval over inputs."""
        members = [np.flatnonzero(self._codes == code) for code in range(self._codes.max() + 1)]
        rng = np.random.default_rng(self._seed)
        draws = rng.integers(0, len(members), size=(N_RESAMPLES, len(members)))
        values = [self.objective(answers.take(np.concatenate([members[i] for i in draw]))) for draw in draws]
        low, high = np.nanquantile(values, [0.025, 0.975]) if not np.isnan(values).all() else (np.nan, np.nan)
        name, undefined = self.objective.name, _undefined(answers)
        estimate = Estimate(
            name=name,
            label=name,
            value=self.objective(answers),
            low=float(low),
            high=float(high),
            null=None,
            n=len(answers.ids) - undefined,
            undefined=undefined,
        )
        return {name: estimate}

    def p_values(self, answers: Sequence[Judged], given: Judged) -> list[float]:
        """Return the one-sided p that each objective is not higher, adjusted by Holm."""
        return holm([self._p_value(one, given) for one in answers])

    def _p_value(self, answers: Judged, given: Judged) -> float:
        observed = self.objective(answers) - self.objective(given)
        if np.isnan(observed):
            return float("nan")
        swaps = np.random.default_rng(self._seed).random((N_RESAMPLES, self._codes.max() + 1)) < 0.5
        extreme = 0
        for swap in swaps:
            mask = swap[self._codes]
            difference = self.objective(mixed(answers, given, mask)) - self.objective(mixed(given, answers, mask))
            extreme += not difference < observed - SLACK  # a tie counts, and NaN, which is not below
        return (1 + extreme) / (1 + N_RESAMPLES)

    def loss(self, answers: Judged, given: Judged) -> str:
        """Return nothing: the objective is all that is known without labels."""
        return ""

    def error(self, answers: Judged) -> float:
        """Return 0: any difference decides."""
        return 0.0

    def costs(self, answers: Judged) -> tuple[float, ...]:
        """Return minus the objective."""
        return (-self.objective(answers),)


def check_held_back(objective: Objective | None) -> None:
    """Refuse an objective that held-back examples do not change.

    Raises:
        ValueError: The objective asks a content-free input.
    """
    if objective is not None and objective.content_free:
        raise ValueError(
            f"The {objective.name} asks a content-free input, so no held-back examples can tell whether it is better: "
            "give select=False (--bare), or another objective."
        )


def _undefined(judged: Judged) -> int:
    return int(np.isnan(judged.answers.reshape(len(judged.ids), -1)).any(axis=1).sum())
