"""Log-probabilities of token sequences under a causal model, with every shared prefix computed once.

Keeping a prefix and computing it once is the idea of RadixAttention (SGLang, Zheng et al. 2024). Only positions whose
logits are needed go through the output layer, and an answer depends on the batch only through rounding.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from evalbias.lm import tree
from evalbias.lm.attention import KERNELS, Kernel, configs_of, configured, layer_kinds, layer_masks, tree_attention
from evalbias.lm.tokens import Scored
from evalbias.lm.tree import Layers, Rows, batches, block_packs, chained, copied, packs, sent, shared_blocks, taken
from evalbias.measures.arrays import FloatArray, IntArray
from evalbias.values import get_logger

MAX_LOGITS = 1 << 26  # logits in memory at once, 256 MiB in float32; all positions may take far more
SMALLEST_PACK = 768  # smallest pack in tokens: a small model's calls cost more than its tokens
# Size in tokens of a GPU's packs: reading the weights and launching kernels for each then costs little beside
# its tokens' matrix products.
GPU_PACK = 1 << 14
# Settings of GPT-Neo and Llama 4, whose layers count places in the pack whatever mask and positions they are given.
COUNTS_PLACES = ("window_size", "attn_temperature_tuning", "attention_chunk_size")
# A way to run rows. It yields (..., d) hidden states of m tokens, and (r, 3) reads there: place among the m tokens,
# next token, and index in the call's log-probabilities.
Run = Callable[[Rows], Iterator[tuple[Tensor, IntArray]]]


class Scorer:
    """Scores token sequences with a causal transformers model in evaluation mode.

    ``batch_tokens`` limits the tokens of a forward pass, padding included; ``prefix_bytes`` is the memory for keys and
    values that are kept between calls. With ``share``, common prefixes are computed once, with answers equal up to
    rounding; by default, if a trial shows that the model allows it.
    """

    # The distinct tokens of a call form a trie (``tree.py``). They run in packs: a sequence without padding, under a
    # mask that lets every token attend to itself and its ancestors only (``attention.py``). Whether a model gives the
    # same answers in packs is tested when it is loaded. A model that does not runs every text by itself.

    def __init__(
        self, model: Any, *, context: int, batch_tokens: int, share: bool | None = None, prefix_bytes: int = 0
    ) -> None:
        self.model = model
        self.context = context
        self.batch_tokens = batch_tokens
        self.tokens_run = 0  # tokens that went through the model so far, padding included
        self.tokens_distinct = 0  # nodes of the tries of the calls so far
        self.prefixes = tree.PrefixStore(prefix_bytes)
        self._decoder = decoder(model)
        self._cache_name = cache_argument(self._decoder)
        self._head = Head(model)
        self._config = model.config.get_text_config()
        self._configs = configs_of(model)
        self._kinds = layer_kinds(self._config) or ()
        self._longest = _longest_packed(self._config)
        self._kernel: Kernel = KERNELS[0]
        self._pack_tokens = GPU_PACK
        self._logged = False  # True once the log says that some texts are too long to share
        obstacle = self._pack_obstacle() if share is None else ""
        self.share = share is not False and not obstacle  # True if texts run in packs
        self.fastest = self.share and self._kernel is KERNELS[0]
        if obstacle:
            _warn_unshared(obstacle, "This model runs every text by itself")
        elif model.device.type != "cuda":
            # At this size, attention under a mask costs an eighth of the other computation.
            layers = sum(p.numel() for p in self._decoder.parameters()) - model.get_input_embeddings().weight.numel()
            size = int(layers / (8 * self._config.hidden_size * self._config.num_hidden_layers))
            self._pack_tokens = max(SMALLEST_PACK, size)

    def __call__(self, sequences: Sequence[Scored], items: Sequence[int] | None = None) -> list[FloatArray]:
        """Return the log-probabilities of the scored tokens, an (n,) array per sequence, no longer than the context.

        NaN or infinite logits raise FloatingPointError, which names the sequence's number in ``items``, or its own.
        """
        if not sequences:
            return []
        counts = np.array([len(s.ids) - s.start for s in sequences])
        ends = counts.cumsum()
        values = np.full(ends[-1], np.nan)  # all sequences, one after another
        short = np.array([len(s.ids) <= self._longest + 1 for s in sequences])  # a last token is only read
        if not short.all() and not self._logged and self.share:
            self._logged = True
            reason = f"those of more than {self._longest} tokens have other positions (longrope)"
            _warn_unshared(reason, "Some texts run by themselves")
        share = self._packs if self.share else self._alone
        for way, chosen in ((share, np.flatnonzero(short)), (self._alone, np.flatnonzero(~short))):
            rows = Rows([sequences[place] for place in chosen.tolist()], (ends - counts)[chosen])
            self.tokens_distinct += rows.tokens
            again = False
            while not self._fits(way, rows, values):
                self._make_room(again=again)
                again = True
        if np.isnan(values).any():
            place = int(np.searchsorted(ends, np.flatnonzero(np.isnan(values))[0], side="right"))
            item = place if items is None else items[place]
            raise FloatingPointError(f"The model returned NaN or infinite logits for item {item}: try dtype='float32'.")
        return np.split(values, ends[:-1])

    def _fits(self, way: Run, rows: Rows, values: FloatArray) -> bool:
        """Score rows; return False, with memory freed, if it did not suffice; raise if no more can be freed."""
        try:
            self._read(way(rows), values)
        except torch.OutOfMemoryError:
            if self._most_tokens == 1 and not self.prefixes.bytes:
                raise
            return False
        return True

    def _make_room(self, *, again: bool) -> None:
        """Drop the stored prefixes; if there are none, or this was not enough, halve the batch."""
        stored = self.prefixes.bytes
        self.prefixes.clear()
        if again and stored:
            self.prefixes.budget = stored // 2
        if again or not stored:
            self.batch_tokens = max(1, self._most_tokens // 2)
        torch.cuda.empty_cache()

    def _packs(self, rows: Rows, size: int | None = None) -> Iterator[tuple[Tensor, IntArray]]:
        """Run every distinct token once, in packs of at most ``size`` tokens; None for the largest packs."""
        stored = shared_blocks(rows) if self.prefixes.budget else {}
        self.prefixes.begin()
        extended: Layers = []
        for pack in packs(rows, size or self._most_tokens, stored):
            before = extended if pack.stored is None else self._prefix(rows.ids[pack.stored][: stored[pack.stored]])
            hidden, extended = self._run(pack, before)
            yield hidden, pack.reads

    def _prefix(self, ids: IntArray) -> Layers:
        """Return the keys and values of a prefix of whole blocks, each stored or run by itself."""
        blocks: list[Layers] = []
        for prefix, pack in block_packs(ids):
            block = self.prefixes.get(prefix)
            if block is None:
                _, extended = self._run(pack, chained(*blocks))
                block = copied(taken(extended, pack.positions))
                self.prefixes.put(prefix, block)
            blocks.append(block)
        return chained(*blocks)

    def _run(self, pack: tree.Pack, before: Layers) -> tuple[Tensor, Layers]:
        """Return the (n, d) hidden states of a pack, and the KV cache of its context extended by its own."""
        # 1. The tree mask of each kind of layer.
        masks = layer_masks(self._config, self._kinds, pack)
        # 2. One forward pass over the pack. With a mask of four dimensions, the model does not make its own.
        device = self.model.device
        empty = torch.zeros(1, 1, 1, 1, dtype=self.model.dtype, device=device)
        cache = tree.PackCache(taken(before, pack.source))
        self.tokens_run += len(pack.ids)
        with tree_attention(self._configs, self._kernel, [masks[kind] for kind in self._kinds]):
            hidden = self._decoder(
                input_ids=sent(pack.ids, device)[None],
                attention_mask=dict.fromkeys(masks, empty) if len(masks) > 1 else empty,
                position_ids=sent(pack.positions, device)[None],
                use_cache=True,
                **{self._cache_name: cache},
            ).last_hidden_state  # (1, n, d)
        return hidden[0], cache.extended()

    def _alone(self, rows: Rows) -> Iterator[tuple[Tensor, IntArray]]:
        """Run every row by itself, in batches of similar length, padded on the right, which no token attends to."""
        device = self.model.device
        for batch, ids in batches(rows, self.batch_tokens):  # (b, T)
            self.tokens_run += ids.size
            mask = np.array([[len(rows.ids[number])] for number in batch]) > np.arange(ids.shape[1])  # (b, T)
            hidden = self._decoder(
                input_ids=sent(ids, device), attention_mask=sent(mask.astype(np.int64), device), use_cache=False
            ).last_hidden_state  # (b, T, d)
            yield hidden, rows.placed(batch, ids.shape[1])

    def _read(self, stretches: Iterator[tuple[Tensor, IntArray]], values: FloatArray) -> None:
        """Write the requested log-probabilities into ``values``; NaN where logits are not finite."""
        # They stay on the model's device until all stretches ran, so that the host never waits for a pack: it prepares
        # the next pack while a GPU computes.
        pending: list[tuple[Tensor, IntArray]] = []
        with torch.inference_mode():
            for hidden, reads in stretches:
                pending += self._logprobs(hidden.flatten(0, -2), reads)
        _collect(pending, values)

    def _logprobs(self, hidden: Tensor, reads: IntArray) -> Iterator[tuple[Tensor, IntArray]]:
        """Yield (t,) log-probabilities in float32 at (m, d) hidden states, and their (t,) indices in the call."""
        places, rows = np.unique(reads[:, 0], return_inverse=True)
        step = max(1, MAX_LOGITS // int(self._config.vocab_size))
        for start in range(0, len(places), step):
            logits = self._head(hidden.index_select(0, sent(places[start : start + step], hidden.device)))  # (p, V)
            part = (rows >= start) & (rows < start + step)
            row, token = sent(np.stack([rows[part] - start, reads[part, 1]]), logits.device)  # (t,) each
            values = logits[row, token] - logits.logsumexp(dim=-1)[row]
            finite = torch.isfinite(logits).all(dim=1)[row]
            yield torch.where(finite, values, torch.nan), reads[part, 2]

    @property
    def _most_tokens(self) -> int:
        return min(self.batch_tokens, self._pack_tokens) if self.share else self.batch_tokens

    # The trial of a model at load: whether packs give the answers of texts that run by themselves.

    def _pack_obstacle(self) -> str:
        """Find a kernel with which the model runs packs; return the obstacle if there is none, else ""."""
        # Some models ignore the positions they are passed, or attend in their own code.
        if any(getattr(self._config, name, None) for name in COUNTS_PLACES):
            return "its layers count places"
        if not self._kinds:
            return f"it has layers of the kinds {', '.join(sorted(set(self._config.layer_types)))}"
        obstacles: list[str] = []
        for self._kernel in KERNELS:
            obstacle = self._tried()
            if not obstacle:
                if self._kernel is not KERNELS[0]:
                    level = logging.INFO if obstacles[0].startswith("NotImplementedError") else logging.WARNING
                    what = "Packs run in plain attention, which is slower: else, %s."
                    get_logger(__name__).log(level, what, obstacles[0])
                return ""
            obstacles.append(obstacle)
        return f"in packs, {obstacles[0]}"

    def _tried(self) -> str:
        """Return what is wrong with the answers in packs, or ""."""
        # 1. Texts with a common prefix, so long that a pack's last text is far from its own prefix.
        longest = int(min(self.context, self._longest))
        rng, own = np.random.default_rng(0), max(2, min(32, longest - 16))
        vocabulary = self._config.vocab_size
        trunk = rng.integers(0, vocabulary, min(16, longest - own)).tolist()
        ids = [(*trunk, *rng.integers(0, vocabulary, own).tolist()) for _ in range(TRIAL_TEXTS)]
        rows = Rows([Scored(row, len(trunk)) for row in ids])
        # 2. Their log-probabilities, alone and in packs.
        answers = np.full((2, TRIAL_TEXTS * (len(ids[0]) - len(trunk))), np.nan)
        try:
            with configured(self._configs, sliding_window=TRIAL_WINDOW):
                self._read(self._alone(rows), answers[0])
                self._read(self._packs(rows, TRIAL_PACK), answers[1])
        except Exception as error:  # any model's own code may fail: then it does not share
            return f"{type(error).__name__}: {error}"
        finally:
            self.tokens_run = 0
            self.prefixes.clear()
        difference = float(np.abs(answers[0] - answers[1]).mean())
        limit = AGREEMENT if self.model.dtype.itemsize >= 4 else AGREEMENT_16_BIT * float(answers[0].std())
        return "" if difference <= limit else f"its answers differ by {difference:.2g} nats"


TRIAL_TEXTS, TRIAL_PACK, TRIAL_WINDOW = 3, 48, 12  # texts; tokens in a pack, which cuts most texts, and in a window

# Largest mean difference in nats due to rounding; in 16 bits as a share of the log-probabilities' deviation, which
# was .038 with Gemma 3 270M in bfloat16, and ignored masks and positions make .2 and more.
AGREEMENT, AGREEMENT_16_BIT = 1e-3, 0.1


def _collect(pending: Sequence[tuple[Tensor, IntArray]], values: FloatArray) -> None:
    """Copy pending log-probabilities to the host in one transfer, the only wait of a run, and write them in place."""
    if pending:
        read = torch.cat([part for part, _ in pending]).cpu().double().numpy()
        values[np.concatenate([targets for _, targets in pending])] = read


def _longest_packed(config: Any) -> float:
    """Return the length in tokens of the longest row that may share prefixes."""
    # "longrope" changes all tokens' positions once a text exceeds the original context length.
    ropes = getattr(config, "rope_parameters", None) or {}
    limits = []
    for rope in [ropes, *ropes.values()]:  # of the model, or of each layer type
        if isinstance(rope, dict) and rope.get("rope_type") == "longrope":
            original = getattr(config, "original_max_position_embeddings", None)
            limits.append(rope.get("original_max_position_embeddings", original))
    return min((int(limit) for limit in limits if limit), default=float("inf"))


def _warn_unshared(reason: str, what: str) -> None:
    get_logger(__name__).warning("%s, without sharing prefixes: %s.", what, reason)


# The two halves of a causal model: the decoder, and the head that turns hidden states into logits.
#
# Logits to be measured are computed in float32 from weights of any dtype: rounded to bfloat16, logits near 25 are
# multiples of 1/8, so that different answers often get exactly the same probability.


CONVERTED = 1 << 24  # 16-bit weights converted to float32 at once, 64 MiB; the largest layers would take gigabytes


def decoder(model: Any) -> Any:
    """Return the module of a causal model that turns tokens into hidden states."""
    base = model.base_model
    # Llama 4's text model names its decoder as in the multimodal model, so ``base_model`` misses it.
    return model.model if base is model and hasattr(model, "model") else base


def cache_argument(body: Any) -> str:
    """Return the name of the KV cache among a decoder's arguments and outputs, which transformers changed in 5.24."""
    return "cache" if "cache" in signature(body.forward).parameters else "past_key_values"


