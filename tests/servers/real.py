"""The small model that the real servers serve."""

from __future__ import annotations

from pathlib import Path

import torch
from models import TEMPLATE, TEXTS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}

ANSWERS = ["yes", "no"] * 20
"""Answers that must be one token each where vLLM reads closed questions."""


def save_model(folder: Path, *, family: str = "llama", layers: int = 2, width: int = 128) -> Path:
    """Save a random model that every server can run: head size 64, control tokens, a byte-level tokenizer.

    vLLM can ask ``"qwen3"`` closed questions. The width is a multiple of 64.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([*TEXTS, *ANSWERS] if family == "qwen3" else TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    template = TEMPLATE.replace("{{ bos_token if bos_token else '' }}", "<s>")
    # vLLM takes what follows a prompt's last added token for the beginning of the reply, so a message ends in one.
    fast.chat_template = template.replace("[end]", "<|im_end|>") if family == "qwen3" else template
    torch.manual_seed(0)
    config_type, model_type = FAMILIES[family]
    sizes = {"vocab_size": len(fast), "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": width // 64, "num_key_value_heads": 1, "head_dim": 64}
    model = model_type(config_type(**sizes, max_position_embeddings=512, bos_token_id=0, eos_token_id=1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # random weights of the usual size give nearly uniform answers
    model.eval().save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
