"""The predictions of a pairwise judge, made of calibrated comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import dspy
import numpy as np

from evalbias.measures.arrays import FloatArray
from evalbias.measures.calibration import Comparisons, Order, decisions, gaps, win_probabilities


def predictions(
    comparisons: Comparisons, orders: Sequence[Order], *, ties: bool, samples: int | None
) -> list[dspy.Prediction]:
    """Return one prediction per comparison; for the fields, see ``PairwiseJudge.forward``.

    Args:
        comparisons: Calibrated comparisons of n pairs, or of more candidates each.
        orders: The orders in which the candidates were shown.
        ties: Whether the last answer is a tie.
        samples: Number of answers from which the probabilities are estimated; None where they are measured.
    """
    count = len(orders[0])
    lead, best = gaps(comparisons.probabilities), decisions(comparisons.probabilities)
    wins = win_probabilities(comparisons.probabilities, ties=ties)
    return [
        dspy.Prediction(
            preference=best[i] if best[i] != count else None,
            probability=float(row[0]),
            probabilities=row[:count].tolist(),
            tie=float(row[count]) if ties else 0.0,
            win_share=float(wins[i, 0]),
            gap=float(lead[i]),
            consistent=_consistent(comparisons.positions[i], orders),
            positions=comparisons.positions[i].tolist(),
            coverage=float(comparisons.coverage[i]),
            samples=samples,
        )
        for i, row in enumerate(comparisons.probabilities)
    ]


def _consistent(positions: FloatArray, orders: Sequence[Order]) -> bool | None:
    """True if every order (a row of ``positions``) prefers the same candidate, or none of them prefers any.

    None with one order, or where an order is undefined.
    """
    if len(orders) == 1 or np.isnan(positions).any():
        return None
    preferred = set()
    for best, order in zip(decisions(positions), orders, strict=True):
        preferred.add(order[best] if best is not None and best < len(order) else None)
    return len(preferred) == 1
