"""From rows to items: examples with checked fields."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalbias.data.cells import (
    DataError,
    number,
    one_criterion_ratings,
    ratings,
    recorded_choice,
    recorded_number,
    scores,
    text,
)
from evalbias.data.columns import lacking, renamed, suggestions
from evalbias.data.files import Dataset, Source, Table, check_text, parsed
from evalbias.measures.arrays import mean_of_defined

# Names of items in errors, reports and results.


def item_name(example: Any, index: int | None = None) -> str:
    """Return an item's ``id``, a pair's ``ids`` joined, the item's number, or the beginning of its text."""
    if example.get("ids"):
        return " | ".join(map(str, example["ids"]))
    if example.get("id") is not None:
        return str(example["id"])
    return str(example.get("source") or dict(example))[:60] if index is None else str(index)


# Items from rows: outputs to score, or pairs of outputs to compare, with what people said about them.
#
# A row holds an output and its input, ``source``; rows of recorded judges may lack the input. People's scores are
# ``score``, one number for the criterion that is judged, or ``scores``, criterion -> number. ``ratings`` may add the
# single ratings, a list with one number for each rater, or criterion -> list. They tell how reliable the scores are,
# without which a judge's bias cannot be told from the raters' noise. A criterion without a score gets their mean.
#
# Tables spell lists by columns: ``rating_1, rating_2, ...``; ``output_1, output_2``; ``system_1, system_2``; and by
# criterion ``scores.NAME`` and ``ratings.NAME``. A cell may also hold the list or object as JSON.


NESTED = ("outputs", "candidates", "systems", "scores", "ratings")
"""Fields that hold a list or an object, which a table's cell may hold as JSON."""
LABELS = ("A", "B")
"""Answers of a pairwise judge, for the first and the second candidate."""
_RATING = re.compile(r"rating_(\d{1,9})", re.ASCII)


def items_of(
    table: Table, *, choices: Mapping[str, Sequence[object]] | None = None, numbers: Sequence[str] = ()
) -> Dataset:
    """Convert the rows of a table to items; for ``choices`` and ``numbers`` see ``data.read``.

    Raises:
        DataError: No row has an output or two, a row is not a valid item, or people's scores are asked for as a judge's
            numbers; the message names the place.
    """
    columns = table.columns
    if columns and not {"output", "outputs", "candidates", "output_1"} & set(columns):
        place, rated = str(table.source.path), bool({"scores", "ratings", "rating_1"} & set(columns))
        if {"output_1", "output_2"} == set(suggestions(columns, ["output_1", "output_2"], alike=False)):
            raise lacking(place, columns, "output_1", beside=("output_2", "source", "better"))
        raise lacking(place, columns, "output", beside=("source",) if rated else ("source", "score"))
    if "score" in numbers and "score" in columns and not any(c.partition(".")[0] == "scores" for c in columns):
        raise DataError(
            f"{table.source.path}: the column 'score' holds people's scores, and it is asked for as the judge's too. "
            "If it is the judge's, read it under another name: --map judge_score=score and --scores-field judge_score."
        )
    for name in (*(choices or {}), *numbers):
        ours = next((o for o, theirs in table.mapping.items() if theirs == name != o), None)
        if ours is not None and name not in columns:
            raise DataError(
                f"The column {name!r} is read as {ours!r} (--map) and is asked for as {name!r} too: name another "
                "column, or leave it out of --map."
            )
    table.source.id_column = table.mapping.get("id", "id")
    try:
        return load_records(table.source, table.rows, choices=choices, numbers=numbers)
    except DataError as error:
        named = {f"{o!r} is your column {t!r}" for o, t in table.mapping.items() if o != t and repr(o) in str(error)}
        raise DataError(" ".join([str(error), *(f"({words}.)" for words in sorted(named))])) from error


