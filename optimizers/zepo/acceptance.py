"""Rules that decide whether a candidate instruction replaces the incumbent."""

from __future__ import annotations

import math
from typing import Protocol

from evalbias.optimizers.zepo.candidate import Candidate


class Acceptance(Protocol):
    """Decides between a candidate and the incumbent; both answered the same examples."""

    def should_accept(self, candidate: Candidate, incumbent: Candidate) -> bool:
        """Return whether the candidate replaces the incumbent.

        An epoch's candidates that were judged on all examples are offered from the best objective to the worst; the
        first accepted one is taken. Both hold their objective and, in ``judged``, every answer, so that a rule may test
        the difference.
        """
        ...


class StrictImprovement:
    """Accepts a larger objective; an undefined one (NaN) never replaces another."""

    def should_accept(self, candidate: Candidate, incumbent: Candidate) -> bool:
        """See ``Acceptance``."""
        if math.isnan(candidate.objective):
            return False
        return math.isnan(incumbent.objective) or candidate.objective > incumbent.objective
