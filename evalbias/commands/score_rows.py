"""What ``evalbias judge`` writes of every item."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def rows_of(items: Sequence[Any], found: Sequence[Any]) -> list[dict[str, Any]]:
    """One row an item: its id, score, most probable label, coverage and distribution."""
    return [
        {"id": e.get("id", i), "score": p.score, "mode": p.mode, "coverage": p.coverage, "distribution": p.distribution}
        for i, (e, p) in enumerate(zip(items, found, strict=True))
    ]


def summary(file: Path) -> tuple[dict[str, Any], Any]:
    """Count and mean of a file's scores, and every item's coverage; the file is read line by line."""
    scores, coverage = array("d"), array("d")
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            scores.append(float("nan") if row["score"] is None else row["score"])
            coverage.append(float("nan") if row["coverage"] is None else row["coverage"])
    values = np.array(scores)
    defined = values[~np.isnan(values)]
    brief = {
        "n": len(defined),
        "undefined": len(values) - len(defined),
        "mean": float(defined.mean()) if len(defined) else None,
    }
    return brief, np.array(coverage)
