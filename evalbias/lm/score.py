"""Log-probabilities of token sequences under a causal model, computed once for what the sequences share.

Rows that begin alike run their common prefix once; its keys and values are repeated for every batch of what remains.
Only the positions that are read become logits, and log-softmax is taken in float32. An answer does not depend on the
batch: padding stands on the right, where causal attention never looks.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from evalbias.lm.tokens import Ids, PromptTooLong, Scored, common_prefix
from evalbias.lm.types import FloatArray

MIN_SHARED = 8
"""A shorter prefix is not worth a forward pass of its own."""

LOGITS = 1 << 26
"""Logits in memory at once, 256 MiB in float32: a large vocabulary times every token that is read would be far more."""


@dataclass
class Row:
    """Tokens to run, and what is read off them: (position, next token, sequence, place in it)."""

    ids: Ids
    reads: list[tuple[int, int, int, int]] = field(default_factory=list)


class Scorer:
    """Scores token sequences with one model.

    Args:
        model: A causal model of transformers in evaluation mode.
        context: Its context length in tokens.
        batch_tokens: Tokens, shared prefix and padding included, in one forward pass.
        share: Whether common prefixes are shared; the answers are the same.

    Attributes:
        tokens_run: Tokens that went through the model so far, padding included.
    """

    def __init__(self, model: Any, *, context: int, batch_tokens: int, share: bool = True) -> None:
        self.model = model
        self.context = context
        self.batch_tokens = batch_tokens
        self.share = share
        self.tokens_run = 0

    def __call__(self, sequences: Sequence[Scored]) -> list[FloatArray]:
        """Log-probability of every scored token, one array a sequence.

        Raises:
            PromptTooLong: A sequence exceeds the context.
            FloatingPointError: The model gave NaN or infinite logits for a sequence.
        """
        for number, sequence in enumerate(sequences):
            if len(sequence.ids) > self.context:
                raise PromptTooLong(
                    f"Text {number} of the call has {len(sequence.ids)} tokens, the model's context {self.context}: "
                    "shorten it or show fewer demonstrations; it is never cut."
                )
        found = [np.full(len(s.ids) - s.start, np.nan) for s in sequences]
        rows = sorted(_rows(sequences), key=lambda row: (len(row.ids), row.ids))
        if not rows:
            return found
        with torch.inference_mode():
            shared = self._shared(rows)
            prefix = self._prefix(rows[0].ids[:shared]) if shared else None
            self._run(rows, shared, prefix, found)
        return found

    def _shared(self, rows: Sequence[Row]) -> int:
        if not self.share or len(rows) < 2:
            return 0
        read = min(position for row in rows for position, *_ in row.reads)
        shared = min(common_prefix([row.ids for row in rows]), read)
        return shared if shared >= MIN_SHARED else 0

    def _prefix(self, ids: Ids) -> Any:
        self.tokens_run += len(ids)
        return self.model.base_model(input_ids=self._tensor([ids]), use_cache=True).past_key_values

    def _run(self, rows: Sequence[Row], shared: int, prefix: Any, found: list[FloatArray]) -> None:
        start = 0
        while start < len(rows):
            end = start + 1
            while end < len(rows) and (end + 1 - start) * len(rows[end].ids) <= self.batch_tokens:
                end += 1
            self._halving(rows[start:end], shared, prefix, found)
            start = end

    def _halving(self, rows: Sequence[Row], shared: int, prefix: Any, found: list[FloatArray]) -> None:
        """Run a batch; where memory does not suffice, its halves."""
        if self._fits(rows, shared, prefix, found):
            return
        torch.cuda.empty_cache()
        middle = len(rows) // 2
        self.batch_tokens = max(1, self.batch_tokens // 2)
        self._halving(rows[:middle], shared, prefix, found)
        self._halving(rows[middle:], shared, prefix, found)

    def _fits(self, rows: Sequence[Row], shared: int, prefix: Any, found: list[FloatArray]) -> bool:
        """Whether the batch ran; once this returns, nothing holds the memory of one that did not."""
        try:
            self._batch(rows, shared, prefix, found)
        except torch.OutOfMemoryError:
            if len(rows) == 1:
                raise
            return False
        return True

    def _batch(self, rows: Sequence[Row], shared: int, prefix: Any, found: list[FloatArray]) -> None:
        width = max(len(row.ids) for row in rows)
        pad = [(*row.ids[shared:], *([0] * (width - len(row.ids)))) for row in rows]
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        for index, row in enumerate(rows):
            mask[index, : len(row.ids)] = 1
        cache = None
        if prefix is not None:
            cache = copy.deepcopy(prefix)
            cache.batch_repeat_interleave(len(rows))
        self.tokens_run += len(rows) * (width - shared)
        hidden = self.model.base_model(
            input_ids=self._tensor(pad),  # (b, width - shared)
            attention_mask=mask.to(self.model.device),  # (b, width)
            position_ids=torch.arange(shared, width, device=self.model.device)[None].expand(len(rows), -1),
            past_key_values=cache,
            use_cache=cache is not None,
        ).last_hidden_state  # (b, width - shared, d)
        self._read(rows, hidden, shared, found)

    def _read(self, rows: Sequence[Row], hidden: torch.Tensor, shared: int, found: list[FloatArray]) -> None:
        wanted: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for index, row in enumerate(rows):
            for position, *read in row.reads:
                wanted.setdefault((index, position - shared), []).append((read[0], read[1], read[2]))
        head, places = self.model.get_output_embeddings(), list(wanted)
        size = max(1, LOGITS // self.model.config.vocab_size)
        for start in range(0, len(places), size):
            part = places[start : start + size]
            where = torch.tensor(part, device=hidden.device)
            logits = head(hidden[where[:, 0], where[:, 1]]).float()  # (m, V)
            reads = [(at, *read) for at, place in enumerate(part) for read in wanted[place]]
            finite = torch.isfinite(logits).all(dim=1)
            if not bool(finite.all()):
                bad = int((~finite).nonzero()[0])
                item = next(sequence for at, _, sequence, _ in reads if at == bad)
                raise FloatingPointError(f"The model gave NaN or infinite logits for item {item}: try dtype='float32'.")
            told = torch.tensor([[at, target] for at, target, _, _ in reads], device=hidden.device)
            values = (logits[told[:, 0], told[:, 1]] - logits.logsumexp(dim=-1)[told[:, 0]]).cpu().double().numpy()
            for value, (_, _, sequence, place) in zip(values, reads, strict=True):
                found[sequence][place] = value

    def _tensor(self, rows: Sequence[Ids]) -> torch.Tensor:
        return torch.tensor(rows, dtype=torch.long, device=self.model.device)


def _rows(sequences: Sequence[Scored]) -> list[Row]:
    """Each distinct token sequence once: the last scored token is read, never run."""
    rows: dict[Ids, Row] = {}
    for number, sequence in enumerate(sequences):
        row = rows.setdefault(sequence.ids[:-1], Row(sequence.ids[:-1]))
        for position in range(sequence.start, len(sequence.ids)):
            row.reads.append((position - 1, sequence.ids[position], number, position - sequence.start))
    return list(rows.values())
