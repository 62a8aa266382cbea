"""Tree attention: masks by layer, tiles, and the kernels on CPU and GPU."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from torch.nn.attention import flex_attention as flex
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

from evalbias.lm.tree import Layers, Pack, sent
from evalbias.measures.arrays import BoolArray, IntArray

# Which tiles of a pack's attention hold pairs of a query and a key: the block-sparse form of a tree mask.
#
# A tile is a block of queries times a block of keys. Packs are traversed depth first, so a branch's tokens stand side
# by side, and most tiles pair tokens of different branches. Such tiles are skipped. Of the others, those in which every
# query attends to every key need no mask.
#
#     keys      a a b b b c c      a common beginning a, then the branches b and c; tiles of 2 queries and 2 keys
#     queries   o o . . . . .
#               o o . . . . .      #  every query attends to every key
#               # # o o . . .      o  attended to under the mask
#               # # o o . . .      .  skipped
#               # # o o o o .
#               # # o o o o .      b's last query and c's first are in one block, which attends to both
#               # # . . o o #


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


# Which tokens each layer of a model attends to: all, those in a sliding window, or those in the same chunk.
#
# A pack needs one tree mask per kind of layer: the tree, cut down to the window or the chunk. Windows and chunks count
# positions in the text, not places in the pack.
#
#     tree, full attention    sliding_window = 2      position
#     a   x . . . .           x . . . .               0
#     b   x x . . .           x x . . .               1
#     c   x x x . .           . x x . .               2
#     d   x x . x .           . x . x .               2
#     e   x . . . x           x . . . x               1


FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
"""transformers' names of the kinds, under which a model of mixed layers takes its masks."""

WIDTHS = {SLIDING: "sliding_window", CHUNKED: "attention_chunk_size"}
"""Settings that hold the width of each limited kind."""


@dataclass(frozen=True)
class LayerKinds:
    """The kind of every layer of a model.

    Attributes:
        layers: Kind of each layer.
        config: The model's configuration, which holds the widths.
    """

    layers: tuple[str, ...]
    config: Any

    @classmethod
    def of(cls, config: Any) -> LayerKinds | None:
        """Return the kinds of a text model's layers, or None if there are other layers than attention."""
        types = getattr(config, "layer_types", None)
        if types is None:
            unused = {SLIDING} if getattr(config, "use_sliding_window", True) is False else set()
            limited = [kind for kind, name in WIDTHS.items() if getattr(config, name, None) and kind not in unused]
            types = [limited[0] if limited else FULL] * config.num_hidden_layers
        return cls(tuple(types), config) if set(types) <= {FULL, *WIDTHS} else None

    @property
    def distinct(self) -> tuple[str, ...]:
        """The kinds that occur."""
        return tuple(dict.fromkeys(self.layers))

    def first_positions(self, kind: str, positions: IntArray) -> IntArray:
        """Return the first position that each token attends to, negative if its window begins before the text.

        Args:
            kind: Kind of the layer.
            positions: (n,) positions of the tokens.
        """
        if kind == FULL:
            return np.zeros_like(positions)
        width = int(getattr(self.config, WIDTHS[kind]))
        return positions - width + 1 if kind == SLIDING else positions - positions % width


@dataclass(frozen=True)
class LayerMask:
    """Attention mask of the layers of one kind, for a pack of n tokens after c tokens of context.

    Attributes:
        first: Token of the context at which the mask begins.
        prefix: Whether all of the pack attends to the tokens before ``first``, without a mask; else none of it does.
        tiles: The mask, in tiles.
        like: Tensor of the mask's dtype and device.
    """

    first: int
    prefix: bool
    tiles: Tiles
    like: torch.Tensor

    def on(self, device: torch.device) -> LayerMask:
        """Return the mask for a device: the layers of a large model are spread over several."""
        return self if device == self.like.device else replace(self, like=self.like.to(device))

    @cached_property
    def mask(self) -> torch.Tensor:
        """(1, 1, n, c + n - first) additive mask, for attention that knows no tiles."""
        return self.part(slice(0, len(self.tiles.reach)), [slice(0, len(self.tiles.ends))])[None, None]

    def part(self, queries: slice, keys: Sequence[slice]) -> torch.Tensor:
        """Return the (q, k) additive mask of some queries and keys."""
        columns = np.concatenate([np.arange(run.start, run.stop) for run in keys])
        reach = self.tiles.reach[queries]
        place, ends = (sent(x, self.like.device) for x in (columns - self.tiles.before, self.tiles.ends[columns]))
        rows = sent(np.arange(queries.start, queries.stop), self.like.device)[:, None]
        # A key is visible to a query that stands at or after it and has left neither its subtree nor its reach.
        hidden = (place > rows) | (rows >= ends)
        if reach.max() > 0:
            positions = sent(self.tiles.positions[columns], self.like.device)
            hidden |= positions < sent(reach, self.like.device)[:, None]
        mask = torch.zeros(hidden.shape, dtype=self.like.dtype, device=self.like.device)
        # additive: saves each layer the conversion
        return mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)


