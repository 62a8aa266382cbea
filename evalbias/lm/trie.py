"""What token rows share: the order in which a model runs every distinct token of them once.

Sorted rows walk a trie from left to right: row i adds the tokens behind what it shares with row i - 1. The tokens, in
that order, are cut into packs, each a stretch of the walk. Whatever a token of a pack follows is in the pack before it,
or on the path from the root to the pack's first token: the pack's context. A token is seen by the tokens behind it up
to where the walk leaves its subtree, which is one number a token.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Ints = NDArray[np.int64]
Read = tuple[int, int, int]
"""(place in the pack, row, position in the row) of a token whose logits are read."""

OPEN = -1
"""A token that is still seen where its pack ends."""


@dataclass(frozen=True)
class Pack:
    """A stretch of the walk, n tokens behind c of context.

    Attributes:
        ids: (n,) the tokens.
        positions: (n,) their positions in their rows.
        ends: (c + n,) of every token of context and pack: the first place of the pack that no longer sees it, or n.
        source: (c,) where the context is: places in the context and pack before.
        known: The row whose stored prefix is the context; None where the context is what went before.
        reads: Of the pack's tokens.
        paths: row -> (length,) where its prefix is that is to be stored: places in this context and pack.
    """

    ids: Ids
    positions: Ints
    ends: Ints
    source: Ints
    known: int | None
    reads: tuple[Read, ...]
    paths: Mapping[int, Ints]


def shared(rows: Sequence[Ids]) -> list[int]:
    """Of sorted rows: how many tokens each begins with as the row before; 0 for the first."""
    return [0, *(common(a, b) for a, b in itertools.pairwise(rows))] if rows else []


def common(a: Ids, b: Ids) -> int:
    """How many tokens two rows begin with alike."""
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
    """The walk over sorted rows, cut into packs.

    Args:
        rows: Sorted, distinct, none empty.
        lengths: What ``shared`` gives of them.
        reads: The positions of each row that are read.
        size: Tokens in a pack at most, at least 1.
        known: row -> length of a prefix that is stored and not run; more than it shares with the row before, and no
            position of it is read by this row or one that shares it.
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
    """Of each row: position -> the (row, position) that are read at the token which this row adds there."""
    owner = np.zeros(max((len(row) for row in rows), default=0), dtype=np.int64)
    owned: list[dict[int, list[tuple[int, int]]]] = [{} for _ in rows]
    for number, (row, length, places) in enumerate(zip(rows, lengths, reads, strict=True)):
        owner[length : len(row)] = number
        for place in places:
            owned[owner[place]].setdefault(place, []).append((number, place))
    return owned


class _Walk:
    """The pack that is being filled, and the path from the root to its last token."""

    def __init__(self, size: int, longest: int) -> None:
        self._size = size
        self._path = np.zeros(longest, dtype=np.int64)  # position -> place in context and pack
        self._begin(np.zeros(0, dtype=np.int64), None)

    def _begin(self, source: Ints, known: int | None) -> None:
        self._source, self._known = source, known
        self._ids: list[Ids] = []
        self._positions: list[Ints] = []
        self._ends = np.full(len(source) + self._size, OPEN, dtype=np.int64)
        self._reads: list[Read] = []
        self._paths: dict[int, Ints] = {}
        self._path[: len(source)] = np.arange(len(source))
        self._length = len(source)
        self.count = 0

    def enter(self, row: int, length: int) -> None:
        """Go on from a stored prefix of a row; what was filled is flushed."""
        self._begin(np.arange(length), row)

    def leave(self, length: int) -> None:
        """Go back to so many tokens of the path: those behind are seen no more."""
        self._ends[self._path[length : self._length]] = self.count
        self._length = length

    def add(self, row: Ids, start: int, stop: int, owned: Mapping[int, list[tuple[int, int]]]) -> None:
        """Put tokens of a row behind the path."""
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
        """Note where the path's first tokens are."""
        self._paths[row] = self._path[:length].copy()

    def flush(self) -> Iterator[Pack]:
        """The pack as it is; the next one follows on the path."""
        if not self.count:
            return
        ends = self._ends[: len(self._source) + self.count]
        ends[ends == OPEN] = self.count
        ids, positions = np.concatenate(self._ids), np.concatenate(self._positions)
        yield Pack(ids, positions, ends, self._source, self._known, tuple(self._reads), self._paths)
        self._begin(self._path[: self._length].copy(), None)
