"""Tree attention: masks for each kind of layer, kernels, and their use in a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface

from evalbias.lm.tree import Pack, sent
from evalbias.measures.arrays import IntArray

# Which tokens each layer attends to: all, or those in a sliding window, counted by positions in the text, not by
# places in the pack. A pack needs one tree mask per kind of layer, cut down to these.
#
#     tree, full attention    sliding_window = 2      position
#     a   x . . . .           x . . . .               0
#     b   x x . . .           x x . . .               1
#     c   x x x . .           . x x . .               2
#     d   x x . x .           . x . x .               2
#     e   x . . . x           x . . . x               1


# transformers' names of the kinds of layers, by which a model with several kinds takes its masks.
FULL, SLIDING = "full_attention", "sliding_attention"
BLOCK, MOST_BLOCKS = 128, 32  # fewest queries in a block, and most blocks of a pack: each costs some calls


@dataclass(frozen=True)
class Mask:
    """Keys that the n tokens of a pack attend to in the layers of one kind: m + n, of which the last n are their own.

    Nearly all tokens of a pack attend to the same context and to few tokens of the pack, so a dense mask of all pairs
    is never made.
    """

    ends: IntArray  # (m + n,) for each key the first query that no longer attends to it
    positions: IntArray  # (m + n,) position of each key in its row
    reach: IntArray  # (n,) first position that each query attends to
    _made: dict[tuple[torch.device, torch.dtype], list[Any]] = field(default_factory=dict)

    @property
    def before(self) -> int:
        """Number m of keys before the pack."""
        return len(self.ends) - len(self.reach)

    def runs(self, queries: slice) -> list[slice]:
        """Return the runs of adjacent keys to which some query of a block attends."""
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

    def blocks(self, like: Tensor) -> list[tuple[slice, list[slice], Tensor]]:
        """Return blocks of queries, the runs of keys they attend to, and the ``dense`` mask of both, made once."""
        # Packs are traversed depth first, so a branch's tokens stand side by side, and most pairs are hidden:
        #
        #     keys      a a b b b c c      a common beginning a, then the branches b and c; blocks of 2 queries
        #     queries   o o . . . . .
        #               o o . . . . .      o  computed, under the mask
        #               o o o o . . .      .  skipped
        #               o o o o . . .
        #               o o o o o o .      b's last query and c's first are in one block, which attends to both
        #               o o o o o o .
        #               o o . . . o o
        key, count = (like.device, like.dtype), len(self.reach)
        if key not in self._made:
            self._made[key], size = [], max(BLOCK, count // MOST_BLOCKS)
            for start in range(0, count, size):
                queries = slice(start, min(start + size, count))
                runs = self.runs(queries)
                span = slice(runs[0].start, runs[-1].stop)
                if sum(run.stop - run.start for run in runs) > SPARSE * (span.stop - span.start):
                    runs = [span]
                self._made[key].append((queries, runs, self.dense(queries, runs, like)))
        return self._made[key]


def layer_kinds(config: Any) -> tuple[str, ...] | None:
    """Return the kind of each layer of a text model, or None if there are other layers than attention."""
    types = getattr(config, "layer_types", None)
    if types is None:
        slides = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True) is not False
        types = [SLIDING if slides else FULL] * config.num_hidden_layers
    return tuple(types) if set(types) <= {FULL, SLIDING} else None


def layer_masks(config: Any, kinds: Sequence[str], pack: Pack) -> dict[str, Mask]:
    """Return the mask of each kind of layer."""
    positions = np.concatenate([np.arange(len(pack.source)), pack.positions])  # (m + n,): places in the context are
    whole = Mask(pack.ends, positions, np.zeros_like(pack.positions))
    masks = dict.fromkeys(kinds, whole)
    if SLIDING in masks:
        reach = pack.positions - int(config.sliding_window) + 1  # negative if a window begins before the text
        masks[SLIDING] = Mask(pack.ends, positions, reach) if reach.max() > 0 else whole
    return masks


def configs_of(model: Any) -> list[Any]:
    """Return the configurations from which a model's layers read their settings."""
    configs = [module.config.get_text_config() for module in model.modules() if hasattr(module, "config")]
    return list({id(config): config for config in configs}.values())


@contextmanager
def configured(configs: Sequence[Any], **settings: Any) -> Iterator[None]:
    """Change those settings that the configurations have, inside the ``with`` block."""
    values = ((config, name, getattr(config, name, None)) for config in configs for name in settings)
    before = [(config, name, value) for config, name, value in values if value]
    try:
        for config, name, _ in before:
            setattr(config, name, settings[name])
        yield
    finally:
        for config, name, value in before:
            setattr(config, name, value)


# The kernels: attention of (1, H, n, d) queries to (1, G, k, d) keys and values, G dividing H, under the mask of a kind
# of layer. They return outputs (1, H, n, d) and log-sum-exps (1, H, n).


