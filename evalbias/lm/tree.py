"""Shared prefixes of a call's sequences: distinct rows, packs of their trie, and the KV cache."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from evalbias.lm.tokens import Scored, common, key_of
from evalbias.measures.arrays import IntArray

# A log-probability to read: place of the token after which it is read, next token, and target: its index in a flat
# array of the call's log-probabilities.
Read = tuple[int, int, int]


class Rows:
    """The distinct token sequences of a call, sorted, without their last tokens, which need no forward pass.

    ``targets``: index of each sequence's first log-probability; by default they follow one another.

    Example:
        >>> rows = Rows([Scored((1, 2, 9), 2), Scored((1, 2, 3, 9), 2)])
        >>> rows.shared, [reads.tolist() for reads in rows.reads]
        ([0, 2], [[[1, 9, 0], [1, 3, 1]], [[2, 9, 2]]])
    """

    def __init__(self, sequences: Sequence[Scored], targets: Sequence[int] | IntArray | None = None) -> None:
        # 1. The reads of each distinct row: position, next token and target.
        if targets is None:
            targets = list(itertools.accumulate((len(s.ids) - s.start for s in sequences), initial=0))[:-1]
        wanted: dict[bytes, list[Read]] = {}
        before, key = None, b""
        for sequence, target in zip(sequences, targets, strict=True):
            run = sequence.ids[:-1]
            if run != before:  # choices of a single token are adjacent
                before, key = run, key_of(run)
            scored = enumerate(sequence.ids[sequence.start :])
            reads = [(sequence.start - 1 + place, token, int(target) + place) for place, token in scored]
            wanted.setdefault(key, []).extend(reads)
        # 2. Sorted rows traverse the trie: each shares a prefix with the row before and adds the tokens after it.
        keys = sorted(wanted)
        self.ids: list[IntArray] = [np.frombuffer(key, dtype=">u4").astype(np.int64) for key in keys]
        # length of the prefix that each row shares with the row before; 0 for the first
        self.shared = [0, *(common(a, b) // 4 for a, b in itertools.pairwise(keys))][: len(keys)]
        self.first = [min(read[0] for read in wanted[key]) for key in keys]  # first positions whose logits are needed
        # 3. A token belongs to the row that adds it: the first row with this prefix. Its logits are read only there.
        owner = np.zeros(max(map(len, self.ids), default=0), dtype=np.int64)
        owned: list[list[Read]] = [[] for _ in keys]
        for row, key in enumerate(keys):
            owner[self.shared[row] : len(self.ids[row])] = row
            for read in wanted[key]:
                owned[owner[read[0]]].append(read)
        # (r, 3): at the tokens that a row adds
        self.reads: list[IntArray] = [np.array(reads, dtype=np.int64).reshape(-1, 3) for reads in owned]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """Number of distinct tokens: the nodes of the trie."""
        return sum(map(len, self.ids)) - sum(self.shared)

    def placed(self, batch: Sequence[int], width: int) -> IntArray:
        """Return the (r, 3) reads at the flattened (b, w) tokens of a batch of rows, at least one."""
        return np.concatenate([self.reads[row] + np.array([index * width, 0, 0]) for index, row in enumerate(batch)])


def sent(values: NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to a device's tensor without waiting: a GPU reads it from pinned memory."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


# Packs: the trie of a call, in the order in which a model runs every distinct token once.
#
# Sorted rows traverse the trie depth first: row i adds the tokens after the prefix that it shares with row i - 1. The
# tokens, in that order, are cut into packs. Every ancestor of a pack's token is in the same pack or in the pack's
# context: the path from the root to the pack's first token. A token is visible to the tokens after it until the
# traversal leaves its subtree, so a single number per token describes the whole tree mask.


@dataclass(frozen=True)
class Pack:
    """A stretch of the traversal: n tokens after a context of c tokens."""

    ids: IntArray  # (n,) tokens
    positions: IntArray  # (n,) positions in their rows
    # (c + n,) first place in the pack that no longer attends to each token of context and pack; n if all attend
    ends: IntArray
    source: IntArray  # (c,) places of the context's tokens in the previous pack's context and tokens
    stored: int | None  # row whose prefix of whole blocks is the context; None if it comes from the previous pack
    reads: IntArray  # (r, 3) ``Read``: place in the pack, next token, target


def packs(rows: Rows, size: int, stored: Mapping[int, int]) -> Iterator[Pack]:
    """Yield the packs of rows, of at most ``size`` tokens and never empty.

    ``stored``: row -> length of its prefix that is run elsewhere, from ``shared_blocks``.
    """
    path = np.zeros(max(map(len, rows.ids), default=0), dtype=np.int64)  # position -> place in context and pack
    for stretches in _stretches(rows, size, stored):
        # 1. The context is the path to the first token: through the previous pack, or a stored prefix.
        first, context, _ = stretches[0]
        is_stored = stored.get(first) == context
        source = np.arange(context) if is_stored else path[:context].copy()
        path[:context] = np.arange(context)
        count = sum(stop - start for _, start, stop in stretches)
        ends = np.full(context + count, count)
        reads = []
        place, length = context, context  # of the next token, and of the path
        for row, start, stop in stretches:
            # 2. Go back to the prefix that is shared with the row before: the tokens after it are no longer visible.
            ends[path[start:length]] = place - context
            # 3. Add tokens.
            inside = rows.reads[row][(rows.reads[row][:, 0] >= start) & (rows.reads[row][:, 0] < stop)]
            reads.append(inside + np.array([place - context - start, 0, 0]))
            path[start:stop] = np.arange(place, place + stop - start)
            place, length = place + stop - start, stop
        ids = np.concatenate([rows.ids[row][start:stop] for row, start, stop in stretches])
        positions = np.concatenate([np.arange(start, stop) for _, start, stop in stretches])
        yield Pack(ids, positions, ends, source, first if is_stored else None, np.concatenate(reads))


def _stretches(rows: Rows, size: int, stored: Mapping[int, int]) -> Iterator[list[tuple[int, int, int]]]:
    """Yield each pack as (row, start, stop): the positions of the tokens that each row adds."""
    some: list[tuple[int, int, int]] = []
    left = size
    for row, ids in enumerate(rows.ids):
        start = stored.get(row, rows.shared[row])
        while start < len(ids):
            if some and (not left or start == stored.get(row)):  # the pack is full, or another context begins
                yield some
                some, left = [], size
            stop = min(len(ids), start + left)
            some.append((row, start, stop))
            start, left = stop, left - (stop - start)
    if some:
        yield some


def batches(rows: Rows, most: int) -> Iterator[tuple[list[int], IntArray]]:
    """Yield batches of rows of similar length: their numbers, and (b, w) tokens, padded with 0, of at most ``most``."""
    left = sorted(range(len(rows)), key=lambda number: len(rows.ids[number]))
    while left:
        count = 1
        while count < len(left) and (count + 1) * len(rows.ids[left[count]]) <= most:
            count += 1
        batch, left = left[:count], left[count:]
        ids = np.zeros((count, len(rows.ids[batch[-1]])), dtype=np.int64)
        for place, number in enumerate(batch):
            ids[place, : len(rows.ids[number])] = rows.ids[number]
        yield batch, ids


# KV cache: keys and values of the tokens before a pack, for each layer.


Layers = list[tuple[Tensor, Tensor]]  # keys and values of each layer, (1, heads, tokens, head size); [] for no tokens


class PackCache(DynamicCache):  # type: ignore[misc]
    """KV cache of a forward pass over a pack: the context's keys and values, then the pack's own."""

    def __init__(self, context: Layers) -> None:
        super().__init__()
        self._context = context
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Add a layer's own keys and values, and return them with those of the context."""
        (self._layers[layer_idx],) = chained(self._context[layer_idx : layer_idx + 1], [(key_states, value_states)])
        return self._layers[layer_idx]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return int(self._context[0][0].shape[2]) if self._context else 0

    def extended(self) -> Layers:
        """Return the keys and values of context and pack, after the forward pass."""
        return [self._layers[number] for number in range(len(self._layers))]


