"""Add what stands in another table, such as the recorded verdicts of a judge, to items by their ids."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy

from evalbias.data.columns import listed
from evalbias.data.dataset import DataError, Dataset
from evalbias.data.item_names import item_name
from evalbias.data.loaders import read_table


def join(examples: Sequence[dspy.Example], rows: Any, **chosen: Any) -> Dataset:
    """Add the columns of another table to the items with the same ``id``.

    Args:
        examples: Items with ``id``.
        rows: File, data frame or list of dicts with a column ``id``; see ``read``.
        **chosen: Column -> its value in the rows to use, such as ``judge="ChatGPT", prompt="Vanilla"``.

    Returns:
        The items that have a row, in their order; the others are in ``left_out``.

    Raises:
        DataError: No item has a row, an item has several, a column does not exist, or item and row have a column with
            different values.

    Examples:
        >>> item, verdict = dspy.Example(id="a", output="Yes."), {"id": "a", "judge": "mine", "verdict": 4}
        >>> join([item], [verdict], judge="mine")[0].verdict
        4
    """
    table = read_table(rows)
    name, columns = str(table.source.path), table.columns
    for column in ("id", *chosen):
        if column not in columns:
            raise DataError(f"{name} has no column {column!r}; it has {listed(columns)}.")
    rows_by_id: dict[str, dict[str, Any]] = {}
    for where, row in table.rows:
        if row.get("id") is None:
            raise DataError(f"{where} has no 'id'; name the item that the row is about.")
        if all(row.get(column) == value for column, value in chosen.items()):
            first = rows_by_id.setdefault(str(row["id"]), row)
            if first is not row:
                differing = {c: (first.get(c), row.get(c)) for c in columns if first.get(c) != row.get(c)}
                raise DataError(
                    f"{where}: a second row for the item {row['id']!r:.80}, with other values {differing!r:.400}; "
                    "choose one by its columns, such as join(..., judge=NAME)."
                )
    joined = [_with(e, rows_by_id[str(e.get("id"))], name) for e in examples if str(e.get("id")) in rows_by_id]
    if not joined:
        raise DataError(f"No item has a row in {name} with {chosen}: compare the ids and the chosen values.")
    missing = [str(e.get("id")) for e in examples if str(e.get("id")) not in rows_by_id]
    before = examples if isinstance(examples, Dataset) else None
    left_out = {**(before.left_out if before else {}), **({f"no row in {name}": missing} if missing else {})}
    sha256 = hashlib.sha256(f"{before.sha256 if before else ''} {table.source.digest.hexdigest()} {chosen}".encode())
    return Dataset(
        joined,
        name=before.name if before else "list",
        path=before.path if before else Path("list"),
        sha256=sha256.hexdigest(),
        left_out=left_out,
    )


def _with(example: dspy.Example, row: dict[str, Any], name: str) -> dspy.Example:
    joined = example.copy()
    for column, value in row.items():
        if column == "id":
            continue
        if column in example and example[column] != value:
            raise DataError(
                f"The item {item_name(example)!r:.80} and its row in {name} both have {column!r:.80}, "
                f"{example[column]!r:.80} and {value!r:.80}; rename one of the columns."
            )
        joined[column] = value
    return joined
