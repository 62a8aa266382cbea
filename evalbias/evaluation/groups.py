"""A judge on groups of the items, such as the sets of a benchmark or the kinds of bias that its pairs provoke."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy
import numpy as np

from evalbias.data.loaders import GROUPS
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.measurement import Bias, Measurement, measure


def group_field(data: Any, by: str | None) -> str | None:
    """Return the field that groups the items: the one that is named, else that of a known data set, else None."""
    return by if by is not None else GROUPS.get(getattr(data, "name", ""))


def measure_groups(
    bias: Bias, judged: Judged, examples: Sequence[dspy.Example], field: str, *, seed: int
) -> dict[str, Measurement]:
    """Measure a bias, or the agreement with people, on the items of each value of a field.

    Args:
        bias: See ``BIASES``.
        judged: Answers on all items.
        examples: The items, in the same order.
        field: Field whose values name the groups; items without a value belong to none.
        seed: Seed for the intervals.

    Returns:
        Group -> measurement, in order of first appearance; groups to which the bias does not apply are left out.

    Raises:
        ValueError: No item has the field.
    """
    values = [None if e.get(field) is None else str(e[field]) for e in examples]
    names = [name for name in dict.fromkeys(values) if name is not None]
    if not names:
        raise ValueError(f"No item has a field {field!r} to group by: name one that the data have.")
    parts = {name: judged.take(np.flatnonzero([value == name for value in values])) for name in names}
    return {name: measure(bias, part, seed=seed) for name, part in parts.items() if bias.applies(part)}
