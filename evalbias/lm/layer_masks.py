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

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from evalbias.lm.tiles import Tiles
from evalbias.lm.transfer import sent
from evalbias.lm.trie import Pack
from evalbias.measures.arrays import IntArray

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
