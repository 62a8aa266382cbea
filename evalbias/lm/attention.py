"""Tree attention: the mask of each kind of layer, its kernels on CPU and GPU, and how a model takes them.

This is cascade attention (FlashInfer, Ye et al. 2025), with the batching over the shared prefix of Hydragen (Juravsky
et al. 2024): attention to what all queries see and to the rest, merged by their log-sum-exps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex
from transformers import AttentionInterface

from evalbias.lm.tree import Layers, Pack, sent
from evalbias.measures.arrays import BoolArray, IntArray

# Which tokens each layer attends to: all, or those in a sliding window, counted by positions in the text, not by
# places in the pack. A pack needs one tree mask per kind of layer, cut down to these.
#
#     tree, full attention    sliding_window = 2      position
#     a   x . . . .           x . . . .               0
#     b   x x . . .           x x . . .               1
#     c   x x x . .           . x x . .               2
#     d   x x . x .           . x . x .               2
#     e   x . . . x           x . . . x               1


FULL, SLIDING = "full_attention", "sliding_attention"
"""transformers' names of the kinds, under which a model of mixed layers takes its masks."""

TILE = 128
"""Number of queries and of keys in a tile, the default of PyTorch's FlexAttention."""


@dataclass(frozen=True)
class Mask:
    """What the n tokens of a pack attend to in the layers of one kind: m + n keys, of which the last n are their own.

    Nearly all tokens of a pack attend to the same context and to little of the pack. The first part of the context, the
    shared prefix, needs no mask, and no dense mask of all pairs is ever made.
    """

    first: int  # token of the context at which the keys begin
    prefix: bool  # whether all queries also attend to all tokens before ``first``; else none of them does
    ends: IntArray  # (m + n,) for each key the first query that no longer attends to it
    positions: IntArray  # (m + n,) position of each key in its row
    reach: IntArray  # (n,) first position that each query attends to
    _made: dict[tuple[str, torch.device, torch.dtype], Any] = field(default_factory=dict)

    @property
    def before(self) -> int:
        """The number m of keys before the pack."""
        return len(self.ends) - len(self.reach)

    def tiles(self, size: int) -> tuple[BoolArray, BoolArray]:
        """Return (a, b) whether tiles of ``size`` queries and keys may hold a pair, and whether they hold all pairs."""
        # Packs are traversed depth first, so a branch's tokens stand side by side, and most tiles hold no pair.
        #
        #     keys      a a b b b c c      a common beginning a, then the branches b and c; tiles of 2 by 2
        #     queries   o o . . . . .
        #               o o . . . . .      #  every query attends to every key
        #               # # o o . . .      o  attended to under the mask
        #               # # o o . . .      .  skipped
        #               # # o o o o .
        #               # # o o o o .      b's last query and c's first are in one block, which attends to both
        #               # # . . o o #
        first, start = np.arange(0, len(self.reach), size), np.arange(0, len(self.ends), size)  # (a,), (b,)
        last = np.minimum(first + size, len(self.reach))[:, None] - 1  # (a, 1)
        stop = np.minimum(start + size, len(self.ends))
        least, most = np.minimum.reduceat, np.maximum.reduceat
        some: BoolArray = (
            (start - self.before <= last)
            & (most(self.ends, start) > first[:, None])
            & (most(self.positions, start) >= least(self.reach, first)[:, None])
        )
        every: BoolArray = (
            (stop - 1 - self.before <= first[:, None])
            & (least(self.ends, start) > last)
            & (least(self.positions, start) >= most(self.reach, first)[:, None])
        )
        return some, every

    def runs(self, queries: slice) -> list[slice]:
        """Return the exact runs of adjacent keys to which some query of a block attends, not cut at tiles."""
        place = np.arange(-self.before, len(self.reach))
        seen = (place < queries.stop) & (self.ends > queries.start) & (self.positions >= self.reach[queries].min())
        edges = np.flatnonzero(np.diff(seen, prepend=False, append=False))
        return [slice(int(a), int(b)) for a, b in edges.reshape(-1, 2)]

    def dense(self, queries: slice, keys: Sequence[slice], like: Tensor) -> Tensor:
        """Return the (q, k) additive mask of some queries and runs of keys, with a tensor's dtype and device."""
        columns = np.concatenate([np.arange(run.start, run.stop) for run in keys])
        reach = self.reach[queries]
        place, ends = (sent(x, like.device) for x in (columns - self.before, self.ends[columns]))
        rows = sent(np.arange(queries.start, queries.stop), like.device)[:, None]
        # A key is visible to a query that stands at or after it and has left neither its subtree nor its reach.
        hidden = (place > rows) | (rows >= ends)
        if reach.max() > 0:
            positions = sent(self.positions[columns], like.device)
            hidden |= positions < sent(reach, like.device)[:, None]
        mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
        return mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)

    def once(self, make: Callable[[Mask, Tensor], Any], like: Tensor) -> Any:
        """Return what a kernel makes of the mask, made once for all layers of a device and dtype."""
        key = make.__name__, like.device, like.dtype
        if key not in self._made:
            self._made[key] = make(self, like)
        return self._made[key]


