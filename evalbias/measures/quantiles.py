"""Quantile mapping: put the scores of one metric on the scale of another (Xu et al. 2024, appendix B)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import defined, vectors


@dataclass(frozen=True)
class QuantileMap:
    """Monotone map that sends each source score to the target score of the same quantile.

    It is linear between the fitted scores. A score outside the fitted range is sent to the nearer end of the target
    range; ``outside`` counts such scores.

    Attributes:
        source: (m,) distinct source scores, ascending.
        target: (m,) target score of each source score, ascending.

    Examples:
        >>> to_mqm = QuantileMap.fit([0.0, 0.5, 1.0], [-25, -10, 0])
        >>> to_mqm([0.5, 0.75, 2.0]).tolist()
        [-10.0, -5.0, 0.0]
    """

    source: FloatArray
    target: FloatArray

    @classmethod
    def fit(cls, source: ArrayLike, target: ArrayLike) -> QuantileMap:
        """Fit the map to a sample of each metric; the samples may differ in size and items.

        Equal source scores share their mean rank, and with it one target score.

        Args:
            source: (n,) scores of the metric to map; NaN is left out.
            target: (k,) scores on the scale to map to; NaN is left out.

        Raises:
            ValueError: The source has fewer than two distinct scores, the target fewer than two scores, or a score is
                infinite.
        """
        (a,), (b,) = vectors(source=source), vectors(target=target)
        a, b = np.sort(a[defined(a)]), np.sort(b[defined(b)])
        values, first, counts = np.unique(a, return_index=True, return_counts=True)
        if len(values) < 2 or len(b) < 2:
            raise ValueError(
                f"{len(values)} different source scores and {len(b)} target scores were given; fit needs at least two "
                "of each."
            )
        ranks = (first + (counts - 1) / 2) / (len(a) - 1)
        ranks[0], ranks[-1] = 0.0, 1.0  # the ends of the source map onto the ends of the target
        return cls(values, np.quantile(b, ranks))

    def __call__(self, values: ArrayLike) -> FloatArray:
        """Map (n,) scores to the target scale; NaN stays NaN."""
        (x,) = vectors(values=values)
        return np.interp(x, self.source, self.target)

    def outside(self, values: ArrayLike) -> int:
        """Count the scores outside the fitted range."""
        (x,) = vectors(values=values)
        return int(((x < self.source[0]) | (x > self.source[-1])).sum())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the map to a JSON file."""
        content = {"source": self.source.tolist(), "target": self.target.tolist()}
        Path(path).write_text(json.dumps(content) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> QuantileMap:
        """Read a file that ``save`` wrote.

        Raises:
            ValueError: The file does not hold a quantile map.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            source, target = (np.array(content[name], dtype=np.float64) for name in ("source", "target"))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a quantile map; write one with QuantileMap.save.") from error
        if source.shape != target.shape or (np.diff(source) <= 0).any() or (np.diff(target) < 0).any():
            raise ValueError(f"{path} is not a quantile map: its scores do not ascend; write it again.")
        return cls(source, target)
