"""TMU-GFM (Yoshimura et al. 2020): corrected sentences rated 0 to 4 on grammar, fluency and meaning.

The CSV holds five ratings a cell and their published mean. 0 means "other" and is not part of that mean; a mean of
no rating is undefined. The column of grammar is spelled ``grammer``.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from evalbias.data.dataset import DataError, Dataset, Source, example, jsonl_rows, scores, text

ASPECTS = {"grammar": ("grammer", "ave_g"), "fluency": ("fluency", "ave_f"), "meaning": ("meaning", "ave_m")}


def load_tmu_gfm(path: Path) -> Dataset:
    """Read the published CSV, or its recorded JSONL form.

    Raises:
        DataError: A malformed row; file and line are named.
    """
    source = Source()
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        rows = [
            example(
                id=text(r, "id", w), source=text(r, "source", w), output=text(r, "output", w),
                scores=scores(r, w), system=text(r, "system", w), annotations=r.get("annotations"),
            )
            for w, r in jsonl_rows(source, path)
        ]  # fmt: skip
        return source.dataset("tmu-gfm", rows)
    reader = csv.DictReader(io.StringIO(source.read(path), newline=""))
    wanted = {"source", "output", "system", *(column for pair in ASPECTS.values() for column in pair)}
    missing = sorted(wanted - set(reader.fieldnames or ()))
    if missing:
        raise DataError(f"{path}:1 lacks the columns {missing}: is it the TMU-GFM data set?")
    done = []
    for number, row in enumerate(reader):
        where = f"{path}:{reader.line_num}"
        if None in row or None in row.values():
            raise DataError(f"{where} has another number of cells than the header: mend the row.")
        ratings = {name: _ratings(row[column], where, column) for name, (column, _) in ASPECTS.items()}
        means = {name: _mean(row[mean], ratings[name], where, mean) for name, (_, mean) in ASPECTS.items()}
        if not row["output"].strip():
            source.leave_out("empty output", where)
            continue
        fields = {"source": row["source"], "output": row["output"], "system": row["system"]}
        done.append(example(id=f"tmu-{number:04d}", scores=means, annotations=ratings, **fields))
    return source.dataset("tmu-gfm", done)


def _ratings(cell: str, where: str, column: str) -> list[int]:
    try:
        found = [int(part) for part in cell.split(",")]
    except ValueError as error:
        raise DataError(f"{where}: {column} is {cell!r}; it must hold whole numbers between commas.") from error
    if not all(0 <= r <= 4 for r in found):
        raise DataError(f"{where}: {column} is {cell!r}; ratings go from 0 to 4.")
    return found


def _mean(cell: str, ratings: list[int], where: str, column: str) -> float:
    """The published mean, checked against the ratings it is of."""
    told = [r for r in ratings if r > 0]
    if not told:
        return math.nan
    try:
        mean = float(cell)
    except ValueError as error:
        raise DataError(f"{where}: {column} is {cell!r}; it must be a number.") from error
    if abs(mean - sum(told) / len(told)) > 0.01:
        raise DataError(
            f"{where}: {column} is {cell}, but its ratings {ratings} have the mean {sum(told) / len(told):.3f}."
        )
    return mean
