"""Log-probabilities of token sequences under a causal model, with every shared prefix computed once.

The distinct tokens of a call form a trie (``trie.py``). They run in packs: one sequence without padding, under a tree
attention mask that lets every token attend to itself and its ancestors only.

    sequences    trie              mask of the pack   a b c d e
    a b c        a -+- b -+- c                    a   x . . . .
    a b d           |     +- d                    b   x x . . .
    a e             +- e                          c   x x x . .
                                                  d   x x . x .
                                                  e   x . . . x

Keeping a prefix and computing it once is the idea of RadixAttention (SGLang, Zheng et al. 2024). Attending to it once
for all queries is that of Hydragen (Juravsky et al. 2024) and cascade attention (FlashInfer, Ye et al. 2025).

Only positions whose logits are needed go through the output layer, and log-softmax is taken in float32. An answer
depends on the batch only by the rounding of the model's dtype. Whether a model computes the same answers in packs is
tested when it is loaded; one that does not runs every text by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from evalbias.lm.head import Head, decoder
from evalbias.lm.kv_cache import Context, PackCache
from evalbias.lm.layer_masks import LayerKinds, layer_masks, narrowed
from evalbias.lm.prefix_cache import PrefixStore
from evalbias.lm.tokens import Scored, check_lengths
from evalbias.lm.tree_attention import cascade_attention, install, uninstall
from evalbias.lm.trie import Ids, Pack, packs, shared
from evalbias.measures.arrays import FloatArray

MAX_LOGITS = 1 << 26
"""Number of logits in memory at once, 256 MiB in float32; all positions of a large vocabulary would take far more."""

SMALLEST_PACK = 256
"""Lower limit of a pack's size in tokens."""

PROBE_TOKENS = 300
"""Tokens in a pack of the probe texts, which test whether a model can run packs."""

PROBE_WINDOW = 24
"""Width in tokens of sliding windows while a model is tried, less than the probe texts' length."""

AGREEMENT = {torch.float32: 1e-3, torch.float64: 1e-3}
AGREEMENT_16_BIT = 0.1
"""Largest mean difference in nats, due to rounding, between a text in a pack and by itself."""

COUNTS_PLACES = ("window_size", "attn_temperature_tuning")
"""Settings of GPT-Neo and Llama 4, whose layers count places in the pack whatever mask and positions they are given."""

Reads = dict[int, list[tuple[int, int, int]]]
"""Position -> (next token, sequence, index among its scored tokens) of every log-probability read there."""


@dataclass
class Row:
    """Tokens to run, and the log-probabilities to read at their positions."""

    ids: Ids
    reads: Reads = field(default_factory=dict)