def chained(*parts: Layers) -> Layers:
    """Concatenate the keys and values of all parts; a single part is not copied."""
    first, *others = [part for part in parts if part] or [[]]
    if not others:
        return first
    layers = zip(first, *others, strict=True)
    return [(torch.cat([k for k, _ in layer], dim=2), torch.cat([v for _, v in layer], dim=2)) for layer in layers]


def taken(layers: Layers, places: IntArray) -> Layers:
    """Return the keys and values at ascending places; adjacent places are not copied."""
    if not len(places):
        return []
    start, stop = int(places[0]), int(places[-1]) + 1
    if stop - start == len(places):
        return [(keys[:, :, start:stop], values[:, :, start:stop]) for keys, values in layers]
    on = {device: sent(places, device) for device in {keys.device for keys, _ in layers}}  # may be several
    return [(keys.index_select(2, on[keys.device]), values.index_select(2, on[keys.device])) for keys, values in layers]


def copied(layers: Layers) -> Layers:
    """Copy tensors, so that they keep no larger tensors in memory."""
    return [(keys.clone(), values.clone()) for keys, values in layers]


# Prefix cache in blocks: keys and values of prompts' prefixes, kept between calls.
#
# A block of a prefix is always run by itself, after the blocks before it, as blocks of keys and values are in vLLM's
# prefix cache (Kwon et al. 2023). So its numbers are the same to the last digit, whichever call asked for it first, and
# an answer depends only on the questions of its own call: a resumed run repeats an earlier run.


