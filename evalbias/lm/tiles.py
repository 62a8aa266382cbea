"""Which tiles of a pack's attention hold pairs of a query and a key: the block-sparse form of a tree mask.

A tile is a block of queries times a block of keys. Packs are traversed depth first, so a branch's tokens stand side by
side, and most tiles pair tokens of different branches. Such tiles are skipped. Of the others, those in which every
query attends to every key need no mask.

    keys      a a b b b c c      a common beginning a, then the branches b and c; tiles of 2 queries and 2 keys
    queries   o o . . . . .
              o o . . . . .      #  every query attends to every key
              # # o o . . .      o  attended to under the mask
              # # o o . . .      .  skipped
              # # o o o o .
              # # o o o o .      b's last query and c's first are in one block, which attends to both
              # # . . o o #
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evalbias.measures.arrays import BoolArray, IntArray

TILE = 128
"""Number of queries and of keys in a tile, the default of PyTorch's FlexAttention."""


@dataclass(frozen=True)
class Tiles:
    """The tree mask of n queries and m + n keys, of which the last n are the queries' own tokens.

    Attributes:
        ends: (m + n,) for each key the first query that no longer attends to it.
        positions: (m + n,) position of each key in its row.
        reach: (n,) first position that each query attends to.
        size: Number of queries and of keys in a tile.
    """

    ends: IntArray
    positions: IntArray
    reach: IntArray
    size: int = TILE

    @property
    def before(self) -> int:
        """The number m of keys before the pack."""
        return len(self.ends) - len(self.reach)

    @cached_property
    def queries(self) -> IntArray:
        """(a + 1,) first query of each of a blocks, and the number of queries."""
        return _edges(len(self.reach), self.size)

    @cached_property
    def keys(self) -> IntArray:
        """(b + 1,) first key of each of b blocks, and the number of keys."""
        return _edges(len(self.ends), self.size)

    @cached_property
    def attended(self) -> BoolArray:
        """(a, b) whether a tile may hold a pair; every tile that holds one is True."""
        first, last = self.queries[:-1, None], self.queries[1:, None] - 1  # (a, 1)
        starts = self.keys[:-1]
        seen: BoolArray = (
            (starts - self.before <= last)
            & (np.maximum.reduceat(self.ends, starts) > first)
            & (np.maximum.reduceat(self.positions, starts) >= np.minimum.reduceat(self.reach, first[:, 0])[:, None])
        )
        return seen

    @cached_property
    def whole(self) -> BoolArray:
        """(a, b) whether every query of a tile attends to every key of it; a tile with other pairs is False."""
        first, last = self.queries[:-1, None], self.queries[1:, None] - 1  # (a, 1)
        starts = self.keys[:-1]
        every: BoolArray = (
            (self.keys[1:] - 1 - self.before <= first)
            & (np.minimum.reduceat(self.ends, starts) > last)
            & (np.minimum.reduceat(self.positions, starts) >= np.maximum.reduceat(self.reach, first[:, 0])[:, None])
        )
        return every

    @property
    def pairs(self) -> int:
        """Number of query-key pairs that are computed for one head, those under the mask included."""
        return int(np.diff(self.queries) @ self.attended @ np.diff(self.keys))

    def runs(self, block: int) -> list[slice]:
        """Return the exact runs of adjacent keys to which some query of a block attends, not cut at tiles."""
        queries = slice(int(self.queries[block]), int(self.queries[block + 1]))
        place = np.arange(-self.before, len(self.reach))
        seen = (place < queries.stop) & (self.ends > queries.start) & (self.positions >= self.reach[queries].min())
        edges = np.flatnonzero(np.diff(seen, prepend=False, append=False))
        return [slice(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _edges(count: int, size: int) -> IntArray:
    return np.append(np.arange(0, count, size), count)
