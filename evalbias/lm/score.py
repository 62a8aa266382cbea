"""Scoring of packs: what fits into memory, the forward pass, and the log-probabilities that are read."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from evalbias.lm.attention import TILE, LayerKinds, install, layer_masks, narrowed, tree_attention, uninstall
from evalbias.lm.head import Head, decoder
from evalbias.lm.passed_checks import PassedChecks
from evalbias.lm.tokens import Scored, check_lengths, key_of
from evalbias.lm.tree import Context, Ids, Pack, PackCache, PrefixStore, packs, sent, shared
from evalbias.lm.tree import run as run_branches
from evalbias.measures.arrays import FloatArray
from evalbias.values import get_logger

# Limits of running texts in packs that a model's settings imply: whether at all, the longest text, the pack sizes.


SMALLEST_PACK, SMALLEST_TREE_PACK = 256, 768
"""Lower limits of a pack's size in tokens, under a dense mask and in tree attention, which skips most of what the mask
hides. Of a small model the calls of a pack cost more than its tokens."""

GPU_PACKS = (1 << 14, 1 << 16)
"""Smallest and largest size in tokens of a GPU's packs. Sizes are powers of two, so that few shapes are compiled."""

GPU_FLOPS, GPU_BANDWIDTH, GPU_LAUNCH, GPU_LAUNCHES = 6e14, 3.35e12, 4e-6, 40
"""Of an H100: 16-bit operations per second that matrix products reach, bytes per second of its memory, seconds from one
kernel's launch to the next, and kernels in a layer. The rates are assumed, not measured."""

COUNTS_PLACES = ("window_size", "attn_temperature_tuning")
"""Settings of GPT-Neo and Llama 4, whose layers count places in the pack whatever mask and positions they are given."""


def known_obstacle(config: Any) -> str:
    """Return why the settings rule packs out, or nothing; whether the answers are the same has to be tried."""
    if any(getattr(config, name, None) for name in COUNTS_PLACES):
        return "its layers count places"
    if LayerKinds.of(config) is None:
        return f"it has layers of the kinds {', '.join(sorted(set(config.layer_types)))}"
    return ""


def longest_packed(config: Any) -> float:
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


def pack_tokens(model: Any, *, tiles: bool) -> int:
    """Return the size of a model's packs in tokens.

    Where a mask hides what was computed, it is the size at which such attention costs an eighth of the other
    computation. A GPU that skips tiles takes larger packs; see ``gpu_pack_tokens``.

    Args:
        model: A causal transformers model.
        tiles: Whether the model runs in tree attention.
    """
    config = model.config.get_text_config()
    weights = sum(p.numel() for p in decoder(model).parameters()) - model.get_input_embeddings().weight.numel()
    if tiles and model.device.type == "cuda":
        return gpu_pack_tokens(weights, config.num_hidden_layers, weight_bytes=model.dtype.itemsize)
    smallest = SMALLEST_TREE_PACK if tiles else SMALLEST_PACK
    return max(smallest, int(weights / (8 * config.hidden_size * config.num_hidden_layers)))


def gpu_pack_tokens(weights: int, layers: int, *, weight_bytes: int = 2) -> int:
    """Return the pack size at which what every pack costs is a sixteenth of its tokens' matrix products on a GPU.

    A pack reads all weights once and launches the kernels of every layer, however many tokens it has. Masked attention
    does not count: a GPU skips the tiles in which nothing is attended to.

    Args:
        weights: Number of weights of the layers.
        layers: Number of layers.
        weight_bytes: Size of a weight in bytes.
    """
    fixed = weights * weight_bytes / GPU_BANDWIDTH + layers * GPU_LAUNCHES * GPU_LAUNCH  # seconds a pack
    tokens = 16 * fixed / (2 * weights / GPU_FLOPS)
    smallest, largest = GPU_PACKS
    return int(min(largest, max(smallest, 2 ** math.ceil(math.log2(tokens)))))