BLOCK = 256  # tokens in a block: smaller blocks need more calls, larger ones are shared by fewer prompts
MIN_SAVING = 64  # tokens that blocks must save a row, beyond its prefix shared with the row before


def shared_blocks(rows: Rows) -> dict[int, int]:
    """Return row -> length in whole blocks of the prefix shared with later rows; for a single row, of its prompt.

    It is longer than the prefix shared with the row before, and no row that has it needs logits inside it.
    """
    lengths: dict[int, int] = {}
    for row, before in enumerate(rows.shared):
        last = row + 1 == len(rows)
        length = min(rows.first[row], (rows.first[row] if len(rows) == 1 else 0) if last else rows.shared[row + 1])
        end = row + 1
        while length >= max(BLOCK, before + MIN_SAVING) and end < len(rows) and rows.shared[end] >= length:
            length = min(length, rows.first[end])  # a token whose logits are needed must be run
            end += 1
        length -= length % BLOCK
        if length >= before + MIN_SAVING:
            lengths[row] = length
    return lengths


def block_packs(ids: IntArray) -> Iterator[tuple[IntArray, Pack]]:
    """Yield the prefixes of 1, 2, ... blocks of tokens, each with the pack of its last block."""
    nothing = np.zeros((0, 3), dtype=np.int64)  # no reads
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        end = start + BLOCK
        ends = np.full(end, BLOCK)
        yield ids[:end], Pack(ids[start:end], np.arange(start, end), ends, np.arange(start), None, nothing)


class PrefixStore:
    """The most recently used blocks of prefixes, up to a budget in bytes; 0 keeps nothing.

    A call never drops blocks that it has used or kept itself. Otherwise a call beyond the budget would leave only its
    last blocks, and find none of them when it is repeated.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.clear()

    def clear(self) -> None:
        self._blocks: dict[bytes, Layers] = {}  # whole prefix -> its last block; the least recently used first
        self._used: set[bytes] = set()  # by this call
        self.bytes = 0

    def begin(self) -> None:
        self._used = set()

    def get(self, prefix: IntArray) -> Layers | None:
        """Return the last block of a prefix; None if it is not kept."""
        layers = self._blocks.pop(key := prefix.tobytes(), None)
        if layers is not None:
            self._blocks[key] = layers
            self._used.add(key)
        return layers

    def put(self, prefix: IntArray, layers: Layers) -> None:
        """Keep the last block of a prefix if there is room, dropping blocks of earlier calls if necessary."""
        size = _size(layers)
        while self.bytes + size > self.budget:
            oldest = next(iter(self._blocks), None)
            if oldest is None or oldest in self._used:
                return
            self.bytes -= _size(self._blocks.pop(oldest))
        self._blocks[key := prefix.tobytes()] = layers
        self._used.add(key)
        self.bytes += size


def _size(layers: Layers) -> int:
    return sum(tensor.nbytes for pair in layers for tensor in pair)
