"""Generation: one request with its own settings, and the log-probability of every token that was sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from evalbias.lm.tokens import PromptTooLong

SEED = 0
"""Of sampling where a request names no seed: the same request gives the same text."""


@dataclass(frozen=True)
class Settings:
    """How to generate.

    Attributes:
        max_tokens: At most so many new tokens.
        temperature: 0 takes the likeliest token.
        top_p: Sample from the likeliest tokens that hold this probability.
        top_k: Sample from so many likeliest tokens; None from all.
        stop: The text ends before the first of these.
        seed: Of the sampling.
        top: Alternatives to report for each token; None reports no log-probabilities.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int = SEED
    top: int | None = None


@dataclass(frozen=True)
class Token:
    """A generated token, its log-probability before temperature and truncation, and the likeliest alternatives."""

    id: int
    text: str
    logprob: float
    top: tuple[tuple[int, str, float], ...]


@dataclass(frozen=True)
class Generated:
    """A generated text; ``finished`` unless the token limit ended it."""

    text: str
    tokens: tuple[Token, ...]
    finished: bool


def generate(model: Any, tokenizer: Any, prompt: list[int], settings: Settings, *, context: int) -> Generated:
    """Continue a prompt of token ids.

    Raises:
        PromptTooLong: The prompt leaves no room for a token.
    """
    if len(prompt) >= context:
        raise PromptTooLong(f"The prompt has {len(prompt)} tokens, the model's context {context}: shorten it.")
    ids = torch.tensor([prompt], device=model.device)
    sampling: dict[str, Any] = {"do_sample": False}
    if settings.temperature > 0:
        sampling = {"do_sample": True, "temperature": settings.temperature, "top_p": settings.top_p}
        sampling["top_k"] = settings.top_k or 0
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.inference_mode():
        torch.manual_seed(settings.seed)
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=min(settings.max_tokens, context - len(prompt)),
            stop_strings=list(settings.stop) or None,
            tokenizer=tokenizer,
            pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0,
            return_dict_in_generate=True,
            output_logits=settings.top is not None,
            **sampling,
        )
    new = out.sequences[0, len(prompt) :].tolist()
    closed = bool(new) and new[-1] in _ends(model)
    kept = new[:-1] if closed else new
    text = tokenizer.decode(kept, skip_special_tokens=True)
    cut = min((at for s in settings.stop if (at := text.find(s)) >= 0), default=None)
    tokens = _tokens(tokenizer, kept, out.logits, settings.top) if settings.top is not None else ()
    return Generated(text if cut is None else text[:cut], tokens, closed or cut is not None)


def _ends(model: Any) -> set[int]:
    end = model.generation_config.eos_token_id
    return set() if end is None else {end} if isinstance(end, int) else set(end)


def _tokens(tokenizer: Any, ids: list[int], logits: Any, top: int) -> tuple[Token, ...]:
    done = []
    for token, row in zip(ids, logits, strict=False):
        logprobs = torch.log_softmax(row[0].float(), dim=-1)  # (V,)
        best = torch.topk(logprobs, top) if top else None
        alternatives = zip(best.indices.tolist(), best.values.tolist(), strict=True) if best else ()
        done.append(
            Token(
                token,
                tokenizer.decode([token]),
                float(logprobs[token]),
                tuple((i, tokenizer.decode([i]), v) for i, v in alternatives),
            )
        )
    return tuple(done)
