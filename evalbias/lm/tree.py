"""The prefix tree of a request: shared beginnings, packs of the rest, and their keys and values."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from evalbias.measures.arrays import IntArray

# Copies of the host's arrays to a model's device that the host does not wait for.


def sent(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    """Return a device's tensor of an array, without waiting for the copy: a GPU reads it from pinned memory."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


# The token trie of a call, and the order in which a model runs every distinct token once.
#
# Sorted rows traverse a trie depth first: row i adds the tokens after the prefix that it shares with row i - 1. The
# tokens, in that order, are cut into packs. Every ancestor of a pack's token is in the same pack or in the pack's
# context: the path from the root to the pack's first token. A token is visible to the tokens after it until the
# traversal leaves its subtree, so one number per token describes the whole tree mask.


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


# Shared prefixes of models that cannot run packs: a trunk runs once, and its state is repeated for what follows.
#
# A pack needs attention, which can be masked. A layer that passes a state from token to token (linear attention, Mamba,
# convolutions) or that counts places (ALiBi) can only run consecutive tokens. Its cache after a shared prefix, the
# *trunk*, serves every row that begins with it: trunks run one by one, and the rests of the rows in batches, padded on
# the right, where no token looks.
#
#     rows         trunks        batches
#     a b c d      a b           c d     after a b
#     a b c e      a b c         e .
#     a b f g                    f g


SHORTEST, SAVING = 16, 64
"""Smallest number of tokens in a trunk, and of tokens that it saves: each is a forward pass of its own."""


@dataclass
class Trunk:
    """Consecutive tokens that some rows share.

    Attributes:
        rows: The rows, of which the first holds the tokens.
        start: Position of the first token.
        stop: Position after the last token.
        parent: Number of the trunk before this one.
        leaves: Rows whose remaining tokens run in batches after this trunk.
        last: Number of the last trunk that begins after this one; its own number if there is none.
    """

    rows: range
    start: int
    stop: int
    parent: int
    leaves: list[int] = field(default_factory=list)
    last: int = 0


@dataclass(frozen=True)
class Stretch:
    """Tokens that ran together.

    Attributes:
        hidden: (b, w, d) hidden states.
        start: Position of the first of the w tokens.
        rows: The rows to whom each of the b sequences belongs.
    """

    hidden: torch.Tensor
    start: int
    rows: tuple[Sequence[int], ...]


def trunks(rows: Sequence[Ids], lengths: Sequence[int]) -> list[Trunk]:
    """Return the trunks of sorted rows in the order in which they run; the first is empty.

    Args:
        rows: Distinct, non-empty rows in sorted order.
        lengths: Length of the prefix that each row shares with the row before, from ``trie.shared``.
    """
    done = [Trunk(range(len(rows)), 0, 0, 0)]
    waiting = [(done[0].rows, 0)] if rows else []
    while waiting:
        group, parent = waiting.pop()
        if len(group) == 1:
            done[parent].leaves.append(group[0])
            continue
        stop = min(lengths[row] for row in group[1:])
        start = done[parent].stop
        if stop - start >= SHORTEST and (len(group) - 1) * (stop - start) >= SAVING:
            done.append(Trunk(group, start, stop, parent))
            parent = len(done) - 1
        cuts = [group.start, *(row for row in group[1:] if lengths[row] == stop), group.stop]
        waiting += [(range(a, b), parent) for a, b in itertools.pairwise(cuts)][::-1]
    for number, trunk in enumerate(done):
        trunk.last = number
        done[trunk.parent].last = number
    return done


def run(
    body: Any, rows: Sequence[Ids], lengths: Sequence[int], batch_tokens: int, device: torch.device
) -> Iterator[Stretch]:
    """Run every row, each trunk once.

    Args:
        body: Decoder of the model.
        rows: Distinct, non-empty rows in sorted order.
        lengths: Length of the prefix that each row shares with the row before.
        batch_tokens: Largest number of tokens in a batch, those of its trunk included.
        device: Device of the model.
    """
    plan = trunks(rows, lengths)
    states: dict[int, Any] = {}  # number of a trunk -> cache after it
    for number, trunk in enumerate(plan):
        if trunk.stop:
            ids = sent(rows[trunk.rows[0]][trunk.start : trunk.stop], device)[None]
            hidden, states[number] = _forward(body, ids, copy.deepcopy(states.get(trunk.parent)))
            yield Stretch(hidden, trunk.start, (trunk.rows,))
        left = sorted((row for row in trunk.leaves if len(rows[row]) > trunk.stop), key=lambda row: len(rows[row]))
        while left:
            count = 1
            while count < len(left) and (count + 1) * len(rows[left[count]]) <= batch_tokens:
                count += 1
            batch, left = left[:count], left[count:]
            rests = np.zeros((count, len(rows[batch[-1]]) - trunk.stop), dtype=np.int64)  # (b, w)
            for place, row in enumerate(batch):
                rests[place, : len(rows[row]) - trunk.stop] = rows[row][trunk.stop :]
            hidden, _ = _forward(body, sent(rests, device), _repeated(states.get(number), count))
            yield Stretch(hidden, trunk.stop, tuple((row,) for row in batch))
        for done in [done for done in states if plan[done].last <= number]:
            del states[done]


