"""The token trie of a call, and the order in which a model runs every distinct token once.

Sorted rows traverse a trie depth first: row i adds the tokens after the prefix that it shares with row i - 1. The
tokens, in that order, are cut into packs. Every ancestor of a pack's token is in the same pack or in the pack's
context: the path from the root to the pack's first token. A token is visible to the tokens after it until the
traversal leaves its subtree, so one number per token describes the whole tree mask.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalbias.measures.arrays import IntArray

Ids = IntArray
Read = tuple[int, int, int]
"""(place in the pack, row, position in the row) of a token whose logits are needed."""

OPEN = -1
"""Marks a token that is still visible at the end of its pack."""


@dataclass(frozen=True)
class Pack:
    """A stretch of the traversal: n tokens after a context of c tokens.

    Attributes:
        ids: (n,) tokens.
        positions: (n,) positions of the tokens in their rows.
        ends: (c + n,) for every token of context and pack the first place of the pack that does not attend to it; n
            if all later places do.
        source: (c,) places of the context's tokens in the previous pack's context and tokens.
        known: Row whose stored prefix is the context; None if the context comes from the previous pack.
        reads: Tokens of the pack whose logits are needed.
        paths: row -> (length,) places, in this context and pack, of the row's prefix that is to be stored.
    """

    ids: Ids
    positions: IntArray
    ends: IntArray
    source: IntArray
    known: int | None
    reads: tuple[Read, ...]
    paths: Mapping[int, IntArray]

    @property
    def prefix_length(self) -> int:
        """Number of the context's first tokens that the whole pack attends to."""
        partly_visible = np.flatnonzero(self.ends[: len(self.source)] < len(self.ids))
        return int(partly_visible[0]) if len(partly_visible) else len(self.source)

    def padded(self, length: int) -> Pack:
        """Return the pack with as many tokens, of which the added ones are seen by themselves only."""
        extra = np.arange(len(self.ids), length)
        return replace(
            self,
            ids=np.append(self.ids, np.zeros_like(extra)),
            positions=np.append(self.positions, np.full_like(extra, self.positions[-1])),
            ends=np.append(self.ends, extra + 1),
        )


def shared(rows: Sequence[NDArray[Any]]) -> list[int]:
    """Return the length of the prefix that each sorted row shares with the row before; 0 for the first.

    Example:
        >>> shared([np.array(row) for row in ([1, 2, 3], [1, 2, 4], [1, 5])])
        [0, 2, 1]
    """
    return [0, *(common(a, b) for a, b in itertools.pairwise(rows))] if rows else []


def common(a: NDArray[Any], b: NDArray[Any]) -> int:
    """Return the length of the common prefix of two rows."""
    length = min(len(a), len(b))
    differ = a[:length] != b[:length]
    return int(differ.argmax()) if differ.any() else length


def packs(
    rows: Sequence[Ids],
    lengths: Sequence[int],
    reads: Sequence[Sequence[int]],
    size: int,
    *,
    known: Mapping[int, int],
    kept: Mapping[int, int],
) -> Iterator[Pack]:
    """Traverse sorted rows and yield the packs.

    Args:
        rows: Distinct, non-empty rows in sorted order.
        lengths: Lengths of the shared prefixes, from ``shared``.
        reads: Positions of each row whose logits are needed.
        size: Largest number of tokens in a pack, at least 1.
        known: row -> length of its stored prefix, which is not run. The prefix is longer than the one shared with the
            row before, and neither the row nor one that shares the prefix needs logits inside it.
        kept: row -> length of its prefix that is to be stored.
    """
    owned = _owned(rows, lengths, reads)
    walk = _Walk(size, max((len(row) for row in rows), default=0))
    for number, row in enumerate(rows):
        start = lengths[number]
        if number in known:
            yield from walk.flush()
            start = known[number]
            walk.enter(number, start)
        else:
            walk.leave(start)
        while start < len(row):
            if walk.count == size:
                yield from walk.flush()
            stop = min(len(row), start + size - walk.count)
            walk.add(row, start, stop, owned[number])
            start = stop
        if number in kept:
            walk.keep(number, kept[number])
    yield from walk.flush()


def _owned(
    rows: Sequence[Ids], lengths: Sequence[int], reads: Sequence[Sequence[int]]
) -> list[dict[int, list[tuple[int, int]]]]:
    """Return for each row: position of a token that it adds -> the (row, position) that need this token's logits."""
    owner = np.zeros(max((len(row) for row in rows), default=0), dtype=np.int64)
    owned: list[dict[int, list[tuple[int, int]]]] = [{} for _ in rows]
    for number, (row, length, places) in enumerate(zip(rows, lengths, reads, strict=True)):
        owner[length : len(row)] = number
        for place in places:
            owned[owner[place]].setdefault(place, []).append((number, place))
    return owned


class _Walk:
    """The traversal's state: the pack that is being filled, and the path from the root to its last token."""

    def __init__(self, size: int, longest: int) -> None:
        self._size = size
        self._path = np.zeros(longest, dtype=np.int64)  # position -> place in context and pack
        self._begin(np.zeros(0, dtype=np.int64), None)

    def _begin(self, source: IntArray, known: int | None) -> None:
        self._source, self._known = source, known
        self._ids: list[Ids] = []
        self._positions: list[IntArray] = []
        self._ends = np.full(len(source) + self._size, OPEN, dtype=np.int64)
        self._reads: list[Read] = []
        self._paths: dict[int, IntArray] = {}
        self._path[: len(source)] = np.arange(len(source))
        self._length = len(source)
        self.count = 0

    def enter(self, row: int, length: int) -> None:
        """Continue from a row's stored prefix; the pack must have been flushed."""
        self._begin(np.arange(length), row)

    def leave(self, length: int) -> None:
        """Return to the path's first ``length`` tokens; those after them are no longer visible."""
        self._ends[self._path[length : self._length]] = self.count
        self._length = length

    def add(self, row: Ids, start: int, stop: int, owned: Mapping[int, list[tuple[int, int]]]) -> None:
        """Append a row's tokens from ``start`` to ``stop`` to the path and the pack."""
        first = len(self._source) + self.count
        self._path[start:stop] = np.arange(first, first + stop - start)
        self._ids.append(row[start:stop])
        self._positions.append(np.arange(start, stop))
        for position, readers in owned.items():
            if start <= position < stop:
                self._reads += [(self.count + position - start, *reader) for reader in readers]
        self.count += stop - start
        self._length = stop

    def keep(self, row: int, length: int) -> None:
        """Note the places of the path's first ``length`` tokens."""
        self._paths[row] = self._path[:length].copy()

    def flush(self) -> Iterator[Pack]:
        """Yield the pack unless it is empty, and begin the next one after the same path."""
        if not self.count:
            return
        ends = self._ends[: len(self._source) + self.count]
        ends[ends == OPEN] = self.count
        ids, positions = np.concatenate(self._ids), np.concatenate(self._positions)
        yield Pack(ids, positions, ends, self._source, self._known, tuple(self._reads), self._paths)
        self._begin(self._path[: self._length].copy(), None)
