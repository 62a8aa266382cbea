"""Write a small byte-level Llama of transformers as GGUF in float32: python gguf_model.py FOLDER FILE.

It runs in the environment of the llama.cpp servers, which has gguf.
"""

import json
import sys
from pathlib import Path

import gguf
from safetensors.numpy import load_file

NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k"}
NAMES |= {"self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm"}
NAMES |= {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def main(folder: Path, file: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(file, "llama")
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    vocabulary(writer, folder, config)
    writer.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", weights["model.norm.weight"])
    writer.add_tensor("output.weight", weights.get("lm_head.weight", weights["model.embed_tokens.weight"]))
    for layer in range(config["num_hidden_layers"]):
        for theirs, name in NAMES.items():
            tensor = weights[f"model.layers.{layer}.{theirs}.weight"]
            if name in ("attn_q", "attn_k"):  # llama.cpp rotates adjacent pairs, transformers the two halves
                n = heads if name == "attn_q" else groups
                rows = tensor.shape[0]
                tensor = tensor.reshape(n, 2, rows // n // 2, -1).swapaxes(1, 2).reshape(tensor.shape)
            writer.add_tensor(f"blk.{layer}.{name}.weight", tensor.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def vocabulary(writer: gguf.GGUFWriter, folder: Path, config: dict) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    special = {entry["id"]: entry["content"] for entry in tokenizer["added_tokens"]}
    tokens = {i: text for text, i in tokenizer["model"]["vocab"].items()} | special
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([tokens[i] for i in range(config["vocab_size"])])
    kinds = (gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(config["vocab_size"]))
    writer.add_token_types(list(kinds))
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