def layer_masks(
    kinds: LayerKinds, pack: Pack, prefix_length: int, *, cascade: bool, like: torch.Tensor
) -> dict[str, LayerMask]:
    """Return the mask of each kind of layer.

    Args:
        kinds: Kinds of the model's layers.
        pack: The pack.
        prefix_length: Number of the context's first tokens that the tree lets the whole pack attend to.
        cascade: Whether layers attend to a shared prefix without a mask where they attend to all of it.
        like: Tensor of the masks' dtype and device.
    """
    masks: dict[str, LayerMask] = {}
    whole: LayerMask | None = None  # of every kind that hides nothing from this pack
    for kind in kinds.distinct:
        reach = kinds.first_positions(kind, pack.positions)  # (n,)
        if reach.max() > 0:
            first = min(prefix_length, max(0, int(reach.min())))  # a context token's place is its position
            masks[kind] = LayerMask(first, False, _tiles(pack, first, reach), like)
            continue
        if whole is None:
            first = prefix_length if cascade else 0
            whole = LayerMask(first, cascade, _tiles(pack, first, reach), like)
        masks[kind] = whole
    return masks


def _tiles(pack: Pack, first: int, reach: IntArray) -> Tiles:
    positions = np.concatenate([np.arange(first, len(pack.source)), pack.positions])  # (c + n - first,)
    return Tiles(pack.ends[first:], positions, reach)


@contextmanager
def narrowed(model: Any, width: int) -> Iterator[None]:
    """Set every window and chunk of a model to a width inside the ``with`` block, to try it on short texts."""
    configs = [module.config.get_text_config() for module in model.modules() if hasattr(module, "config")]
    settings = [
        (config, name, getattr(config, name))
        for config in {id(config): config for config in configs}.values()
        for name in WIDTHS.values()
        if getattr(config, name, None)
    ]
    try:
        for config, name, _ in settings:
            setattr(config, name, width)
        yield
    finally:
        for config, name, before in settings:
            setattr(config, name, before)


# Tree attention on a CPU: PyTorch's flash kernel, once for the shared prefix and once for each block of queries.


_FLASH = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
"""The kernel behind PyTorch's scaled-dot-product attention on a CPU: the only one that returns the log-sum-exp."""

SPARSE = 0.75
"""Largest share of a span of keys that is copied together; of denser spans the kernel also computes what is hidden."""

Result = tuple[torch.Tensor, torch.Tensor]
"""Outputs (1, H, n, d) and log-sum-exps (1, H, n)."""


@dataclass(frozen=True)
class _Block:
    """Queries from ``start`` to ``stop``, the runs of keys they attend to, and the (q, k) mask of both."""

    start: int
    stop: int
    runs: Sequence[slice]
    mask: torch.Tensor


