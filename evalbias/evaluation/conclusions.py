"""What is significantly worse after than before."""

from __future__ import annotations

from collections.abc import Mapping

from evalbias.evaluation.estimates import Change, Comparison

LEVEL = 0.05


def worsened(comparisons: Mapping[str, Comparison]) -> list[str]:
    """Return what is significantly worse after than before, such as "performance +0.51 -> -0.39".

    A bias is worse if it is farther from that of an unbiased judge, on the side that is of this bias where only one is;
    an agreement if it is lower (paired tests at 5 %).
    """
    changes = [c.changes[name] for c in comparisons.values() for name in c.headlines if name in c.changes]
    return [f"{c.label} {c.before.text()} -> {c.after.text()}" for c in changes if _is_worse(c)]


def _is_worse(change: Change) -> bool:
    if not change.p_value < LEVEL:  # NaN is not below
        return False
    before, after, null = change.before.value, change.after.value, change.after.null
    if null is None:
        return after < before
    if change.after.only_below:
        return null - after > max(null - before, 0.0)
    return abs(after - null) > abs(before - null)
