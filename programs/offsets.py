"""Offsets of batch calibration: what each position has regardless of the candidates."""

from __future__ import annotations

from typing import Any

from evalbias.measures.arrays import FloatArray
from evalbias.measures.calibration import batch_offsets
from evalbias.programs.settings import Setting

FEWEST_COMPARISONS = 10
"""Smallest batch for batch calibration."""


Offsets = dict[int, list[float]]
"""Log-probability offsets of the answers by number of candidates."""


class OffsetsSetting(Setting[Offsets]):
    """The offsets of a judge, which are fitted."""

    def dump(self, value: Offsets) -> Any:
        """Return the offsets with text keys, as JSON has them."""
        return {str(count): offsets for count, offsets in value.items()}

    def load(self, saved: Any, current: Offsets) -> Offsets:
        """Return the offsets with numbers as keys."""
        return {int(count): offsets for count, offsets in saved.items()}

    def reset(self, value: Offsets) -> Offsets:
        """Return no offsets."""
        return {}


def fit_batch_offsets(logprobs: FloatArray) -> FloatArray:
    """Return ``batch_offsets`` of a batch that is large enough.

    Raises:
        ValueError: There are fewer comparisons than ``FEWEST_COMPARISONS``.
    """
    if len(logprobs) < FEWEST_COMPARISONS:
        raise ValueError(
            f"Batch calibration over {len(logprobs)} comparisons would remove the preference itself: give "
            f"{FEWEST_COMPARISONS} or more, or call judge.calibrate(examples) first."
        )
    return batch_offsets(logprobs)