def _forward(body: Any, ids: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
    """Return the (b, w, d) hidden states of (b, w) tokens after a state, and the state after them."""
    given = {} if state is None else {state[0]: state[1]}
    outputs = body(input_ids=ids, use_cache=True, **given)
    name = "cache_params" if hasattr(outputs, "cache_params") else "past_key_values"  # the former in Mamba
    return outputs.last_hidden_state, (name, getattr(outputs, name))


def _repeated(state: Any, count: int) -> Any:
    """Return a copy of a state for each of several rows."""
    if state is None:
        return None
    name, cache = copy.deepcopy(state)
    cache.reorder_cache(torch.zeros(count, dtype=torch.long))
    return name, cache


# KV cache of a pack: a shared prefix that is never copied, and a suffix that is.
#
# The first tokens of a pack's context are visible to all of its tokens, such as a prompt's demonstrations: the *shared
# prefix*. Its keys and values stay in place from pack to pack. The other context tokens are visible to some of the
# pack's tokens only, such as a text that the previous pack broke off: the *suffix*. It is stored next to the pack's own
# keys and values. Hydragen (Juravsky et al. 2024) splits the cache in the same way.


Layers = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, (1, heads, tokens, head size); an empty list for no tokens."""


@dataclass(frozen=True)
class Context:
    """Keys and values of the tokens before a pack.

    Attributes:
        prefix: The shared prefix, visible to every token of the pack.
        suffix: The tokens after it.
    """

    prefix: Layers
    suffix: Layers

    def at(self, places: IntArray, prefix_length: int) -> Context:
        """Return the context of the next pack.

        Args:
            places: Places, in this context, of the next context's tokens; ascending.
            prefix_length: Number of the next context's first tokens that are visible to the whole next pack.
        """
        length = tokens(self.prefix)
        # a path leaves the prefix only at the prefix's end, so equal places come first
        kept = int((places[:length] == np.arange(min(len(places), length))).sum())
        tail = _at(self.suffix, places[kept:] - length)
        if prefix_length <= kept:  # the prefix ends here: its other tokens join the suffix
            suffix = joined(sliced(self.prefix, prefix_length, kept), tail)
            return Context(sliced(self.prefix, 0, prefix_length), suffix)
        own = prefix_length - kept  # tokens of the suffix that join the prefix
        prefix = joined(sliced(self.prefix, 0, kept), sliced(tail, 0, own))
        return Context(prefix, sliced(tail, own, len(places) - kept))

    def copy(self, places: IntArray) -> Layers:
        """Return a copy of the keys and values at ascending places."""
        length = tokens(self.prefix)
        split = int(np.searchsorted(places, length))
        return joined(_taken(self.prefix, places[:split]), _taken(self.suffix, places[split:] - length))


class PackCache(DynamicCache):  # type: ignore[misc]
    """The cache of one forward pass over a pack.

    Args:
        context: Keys and values of the tokens before the pack.
        first: First token of the context whose keys and values each layer's attention receives with the pack's own.
    """

    def __init__(self, context: Context, first: Sequence[int]) -> None:
        super().__init__()
        self._context = context
        self._first = first
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # suffix and own keys and values

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store a layer's own keys and values, and return those that its attention is to use."""
        prefix, suffix = self._context.prefix, self._context.suffix
        own = (key_states, value_states)
        layer = self._layers[layer_idx] = _cat(suffix[layer_idx], own) if suffix else own
        before = sliced(prefix[layer_idx : layer_idx + 1], self._first[layer_idx], tokens(prefix))
        return _cat(before[0], layer) if before else layer

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of context tokens."""
        return tokens(self._context.prefix) + tokens(self._context.suffix)

    def extended(self) -> Context:
        """Return the context with the pack's own keys and values, after the forward pass."""
        return Context(self._context.prefix, [self._layers[number] for number in range(len(self._layers))])


def tokens(layers: Layers) -> int:
    """Return the number of tokens."""
    return int(layers[0][0].shape[2]) if layers else 0


def size_of(layers: Layers) -> int:
    """Return the size in bytes."""
    return sum(tensor.nbytes for pair in layers for tensor in pair)


def _at(layers: Layers, places: IntArray) -> Layers:
    if not len(places):
        return []
    if int(places[0]) == 0 and int(places[-1]) == len(places) - 1:  # ascending
        return sliced(layers, 0, len(places))
    return _taken(layers, places)


def _taken(layers: Layers, places: IntArray) -> Layers:
    if not len(places):
        return []
    on = {device: sent(places, device) for device in {keys.device for keys, _ in layers}}  # of a spread model, several
    return [(keys.index_select(2, on[keys.device]), values.index_select(2, on[keys.device])) for keys, values in layers]


def sliced(layers: Layers, start: int, stop: int) -> Layers:
    """Return the tokens from ``start`` to ``stop``, without copying."""
    if stop <= start:
        return []
    if start == 0 and stop >= tokens(layers):
        return layers
    return [(keys[:, :, start:stop], values[:, :, start:stop]) for keys, values in layers]


def joined(a: Layers, b: Layers) -> Layers:
    """Concatenate the tokens of ``a`` and ``b``; either may be empty."""
    return [_cat(one, other) for one, other in zip(a, b, strict=True)] if a and b else a or b


def _cat(a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]) -> Any:
    return torch.cat([a[0], b[0]], dim=2), torch.cat([a[1], b[1]], dim=2)


# Prefix cache: keys and values of prompt prefixes, kept from call to call.
#
# The stored prefixes form a radix tree with least-recently-used eviction, as in RadixAttention (Zheng et al. 2024,
# SGLang).


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
