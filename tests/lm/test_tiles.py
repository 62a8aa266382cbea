"""Tiles against the dense tree mask: none that holds a pair is skipped, and whole ones hold every pair."""

import numpy as np
import pytest

from evalbias.lm.attention import Tiles
from evalbias.lm.tree import packs, shared


def tiles(pack, first, width, size):
    """Return the tiles of a pack from a token of its context on, under a window of a width; None for full attention."""
    positions = np.concatenate([np.arange(first, len(pack.source)), pack.positions])
    reach = np.zeros_like(pack.positions) if width is None else pack.positions - width + 1
    return Tiles(pack.ends[first:], positions, reach, size)


def dense(made):
    """Return the (n, m + n) mask from the definition: at or before the query, in its branch, within its reach."""
    place = np.arange(-made.before, len(made.reach))
    rows = place[made.before :, None]
    return (place <= rows) & (rows < made.ends) & (made.positions >= made.reach[:, None])


def spread(blocks, made):
    """Return the (n, m + n) pairs of the tiles that are True."""
    return np.repeat(np.repeat(blocks, np.diff(made.queries), axis=0), np.diff(made.keys), axis=1)


def test_the_example_by_hand():
    rows = [np.array(row) for row in ([1, 1, 2, 2, 2], [1, 1, 3, 3])]
    (pack,) = packs(rows, shared(rows), [[4], [3]], 8, known={}, kept={})
    made = tiles(pack, 0, None, 2)
    letters = np.where(made.whole, "#", np.where(made.attended, "o", "."))
    assert ["".join(row) for row in letters] == ["o...", "#o..", "#oo.", "#.o#"]
    assert made.pairs == 4 + 8 + 12 + 2 + 2 + 1
    assert made.runs(3) == [slice(0, 2), slice(5, 7)]
    assert made.runs(1) == [slice(0, 4)]


@pytest.mark.parametrize("width", [None, 5, 40])
@pytest.mark.parametrize("seed", range(6))
def test_tiles_are_those_of_the_dense_mask(seed, width):
    rng = np.random.default_rng(seed)
    trunk = rng.integers(0, 3, 30)
    rows = sorted({(*trunk[: rng.integers(10, 30)], *rng.integers(0, 3, rng.integers(2, 25))) for _ in range(12)})
    rows = [np.array(row) for row in rows]
    for pack in packs(rows, shared(rows), [[len(row) - 1] for row in rows], 60, known={}, kept={}):
        for first in {0, pack.prefix_length}:
            made = tiles(pack, first, width, 8)
            mask = dense(made)
            assert not (mask & ~spread(made.attended, made)).any()
            assert (mask | ~spread(made.whole, made)).all()
            assert made.pairs == spread(made.attended, made).sum()
            for block, (start, stop) in enumerate(zip(made.queries, made.queries[1:], strict=False)):
                seen = np.zeros(len(made.ends), dtype=bool)
                for run in made.runs(block):
                    seen[run] = True
                assert not mask[start:stop, ~seen].any()
                assert width is not None or mask[start:stop, seen].any(axis=0).all()
