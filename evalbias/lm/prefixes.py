"""Keys and values of prompts' beginnings, kept between calls: the next call that begins alike starts warm."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence

from evalbias.lm.context import Layers, tokens
from evalbias.lm.trie import Ids, common

WORTH = 64
"""Tokens that a stored prefix must save beyond the next shorter one."""


class PrefixStore:
    """The most recently used prefixes, within a budget.

    Args:
        budget: Bytes of keys and values in all; 0 keeps nothing.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._kept: OrderedDict[bytes, tuple[Ids, Layers]] = OrderedDict()
        self._bytes = 0

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._bytes = 0

    def put(self, ids: Ids, layers: Layers) -> None:
        """Keep a prefix; the least recently used go where the budget is exceeded."""
        key, size = ids.tobytes(), _bytes(layers)
        if size > self.budget or key in self._kept:
            return
        self._kept[key] = (ids, layers)
        self._bytes += size
        while self._bytes > self.budget:
            _, (_, gone) = self._kept.popitem(last=False)
            self._bytes -= _bytes(gone)

    def known(self, rows: Sequence[Ids], lengths: Sequence[int], first: Sequence[int]) -> dict[int, Layers]:
        """Which rows begin with stored tokens, where that saves something.

        Args:
            rows: Sorted.
            lengths: What each shares with the row before.
            first: The first position of each that is read.

        Returns:
            row -> keys and values of its first tokens, which need not be run.
        """
        found: dict[int, Layers] = {}
        order = [sortable(row) for row in rows] if self._kept else []
        for key, (kept, layers) in list(self._kept.items()):
            at = bisect_left(order, sortable(kept))
            near = [common(kept, rows[i]) for i in (at - 1, at) if 0 <= i < len(rows)]
            length = max(near, default=0)
            if length < WORTH:
                continue
            row = bisect_left(order, sortable(kept[:length]))
            end = row
            while end < len(rows) and (end == row or lengths[end] >= length):
                length = min(length, first[end])
                end += 1
            if length - lengths[row] >= WORTH and length > (tokens(found[row]) if row in found else 0):
                found[row] = [(keys[:, :, :length], values[:, :, :length]) for keys, values in layers]
                self._kept.move_to_end(key)
        return found

    def wanted(self, rows: Sequence[Ids], lengths: Sequence[int], first: Sequence[int]) -> dict[int, int]:
        """Which prefixes of a call are worth keeping: where prompts part, and all of a single prompt.

        Arguments as ``known``.

        Returns:
            row -> how many of its first tokens.
        """
        if not self.budget or not rows:
            return {}
        found: dict[int, int] = {}
        kept: list[int] = []  # lengths kept on the path, ascending
        for number in range(1, len(rows)):
            length = min(lengths[number], first[number - 1], first[number])
            while kept and kept[-1] > lengths[number]:
                kept.pop()
            if length - (kept[-1] if kept else 0) >= WORTH and length < first[number]:
                found[number - 1] = length
                kept.append(length)
        if not found and first[-1] >= WORTH:
            found[len(rows) - 1] = first[-1]
        return found


def sortable(ids: Ids) -> bytes:
    """What sorts rows by their tokens."""
    return ids.astype(">u4").tobytes()


def _bytes(layers: Layers) -> int:
    return sum(tensor.nbytes for pair in layers for tensor in pair)
