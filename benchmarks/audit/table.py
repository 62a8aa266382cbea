"""Right and false flags in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.audit.judges import Defects

Flags = Sequence[frozenset[str]]
"""Biases that were flagged, draw by draw."""
WORDS = {"self_preference": "own", "scale_use": "scale"}
OURS = "evalbias"


def rows(judge: str, n: int, defects: Defects, found: Mapping[str, Flags]) -> str:
    """Return the row of one judge at one size; a cell has the right flags by bias and the draws with a false one."""
    cells = [cell(defects, flags) for flags in found.values()]
    return f"| {judge} | {n} | " + " | ".join(cells) + " |"


def cell(defects: Defects, flags: Flags) -> str:
    """Say in how many of 100 draws each planted bias was flagged, and in how many any other one was.

    Examples:
        >>> cell(Defects(length=0.4), [frozenset({"verbosity"}), frozenset({"position"})])
        'verbosity 50; false 50 (of 2)'
    """
    if not flags:
        return "-"
    right = [
        f"{WORDS.get(bias, bias)} {100 * sum(bias in found for found in flags) / len(flags):.0f}"
        for bias in sorted(defects.planted)
    ]
    wrong = 100 * sum(bool(found - defects.planted - defects.unscored) for found in flags) / len(flags)
    return "; ".join([*right, f"false {wrong:.0f}"]) + f" (of {len(flags)})"


def table(judges: Mapping[str, Defects], sizes: Sequence[int], found: Mapping[tuple[str, str, int], Flags]) -> str:
    """Return the whole table.

    Args:
        judges: Name -> what was planted.
        sizes: Numbers of items.
        found: (tool, judge, n) -> flags.
    """
    tools = list(dict.fromkeys(tool for tool, _, _ in found))
    lines = ["| judge | n | " + " | ".join(tools) + " |", "| --- " * (2 + len(tools)) + "|"]
    for judge, defects in judges.items():
        lines += [rows(judge, n, defects, {tool: found.get((tool, judge, n), ()) for tool in tools}) for n in sizes]
    return "\n".join(lines)
