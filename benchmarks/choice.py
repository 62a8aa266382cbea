"""Chances that a compiler of likelihood bias chooses, by planted biases: right choices, and false ones.

usage: python -m benchmarks.choice [--repeats 400] [--inputs 150 240] [--seed 0] [--write]

Judges score as ``quality + effect * LS + noise``; LS correlates .5 with the quality, and two people rate with noise. Of
13 candidates, five are judges with demonstrations and eight are calibrations, as in ``LikelihoodMitigation``. Each is
false or right by its bias in the population, which is known. As in ``LikelihoodMitigation``, a judge is chosen by
``likelihood_rule`` for a smaller bias, or by ``fair_rule`` for a better agreement with people at no larger bias.
Calibrations of the given judge are tested on all inputs, each corrected by a fit on others, and the other candidates on
the held-back half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from benchmarks.harness import argument_parser, finish, markdown
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, RATINGS, Judged
from evalbias.measures.arrays import FloatArray
from evalbias.optimizers.correction import cross_fitted
from evalbias.optimizers.likelihood import fitted
from evalbias.optimizers.rules import CHOICE_LEVEL, EFFECT, RISE, fair_rule, last_items, likelihood_rule
from evalbias.programs.pointwise import LIKELIHOOD

DEMONSTRATIONS = 5
LEVEL = CHOICE_LEVEL / 2
WIDE = (-1e9, 1e9)
"""A scale that clips nothing."""
FIT = partial(fitted, name=EFFECT, reduction="sum")
SMALLER, AGREEING = "smaller bias", "better agreement"


@dataclass(frozen=True)
class Taste:
    """Parameters of a judge's scores: slope on LS, and standard deviation of its own noise."""

    slope: float
    noise: float = 0.5

    @property
    def effect(self) -> float:
        """The likelihood effect in the population: the slope in standard deviations of the score."""
        return self.slope / self._deviation

    @property
    def performance(self) -> float:
        """Correlation of the score with the quality in the population."""
        return (1 + self.slope / 2) / self._deviation

    @property
    def _deviation(self) -> float:
        return math.sqrt(1 + self.slope**2 + self.slope + self.noise**2)


@dataclass(frozen=True)
class World:
    """A given judge and the one that every set of demonstrations makes of it."""

    name: str
    before: Taste
    demonstrated: Taste


WORLDS = (
    World("unbiased; so is every candidate", Taste(0.0), Taste(0.0)),
    World("unbiased; demonstrations take its noise away", Taste(0.0, 1.5), Taste(0.0, 0.05)),
    World("effect .30; demonstrations change nothing", Taste(0.41), Taste(0.41)),
    World("effect .30; demonstrations halve it", Taste(0.41), Taste(0.17)),
)


def judged(taste: Taste, quality: FloatArray, ls: FloatArray, ratings: FloatArray, noise: FloatArray) -> Judged:
    """Return a judge's scores of n items."""
    scores = quality + taste.slope * ls + taste.noise * noise
    covariates = {LIKELIHOODS: ls, HUMAN_SCORES: ratings.mean(axis=1), RATINGS: ratings}
    return Judged(tuple(map(str, range(len(ls)))), "quality", scores, covariates=covariates)


def drawn(world: World, n: int, rng: np.random.Generator) -> tuple[Judged, list[Judged]]:
    """Draw n items: the given judge's scores, and those with each set of demonstrations."""
    quality, other = rng.normal(size=(2, n))
    facts = quality, 0.5 * quality + math.sqrt(0.75) * other, quality[:, None] + rng.normal(size=(n, 2))
    before = judged(world.before, *facts, rng.normal(size=n))
    return before, [judged(world.demonstrated, *facts, rng.normal(size=n)) for _ in range(DEMONSTRATIONS)]


def calibrations(judge: Judged, on: Judged, taste: Taste) -> tuple[list[Judged], list[Taste]]:
    """Return a judge calibrated by a fit on other items, and what its scores follow, at every strength.

    Both are empty where the ratings of the other items agree too little for a fit; a compiler has no such candidate.
    """
    parts = FIT(on)
    covariates = {LIKELIHOOD: judge.covariate(LIKELIHOODS)}
    scores = [part(judge.answers, covariates, scale=WIDE) for part in parts]
    tastes = [replace(taste, slope=taste.slope - part.slopes[LIKELIHOOD].slope) for part in parts]
    return [replace(judge, answers=row) for row in scores], tastes


