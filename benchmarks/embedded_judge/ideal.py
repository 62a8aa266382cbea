"""The ideal judge of the synthetic world: it sees quality and commonness as they are and reasons by Bayes.

The embedded judge is trained towards its answers, and evaluated beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from evalbias.data import world

PRIOR = math.log(world.FOND / (1 - world.FOND))
"""Log-odds that a rater of whom nothing is known is fond of common phrasing."""

Table = tuple[list[float], list[float]]


def table(item: world.Item) -> Table:
    """Probability of each label under a fair and under a fond rater."""
    fair = world.label_probabilities(item, taste=world.RATERS["fair"])
    return fair, world.label_probabilities(item, taste=world.RATERS["fond"])


def evidence(item: Table, label: int) -> float:
    """What one rated item adds to the log-odds that its rater is fond."""
    fair, fond = (probabilities[label - world.SCALE[0]] for probabilities in item)
    return math.log(max(fond, 1e-12) / max(fair, 1e-12))


def answer(item: Table, odds: float) -> list[float]:
    """Probability of each label, the rater being fond at those log-odds."""
    share = 1 / (1 + math.exp(-max(-60.0, min(60.0, odds))))
    return [(1 - share) * fair + share * fond for fair, fond in zip(*item, strict=True)]


def expected(probabilities: Sequence[float]) -> float:
    """The expected label."""
    return sum(label * p for label, p in enumerate(probabilities, start=world.SCALE[0]))
