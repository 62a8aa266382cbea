"""A tiny Llama written as a GGUF file the way llama.cpp's converter does it."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from models import GPT_2, TEMPLATE, TEXTS, build, byte_level_bpe
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
NAMES |= {"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
NAMES |= {"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
NORMAL, CONTROL = 1, 3


def smollm_like():
    """Return a byte-level tokenizer that cuts off every digit before it splits as GPT-2 does."""
    splitting = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT_2])
    tokenizer = byte_level_bpe(splitting, [*TEXTS, "two  blanks   and  more 1 2"], ["<|end|>"])
    names = {"eos_token": "<|end|>", "pad_token": "<|end|>", "chat_template": TEMPLATE}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """Return query or key weights in the order of rows that llama.cpp's rotary positions need."""
    return weight.reshape(heads, 2, len(weight) // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def gguf_name(name: str) -> str:
    """Return the name in GGUF files of one of Llama's tensors."""
    outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem = name.removesuffix(".weight")
    if stem in outer:
        return f"{outer[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.weight"


def write(folder: Path, file: Path, *, quantized=False, splitting="smollm", starts=False, extra=()) -> None:
    """Write the model of a folder, made by ``save_llama``, as a GGUF file.

    Args:
        folder: The model's folder.
        file: The file to write.
        quantized: Whether matrices are quantized to Q8_0.
        splitting: Name of the tokenizer's splitting.
        starts: Whether texts begin with a start token, which is also the end token; None leaves it open.
        extra: Names of further tensors.
    """
    from safetensors.numpy import load_file

    from evalbias.lm.load import load_tokenizer

    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())["model"]
    template = load_tokenizer(str(folder)).chat_template
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    tokens = sorted(tokenizer["vocab"], key=tokenizer["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitting)
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if token == "<|end|>" else NORMAL for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["merges"]])
    writer.add_eos_token_id(0)
    writer.add_pad_token_id(0)
    if starts is not False:
        writer.add_bos_token_id(0)
    if starts is not None:
        writer.add_add_bos_token(starts)
    writer.add_chat_template(template)
    for name, weight in load_file(folder / "model.safetensors").items():
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
        values = permuted(weight, config[heads]) if heads else weight
        if quantized and values.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(gguf_name(name), gguf.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), values)
    for name in extra:
        writer.add_tensor(name, np.ones(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def save_llama(folder: Path) -> Path:
    """Save a tiny Llama with ``smollm_like``'s tokenizer as a folder."""
    tokenizer = smollm_like()
    build("llama", tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
