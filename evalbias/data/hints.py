"""Hints in errors about a table's columns: candidates for a missing field, and how to name them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalbias.data import files
from evalbias.data.columns import MOST_NAMED, recognised_columns
from evalbias.data.files import Source
from evalbias.data.items import FIELDS, METADATA, DataError, listed
from evalbias.data.rating_values import NO_CODES, Codes
from evalbias.values import shell_word

EXPECTED = (
    "Expected are items such as\n"
    '  {"source": "What is 2 + 2?", "output": "4", "score": 5}\n'
    '  {"source": "Name a prime.", "output": "It is 9.", "score": 1}\n'
    "or the same columns in a .csv, .tsv, .json or .parquet file; pairs have two texts as "
    '"outputs": ["4", "5"], in tables as output_1 and output_2.'
)
ENOUGH = 1000  # rows that an error's hints are based on


def lacking(place: str, table: Source, wanted: str) -> DataError:
    """Return the error for a missing field, with the table's columns, their likely meanings, and an example."""
    likely = _likely(table)
    if wanted not in likely and "output_1" in likely:
        wanted = "output_1"
    alike = ", ".join(f"{theirs!r} looks like {ours!r}" for ours, theirs in likely.items())
    mapping = likely if wanted in likely else {**likely, wanted: "COLUMN"}
    hint = f"{alike or 'Say which column it is'}: --map {_mapped(mapping)} (in Python, mapping={mapping})"
    return DataError(f"{place} has no column {wanted!r}; it has {listed(table.columns)}. {hint}.\n{EXPECTED}")


def like_ratings(examples: Sequence[Any], judge: str) -> str:
    """Name the fields that may be human ratings, and how to map them; fields named in ``judge`` are the judge's."""
    rows = [{name: value for name, value in item.items() if repr(name) not in judge} for item in examples[:ENOUGH]]
    likely = {o: t for o, t in _likely(files.memory_table(rows)).items() if o.startswith(("score", "rating", "better"))}
    named = ", ".join(map(repr, likely.values()))
    return f"{named} may be people's ratings: --map {_mapped(likely)}" if likely else ""


def _likely(table: Source) -> dict[str, str]:
    """Return our field -> the column that may be it, with the likeliest answers to open questions.

    Names too long for a message are left out.
    """
    columns = recognised_columns(replace(table, rows=table.rows[:ENOUGH]))
    mapping = columns.options(*(q.answers[0] for q in columns.questions if q.answers)).get("mapping", {})
    short = ((ours, theirs) for ours, theirs in mapping.items() if not ours.startswith("judge_") and len(theirs) <= 80)
    return dict(itertools.islice(short, MOST_NAMED))


def _mapped(mapping: Mapping[str, str]) -> str:
    return shell_word(",".join(f"{ours}={theirs}" for ours, theirs in mapping.items()))


def judges_of(item: Any) -> list[str]:
    """Return the fields of an item of a tool's export that may hold judges' scores."""
    ours = {*FIELDS, "id", "scores", "ratings"}
    names = [str(name) for name, value in item.items() if name not in ours and isinstance(value, int | float | None)]
    return [name for name in names if not name.startswith(METADATA)]


def certain_options(
    table: Source, remedy: str, doctor: str, outcome: str | None, codes: Codes = NO_CODES
) -> dict[str, Any]:
    """Return the options of an audit of a table; ValueError if the judge's or another column is not certain."""
    columns = recognised_columns(table, outcome, codes)
    why = "; ".join(f"{question.about}: {question.why}" for question in columns.questions)
    if columns.judge is None:
        open_, why = f"{remedy} The columns do not tell it", why or "no column is named like a judge's answers"
    elif why:
        open_ = f"The column {columns.judge!r} is the judge's, but more is open"
    else:
        return columns.options()
    raise ValueError(f"{open_} ({why}). '{doctor}' lists the choices.")