class CPUAttention:
    """The two parts of a pack's attention, for the layers of one kind.

    The query heads of a key head are laid side by side as queries, so that no key is repeated.

    Args:
        mask: What the layers attend to.
    """

    def __init__(self, mask: LayerMask) -> None:
        self.mask = mask

    @staticmethod
    def usable(_: torch.dtype) -> bool:
        """Return whether this PyTorch has the kernel, which takes all dtypes."""
        return _FLASH is not None

    def near(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        softcap: float | None,
    ) -> Result:
        """Attend to the suffix and the pack, block by block under the tree mask."""
        groups = query.shape[1] // key.shape[1]  # queries per key head
        done = [
            _flash(
                query[:, :, block.start : block.stop],
                _taken(key, block.runs),
                _taken(value, block.runs),
                block.mask.repeat(groups, 1)[None, None],  # not kept: with few key heads, it is many times larger
                scaling,
                softcap,
            )
            for block in self._blocks
        ]
        outs, lses = zip(*done, strict=True)
        return torch.cat(outs, dim=2), torch.cat(lses, dim=2)

    @staticmethod
    def far(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        softcap: float | None,
    ) -> Result:
        """Attend to the shared prefix, all queries at once without a mask."""
        return _flash(query, key, value, None, scaling, softcap)

    @cached_property
    def _blocks(self) -> list[_Block]:
        edges, blocks = self.mask.tiles.queries, []
        for number in range(len(edges) - 1):
            start, stop, runs = int(edges[number]), int(edges[number + 1]), self.mask.tiles.runs(number)
            span = slice(runs[0].start, runs[-1].stop)
            if sum(run.stop - run.start for run in runs) > SPARSE * (span.stop - span.start):
                runs = [span]
            blocks.append(_Block(start, stop, runs, self.mask.part(slice(start, stop), runs)))
        return blocks


def _taken(states: torch.Tensor, runs: Sequence[slice]) -> torch.Tensor:
    """Return the keys or values of some runs; a single run is not copied."""
    parts = [states[:, :, run] for run in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    softcap: float | None,
) -> Result:
    if softcap is not None:
        raise NotImplementedError("The flash kernel for CPUs cannot cap attention scores.")
    assert _FLASH is not None  # checked by ``usable``
    _, heads, n, size = query.shape
    grouped = query.reshape(1, key.shape[1], -1, size)  # (1, G, H / G * n, d)
    out, lse = _FLASH(grouped, key, value, attn_mask=mask, scale=scaling)
    return out.reshape(1, heads, n, size), lse.reshape(1, heads, n)


# Tree attention on a GPU: FlexAttention for the tiles of the pack, a flash kernel for the shared prefix.
#
# FlexAttention (Dong et al. 2024) compiles a kernel that skips tiles, caps scores and takes grouped key heads. Its
# compiled form has not run on a GPU: the tests run its uncompiled form on a CPU, and the shapes of the flash kernel on
# tensors without data. A model is therefore tried on the GPU itself when it is loaded (``score.py``), and runs under a
# dense mask if this module fails there. A model in float32 always does.


MOST_KERNELS = 64
"""Largest number of compiled kernels: by kind of mask, head size, and whether the pack or its context is one tile."""
"""Outputs (1, H, n, d) and log-sum-exps (1, H, n)."""


class GPUAttention:
    """The two parts of a pack's attention, for the layers of one kind.

    Args:
        mask: What the layers attend to.
    """

    def __init__(self, mask: LayerMask) -> None:
        self.mask = mask
        self._block_mask: flex.BlockMask | None = None

    @staticmethod
    def usable(dtype: torch.dtype) -> bool:
        """Return whether this PyTorch compiles FlexAttention with log-sum-exps for many shapes, and well for a dtype.

        PyTorch 2.13 does for 16 bits. In float32 a kernel takes one to two minutes to compile for an H100, and spills
        up to 9 kB a thread out of its registers.
        """
        return dtype.itemsize == 2 and "recompile_limit" in inspect.signature(torch.compile).parameters

    def near(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        softcap: float | None,
    ) -> Result:
        """Attend to the suffix and the pack, tile by tile."""
        if self._block_mask is None:
            self._block_mask = block_mask(self.mask)
        return _flex(query, key, value, self._block_mask, scaling, softcap)

    @staticmethod
    def far(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        softcap: float | None,
    ) -> Result:
        """Attend to the shared prefix without a mask, in the flash kernel where it takes the numbers."""
        size = query.shape[-1]
        if softcap is None and query.is_cuda and query.dtype.itemsize == 2 and size % 8 == 0 and size <= 256:
            # takes grouped key heads as they are, as scaled_dot_product_attention(enable_gqa=True) passes them
            out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, scale=scaling)
            return out, lse
        return _flex(query, key, value, None, scaling, softcap)


