"""Limits of running texts in packs that a model's settings imply: whether at all, the longest text, the pack sizes."""

from __future__ import annotations

import math
from typing import Any

from evalbias.lm.head import decoder
from evalbias.lm.layer_masks import LayerKinds
from evalbias.lm.tiles import TILE

SMALLEST_PACK, SMALLEST_TREE_PACK = 256, 768
"""Lower limits of a pack's size in tokens, under a dense mask and in tree attention, which skips most of what the mask
hides. Of a small model the calls of a pack cost more than its tokens."""

GPU_PACKS = (1 << 14, 1 << 16)
"""Smallest and largest size in tokens of a GPU's packs. Sizes are powers of two, so that few shapes are compiled."""

GPU_FLOPS, GPU_BANDWIDTH, GPU_LAUNCH, GPU_LAUNCHES = 6e14, 3.35e12, 4e-6, 40
"""Of an H100: 16-bit operations per second that matrix products reach, bytes per second of its memory, seconds from one
kernel's launch to the next, and kernels in a layer. The rates are assumed, not measured."""

COUNTS_PLACES = ("window_size", "attn_temperature_tuning")
"""Settings of GPT-Neo and Llama 4, whose layers count places in the pack whatever mask and positions they are given."""


def known_obstacle(config: Any) -> str:
    """Return why the settings rule packs out, or nothing; whether the answers are the same has to be tried."""
    if any(getattr(config, name, None) for name in COUNTS_PLACES):
        return "its layers count places"
    if LayerKinds.of(config) is None:
        return f"it has layers of the kinds {', '.join(sorted(set(config.layer_types)))}"
    return ""


def longest_packed(config: Any) -> float:
    """Return the length in tokens of the longest row that may run in a pack.

    "longrope" changes the positions of all tokens once a text exceeds the original context length.
    """
    ropes = getattr(config, "rope_parameters", None) or {}
    limits = []
    for rope in [ropes, *ropes.values()]:  # of the model, or of each layer type
        if isinstance(rope, dict) and rope.get("rope_type") == "longrope":
            original = getattr(config, "original_max_position_embeddings", None)
            limits.append(rope.get("original_max_position_embeddings", original))
    return min((int(limit) for limit in limits if limit), default=float("inf"))


def pack_tokens(model: Any, *, tiles: bool) -> int:
    """Return the size of a model's packs in tokens.

    Where a mask hides what was computed, it is the size at which such attention costs an eighth of the other
    computation. A GPU that skips tiles takes larger packs; see ``gpu_pack_tokens``.

    Args:
        model: A causal transformers model.
        tiles: Whether the model runs in tree attention.
    """
    config = model.config.get_text_config()
    weights = sum(p.numel() for p in decoder(model).parameters()) - model.get_input_embeddings().weight.numel()
    if tiles and model.device.type == "cuda":
        return gpu_pack_tokens(weights, config.num_hidden_layers, weight_bytes=model.dtype.itemsize)
    smallest = SMALLEST_TREE_PACK if tiles else SMALLEST_PACK
    return max(smallest, int(weights / (8 * config.hidden_size * config.num_hidden_layers)))


def gpu_pack_tokens(weights: int, layers: int, *, weight_bytes: int = 2) -> int:
    """Return the pack size at which what every pack costs is a sixteenth of its tokens' matrix products on a GPU.

    A pack reads all weights once and launches the kernels of every layer, however many tokens it has. Masked attention
    does not count: a GPU skips the tiles in which nothing is attended to (``tiles.py``).

    Args:
        weights: Number of weights of the layers.
        layers: Number of layers.
        weight_bytes: Size of a weight in bytes.
    """
    fixed = weights * weight_bytes / GPU_BANDWIDTH + layers * GPU_LAUNCHES * GPU_LAUNCH  # seconds a pack
    tokens = 16 * fixed / (2 * weights / GPU_FLOPS)
    smallest, largest = GPU_PACKS
    return int(min(largest, max(smallest, 2 ** math.ceil(math.log2(tokens)))))


def bucket(tokens: int) -> int:
    """Return the length to which a GPU's pack of some tokens is padded.

    There are eight lengths from one power of two to the next, so a compiled kernel soon meets the same ones again. The
    padding is less than an eighth, or less than a tile. Full packs need none.

    Example:
        >>> bucket(1000), bucket(1100), bucket(1 << 14)
        (1024, 1152, 16384)
    """
    step = max(TILE, 1 << max(0, (tokens - 1).bit_length() - 4))
    return -(-tokens // step) * step