def tested(world: World, inputs: int, rng: np.random.Generator) -> dict[str, tuple[bool, bool, bool]]:
    """Test one data set: whether each rule passes a false one, a right one, a calibration at half strength."""
    before, candidates = drawn(world, inputs, rng)
    first = np.arange(inputs - inputs // 2)
    held = [last_items(candidate, inputs // 2) for candidate in candidates]
    seed = int(rng.integers(1 << 30))
    rule, agreement = (make_rule(EFFECT, seed=seed) for make_rule in (likelihood_rule, fair_rule))
    other, other_tastes = calibrations(held[0], candidates[0].take(first), world.demonstrated)
    _, own_tastes = calibrations(before, before, world.before)
    likelihoods = {LIKELIHOOD: before.covariate(LIKELIHOODS)}
    own = cross_fitted(before, likelihoods, FIT, scale=WIDE, seed=0)[: len(own_tastes)]
    tried, tastes = [*own, *held, *other], [*own_tastes, *[world.demonstrated] * len(held), *other_tastes]
    agrees = zip(agreement.p_values(tried, before), tried, strict=True)
    passed = {
        SMALLER: [p < rule.level for p in rule.p_values(tried, before)],
        AGREEING: [p < agreement.level and not agreement.loss(candidate, before) for p, candidate in agrees],
    }
    chances = {}
    for name, chosen in passed.items():
        better = _agrees if name == AGREEING else lambda a, b: abs(a.effect) < abs(b.effect) - 1e-12
        truth = [better(taste, world.before) for taste in tastes]
        false = any(taken and not true for taken, true in zip(chosen, truth, strict=True))
        right = any(taken and true for taken, true in zip(chosen, truth, strict=True))
        chances[name] = (false, right, bool(own_tastes) and chosen[1])
    return chances


def _agrees(taste: Taste, before: Taste) -> bool:
    return taste.performance > before.performance + 1e-12 and abs(taste.effect) < abs(before.effect) + RISE


def section(repeats: int, sizes: Sequence[int], seed: int) -> str:
    """Run all worlds and return the section."""
    rows = []
    for inputs in sizes:
        for number, world in enumerate(WORLDS):
            rng = np.random.default_rng([seed, inputs, number])
            runs = [tested(world, inputs, rng) for _ in range(repeats)]
            for name in (SMALLER, AGREEING):
                false, right, halved = np.mean([run[name] for run in runs], axis=0)
                biased, agreement = world.before.effect != 0, name == AGREEING
                possible = (_agrees(world.demonstrated, world.before), False) if agreement else (biased, biased)
                found = zip((right, halved), possible, strict=True)
                cells = [f"{100 * share:.1f}" if occurs else "" for share, occurs in found]
                rows.append([str(inputs), world.name, name, f"{100 * false:.1f}", *cells])
    headings = ("inputs", "given judge", "tests", "a false one passes, %", "a right one passes, %", "strength .5, %")
    return "\n\n".join(
        [
            "## Choosing between mitigations: false choices and power",
            f"{repeats} data sets a row (standard error at most {50 / math.sqrt(repeats):.1f}), 13 candidates, half of "
            f"the inputs held back, one output an input. Level {LEVEL:g} for a smaller bias, and "
            f"{LEVEL:g} for better agreement, which together is 5 %. False for a smaller bias is a "
            "candidate whose likelihood effect in the population is no smaller than the given one, and for better "
            f"agreement, one whose performance is no higher or whose effect is larger by {RISE:g} or more. *Strength "
            ".5* is the calibration of the given judge that halves its effect.",
            markdown(headings, rows),
        ]
    )


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--inputs", type=int, nargs="+", default=[150, 240])
    args = parser.parse_args()
    finish(args, "choice", section(args.repeats, args.inputs, args.seed))


if __name__ == "__main__":
    main()