def bucket(tokens: int) -> int:
    """Return the length to which a GPU's pack of some tokens is padded.

    There are eight lengths from one power of two to the next, so a compiled kernel soon meets the same ones again. The
    padding is less than an eighth, or less than a tile. Full packs need none.

    Example:
        >>> bucket(1000), bucket(1100), bucket(1 << 14)
        (1024, 1152, 16384)
    """
    step = max(TILE, 1 << max(0, (tokens - 1).bit_length() - 4))
    return -(-tokens // step) * step


# Rows: the distinct token sequences of a call, and the log-probabilities to read off them.


Reads = dict[int, list[tuple[int, int, int]]]
"""Place -> (next token, sequence, index among its scored tokens) of every log-probability read there."""


@dataclass
class Row:
    """Tokens to run, and the log-probabilities to read at their positions."""

    ids: Ids
    reads: Reads = field(default_factory=dict)


def rows_of(sequences: Sequence[Scored]) -> list[Row]:
    """Return each distinct token sequence once, sorted and without its last token, which is only a target."""
    rows: dict[bytes, Row] = {}
    before, key = None, b""
    for number, sequence in enumerate(sequences):
        run = sequence.ids[:-1]
        if run != before:  # choices of one token each follow one another
            before, key = run, key_of(run)
        if key not in rows:
            rows[key] = Row(np.frombuffer(key, dtype=">u4").astype(np.int64))
        reads = rows[key].reads
        for position in range(sequence.start, len(sequence.ids)):
            read = (sequence.ids[position], number, position - sequence.start)
            reads.setdefault(position - 1, []).append(read)
    return [rows[key] for key in sorted(rows)]


def shared_lengths(rows: Sequence[Row]) -> list[int]:
    """Return the length of the prefix that each sorted row shares with the row before."""
    return shared([row.ids for row in rows])


def pack_reads(pack: Pack, rows: Sequence[Row]) -> Reads:
    """Return the log-probabilities to read at a pack's places."""
    reads: Reads = {}
    for place, row, position in pack.reads:
        reads.setdefault(place, []).extend(rows[row].reads[position])
    return reads


def stretch_reads(groups: Sequence[Sequence[int]], start: int, width: int, rows: Sequence[Row]) -> Reads:
    """Return the log-probabilities to read at the places of (b, w) tokens, flattened.

    Args:
        groups: Rows that each of the b sequences belongs to.
        start: Position of the first of the w tokens.
        width: The number w.
        rows: All rows.
    """
    reads: Reads = {}
    for index, group in enumerate(groups):
        for row in group:
            for position, read in rows[row].reads.items():
                if start <= position < start + width:
                    reads.setdefault(index * width + position - start, []).extend(read)
    return reads


def padded(rows: Sequence[Row]) -> tuple[Ids, Ids]:
    """Return the (b, T) tokens of rows, padded on the right, and the mask that is 1 at tokens."""
    width = max(len(row.ids) for row in rows)
    ids, mask = np.zeros((2, len(rows), width), dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)] = row.ids
        mask[index, : len(row.ids)] = 1
    return ids, mask


# Log-probabilities of wanted tokens, read off the hidden states of a causal model.


MAX_LOGITS = 1 << 26
"""Number of logits in memory at once, 256 MiB in float32; all positions of a large vocabulary would take far more."""

Target = tuple[int, int]
"""(sequence, index among its scored tokens) of a log-probability."""
Pending = list[tuple[torch.Tensor, list[Target]]]
"""(t,) log-probabilities on the model's device, NaN where the logits were not finite, and to whom they belong."""
Read = Callable[[torch.Tensor, Reads], None]
"""Computes the log-probabilities that are read at (m, d) hidden states."""


