"""Generation of text: rows of a batch, their caches, and sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from evalbias.lm.head import Head, decoder
from evalbias.lm.tokens import check_length
from evalbias.lm.types import each

# KV cache for decoding: a step writes its keys and values into spare room instead of copying all earlier ones.


ROOM = 64
"""Number of steps for which a full layer makes room."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """A layer of full attention whose keys and values are views of larger buffers.

    ``DynamicLayer`` concatenates at every step, which copies the keys and values of all earlier tokens.

    Args:
        layer: Layer that holds the prompts' keys and values.
    """

    def __init__(self, layer: DynamicLayer) -> None:
        super().__init__()
        self.__dict__.update(layer.__dict__)
        self.keys: torch.Tensor
        self.values: torch.Tensor
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the keys and values of new tokens and return all: (batch, heads, tokens, head size) each."""
        start = self.keys.shape[2]
        end = start + key_states.shape[2]
        if self._buffers is None or self._buffers[0].shape[2] < end:
            self._buffers = _roomy(self.keys, end + ROOM), _roomy(self.values, end + ROOM)
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = states
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep only some rows of the batch."""
        super().batch_select_indices(indices)
        self._buffers = None


def make_growing(cache: Any) -> None:
    """Replace a cache's layers of full attention in place; sliding windows and recurrent states stay as they are."""
    if isinstance(cache, Cache):
        cache.layers = [GrowingLayer(layer) if type(layer) is DynamicLayer else layer for layer in cache.layers]


def _roomy(states: torch.Tensor, tokens: int) -> torch.Tensor:
    """Return a copy with room for ``tokens`` tokens, of which the first are set."""
    room = states.new_empty(*states.shape[:2], tokens, states.shape[3])
    room[:, :, : states.shape[2]] = states
    return room


# Sampling of a token from logits by temperature, top-k and top-p, without sorting the vocabulary.


BINS, WIDTH = 4096, 32.0
"""Number of bins of the histogram in which the nucleus ends, and their range in nats below the peak."""

SORTED = 8192
"""Largest number of tokens that are sorted without a histogram."""

ROUNDING = 1e-5
"""Largest error of a sum of probabilities in float32."""


def sample(
    logits: torch.Tensor, *, temperature: float, top_p: float, top_k: int | None, generator: torch.Generator
) -> int:
    """Return the most probable token, or a sample.

    Args:
        logits: (V,) finite logits.
        temperature: Temperature of the sample; 0 takes the most probable token.
        top_p: Probability of the nucleus: the fewest most probable tokens that together reach it.
        top_k: Number of most probable tokens from which to sample; None for all. Applies before ``top_p``.
        generator: Source of the one random number that a sample needs.

    Example:
        >>> logits = torch.log(torch.tensor([0.2, 0.5, 0.3]))
        >>> draw = torch.Generator().manual_seed(0)
        >>> {sample(logits, temperature=1.0, top_p=0.6, top_k=None, generator=draw) for _ in range(99)}
        {1, 2}
    """
    if temperature <= 0:
        return int(logits.argmax())
    scaled, tokens = (logits - logits.max()) / temperature, None  # finite peak at the smallest temperatures
    if top_k is not None and top_k < len(scaled):
        scaled, tokens = scaled.topk(max(1, top_k))
    shares = scaled.softmax(-1)
    if top_p < 1:
        nucleus = _nucleus(scaled, shares, top_p)
        shares, tokens = shares[nucleus], nucleus if tokens is None else tokens[nucleus]
    index = _draw(shares.double(), generator)
    return index if tokens is None else int(tokens[index])


def _nucleus(logits: torch.Tensor, shares: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return the indices of the nucleus among (V,) logits, of which the largest is 0, with these probabilities.

    Tokens whose probability is below (1 - top_p) / V are outside the nucleus: together they have less than 1 - top_p,
    so the others reach ``top_p``. Of most distributions this leaves few tokens to sort.
    """
    spare = float(shares.sum()) - top_p - ROUNDING
    candidates = torch.nonzero(shares >= spare / len(shares))[:, 0]
    if len(candidates) > SORTED:
        return _nucleus_by_histogram(logits, shares.double(), top_p)
    return candidates[_first(shares[candidates].double(), 0.0, top_p)]


def _nucleus_by_histogram(logits: torch.Tensor, shares: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return the indices of a nucleus of many tokens; see ``_nucleus``.

    A histogram of the logits shows where the nucleus ends, so that only the tokens of one bin are sorted.
    """
    bins = (logits * (-BINS / WIDTH)).clamp_(max=BINS - 1).int()
    mass = torch.bincount(bins, weights=shares, minlength=BINS)
    sums = mass.cumsum(0)
    last = min(int(torch.searchsorted(sums, top_p)), BINS - 1)  # the bin in which the sum reaches top_p
    edge = torch.nonzero(bins == last)[:, 0]
    edge = edge[_first(shares[edge], float(sums[last] - mass[last]), top_p)]
    return torch.cat([torch.nonzero(bins < last)[:, 0], edge])


def _first(shares: torch.Tensor, before: float, top_p: float) -> torch.Tensor:
    """Return the indices of the largest shares, at least one, that reach ``top_p`` with the probability before them."""
    ordered, order = shares.sort(descending=True, stable=True)
    return order[: max(1, int((before + ordered.cumsum(0) - ordered < top_p).sum()))]


def _draw(shares: torch.Tensor, generator: torch.Generator) -> int:
    """Return an index with probability proportional to its share."""
    sums = shares.cumsum(0)
    whole = float(sums[-1])
    point = min(float(torch.rand((), dtype=torch.float64, generator=generator)) * whole, math.nextafter(whole, 0.0))
    return int(torch.searchsorted(sums, point, right=True))


# Generation: requests in a batch, each with its own settings, and the log-probability of every sampled token.
#
# A text depends on its own prompt, settings and seed, not on the batch: prompts are padded on the left, and every row
# samples with its own generator. Of the model folder's generation settings only the end tokens apply.


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
