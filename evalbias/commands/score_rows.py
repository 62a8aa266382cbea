"""The records that ``evalbias judge`` writes, one per item."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evalbias.measures.arrays import FloatArray
from evalbias.runs.values import json_object, number

BEGINNING = 80
"""Largest number of characters of a text in the records."""
NAMED = 100
"""Largest number of items that are named as refused."""


def rows_of(items: Sequence[Any], predictions: Sequence[Any]) -> list[dict[str, Any]]:
    """Return one record per item: its id, how its texts begin, score, most probable label, coverage and distribution.

    A distribution that is an estimate stands with the number of answers that it comes from (``samples``), an item that
    the model could not be asked about with the reason (``undefined``). A score that is corrected for likelihood
    stands with the uncorrected one (``raw_score``) and LS in nats (``likelihood``).
    """
    fields = ("score", "mode", "coverage", "distribution")
    optional = ("samples", "undefined", "raw_score", "likelihood")
    return [
        {
            "id": e.get("id", i),
            "source_begins": beginning(e.source),
            "output_begins": beginning(e.output),
            **{name: p[name] for name in fields},
            **{name: p[name] for name in optional if p.get(name) is not None},
        }
        for i, (e, p) in enumerate(zip(items, predictions, strict=True))
    ]


def beginning(text: str) -> str:
    """Return the beginning of a text in one line, so that a reader knows it again.

    Examples:
        >>> beginning("Dear  Madam or Sir, " + 20 * "very ")[-26:]
        'very very very very ver...'
    """
    line = " ".join(text.split())
    return line if len(line) <= BEGINNING else line[: BEGINNING - 3] + "..."


def scores_of(file: Path) -> FloatArray:
    """Return (n,) the scores of a file, which is read line by line; NaN where undefined."""
    return np.fromiter((number(row["score"]) for row in _rows(file)), dtype=np.float64)


def summary(file: Path) -> tuple[dict[str, Any], Any]:
    """Return count and mean of a file's scores, and every item's coverage; the file is read line by line.

    ``refused`` holds the ids of the items that the model could not be asked about, the first hundred of them;
    ``unanswered`` is the number of those that it was asked about, and that have no score.
    """
    scores, coverage = array("d"), array("d")
    refused: list[str] = []
    reasons = 0
    for row in _rows(file):
        scores.append(number(row["score"]))
        coverage.append(number(row["coverage"]))
        if "undefined" in row:
            reasons += 1
            if len(refused) < NAMED:
                refused.append(row["id"])
    values = np.array(scores)
    defined = values[~np.isnan(values)]
    brief = {
        "n": len(defined),
        "undefined": len(values) - len(defined),
        "mean": float(defined.mean()) if len(defined) else None,
        "refused": refused,
        "unanswered": len(values) - len(defined) - reasons,
    }
    return brief, np.array(coverage)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as lines:
        for n, line in enumerate(lines, start=1):
            row = json_object(line, f"{file}:{n}", "delete its folder to start over")
            if not {"id", "score", "coverage"} <= row.keys():
                raise ValueError(f"{file}:{n} is no record of a judged item: delete its folder to start over.")
            yield row
