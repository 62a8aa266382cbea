"""The records that ``evalbias judge`` writes, one an item."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evalbias.runs.values import number


def rows_of(items: Sequence[Any], predictions: Sequence[Any]) -> list[dict[str, Any]]:
    """Return one record an item: its id, score, most probable label, coverage and distribution.

    A distribution that is an estimate stands with the number of answers that it comes from (``samples``).
    """
    fields = ("score", "mode", "coverage", "distribution")
    return [
        {
            "id": e.get("id", i),
            **{name: p[name] for name in fields},
            **({} if p.samples is None else {"samples": p.samples}),
        }
        for i, (e, p) in enumerate(zip(items, predictions, strict=True))
    ]


def summary(file: Path) -> tuple[dict[str, Any], Any]:
    """Return count and mean of a file's scores, and every item's coverage; the file is read line by line."""
    scores, coverage = array("d"), array("d")
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            scores.append(number(row["score"]))
            coverage.append(number(row["coverage"]))
    values = np.array(scores)
    defined = values[~np.isnan(values)]
    brief = {
        "n": len(defined),
        "undefined": len(values) - len(defined),
        "mean": float(defined.mean()) if len(defined) else None,
    }
    return brief, np.array(coverage)
