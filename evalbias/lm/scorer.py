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
tested when it is loaded. One that does not runs shared trunks once within a call (``branches.py``) or, if its state
cannot be repeated either, every text by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch

from evalbias.lm.branches import run as run_branches
from evalbias.lm.head import decoder
from evalbias.lm.kv_cache import Context, PackCache
from evalbias.lm.layer_masks import LayerKinds, layer_masks
from evalbias.lm.pack_limits import bucket, known_obstacle, longest_packed, pack_tokens
from evalbias.lm.passed_checks import PassedChecks
from evalbias.lm.prefix_cache import PrefixStore
from evalbias.lm.readout import Read, Readout
from evalbias.lm.rows import Row, pack_reads, padded, rows_of, shared_lengths, stretch_reads
from evalbias.lm.tokens import Scored, check_lengths
from evalbias.lm.transfer import sent
from evalbias.lm.tree_attention import install, tree_attention, uninstall
from evalbias.lm.trial import PACK_SIZES, Run, disagreement
from evalbias.lm.trie import Pack, packs
from evalbias.measures.arrays import FloatArray
from evalbias.runs.visible import get_logger


class Scorer:
    """Scores token sequences with one model.

    Args:
        model: A causal transformers model in evaluation mode.
        context: Context length of the model in tokens.
        batch_tokens: Largest number of tokens in one forward pass, padding included.
        share: Whether to compute shared prefixes once if the model allows it. Answers are equal up to rounding.
        prefix_bytes: Memory in bytes for keys and values that are kept between calls.
        passed: Checks that the model has passed before and that are not run again. None runs all.

    Attributes:
        tokens_run: Number of tokens that went through the model so far, padding included.
        tokens_distinct: Number of distinct tokens of the calls so far: the nodes of their tries.
        prefixes: Prefix cache, kept between calls.
        share: Whether texts run in packs.
    """

    def __init__(
        self,
        model: Any,
        *,
        context: int,
        batch_tokens: int,
        share: bool = True,
        prefix_bytes: int = 0,
        passed: PassedChecks | None = None,
    ) -> None:
        self.model = model
        self.context = context
        self.batch_tokens = batch_tokens
        self.tokens_run = 0
        self.tokens_distinct = 0
        self.prefixes = PrefixStore(prefix_bytes)
        self._decoder = decoder(model)
        self._readout = Readout(model)
        self._config = model.config.get_text_config()
        self._kinds = LayerKinds.of(self._config)
        self._longest = longest_packed(self._config)
        self._cascade = False
        self._pack_tokens = pack_tokens(model, tiles=False)
        self._padded_packs = False  # whether packs have few lengths, for which kernels are compiled
        self._told = False  # whether the log says that some texts are too long to share
        self._branches = False
        self._passed = passed or PassedChecks()
        obstacle = self._pack_obstacle() if share else ""
        self.share = share and not obstacle
        if obstacle:
            self._branches = self._can_branch(obstacle)
        elif self._cascade:
            self._pack_tokens = pack_tokens(model, tiles=True)

    def __call__(self, sequences: Sequence[Scored]) -> list[FloatArray]:
        """Return the log-probability of every scored token, one array per sequence.

        Raises:
            PromptTooLong: A sequence is longer than the model's context.
            FloatingPointError: The model returned NaN or infinite logits for a sequence.
        """
        check_lengths(sequences, self.context, whose="model")
        logprobs = [np.full(len(s.ids) - s.start, np.nan) for s in sequences]
        rows = rows_of(sequences)
        self.tokens_distinct += sum(
            len(row.ids) - length for row, length in zip(rows, shared_lengths(rows), strict=True)
        )
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
        run = self._packed if self.share else self._branched if self._branches else self._padded
        try:
            run(short, logprobs)
            self._padded(self._overlong(rows), logprobs)
        except torch.OutOfMemoryError:
            if self._most_tokens == 1:
                raise
            return False
        return True

    def _overlong(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that are too long to share prefixes, and log the first time that there are any."""
        overlong = [row for row in rows if len(row.ids) > self._longest]
        if overlong and (self.share or self._branches) and not self._told:
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

    def _packed(self, rows: Sequence[Row], logprobs: list[FloatArray], size: int | None = None) -> None:
        """Run every distinct token once, in packs of at most ``size`` tokens; None for the largest packs."""
        ids, lengths = [row.ids for row in rows], shared_lengths(rows)
        first = [min(row.reads) for row in rows]
        stored = self.prefixes.lookup(ids, lengths, first)
        walk = packs(
            ids,
            lengths,
            [list(row.reads) for row in rows],
            size or self._most_tokens,
            known={row: prefix.length for row, prefix in stored.items()},
            kept=self.prefixes.worthwhile(ids, lengths, first),
        )
        extended = Context([], [])
        with self._readout.into(logprobs) as read:
            for pack in walk:
                before = extended if pack.known is None else Context(stored[pack.known].layers(), [])
                hidden, extended = self._run(pack, before)
                read(hidden, pack_reads(pack, rows))
                for row, path in pack.paths.items():
                    self.prefixes.put(ids[row][: len(path)], extended, path)

    def _run(self, pack: Pack, before: Context) -> tuple[torch.Tensor, Context]:
        """Return the (n, d) hidden states of a pack, and its context extended by its own keys and values."""
        # 1. The context's first tokens that the whole pack attends to are the shared prefix.
        prefix_length, n = pack.prefix_length, len(pack.ids)
        context = before.at(pack.source, prefix_length)
        # 2. The tree mask of each kind of layer.
        assert self._kinds is not None  # checked by ``_pack_obstacle``
        pack = pack.padded(bucket(n)) if self._padded_packs else pack
        device = self.model.device
        like = torch.empty(0, dtype=self.model.dtype, device=device)
        masks = layer_masks(self._kinds, pack, prefix_length, cascade=self._cascade, like=like)
        layers = [masks[kind] for kind in self._kinds.layers]
        # Tree attention has its masks already; any mask of four dimensions keeps the model from making one.
        given = {kind: like.new_zeros(1, 1, 1, 1) if self._cascade else mask.mask for kind, mask in masks.items()}
        # 3. One forward pass over the pack.
        cache = PackCache(context, [layer.first for layer in layers])
        self.tokens_run += len(pack.ids)
        with tree_attention(context.prefix, layers) if self._cascade else nullcontext():
            hidden = self._decoder(
                input_ids=sent(pack.ids, device)[None],
                attention_mask=given if len(given) > 1 else next(iter(given.values())),
                position_ids=sent(pack.positions, device)[None],
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state  # (1, n, d)
        return hidden[0, :n], cache.extended()

    def _branched(self, rows: Sequence[Row], logprobs: list[FloatArray]) -> None:
        """Run the trunks that rows share once, and the rest of each row in batches."""
        ids, lengths = [row.ids for row in rows], shared_lengths(rows)
        with self._readout.into(logprobs) as read:
            for stretch in run_branches(self._decoder, ids, lengths, self.batch_tokens, self.model.device):
                count, width, _ = stretch.hidden.shape
                self.tokens_run += count * width
                reads = stretch_reads(stretch.rows, stretch.start, width, rows)
                read(stretch.hidden.flatten(0, 1), reads)

    def _padded(self, rows: Sequence[Row], logprobs: list[FloatArray]) -> None:
        """Run every row by itself, in batches of similar length."""
        rows = sorted(rows, key=lambda row: len(row.ids))
        start = 0
        with self._readout.into(logprobs) as read:
            while start < len(rows):
                end = start + 1
                while end < len(rows) and (end + 1 - start) * len(rows[end].ids) <= self.batch_tokens:
                    end += 1
                self._batch(rows[start:end], read)
                start = end

    def _batch(self, rows: Sequence[Row], read: Read) -> None:
        """Run rows padded on the right, where causal attention never looks."""
        (ids, mask), device = padded(rows), self.model.device  # (b, T) each
        width = ids.shape[1]
        self.tokens_run += ids.size
        hidden = self._decoder(
            input_ids=sent(ids, device), attention_mask=sent(mask, device), use_cache=False
        ).last_hidden_state  # (b, T, d)
        reads = {
            index * width + position: wanted for index, row in enumerate(rows) for position, wanted in row.reads.items()
        }
        read(hidden.flatten(0, 1), reads)

    def _pack_obstacle(self) -> str:
        """Return why the model cannot run packs, or nothing if it can: some ignore a given mask or position.

        Tree attention is tried first; a model that cannot use it is tried with its own attention under a dense mask.
        """
        if obstacle := known_obstacle(self._config):
            return obstacle
        for cascade in (True, False) if install(self.model) else (False,):
            self._cascade = cascade
            self._padded_packs = cascade and self.model.device.type == "cuda"
            if not cascade:
                uninstall(self.model)
            ways = (partial(self._packed, size=size) for size in PACK_SIZES)
            obstacle = self._tried(f"packs, tree attention {cascade}", *ways)
            if not obstacle:
                return ""
            if cascade:
                # the CPU's kernel lacks capped scores; a GPU's lacks nothing, but needs a C compiler, for example
                level = logging.INFO if self.model.device.type == "cpu" else logging.WARNING
                get_logger(__name__).log(
                    level, "Packs run under a dense mask, which is slower: in tree attention, %s.", obstacle
                )
        return f"in packs, {obstacle}"

    def _can_branch(self, obstacle: str) -> bool:
        """Return whether the model computes the same answers from a repeated state, and log what it cannot share."""
        other = self._tried("branches", self._branched)
        if other:
            _warn_unshared(f"{obstacle}; from a repeated state, {other}")
        else:
            within = "Within a call this model repeats the state after a shared prefix"
            _warn_unshared(obstacle, f"{within}; between calls it runs every text anew")
        return not other

    def _tried(self, check: str, *ways: Run) -> str:
        """Return what is wrong with the answers of some ways to run the model, or nothing."""
        if check in self._passed:
            return ""
        obstacle = disagreement(self.model, int(min(self.context, self._longest)), self._padded, ways)
        if not obstacle:
            self._passed.add(check)
        self.tokens_run = 0
        self.prefixes.clear()
        return obstacle


def _warn_unshared(reason: object, what: str = "This model runs every text by itself") -> None:
    get_logger(__name__).warning("%s, without sharing prefixes: %s.", what, reason)
