"""A data set in memory: DSPy examples, their origin, and the items that were left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy


class DataError(ValueError):
    """Invalid data in a file; the message names the file, the line or item, and the remedy."""


class Dataset(list[Any]):
    """List of ``dspy.Example`` with ``id``, ``source``, ``output`` and ``scores`` (criterion -> number or NaN).

    Where single ratings are known, ``ratings`` maps a criterion to them, in the raters' order, NaN where one gave none.
    A slice or a copy is a plain list without the attributes.

    Attributes:
        name: Name of the data set.
        path: File or folder it was read from.
        sha256: SHA-256 of the uncompressed contents of all files read, in a fixed order.
        left_out: Reason -> items left out for this reason, each as ``file:line`` or as its id.
    """

    def __init__(
        self,
        examples: Iterable[dspy.Example],
        *,
        name: str,
        path: Path,
        sha256: str,
        left_out: Mapping[str, Sequence[str]],
    ) -> None:
        super().__init__(examples)
        self.name = name
        self.path = path
        self.sha256 = sha256
        self.left_out = {reason: tuple(items) for reason, items in left_out.items()}

    def summary(self) -> str:
        """Describe the data set in one line: number of items, and items left out by reason."""
        left = "; ".join(f"{len(items)} left out ({reason}: {_few(items)})" for reason, items in self.left_out.items())
        return f"{self.name}: {len(self)} items" + (f"; {left}" if left else "")


def _few(items: Sequence[str]) -> str:
    """Join the first three items, with an ellipsis if there are more."""
    return ", ".join(items[:3]) + (", ..." if len(items) > 3 else "")
