"""Quantile mapping: put the scores of one metric on the scale of another (Xu et al. 2024, appendix B)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray, settled
from evalbias.measures.checks import defined, vectors


@dataclass(frozen=True)
class QuantileMap:
    """Monotone map that sends each source score to the target score of the same quantile.

    It holds for the metric it was fitted to only, and names it.

    It is linear between the fitted scores. A score outside the fitted range is sent to the nearer end of the target
    range; ``outside`` counts such scores.

    Attributes:
        metric: Name of the metric whose scores are mapped, such as ``"chrf"``.
        source: (m,) distinct source scores, ascending.
        target: (m,) target score of each source score, ascending.

    Examples:
        >>> to_mqm = QuantileMap.fit([0.0, 0.5, 1.0], [-25, -10, 0], metric="comet wmt22-comet-da")
        >>> to_mqm([0.5, 0.75, 2.0]).tolist()
        [-10.0, -5.0, 0.0]
    """

    metric: str
    source: FloatArray
    target: FloatArray

    @classmethod
    def fit(cls, source: ArrayLike, target: ArrayLike, *, metric: str) -> QuantileMap:
        """Fit the map to a sample of each metric; the samples may differ in size and items.

        Equal source scores share their mean rank, and with it one target score.

        Args:
            source: (n,) scores of the metric to map; NaN is left out.
            target: (k,) scores on the scale to map to; NaN is left out.
            metric: Name of the metric to map; for feedback sources their ``name``.

        Raises:
            ValueError: The metric has no name, the source has fewer than two distinct scores, the target has fewer
                than two scores, or a score is infinite.
        """
        if not metric.strip():
            raise ValueError("metric is empty: name the metric of the source scores, such as 'chrf'.")
        (a,), (b,) = vectors(source=source), vectors(target=target)
        a, b = np.sort(settled(a[defined(a)])), np.sort(b[defined(b)])
        values, first, counts = np.unique(a, return_index=True, return_counts=True)
        if len(values) < 2 or len(b) < 2:
            raise ValueError(
                f"{len(values)} different source scores and {len(b)} target scores were given; fit needs at least two "
                "of each."
            )
        ranks = (first + (counts - 1) / 2) / (len(a) - 1)
        ranks[0], ranks[-1] = 0.0, 1.0  # the ends of the source map onto the ends of the target
        return cls(metric, values, np.quantile(b, ranks))

    def __call__(self, values: ArrayLike) -> FloatArray:
        """Map (n,) scores to the target scale; NaN stays NaN."""
        (x,) = vectors(values=values)
        return np.interp(x, self.source, self.target)

    def outside(self, values: ArrayLike) -> int:
        """Count the scores outside the fitted range."""
        (x,) = vectors(values=values)
        return int(((x < self.source[0]) | (x > self.source[-1])).sum())

    def check_metric(self, metric: str) -> None:
        """Refuse scores of another metric; upper and lower case do not matter.

        Args:
            metric: Name of the metric whose scores are to be mapped.

        Raises:
            ValueError: The map was fitted to another metric.
        """
        if metric.casefold() != self.metric.casefold():
            raise ValueError(
                f"The quantile map was fitted to scores of {self.metric!r}, but these are scores of {metric!r}: fit a "
                f"map to scores of {metric!r} and give it that name, or score with {self.metric!r}."
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the map to a JSON file, as a whole or not at all."""
        content = {"metric": self.metric, "source": self.source.tolist(), "target": self.target.tolist()}
        draft = Path(f"{os.fspath(path)}.part")
        draft.write_text(json.dumps(content) + "\n", encoding="utf-8")
        draft.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> QuantileMap:
        """Read a file that ``save`` wrote.

        Raises:
            ValueError: The file does not hold a quantile map (two or more pairs of finite scores, both ascending), or
                the map does not name its metric.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            source, target = (np.array(content[name], dtype=np.float64) for name in ("source", "target"))
        except (ValueError, KeyError, TypeError, RecursionError) as error:  # no JSON, other entries, or no numbers
            raise ValueError(f"{path} is not a quantile map; write one with QuantileMap.save.") from error
        metric = content.get("metric")
        if not isinstance(metric, str) or not metric.strip():
            raise ValueError(
                f'{path} does not name the metric that it maps: add an entry such as "metric": "chrf", or fit it again.'
            )
        if source.ndim != 1 or source.shape != target.shape or len(source) < 2:
            raise ValueError(
                f"{path} is not a quantile map: source and target must be lists of one length with two or more scores; "
                "write it again."
            )
        if not np.isfinite([source, target]).all():
            raise ValueError(f"{path} is not a quantile map: a score is not a finite number; write it again.")
        if (np.diff(source) <= 0).any() or (np.diff(target) < 0).any():
            raise ValueError(f"{path} is not a quantile map: its scores do not ascend; write it again.")
        return cls(metric, source, target)
