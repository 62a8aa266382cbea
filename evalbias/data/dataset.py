"""A data set in memory: DSPy examples, where they came from, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy


class DataError(ValueError):
    """A file is not what its loader reads; the message names file, line or item, and the remedy."""


class Dataset(list[Any]):
    """A list of ``dspy.Example`` with ``id``, ``source``, ``output`` and ``scores`` (criterion -> number or NaN).

    A slice or a copy is a plain list.

    Attributes:
        name: Of the data set.
        path: The file or folder it was read from.
        sha256: Of the contents of the files read, unpacked, in a fixed order.
        left_out: Reason -> the items left out for it, each as ``file:line`` or as its id.
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
        """One line: how many there are, and how many were left out why."""
        left = "; ".join(f"{len(items)} left out ({reason}: {_few(items)})" for reason, items in self.left_out.items())
        return f"{self.name}: {len(self)} items" + (f"; {left}" if left else "")


def _few(items: Sequence[str]) -> str:
    """The first three, and that there are more."""
    return ", ".join(items[:3]) + (", ..." if len(items) > 3 else "")
