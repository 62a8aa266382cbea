"""The ideal judge of the synthetic world: it knows quality and commonness and answers by Bayes' rule.

The embedded judge is trained towards its answers and compared with it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from evalbias.data import world

RATERS = {"fair": 0.0, "fond": 1.0}
"""Kind of raters -> taste, in points of the scale per standard deviation of commonness."""

FOND = 0.95
"""Share of raters who like common phrasing."""

PRIOR = math.log(FOND / (1 - FOND))
"""Log-odds that an unknown rater is fond of common phrasing."""

Table = tuple[list[float], list[float]]


def table(item: world.Item) -> Table:
    """Return the probability of each label under a fair and under a fond rater."""
    return label_probabilities(item, taste=RATERS["fair"]), label_probabilities(item, taste=RATERS["fond"])


def label_probabilities(drawn: world.Item, *, taste: float) -> list[float]:
    """Compute the probability of each label of one rater, whose score is rounded to the nearest label."""
    opinion = drawn.quality + taste * drawn.commonness
    edges = [-math.inf, *(label + 0.5 for label in range(world.SCALE[0], world.SCALE[1])), math.inf]
    below = [0.5 * (1 + math.erf((edge - opinion) / (world.RATER_NOISE * math.sqrt(2)))) for edge in edges]
    return [high - low for low, high in itertools.pairwise(below)]


def evidence(item: Table, label: int) -> float:
    """Return the log-odds that one rated item adds to its rater being fond."""
    fair, fond = (probabilities[label - world.SCALE[0]] for probabilities in item)
    return math.log(max(fond, 1e-12) / max(fair, 1e-12))


def answer(item: Table, odds: float) -> list[float]:
    """Return the probability of each label, given the log-odds that the rater is fond."""
    share = 1 / (1 + math.exp(-max(-60.0, min(60.0, odds))))
    return [(1 - share) * fair + share * fond for fair, fond in zip(*item, strict=True)]


def expected(probabilities: Sequence[float]) -> float:
    """Return the expected label."""
    return sum(label * p for label, p in enumerate(probabilities, start=world.SCALE[0]))
