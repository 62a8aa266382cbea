"""Tokenizers and chat templates like those of four families, with tiny random models."""

from __future__ import annotations

import json

from models import TEXTS, build, byte_level_bpe
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]

CHATML = (
    "{% for m in messages %}"
    "{% set content = m.content.split('</think>')[-1] if m.role == 'assistant' else m.content %}"
    "<|im_start|>{{ m.role }}\n{{ content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
LLAMA_2 = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'assistant' %} {{ m.content | trim }} {{ eos_token }}{% else %}"
    "[INST] {{ m.content | trim }} [/INST]{% endif %}{% endfor %}"
)
LLAMA_3 = (
    "{{ bos_token }}{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "<|start_header_id|>system<|end_header_id|>\n\nToday Date: {{ date_string }}\n\n<|eot_id|>"
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


def special(*texts, **options):
    return [AddedToken(text, special=True, normalized=False, **options) for text in texts]


def chatml():
    """Return a tokenizer like Qwen's: byte-level BPE, no start token, thoughts in added tokens that are not special."""
    tokenizer = byte_level_bpe()
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens(["<think>", "</think>", "<|fim_prefix|>", "cat sat on the mat"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", chat_template=CHATML)


def llama_2():
    """Return a tokenizer like Llama 2's: marks for blanks, the first word marked, bytes of unknown characters."""
    trained = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokens = ["<unk>", "<s>", "</s>", *BYTES]
    trained.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=500, special_tokens=tokens))
    tokenizer = _without_added(trained)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(parts)
    tokenizer.add_special_tokens(special("<unk>", "<s>", "</s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=LLAMA_2, **names)


def llama_3():
    """Return a tokenizer like Llama 3's: byte-level BPE, words from a regular expression, a start token."""
    pattern = r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    byte = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    splitting = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte])
    tokenizer = byte_level_bpe(splitting, ignore_merges=True)
    tokens = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    tokenizer.add_special_tokens(special(*tokens))
    start = [(tokens[0], tokenizer.token_to_id(tokens[0]))]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{tokens[0]} $A", special_tokens=start)
    names = {"bos_token": tokens[0], "eos_token": tokens[-1]}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=LLAMA_3, **names)


def gemma():
    """Return a tokenizer like Gemma's: no words, added tokens for markup and line breaks, no system role."""
    trained = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    trained.normalizer = normalizers.Replace(" ", "▁")
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", *BYTES]
    trained.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=500, special_tokens=tokens))
    tokenizer = _without_added(trained)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(special(*tokens[:6]))
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("<table>", "\n\n", "▁▁")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=GEMMA, **names)


def unigram():
    """Return a tokenizer like XGLM's, whose model has the control tokens among its pieces."""
    pieces = ["<unk>", "<s>", "</s>", *(chr(code) for code in range(0x21, 0x7F)), "▁", "▁the", "▁cat", "\n"]
    tokenizer = Tokenizer(models.Unigram([(piece, -0.1 * len(piece)) for piece in pieces], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(special("<unk>", "<s>", "</s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


MAKERS = {make.__name__: make for make in (chatml, llama_2, llama_3, gemma, unigram)}


def _without_added(trained):
    """Return a trained tokenizer whose bytes are pieces of its model only, as in sentencepiece."""
    state = json.loads(trained.to_str())
    state["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(state))


def save(make, folder) -> str:
    tokenizer = make()
    build("llama", tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
