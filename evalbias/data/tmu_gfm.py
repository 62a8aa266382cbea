"""TMU-GFM (Yoshimura et al. 2020): corrected sentences rated 0 to 4 on grammar, fluency and meaning.

Each cell of the CSV file holds five ratings; another column holds their published mean. The rating 0 means "other" and
does not enter the mean, which is undefined without any other rating. The grammar column is spelled ``grammer``.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.reading import Source, number, ratings, scores, text

ASPECTS = {"grammar": ("grammer", "ave_g"), "fluency": ("fluency", "ave_f"), "meaning": ("meaning", "ave_m")}
COLUMNS = frozenset({"source", "output", "system", *(column for pair in ASPECTS.values() for column in pair)})
RATERS = 5
ROUNDING = 0.01  # the means are published with one decimal place or more


def load_tmu_gfm(path: Path) -> Dataset:
    """Read the published CSV file, or its recorded JSONL form; both give the same items.

    ``system`` lists the systems that share the output, separated by commas; ``ratings`` maps each aspect to its five
    ratings, NaN for the rating 0; the id is the row number. Items with an empty output are left out.

    Raises:
        DataError: A row is malformed; the message names file and line.
    """
    source = Source("tmu-gfm", path)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        for where, record in source.rows():
            fields = {name: text(record, name, where) for name in ("id", "source", "system")}
            single = ratings({"ratings": record.get("annotations")}, where)
            rated = {"scores": scores(record, where, required=ASPECTS), "ratings": _without_other(single)}
            source.add({**fields, **rated, "output": text(record, "output", where, blank=True)}, where)
        return source.dataset()
    for index, (where, row) in enumerate(_rows(source)):
        given = {name: _ratings(row[column], where, column) for name, (column, _) in ASPECTS.items()}
        means = {name: _mean(row[mean], given[name], where, mean) for name, (_, mean) in ASPECTS.items()}
        fields = {"source": text(row, "source", where), "output": row["output"], "system": text(row, "system", where)}
        source.add({"id": f"tmu-{index:04d}", **fields, "scores": means, "ratings": _without_other(given)}, where)
    return source.dataset()


def _rows(source: Source) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (``file:line``, row) for every row, with the number of its first line."""
    path = source.path
    reader = csv.reader(io.StringIO(source.read(path), newline=""), strict=True)
    line = 1
    try:
        header = next(reader, [])
        missing = sorted(COLUMNS - set(header))
        if missing:
            raise DataError(f"{path}:1 lacks the columns {missing}; give the CSV file of TMU-GFM.")
        line = reader.line_num + 1
        for cells in reader:
            if len(cells) != len(header):
                raise DataError(f"{path}:{line} has {len(cells)} cells, the header has {len(header)}; correct the row.")
            yield f"{path}:{line}", dict(zip(header, cells, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{line} is not valid CSV ({error}); correct the row.") from error


def _without_other(given: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    return {name: [float(r) if r > 0 else math.nan for r in row] for name, row in given.items()}


def _ratings(cell: str, where: str, column: str) -> list[int]:
    parts = cell.split(",")
    if len(parts) != RATERS or not all(part in {"0", "1", "2", "3", "4"} for part in parts):
        raise DataError(f"{where}: {column} is {cell!r:.80}; it must hold {RATERS} ratings from 0 to 4 between commas.")
    return [int(part) for part in parts]


def _mean(cell: str, given: list[int], where: str, column: str) -> float:
    """Return the published mean after checking it against its ratings; NaN if all of them are 0."""
    counted = [r for r in given if r > 0]
    if not counted:
        return math.nan
    try:
        mean = number(float(cell), f"{where}: {column}")
    except ValueError as error:
        raise DataError(f"{where}: {column} is {cell!r:.80}; it must be a finite number.") from error
    exact = sum(counted) / len(counted)
    if abs(mean - exact) > ROUNDING:
        raise DataError(
            f"{where}: {column} is {cell}, but the ratings {given} without 0 have the mean {exact:.3f}; correct one."
        )
    return mean
