"""Columns inside a table's cells: paths into objects and lists of objects, and numbers with the opposite sign.

``scores.gpt-4o`` is an entry of an object, ``annotations.rating`` the entry of each object in a list, one per rater,
and ``-rank`` is the column ``rank`` times -1. A rater's drafts and discarded answers are no ratings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from evalbias.data.cells import words_in, words_of
from evalbias.data.files import Source, as_list, parsed_or_given
from evalbias.data.items import DataError, number
from evalbias.measures.arrays import missing

OWN = ("scores", "ratings")  # our objects of human scores; if the user names an entry, the others are not human scores
NAMING = words_in("criteria", "writers") | {"name", "judge"}  # words in names that distinguish the objects of a list
VALUES = words_in("values") | {"value"}  # words in names of a rating's value, not in tool calls or documents
NOT_GIVEN = {"draft", "discarded", "pending"}  # status of an answer that does not count
MOST = 30  # entries of a table's objects that are looked at


def add_columns(table: Source, names: Iterable[str]) -> None:
    """Add the columns that ``names`` describe and the table lacks; lists from Argilla are put in the raters' order."""
    columns, named = {*table.columns}, {*names}
    for name in sorted(named - columns):
        if name.startswith("-") and name[1:] in columns:
            for _, row in table.rows:
                row[name] = _negative(row.get(name[1:]))
        elif any(name.startswith(f"{root}.") for root in columns):
            cells = cells_at(table, name)
            for (_, row), cell in zip(table.rows, cells, strict=True) if any(c is not None for c in cells) else ():
                row[name] = cell
    for name in named & columns:
        if {users := f"{name}.users", status := f"{name}.status"} <= columns:
            answers = [[as_list(parsed_or_given(row.get(n))) for n in (name, users, status)] for _, row in table.rows]
            aligned = _aligned([[*zip(*row, strict=False)] for row in answers])
            for (_, row), cell in zip(table.rows, aligned, strict=True):
                row[name] = cell


def drop_rest(table: Source, names: Iterable[str]) -> None:
    """Remove the other entries of our objects of ratings if ``names`` name an entry: they are not human criteria."""
    named = {*names}
    for root in {path.partition(".")[0] for path in named if "." in path} & {*OWN}:
        for _, row in table.rows:
            for other in [path for path in row if path == root or (path.startswith(f"{root}.") and path not in named)]:
                del row[other]


def paths(table: Source) -> list[str]:
    """Return the paths to the values in a table's objects and lists of objects."""
    inside = dict[str, None]()
    for name in table.columns:
        first = next((row[name] for _, row in table.rows if not missing(row.get(name)) and row[name] != ""), None)
        if not isinstance(first, dict | list) and not (isinstance(first, str) and first.lstrip()[:1] in ("[", "{")):
            continue
        cells = [parsed_or_given(row.get(name)) for _, row in table.rows]
        objects = [cell for cell in cells if isinstance(cell, dict | list)]
        if named_entries(objects):
            continue  # entries for several criteria, which are neither raters nor repeats
        if objects and len(objects) == sum(not (missing(cell) or cell == "") for cell in cells):
            inside |= {f"{name}.{path}": None for cell in objects for path in _inner(cell)}
    return [path for path in inside if path not in table.columns][:MOST]


def named_entries(cells: Sequence[Any]) -> list[str]:
    """Return the names of judges or criteria by which lists of objects label their objects; empty for persons."""
    lists = [cell for cell in cells if isinstance(cell, list)]
    persons = words_in("given names", "people", "persons", "speakers")
    keys = dict.fromkeys(str(key) for cell in lists for entry in cell if isinstance(entry, dict) for key in entry)
    for key in (key for key in keys if NAMING & {*words_of(key)} and VALUES & {*words_of(" ".join(keys))}):
        rows = [[str(e.get(key) or "") if isinstance(e, dict) else "" for e in cell] for cell in lists]
        names = [*dict.fromkeys(name for row in rows for name in row)]
        numbered = "name" in words_of(key) and any(name[-1:].isdecimal() for name in names)  # u1, u2 may be persons
        are_persons = numbered or not all(name and persons.isdisjoint(words_of(name)) for name in names)
        if len(names) > 1 and not are_persons and all(len({*row}) == len(row) for row in rows):
            return names
    return []