def load_records(
    source: Source,
    rows: Iterable[tuple[str, dict[str, Any]]],
    *,
    choices: Mapping[str, Sequence[object]] | None = None,
    numbers: Sequence[str] = (),
) -> Dataset:
    """Convert (place, record) pairs to items and add them to a source; for the others see ``data.read``.

    Raises:
        DataError: A record is not a valid item; the message names its place.
    """
    for where, row in rows:
        record = _gathered(row, where)
        for name in numbers:
            if name in record:
                value = recorded_number(record[name], f"{where}: {name!r}")
                record[name] = None if math.isnan(value) else value
        fields: dict[str, Any] = {"id": _id(record, where)}
        if record.get("source") is not None:
            fields["source"] = text(record, "source", where)
        elif "source" in record:
            del record["source"]
        given = record.pop("outputs", None)
        pair = record.pop("candidates", None) or given
        if pair is None:
            fields["output"] = text(record, "output", where, blank=True)
        else:
            for name, labels in (choices or {}).items():
                if name in record:
                    record[name] = recorded_choice(record[name], f"{where}: {name!r}", labels)
            fields |= _pair(record, pair, where)
        source.add({**record, **fields, **_rated(record, where, pair=pair is not None)}, where)
    return source.dataset()


def check_field(items: Sequence[Any], field: str, place: str) -> None:
    """Refuse items that lack a field which a model must be shown.

    Raises:
        DataError: An item lacks it; the message names the item, and the columns that look like the field.
    """
    without = next((e for e in items if field not in e), None)
    if without is None:
        return
    if any(field in e for e in items):
        raise DataError(
            f"The item {item_name(without)!r:.80} of {place} has no {field!r}; add it, or leave the item out."
        )
    columns = list(dict.fromkeys(name for e in items for name in e.keys()))  # noqa: SIM118 (an Example is no Mapping)
    raise lacking(place, columns, field)


def default_id(where: str) -> str:
    """Return the id of an item without one: the number of the line or row in which its place ends."""
    return str(re.findall(r"\d+", where)[-1])


