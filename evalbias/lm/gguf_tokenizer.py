"""Rules by which the tokenizer of a GGUF file splits text before it merges characters; the file names one of them.

A tokenizer that splits otherwise than in training gives the model token sequences that it has never seen, without any
error. Splittings that are not known here are therefore refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers, processors

SENTENCEPIECE = "llama"
"""Kind of the tokenizers that do not split beforehand."""

BYTE_LEVEL = "gpt2"

SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell"})
"""Splittings that cut off every digit and then split as GPT-2 does; transformers takes them for GPT-2's."""

WHOLE_WORDS = frozenset({"llama3", "llama-v3", "llama-bpe"})
"""Splittings of Llama 3, after which a word of the vocabulary is one token without any merges; transformers reads the
splitting only. A text begins with the start token unless the file says otherwise."""

KNOWN = SINGLE_DIGITS | WHOLE_WORDS | {"gpt-2", "qwen2", "deepseek-r1-qwen"}


def check_splitting(kind: Any, splitting: Any, file: Path) -> str | None:
    """Return a file's splitting; None for a tokenizer that does not split.

    Args:
        kind: Kind of the tokenizer, ``tokenizer.ggml.model`` of the file.
        splitting: Name of its splitting, ``tokenizer.ggml.pre`` of the file.
        file: The GGUF file.

    Raises:
        ValueError: The kind or the splitting is not known here.
    """
    if kind == SENTENCEPIECE:
        return None
    if kind != BYTE_LEVEL:
        raise ValueError(f"{file} has a tokenizer of the kind {kind!r}, which is not supported: use another model.")
    if not isinstance(splitting, str) or splitting not in KNOWN:
        raise ValueError(
            f"{file} splits text by the rules {splitting!r}, which are not known here, so its tokens would differ from "
            "those of its training: use the model's original folder."
        )
    return splitting


def set_splitting(tokenizer: Any, splitting: str | None, *, starts: bool | None) -> None:
    """Make a tokenizer that was read from a GGUF file split as the file says.

    Args:
        tokenizer: Tokenizer as transformers read it.
        splitting: The file's splitting; None for a tokenizer that does not split.
        starts: Whether texts begin with the start token, ``tokenizer.ggml.add_bos_token`` of the file; None where the
            file does not say so.
    """
    backend = tokenizer.backend_tokenizer
    if splitting in SINGLE_DIGITS:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if splitting in WHOLE_WORDS:
        backend.model.ignore_merges = True
        if starts is None:
            start = (tokenizer.bos_token, tokenizer.bos_token_id)
            backend.post_processor = processors.TemplateProcessing(single=f"{start[0]} $A", special_tokens=[start])
