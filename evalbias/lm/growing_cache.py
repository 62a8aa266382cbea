"""KV cache for decoding: a step writes its keys and values into spare room instead of copying all earlier ones."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

ROOM = 64
"""Number of steps for which a full layer makes room."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """A layer of full attention whose keys and values are views of larger buffers.

    ``DynamicLayer`` concatenates at every step, which copies the keys and values of all earlier tokens.

    Args:
        layer: Layer that holds the prompts' keys and values.
    """

    def __init__(self, layer: DynamicLayer) -> None:
        super().__init__()
        self.__dict__.update(layer.__dict__)
        self.keys: torch.Tensor
        self.values: torch.Tensor
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the keys and values of new tokens and return all: (batch, heads, tokens, head size) each."""
        start = self.keys.shape[2]
        end = start + key_states.shape[2]
        if self._buffers is None or self._buffers[0].shape[2] < end:
            self._buffers = _roomy(self.keys, end + ROOM), _roomy(self.values, end + ROOM)
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = states
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep only some rows of the batch."""
        super().batch_select_indices(indices)
        self._buffers = None


def make_growing(cache: Any) -> None:
    """Replace a cache's layers of full attention in place; sliding windows and recurrent states stay as they are."""
    if isinstance(cache, Cache):
        cache.layers = [GrowingLayer(layer) if type(layer) is DynamicLayer else layer for layer in cache.layers]


def _roomy(states: torch.Tensor, tokens: int) -> torch.Tensor:
    """Return a copy with room for ``tokens`` tokens, of which the first are set."""
    room = states.new_empty(*states.shape[:2], tokens, states.shape[3])
    room[:, :, : states.shape[2]] = states
    return room
