"""Putting one metric's scores on another one's range by their quantiles (Xu et al. 2024, appendix)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalbias.measures.checks import defined, vectors

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class QuantileMap:
    """A monotone map from one range to another: a score goes to the target score of the same rank.

    Attributes:
        source: (m,) ascending, each value once.
        target: (m,) what each goes to, ascending; between two of them the map is linear.

    A score beyond the fitted range goes to the end of the target's: the map knows nothing there.
    """

    source: FloatArray
    target: FloatArray

    @classmethod
    def fit(cls, source: ArrayLike, target: ArrayLike) -> QuantileMap:
        """From two samples of any sizes, which need not be of the same items; NaN is left out.

        Equal source scores share the middle of their ranks, so that they go to one target score.

        Raises:
            ValueError: A sample with fewer than two defined scores, or a constant source.
        """
        (a,), (b,) = vectors(source=source), vectors(target=target)
        a, b = np.sort(a[defined(a)]), np.sort(b[defined(b)])
        values, first, counts = np.unique(a, return_index=True, return_counts=True)
        if len(values) < 2 or len(b) < 2:
            raise ValueError(
                f"{len(values)} different source scores and {len(b)} target scores: a map needs two or more of each."
            )
        ranks = (first + (counts - 1) / 2) / (len(a) - 1)
        ranks[0], ranks[-1] = 0.0, 1.0  # the ends go to the ends
        return cls(values, np.quantile(b, ranks))

    def __call__(self, values: ArrayLike) -> FloatArray:
        """(n,) the mapped scores; NaN stays NaN."""
        (x,) = vectors(values=values)
        return np.interp(x, self.source, self.target)

    def outside(self, values: ArrayLike) -> int:
        """How many scores lie beyond the fitted range."""
        (x,) = vectors(values=values)
        return int(((x < self.source[0]) | (x > self.source[-1])).sum())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write JSON."""
        told = {"source": self.source.tolist(), "target": self.target.tolist()}
        Path(path).write_text(json.dumps(told) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> QuantileMap:
        """Read what ``save`` wrote.

        Raises:
            ValueError: The file is no map.
        """
        try:
            told = json.loads(Path(path).read_text(encoding="utf-8"))
            source, target = (np.array(told[name], dtype=np.float64) for name in ("source", "target"))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no quantile map: write one with QuantileMap.save.") from error
        if source.shape != target.shape or (np.diff(source) <= 0).any() or (np.diff(target) < 0).any():
            raise ValueError(f"{path} is no quantile map: its scores do not ascend together.")
        return cls(source, target)