def raters_by_name(table: Source) -> dict[str, str]:
    """Return ``rating_K`` -> path for each rater, if a column ``ratings`` holds objects such as {"anna": 3}.

    Criteria are not taken for raters: the ratings on a criterion are a list.
    """
    cells = [cell for _, row in table.rows if isinstance(cell := parsed_or_given(row.get("ratings")), dict)]
    names = dict.fromkeys(name for cell in cells for name in cell)
    lists = any(isinstance(rating, list | dict) for cell in cells for rating in cell.values())
    if lists or any(words_in("given names", "people", "persons").isdisjoint(words_of(name)) for name in names):
        return {}
    return {f"rating_{k}": f"ratings.{name}" for k, name in enumerate(names, start=1)}


def _inner(value: Any, depth: int = 3) -> Iterator[str]:
    entries = value if isinstance(value, list) and all(isinstance(item, dict) for item in value) else [value]
    for entry in entries:
        for name, inner in entry.items() if isinstance(entry, dict) else ():
            below = [f"{name}.{path}" for path in _inner(inner, depth - 1)] if depth > 1 else []
            yield from below or [str(name)]


def cells_at(table: Source, path: str) -> list[Any]:
    """Return the value at a path in each row, or a list with a place for each rater."""
    root = next((n for n in sorted(table.columns, key=len, reverse=True) if path.startswith(f"{n}.")), path)
    steps = path.removeprefix(f"{root}.")
    ends = [_end(parsed_or_given(row.get(root)), steps) for _, row in table.rows]
    entries = [[entry for entry in end if isinstance(entry, dict)] if isinstance(end, list) else [] for end, _ in ends]
    if not any(entries):
        return [None if isinstance(end, list) and below else end for end, below in ends]
    key = next(below for end, below in ends if below)
    who = _who(entries, key)
    answers = [[(e.get(key), e.get(who) if who else k, e.get("status")) for k, e in enumerate(r)] for r in entries]
    return _aligned(answers)


def _end(value: Any, path: str) -> tuple[Any, str]:
    """Follow a path through objects; return the value, or the list of objects and the rest of the path."""
    if isinstance(value, list) or not path:
        return value, path
    if isinstance(value, dict):
        for name in sorted((n for n in value if path == n or path.startswith(f"{n}.")), key=len, reverse=True):
            return _end(value[name], path[len(name) + 1 :])
    return None, ""


def _who(entries: Sequence[Sequence[dict[str, Any]]], key: str) -> str | None:
    """Return the name of the field that identifies the rater in each object of a list; None without such a field."""
    for name in dict.fromkeys(name for row in entries for entry in row for name in entry if name != key):
        answers = [[entry.get(name) for entry in row] for row in entries]
        texts = all(isinstance(who, str | int) and not isinstance(who, bool) for row in answers for who in row)
        people = {str(who) for row in answers for who in row}
        if texts and all(len({*map(str, row)}) == len(row) for row in answers) and len(people) < sum(map(len, answers)):
            return name
    return None


def _aligned(rows: Sequence[Sequence[tuple[Any, ...]]]) -> list[list[Any]]:
    """Return a list for each row with a place for each person, from (value, person, status) of each answer."""
    people = [*dict.fromkeys(str(who) for row in rows for _, who, _ in row)]
    by_person = [{str(who): value for value, who, status in row if status not in NOT_GIVEN} for row in rows]
    return [[by.get(who) for who in people] for by in by_person]


def _negative(cell: Any) -> Any:
    if isinstance(cell, list):
        return [*map(_negative, cell)]
    try:
        return None if (read := number(cell, "", texts=True)) != read else 0.0 - read
    except DataError:
        return cell
