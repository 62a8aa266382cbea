"""Train the embedded judge from scratch.

usage: python -m benchmarks.embedded_judge.train OUT [--steps 5000] [--seed 0] [--threads 1] [--resume]

An episode is one judge prompt, rendered by the package's own wording: items scored by one rater. Most raters are fond
of common phrasing, and the labels are noisy. At every score, the first as the last, the model is trained towards what
an ideal judge would answer there, given the scores so far (``ideal.py``): one dense target without sampling noise.
Linear probes between the layers, thrown away afterwards, ask for the steps of that reasoning: each sentence's error,
each item's quality and commonness, what each label says about the rater, and what is known of the rater. Beside the
episodes the model sees texts of the world under the likelihood prompt.

The seed decides every draw; the number of steps decides the learning rates. A stopped run goes on with ``--resume``
from its last checkpoint, with other draws from there on.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.embedded_judge.episodes import CONTEXT, KINDS, Episode, Episodes

WIDTH, LAYERS, HEADS, INNER = 128, 6, 4, 256
BATCH, ITEMS, TEXTS = 8, 9, 6
PEAK, WARMUP = 2e-3, 150
NAMED = (0.6, 0.2)
"""Share of episodes that name their rater, at the start and from the middle on."""

POINTED = 0.35
"""Share of episodes whose demonstrations are chosen for contradicting a fond rater."""

PLACES = {"kind": (2, len(KINDS)), "item": (3, 2), "evidence": (4, 1), "odds": (5, 1)}
"""Layer and number of values of each probe."""

WEIGHTS = {"answer": 3.0, "text": 0.5, "copy": 0.1, "kind": 0.3, "item": 0.3, "evidence": 0.3, "odds": 0.5}


class Probes(nn.Module):
    """Readings of the hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({name: nn.Linear(WIDTH, size) for name, (_, size) in PLACES.items()})

    def read(self, name: str, hidden: Sequence[Tensor], rows: Tensor, places: Tensor) -> Tensor:
        """(m, values) of one reading at m positions of (B, T, D) hidden states."""
        found: Tensor = self.heads[name](hidden[PLACES[name][0]][rows, places])
        return found


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """(B, T) ids, 0 behind the shorter rows."""
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = torch.tensor(tokens)
    return ids


