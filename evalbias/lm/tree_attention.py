"""Tree attention of a pack, in two parts, on CPU and GPU.

Nearly all tokens of a pack attend to the same context and to little of the pack. The *far* part is the shared prefix,
which all queries attend to at once without a mask. The *near* part is the rest, suffix and pack, of which the tiles
without a pair are skipped (``tiles.py``). Layers whose windows cut into the prefix have a near part only: the prefix's
last tokens belong to it. The parts are merged by their log-sum-exps, and so are attention sinks. There is no mask of
the whole pack, and no key head is repeated.

This is cascade attention (FlashInfer, Ye et al. 2025), with the batching over the shared prefix of Hydragen (Juravsky
et al. 2024). A kernel does both parts: ``cpu_attention.py``, ``gpu_attention.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

from evalbias.lm.cpu_attention import CPUAttention
from evalbias.lm.gpu_attention import GPUAttention
from evalbias.lm.kv_cache import Layers
from evalbias.lm.layer_masks import LayerMask

Kernel = CPUAttention | GPUAttention
KERNELS: dict[str, type[Kernel]] = {"cpu": CPUAttention, "cuda": GPUAttention}
"""Device type -> kernel."""

Returned = tuple[torch.Tensor, torch.Tensor | None]


@dataclass(frozen=True)
class Cascade:
    """The attention of one forward pass.

    Attributes:
        prefix: Keys and values of the shared prefix; may be empty.
        masks: Mask of each layer; layers of one kind have the same.
        kernels: Kernels that were made so far, by mask and device.
    """

    prefix: Layers
    masks: Sequence[LayerMask]
    kernels: dict[tuple[int, torch.device], Kernel] = field(default_factory=dict)

    def kernel(self, number: int, device: torch.device) -> Kernel:
        """Return the kernel of a layer, which layers of its kind on its device share."""
        mask = self.masks[number]
        key = id(mask), device
        if key not in self.kernels:
            self.kernels[key] = KERNELS[device.type](mask.on(device))
        return self.kernels[key]


_CASCADE: ContextVar[Cascade | None] = ContextVar("cascade", default=None)


def install(model: Any) -> bool:
    """Make a model use tree attention in packs, and return whether that is possible.

    Outside packs it keeps its own attention, which must be PyTorch's scaled-dot-product attention or transformers'
    plain ("eager") one, and the device must have a kernel for the
    model's dtype.
    """
    own = model.config._attn_implementation
    if own in NAMES.values():
        return True
    kernel = KERNELS.get(model.device.type)
    if own not in NAMES or kernel is None or not kernel.usable(model.dtype):
        return False
    if own == "eager" and not getattr(model, "_supports_attention_backend", False):
        return False
    for name, attention, mask in ((NAMES["sdpa"], _over_sdpa, sdpa_mask), (NAMES["eager"], _over_eager, eager_mask)):
        AttentionInterface.register(name, attention)
        AttentionMaskInterface.register(name, mask)
    model.set_attn_implementation(NAMES[own])
    return True


def uninstall(model: Any) -> None:
    """Make a model use its own attention again."""
    for own, name in NAMES.items():
        if model.config._attn_implementation == name:
            model.set_attn_implementation(own)


NAMES = {"sdpa": "evalbias_tree_or_sdpa", "eager": "evalbias_tree_or_eager"}
"""A model's own attention -> the name under which transformers knows tree attention in its place."""


@contextmanager
def tree_attention(prefix: Layers, masks: Sequence[LayerMask]) -> Iterator[None]:
    """Run the forward pass inside the ``with`` block on a pack that also attends to a shared prefix.

    Args:
        prefix: Keys and values of the shared prefix.
        masks: Mask of each layer.
    """
    token = _CASCADE.set(Cascade(prefix, masks))
    try:
        yield
    finally:
        _CASCADE.reset(token)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cascade: Cascade,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend to the shared prefix and to the given keys.

    Args:
        module: Attention layer.
        query: Queries of the pack, (1, H, n, d).
        key: Keys of m tokens before the pack and of the pack, (1, G, m + n, d) with G dividing H.
        value: Values, shaped as the keys.
        cascade: Shared prefix and masks.
        scaling: Factor of the scores.
        softcap: Limit that scores approach: c tanh(score / c).
        s_aux: (H,) attention sinks, scores that take part in the softmax but have no value.
        position_bias: Not supported.

    Returns:
        The outputs, (1, n, H, d).

    Raises:
        NotImplementedError: The layer's attention is of another kind.
    """
    number: Any = module.layer_idx
    mask, kernel = cascade.masks[number], cascade.kernel(number, query.device)
    if (query.shape[2], key.shape[2]) != (len(mask.tiles.reach), len(mask.tiles.ends)) or position_bias is not None:
        raise NotImplementedError(f"Layer {number} attends to other tokens or adds a bias by position.")
    out, lse = kernel.near(query, key, value, scaling, softcap)
    if mask.prefix and cascade.prefix:
        keys, values = cascade.prefix[number]  # (1, G, p, d)
        far, far_lse = kernel.far(query, keys, values, scaling, softcap)
        # softmax over both parts weighs them by sigmoid(far_lse - lse)
        out = torch.lerp(out, far, (far_lse - lse).sigmoid()[..., None].to(out.dtype))
        lse = torch.logaddexp(lse, far_lse) if s_aux is not None else lse
    if s_aux is not None:
        out = out * (lse - s_aux[None, :, None]).sigmoid()[..., None].to(out.dtype)
    return out.transpose(1, 2)


def _over_sdpa(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **options: Any
) -> Returned:
    return _either(sdpa_attention_forward, module, query, key, value, mask, **options)


def _over_eager(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **options: Any
) -> Returned:
    plain = sys.modules[type(module).__module__].eager_attention_forward  # each family has its own
    return _either(plain, module, query, key, value, mask, **options)


SCORES = ("scaling", "softcap", "s_aux", "position_bias")
"""Options that change the scores; transformers passes others, such as the window, which the masks hold."""


def _either(
    own: Callable[..., Returned],
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: Any,
    **options: Any,
) -> Returned:
    """Use tree attention in a pack, the model's own attention elsewhere."""
    cascade = _CASCADE.get()
    if cascade is None:
        return own(module, query, key, value, mask, **options)
    scores = {name: options[name] for name in SCORES if name in options}
    return attend(module, query, key, value, cascade, **scores), None
