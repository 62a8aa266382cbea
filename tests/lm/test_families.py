"""Models of many kinds: whether or not their attention supports packs, the answers are those of plain transformers."""

import numpy as np
import pytest
import torch
import transformers

from evalbias.lm.score import Scorer
from evalbias.lm.tokens import Scored

VOCABULARY = 97
SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": 150,
}
LOCAL = {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "num_heads": 4, "window_size": 256}
MIXED = {"layer_types": ["conv", "full_attention"]}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
WINDOWS = {"sliding_window": 150, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
LOW_RANK = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
PER_LAYER = {
    "head_dim": 16,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 16,
}
GEMMA3N = {**PER_LAYER, "laurel_rank": 8, "altup_num_inputs": 2, "activation_sparsity_pattern": [0.5, 0.0]}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
GEMMA3 = {
    "text_config": {**SIZE, "head_dim": 16, "sliding_window": 150},
    "vision_config": {"model_type": "siglip_vision_model", **VISION},
    "mm_tokens_per_image": 4,
    "image_token_index": VOCABULARY - 1,
}
GEMMA4 = {
    "text_config": {**SIZE, **PER_LAYER, **WINDOWS, "global_head_dim": 16, "num_kv_shared_layers": 0},
    "vision_config": None,
    "audio_config": None,
}
MAMBA2 = {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "head_dim": 16}
KINDS = {
    "llama": ("Llama", {}, True),
    "mistral, a window": ("Mistral", {"sliding_window": 150}, True),
    "gemma3, windows in some layers": ("Gemma3Text", {"head_dim": 16, "sliding_window": 150}, True),
    "gemma2, capped logits": ("Gemma2", {"head_dim": 16, "query_pre_attn_scalar": 16, **WINDOWS}, True),
    "gemma3n, capped logits": ("Gemma3nText", {**GEMMA3N, **WINDOWS, "num_kv_shared_layers": 0}, True),
    "gemma3, multimodal": ("Gemma3", GEMMA3, True),
    "gemma4, multimodal": ("Gemma4", GEMMA4, True),
    "cohere2, scaled logits": ("Cohere2", {**WINDOWS, "logit_scale": 0.25}, True),
    "granite, scaled logits": ("Granite", {"logits_scaling": 4.0, "embedding_multiplier": 3.0}, True),
    "minicpm3, scaled states": ("MiniCPM3", {**LOW_RANK, "num_key_value_heads": 4, "dim_model_base": 32}, True),
    "nanochat, capped logits": ("NanoChat", {"final_logit_softcapping": 5.0}, True),
    "gpt-oss, sinks": ("GptOss", {"head_dim": 16, **EXPERTS, **WINDOWS}, True),
    "opt, a decoder in the decoder": ("OPT", {"word_embed_proj_dim": 64, "ffn_dim": 96}, True),
    "llama4, places by distance": ("Llama4Text", {**EXPERTS, "head_dim": 16, "intermediate_size_mlp": 96}, False),
    "falcon-h1, scaled logits": ("FalconH1", {**MAMBA2, "lm_head_multiplier": 0.5}, False),
    "phi3, longrope": ("Phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 150}, True),
    "falcon, its own attention": ("Falcon", {"alibi": False, "new_decoder_architecture": False}, False),
    "falcon, new": ("Falcon", {"alibi": False, "new_decoder_architecture": True}, False),
    "falcon, places by distance": ("Falcon", {"alibi": True}, False),
    "diffllama, its own attention": ("DiffLlama", {}, True),
    "doge, its own attention": ("Doge", {}, False),
    "mpt, places by distance": ("Mpt", {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 1024}, False),
    "bloom, places by distance": ("Bloom", {"n_layer": 2, "n_head": 4}, False),
    "gpt-neo, a window of its own": ("GPTNeo", LOCAL, False),
    "lfm2, convolutions": ("Lfm2", MIXED, False),
    "qwen3-next, linear attention": ("Qwen3Next", LINEAR, False),
    "mamba, no attention": ("Mamba", {"state_size": 8}, False),
}
"""Kind -> class, its configuration, and whether it shares prefixes."""


def build(name, options):
    config = getattr(transformers, f"{name}Config")(**{**SIZE, **options})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:  # wide enough for attention to matter
                parameter.copy_(torch.randn(parameter.shape) * 1.5 / parameter.shape[-1] ** 0.5)
    return model


def texts():
    """Return texts of 60 to 200 tokens that share prefixes of two lengths; some score more than their last token."""
    rng, done = np.random.default_rng(0), []
    trunk = rng.integers(3, VOCABULARY, 50).tolist()
    for branch in range(3):
        prefix = [*trunk, *rng.integers(3, VOCABULARY, 5 + 40 * branch).tolist()]
        for own in (5, 25, 60):
            ids = (*prefix, *rng.integers(3, VOCABULARY, own).tolist())
            done.append(Scored(ids, len(ids) - 1 - own // 20))
    return done


def plain(model, sequences):
    values = []
    with torch.inference_mode():
        for s in sequences:
            logprobs = model(torch.tensor([s.ids[:-1]]), use_cache=False).logits[0].log_softmax(-1)
            values += [float(logprobs[place - 1, s.ids[place]]) for place in range(s.start, len(s.ids))]
    return np.array(values)


@pytest.mark.parametrize("kind", ["llama", "falcon, its own attention", "mpt, places by distance", "scaled up"])
def test_models_of_16_bits_share_as_those_of_32_do(kind, caplog):
    """Rounding grows with the logits, so it is told from a fault by the spread of the log-probabilities."""
    name, options, shares = KINDS.get(kind, ("Granite", {"logits_scaling": 0.001}, True))
    made = Scorer(build(name, options).bfloat16(), context=512, batch_tokens=4096)
    made(texts())
    assert made.share == shares
    assert shares or "its answers differ by" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_plain_transformers(kind, caplog):
    name, options, shares = KINDS[kind]
    model, sequences = build(name, options), texts()
    expected = plain(model, sequences)
    ends = np.cumsum([len(s.ids) - s.start for s in sequences])
    for pack in (4096, 24):
        made = Scorer(model, context=512, batch_tokens=pack, prefix_bytes=1 << 24)
        for _ in range(2):  # without, then with stored prefixes
            np.testing.assert_allclose(np.concatenate(made(sequences)), expected, atol=1e-4)
        for sequence, end in zip(sequences[::4], ends[::4], strict=True):
            np.testing.assert_allclose(
                made([sequence])[0], expected[end - len(sequence.ids) + sequence.start : end], atol=1e-4
            )
        assert made.share == shares
        assert shares or "without sharing prefixes" in caplog.text
