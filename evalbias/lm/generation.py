"""Generation: requests in a batch, each with its own settings, and the log-probability of every sampled token.

A text depends on its own prompt, settings and seed, not on the batch: prompts are padded on the left, and every row
samples with its own generator. Of the model folder's generation settings only the end tokens apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from evalbias.lm.growing_cache import make_growing
from evalbias.lm.head import Head, decoder
from evalbias.lm.refusals import each
from evalbias.lm.sampling import sample
from evalbias.lm.tokens import check_length


@dataclass(frozen=True)
class Settings:
    """Settings of one generation.

    Attributes:
        max_tokens: Largest number of new tokens.
        temperature: Sampling temperature; 0 takes the most probable token.
        top_p: Probability of the nucleus, the most probable tokens from which to sample.
        top_k: Number of most probable tokens from which to sample; None for all.
        stop: Strings before the first of which the text ends.
        seed: Seed of the sampling.
        top: Number of alternatives to report for each token; None reports no log-probabilities.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    top: int | None = None


@dataclass(frozen=True)
class Token:
    """A generated token.

    Attributes:
        id: Token id.
        text: Text of the token.
        logprob: Log-probability in nats, before temperature and truncation.
        top: (id, text, log-probability) of the most probable tokens at its position.
    """

    id: int
    text: str
    logprob: float
    top: tuple[tuple[int, str, float], ...]


@dataclass(frozen=True)
class Generated:
    """A generated text.

    Attributes:
        text: The text.
        length: Number of tokens.
        tokens: The tokens, if the settings ask for log-probabilities; else empty.
        finished: Whether the text ended by itself or at a stop string, not at the token limit.
    """

    text: str
    length: int
    tokens: tuple[Token, ...]
    finished: bool


@dataclass
class Row:
    """A text while it is being generated."""

    prompt: list[int]
    settings: Settings
    room: int
    generator: torch.Generator
    ids: list[int] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    cut: int | None = None
    finished: bool = False

    @property
    def over(self) -> bool:
        """True if the text is complete."""
        return self.finished or len(self.ids) >= self.room


def generate(
    model: Any, tokenizer: Any, prompts: Sequence[list[int]], settings: Sequence[Settings], *, context: int
) -> list[Generated]:
    """Continue prompts of token ids in one batch.

    Args:
        model: Causal transformers model.
        tokenizer: Tokenizer of the model.
        prompts: Token ids of each prompt.
        settings: Settings for each prompt.
        context: Context length of the model in tokens.

    Raises:
        PromptTooLong: A prompt leaves no room for a new token.
        FloatingPointError: The model returned NaN or infinite logits.
    """
    rows = each(lambda start: _row(*start, context), list(zip(prompts, settings, strict=True)))
    width = max(len(row.prompt) for row in rows)
    ids = torch.tensor([[0] * (width - len(r.prompt)) + r.prompt for r in rows], device=model.device)  # (b, T)
    mask = torch.tensor([[0] * (width - len(r.prompt)) + [1] * len(r.prompt) for r in rows], device=model.device)
    running, cache, ends = rows, None, _ends(model)
    body, head = decoder(model), Head(model, float32=False)
    with torch.inference_mode():
        while running:
            # 1. One forward pass: the prompts at first, then one token per running row.
            positions = (mask.cumsum(dim=1) - 1).clamp_min(0)[:, -ids.shape[1] :]
            out = body(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
            )
            if cache is None:
                make_growing(out.past_key_values)
            cache = out.past_key_values
            logits = head(out.last_hidden_state[:, -1]).cpu()  # (b, V)
            if not bool(torch.isfinite(logits.sum(dim=1)).all()):  # a sum is not finite where a term is not
                raise FloatingPointError("The model returned NaN or infinite logits: try dtype='float32'.")
            # 2. The next token of every row.
            for row, row_logits in zip(running, logits, strict=True):
                _extend(row, row_logits, ends, tokenizer)
            # 3. Complete rows leave the batch and the KV cache.
            indices = [i for i, row in enumerate(running) if not row.over]
            if indices and len(indices) < len(running):
                kept = torch.tensor(indices)  # on the CPU: layers of a spread model index it from several devices
                cache.batch_select_indices(kept)
                mask = mask[kept]
            running = [running[i] for i in indices]
            if running:
                mask = torch.cat([mask, mask.new_ones(len(running), 1)], dim=1)
                ids = torch.tensor([[row.ids[-1]] for row in running], device=model.device)  # (b, 1)
    return [Generated(_text(row, tokenizer), len(row.ids), tuple(row.tokens), row.finished) for row in rows]


def _row(prompt: list[int], settings: Settings, context: int) -> Row:
    check_length(len(prompt), context, whose="model", generated=1)
    generator = torch.Generator().manual_seed(settings.seed or 0)
    return Row(prompt, settings, min(settings.max_tokens, context - len(prompt)), generator)


def _text(row: Row, tokenizer: Any) -> str:
    return str(tokenizer.decode(row.ids, skip_special_tokens=True))[: row.cut]


def _extend(row: Row, logits: torch.Tensor, ends: set[int], tokenizer: Any) -> None:
    """Add the next token to a row, from its (V,) logits."""
    own = row.settings
    token = sample(logits, temperature=own.temperature, top_p=own.top_p, top_k=own.top_k, generator=row.generator)
    if token in ends:
        row.finished = True
        return
    row.ids.append(token)
    if row.settings.top is not None:
        row.tokens.append(_token(tokenizer, token, logits, row.settings.top))
    if row.settings.stop:
        _stop(row, tokenizer)


def _stop(row: Row, tokenizer: Any) -> None:
    """End a row at the first stop string in its text, and drop the tokens after the cut."""
    text = _text(row, tokenizer)
    row.cut = min((at for stop in row.settings.stop if (at := text.find(stop)) >= 0), default=None)
    if row.cut is not None:
        row.finished = True
        while row.ids and len(tokenizer.decode(row.ids[:-1], skip_special_tokens=True)) >= row.cut:
            row.ids.pop()
        del row.tokens[len(row.ids) :]


def _ends(model: Any) -> set[int]:
    end = model.generation_config.eos_token_id
    return set() if end is None else {end} if isinstance(end, int) else set(end)


def _token(tokenizer: Any, token: int, logits: torch.Tensor, top: int) -> Token:
    logprobs = logits.log_softmax(-1)  # (V,)
    best = torch.topk(logprobs, top)
    alternatives = tuple(
        (i, tokenizer.decode([i]), value) for i, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    )
    return Token(token, tokenizer.decode([token]), float(logprobs[token]), alternatives)