class Scorer:
    """Scores token sequences with one model.

    Args:
        model: A causal transformers model in evaluation mode.
        context: Context length of the model in tokens.
        batch_tokens: Largest number of tokens in one forward pass, padding included.
        share: Whether to compute shared prefixes once if the model allows it. Answers are equal up to rounding.
        prefix_bytes: Memory in bytes for keys and values that are kept between calls.

    Attributes:
        tokens_run: Number of tokens that went through the model so far, padding included.
        tokens_distinct: Number of distinct tokens of the calls so far: the nodes of their tries.
        prefixes: Prefix cache, kept between calls.
    """

    def __init__(
        self, model: Any, *, context: int, batch_tokens: int, share: bool = True, prefix_bytes: int = 0
    ) -> None:
        self.model = model
        self.context = context
        self.batch_tokens = batch_tokens
        self.tokens_run = 0
        self.tokens_distinct = 0
        self.prefixes = PrefixStore(prefix_bytes)
        self._decoder = decoder(model)
        self._head = Head(model)
        self._config = model.config.get_text_config()
        self._kinds = LayerKinds.of(self._config)
        self._longest = _longest_packed(self._config)
        self._pack_tokens = _pack_tokens(model)
        self._cascade = False
        self._told = False  # whether the log says that some texts are too long to share
        self.share = share and self._can_pack()

    def __call__(self, sequences: Sequence[Scored]) -> list[FloatArray]:
        """Return the log-probability of every scored token, one array per sequence.

        Raises:
            PromptTooLong: A sequence is longer than the model's context.
            FloatingPointError: The model returned NaN or infinite logits for a sequence.
        """
        check_lengths(sequences, self.context, whose="model")
        logprobs = [np.full(len(s.ids) - s.start, np.nan) for s in sequences]
        rows = _rows(sequences)
        self.tokens_distinct += sum(len(row.ids) - length for row, length in zip(rows, _shared(rows), strict=True))
        with torch.inference_mode():
            while rows and not self._fits(rows, logprobs):
                torch.cuda.empty_cache()
                self.batch_tokens = max(1, self._most_tokens // 2)
                rows = [
                    row
                    for row in rows
                    if any(np.isnan(logprobs[s][place]) for read in row.reads.values() for _, s, place in read)
                ]
        return logprobs

    def _fits(self, rows: Sequence[Row], logprobs: list[FloatArray]) -> bool:
        """Score rows and return whether memory sufficed; on return, the memory of a failed attempt is free."""
        short = [row for row in rows if len(row.ids) <= self._longest]
        try:
            (self._packed if self.share else self._padded)(short, logprobs)
            self._padded(self._overlong(rows), logprobs)
        except torch.OutOfMemoryError:
            if self._most_tokens == 1:
                raise
            return False
        return True

    def _overlong(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that are too long to run in packs, and log the first time that there are any."""
        overlong = [row for row in rows if len(row.ids) > self._longest]
        if overlong and self.share and not self._told:
            self._told = True
            _warn_unshared(
                f"those of more than {self._longest} tokens have other positions (longrope)",
                "Some texts run by themselves",
            )
        return overlong

    @property
    def _most_tokens(self) -> int:
        """Largest number of tokens in a forward pass."""
        return min(self.batch_tokens, self._pack_tokens) if self.share else self.batch_tokens

    def _packed(self, rows: Sequence[Row], logprobs: list[FloatArray]) -> None:
        """Run every distinct token once."""
        ids, lengths = [row.ids for row in rows], _shared(rows)
        first = [min(row.reads) for row in rows]
        stored = self.prefixes.lookup(ids, lengths, first)
        walk = packs(
            ids,
            lengths,
            [list(row.reads) for row in rows],
            self._most_tokens,
            known={row: prefix.length for row, prefix in stored.items()},
            kept=self.prefixes.worthwhile(ids, lengths, first),
        )
        extended = Context([], [])
        for pack in walk:
            before = extended if pack.known is None else Context(stored[pack.known].layers(), [])
            hidden, extended = self._run(pack, before)
            self._read(hidden, _reads(pack, rows), logprobs)
            for row, path in pack.paths.items():
                self.prefixes.put(ids[row][: len(path)], extended, path)

    def _run(self, pack: Pack, before: Context) -> tuple[torch.Tensor, Context]:
        """Return the (n, d) hidden states of a pack, and its context extended by its own keys and values."""
        n, c, device = len(pack.ids), len(pack.source), self.model.device
        # 1. The context's first tokens that the whole pack attends to are the shared prefix.
        partly_visible = np.flatnonzero(pack.ends[:c] < n)
        prefix_length = int(partly_visible[0]) if len(partly_visible) else c
        context = before.at(pack.source, prefix_length)
        # 2. The tree mask of each kind of layer.
        assert self._kinds is not None  # checked by ``_can_pack``
        like = torch.empty(0, dtype=self.model.dtype, device=device)
        masks = layer_masks(self._kinds, pack, prefix_length, cascade=self._cascade, like=like)
        layers = [masks[kind] for kind in self._kinds.layers]
        given = {kind: layer.mask for kind, layer in masks.items()}
        # 3. One forward pass over the pack.
        cache = PackCache(context, [layer.first for layer in layers])
        self.tokens_run += n
        with cascade_attention(context.prefix, layers):
            hidden = self._decoder(
                input_ids=torch.from_numpy(pack.ids).to(device)[None],
                attention_mask=given if len(given) > 1 else layers[0].mask,
                position_ids=torch.from_numpy(pack.positions).to(device)[None],
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state  # (1, n, d)
        return hidden[0], cache.extended()

    def _padded(self, rows: Sequence[Row], logprobs: list[FloatArray]) -> None:
        """Run every row by itself, in batches of similar length."""
        rows = sorted(rows, key=lambda row: len(row.ids))
        start = 0
        while start < len(rows):
            end = start + 1
            while end < len(rows) and (end + 1 - start) * len(rows[end].ids) <= self.batch_tokens:
                end += 1
            self._batch(rows[start:end], logprobs)
            start = end

    def _batch(self, rows: Sequence[Row], logprobs: list[FloatArray]) -> None:
        """Run rows padded on the right, where causal attention never looks."""
        width, device = max(len(row.ids) for row in rows), self.model.device
        ids = torch.zeros(len(rows), width, dtype=torch.long)  # (b, T)
        mask = torch.zeros(len(rows), width, dtype=torch.long)  # (b, T)
        for index, row in enumerate(rows):
            ids[index, : len(row.ids)] = torch.from_numpy(row.ids)
            mask[index, : len(row.ids)] = 1
        self.tokens_run += len(rows) * width
        hidden = self._decoder(
            input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False
        ).last_hidden_state  # (b, T, d)
        reads = {
            index * width + position: read for index, row in enumerate(rows) for position, read in row.reads.items()
        }
        self._read(hidden.flatten(0, 1), reads, logprobs)

    def _read(self, hidden: torch.Tensor, reads: Reads, logprobs: list[FloatArray]) -> None:
        """Read log-probabilities off (m, d) hidden states."""
        places = list(reads)
        step = max(1, MAX_LOGITS // self._config.vocab_size)
        for start in range(0, len(places), step):
            part = places[start : start + step]
            logits = self._head(hidden[torch.tensor(part, device=hidden.device)])  # (p, V)
            targets = [(row, *read) for row, place in enumerate(part) for read in reads[place]]
            finite = torch.isfinite(logits).all(dim=1)  # (p,)
            if not bool(finite.all()):
                bad = int((~finite).nonzero()[0])
                item = next(sequence for row, _, sequence, _ in targets if row == bad)
                raise FloatingPointError(
                    f"The model returned NaN or infinite logits for item {item}: try dtype='float32'."
                )
            index = torch.tensor([[row, token] for row, token, _, _ in targets], device=hidden.device)  # (t, 2)
            values = logits[index[:, 0], index[:, 1]] - logits.logsumexp(dim=-1)[index[:, 0]]  # (t,)
            for value, (_, _, sequence, place) in zip(values.cpu().double().numpy(), targets, strict=True):
                logprobs[sequence][place] = value

    def _can_pack(self) -> bool:
        """Return whether the model computes the same answers in packs: some ignore a given mask or position.

        Cascade attention is tried first; a model that cannot use it is tried with its own attention.
        """
        if any(getattr(self._config, name, None) for name in COUNTS_PLACES):
            _warn_unshared("its layers count places")
            return False
        if self._kinds is None:
            _warn_unshared(f"it has layers of the kinds {sorted(set(self._config.layer_types))}")
            return False
        probe = _probe(self._config.vocab_size, int(min(self.context, self._longest)))
        reason: object = ""
        for cascade in (True, False) if install(self.model) else (False,):
            self._cascade = cascade
            if not cascade:
                uninstall(self.model)
            try:
                with narrowed(self.model, PROBE_WINDOW):
                    difference = self._pack_difference(probe)
            except Exception as error:  # any model's own code: what fails in packs is run by itself
                reason = f"{type(error).__name__}: {error}"
                continue
            if difference <= AGREEMENT.get(self.model.dtype, AGREEMENT_16_BIT):
                return True
            reason = f"its answers in packs differ by {difference:.2g} nats"
        _warn_unshared(reason)
        return False

    def _pack_difference(self, probe: Sequence[Scored]) -> float:
        """Return the mean difference in nats between rows by themselves and in packs, one pack or several."""
        rows, own, runs = _rows(probe), self._pack_tokens, []
        self.share = True
        with torch.inference_mode():
            for run, size in (
                (self._padded, own),
                (self._packed, PROBE_TOKENS),
                (self._packed, PROBE_TOKENS // 3),  # packs that cut texts
            ):
                logprobs = [np.full(len(s.ids) - s.start, np.nan) for s in probe]
                self._pack_tokens = size
                run(rows, logprobs)
                runs.append(np.concatenate(logprobs))
        self._pack_tokens, self.tokens_run = own, 0
        self.prefixes.clear()
        return max(float(np.abs(runs[0] - run).mean()) for run in runs[1:])


def _probe(vocabulary: int, longest: int) -> list[Scored]:
    """Return texts with a common prefix, so long that the last one of a pack stands far from its own prefix."""
    rng, own = np.random.default_rng(0), max(2, min(64, longest - 40))
    trunk = tuple(rng.integers(0, vocabulary, min(40, longest - own)).tolist())
    return [Scored((*trunk, *rng.integers(0, vocabulary, own).tolist()), len(trunk)) for _ in range(4)]


def _warn_unshared(reason: object, what: str = "This model runs every text by itself") -> None:
    logging.getLogger(__name__).warning("%s, without sharing prefixes: %s.", what, reason)


def _rows(sequences: Sequence[Scored]) -> list[Row]:
    """Return each distinct token sequence once, sorted and without its last token, which is only a target."""
    rows: dict[bytes, Row] = {}
    for number, sequence in enumerate(sequences):
        ids = np.array(sequence.ids[:-1], dtype=np.int64)
        row = rows.setdefault(_sort_key(ids), Row(ids))
        for position in range(sequence.start, len(sequence.ids)):
            read = (sequence.ids[position], number, position - sequence.start)
            row.reads.setdefault(position - 1, []).append(read)
    return [rows[key] for key in sorted(rows)]


def _sort_key(ids: Ids) -> bytes:
    """Return bytes that sort as the tokens do."""
    return ids.astype(">u4").tobytes()


def _shared(rows: Sequence[Row]) -> list[int]:
    return shared([row.ids for row in rows])


def _reads(pack: Pack, rows: Sequence[Row]) -> Reads:
    """Return the log-probabilities to read at a pack's places."""
    reads: Reads = {}
    for place, row, position in pack.reads:
        reads.setdefault(place, []).extend(rows[row].reads[position])
    return reads


def _longest_packed(config: Any) -> float:
    """Return the length in tokens of the longest row that may run in a pack.

    "longrope" changes the positions of all tokens once a text exceeds the original context length.
    """
    ropes = getattr(config, "rope_parameters", None) or {}
    limits = []
    for rope in [ropes, *ropes.values()]:  # of the model, or of each layer type
        if isinstance(rope, dict) and rope.get("rope_type") == "longrope":
            original = getattr(config, "original_max_position_embeddings", None)
            limits.append(rope.get("original_max_position_embeddings", original))
    return min((int(limit) for limit in limits if limit), default=float("inf"))


def _pack_tokens(model: Any) -> int:
    """Return the pack size at which masked attention, which is wasted, costs an eighth of the other computation."""
    config = model.config.get_text_config()
    weights = sum(p.numel() for p in decoder(model).parameters()) - model.get_input_embeddings().weight.numel()
    return max(SMALLEST_PACK, int(weights / (8 * config.hidden_size * config.num_hidden_layers)))
