"""The ideal judge of the synthetic world: it knows quality and commonness and answers by Bayes' rule.

The embedded judge is trained towards its answers and compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from evalbias.data import world

PRIOR = math.log(world.FOND / (1 - world.FOND))
"""Log-odds that an unknown rater is fond of common phrasing."""

Table = tuple[list[float], list[float]]


def table(item: world.Item) -> Table:
    """Return the probability of each label under a fair and under a fond rater."""
    fair = world.label_probabilities(item, taste=world.RATERS["fair"])
    return fair, world.label_probabilities(item, taste=world.RATERS["fond"])


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