def text_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats a token, of (B, T, V) logits; targets (B, T) below 1 do not count."""
    return cross_entropy(logits[:, :-1].transpose(1, 2), targets[:, 1:], ignore_index=0)


def judging_losses(
    model: LlamaForCausalLM, probes: Probes, drawn: Sequence[Episode], labels: list[int]
) -> dict[str, Tensor]:
    """Divergence of the answers from the ideal judge's, the probes' losses, and that of copying sources into texts."""
    ids = padded([episode.ids for episode in drawn])
    rows = torch.tensor([row for row, episode in enumerate(drawn) for _ in episode.scores])  # (m,)
    scores = torch.tensor([place for episode in drawn for place in episode.scores])
    stop_rows = torch.tensor([row for row, episode in enumerate(drawn) for _ in episode.stops])  # (3m,)
    stops = torch.tensor([place for episode in drawn for place in episode.stops])
    answers = torch.tensor([answer for episode in drawn for answer in episode.answers])  # (m, c)
    facts = torch.tensor([fact for episode in drawn for fact in episode.facts])  # (m, 4)
    kinds = torch.tensor([kind for episode in drawn for kind in episode.kinds])  # (3m,)
    out = model(ids, output_hidden_states=True)
    hidden, logits = out.hidden_states, out.logits  # (B, T, D) each, (B, T, V)
    told = logits[rows, scores - 1].log_softmax(-1)[:, labels]  # (m, c)
    copied = ids.clone()
    copied[rows, scores] = 0
    return {
        "answer": (answers * (answers.clamp_min(1e-9).log() - told)).sum(-1).mean(),
        "copy": text_loss(logits, copied),
        "kind": cross_entropy(probes.read("kind", hidden, stop_rows, stops), kinds),
        "item": mse_loss(probes.read("item", hidden, rows, scores - 1), facts[:, :2] - torch.tensor([2.7, 0.0])),
        "evidence": mse_loss(probes.read("evidence", hidden, rows, scores)[:, 0], facts[:, 2]),
        "odds": mse_loss(probes.read("odds", hidden, rows, scores - 1)[:, 0], (facts[:, 3] / 4).tanh()),
    }


def losses(model: LlamaForCausalLM, probes: Probes, episodes: Episodes, step: int, named: float) -> dict[str, Tensor]:
    """Every loss of one step; each fourth step has half as many episodes, nearly twice as long."""
    batch, items = (BATCH // 2, 2 * ITEMS - 1) if step % 4 == 3 else (BATCH, ITEMS)
    drawn = [episodes.judging(items, named=named, pointed=POINTED) for _ in range(batch)]
    found = judging_losses(model, probes, drawn, episodes.labels)
    texts = padded([episodes.generating() for _ in range(TEXTS)])
    return {**found, "text": text_loss(model(texts).logits, texts)}


def new_model(episodes: Episodes) -> LlamaForCausalLM:
    """The untrained model."""
    config = LlamaConfig(
        vocab_size=len(episodes.ids),
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config)


def train(out: Path, *, steps: int, seed: int, resume: bool) -> None:
    """Train, with a line in ``out/losses.jsonl`` every 50 steps and a checkpoint every 250."""
    torch.manual_seed(seed)
    episodes, probes = Episodes(seed), Probes()
    model = new_model(episodes)
    parameters = [*model.parameters(), *probes.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=PEAK, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    parts = {"model": model, "probes": probes, "optimizer": optimizer}
    first, spent = 0, 0.0
    out.mkdir(parents=True, exist_ok=True)
    if resume:
        state = torch.load(out / "checkpoint.pt", weights_only=True)
        first, spent = state["step"], state["spent"]
        for name, part in parts.items():
            part.load_state_dict(state[name])
        episodes.rng.seed(f"{seed} {first}")
    log, sums = _log(out / "losses.jsonl", first), dict.fromkeys(WEIGHTS, 0.0)
    started = time.monotonic() - spent
    for step in range(first, steps):
        share = step / steps
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min(1.0, (step + 1) / WARMUP) * (0.5 * (1 + math.cos(math.pi * share)) + 0.01)
        named = NAMED[0] + (NAMED[1] - NAMED[0]) * min(1.0, 2 * share)
        found = losses(model, probes, episodes, step, named)
        optimizer.zero_grad()
        sum(WEIGHTS[name] * loss for name, loss in found.items()).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        sums = {name: total + found[name].item() for name, total in sums.items()}
        if (step + 1) % 50 == 0:
            row = {"step": step + 1, "seconds": round(time.monotonic() - started)}
            log.write(json.dumps({**row, **{name: round(total / 50, 4) for name, total in sums.items()}}) + "\n")
            log.flush()
            sums = dict.fromkeys(WEIGHTS, 0.0)
        if (step + 1) % 250 == 0 or step + 1 == steps:
            model.save_pretrained(out)
            episodes.tokenizer.save_pretrained(out)
            state = {name: part.state_dict() for name, part in parts.items()}
            torch.save({**state, "step": step + 1, "spent": time.monotonic() - started}, out / "checkpoint.pt")


def _log(path: Path, first: int) -> TextIO:
    """The file of losses, open for writing, with the lines up to that step."""
    lines = path.read_text().splitlines(keepends=True) if first else []
    file = path.open("w")
    file.writelines(line for line in lines if json.loads(line)["step"] <= first)
    return file


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    train(args.out, steps=args.steps, seed=args.seed, resume=args.resume)


if __name__ == "__main__":
    main()
