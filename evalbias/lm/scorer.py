"""Log-probabilities of token sequences under a causal model, computed once for what the sequences share.

The distinct tokens of a call form a trie. They run in packs (``evalbias.lm.trie``): one sequence without padding, in
which a mask lets every token see its own ancestors and nothing else. Only the positions that are read become logits,
and log-softmax is taken in float32. An answer does not depend on the batch, beyond the rounding of the model's dtype. A
model that cannot be given packs is found out when it is loaded, and runs every text by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from evalbias.lm.kv_cache import Context, PackCache
from evalbias.lm.prefix_cache import PrefixStore
from evalbias.lm.tokens import Scored, check_lengths
from evalbias.lm.tree_attention import attending, prepare, restore
from evalbias.lm.trie import Ids, Pack, packs, shared
from evalbias.lm.types import FloatArray

LOGITS = 1 << 26
"""Logits in memory at once, 256 MiB in float32: a large vocabulary times every token that is read would be far more."""

SMALLEST_PACK = 256

PROBE = 300
"""Tokens of the texts that tell whether a model can be given packs."""

AGREE = {torch.float32: 1e-3, torch.float64: 1e-3}
AGREE_IN_16_BITS = 0.1
"""Nats by which they may differ on average: rounding, and no more."""

OWN_WINDOW = "window_size"
"""GPT-Neo's: it counts places in the pack, whatever mask it is given."""

Reads = dict[int, list[tuple[int, int, int]]]
"""Place of a token that is read -> (next token, sequence, place in it) of everything read there."""


@dataclass
class Row:
    """Tokens to run, and what is read off them, by position."""

    ids: Ids
    reads: Reads = field(default_factory=dict)


