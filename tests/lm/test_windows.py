"""Texts longer than a model's sliding window: their common tokens run once, and the answers are the model's own."""

import numpy as np
import pytest
import torch
from lm.test_families import GEMMA3, GEMMA3N, KINDS, PER_LAYER, build, plain, texts

from evalbias.lm.attention import configs_of, configured, layer_masks
from evalbias.lm.score import Scorer
from evalbias.lm.tokens import Scored
from evalbias.lm.tree import Rows, packs

WIDTH = 32
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WIDTH}
CHUNKS = {"attention_chunk_size": WIDTH, "attn_temperature_tuning": False, "no_rope_layers": [1, 0]}
SHARING = {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "layer_types": 2 * MIXED["layer_types"]}
WINDOWED = {
    "mistral, tied embeddings": ("Mistral", {"sliding_window": WIDTH, "tie_word_embeddings": True}),
    "qwen2, windows in later layers": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": WIDTH, "max_window_layers": 1},
    ),
    "gemma2": ("Gemma2", {"head_dim": 16, "query_pre_attn_scalar": 16, **MIXED}),
    "gemma3": ("Gemma3Text", {"head_dim": 16, **MIXED}),
    "gemma3, multimodal": ("Gemma3", {**GEMMA3, "text_config": {**GEMMA3["text_config"], **MIXED}}),
    "gemma3n, shared keys": (
        "Gemma3nText",
        {**GEMMA3N, **MIXED, **SHARING, "activation_sparsity_pattern": [0.5, 0.5, 0.0, 0.0]},
    ),
    "gemma4": ("Gemma4Text", {**PER_LAYER, **MIXED, "global_head_dim": 16, "num_kv_shared_layers": 0}),
    "gpt-oss": ("GptOss", {**KINDS["gpt-oss, sinks"][1], **MIXED}),
    "cohere2": ("Cohere2", MIXED),
    "llama4, chunks": ("Llama4Text", {**KINDS["llama4, places by distance"][1], **CHUNKS}),
}


@pytest.mark.parametrize("kind", WINDOWED)
def test_tokens_run_once_beyond_the_window(kind):
    model, sequences = build(*WINDOWED[kind]), texts()
    expected = plain(model, sequences)
    assert min(len(s.ids) for s in sequences) > WIDTH
    for pack in (4096, 50):
        made = Scorer(model, context=512, batch_tokens=pack, prefix_bytes=1 << 24)
        np.testing.assert_allclose(np.concatenate(made(sequences)), expected, atol=5e-6)
        first = made.tokens_run
        assert first == made.tokens_distinct
        np.testing.assert_allclose(np.concatenate(made(sequences)), expected, atol=5e-6)  # with stored prefixes
        assert made.tokens_run - first < 0.8 * first


def test_masks_by_hand():
    """The example of ``layer_masks``: the text a b, then c, d and e after one, two and no tokens of it."""
    rows = Rows([Scored((1, 2, 3, 0), 3), Scored((1, 2, 4, 0), 3), Scored((1, 5, 0), 2)])
    (pack,) = packs(rows, 8, known={}, kept={})
    config = type("Config", (), {"sliding_window": 2})
    masks = layer_masks(config, MIXED["layer_types"], pack, 0)
    tree = ["x....", "xx...", "xxx..", "xx.x.", "x...x"]
    window = ["x....", "xx...", ".xx..", ".x.x.", "x...x"]
    for kind, expected in (("full_attention", tree), ("sliding_attention", window)):
        visible = masks[kind].dense(slice(0, 5), [slice(0, 5)], torch.zeros(0)) == 0
        assert ["".join(".x"[int(cell)] for cell in row) for row in visible] == expected


def test_windows_are_restored_after_the_trial():
    model = build(*WINDOWED["gemma3"])
    with configured(configs_of(model), sliding_window=5, attention_chunk_size=5):
        assert model.config.sliding_window == model.model.config.sliding_window == 5
    assert model.config.sliding_window == model.model.config.sliding_window == WIDTH


def test_a_model_that_ignores_its_window_runs_unpacked(caplog):
    """Masks that are not the model's own would give other answers, so the trial with a narrow window fails."""
    model, sequences = build(*KINDS["llama"][:2]), texts()
    model.config.sliding_window = WIDTH
    made = Scorer(model, context=512, batch_tokens=4096)
    np.testing.assert_allclose(np.concatenate(made(sequences)), plain(model, sequences), atol=1e-5)
    assert "in packs, its answers differ by" in caplog.text


def test_texts_that_cannot_share_are_logged_once(caplog):
    model, sequences = build(*KINDS["phi3, longrope"][:2]), texts()  # other positions from 150 tokens on
    made = Scorer(model, context=512, batch_tokens=4096)
    made([s for s in sequences if len(s.ids) <= 150])
    assert not logged(caplog)
    for _ in range(2):
        made(sequences)
    assert logged(caplog) == [
        "Some texts run by themselves, without sharing prefixes: those of more than 150 tokens have other positions "
        "(longrope)."
    ]


def logged(caplog):
    return [record.getMessage() for record in caplog.records if record.name.startswith("evalbias")]
