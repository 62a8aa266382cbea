"""Train the embedded judge from scratch.

usage: python -m benchmarks.embedded_judge.train OUT [--steps 3000] [--seed 0] [--threads 1] [--resume]

An episode is one judge prompt, rendered by the package's own wording: items scored by one rater. Most raters are fond
of common phrasing, and the labels are noisy. At every score, the first as the last, the model is trained towards what
an ideal judge would answer there, given the scores so far (``ideal.py``): one dense target without sampling noise.
Linear probes between the layers, thrown away afterwards, ask for the steps of that reasoning: the value that a
sentence should state, whether it states it, the sentence's error, each item's quality and commonness, what each label
says about the rater, and what is known of the rater. Episodes of one item come first: they hold one source to look a
value up in. Beside the episodes the model sees texts of the world under the likelihood prompt.

The seed decides every draw; the number of steps decides the learning rates and the stages. A stopped run goes on with
``--resume`` from its last checkpoint, with other draws from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from transformers import LlamaForCausalLM

from benchmarks.embedded_judge.episodes import CONTEXT, KINDS, VALUES, Episode, Episodes
from benchmarks.training import Course, arguments, llama, padded, set_rate, text_loss

WIDTH = 128
STAGES = ((0.12, 48, 1), (0.2, 20, 3), (1.0, 8, 9))
"""Until which share of the steps, episodes in a step, and items in an episode."""

TEXTS = 6
PEAK, WARMUP = 2e-3, 150
NAMED = (0.6, 0.2)
"""Share of episodes that name their rater, at the start and from the middle on."""

POINTED = 0.35
"""Share of episodes whose demonstrations are chosen for contradicting a fond rater."""

PLACES = {
    "value": (2, len(VALUES)),
    "match": (3, 2),
    "kind": (4, len(KINDS)),
    "item": (5, 2),
    "evidence": (6, 1),
    "odds": (7, 1),
}
"""Layer and number of values of each probe."""

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
}


class Probes(nn.Module):
    """Readings of the hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({name: nn.Linear(WIDTH, size) for name, (_, size) in PLACES.items()})

    def read(self, name: str, hidden: Sequence[Tensor], rows: Tensor, places: Tensor) -> Tensor:
        """(m, values) of one reading at m positions of (B, T, D) hidden states."""
        found: Tensor = self.heads[name](hidden[PLACES[name][0]][rows, places])
        return found


def judging_losses(
    model: LlamaForCausalLM, probes: Probes, drawn: Sequence[Episode], labels: list[int]
) -> dict[str, Tensor]:
    """Divergence of the answers from the ideal judge's, the probes' losses, and that of the prompt's own words."""
    ids = padded([episode.ids for episode in drawn])
    rows = torch.tensor([row for row, episode in enumerate(drawn) for _ in episode.scores])  # (m,)
    scores = torch.tensor([place for episode in drawn for place in episode.scores])
    stop_rows = torch.tensor([row for row, episode in enumerate(drawn) for _ in episode.stops])  # (3m,)
    stops = torch.tensor([place for episode in drawn for place in episode.stops])
    value_rows = torch.tensor([row for row, episode in enumerate(drawn) for _ in episode.values])  # (v,)
    values = torch.tensor([place for episode in drawn for place in episode.values])
    stated = torch.tensor([told for episode in drawn for told in episode.stated], dtype=torch.long)  # (v, 2)
    answers = torch.tensor([answer for episode in drawn for answer in episode.answers])  # (m, c)
    facts = torch.tensor([fact for episode in drawn for fact in episode.facts])  # (m, 4)
    kinds = torch.tensor([kind for episode in drawn for kind in episode.kinds])  # (3m,)
    out = model(ids, output_hidden_states=True)
    hidden, logits = out.hidden_states, out.logits  # (B, T, D) each, (B, T, V)
    told = logits[rows, scores - 1].log_softmax(-1)[:, labels]  # (m, c)
    words = ids.clone()
    words[rows, scores] = 0
    return {
        "answer": (answers * (answers.clamp_min(1e-9).log() - told)).sum(-1).mean(),
        "prompt": text_loss(logits, words),
        "value": cross_entropy(probes.read("value", hidden, value_rows, values - 1), stated[:, 0]),
        "match": cross_entropy(probes.read("match", hidden, value_rows, values), stated[:, 1]),
        "kind": cross_entropy(probes.read("kind", hidden, stop_rows, stops), kinds),
        "item": mse_loss(probes.read("item", hidden, rows, scores - 1), facts[:, :2] - torch.tensor([2.7, 0.0])),
        "evidence": mse_loss(probes.read("evidence", hidden, rows, scores)[:, 0], facts[:, 2]),
        "odds": mse_loss(probes.read("odds", hidden, rows, scores - 1)[:, 0], (facts[:, 3] / 4).tanh()),
    }


def losses(model: LlamaForCausalLM, probes: Probes, episodes: Episodes, step: int, share: float) -> dict[str, Tensor]:
    """Every loss of one step; of the last stage each fourth has half as many episodes, nearly twice as long."""
    batch, items = next((batch, items) for end, batch, items in STAGES if share < end)
    if items == STAGES[-1][2] and step % 4 == 3:
        batch, items = batch // 2, 2 * items - 1
    named = NAMED[0] + (NAMED[1] - NAMED[0]) * min(1.0, 2 * share)
    drawn = [episodes.judging(items, named=named, pointed=POINTED) for _ in range(batch)]
    found = judging_losses(model, probes, drawn, episodes.labels)
    texts = padded([episodes.generating() for _ in range(TEXTS)])
    return {**found, "text": text_loss(model(texts).logits, texts)}


def train(out: Path, *, steps: int, seed: int, resume: bool) -> None:
    """Train, with a line in ``out/losses.jsonl`` every 50 steps and a checkpoint every 250."""
    torch.manual_seed(seed)
    episodes, probes = Episodes(seed), Probes()
    model = llama(vocabulary=len(episodes.ids), context=CONTEXT, width=WIDTH, inner=256, layers=8, heads=4)
    parameters = [*model.parameters(), *probes.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=PEAK, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    course = Course(out, {"model": model, "probes": probes, "optimizer": optimizer}, resume=resume)
    if course.first:
        episodes.rng.seed(f"{seed} {course.first}")
    for step in range(course.first, steps):
        set_rate(optimizer, peak=PEAK, warmup=WARMUP, step=step, steps=steps)
        found = losses(model, probes, episodes, step, step / steps)
        optimizer.zero_grad()
        sum(WEIGHTS[name] * loss for name, loss in found.items()).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        course.step(step, {name: loss.item() for name, loss in found.items()})
        if (step + 1) % 250 == 0 or step + 1 == steps:
            model.save_pretrained(out)
            episodes.tokenizer.save_pretrained(out)
            course.save(step)


if __name__ == "__main__":
    args = arguments(__doc__, steps=3000)
    train(args.out, steps=args.steps, seed=args.seed, resume=args.resume)
