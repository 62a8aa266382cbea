"""Shapes of public models, and what one of their layers costs, counted without weights on torch's meta device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

NO_ATTENTION = "evalbias_no_attention"
FREE = {torch.ops.aten.detach.default, torch.ops.aten._unsafe_view.default, torch.ops.aten.empty.memory_format}
"""Operations that launch nothing, besides views."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder with gated feed-forward layers and grouped-query attention."""

    name: str
    layers: int
    hidden: int
    heads: int
    groups: int
    head: int
    intermediate: int
    vocabulary: int

    @property
    def layer_weights(self) -> int:
        """Number of weights in the matrices of a layer."""
        attention = (2 * self.heads + 2 * self.groups) * self.head * self.hidden
        return attention + 3 * self.hidden * self.intermediate

    @property
    def weights(self) -> int:
        """Number of weights in the matrices of all layers."""
        return self.layers * self.layer_weights


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("SmolLM2-135M", 30, 576, 9, 3, 64, 1536, 49_152),
        Shape("Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128_256),
        Shape("Llama-3.1-8B", 32, 4096, 32, 8, 128, 14_336, 128_256),
        Shape("Qwen3-8B", 36, 4096, 32, 8, 128, 12_288, 151_936),
    )
}
"""Sizes as in the models' published config.json."""


@dataclass(frozen=True)
class LayerCost:
    """What a layer costs apart from its attention, if every operation reads its inputs and writes its outputs once.

    Attributes:
        launches: Number of operations that are not views.
        pack_bytes: Bytes that do not depend on the number of tokens: the weights.
        token_bytes: Bytes for each token.
    """

    launches: int
    pack_bytes: float
    token_bytes: float


class _Counter(TorchDispatchMode):
    """Counts operations that are not views, and the bytes of their inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view and func not in FREE:
            self.launches += 1
            tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor)]
            self.bytes += sum(tensor.nbytes for tensor in tensors)
        return out


@cache
def layer_cost(shape: Shape) -> LayerCost:
    """Count the operations of transformers' Llama layer in bfloat16, with attention left out."""
    few, many = (_counted(shape, tokens) for tokens in (1024, 2048))
    token_bytes = (many.bytes - few.bytes) / 1024
    return LayerCost(few.launches, few.bytes - 1024 * token_bytes, token_bytes)


def _counted(shape: Shape, tokens: int) -> _Counter:
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=1,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.groups,
        head_dim=shape.head,
    )
    AttentionInterface.register(NO_ATTENTION, lambda _, query, *__, **___: (query.transpose(1, 2), None))
    config._attn_implementation = NO_ATTENTION
    with torch.device("meta"), torch.inference_mode():
        layer = LlamaDecoderLayer(config, 0).to(torch.bfloat16).eval()
        hidden = torch.empty(1, tokens, shape.hidden, dtype=torch.bfloat16)
        places = torch.empty(1, tokens, dtype=torch.long)
        rotary = LlamaRotaryEmbedding(config)(hidden, places)  # once for all layers
        with _Counter() as counter:
            layer(hidden, position_embeddings=rotary, position_ids=places)
    return counter
