"""Tiny random models of four families with two kinds of tokenizer, saved like a user's folder."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

TEXTS = [
    "Judge the output on quality: is it good?\nAnswer with a whole number from 1 (worst) to 5 (best).",
    "Source: the cat sat on the mat.\nOutput: a cat was sitting on a mat, naïve café 日本.\nQuality: 4",
    "Score: 10 9 8 7 6 5 4 3 2 1 0 the answer is yes or no, A or B.",
] * 4
TEMPLATE = (
    "{{ bos_token if bos_token else '' }}{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)

GPT_2 = pre_tokenizers.ByteLevel(add_prefix_space=False)


def byte_level_bpe(splitting=GPT_2, texts=TEXTS, tokens=(), **options):
    """Return a trained tokenizer like GPT-2's, but for how it splits a text into words."""
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = splitting
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[*tokens], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def byte_level():
    """Return a tokenizer like GPT-2's: byte-level BPE, no start token."""
    tokenizer = byte_level_bpe(tokens=["<|end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")


def sentencepiece_like():
    """Return a tokenizer like Llama 2's: marks for blanks, a start token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>", "<s>", "</s>"])
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256}
INNER = {"intermediate_size": 64}
MORE = {"gpt_neox": INNER, "qwen2": {**INNER, "num_key_value_heads": 2}, "llama": {**INNER, "num_key_value_heads": 2}}


def build(family: str, tokenizer) -> torch.nn.Module:
    torch.manual_seed(0)
    known = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SIZE, **MORE.get(family, {}), **known))
    with torch.no_grad():  # random weights of the usual size give nearly uniform answers
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model.eval()


KINDS = {"llama": ("llama", sentencepiece_like, False), "llama-chat": ("llama", sentencepiece_like, True)}
KINDS |= {"qwen2": ("qwen2", byte_level, False), "qwen2-chat": ("qwen2", byte_level, True)}
KINDS |= {"gpt2": ("gpt2", byte_level, False), "gpt-neox": ("gpt_neox", byte_level, False)}


def save(kind: str, folder) -> str:
    family, make, chat = KINDS[kind]
    tokenizer = make()
    if chat:
        tokenizer.chat_template = TEMPLATE
    build(family, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def load(folder, **options):
    """Return a model on the CPU in float32, as ``LocalLM``."""
    from evalbias import LocalLM

    return LocalLM(str(folder), device="cpu", dtype="float32", **options)