def layer_kinds(config: Any) -> tuple[str, ...] | None:
    """Return the kind of each layer of a text model, or None if there are other layers than attention."""
    types = getattr(config, "layer_types", None)
    if types is None:
        slides = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True) is not False
        types = [SLIDING if slides else FULL] * config.num_hidden_layers
    return tuple(types) if set(types) <= {FULL, SLIDING} else None


def layer_masks(config: Any, kinds: Sequence[str], pack: Pack, prefix_length: int) -> dict[str, Mask]:
    """Return the mask of each kind of layer; to the context's first ``prefix_length`` tokens the whole pack attends."""
    masks: dict[str, Mask] = {}
    whole: Mask | None = None  # of every kind that hides nothing from this pack
    for kind in dict.fromkeys(kinds):
        # 1. The first position that each token attends to, (n,); negative if its window begins before the text.
        positions = pack.positions
        reach = np.zeros_like(positions) if kind == FULL else positions - int(config.sliding_window) + 1
        # 2. A window that cuts into the prefix leaves no part of it that all attend to.
        cut = bool(reach.max() > 0)
        if not cut and whole is not None:
            masks[kind] = whole
            continue
        first = min(prefix_length, max(0, int(reach.min()))) if cut else prefix_length  # a place is a position there
        after = np.concatenate([np.arange(first, len(pack.source)), positions])  # (c + n - first,)
        masks[kind] = Mask(first, not cut and first > 0, pack.ends[first:], after, reach)
        whole = whole if cut else masks[kind]
    return masks


def configs_of(model: Any) -> list[Any]:
    """Return the configurations that a model's layers read their settings from."""
    configs = [module.config.get_text_config() for module in model.modules() if hasattr(module, "config")]
    return list({id(config): config for config in configs}.values())


@contextmanager
def configured(configs: Sequence[Any], **settings: Any) -> Iterator[None]:
    """Change settings inside the ``with`` block, where configurations have them."""
    values = ((config, name, getattr(config, name, None)) for config in configs for name in settings)
    before = [(config, name, value) for config, name, value in values if value]
    try:
        for config, name, _ in before:
            setattr(config, name, settings[name])
        yield
    finally:
        for config, name, value in before:
            setattr(config, name, value)


# The kernels: attention of (1, H, n, d) queries to (1, G, k, d) keys and values, G dividing H, all of them or under the
# mask of a kind of layer. They return outputs (1, H, n, d) and log-sum-exps (1, H, n).


Result = tuple[Tensor, Tensor]
Kernel = Callable[[Tensor, Tensor, Tensor, Mask | None, float | None, float | None], Result]
"""Function of queries, keys, values, mask, factor of the scores (None: d ** -0.5) and their limit (None: none)."""

SPARSE = 0.75
"""Largest share of a span of keys that is copied together; of denser spans the kernel also computes what is hidden."""

_FLASH = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
"""The kernel behind PyTorch's scaled-dot-product attention on a CPU: the only one that returns the log-sum-exp."""

MOST_KERNELS = 64
"""Largest number of compiled kernels: by kind of mask, head size, and whether the pack or its context is one tile."""


def kernels_of(device: torch.device, dtype: torch.dtype) -> list[Kernel]:
    """Return the kernels to try for a model, the fastest first.

    FlexAttention compiles well for 16 bits, from PyTorch 2.13 on. In float32 a kernel takes one to two minutes to
    compile for an H100, and spills up to 9 kB a thread out of its registers.
    """
    compiles = dtype.itemsize == 2 and "recompile_limit" in inspect.signature(torch.compile).parameters
    if device.type == "cuda" and compiles:
        return [flex_kernel, plain_kernel]
    return [flash_kernel, plain_kernel] if device.type == "cpu" and _FLASH is not None else [plain_kernel]


