"""Code that the training scripts share: a small Llama, losses over padded batches, and runs that can resume."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from transformers import LlamaConfig, LlamaForCausalLM

EVERY = 50
"""Number of steps whose mean losses form one line of the log."""


def arguments(doc: str | None, *, steps: int) -> argparse.Namespace:
    """Parse the command line of a training script and set torch's threads."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    return args


def llama(*, vocabulary: int, context: int, width: int, inner: int, layers: int, heads: int) -> LlamaForCausalLM:
    """Return an untrained Llama whose padding, start and end tokens are 0, 1 and 2."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config)


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return (B, T) ids, with 0 as padding at the end of the shorter rows."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


def text_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy in nats per token of (B, T, V) logits; targets (B, T) of 0 do not count."""
    return cross_entropy(logits[:, :-1].transpose(1, 2), targets[:, 1:], ignore_index=0)


def set_rate(optimizer: Optimizer, *, peak: float, warmup: int, step: int, steps: int) -> None:
    """Set the learning rate: a linear warm-up, then half a cosine down to a hundredth."""
    rate = peak * min(1.0, (step + 1) / warmup) * (0.5 * (1 + math.cos(math.pi * step / steps)) + 0.01)
    for group in optimizer.param_groups:
        group["lr"] = rate


class Course:
    """A training run in a folder, with ``losses.jsonl`` and a checkpoint to resume from.

    Args:
        out: Folder of the run; created if missing.
        parts: Name -> model, optimizer, or other module that is trained.
        resume: If true, resume from the folder's checkpoint.

    Attributes:
        first: Number of the first step to run.
    """

    def __init__(self, out: Path, parts: Mapping[str, nn.Module | Optimizer], *, resume: bool) -> None:
        self.first, spent = 0, 0.0
        self._file, self._parts = out / "checkpoint.pt", parts
        self._sums: dict[str, float] = {}
        out.mkdir(parents=True, exist_ok=True)
        if resume:
            state = torch.load(self._file, weights_only=True)
            self.first, spent = state["step"], state["spent"]
            for name, part in parts.items():
                part.load_state_dict(state[name])
        self._log = _log(out / "losses.jsonl", self.first)
        self._started = time.monotonic() - spent

    def step(self, number: int, losses: Mapping[str, float]) -> None:
        """Add the losses of one step; every ``EVERY`` steps, write a line with their means."""
        self._sums = {name: self._sums.get(name, 0.0) + loss for name, loss in losses.items()}
        if (number + 1) % EVERY == 0:
            means = {name: round(total / EVERY, 4) for name, total in self._sums.items()}
            row = {"step": number + 1, "seconds": round(time.monotonic() - self._started), **means}
            self._log.write(json.dumps(row) + "\n")
            self._log.flush()
            self._sums = {}

    def save(self, number: int) -> None:
        """Write a checkpoint after a step, which must complete a line of losses."""
        state = {name: part.state_dict() for name, part in self._parts.items()}
        unfinished = self._file.with_suffix(".part")
        torch.save({**state, "step": number + 1, "spent": time.monotonic() - self._started}, unfinished)
        unfinished.replace(self._file)


def _log(path: Path, first: int) -> TextIO:
    """Open the file of losses for writing, with its lines up to a step."""
    lines = path.read_text().splitlines(keepends=True) if first else []
    file = path.open("w")
    file.writelines(line for line in lines if json.loads(line)["step"] <= first)
    return file
