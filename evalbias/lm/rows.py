"""Rows: the distinct token sequences of a call, and the log-probabilities to read off them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from evalbias.lm.tokens import Scored, key_of
from evalbias.lm.trie import Ids, Pack, shared

Reads = dict[int, list[tuple[int, int, int]]]
"""Place -> (next token, sequence, index among its scored tokens) of every log-probability read there."""


@dataclass
class Row:
    """Tokens to run, and the log-probabilities to read at their positions."""

    ids: Ids
    reads: Reads = field(default_factory=dict)


def rows_of(sequences: Sequence[Scored]) -> list[Row]:
    """Return each distinct token sequence once, sorted and without its last token, which is only a target."""
    rows: dict[bytes, Row] = {}
    before, key = None, b""
    for number, sequence in enumerate(sequences):
        run = sequence.ids[:-1]
        if run != before:  # choices of one token each follow one another
            before, key = run, key_of(run)
        if key not in rows:
            rows[key] = Row(np.frombuffer(key, dtype=">u4").astype(np.int64))
        reads = rows[key].reads
        for position in range(sequence.start, len(sequence.ids)):
            read = (sequence.ids[position], number, position - sequence.start)
            reads.setdefault(position - 1, []).append(read)
    return [rows[key] for key in sorted(rows)]


def shared_lengths(rows: Sequence[Row]) -> list[int]:
    """Return the length of the prefix that each sorted row shares with the row before."""
    return shared([row.ids for row in rows])


def pack_reads(pack: Pack, rows: Sequence[Row]) -> Reads:
    """Return the log-probabilities to read at a pack's places."""
    reads: Reads = {}
    for place, row, position in pack.reads:
        reads.setdefault(place, []).extend(rows[row].reads[position])
    return reads


def stretch_reads(groups: Sequence[Sequence[int]], start: int, width: int, rows: Sequence[Row]) -> Reads:
    """Return the log-probabilities to read at the places of (b, w) tokens, flattened.

    Args:
        groups: Rows that each of the b sequences belongs to.
        start: Position of the first of the w tokens.
        width: The number w.
        rows: All rows.
    """
    reads: Reads = {}
    for index, group in enumerate(groups):
        for row in group:
            for position, read in rows[row].reads.items():
                if start <= position < start + width:
                    reads.setdefault(index * width + position - start, []).extend(read)
    return reads


def padded(rows: Sequence[Row]) -> tuple[Ids, Ids]:
    """Return the (b, T) tokens of rows, padded on the right, and the mask that is 1 at tokens."""
    width = max(len(row.ids) for row in rows)
    ids, mask = np.zeros((2, len(rows), width), dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)] = row.ids
        mask[index, : len(row.ids)] = 1
    return ids, mask