def flash_kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, scaling: float | None, softcap: float | None
) -> Result:
    """Attend on a CPU in PyTorch's flash kernel, which cannot cap scores, block by block under a mask."""
    if softcap is not None:
        raise NotImplementedError("The flash kernel for CPUs cannot cap attention scores.")

    def part(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None) -> Result:
        assert _FLASH is not None  # checked by ``kernels_of``
        out, lse = _FLASH(query, key, value, attn_mask=hidden, scale=scaling)
        return out, lse

    return _by_blocks(part, query, key, value, mask, step=query.shape[2])


def plain_kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, scaling: float | None, softcap: float | None
) -> Result:
    """Attend in plain operations, on any device and with capped scores, block by block of the queries."""

    def part(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None) -> Result:
        scores = (query @ key.mT).float() * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
        scores = scores if hidden is None else scores + hidden
        lse = scores.logsumexp(-1)
        return (scores - lse[..., None]).exp().to(value.dtype) @ value, lse

    return _by_blocks(part, query, key, value, mask, step=TILE)  # which bounds the memory of the scores


def _by_blocks(
    part: Callable[..., Result], query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, *, step: int
) -> Result:
    """Attend in each block of queries, without a mask in blocks of ``step``."""
    _, heads, n, size = query.shape
    groups = heads // key.shape[1]  # queries per key head
    everything = [slice(0, key.shape[2])]
    plain = [(slice(at, at + step), everything, None) for at in range(0, n, step)]
    parts = []
    for queries, runs, hidden in plain if mask is None else mask.once(_blocks, query):
        keys, values = (  # a single run is not copied
            states[:, :, runs[0]] if len(runs) == 1 else torch.cat([states[:, :, run] for run in runs], dim=2)
            for states in (key, value)
        )
        # The query heads of a key head are laid side by side as queries, so that no key is repeated. The mask of all
        # heads is not kept: with few key heads, it is many times larger.
        grouped = query[:, :, queries].reshape(1, key.shape[1], -1, size)  # (1, G, H / G * q, d)
        out, lse = part(grouped, keys, values, None if hidden is None else hidden.repeat(groups, 1)[None, None])
        parts.append((out.reshape(1, heads, -1, value.shape[-1]), lse.reshape(1, heads, -1)))
    return torch.cat([out for out, _ in parts], dim=2), torch.cat([lse for _, lse in parts], dim=2)


def _blocks(mask: Mask, like: Tensor) -> list[tuple[slice, list[slice], Tensor]]:
    """Return blocks of queries, the runs of keys they attend to, and the (q, k) mask of both."""
    done = []
    for start in range(0, len(mask.reach), TILE):
        queries = slice(start, min(start + TILE, len(mask.reach)))
        runs = mask.runs(queries)
        span = slice(runs[0].start, runs[-1].stop)
        if sum(run.stop - run.start for run in runs) > SPARSE * (span.stop - span.start):
            runs = [span]
        done.append((queries, runs, mask.dense(queries, runs, like)))
    return done


def flex_kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, scaling: float | None, softcap: float | None
) -> Result:
    """Attend on a GPU: tile by tile in FlexAttention under a mask, else in the flash kernel where it takes the numbers.

    FlexAttention (Dong et al. 2024) compiles a kernel that skips tiles, caps scores and takes grouped key heads. Its
    compiled form has not run on a GPU: the tests run its uncompiled form on a CPU, and the shapes of the flash kernel
    on tensors without data. A model is therefore tried on the GPU itself when it is loaded (``score.py``).
    """
    size = query.shape[-1]
    flash = query.is_cuda and query.dtype.itemsize == 2 and size % 8 == 0 and size <= 256
    if mask is None and softcap is None and flash:
        # takes grouped key heads as they are, as scaled_dot_product_attention(enable_gqa=True) passes them
        out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, scale=scaling)
        return out, lse
    out, aux = _compiled(query.device.type)(
        query,
        key,
        value,
        score_mod=None if softcap is None else _capped(softcap),
        block_mask=None if mask is None else mask.once(block_mask, query),
        scale=scaling,
        enable_gqa=True,
        return_aux=flex.AuxRequest(lse=True),
    )
    return out, aux.lse


