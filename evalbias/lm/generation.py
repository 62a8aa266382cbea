"""Generation: requests in a batch, each with its own settings, and the log-probability of every token sampled.

A text depends on its own prompt, settings and seed, not on the batch: prompts are padded on the left, and every row
draws from a generator of its own. Nothing of the model folder's generation settings applies but its end tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from evalbias.lm.tokens import PromptTooLong


@dataclass(frozen=True)
class Settings:
    """How to generate.

    Attributes:
        max_tokens: At most so many new tokens.
        temperature: 0 takes the likeliest token.
        top_p: Sample from the likeliest tokens that hold this probability.
        top_k: Sample from so many likeliest tokens; None from all.
        stop: The text ends before the first of these.
        seed: Of the sampling; where a request names none, the engine counts how often it was asked.
        top: Alternatives to report for each token; None reports no log-probabilities.
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
    """A generated token, its log-probability before temperature and truncation, and the likeliest alternatives."""

    id: int
    text: str
    logprob: float
    top: tuple[tuple[int, str, float], ...]


@dataclass(frozen=True)
class Generated:
    """A generated text of ``length`` tokens; ``finished`` unless the token limit ended it.

    ``tokens`` is empty where no log-probabilities were asked for.
    """

    text: str
    length: int
    tokens: tuple[Token, ...]
    finished: bool


@dataclass
class Row:
    """A text that grows."""

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
        """Whether no token is to follow."""
        return self.finished or len(self.ids) >= self.room


def generate(
    model: Any, tokenizer: Any, prompts: Sequence[list[int]], settings: Sequence[Settings], *, context: int
) -> list[Generated]:
    """Continue prompts of token ids, all together.

    Raises:
        PromptTooLong: A prompt leaves no room for a token.
        FloatingPointError: The model gave NaN or infinite logits.
    """
    rows = [_row(p, s, context) for p, s in zip(prompts, settings, strict=True)]
    width = max(len(row.prompt) for row in rows)
    ids = torch.tensor([[0] * (width - len(r.prompt)) + r.prompt for r in rows], device=model.device)  # (b, T)
    mask = torch.tensor([[0] * (width - len(r.prompt)) + [1] * len(r.prompt) for r in rows], device=model.device)
    running, cache, ends = rows, None, _ends(model)
    with torch.inference_mode():
        while running:
            positions = (mask.cumsum(dim=1) - 1).clamp_min(0)[:, -ids.shape[1] :]
            out = model.base_model(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
            )
            cache = out.past_key_values
            logits = model.get_output_embeddings()(out.last_hidden_state[:, -1]).float().cpu()  # (b, V)
            for row, told in zip(running, logits, strict=True):
                _extend(row, told, ends, tokenizer)
            kept = torch.tensor([i for i, row in enumerate(running) if not row.over], device=model.device)
            running = [row for row in running if not row.over]
            if running:
                cache.batch_select_indices(kept)
                mask = torch.cat([mask[kept], mask.new_ones(len(kept), 1)], dim=1)
                ids = torch.tensor([[row.ids[-1]] for row in running], device=model.device)
    return [Generated(_text(row, tokenizer), len(row.ids), tuple(row.tokens), row.finished) for row in rows]


def _row(prompt: list[int], settings: Settings, context: int) -> Row:
    if len(prompt) >= context:
        raise PromptTooLong(f"The prompt has {len(prompt)} tokens, the model's context {context}: shorten it.")
    generator = torch.Generator().manual_seed(settings.seed or 0)
    return Row(prompt, settings, min(settings.max_tokens, context - len(prompt)), generator)


def _text(row: Row, tokenizer: Any) -> str:
    return str(tokenizer.decode(row.ids, skip_special_tokens=True))[: row.cut]


def _extend(row: Row, logits: torch.Tensor, ends: set[int], tokenizer: Any) -> None:
    """Add the next token to a row, from its (V,) logits."""
    if not bool(torch.isfinite(logits).all()):
        raise FloatingPointError("The model gave NaN or infinite logits: try dtype='float32'.")
    token = _choose(logits, row.settings, row.generator)
    if token in ends:
        row.finished = True
        return
    row.ids.append(token)
    if row.settings.top is not None:
        row.tokens.append(_told(tokenizer, token, logits, row.settings.top))
    if row.settings.stop:
        _stop(row, tokenizer)


def _stop(row: Row, tokenizer: Any) -> None:
    """End a row whose text holds a stop, and drop the tokens behind the cut."""
    text = _text(row, tokenizer)
    row.cut = min((at for stop in row.settings.stop if (at := text.find(stop)) >= 0), default=None)
    if row.cut is not None:
        row.finished = True
        while row.ids and len(tokenizer.decode(row.ids[:-1], skip_special_tokens=True)) >= row.cut:
            row.ids.pop()
        del row.tokens[len(row.ids) :]


def _choose(logits: torch.Tensor, settings: Settings, generator: torch.Generator) -> int:
    """The likeliest token, or one drawn from the likeliest at a temperature."""
    if settings.temperature <= 0:
        return int(logits.argmax())
    shares, order = torch.sort((logits.double() / settings.temperature).softmax(-1), descending=True, stable=True)
    if settings.top_k:
        shares[settings.top_k :] = 0
    shares[shares.cumsum(0) - shares >= settings.top_p * shares.sum()] = 0  # what stands behind the nucleus
    return int(order[torch.multinomial(shares, 1, generator=generator)])


def _ends(model: Any) -> set[int]:
    end = model.generation_config.eos_token_id
    return set() if end is None else {end} if isinstance(end, int) else set(end)


def _told(tokenizer: Any, token: int, logits: torch.Tensor, top: int) -> Token:
    logprobs = logits.log_softmax(-1)  # (V,)
    best = torch.topk(logprobs, top)
    alternatives = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    told = tuple((i, tokenizer.decode([i]), value) for i, value in alternatives)
    return Token(token, tokenizer.decode([token]), float(logprobs[token]), told)
