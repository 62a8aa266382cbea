"""Generation of texts in one batch, each with its own settings, and the log-probability of every sampled token.

A text depends on its own prompt, settings and seed, not on the batch: prompts are padded on the left, and every row
samples with its own generator. Of the model folder's generation settings only the end tokens apply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from dspy import lm15

from evalbias.lm.score import Head, decoder
from evalbias.lm.types import MAX_TOKENS, Text, Usage, Written


@dataclass
class _Row:
    """A text while it is being generated."""

    prompt: Sequence[int]
    question: Text
    room: int  # largest number of new tokens
    generator: torch.Generator
    ids: list[int] = field(default_factory=list)  # new tokens so far
    # their log-probabilities, if the question asks for them
    tokens: list[lm15.TokenLogprob] = field(default_factory=list)
    cut: int | None = None  # length of the text before a stop string
    finished: bool = False  # whether the text ended by itself or at a stop string


def generate(
    model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], questions: Sequence[Text], *, context: int
) -> list[Written]:
    """Continue prompts of token ids, shorter than the context, in one batch.

    Without a temperature the most probable tokens are taken; without a seed, it is 0. NaN or infinite logits raise
    FloatingPointError.
    """
    rows = [
        _Row(
            prompt,
            question,
            min(MAX_TOKENS if question.max_tokens is None else question.max_tokens, context - len(prompt)),
            torch.Generator().manual_seed(question.seed or 0),
        )
        for prompt, question in zip(prompts, questions, strict=True)
    ]
    width = max(len(row.prompt) for row in rows)
    ids = torch.tensor([[0] * (width - len(r.prompt)) + [*r.prompt] for r in rows], device=model.device)  # (b, T)
    mask = torch.tensor([[0] * (width - len(r.prompt)) + [1] * len(r.prompt) for r in rows], device=model.device)
    running, cache, end = rows, None, model.generation_config.eos_token_id
    ends = {end} if isinstance(end, int) else set(end or ())
    body, head = decoder(model), Head(model, float32=False)
    with torch.inference_mode():
        while running:
            # 1. One forward pass: the prompts at first, then one token per running row.
            positions = (mask.cumsum(dim=1) - 1).clamp_min(0)[:, -ids.shape[1] :]
            out = body(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
            )
            cache = out.past_key_values
            logits = head(out.last_hidden_state[:, -1]).cpu()  # (b, V)
            if not bool(torch.isfinite(logits.sum(dim=1)).all()):  # a sum is not finite where a term is not
                raise FloatingPointError("The model returned NaN or infinite logits: try dtype='float32'.")
            # 2. The next token of every row.
            for row, row_logits in zip(running, logits, strict=True):
                _extend(row, row_logits, ends, tokenizer)
            # 3. Complete rows leave the batch and the KV cache.
            indices = [i for i, row in enumerate(running) if not row.finished and len(row.ids) < row.room]
            if indices and len(indices) < len(running):
                kept = torch.tensor(indices)  # on the CPU: layers of a spread model index it from several devices
                cache.batch_select_indices(kept)
                mask = mask[kept]
            running = [running[i] for i in indices]
            if running:
                mask = torch.cat([mask, mask.new_ones(len(running), 1)], dim=1)
                ids = torch.tensor([[row.ids[-1]] for row in running], device=model.device)  # (b, 1)
    return [
        Written(
            _text(row, tokenizer),
            logprobs=None if row.question.logprobs is None else tuple(row.tokens),
            finished=row.finished,
            usage=Usage(len(row.prompt), len(row.ids)),
        )
        for row in rows
    ]


def _text(row: _Row, tokenizer: Any) -> str:
    return str(tokenizer.decode(row.ids, skip_special_tokens=True))[: row.cut]


def _extend(row: _Row, logits: torch.Tensor, ends: set[int], tokenizer: Any) -> None:
    own = row.question
    token = drawn_token(
        logits,
        temperature=own.temperature or 0.0,
        top_p=1.0 if own.top_p is None else own.top_p,
        top_k=own.top_k,
        generator=row.generator,
    )
    if token in ends:
        row.finished = True
        return
    row.ids.append(token)
    if own.logprobs is not None:
        row.tokens.append(_token(tokenizer, token, logits, own.logprobs))
    if own.stop:
        _stop(row, tokenizer)


def _stop(row: _Row, tokenizer: Any) -> None:
    """End a row at the first stop string in its text, and drop the tokens after the cut."""
    text = _text(row, tokenizer)
    row.cut = min((at for stop in row.question.stop if (at := text.find(stop)) >= 0), default=None)
    if row.cut is not None:
        row.finished = True
        while row.ids and len(tokenizer.decode(row.ids[:-1], skip_special_tokens=True)) >= row.cut:
            row.ids.pop()
        del row.tokens[len(row.ids) :]


def _token(tokenizer: Any, token: int, logits: torch.Tensor, top: int) -> lm15.TokenLogprob:
    """Return a token and the most probable ones, with log-probabilities before temperature and truncation."""
    logprobs = logits.log_softmax(-1)  # (V,)
    best = torch.topk(logprobs, top)
    return lm15.TokenLogprob(
        token=tokenizer.decode([token]),
        logprob=float(logprobs[token]),
        token_id=token,
        top=tuple(
            lm15.TopLogprob(token=tokenizer.decode([i]), logprob=value, token_id=i)
            for i, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ),
    )


# Sampling of a token from logits by temperature, top-k and top-p, without sorting the vocabulary.


SUM_ROUNDING = 1e-5  # largest error of a sum of probabilities in float32


def drawn_token(
    logits: torch.Tensor, *, temperature: float, top_p: float, top_k: int | None, generator: torch.Generator
) -> int:
    """Return the most probable of (V,) finite logits at temperature 0, else a sample, which takes one random number.

    ``top_k`` (None: all) applies before ``top_p``: the fewest most probable tokens that together reach it remain.

    Example:
        >>> logits = torch.log(torch.tensor([0.2, 0.5, 0.3]))
        >>> draw = torch.Generator().manual_seed(0)
        >>> {drawn_token(logits, temperature=1.0, top_p=0.6, top_k=None, generator=draw) for _ in range(99)}
        {1, 2}
    """
    if temperature <= 0:
        return int(logits.argmax())
    scaled, tokens = (logits - logits.max()) / temperature, None  # finite peak at the smallest temperatures
    if top_k is not None and top_k < len(scaled):
        scaled, tokens = scaled.topk(max(1, top_k))
    shares = scaled.softmax(-1)
    if top_p < 1:
        nucleus = _nucleus(shares, top_p)
        shares, tokens = shares[nucleus], nucleus if tokens is None else tokens[nucleus]
    index = _draw(shares.double(), generator)
    return index if tokens is None else int(tokens[index])


def _nucleus(shares: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return the indices of the nucleus among (V,) probabilities: the largest, at least one, that reach ``top_p``."""
    # Tokens below (1 - top_p) / V are outside: together they have less than 1 - top_p, so the others reach top_p. Of
    # most distributions this leaves few tokens to sort.
    spare = float(shares.sum()) - top_p - SUM_ROUNDING
    candidates = torch.nonzero(shares >= spare / len(shares))[:, 0]
    ordered, order = shares[candidates].double().sort(descending=True, stable=True)
    return candidates[order[: max(1, int((ordered.cumsum(0) - ordered < top_p).sum()))]]


def _draw(shares: torch.Tensor, generator: torch.Generator) -> int:
    sums = shares.cumsum(0)
    whole = float(sums[-1])
    point = min(float(torch.rand((), dtype=torch.float64, generator=generator)) * whole, math.nextafter(whole, 0.0))
    return int(torch.searchsorted(sums, point, right=True))