def block_mask(mask: LayerMask) -> flex.BlockMask:
    """Return FlexAttention's form of a mask; it is made from the tiles on the host, not from a dense mask."""
    tiles, device = mask.tiles, mask.like.device
    ends, positions, reach, place = (
        sent(values.astype(np.int32), device)
        for values in (tiles.ends, tiles.positions, tiles.reach, np.arange(len(tiles.ends)) - tiles.before)
    )

    def in_branch(_: Any, __: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return (place[k] <= q) & (q < ends[k])

    def in_reach(_: Any, __: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return (place[k] <= q) & (q < ends[k]) & (positions[k] >= reach[q])

    return flex.BlockMask.from_kv_blocks(
        *_lists(tiles.attended & ~tiles.whole, device),
        *_lists(tiles.whole, device),
        BLOCK_SIZE=tiles.size,
        mask_mod=in_reach if tiles.reach.max() > 0 else in_branch,
        seq_lengths=(len(tiles.reach), len(tiles.ends)),
        compute_q_blocks=False,
    )


def _lists(blocks: BoolArray, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for each row of (a, b) tiles the number of True ones, (1, 1, a), and their columns first, (1, 1, a, b)."""
    columns = np.argsort(~blocks, axis=1, kind="stable")
    counts, lists = (values.astype(np.int32)[None, None] for values in (blocks.sum(axis=1), columns))
    return sent(counts, device), sent(lists, device)


def _flex(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    blocks: flex.BlockMask | None,
    scaling: float | None,
    softcap: float | None,
) -> Result:
    out, aux = _kernel(query.device.type)(
        query,
        key,
        value,
        score_mod=None if softcap is None else _capped(softcap),
        block_mask=blocks,
        scale=scaling,
        enable_gqa=True,
        return_aux=flex.AuxRequest(lse=True),
    )
    return out, aux.lse


@cache
def _capped(softcap: float) -> Callable[..., torch.Tensor]:
    return lambda score, *_: softcap * torch.tanh(score / softcap)


@cache
def _kernel(device: str) -> Any:
    """Return FlexAttention compiled for a GPU; on a CPU the compiled kernel returns no log-sum-exps."""
    if device != "cuda":
        return flex.flex_attention
    compiled: Any = torch.compile  # its overloads lack the limit
    return compiled(flex.flex_attention, fullgraph=True, recompile_limit=MOST_KERNELS)


# Tree attention of a pack, in two parts, on CPU and GPU.
#
# Nearly all tokens of a pack attend to the same context and to little of the pack. The *far* part is the shared prefix,
# which all queries attend to at once without a mask. The *near* part is the rest, suffix and pack, of which the tiles
# without a pair are skipped. Layers whose windows cut into the prefix have a near part only: the
# prefix's last tokens belong to it. The parts are merged by their log-sum-exps, and so are attention sinks. There is no
# mask of the whole pack, and no key head is repeated.
#
# This is cascade attention (FlashInfer, Ye et al. 2025), with the batching over the shared prefix of Hydragen (Juravsky
# et al. 2024). A kernel does both parts.


Kernel = CPUAttention | GPUAttention
KERNELS: dict[str, type[Kernel]] = {"cpu": CPUAttention, "cuda": GPUAttention}
"""Device type -> kernel."""

Returned = tuple[torch.Tensor, torch.Tensor | None]


@dataclass(frozen=True)
class Cascade:
    """The attention of one forward pass.

    Attributes:
        prefix: Keys and values of the shared prefix; may be empty.
        masks: Mask of each layer; layers of one kind have the same.
        kernels: Kernels that were made so far, by mask and device.
    """

    prefix: Layers
    masks: Sequence[LayerMask]
    kernels: dict[tuple[int, torch.device], Kernel] = field(default_factory=dict)

    def kernel(self, number: int, device: torch.device) -> Kernel:
        """Return the kernel of a layer, which layers of its kind on its device share."""
        mask = self.masks[number]
        key = id(mask), device
        if key not in self.kernels:
            self.kernels[key] = KERNELS[device.type](mask.on(device))
        return self.kernels[key]


_CASCADE: ContextVar[Cascade | None] = ContextVar("cascade", default=None)


def install(model: Any) -> bool:
    """Make a model use tree attention in packs, and return whether that is possible.

    Outside packs it keeps its own attention, which must be PyTorch's scaled-dot-product attention or transformers'
    plain ("eager") one, and the device must have a kernel for the
    model's dtype.
    """
    own = model.config._attn_implementation
    if own in NAMES.values():
        return True
    kernel = KERNELS.get(model.device.type)
    if own not in NAMES or kernel is None or not kernel.usable(model.dtype):
        return False
    if own == "eager" and not getattr(model, "_supports_attention_backend", False):
        return False
    for name, attention, mask in ((NAMES["sdpa"], _over_sdpa, sdpa_mask), (NAMES["eager"], _over_eager, eager_mask)):
        AttentionInterface.register(name, attention)
        AttentionMaskInterface.register(name, mask)
    model.set_attn_implementation(NAMES[own])
    return True


def uninstall(model: Any) -> None:
    """Make a model use its own attention again."""
    for own, name in NAMES.items():
        if model.config._attn_implementation == name:
            model.set_attn_implementation(own)


NAMES = {"sdpa": "evalbias_tree_or_sdpa", "eager": "evalbias_tree_or_eager"}
"""A model's own attention -> the name under which transformers knows tree attention in its place."""


@contextmanager
def tree_attention(prefix: Layers, masks: Sequence[LayerMask]) -> Iterator[None]:
    """Run the forward pass inside the ``with`` block on a pack that also attends to a shared prefix.

    Args:
        prefix: Keys and values of the shared prefix.
        masks: Mask of each layer.
    """
    token = _CASCADE.set(Cascade(prefix, masks))
    try:
        yield
    finally:
        _CASCADE.reset(token)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cascade: Cascade,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend to the shared prefix and to the given keys.

    Args:
        module: Attention layer.
        query: Queries of the pack, (1, H, n, d).
        key: Keys of m tokens before the pack and of the pack, (1, G, m + n, d) with G dividing H.
        value: Values, shaped as the keys.
        cascade: Shared prefix and masks.
        scaling: Factor of the scores.
        softcap: Limit that scores approach: c tanh(score / c).
        s_aux: (H,) attention sinks, scores that take part in the softmax but have no value.
        position_bias: Not supported.

    Returns:
        The outputs, (1, n, H, d).

    Raises:
        NotImplementedError: The layer's attention is of another kind.
    """
    number: Any = module.layer_idx
    mask, kernel = cascade.masks[number], cascade.kernel(number, query.device)
    if (query.shape[2], key.shape[2]) != (len(mask.tiles.reach), len(mask.tiles.ends)) or position_bias is not None:
        raise NotImplementedError(f"Layer {number} attends to other tokens or adds a bias by position.")
    out, lse = kernel.near(query, key, value, scaling, softcap)
    if mask.prefix and cascade.prefix:
        keys, values = cascade.prefix[number]  # (1, G, p, d)
        far, far_lse = kernel.far(query, keys, values, scaling, softcap)
        # softmax over both parts weighs them by sigmoid(far_lse - lse)
        out = torch.lerp(out, far, (far_lse - lse).sigmoid()[..., None].to(out.dtype))
        lse = torch.logaddexp(lse, far_lse) if s_aux is not None else lse
    if s_aux is not None:
        out = out * (lse - s_aux[None, :, None]).sigmoid()[..., None].to(out.dtype)
    return out.transpose(1, 2)


def _over_sdpa(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **options: Any
) -> Returned:
    return _either(sdpa_attention_forward, module, query, key, value, mask, **options)


def _over_eager(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **options: Any
) -> Returned:
    plain = sys.modules[type(module).__module__].eager_attention_forward  # each family has its own
    return _either(plain, module, query, key, value, mask, **options)


SCORES = ("scaling", "softcap", "s_aux", "position_bias")
"""Options that change the scores; transformers passes others, such as the window, which the masks hold."""


def _either(
    own: Callable[..., Returned],
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: Any,
    **options: Any,
) -> Returned:
    """Use tree attention in a pack, the model's own attention elsewhere."""
    cascade = _CASCADE.get()
    if cascade is None:
        return own(module, query, key, value, mask, **options)
    scores = {name: options[name] for name in SCORES if name in options}
    return attend(module, query, key, value, cascade, **scores), None
