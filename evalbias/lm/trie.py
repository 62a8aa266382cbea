"""What token rows share: the order in which a model runs every distinct token of them once.

Sorted rows walk a trie from left to right: row i adds the tokens behind what it shares with row i - 1. The tokens, in
that order, are cut into packs, each a stretch of the walk. Whatever a token of a pack follows is either in the pack,
before it, or on the path from the root to the pack's first token: its context. A token stands in the sight of the
tokens behind it up to where the walk leaves its subtree, which is one number a token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = tuple[int, ...]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Pack:
    """A stretch of the walk, n tokens after c of context.

    Attributes:
        ids: (n,) the tokens.
        positions: (n,) their places in their rows.
        ends: (c + n,) of each token of context and pack: the first token of the pack, at or behind it, that does not
            see it; n where all do.
        source: (c,) where each token of the context is: its place in the context and tokens of the pack before.
        known: The row whose own stored prefix is the context, instead; -1 where it is what went before.
        slots: (row, position, index) of the reads: which token of the pack is read for a place in a row.
        kept: (row, length) of the prefixes whose keys and values are to be stored, and where: (length,) places in
            context and pack.
    """

    ids: Ints
    positions: Ints
    ends: Ints
    source: Ints
    known: int
    slots: tuple[tuple[int, int, int], ...]
    kept: tuple[tuple[int, Ints], ...]

    @property
    def context(self) -> int:
        """Tokens of context."""
        return len(self.source)


def shared(rows: Sequence[Ids]) -> list[int]:
    """Of sorted rows: how many tokens each begins with as the row before; 0 for the first."""
    return [0, *(_common(a, b) for a, b in zip(rows, rows[1:], strict=False))] if rows else []
