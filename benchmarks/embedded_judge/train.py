"""Train the embedded judge from scratch.

usage: python -m benchmarks.embedded_judge.train OUT [--minutes 45] [--seed 0] [--threads 2] [--resume]

An episode is one judge prompt, rendered by the package's own wording: nine items scored by one rater. The rater's
taste for common phrasing is drawn for the episode; every score is supervised with the rater's exact distribution, so
that the model learns what a rater of unknown taste would say, given the scores seen so far. In a part of the episodes
the instruction names the rater; the part falls as training goes on. Beside the episodes the model sees texts of the
world under the likelihood prompt, their sources shuffled: likelihood then depends on the phrasing alone.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.embedded_judge.tokenizer import PATTERN, RATERS, build
from evalbias.data import world
from evalbias.lm.text import dialogue
from evalbias.programs.criteria import SYNTHETIC
from evalbias.programs.prompt import judge_messages, likelihood_messages

CONTEXT = 1024
DEMOS = 8
BATCH = 16
TASTE = (0.0, 2.0)
PEAK = 3e-3
NAMED = (0.9, 0.35)
"""Share of judge episodes that name their rater, at the start and at the end."""


class Episodes:
    """Draws training episodes as token ids with soft targets for every score."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tokenizer = build(CONTEXT)
        self.ids = self.tokenizer.get_vocab()
        self.labels = [self.ids[label] for label in SYNTHETIC.labels]

    def encode(self, text: str) -> list[int]:
        """What the shipped tokenizer gives, only faster; a test holds them equal."""
        return [self.ids["<s>"], *(self.ids[w] for w in re.findall(PATTERN, text))]

    def judging(self, named: float) -> tuple[list[int], list[tuple[int, list[float]]]]:
        """Token ids, and (position of the score token, its distribution) of every score."""
        taste = self.rng.uniform(*TASTE)
        instructions = SYNTHETIC.instructions
        if self.rng.random() < named:
            fifth = min(4, int((taste - TASTE[0]) / (TASTE[1] - TASTE[0]) * 5))
            instructions += f"\nRater: {RATERS[fifth]}."
        items = [world.item(self.rng) for _ in range(DEMOS + 1)]
        labels = [str(math.floor(world.rating(self.rng, i, taste=taste) + 0.5)) for i in items]
        shown = [(i.source, i.output, label) for i, label in zip(items, labels, strict=True)]
        last = shown.pop()
        messages = judge_messages(SYNTHETIC, last[0], last[1], demos=shown, instructions=instructions)
        ids = self.encode(dialogue([*messages, {"role": "assistant", "content": last[2]}]))
        colon, quality = self.ids[":"], self.ids[SYNTHETIC.title.capitalize()]
        places = [p for p in range(2, len(ids)) if ids[p - 1] == colon and ids[p - 2] == quality]
        targets = [world.label_probabilities(i, taste=taste) for i in items]
        return ids, list(zip(places, targets, strict=True))

    def generating(self) -> list[int]:
        """One text under the likelihood prompt, as it will be scored; the source is another item's."""
        drawn, other = world.item(self.rng), world.item(self.rng)
        messages = [*likelihood_messages(SYNTHETIC, other.source), {"role": "assistant", "content": drawn.output}]
        return self.encode(dialogue(messages))


def padded(rows: list[list[int]]) -> torch.Tensor:
    """(B, T) ids, 0 behind the shorter rows."""
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = torch.tensor(tokens)
    return ids


def text_loss(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Cross-entropy in nats a token, of (B, T, V) logits."""
    return torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], ignore_index=0)


def losses(model: LlamaForCausalLM, episodes: Episodes, named: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(divergence of the scores from the raters', cross-entropy of the texts), both in nats a token."""
    drawn = [episodes.judging(named) for _ in range(BATCH)]
    ids = padded([tokens for tokens, _ in drawn])
    rows = torch.tensor([row for row, (_, scores) in enumerate(drawn) for _ in scores])
    places = torch.tensor([place for _, scores in drawn for place, _ in scores])
    targets = torch.tensor([target for _, scores in drawn for _, target in scores])  # (m, c)
    logits = model(ids).logits  # (B, T, V)
    scores = logits[rows, places - 1].log_softmax(-1)[:, episodes.labels]  # (m, c)
    divergence = (targets * (targets.clamp_min(1e-9).log() - scores)).sum(-1).mean()
    texts = padded([episodes.generating() for _ in range(BATCH)])
    return divergence, text_loss(model(texts).logits, texts) + 0.1 * text_loss(logits, ids)


def train(out: Path, *, minutes: float, seed: int, resume: bool) -> None:
    """Train for that many minutes of wall time and save the folder that LocalLM loads."""
    torch.manual_seed(seed)
    episodes = Episodes(seed)
    config = LlamaConfig(
        vocab_size=len(episodes.ids),
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.98), weight_decay=0.01)
    step, spent, log = 0, 0.0, []
    checkpoint = out / "checkpoint.pt"
    if resume and checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, spent, log = state["step"], state["spent"], json.loads(state["log"])
        episodes.rng.seed(seed + step)
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic() - spent
    while (spent := time.monotonic() - started) < minutes * 60:
        share = spent / (minutes * 60)
        rate = PEAK * min(1.0, (step + 1) / 200) * (0.5 * (1 + math.cos(math.pi * share)) + 0.02)
        for group in optimizer.param_groups:
            group["lr"] = rate
        named = NAMED[0] + (NAMED[1] - NAMED[0]) * min(1.0, share / 0.6)
        divergence, text = losses(model, episodes, named)
        optimizer.zero_grad()
        (3 * divergence + 0.5 * text).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 100 == 0:
            log.append({"step": step, "seconds": round(spent), "score": divergence.item(), "text": text.item()})
            print(json.dumps(log[-1]), flush=True)
        if step % 500 == 0:
            save(out, model, episodes, log)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save({**state, "spent": spent, "log": json.dumps(log)}, checkpoint)
    save(out, model, episodes, log)


def save(out: Path, model: LlamaForCausalLM, episodes: Episodes, log: list[dict[str, float]]) -> None:
    """Weights, tokenizer and the log of the losses."""
    model.save_pretrained(out)
    episodes.tokenizer.save_pretrained(out)
    (out / "losses.json").write_text(json.dumps(log) + "\n")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    train(args.out, minutes=args.minutes, seed=args.seed, resume=args.resume)


if __name__ == "__main__":
    main()
