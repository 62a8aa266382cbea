"""Prefix cache: keys and values of prompt prefixes, kept from call to call.

The stored prefixes form a radix tree with least-recently-used eviction, as in RadixAttention (Zheng et al. 2024,
SGLang).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from evalbias.lm.kv_cache import Context, Layers, joined, size_of, sliced
from evalbias.lm.trie import Ids, common
from evalbias.measures.arrays import IntArray

MIN_SAVING = 64
"""Number of tokens that a stored prefix must save beyond the next shorter one."""


@dataclass(eq=False)
class Node:
    """A node of the radix tree: tokens that follow those of its ancestors.

    Attributes:
        ids: The tokens.
        layers: Keys and values of the tokens.
        parent: Node before this one; None for the root, which holds no tokens.
        children: Nodes after this one, by their first tokens.
        used: Number of the last call that used the node.
    """

    ids: Ids
    layers: Layers
    parent: Node | None = None
    children: dict[int, Node] = field(default_factory=dict)
    used: int = 0

    def lineage(self) -> Iterator[Node]:
        """Yield this node and its ancestors, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


@dataclass(frozen=True)
class Prefix:
    """A stored prefix of a row.

    Attributes:
        length: Number of tokens.
        parts: Keys and values, one part per node.
    """

    length: int
    parts: tuple[Layers, ...]

    def layers(self) -> Layers:
        """Return the keys and values of all parts, concatenated."""
        return reduce(joined, self.parts)


class PrefixStore:
    """A radix tree of the most recently used prefixes, in which a common prefix is stored once.

    A call never evicts what it has used or stored itself. Otherwise a call beyond the budget would leave only its end,
    and find nothing of it when it is repeated.

    Args:
        budget: Total size of keys and values in bytes; 0 stores nothing.

    Attributes:
        bytes: Size of the stored keys and values.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.clear()

    def clear(self) -> None:
        """Remove everything."""
        self._root = Node(np.zeros(0, dtype=np.int64), [])
        self._order: dict[Node, None] = {}  # least recently used first; ancestors come after their descendants
        self._token_bytes = 0  # size of one token, known once a prefix is stored
        self._call = 0
        self.bytes = 0

    def put(self, ids: Ids, context: Context, path: IntArray) -> None:
        """Store a prefix if there is room for it.

        Args:
            ids: Tokens of the prefix.
            context: Keys and values that include the prefix's.
            path: Place of each token in the context.
        """
        if self._token_bytes * len(ids) > self.budget:
            return
        length, nodes = self._match(ids)
        last = nodes[-1] if nodes else self._root
        surplus = sum(len(node.ids) for node in nodes) - length
        if surplus:
            last = self._split(last, len(last.ids) - surplus)
        self._touch(last)
        if length == len(ids) or not self._make_room(self._token_bytes * (len(ids) - length)):
            return
        node = Node(ids[length:].copy(), context.copy(path[length:]), last)
        size = size_of(node.layers)
        self._token_bytes = size // len(node.ids)
        if self._make_room(size):
            self.bytes += size
            last.children[int(node.ids[0])] = node
            self._touch(node)

    def lookup(self, rows: Sequence[Ids], lengths: Sequence[int], first: Sequence[int]) -> dict[int, Prefix]:
        """Begin a new call, and return the stored prefixes that save it ``MIN_SAVING`` tokens or more.

        Args:
            rows: Sorted rows.
            lengths: Length of the prefix that each row shares with the row before.
            first: First position of each row whose logits are needed.

        Returns:
            row -> stored prefix, which need not be run.
        """
        self._call += 1
        prefixes: dict[int, Prefix] = {}
        for number, row in enumerate(rows) if self._order else ():
            length, nodes = self._match(row)
            end = number
            while (
                length - lengths[number] >= MIN_SAVING and end < len(rows) and (end == number or lengths[end] >= length)
            ):
                length = min(length, first[end])  # a token whose logits are needed must be run
                end += 1
            if length - lengths[number] >= MIN_SAVING:
                prefixes[number] = Prefix(length, _parts(nodes, length))
                self._touch(nodes[-1])
        return prefixes

    def worthwhile(self, rows: Sequence[Ids], lengths: Sequence[int], first: Sequence[int]) -> dict[int, int]:
        """Return which prefixes of a call to store: those at which prompts diverge, and all of a single prompt.

        The arguments are those of ``lookup``.

        Returns:
            row -> length of its prefix to store.
        """
        if not self.budget or not rows:
            return {}
        chosen: dict[int, int] = {}
        path: list[int] = []  # lengths chosen on the path to the row, ascending
        for number in range(1, len(rows)):
            length = min(lengths[number], first[number - 1], first[number])
            while path and path[-1] > lengths[number]:
                path.pop()
            if length - (path[-1] if path else 0) >= MIN_SAVING and length < first[number]:
                chosen[number - 1] = length
                path.append(length)
        if not chosen and first[-1] >= MIN_SAVING:
            chosen[len(rows) - 1] = first[-1]
        return chosen

    def _match(self, row: Ids) -> tuple[int, list[Node]]:
        """Return the length of a row's stored prefix and its nodes; the last node may continue differently."""
        node, length, nodes = self._root, 0, []
        while length < len(row) and (child := node.children.get(int(row[length]))) is not None:
            alike = common(child.ids, row[length:])
            nodes.append(child)
            length += alike
            if alike < len(child.ids):
                break
            node = child
        return length, nodes

    @staticmethod
    def _split(lower: Node, n: int) -> Node:
        """Split a node after ``n`` tokens and return the new upper node."""
        parent = lower.parent
        assert parent is not None
        upper = Node(lower.ids[:n], _copied(sliced(lower.layers, 0, n)), parent)
        lower.layers = _copied(sliced(lower.layers, n, len(lower.ids)))
        lower.ids, lower.parent = lower.ids[n:], upper
        upper.children[int(lower.ids[0])] = lower
        parent.children[int(upper.ids[0])] = upper
        return upper

    def _touch(self, node: Node) -> None:
        """Make a node the most recently used one, and its ancestors more recent still."""
        for one in node.lineage():
            self._order.pop(one, None)
            self._order[one] = None
            one.used = self._call

    def _make_room(self, size: int) -> bool:
        """Evict nodes of earlier calls until ``size`` bytes fit, and return whether they do."""
        while self.bytes + size > self.budget:
            oldest = next(iter(self._order), None)
            if oldest is None or oldest.used == self._call:
                return False
            assert oldest.parent is not None
            del oldest.parent.children[int(oldest.ids[0])]  # the oldest node is a leaf: its children would be older
            del self._order[oldest]
            self.bytes -= size_of(oldest.layers)
        return True


def _parts(nodes: Sequence[Node], length: int) -> tuple[Layers, ...]:
    """Return the keys and values of the first ``length`` tokens, one part per node."""
    starts = itertools.accumulate((len(node.ids) for node in nodes), initial=0)
    parts = (sliced(node.layers, 0, length - start) for node, start in zip(nodes, starts, strict=False))
    return tuple(part for part in parts if part)


def _copied(layers: Layers) -> Layers:
    return [(keys.clone(), values.clone()) for keys, values in layers]
