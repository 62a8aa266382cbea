"""Tree attention on a CPU: PyTorch's flash kernel, once for the shared prefix and once for each block of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from evalbias.lm.layer_masks import LayerMask

_FLASH = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
"""The kernel behind PyTorch's scaled-dot-product attention on a CPU: the only one that returns the log-sum-exp."""

SPARSE = 0.75
"""Largest share of a span of keys that is copied together; of denser spans the kernel also computes what is hidden."""

Result = tuple[torch.Tensor, torch.Tensor]
"""Outputs (1, H, n, d) and log-sum-exps (1, H, n)."""


@dataclass(frozen=True)
class _Block:
    """Queries from ``start`` to ``stop``, the runs of keys they attend to, and the (q, k) mask of both."""

    start: int
    stop: int
    runs: Sequence[slice]
    mask: torch.Tensor


class CPUAttention:
    """The two parts of a pack's attention, for the layers of one kind.

    The query heads of a key head are laid side by side as queries, so that no key is repeated.

    Args:
        mask: What the layers attend to.
    """

    def __init__(self, mask: LayerMask) -> None:
        self.mask = mask

    @staticmethod
    def usable(_: torch.dtype) -> bool:
        """Return whether this PyTorch has the kernel, which takes all dtypes."""
        return _FLASH is not None

    def near(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        softcap: float | None,
    ) -> Result:
        """Attend to the suffix and the pack, block by block under the tree mask."""
        groups = query.shape[1] // key.shape[1]  # queries per key head
        done = [
            _flash(
                query[:, :, block.start : block.stop],
                _taken(key, block.runs),
                _taken(value, block.runs),
                block.mask.repeat(groups, 1)[None, None],  # not kept: with few key heads, it is many times larger
                scaling,
                softcap,
            )
            for block in self._blocks
        ]
        outs, lses = zip(*done, strict=True)
        return torch.cat(outs, dim=2), torch.cat(lses, dim=2)

    @staticmethod
    def far(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        softcap: float | None,
    ) -> Result:
        """Attend to the shared prefix, all queries at once without a mask."""
        return _flash(query, key, value, None, scaling, softcap)

    @cached_property
    def _blocks(self) -> list[_Block]:
        edges, blocks = self.mask.tiles.queries, []
        for number in range(len(edges) - 1):
            start, stop, runs = int(edges[number]), int(edges[number + 1]), self.mask.tiles.runs(number)
            span = slice(runs[0].start, runs[-1].stop)
            if sum(run.stop - run.start for run in runs) > SPARSE * (span.stop - span.start):
                runs = [span]
            blocks.append(_Block(start, stop, runs, self.mask.part(slice(start, stop), runs)))
        return blocks


def _taken(states: torch.Tensor, runs: Sequence[slice]) -> torch.Tensor:
    """Return the keys or values of some runs; a single run is not copied."""
    parts = [states[:, :, run] for run in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    softcap: float | None,
) -> Result:
    if softcap is not None:
        raise NotImplementedError("The flash kernel for CPUs cannot cap attention scores.")
    assert _FLASH is not None  # checked by ``usable``
    _, heads, n, size = query.shape
    grouped = query.reshape(1, key.shape[1], -1, size)  # (1, G, H / G * n, d)
    out, lse = _FLASH(grouped, key, value, attn_mask=mask, scale=scaling)
    return out.reshape(1, heads, n, size), lse.reshape(1, heads, n)
