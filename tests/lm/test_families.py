"""Models of many kinds: whether or not their attention supports packs, the answers are those of plain transformers."""

import numpy as np
import pytest
import torch
import transformers

from evalbias.lm import score
from evalbias.lm.attention import fused_kernel, plain_kernel
from evalbias.lm.score import Scorer
from evalbias.lm.tokens import Scored

VOCABULARY = 97
SIZE = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZE |= {"num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 1024}
SIZE |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
LONGROPE |= {"original_max_position_embeddings": 150}
LOCAL = {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "num_heads": 4, "window_size": 256}
MIXED = {"layer_types": ["conv", "full_attention"]}
WIDTH = 32  # of windows: less than any text
WINDOWS = {"sliding_window": WIDTH, "layer_types": ["sliding_attention", "full_attention"]}
LATER = {"use_sliding_window": True, "sliding_window": WIDTH, "max_window_layers": 1}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
LOW_RANK = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
PER_LAYER = {"head_dim": 16, "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 16}
GEMMA3N = {**PER_LAYER, "laurel_rank": 8, "altup_num_inputs": 2, "activation_sparsity_pattern": [0.5, 0.0]}
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION |= {"image_size": 28, "patch_size": 14}
GEMMA3 = {"text_config": {**SIZE, **WINDOWS, "head_dim": 16}}
GEMMA3 |= {"vision_config": {"model_type": "siglip_vision_model", **VISION}, "mm_tokens_per_image": 4}
GEMMA3 |= {"image_token_index": VOCABULARY - 1}
GEMMA4 = {"text_config": {**SIZE, **PER_LAYER, **WINDOWS, "global_head_dim": 16, "num_kv_shared_layers": 0}}
GEMMA4 |= {"vision_config": None, "audio_config": None}
LLAMA4 = {**EXPERTS, "head_dim": 16, "intermediate_size_mlp": 96}
CHUNKS = {"attention_chunk_size": WIDTH, "attn_temperature_tuning": False, "no_rope_layers": [1, 0]}
SHARED_KEYS = {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "layer_types": 2 * WINDOWS["layer_types"]}
SHARED_KEYS |= {"activation_sparsity_pattern": [0.5, 0.5, 0.0, 0.0]}
PACKS, ALONE = "packs", "alone"
KINDS = {
    "llama": ("Llama", {}, PACKS),
    "qwen2, windows in later layers": ("Qwen2", LATER, PACKS),
    "mistral, a window": ("Mistral", {"sliding_window": WIDTH, "tie_word_embeddings": True}, PACKS),
    "gemma3, windows": ("Gemma3Text", {"head_dim": 16, **WINDOWS}, PACKS),
    "gemma2, capped scores and logits": ("Gemma2", {"head_dim": 16, "query_pre_attn_scalar": 16, **WINDOWS}, PACKS),
    "gemma3n, shared keys": ("Gemma3nText", {**GEMMA3N, **WINDOWS, **SHARED_KEYS}, PACKS),
    "gemma3, multimodal": ("Gemma3", GEMMA3, PACKS),
    "gemma4, multimodal": ("Gemma4", GEMMA4, PACKS),
    "cohere2, scaled logits": ("Cohere2", {**WINDOWS, "logit_scale": 0.25}, PACKS),
    "granite, scaled logits": ("Granite", {"logits_scaling": 4.0, "embedding_multiplier": 3.0}, PACKS),
    "minicpm3, scaled states": ("MiniCPM3", {**LOW_RANK, "num_key_value_heads": 4, "dim_model_base": 32}, PACKS),
    "nanochat, capped logits": ("NanoChat", {"final_logit_softcapping": 5.0}, PACKS),
    "gpt-oss, sinks and windows": ("GptOss", {"head_dim": 16, **EXPERTS, **WINDOWS}, PACKS),
    "opt, a decoder in the decoder": ("OPT", {"word_embed_proj_dim": 64, "ffn_dim": 96}, PACKS),
    "llama4, chunks": ("Llama4Text", {**LLAMA4, **CHUNKS}, ALONE),
    "llama4, places by distance": ("Llama4Text", LLAMA4 | {"attention_chunk_size": 32, "floor_scale": 40}, ALONE),
    "phi3, longrope": ("Phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 150}, PACKS),
    "falcon, its own attention": ("Falcon", {"alibi": False, "new_decoder_architecture": False}, ALONE),
    "diffllama, its own attention": ("DiffLlama", {}, PACKS),
    "mpt, places by distance": ("Mpt", {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 1024}, ALONE),
    "bloom, places by distance": ("Bloom", {"n_layer": 2, "n_head": 4}, ALONE),
    "gpt-neo, a window of its own": ("GPTNeo", LOCAL, ALONE),
    "lfm2, convolutions": ("Lfm2", MIXED, ALONE),
    "mamba, no attention": ("Mamba", {"state_size": 8}, ALONE),
}
"""Kind -> class, its configuration, and how it shares prefixes."""


def build(name, options):
    config = getattr(transformers, f"{name}Config")(**{**SIZE, **options})
    torch.manual_seed(0)
    own = "eager" if getattr(config, "attn_logit_softcapping", None) else None  # as in evalbias.lm.load
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=own).eval().float()
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
    name, options, shares = KINDS.get(kind, ("Granite", {"logits_scaling": 0.001}, PACKS))
    made = Scorer(build(name, options).bfloat16(), context=512, batch_tokens=4096)
    made(texts())
    assert made.share == (shares == PACKS)
    assert made.share or "its answers differ by" in caplog.text


OWN = "gemma2, capped scores and logits"  # whose own attention is eager
RUNS = [*((kind, None) for kind in KINDS), ("llama", fused_kernel), ("llama", plain_kernel), (OWN, plain_kernel)]
RARE = ("gemma3n", "gemma4", "cohere2", "minicpm3", "nanochat", "opt", "diffllama", "mpt", "bloom", "gpt-neo,", "mamba")
RUNS = [pytest.param(*run, marks=[pytest.mark.slow] * run[0].startswith(RARE)) for run in RUNS]


@pytest.mark.parametrize(("kind", "kernel"), RUNS)
def test_answers_are_those_of_plain_transformers(kind, kernel, caplog, monkeypatch):
    monkeypatch.setattr("evalbias.lm.tree.BLOCK", 32)
    if kernel is not None:
        monkeypatch.setattr(score, "KERNELS", [kernel])
    name, options, shares = KINDS[kind]
    model, sequences = build(name, options), texts()
    attention = model.config._attn_implementation
    expected, within = plain(model, sequences), 5e-6 if shares == PACKS else 1e-4
    ends = np.cumsum([len(s.ids) - s.start for s in sequences])
    for pack in (4096, 50):
        made = Scorer(model, context=512, batch_tokens=pack, prefix_bytes=1 << 24)
        np.testing.assert_allclose(np.concatenate(made(sequences)), expected, atol=within)
        first = made.tokens_run
        assert shares != PACKS or "longrope" in kind or first == made.tokens_distinct
        np.testing.assert_allclose(np.concatenate(made(sequences)), expected, atol=within)  # with stored prefixes
        assert shares != PACKS or "longrope" in kind or made.tokens_run < 1.8 * first
        for sequence, end in zip(sequences[::4], ends[::4], strict=True):
            alone = expected[end - len(sequence.ids) + sequence.start : end]
            np.testing.assert_allclose(made([sequence])[0], alone, atol=within)
        assert made.share == (shares == PACKS)
        assert made.share or "without sharing prefixes" in caplog.text
    assert model.config._attn_implementation == attention


def test_a_model_that_ignores_its_window_runs_unpacked(caplog):
    """Masks that are not the model's own would give other answers, so the trial with a narrow window fails."""
    model, sequences = build("Llama", {}), texts()
    model.config.sliding_window = WIDTH
    made = Scorer(model, context=512, batch_tokens=4096)
    np.testing.assert_allclose(np.concatenate(made(sequences)), plain(model, sequences), atol=1e-5)
    assert "in packs, its answers differ by" in caplog.text
    assert model.config.sliding_window == WIDTH  # as before the trial


def test_texts_that_cannot_share_are_logged_once(caplog):
    def logged():
        return [record.getMessage() for record in caplog.records if record.name.startswith("evalbias")]

    sequences = texts()
    made = Scorer(build(*KINDS["phi3, longrope"][:2]), context=512, batch_tokens=4096)
    made([s for s in sequences if len(s.ids) <= 150])  # other positions from 150 tokens on
    assert not logged()
    for _ in range(2):
        made(sequences)
    assert logged() == [
        "Some texts run by themselves, without sharing prefixes: those of more than 150 tokens have other positions "
        "(longrope)."
    ]
