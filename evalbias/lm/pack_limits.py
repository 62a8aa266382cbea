"""Limits of running texts in packs that a model's settings imply: whether at all, the longest text, the pack sizes."""

from __future__ import annotations

from typing import Any

from evalbias.lm.head import decoder
from evalbias.lm.layer_masks import LayerKinds

SMALLEST_PACK = 256
"""Lower limit of a pack's size in tokens."""

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


def pack_tokens(model: Any) -> int:
    """Return the pack size at which masked attention, which is wasted, costs an eighth of the other computation."""
    config = model.config.get_text_config()
    weights = sum(p.numel() for p in decoder(model).parameters()) - model.get_input_embeddings().weight.numel()
    return max(SMALLEST_PACK, int(weights / (8 * config.hidden_size * config.num_hidden_layers)))
