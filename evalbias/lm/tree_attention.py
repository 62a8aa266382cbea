"""Attention of a pack on a CPU.

Nearly all of a pack's tokens see the same context, and little of the pack: what all of them see (``context.py``: far)
is attended to in one pass without a mask, the rest in short blocks that reach back no further than something is seen,
and the two are merged by their normalizers. Everything else is transformers' own scaled-dot-product attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from evalbias.lm.kv_cache import Layers, tokens
from evalbias.lm.trie import Pack

NAME = "evalbias_pack"
BLOCK = 128
"""Queries that are attended together within a pack."""

_FLASH = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
"""The kernel behind PyTorch's scaled-dot-product attention on a CPU; it alone tells the normalizers."""


@dataclass(frozen=True)
class Sight:
    """What the tokens of a pack see.

    Attributes:
        far: Of each layer the keys and values of the context that every token sees; may be empty.
        first: Of each block of queries: the first token behind the far ones that one of them sees.
    """

    far: Layers
    first: tuple[int, ...]

    @classmethod
    def of(cls, pack: Pack, far: Layers) -> Sight:
        """Of a pack."""
        ends = pack.ends[tokens(far) :]
        return cls(far, tuple(int((ends > start).argmax()) for start in range(0, len(pack.ids), BLOCK)))


_SIGHT: ContextVar[Sight | None] = ContextVar("sight", default=None)


def prepare(model: Any) -> bool:
    """Let a model on a CPU attend packs this way; whether it does.

    It must attend by PyTorch's kernels, and they must tell what is needed.
    """
    if model.config._attn_implementation == NAME:
        return True
    if model.device.type != "cpu" or _FLASH is None or model.config._attn_implementation != "sdpa":
        return False
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    return True


def restore(model: Any) -> None:
    """Let a model attend by PyTorch's kernels again."""
    if model.config._attn_implementation == NAME:
        model.set_attn_implementation("sdpa")


@contextmanager
def attending(pack: Pack, far: Layers) -> Iterator[None]:
    """The forward pass inside is of this pack, which follows these keys and values besides those it is given."""
    token = _SIGHT.set(Sight.of(pack, far))
    try:
        yield
    finally:
        _SIGHT.reset(token)


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
    """As ``sdpa_attention_forward``: (1, H, n, d) queries, (1, H', m + n, d) keys and values -> (1, n, H, d).

    The keys and values are those of m near tokens and of the pack.
    """
    sight = _SIGHT.get()
    if sight is None or attention_mask is None or attention_mask.shape[-1] != key.shape[2]:
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    _, heads, n, size = query.shape
    groups, near = heads // key.shape[1], key.shape[2] - n
    mask = attention_mask[0, 0]

    def flash(
        start: int, stop: int, keys: torch.Tensor, values: torch.Tensor, seen: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs (1, H, q, d) and normalizers (1, H, q) of some queries over some keys."""
        assert _FLASH is not None  # or ``prepare`` would not have come here
        part = query[:, :, start:stop].reshape(1, -1, groups * (stop - start), size)  # heads that share their keys
        out, normalizer = _FLASH(
            part,
            keys,
            values,
            attn_mask=None if seen is None else seen.repeat(groups, 1)[None, None],
            scale=scaling,
        )
        return out.reshape(1, heads, stop - start, size), normalizer.reshape(1, heads, stop - start)

    parts = []
    for number, start in enumerate(range(0, n, BLOCK)):
        stop = min(start + BLOCK, n)
        seen = slice(sight.first[number], near + stop)
        parts.append(flash(start, stop, key[:, :, seen], value[:, :, seen], mask[start:stop, seen]))
    out = torch.cat([o for o, _ in parts], dim=2)
    if sight.far:
        layer: Any = module.layer_idx
        keys, values = sight.far[layer]
        far, far_normalizer = flash(0, n, keys, values, None)
        share = (far_normalizer - torch.cat([z for _, z in parts], dim=2)).sigmoid()[..., None]
        out = torch.lerp(out, far, share.to(out.dtype))
    return out.transpose(1, 2), None
