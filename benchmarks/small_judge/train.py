"""Train the small judge from scratch on real text and real human scores; it is not shipped.

usage: python -m benchmarks.small_judge.train OUT [--steps 1200] [--seed 0] [--threads 1] [--resume]

The data are read from EVALBIAS_DATA (default ../shared/data). OUT becomes a model folder. It also holds losses.jsonl,
corpus.json (size of the training data) and candidates-NAME.txt: the training items whose scores the judge never saw,
for ``evalbias compile likelihood --candidates``. With ``--resume``, a stopped run continues from its last checkpoint,
with other draws from there on.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.small_judge.corpus import SOURCES, Dialogue, judging, rated, texts
from benchmarks.training import Course, arguments, llama, padded, set_rate, text_loss

VOCABULARY, CONTEXT = 3072, 3072
BLOCKS, BLOCK = 4, 512
EPISODES = {"tmu-gfm": (4, 9), "webnlg2020": (1, 9)}
"""Data set -> prompts per step, and items per prompt."""

PEAK, WARMUP = 2e-3, 100
SCORES, PROMPTS = 1.0, 0.3
"""Weights of the losses on the scores and on the prompts' text; running text has weight 1."""


def tokenizer_of(corpus: Sequence[str]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on the corpus; it starts every text with ``<s>``."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet)
    inner.train_from_iterator(corpus, trainer)
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>", model_max_length=CONTEXT
    )


def judging_losses(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, drawn: Sequence[Dialogue]
) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy with the human scores, and that of the prompts' text, in nats per token."""
    encodings = [tokenizer(d.text, return_offsets_mapping=True) for d in drawn]
    ids = padded([encoding["input_ids"] for encoding in encodings])
    logits = model(ids).logits  # (B, T, V)
    targets = torch.zeros(sum(len(d.targets) for d in drawn), logits.shape[-1])  # (m, V)
    rows, places = [], []
    for row, (dialogue, tokens) in enumerate(zip(drawn, encodings, strict=True)):
        for place, target in zip(dialogue.places, dialogue.targets, strict=True):
            at = next(i for i, (start, end) in enumerate(tokens["offset_mapping"]) if start <= place < end)
            for label, share in target.items():
                targets[len(rows), label_id(tokenizer, label)] = share
            rows.append(row)
            places.append(at)
    at_scores = logits[rows, [place - 1 for place in places]]  # (m, V)
    text = ids.clone()
    text[rows, places] = 0
    return cross_entropy(at_scores, targets), text_loss(logits, text)


def label_id(tokenizer: PreTrainedTokenizerFast, label: str) -> int:
    """Return the single token of a label after a space."""
    (token,) = tokenizer(" " + label, add_special_tokens=False)["input_ids"]
    return int(token)


def train(folder: Path, out: Path, *, steps: int, seed: int, resume: bool) -> None:
    """Train; write a line of ``out/losses.jsonl`` every 50 steps, and weights and a checkpoint every 100."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    sets = [rated(folder, name) for name in SOURCES]
    corpus = texts(folder, sets)
    tokenizer = tokenizer_of([*corpus, *(judging(rng, s, 9).text for s in sets for _ in range(300))])
    stream = torch.tensor([i for t in rng.sample(corpus, len(corpus)) for i in [*tokenizer(t)["input_ids"], 2]])
    model = llama(vocabulary=VOCABULARY, context=CONTEXT, width=160, inner=448, layers=5, heads=5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    course = Course(out, {"model": model, "optimizer": optimizer}, resume=resume)
    sizes: dict[str, Any] = {"texts": len(corpus), "tokens": len(stream), "seed": seed, "steps": steps}
    for s in sets:
        sizes[s.name] = {"train": len(s.train), "candidates": len(s.candidates)}
        (out / f"candidates-{s.name}.txt").write_text("".join(f"{e.id}\n" for e in s.candidates))
    (out / "corpus.json").write_text(json.dumps(sizes) + "\n")
    if course.first:
        rng.seed(f"{seed} {course.first}")
    for step in range(course.first, steps):
        set_rate(optimizer, peak=PEAK, warmup=WARMUP, step=step, steps=steps)
        starts = [rng.randrange(len(stream) - BLOCK) for _ in range(BLOCKS)]
        blocks = torch.stack([stream[i : i + BLOCK] for i in starts])
        text = text_loss(model(blocks).logits, blocks)
        optimizer.zero_grad()
        text.backward()  # one part at a time, because the logits of all parts together would be large
        losses = {"text": text.item()}
        for s in sets:
            prompts, items = EPISODES[s.name]
            scores, prompt = judging_losses(model, tokenizer, [judging(rng, s, items) for _ in range(prompts)])
            (SCORES * scores + PROMPTS * prompt).backward()
            losses |= {f"{s.name} scores": scores.item(), f"{s.name} prompts": prompt.item()}
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        course.step(step, losses)
        if (step + 1) % 100 == 0 or step + 1 == steps:
            model.save_pretrained(out)
            tokenizer.save_pretrained(out)
            course.save(step)


if __name__ == "__main__":
    args = arguments(__doc__, steps=1200)
    data = Path(os.environ.get("EVALBIAS_DATA", "../shared/data"))
    train(data, args.out, steps=args.steps, seed=args.seed, resume=args.resume)
