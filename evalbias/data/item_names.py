"""Names of items in errors, reports and results."""

from __future__ import annotations

from typing import Any


def item_name(example: Any, index: int | None = None) -> str:
    """Return an item's ``id``, a pair's ``ids`` joined, the item's number, or the beginning of its text."""
    if example.get("ids"):
        return " | ".join(map(str, example["ids"]))
    if example.get("id") is not None:
        return str(example["id"])
    return str(example.get("source") or dict(example))[:60] if index is None else str(index)