def block_mask(mask: Mask, like: Tensor) -> flex.BlockMask:
    """Return FlexAttention's form of a mask; it is made from the tiles on the host, not from a dense mask."""
    ends, positions, reach, place = (
        sent(values.astype(np.int32), like.device)
        for values in (mask.ends, mask.positions, mask.reach, np.arange(len(mask.ends)) - mask.before)
    )

    def in_branch(_: Any, __: Any, q: Tensor, k: Tensor) -> Tensor:
        return (place[k] <= q) & (q < ends[k])

    def in_reach(_: Any, __: Any, q: Tensor, k: Tensor) -> Tensor:
        return (place[k] <= q) & (q < ends[k]) & (positions[k] >= reach[q])

    some, every = mask.tiles(TILE)
    return flex.BlockMask.from_kv_blocks(
        *_lists(some & ~every, like.device),
        *_lists(every, like.device),
        BLOCK_SIZE=TILE,
        mask_mod=in_reach if mask.reach.max() > 0 else in_branch,
        seq_lengths=(len(mask.reach), len(mask.ends)),
        compute_q_blocks=False,
    )


def _lists(blocks: BoolArray, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return for each row of (a, b) tiles the number of True ones, (1, 1, a), and their columns first, (1, 1, a, b)."""
    columns = np.argsort(~blocks, axis=1, kind="stable")
    counts, lists = (values.astype(np.int32)[None, None] for values in (blocks.sum(axis=1), columns))
    return sent(counts, device), sent(lists, device)


@cache
def _capped(softcap: float) -> Callable[..., Tensor]:
    return lambda score, *_: softcap * torch.tanh(score / softcap)


@cache
def _compiled(device: str) -> Any:
    """Return FlexAttention compiled for a GPU; on a CPU the compiled kernel returns no log-sum-exps."""
    if device != "cuda":
        return flex.flex_attention
    compiled: Any = torch.compile  # its overloads lack the limit
    return compiled(flex.flex_attention, fullgraph=True, recompile_limit=MOST_KERNELS)


# How a model takes tree attention: transformers looks up its attention by name in every forward pass, so the name is
# set for the passes over packs only, and elsewhere the model's own attention is untouched.


NAME = "evalbias_tree"

_PASS: ContextVar[tuple[Kernel, Layers, Sequence[Mask]]] = ContextVar("pass")


@contextmanager
def tree_attention(configs: Sequence[Any], kernel: Kernel, prefix: Layers, masks: Sequence[Mask]) -> Iterator[None]:
    """Run the forward pass in the ``with`` block on a pack that also attends to a prefix, under one mask per layer."""
    token = _PASS.set((kernel, prefix, masks))
    try:
        with configured(configs, _attn_implementation=NAME):
            yield
    finally:
        _PASS.reset(token)


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _: Any,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **_options: Any,
) -> tuple[Tensor, None]:
    """Attend to the shared prefix and to the given keys, as an attention function of transformers.

    Queries are the pack's, (1, H, n, d); keys and values those of m tokens before it and its own, (1, G, m + n, d), G
    dividing H. ``softcap`` is the limit that scores approach, c tanh(score / c). ``s_aux`` holds (H,) attention sinks:
    scores that take part in the softmax but have no value. Other options do not change the scores, such as the window,
    which the masks hold. Returns (1, n, H, d) outputs, or raises NotImplementedError for attention of another kind.
    """
    number: Any = module.layer_idx
    kernel, prefix, masks = _PASS.get()
    mask = masks[number]
    if (query.shape[2], key.shape[2]) != (len(mask.reach), len(mask.ends)) or position_bias is not None:
        raise NotImplementedError(f"Layer {number} attends to other tokens or adds a bias by position.")
    out, lse = kernel(query, key, value, mask, scaling, softcap)
    if mask.prefix:
        keys, values = prefix[number]  # (1, G, p, d)
        far, far_lse = kernel(query, keys, values, None, scaling, softcap)
        # softmax over both parts weighs them by sigmoid(far_lse - lse)
        out = torch.lerp(out, far, (far_lse - lse).sigmoid()[..., None].to(out.dtype))
        lse = torch.logaddexp(lse, far_lse) if s_aux is not None else lse
    if s_aux is not None:
        out = out * (lse - s_aux[None, :, None]).sigmoid()[..., None].to(out.dtype)
    return out.transpose(1, 2), None


AttentionInterface.register(NAME, attend)
