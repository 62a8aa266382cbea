"""Which of an epoch's instructions the search goes on with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Acceptance(Protocol):
    """Chooses between the incumbent and its rivals, all tested on the same pairs."""

    def __call__(self, incumbent: float, rivals: Sequence[float]) -> int | None:
        """Index of the rival that takes over; None keeps the incumbent. NaN never takes over."""
        ...


class StrictImprovement:
    """Greedy: the best rival, if it is better than the incumbent; the first of equals."""

    def __call__(self, incumbent: float, rivals: Sequence[float]) -> int | None:
        """See ``Acceptance``."""
        defined = [i for i, value in enumerate(rivals) if value == value]
        best = max(defined, key=lambda i: rivals[i], default=None)
        if best is None or (incumbent == incumbent and rivals[best] <= incumbent):
            return None
        return best