class Head:
    """Everything that a causal model does after its decoder; with ``float32``, 16-bit weights are multiplied in it.

    This is not always a matrix product: some families scale its input (MiniCPM3) or its output (Granite, Cohere 2),
    others cap the logits (Gemma 2, NanoChat). So the model's own code runs, with its decoder replaced by fixed states.
    Sampling does without float32: it needs few logits at a time, and the conversion would take as long as the product.
    """

    def __init__(self, model: Any, *, float32: bool = True) -> None:
        self._model = model
        self._output = layer = model.get_output_embeddings()
        self._applied = _Float32Linear(layer) if float32 and type(layer) is torch.nn.Linear else layer
        self._body = decoder(model)
        self._separable = self._body is not model and any(child is self._body for child in model.children())

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return the (m, V) logits of (m, d) hidden states, in float32."""
        if not self._separable:
            return self._applied(hidden).float()  # type: ignore[no-any-return]
        replaced = {id(self._body): _Given(self._body, hidden[None]), id(self._output): self._applied}
        model = copy.copy(self._model)  # shares the weights
        vars(model)["_modules"] = {
            name: replaced.get(id(module), module) for name, module in self._model._modules.items()
        }
        # In a model on several GPUs, this is accelerate's hook, which would run the original.
        vars(model).pop("forward", None)
        return model(inputs_embeds=hidden[None]).logits[0].float()  # type: ignore[no-any-return]


class _Float32Linear(torch.nn.Module):
    """An output layer that multiplies in float32 whatever the dtype of its weights."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (..., V) logits of (..., d) hidden states."""
        vocabulary, size = self.weight.shape
        rows = vocabulary if self.weight.dtype == torch.float32 else max(1, CONVERTED // size)
        states = hidden.to(self.weight.device, torch.float32)  # on several GPUs, it may be on another device
        parts = [linear(states, self.weight[i : i + rows].float()) for i in range(0, vocabulary, rows)]
        logits = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
        return logits if self.bias is None else logits + self.bias.float()


class _Given:
    """A decoder that returns fixed hidden states, and otherwise behaves like the real decoder."""

    def __init__(self, body: Any, hidden: Tensor) -> None:
        self._body, self._outputs = body, _Outputs(hidden)

    def __call__(self, *_: Any, **__: Any) -> _Outputs:
        return self._outputs

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._body, name)
        return self if isinstance(value, torch.nn.Module) else value  # OPT calls the module within its decoder


class _Outputs:
    """Outputs of a decoder with hidden states only, which transformers reads by name or by index."""

    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, place: int) -> Tensor:
        return (self.last_hidden_state,)[place]

    def __getattr__(self, name: str) -> None:
        return None
