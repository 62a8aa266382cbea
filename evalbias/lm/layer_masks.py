"""Which tokens each layer of a model attends to: all, those in a sliding window, or those in the same chunk.

A pack needs one tree mask per kind of layer: the tree, cut down to the window or the chunk. Windows and chunks count
positions in the text, not places in the pack.

    tree, full attention    sliding_window = 2      position
    a   x . . . .           x . . . .               0
    b   x x . . .           x x . . .               1
    c   x x x . .           . x x . .               2
    d   x x . x .           . x . x .               2
    e   x . . . x           x . . . x               1
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from evalbias.lm.trie import Ints, Pack

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
"""transformers' names of the kinds, under which a model of mixed layers takes its masks."""

BLOCK = 128
"""Number of queries in a block."""

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

    def first_positions(self, kind: str, positions: Ints) -> Ints:
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
        mask: (1, 1, n, c + n - first) additive mask.
        first_keys: First column that each block of queries attends to.
    """

    first: int
    prefix: bool
    mask: torch.Tensor
    first_keys: tuple[int, ...]


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
            masks[kind] = _layer_mask(pack, first, reach, prefix=False, like=like)
            continue
        if whole is None:
            whole = _layer_mask(pack, prefix_length if cascade else 0, reach, prefix=cascade, like=like)
        masks[kind] = whole
    return masks


def _layer_mask(pack: Pack, first: int, reach: Ints, *, prefix: bool, like: torch.Tensor) -> LayerMask:
    n, c = len(pack.ids), len(pack.source)
    positions = np.concatenate([np.arange(first, c), pack.positions])  # (c + n - first,)
    ends = pack.ends[first:]  # (c + n - first,)
    # Column j is visible to row i if it stands at or before i, and i has left neither its subtree nor its reach.
    place = torch.arange(first - c, n, device=like.device)  # (c + n - first,), negative in the context
    rows = place[-n:, None]  # (n, 1)
    hidden = (place[None, :] > rows) | (rows >= torch.from_numpy(ends).to(like.device)[None, :])
    if reach.max() > 0:
        hidden |= torch.from_numpy(positions).to(like.device) < torch.from_numpy(reach).to(like.device)[:, None]
    mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
    mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)  # additive: saves each layer the conversion
    first_keys = tuple(
        int(((ends > start) & (positions >= reach[start : start + BLOCK].min())).argmax())
        for start in range(0, n, BLOCK)
    )
    return LayerMask(first, prefix, mask[None, None], first_keys)


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
