"""Tree attention on a GPU: FlexAttention for the tiles of the pack, a flash kernel for the shared prefix.

FlexAttention (Dong et al. 2024) compiles a kernel that skips tiles, caps scores and takes grouped key heads. Its
compiled form has not run on a GPU: the tests run its uncompiled form on a CPU, and the shapes of the flash kernel on
tensors without data. A model is therefore tried on the GPU itself when it is loaded (``trial.py``), and runs under a
dense mask if this module fails there. A model in float32 always does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.nn.attention import flex_attention as flex

from evalbias.lm.layer_masks import LayerMask
from evalbias.lm.transfer import sent
from evalbias.measures.arrays import BoolArray

MOST_KERNELS = 64
"""Largest number of compiled kernels: by kind of mask, head size, and whether the pack or its context is one tile."""

Result = tuple[torch.Tensor, torch.Tensor]
"""Outputs (1, H, n, d) and log-sum-exps (1, H, n)."""


class GPUAttention:
    """The two parts of a pack's attention, for the layers of one kind.

    Args:
        mask: What the layers attend to.
    """

    def __init__(self, mask: LayerMask) -> None:
        self.mask = mask
        self._block_mask: flex.BlockMask | None = None

    @staticmethod
    def usable(dtype: torch.dtype) -> bool:
        """Return whether this PyTorch compiles FlexAttention with log-sum-exps for many shapes, and well for a dtype.

        PyTorch 2.13 does for 16 bits. In float32 a kernel takes one to two minutes to compile for an H100, and spills
        up to 9 kB a thread out of its registers.
        """
        return dtype.itemsize == 2 and "recompile_limit" in inspect.signature(torch.compile).parameters

    def near(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        softcap: float | None,
    ) -> Result:
        """Attend to the suffix and the pack, tile by tile."""
        if self._block_mask is None:
            self._block_mask = block_mask(self.mask)
        return _flex(query, key, value, self._block_mask, scaling, softcap)

    @staticmethod
    def far(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        softcap: float | None,
    ) -> Result:
        """Attend to the shared prefix without a mask, in the flash kernel where it takes the numbers."""
        size = query.shape[-1]
        if softcap is None and query.is_cuda and query.dtype.itemsize == 2 and size % 8 == 0 and size <= 256:
            # takes grouped key heads as they are, as scaled_dot_product_attention(enable_gqa=True) passes them
            out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, scale=scaling)
            return out, lse
        return _flex(query, key, value, None, scaling, softcap)


def block_mask(mask: LayerMask) -> flex.BlockMask:
    """Return FlexAttention's form of a mask; it is made from the tiles on the host, not from a dense mask."""
    tiles, device = mask.tiles, mask.like.device
    ends, positions, reach, place = (
        sent(values.astype(np.int32), device)
        for values in (tiles.ends, tiles.positions, tiles.reach, np.arange(len(tiles.ends)) - tiles.before)
    )

    def in_branch(_: Any, __: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return (place[k] <= q) & (q < ends[k])

    def in_reach(_: Any, __: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return (place[k] <= q) & (q < ends[k]) & (positions[k] >= reach[q])

    return flex.BlockMask.from_kv_blocks(
        *_lists(tiles.attended & ~tiles.whole, device),
        *_lists(tiles.whole, device),
        BLOCK_SIZE=tiles.size,
        mask_mod=in_reach if tiles.reach.max() > 0 else in_branch,
        seq_lengths=(len(tiles.reach), len(tiles.ends)),
        compute_q_blocks=False,
    )


def _lists(blocks: BoolArray, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for each row of (a, b) tiles the number of True ones, (1, 1, a), and their columns first, (1, 1, a, b)."""
    columns = np.argsort(~blocks, axis=1, kind="stable")
    counts, lists = (values.astype(np.int32)[None, None] for values in (blocks.sum(axis=1), columns))
    return sent(counts, device), sent(lists, device)


def _flex(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    blocks: flex.BlockMask | None,
    scaling: float | None,
    softcap: float | None,
) -> Result:
    out, aux = _kernel(query.device.type)(
        query,
        key,
        value,
        score_mod=None if softcap is None else _capped(softcap),
        block_mask=blocks,
        scale=scaling,
        enable_gqa=True,
        return_aux=flex.AuxRequest(lse=True),
    )
    return out, aux.lse


@cache
def _capped(softcap: float) -> Callable[..., torch.Tensor]:
    return lambda score, *_: softcap * torch.tanh(score / softcap)


@cache
def _kernel(device: str) -> Any:
    """Return FlexAttention compiled for a GPU; on a CPU the compiled kernel returns no log-sum-exps."""
    if device != "cuda":
        return flex.flex_attention
    compiled: Any = torch.compile  # its overloads lack the limit
    return compiled(flex.flex_attention, fullgraph=True, recompile_limit=MOST_KERNELS)