class Readout:
    """Output layer and log-softmax of one model, in float32, at the positions that are read.

    Log-probabilities stay on the model's device until a run is over, so that the host never waits for a pack: it
    prepares the next one while a GPU computes.

    Args:
        model: A causal transformers model.
    """

    def __init__(self, model: Any) -> None:
        self._head = Head(model)
        self._vocabulary = model.config.get_text_config().vocab_size

    @contextmanager
    def into(self, logprobs: list[FloatArray]) -> Iterator[Read]:
        """Yield a function to read with; what it has read is in ``logprobs`` after the ``with`` block.

        If memory runs out within the block, what was read before is kept.

        Raises:
            FloatingPointError: The model returned NaN or infinite logits for a sequence.
        """
        pending: Pending = []

        def read(hidden: torch.Tensor, reads: Reads) -> None:
            pending.extend(self._read(hidden, reads))

        try:
            yield read
        except torch.OutOfMemoryError:
            _collect(pending, logprobs)
            raise
        _collect(pending, logprobs)

    def _read(self, hidden: torch.Tensor, reads: Reads) -> Iterator[tuple[torch.Tensor, list[Target]]]:
        places = list(reads)
        step = max(1, MAX_LOGITS // self._vocabulary)
        for start in range(0, len(places), step):
            part = places[start : start + step]
            logits = self._head(hidden.index_select(0, sent(np.array(part), hidden.device)))  # (p, V)
            wanted = [(row, *read) for row, place in enumerate(part) for read in reads[place]]
            index = sent(np.array([(row, token) for row, token, _, _ in wanted]), logits.device)  # (t, 2)
            rows, tokens = index[:, 0], index[:, 1]
            values = logits[rows, tokens] - logits.logsumexp(dim=-1)[rows]  # (t,)
            usable = torch.isfinite(logits).all(dim=1)[rows]  # (t,)
            values = torch.where(usable, values, torch.nan)
            yield values, [(sequence, place) for _, _, sequence, place in wanted]


def _collect(pending: Pending, logprobs: list[FloatArray]) -> None:
    """Copy the pending log-probabilities to the host in one transfer, and write them into ``logprobs``."""
    if not pending:
        return
    values = torch.cat([part for part, _ in pending]).cpu().double().numpy()  # the only wait of a run
    targets = [target for _, part in pending for target in part]
    for value, (sequence, place) in zip(values, targets, strict=True):
        if np.isnan(value):
            raise FloatingPointError(
                f"The model returned NaN or infinite logits for item {sequence}: try dtype='float32'."
            )
        logprobs[sequence][place] = value


# The trial of a model at load: whether ways to share prefixes give the answers of texts that run by themselves.


PACK_SIZES = (300, 100)
"""Sizes in tokens of the packs to try, both smaller than the texts together; the second cuts most texts."""

WINDOW = 24
"""Width in tokens of sliding windows during the trial, less than the texts' length."""

AGREEMENT = {torch.float32: 1e-3, torch.float64: 1e-3}
"""Largest mean difference in nats that rounding makes."""
AGREEMENT_16_BIT = 0.1
"""The same for 16 bits, as a share of the log-probabilities' standard deviation.

It was .038 with Gemma 3 270M in bfloat16 and at most .01 with two layers; ignored masks and positions make .2 and more.
"""

Run = Callable[[Sequence[Row], list[FloatArray]], None]
"""Runs rows and writes their log-probabilities into the arrays, one for each sequence."""


def disagreement(model: Any, longest: int, alone: Run, ways: Sequence[Run]) -> str:
    """Return what is wrong with the answers of some ways to run a model, or an empty string.

    Args:
        model: The model.
        longest: Length in tokens of the longest text that may share a prefix.
        alone: Runs every text by itself.
        ways: Ways to share prefixes.
    """
    texts = _texts(model.config.get_text_config().vocab_size, longest)
    rows, answers = rows_of(texts), []
    try:
        with torch.inference_mode(), narrowed(model, WINDOW):
            for run in (alone, *ways):
                logprobs = [np.full(len(s.ids) - s.start, np.nan) for s in texts]
                run(rows, logprobs)
                answers.append(np.concatenate(logprobs))
    except Exception as error:  # any model's own code: what fails is done without
        return f"{type(error).__name__}: {error}"
    difference = max(float(np.abs(answers[0] - answer).mean()) for answer in answers[1:])
    agreed = difference <= AGREEMENT.get(model.dtype, AGREEMENT_16_BIT * float(answers[0].std()))
    return "" if agreed else f"its answers differ by {difference:.2g} nats"


def _texts(vocabulary: int, longest: int) -> list[Scored]:
    """Return texts with a common prefix, so long that the last one of a pack stands far from its own prefix."""
    rng, own = np.random.default_rng(0), max(2, min(64, longest - 40))
    trunk = tuple(rng.integers(0, vocabulary, min(40, longest - own)).tolist())
    return [Scored((*trunk, *rng.integers(0, vocabulary, own).tolist()), len(trunk)) for _ in range(4)]


# Log-probabilities of token sequences under a causal model, with every shared prefix computed once.
#
# The distinct tokens of a call form a trie (``tree.py``). They run in packs: one sequence without padding, under a tree
# attention mask that lets every token attend to itself and its ancestors only.
#
#     sequences    trie              mask of the pack   a b c d e
#     a b c        a -+- b -+- c                    a   x . . . .
#     a b d           |     +- d                    b   x x . . .
#     a e             +- e                          c   x x x . .
#                                                   d   x x . x .
#                                                   e   x . . . x
#
# Keeping a prefix and computing it once is the idea of RadixAttention (SGLang, Zheng et al. 2024). Attending to it once
# for all queries is that of Hydragen (Juravsky et al. 2024) and cascade attention (FlashInfer, Ye et al. 2025).
#
# Only positions whose logits are needed go through the output layer, and log-softmax is taken in float32. An answer
# depends on the batch only by the rounding of the model's dtype. Whether a model computes the same answers in packs is
# tested when it is loaded. One that does not runs shared trunks once within a call (``Trunk``) or, if its state
# cannot be repeated either, every text by itself.


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
