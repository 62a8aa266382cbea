"""Train the embedded judge from scratch.

usage: python -m benchmarks.embedded_judge.train OUT [--steps 3000] [--seed 0] [--threads 1]

An episode is one judge prompt in the package's own wording: items scored by one rater. Most raters are fond of common
phrasing, and the labels are noisy. At every score, the model is trained towards the ideal judge's answer given the
scores so far (``ideal.py``): a dense target without sampling noise. Linear probes between the layers, discarded after
training, predict the steps of that reasoning: the value that a sentence should state, whether it states it, the
sentence's error, each item's quality and commonness, the evidence of each label about the rater, and the log-odds of
the rater so far. Episodes of one item come first, because a value then has only one source to be looked up in. The
model also sees texts of the synthetic world under the likelihood prompt, and comparisons of two texts under many
wordings, each of which pushes the ideal judge towards a position (``evalbias.data.world``).

The seed decides every draw; the number of steps decides the learning rates and the stages.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.optim import Optimizer
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.embedded_judge.episodes import CONTEXT, KINDS, VALUES, Comparisons, Episode, Episodes

WIDTH = 128
STAGES = ((0.12, 48, 1), (0.2, 20, 3), (1.0, 8, 9))
"""For each stage: fraction of the steps at its end, episodes per step, and items per episode."""

TEXTS, COMPARED, COMPARISONS = 6, 8, 3
"""Texts per step; prompts with comparisons per step, after the first stage; and comparisons per prompt."""

MIDDLE = torch.tensor([2.7, 0.0])
"""Mean quality and mean commonness."""

PEAK, WARMUP = 2e-3, 150
NAMED = (0.6, 0.2)
"""Fraction of episodes that name their rater: at the start, and from the middle on."""

POINTED = 0.35
"""Fraction of episodes whose demonstrations are chosen to contradict a fond rater."""

PLACES = {
    "value": (2, len(VALUES)),
    "match": (3, 2),
    "kind": (4, len(KINDS)),
    "item": (5, 2),
    "evidence": (6, 1),
    "odds": (7, 1),
    "pair": (6, 3),
}
"""Probe -> its layer and its number of values."""

WEIGHTS = {
    "answer": 3.0,
    "text": 0.5,
    "prompt": 0.1,
    "value": 3.0,
    "match": 1.0,
    "kind": 0.5,
    "item": 0.3,
    "evidence": 0.3,
    "odds": 0.5,
    "pair": 0.3,
}
"""Loss -> weight; the losses of comparisons have the weights of the same losses of judge prompts."""


EVERY = 50
"""Number of steps whose mean losses form one line of the log."""


class Probes(nn.Module):
    """Linear probes of the hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({name: nn.Linear(WIDTH, size) for name, (_, size) in PLACES.items()})


def judging_losses(
    model: LlamaForCausalLM, probes: Probes, drawn: Sequence[Episode], labels: list[int]
) -> dict[str, Tensor]:
    """Return the losses of judge prompts: answers, probes, and the words of the prompt."""
    run = Run(model, probes, drawn)
    facts = torch.tensor([fact for episode in drawn for fact in episode.facts])  # (m, 4)
    return {
        **run.losses(labels),
        "item": mse_loss(run.read("item", run.answers_at - 1), facts[:, :2] - MIDDLE),
        "evidence": mse_loss(run.read("evidence", run.answers_at)[:, 0], facts[:, 2]),
        "odds": mse_loss(run.read("odds", run.answers_at - 1)[:, 0], (facts[:, 3] / 4).tanh()),
    }


def comparing_losses(
    model: LlamaForCausalLM, probes: Probes, drawn: Sequence[Comparisons], choices: list[int]
) -> dict[str, Tensor]:
    """Return the losses of prompts with comparisons."""
    run = Run(model, probes, drawn)
    facts = torch.tensor([fact for episode in drawn for fact in episode.facts])  # (m, 3)
    pair = mse_loss(run.read("pair", run.answers_at - 1), facts - torch.tensor([MIDDLE[0], MIDDLE[0], 0.0]))
    return {**{f"compared {name}": loss for name, loss in run.losses(choices).items()}, "pair": pair}