class Scorer:
    """Scores token sequences with one model.

    Args:
        model: A causal model of transformers in evaluation mode.
        context: Its context length in tokens.
        batch_tokens: Tokens, padding included, in one forward pass.
        share: Whether what sequences share is run once, where the model can; the answers are the same but for rounding.
        prefix_bytes: Of keys and values that are kept from call to call.

    Attributes:
        tokens_run: Tokens that went through the model so far, padding included.
        tokens_distinct: Distinct tokens of the calls so far: the nodes of their tries.
        prefixes: What is kept from call to call.
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
        self._limit = _limit(model.config)
        self._pack_tokens = _pack_tokens(model)
        self._split = False
        self.share = share and self._packs_agree()

    def __call__(self, sequences: Sequence[Scored]) -> list[FloatArray]:
        """Log-probability of every scored token, one array a sequence.

        Raises:
            PromptTooLong: A sequence exceeds the context.
            FloatingPointError: The model gave NaN or infinite logits for a sequence.
        """
        check_lengths(sequences, self.context, whose="model")
        found = [np.full(len(s.ids) - s.start, np.nan) for s in sequences]
        rows = _rows(sequences)
        self.tokens_distinct += sum(len(row.ids) - length for row, length in zip(rows, _shared(rows), strict=True))
        with torch.inference_mode():
            while rows and not self._fits(rows, found):
                torch.cuda.empty_cache()
                self.batch_tokens = max(1, self._most // 2)
                rows = [
                    row
                    for row in rows
                    if any(np.isnan(found[s][place]) for read in row.reads.values() for _, s, place in read)
                ]
        return found

    def _fits(self, rows: Sequence[Row], found: list[FloatArray]) -> bool:
        """Whether memory sufficed; once this returns, nothing holds the memory of what did not fit."""
        short = [row for row in rows if len(row.ids) <= self._limit]
        try:
            (self._packed if self.share else self._padded)(short, found)
            self._padded([row for row in rows if len(row.ids) > self._limit], found)
        except torch.OutOfMemoryError:
            if self._most == 1:
                raise
            return False
        return True

    @property
    def _most(self) -> int:
        """Tokens of a forward pass at most."""
        return min(self.batch_tokens, self._pack_tokens) if self.share else self.batch_tokens

    def _packed(self, rows: Sequence[Row], found: list[FloatArray]) -> None:
        """Run every distinct token once."""
        ids, lengths = [row.ids for row in rows], _shared(rows)
        first = [min(row.reads) for row in rows]
        known = self.prefixes.known(ids, lengths, first)
        walk = packs(
            ids,
            lengths,
            [list(row.reads) for row in rows],
            self._most,
            known={row: prefix.length for row, prefix in known.items()},
            kept=self.prefixes.wanted(ids, lengths, first),
        )
        left = Context([], [])
        for pack in walk:
            before = left if pack.known is None else Context(known[pack.known].layers(), [])
            hidden, left = self._run(pack, before)
            self._read(hidden, _reads(pack, rows), found)
            for row, path in pack.paths.items():
                self.prefixes.put(ids[row][: len(path)], left, path)

    def _run(self, pack: Pack, before: Context) -> tuple[torch.Tensor, Context]:
        """The (n, d) hidden states of a pack, and the keys and values of its context and itself."""
        n, c, device = len(pack.ids), len(pack.source), self.model.device
        partly = np.flatnonzero(pack.ends[:c] < n)
        seen_by_all = int(partly[0]) if len(partly) else c
        context = before.at(pack.source, seen_by_all)
        cache = PackCache(context, whole=not self._split)
        masked = seen_by_all if self._split else 0  # columns that need no mask
        ends = torch.from_numpy(pack.ends[masked:]).to(device)
        place = torch.arange(masked - c, n, device=device)
        hidden_from = (place[None, :] > place[-n:, None]) | (place[-n:, None] >= ends[None, :])  # (n, c + n - masked)
        mask = torch.zeros(hidden_from.shape, dtype=self.model.dtype, device=device)
        mask.masked_fill_(hidden_from, torch.finfo(mask.dtype).min)  # as numbers: no layer has to turn it into them
        self.tokens_run += n
        with attending(pack, context.far):
            hidden = self.model.base_model(
                input_ids=torch.from_numpy(pack.ids).to(device)[None],
                attention_mask=mask[None, None],
                position_ids=torch.from_numpy(pack.positions).to(device)[None],
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state
        return hidden[0], cache.left()

    def _padded(self, rows: Sequence[Row], found: list[FloatArray]) -> None:
        """Run every row by itself, in batches of like length."""
        rows = sorted(rows, key=lambda row: len(row.ids))
        start = 0
        while start < len(rows):
            end = start + 1
            while end < len(rows) and (end + 1 - start) * len(rows[end].ids) <= self.batch_tokens:
                end += 1
            self._batch(rows[start:end], found)
            start = end

    def _batch(self, rows: Sequence[Row], found: list[FloatArray]) -> None:
        """Padding stands on the right, where causal attention never looks."""
        width, device = max(len(row.ids) for row in rows), self.model.device
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        for index, row in enumerate(rows):
            ids[index, : len(row.ids)] = torch.from_numpy(row.ids)
            mask[index, : len(row.ids)] = 1
        self.tokens_run += len(rows) * width
        hidden = self.model.base_model(
            input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False
        ).last_hidden_state  # (b, width, d)
        reads = {
            index * width + position: read for index, row in enumerate(rows) for position, read in row.reads.items()
        }
        self._read(hidden.flatten(0, 1), reads, found)

    def _read(self, hidden: torch.Tensor, reads: Reads, found: list[FloatArray]) -> None:
        """Log-probabilities off (m, d) hidden states."""
        head, places = self.model.get_output_embeddings(), list(reads)
        step = max(1, LOGITS // self.model.config.vocab_size)
        for start in range(0, len(places), step):
            part = places[start : start + step]
            logits = head(hidden[torch.tensor(part, device=hidden.device)]).float()  # (m, V)
            told = [(row, *read) for row, place in enumerate(part) for read in reads[place]]
            finite = torch.isfinite(logits).all(dim=1)
            if not bool(finite.all()):
                bad = int((~finite).nonzero()[0])
                item = next(sequence for row, _, sequence, _ in told if row == bad)
                raise FloatingPointError(f"The model gave NaN or infinite logits for item {item}: try dtype='float32'.")
            where = torch.tensor([[row, token] for row, token, _, _ in told], device=hidden.device)
            values = (logits[where[:, 0], where[:, 1]] - logits.logsumexp(dim=-1)[where[:, 0]]).cpu().double().numpy()
            for value, (_, _, sequence, place) in zip(values, told, strict=True):
                found[sequence][place] = value

    def _packs_agree(self) -> bool:
        """Whether this model answers in packs as by itself: some ignore a given mask, or count places on their own.

        A model that does not attend as ``attention.py`` does is tried with its own attention.
        """
        if hasattr(self.model.config, OWN_WINDOW):
            _unshared("its attention has a window of its own")
            return False
        probe = _probe(self.model.config.vocab_size, int(min(self.context, self._limit)))
        reason: object = ""
        for split in (True, False) if prepare(self.model) else (False,):
            self._split = split
            if not split:
                restore(self.model)
            try:
                far = self._farthest(probe)
            except Exception as error:  # any model's own code: what fails in packs is run by itself
                reason = f"{type(error).__name__}: {error}"
                continue
            if far <= AGREE.get(self.model.dtype, AGREE_IN_16_BITS):
                return True
            reason = f"its answers in packs differ by {far:.2g} nats"
        _unshared(reason)
        return False

    def _farthest(self, probe: Sequence[Scored]) -> float:
        """Mean difference in nats between rows by themselves and in packs, of one pack and of packs that cut texts."""
        rows, own, runs = _rows(probe), self._pack_tokens, []
        self.share = True
        with torch.inference_mode():
            for run, size in ((self._padded, own), (self._packed, PROBE), (self._packed, PROBE // 3)):
                found = [np.full(len(s.ids) - s.start, np.nan) for s in probe]
                self._pack_tokens = size
                run(rows, found)
                runs.append(np.concatenate(found))
        self._pack_tokens, self.tokens_run = own, 0
        self.prefixes.clear()
        return max(float(np.abs(runs[0] - run).mean()) for run in runs[1:])


def _probe(vocabulary: int, longest: int) -> list[Scored]:
    """Texts that begin alike, so long that the last of a pack stands far from its own beginning."""
    rng, own = np.random.default_rng(0), max(2, min(64, longest - 40))
    trunk = tuple(rng.integers(0, vocabulary, min(40, longest - own)).tolist())
    return [Scored((*trunk, *rng.integers(0, vocabulary, own).tolist()), len(trunk)) for _ in range(4)]


def _unshared(reason: object) -> None:
    logging.getLogger(__name__).warning("This model shares no prefixes: %s.", reason)


def _rows(sequences: Sequence[Scored]) -> list[Row]:
    """Each distinct token sequence once, sorted: the last scored token is read, never run."""
    rows: dict[bytes, Row] = {}
    for number, sequence in enumerate(sequences):
        ids = np.array(sequence.ids[:-1], dtype=np.int64)
        row = rows.setdefault(_sortable(ids), Row(ids))
        for position in range(sequence.start, len(sequence.ids)):
            read = (sequence.ids[position], number, position - sequence.start)
            row.reads.setdefault(position - 1, []).append(read)
    return [rows[key] for key in sorted(rows)]


def _sortable(ids: Ids) -> bytes:
    """What sorts rows by their tokens."""
    return ids.astype(">u4").tobytes()


def _shared(rows: Sequence[Row]) -> list[int]:
    return shared([row.ids for row in rows])


def _reads(pack: Pack, rows: Sequence[Row]) -> Reads:
    """What is read off a pack's tokens."""
    reads: Reads = {}
    for place, row, position in pack.reads:
        reads.setdefault(place, []).extend(rows[row].reads[position])
    return reads


def _limit(config: Any) -> float:
    """Tokens of the longest row that is run with others in packs, and never together with longer ones.

    Longer ones need the model's own masks, where not every layer sees every token, or are placed in another way: by
    "longrope" all tokens of a text are, once it is longer than the model was first trained on.
    """
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    if getattr(config, "use_sliding_window", True) is False:
        windows = []
    ropes = getattr(config, "rope_parameters", None) or {}
    for rope in [ropes, *ropes.values()]:  # of the model, or of each type of its layers
        if isinstance(rope, dict) and rope.get("rope_type") == "longrope":
            before = getattr(config, "original_max_position_embeddings", None)
            windows.append(rope.get("original_max_position_embeddings", before))
    return min((int(window) for window in windows if window), default=float("inf"))


def _pack_tokens(model: Any) -> int:
    """Tokens in a pack, such that attention to those that see nothing of each other costs an eighth of the rest."""
    config = model.config
    weights = sum(p.numel() for p in model.base_model.parameters()) - model.get_input_embeddings().weight.numel()
    return max(SMALLEST_PACK, int(weights / (8 * config.hidden_size * config.num_hidden_layers)))
