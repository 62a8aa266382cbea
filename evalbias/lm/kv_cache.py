"""Keys and values of a walk: what a pack follows, and what it leaves, without copying what all of it sees.

Of a pack's context the first tokens are seen by all of the pack, such as a prompt's demonstrations: *far*. Those stay
where they are from pack to pack. What is seen by some tokens only, a text that the pack before broke off, is *near*; it
stands with the pack's own keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

Layers = list[tuple[torch.Tensor, torch.Tensor]]
"""Of each layer: keys and values, (1, heads, tokens, size)."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Context:
    """Keys and values of tokens, those of ``far`` before those of ``rest``; either may hold none: no layers."""

    far: Layers
    rest: Layers

    def at(self, places: Ints, seen_by_all: int) -> Context:
        """The context of a pack: the tokens at ascending places, of which so many first ones are far."""
        length = tokens(self.far)
        kept = int((places[:length] == np.arange(min(len(places), length))).sum())  # a path leaves far only at its end
        tail = _at(self.rest, places[kept:] - length)
        if seen_by_all <= kept:
            return Context(sliced(self.far, 0, seen_by_all), joined(sliced(self.far, seen_by_all, kept), tail))
        own = seen_by_all - kept
        return Context(joined(sliced(self.far, 0, kept), sliced(tail, 0, own)), sliced(tail, own, len(places) - kept))

    def copy(self, places: Ints) -> Layers:
        """Keys and values at ascending places, in memory of their own."""
        length = tokens(self.far)
        split = int(np.searchsorted(places, length))
        return joined(_taken(self.far, places[:split]), _taken(self.rest, places[split:] - length))


class PackCache(DynamicCache):  # type: ignore[misc]
    """The cache of one forward pass over a pack.

    Args:
        context: Of the pack.
        whole: Whether attention is given far, near and own keys in one; else far ones are left out.
    """

    def __init__(self, context: Context, *, whole: bool) -> None:
        super().__init__()
        self._context = context
        self._whole = whole
        self._far = tokens(context.far)
        self._rest: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take over a layer's own keys and values; gives what its attention is to see."""
        near, far = self._context.rest, self._context.far
        own = (key_states, value_states)
        rest = self._rest[layer_idx] = _cat(near[layer_idx], own) if near else own
        return _cat(far[layer_idx], rest) if self._whole and far else rest

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens of context."""
        return self._far + tokens(self._context.rest)

    def left(self) -> Context:
        """Context and pack, after the forward pass."""
        return Context(self._context.far, [self._rest[number] for number in range(len(self._rest))])


def tokens(layers: Layers) -> int:
    """How many tokens' keys and values these are."""
    return int(layers[0][0].shape[2]) if layers else 0


def size_of(layers: Layers) -> int:
    """Bytes of keys and values."""
    return sum(tensor.nbytes for pair in layers for tensor in pair)


def _at(layers: Layers, places: Ints) -> Layers:
    if not len(places):
        return []
    if int(places[0]) == 0 and int(places[-1]) == len(places) - 1:  # ascending
        return sliced(layers, 0, len(places))
    return _taken(layers, places)


def _taken(layers: Layers, places: Ints) -> Layers:
    if not len(places):
        return []
    where = torch.from_numpy(places).to(layers[0][0].device)
    return [(keys.index_select(2, where), values.index_select(2, where)) for keys, values in layers]


def sliced(layers: Layers, start: int, stop: int) -> Layers:
    """Some tokens' part of keys and values, without copying."""
    if stop <= start:
        return []
    if start == 0 and stop >= tokens(layers):
        return layers
    return [(keys[:, :, start:stop], values[:, :, start:stop]) for keys, values in layers]


def joined(a: Layers, b: Layers) -> Layers:
    """Keys and values of some tokens before others'; either may be none."""
    return [_cat(one, other) for one, other in zip(a, b, strict=True)] if a and b else a or b


def _cat(a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]) -> Any:
    return torch.cat([a[0], b[0]], dim=2), torch.cat([a[1], b[1]], dim=2)
