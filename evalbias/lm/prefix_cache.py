"""Keys and values of prompts' beginnings, kept between calls: the next call that begins alike starts warm."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from evalbias.lm.kv_cache import Context, Layers, joined, size_of, sliced
from evalbias.lm.trie import Ids, Ints, common

WORTH = 64
"""Tokens that a stored prefix must save beyond the next shorter one."""


@dataclass(eq=False)
class Node:
    """Tokens that are kept, behind those of the nodes above.

    Attributes:
        ids: The tokens.
        layers: Their keys and values.
        above: What they follow; None for the root, which holds no token.
        below: What follows them, by its first token.
        used: The last call that used it.
    """

    ids: Ids
    layers: Layers
    above: Node | None = None
    below: dict[int, Node] = field(default_factory=dict)
    used: int = 0

    def line(self) -> Iterator[Node]:
        """This one and those above, without the root."""
        node = self
        while node.above is not None:
            yield node
            node = node.above


@dataclass(frozen=True)
class Prefix:
    """The first tokens of a row that are kept.

    Attributes:
        length: How many.
        parts: Their keys and values, one part a node.
    """

    length: int
    parts: tuple[Layers, ...]

    def layers(self) -> Layers:
        """Their keys and values in one."""
        return reduce(joined, self.parts)


class PrefixStore:
    """The most recently used prefixes, as a tree: what several begin with is held once.

    What a call has used or put is not given up for what the same call puts later, or a call with more than the budget
    would leave its end only, and find nothing of it when it is repeated.

    Args:
        budget: Bytes of keys and values in all; 0 keeps nothing.

    Attributes:
        bytes: Of the keys and values that are held.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._root = Node(np.zeros(0, dtype=np.int64), [])
        self._order: dict[Node, None] = {}  # the least recently used first; what is above a node stands behind it
        self._token_bytes = 0  # of one token; the first that is put tells
        self._call = 0
        self.bytes = 0

    def put(self, ids: Ids, context: Context, path: Ints) -> None:
        """Keep a prefix where there is room for it.

        Args:
            ids: Its tokens.
            context: Holds their keys and values.
            path: Where, token by token.
        """
        if self._token_bytes * len(ids) > self.budget:
            return
        length, line = self._match(ids)
        last = line[-1] if line else self._root
        rest = sum(len(node.ids) for node in line) - length
        if rest:
            last = self._split(last, len(last.ids) - rest)
        self._use(last)
        if length == len(ids) or not self._room(self._token_bytes * (len(ids) - length)):
            return
        node = Node(ids[length:].copy(), context.copy(path[length:]), last)
        size = size_of(node.layers)
        self._token_bytes = size // len(node.ids)
        if self._room(size):
            self.bytes += size
            last.below[int(node.ids[0])] = node
            self._use(node)

    def known(self, rows: Sequence[Ids], lengths: Sequence[int], first: Sequence[int]) -> dict[int, Prefix]:
        """Which rows of a new call begin with stored tokens, where that saves something.

        Args:
            rows: Sorted.
            lengths: What each shares with the row before.
            first: The first position of each that is read.

        Returns:
            row -> its first tokens, which need not be run.
        """
        self._call += 1
        found: dict[int, Prefix] = {}
        for number, row in enumerate(rows) if self._order else ():
            length, line = self._match(row)
            end = number
            while length - lengths[number] >= WORTH and end < len(rows) and (end == number or lengths[end] >= length):
                length = min(length, first[end])  # what is read must be run
                end += 1
            if length - lengths[number] >= WORTH:
                found[number] = Prefix(length, _parts(line, length))
                self._use(line[-1])
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

    def _match(self, row: Ids) -> tuple[int, list[Node]]:
        """How many of a row's first tokens are held, and by which nodes; the last may hold more."""
        node, length, line = self._root, 0, []
        while length < len(row) and (below := node.below.get(int(row[length]))) is not None:
            alike = common(below.ids, row[length:])
            line.append(below)
            length += alike
            if alike < len(below.ids):
                break
            node = below
        return length, line

    @staticmethod
    def _split(lower: Node, at: int) -> Node:
        """Make a node of its own, which is given, of a node's first tokens."""
        above = lower.above
        assert above is not None
        upper = Node(lower.ids[:at], _copied(sliced(lower.layers, 0, at)), above)
        lower.layers = _copied(sliced(lower.layers, at, len(lower.ids)))
        lower.ids, lower.above = lower.ids[at:], upper
        upper.below[int(lower.ids[0])] = lower
        above.below[int(upper.ids[0])] = upper
        return upper

    def _use(self, node: Node) -> None:
        """Put a node behind all that were used before, and those above behind it."""
        for one in node.line():
            self._order.pop(one, None)
            self._order[one] = None
            one.used = self._call

    def _room(self, size: int) -> bool:
        """Give up what earlier calls used last; whether there is room for so many bytes then."""
        while self.bytes + size > self.budget:
            oldest = next(iter(self._order), None)
            if oldest is None or oldest.used == self._call:
                return False
            assert oldest.above is not None
            del oldest.above.below[int(oldest.ids[0])]  # nothing is below it: that would be older
            del self._order[oldest]
            self.bytes -= size_of(oldest.layers)
        return True


def _parts(line: Sequence[Node], length: int) -> tuple[Layers, ...]:
    """Of each node what the first tokens take of it."""
    starts = itertools.accumulate((len(node.ids) for node in line), initial=0)
    found = (sliced(node.layers, 0, length - start) for node, start in zip(line, starts, strict=False))
    return tuple(part for part in found if part)


def _copied(layers: Layers) -> Layers:
    return [(keys.clone(), values.clone()) for keys, values in layers]