class Run:
    """One forward pass over prompts, with its hidden states and logits."""

    def __init__(
        self, model: LlamaForCausalLM, probes: Probes, drawn: Sequence[Episode] | Sequence[Comparisons]
    ) -> None:
        self._probes, self._drawn = probes, drawn
        self._ids = padded([episode.ids for episode in drawn])  # (B, T)
        out = model(self._ids, output_hidden_states=True)
        self._hidden, self._logits = out.hidden_states, out.logits  # (B, T, D) each, (B, T, V)
        self._rows, self.answers_at = self._places([episode.scores for episode in drawn])

    def _places(self, places: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return (m,) rows and (m,) positions."""
        rows = [row for row, positions in enumerate(places) for _ in positions]
        return torch.tensor(rows), torch.tensor([position for positions in places for position in positions])

    def read(self, name: str, places: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return (m, values) of a probe at positions; rows default to those of the answers."""
        hidden = self._hidden[PLACES[name][0]]  # (B, T, D)
        values: Tensor = self._probes.heads[name](hidden[self._rows if rows is None else rows, places])
        return values

    def losses(self, labels: list[int]) -> dict[str, Tensor]:
        """Return the answers' divergence from the ideal judge, and the losses of sentences and words."""
        answers = torch.tensor([answer for episode in self._drawn for answer in episode.answers])  # (m, c)
        logprobs = self._logits[self._rows, self.answers_at - 1].log_softmax(-1)[:, labels]  # (m, c)
        words = self._ids.clone()
        words[self._rows, self.answers_at] = 0
        sentences = [episode.sentences for episode in self._drawn]
        ends, stops = self._places([s.stops for s in sentences])
        kinds = torch.tensor([kind for s in sentences for kind in s.kinds])
        rows, values = self._places([s.values for s in sentences])
        stated = torch.tensor([pair for s in sentences for pair in s.stated], dtype=torch.long)  # (v, 2)
        return {
            "answer": (answers * (answers.clamp_min(1e-9).log() - logprobs)).sum(-1).mean(),
            "prompt": text_loss(self._logits, words),
            "value": cross_entropy(self.read("value", values - 1, rows), stated[:, 0]),
            "match": cross_entropy(self.read("match", values, rows), stated[:, 1]),
            "kind": cross_entropy(self.read("kind", stops, ends), kinds),
        }


def losses_of_step(
    model: LlamaForCausalLM, probes: Probes, episodes: Episodes, step: int, share: float
) -> dict[str, Tensor]:
    """Return every loss of one step; in the last stage, each fourth step has half as many, longer episodes."""
    batch, items = next((batch, items) for end, batch, items in STAGES if share < end)
    if items == STAGES[-1][2] and step % 4 == 3:
        batch, items = batch // 2, 2 * items - 1
    named = NAMED[0] + (NAMED[1] - NAMED[0]) * min(1.0, 2 * share)
    drawn = [episodes.judging(items, named=named, pointed=POINTED) for _ in range(batch)]
    losses = judging_losses(model, probes, drawn, episodes.labels)
    texts = padded([episodes.generating() for _ in range(TEXTS)])
    losses["text"] = text_loss(model(texts).logits, texts)
    if items > 1:
        pairs = [episodes.comparing(COMPARISONS) for _ in range(COMPARED)]
        losses |= comparing_losses(model, probes, pairs, episodes.choices)
    return losses


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


def train(out: Path, *, steps: int, seed: int) -> None:
    """Train; write ``out/losses.jsonl``, a line every 50 steps, and at the end the model."""
    torch.manual_seed(seed)
    episodes, probes = Episodes(seed), Probes()
    config = LlamaConfig(
        vocab_size=len(episodes.ids),
        hidden_size=WIDTH,
        intermediate_size=256,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    parameters = [*model.parameters(), *probes.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=PEAK, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    out.mkdir(parents=True, exist_ok=True)
    started, sums = time.monotonic(), dict[str, float]()
    for step in range(steps):
        set_rate(optimizer, peak=PEAK, warmup=WARMUP, step=step, steps=steps)
        losses = losses_of_step(model, probes, episodes, step, step / steps)
        optimizer.zero_grad()
        torch.stack([WEIGHTS[name.split()[-1]] * loss for name, loss in losses.items()]).sum().backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        sums = {name: sums.get(name, 0.0) + loss.item() for name, loss in losses.items()}
        if (step + 1) % EVERY == 0:
            means = {name: round(total / EVERY, 4) for name, total in sums.items()}
            row = {"step": step + 1, "seconds": round(time.monotonic() - started), **means}
            with (out / "losses.jsonl").open("a" if step >= EVERY else "w") as log:
                log.write(json.dumps(row) + "\n")
            sums = {}
    model.save_pretrained(out)
    episodes.tokenizer.save_pretrained(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    train(args.out, steps=args.steps, seed=args.seed)
