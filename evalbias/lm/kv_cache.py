"""KV cache of a pack: a shared prefix that is never copied, and a suffix that is.

The first tokens of a pack's context are visible to all of its tokens, such as a prompt's demonstrations: the *shared
prefix*. Its keys and values stay in place from pack to pack. The other context tokens are visible to some of the
pack's tokens only, such as a text that the previous pack broke off: the *suffix*. It is stored next to the pack's own
keys and values. Hydragen (Juravsky et al. 2024) splits the cache in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from evalbias.lm.transfer import sent
from evalbias.measures.arrays import IntArray

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