def _gathered(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a record whose lists and objects are in one field each."""
    record = dict(row)
    for name in NESTED:
        if isinstance(record.get(name), str):
            record[name] = _from_json(record[name], name, where)
        columns = [column for column in record if column.startswith(f"{name}.")]  # as pandas writes nested records
        if columns and name not in record:
            cells = {column: record.pop(column) for column in columns}
            record[name] = {c.removeprefix(f"{name}."): _from_json(v, c, where) for c, v in cells.items()}
    places = sorted((int(match[1]), name) for name in record if (match := _RATING.fullmatch(name)))
    if places and "ratings" not in record:
        given = {name: record.pop(name) for _, name in places}
        record["ratings"] = [None if v is None else number(v, f"{where}: {n!r}") for n, v in given.items()]
    if {"output_1", "output_2"} <= record.keys() and "output" not in record:
        record["outputs"] = [record.pop("output_1"), record.pop("output_2")]
        if {"system_1", "system_2"} <= record.keys():
            record["systems"] = [record.pop("system_1"), record.pop("system_2")]
    return record


def _from_json(value: Any, name: str, where: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        content = parsed(value)
    except ValueError as error:
        raise DataError(f"{where}: {name!r:.80} is {value!r:.80}; it must be JSON ({error}).") from error
    check_text({name: content}, where)
    return content


def _id(record: Mapping[str, Any], where: str) -> str:
    name = record.get("id")
    if name is None:
        return default_id(where)
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DataError(f"{where}: 'id' is {name!r:.80}; it must be a string or an integer.")
    return str(name)


def _pair(record: Mapping[str, Any], given: Any, where: str) -> dict[str, Any]:
    """Return the fields of a pair: its candidates, and which of them people prefer."""
    if not isinstance(given, list) or len(given) != 2:
        raise DataError(f"{where}: the outputs are {given!r:.80}; a pair has a list of two texts.")
    fields: dict[str, Any] = {"candidates": [text({"output": one}, "output", where, blank=True) for one in given]}
    systems = record.get("systems")
    if systems is not None and (not isinstance(systems, list) or len(systems) != 2):
        raise DataError(f"{where}: 'systems' is {systems!r:.80}; name the writers of both outputs, or leave it out.")
    if "better" in record:
        choice = recorded_choice(record["better"], f"{where}: 'better'")
        fields["better"] = choice if choice in (0, 1) else None  # after a tie, people prefer neither
        if choice in (0, 1):
            fields["preference"] = LABELS[choice]
    return fields


def _rated(record: Mapping[str, Any], where: str, *, pair: bool) -> dict[str, Any]:
    """Return people's scores and ratings: by criterion, or of the one criterion that is judged.

    A pair's ratings are each rater's difference, the first output's less the second's, and it has no score.
    """
    given = record.get("ratings")
    if isinstance(given, list) and not isinstance(record.get("scores"), Mapping):
        single = one_criterion_ratings(given, where)
        if pair:
            return {"ratings": single}
        if record.get("score") is not None:
            return {"score": number(record["score"], f"{where}: the score"), "ratings": single}
        return {"score": mean_of_defined(single), "ratings": single}
    if "score" in record and record.get("scores") is None and given is None:
        score = record["score"]
        return {"score": math.nan if score is None else number(score, f"{where}: the score")}
    rated = ratings(record, where)
    means = {name: mean_of_defined(row) for name, row in rated.items()}
    return {"scores": means | scores(record, where), **({"ratings": rated} if rated else {})}


# Read JSONL files that do not fit in memory, one chunk of lines at a time.


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines of a file.

    Attributes:
        line: Number of the first line, from 1.
        start: Byte offset of the first line.
        size: Length of the chunk in bytes.
        lines: Number of lines, blank lines included.
        sha256: Hash of the chunk, by which a change of the file is noticed.
    """

    line: int
    start: int
    size: int
    lines: int
    sha256: bytes


def chunks(path: Path, lines: int) -> tuple[list[Chunk], str]:
    """Locate the chunks of a file and hash the file.

    Args:
        path: Uncompressed ``.jsonl`` file.
        lines: Number of lines per chunk, blank lines included; the last chunk may have fewer.

    Returns:
        Chunks in the order of the file, and the SHA-256 of the whole file.

    Raises:
        DataError: ``path`` is not an uncompressed ``.jsonl`` file.
    """
    if path.suffix != ".jsonl" or not path.is_file():
        raise DataError(f"{path} cannot be read in chunks; give an uncompressed .jsonl file.")
    digest, located, start, first = hashlib.sha256(), list[Chunk](), 0, 1
    with path.open("rb") as file:
        while some := list(itertools.islice(file, lines)):
            content = b"".join(some)
            digest.update(content)
            located.append(Chunk(first, start, len(content), len(some), hashlib.sha256(content).digest()))
            first, start = first + len(some), start + len(content)
    return located, digest.hexdigest()


def load_chunks(path: Path, some: Sequence[Chunk], mapping: Mapping[str, str] | None = None) -> Dataset:
    """Read the items of consecutive chunks in the same way as ``read``; a column of the mapping may be missing.

    Raises:
        DataError: A line is not a valid item, or the file has changed since the chunks were located; the message names
            file and line.
    """
    content = b""
    with path.open("rb") as file:
        file.seek(some[0].start)
        for chunk in some:
            content += (part := file.read(chunk.size))
            if hashlib.sha256(part).digest() != chunk.sha256:
                raise DataError(
                    f"{path} has changed since the run began (lines {chunk.line} to {chunk.line + chunk.lines - 1}): "
                    "restore the file, or start over in a new folder (--out)."
                )
    source = Source("jsonl", path)
    rows = source.records(source.part(content), first=some[0].line)
    return load_records(source, ((where, renamed(record, mapping or {})) for where, record in rows))