Result = tuple[Tensor, Tensor]
# Function of queries, keys, values, mask, factor of the scores (None: d ** -0.5) and their limit (None: none).
Kernel = Callable[[Tensor, Tensor, Tensor, Mask, float | None, float | None], Result]
SPARSE = 0.75  # largest visible share of a span of keys whose runs are copied; denser spans compute hidden pairs too


def fused_kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, scaling: float | None, softcap: float | None
) -> Result:
    """Attend in the kernels behind PyTorch's scaled-dot-product attention, which cannot cap scores.

    Of these kernels, the flash kernel of a CPU and the memory-efficient kernel of a GPU take a mask and return the
    log-sum-exp. The latter has not run on a GPU: tests know its shapes on tensors without data. A model is therefore
    tried on its own device when it is loaded (``score.py``).
    """
    if softcap is not None:
        raise NotImplementedError("The fused kernels cannot cap attention scores.")

    def part(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Result:
        if query.device.type == "cpu":
            out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                query, key, value, attn_mask=hidden, scale=scaling
            )
            return out, lse
        # The kernel wants the mask's rows to begin at multiples of 16 numbers.
        hidden = pad(hidden, (0, -hidden.shape[3] % 16))[..., : hidden.shape[3]].expand(-1, query.shape[1], -1, -1)
        attend = torch.ops.aten._scaled_dot_product_efficient_attention
        out, lse, *_ = attend(query, key, value, hidden, True, scale=scaling)
        return out, lse[..., : query.shape[2]]  # the log-sum-exp is padded too

    return _by_blocks(part, query, key, value, mask)


def plain_kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, scaling: float | None, softcap: float | None
) -> Result:
    """Attend in plain operations, on any device and with capped scores, block by block of the queries."""

    def part(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Result:
        scores = (query @ key.mT).float() * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
        scores = scores + hidden
        lse = scores.logsumexp(-1)
        return (scores - lse[..., None]).exp().to(value.dtype) @ value, lse

    return _by_blocks(part, query, key, value, mask)


def _by_blocks(part: Callable[..., Result], query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Result:
    _, heads, _, size = query.shape
    groups = heads // key.shape[1]  # queries per key head
    parts = []
    for queries, runs, hidden in mask.blocks(query):
        keys, values = (  # a single run is not copied
            states[:, :, runs[0]] if len(runs) == 1 else torch.cat([states[:, :, run] for run in runs], dim=2)
            for states in (key, value)
        )
        # The query heads of a key head are laid side by side as queries, so that no key is repeated. The mask of all
        # heads is not kept: with few key heads, it is many times larger.
        grouped = query[:, :, queries].reshape(1, key.shape[1], -1, size)  # (1, G, H / G * q, d)
        out, lse = part(grouped, keys, values, hidden.repeat(groups, 1)[None, None])
        parts.append((out.reshape(1, heads, -1, value.shape[-1]), lse.reshape(1, heads, -1)))
    return torch.cat([out for out, _ in parts], dim=2), torch.cat([lse for _, lse in parts], dim=2)


KERNELS = (fused_kernel, plain_kernel)  # attention to try for a model, the fastest first


# Tree attention in a model: transformers looks up its attention by name in every forward pass, so the name is
# set for the passes over packs only, and elsewhere the model's own attention is untouched.

NAME = "evalbias_tree"
_PASS: ContextVar[tuple[Kernel, Sequence[Mask]]] = ContextVar("pass")


@contextmanager
def tree_attention(configs: Sequence[Any], kernel: Kernel, masks: Sequence[Mask]) -> Iterator[None]:
    """Run the forward pass in the ``with`` block on a pack, with a mask for each layer."""
    token = _PASS.set((kernel, masks))
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
    """Attend under the layer's mask, as an attention function of transformers.

    Queries are the pack's, (1, H, n, d); keys and values those of m tokens before it and its own, (1, G, m + n, d), G
    dividing H. ``softcap`` is the limit that scores approach, c tanh(score / c). ``s_aux`` holds (H,) attention sinks:
    scores that take part in the softmax but have no value. Other options do not change the scores, such as the window,
    which the masks hold. Returns (1, n, H, d) outputs, or raises NotImplementedError for other kinds of attention.
    """
    number: Any = module.layer_idx
    kernel, masks = _PASS.get()
    mask = masks[number]
    if (query.shape[2], key.shape[2]) != (len(mask.reach), len(mask.ends)) or position_bias is not None:
        raise NotImplementedError(f"Layer {number} attends to other tokens or adds a bias by position.")
    out, lse = kernel(query, key, value, mask, scaling, softcap)
    if s_aux is not None:
        out = out * (lse - s_aux[None, :, None]).sigmoid()[..., None].to(out.dtype)
    return out.transpose(1, 2), None


AttentionInterface.register(NAME, attend)
