"""TMU-GFM (Yoshimura et al. 2020): corrected sentences rated 0 to 4 on grammar, fluency and meaning.

The CSV holds five ratings a cell and their published mean. 0 means "other" and is not part of that mean; a mean of
no rating is undefined. The column of grammar is spelled ``grammer``.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.reading import Source, number, scores, text

ASPECTS = {"grammar": ("grammer", "ave_g"), "fluency": ("fluency", "ave_f"), "meaning": ("meaning", "ave_m")}
COLUMNS = frozenset({"source", "output", "system", *(column for pair in ASPECTS.values() for column in pair)})
RATERS = 5
ROUNDING = 0.01  # the means are published with one digit or more


def load_tmu_gfm(path: Path) -> Dataset:
    """Read the published CSV, or its recorded JSONL form; both give the same items.

    Items have ``system`` (those that share the output, between commas) and ``annotations`` (aspect -> five ratings);
    their id is the row's number. Items with an empty output are left out.

    Raises:
        DataError: A malformed row; file and line are named.
    """
    source = Source("tmu-gfm", path)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        for where, record in source.rows():
            fields = {name: text(record, name, where) for name in ("id", "source", "system")}
            rated = {"scores": scores(record, where, wanted=ASPECTS), "annotations": record.get("annotations")}
            source.add({**fields, **rated, "output": text(record, "output", where, blank=True)}, where)
        return source.dataset()
    for index, (where, row) in enumerate(_rows(source)):
        ratings = {name: _ratings(row[column], where, column) for name, (column, _) in ASPECTS.items()}
        means = {name: _mean(row[mean], ratings[name], where, mean) for name, (_, mean) in ASPECTS.items()}
        fields = {"source": text(row, "source", where), "output": row["output"], "system": text(row, "system", where)}
        source.add({"id": f"tmu-{index:04d}", **fields, "scores": means, "annotations": ratings}, where)
    return source.dataset()


def _rows(source: Source) -> Iterator[tuple[str, dict[str, str]]]:
    """(``file:line``, row) of every row; the line is its first one."""
    path = source.path
    reader = csv.reader(io.StringIO(source.read(path), newline=""), strict=True)
    line = 1
    try:
        header = next(reader, [])
        missing = sorted(COLUMNS - set(header))
        if missing:
            raise DataError(f"{path}:1 lacks the columns {missing}: is it the TMU-GFM data set?")
        line = reader.line_num + 1
        for cells in reader:
            if len(cells) != len(header):
                raise DataError(f"{path}:{line} has another number of cells than the header: mend the row.")
            yield f"{path}:{line}", dict(zip(header, cells, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{line} is no CSV ({error}): mend the row.") from error


def _ratings(cell: str, where: str, column: str) -> list[int]:
    parts = cell.split(",")
    if len(parts) != RATERS or not all(part in {"0", "1", "2", "3", "4"} for part in parts):
        raise DataError(f"{where}: {column} is {cell!r}; it must hold {RATERS} ratings from 0 to 4 between commas.")
    return [int(part) for part in parts]


def _mean(cell: str, ratings: list[int], where: str, column: str) -> float:
    """The published mean, checked against the ratings it is of; NaN where no rating counts."""
    told = [r for r in ratings if r > 0]
    if not told:
        return math.nan
    try:
        mean = number(float(cell), f"{where}: {column}")
    except ValueError as error:
        raise DataError(f"{where}: {column} is {cell!r}; it must be a finite number.") from error
    own = sum(told) / len(told)
    if abs(mean - own) > ROUNDING:
        raise DataError(f"{where}: {column} is {cell}, but the ratings {ratings} without 0 have the mean {own:.3f}.")
    return mean
