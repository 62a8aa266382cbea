"""Tree attention of a pack on a CPU, in two levels.

Nearly all tokens of a pack attend to the same context and to little of the pack. The shared prefix is attended to once
by all queries without a mask. The rest, suffix and pack, is attended to in short blocks under the tree mask; a block
skips the keys before the first one that it attends to. Layers whose windows cut into the prefix have one level: the
prefix's last tokens are part of the rest. The two results are merged by their log-sum-exps. This is
cascade attention (FlashInfer, Ye et al. 2025), with the batching over the shared prefix of Hydragen (Juravsky et al.
2024). Any other attention falls back to transformers' scaled-dot-product attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from evalbias.lm.kv_cache import Layers
from evalbias.lm.layer_masks import BLOCK, LayerMask

NAME = "evalbias_pack"
_FLASH = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
"""The kernel behind PyTorch's scaled-dot-product attention on a CPU: the only one that returns the log-sum-exp."""


@dataclass(frozen=True)
class Cascade:
    """The two levels of a pack's attention.

    Attributes:
        prefix: Keys and values of the shared prefix; may be empty.
        layers: Mask of each layer; some layers do not attend to the prefix.
    """

    prefix: Layers
    layers: Sequence[LayerMask]


_CASCADE: ContextVar[Cascade | None] = ContextVar("cascade", default=None)


def install(model: Any) -> bool:
    """Make a model on a CPU use ``attend``, and return whether that is possible.

    The model must use PyTorch's scaled-dot-product attention, and PyTorch must have the kernel with the log-sum-exp.
    """
    if model.config._attn_implementation == NAME:
        return True
    if model.device.type != "cpu" or _FLASH is None or model.config._attn_implementation != "sdpa":
        return False
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    return True


def uninstall(model: Any) -> None:
    """Make a model use PyTorch's scaled-dot-product attention again."""
    if model.config._attn_implementation == NAME:
        model.set_attn_implementation("sdpa")


@contextmanager
def cascade_attention(prefix: Layers, layers: Sequence[LayerMask]) -> Iterator[None]:
    """Run the forward pass inside the ``with`` block on a pack that also attends to a shared prefix."""
    token = _CASCADE.set(Cascade(prefix, layers))
    try:
        yield
    finally:
        _CASCADE.reset(token)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attend to the shared prefix and to the given keys; the interface is that of ``sdpa_attention_forward``.

    Args:
        module: Attention layer.
        query: Queries of the pack, (1, H, n, d).
        key: Keys of m tokens before the pack and of the pack, (1, G, m + n, d) with G dividing H.
        value: Values, shaped as the keys.
        attention_mask: Additive tree mask, (1, 1, n, m + n).
        dropout: Not used within a pack.
        scaling: Factor of the scores.
        **options: Passed on outside a pack.

    Returns:
        The outputs, (1, n, H, d), and no attention weights.
    """
    cascade = _CASCADE.get()
    if cascade is None or attention_mask is None or attention_mask.shape[-1] != key.shape[2]:
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    _, heads, n, size = query.shape
    groups, m = heads // key.shape[1], key.shape[2] - n  # queries per key head, tokens before the pack
    mask = attention_mask[0, 0]  # (n, m + n)
    number: Any = module.layer_idx
    layer = cascade.layers[number]

    def flash(
        start: int, stop: int, keys: torch.Tensor, values: torch.Tensor, block_mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return outputs (1, H, q, d) and log-sum-exps (1, H, q) of the queries from ``start`` to ``stop``."""
        assert _FLASH is not None  # checked by ``install``
        block = query[:, :, start:stop].reshape(1, -1, groups * (stop - start), size)  # (1, G, H / G * q, d)
        out, lse = _FLASH(
            block,
            keys,
            values,
            attn_mask=None if block_mask is None else block_mask.repeat(groups, 1)[None, None],
            scale=scaling,
        )
        return out.reshape(1, heads, stop - start, size), lse.reshape(1, heads, stop - start)

    # 1. suffix and pack, block by block under the tree mask
    outs, lses = [], []
    for first, start in zip(layer.first_keys, range(0, n, BLOCK), strict=True):
        stop = min(start + BLOCK, n)
        columns = slice(first, m + stop)
        out, lse = flash(start, stop, key[:, :, columns], value[:, :, columns], mask[start:stop, columns])
        outs.append(out)
        lses.append(lse)
    merged = torch.cat(outs, dim=2)  # (1, H, n, d)
    if layer.prefix and cascade.prefix:
        # 2. the shared prefix, all queries at once without a mask
        keys, values = cascade.prefix[number]  # (1, G, p, d)
        prefix_out, prefix_lse = flash(0, n, keys, values, None)
        # 3. log-sum-exp merge: softmax over both levels weighs them by sigmoid(lse_prefix - lse)
        weight = (prefix_lse - torch.cat(lses, dim=2)).sigmoid()[..., None]  # (1, H, n, 1)
        merged = torch.lerp(merged, prefix_out, weight.to(merged.dtype))
    return merged.transpose(1, 2), None
