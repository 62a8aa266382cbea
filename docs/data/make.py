"""Draw the files of this folder again: items of the synthetic world, judged by the judge inside evalbias.

usage: python docs/data/make.py [MODEL]

With MODEL, a folder or .gguf file, the scores that ``evalbias demo --recorded`` audits are recorded too, in bfloat16.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np

import evalbias
from evalbias import data
from evalbias.data import world
from evalbias.evaluation.judged import LENGTHS
from evalbias.evaluation.judged import RATINGS as RATED
from evalbias.programs import SYNTHETIC

FOLDER = Path(__file__).parent
JUDGE = "qwen2.5-coder-1.5b"
RATINGS = [f"rating_{number}" for number in range(1, world.ANNOTATORS + 1)]


def replies(name: str, n: int, seed: int) -> None:
    """Write a table of texts with the ratings of four people and the scores of a judge."""
    items = world.examples(n, seed=seed)
    judged = evalbias.judge_examples(evalbias.PointwiseJudge(SYNTHETIC), items, lm=evalbias.embedded_judge_lm())
    with (FOLDER / name).open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["facts", "reply", *RATINGS, "my_score"])
        for item, score in zip(items, judged.answers, strict=True):
            ratings = [min(5, max(1, round(rating))) for rating in item.ratings[world.NAME]]
            rows.writerow([item.source, item.output, *ratings, f"{score:.1f}"])


def recorded(model: str) -> None:
    """Record what a model says of the replies, as numbers alone."""
    items = data.read(FOLDER / "replies.csv", mapping={"source": "facts", "output": "reply"})
    lm = evalbias.LocalLM(model, dtype="bfloat16")
    judged = evalbias.judge_examples(evalbias.PointwiseJudge(SYNTHETIC), items, lm=lm)
    sources = {source: number for number, source in enumerate(dict.fromkeys(judged.inputs))}
    with Path(data.__file__).with_name("recorded_judge.jsonl").open("w", encoding="utf-8") as file:
        for place, (name, source) in enumerate(zip(judged.ids, judged.inputs, strict=True)):
            row = {"id": name, "input_id": sources[source], "length": int(judged.covariate(LENGTHS)[place])}
            row["ratings"] = [int(rating) for rating in judged.covariate(RATED)[place]]
            file.write(json.dumps({**row, JUDGE: round(float(judged.answers[place]), 3)}) + "\n")


def verdicts(name: str, seed: int) -> None:
    """Write pairs with the choices of a judge in both orders, and which output is better."""
    pairs = data.pairs(world.documents(40, 5, seed=seed), ordered=False, limit=160, seed=0)
    judge = evalbias.PairwiseJudge(SYNTHETIC, instruction_place="first")
    judged = evalbias.judge_examples(judge, pairs, lm=evalbias.embedded_judge_lm())
    rows = []
    for name_of_pair, pair, (forward, swapped) in zip(judged.ids, pairs, judged.answers, strict=True):
        first, second = (world.true_quality(pair.source, one) for one in pair.candidates)
        rows.append(
            {
                "id": name_of_pair,
                "source": pair.source,
                "outputs": list(pair.candidates),
                "better": None if first == second else int(second > first),
                "winner": int(forward[1] > forward[0]),
                "winner_swapped": int(swapped[0] > swapped[1]),
            }
        )
    _lines(name, rows)


def panel(name: str, seed: int) -> None:
    """Write a table of texts with the ratings of four people and scores of simulated judges: small ones err alike."""
    items, rng = world.documents(60, 4, seed=seed), np.random.default_rng(seed)
    quality = np.array([world.true_quality(item.source, item.output) for item in items])
    shared, *own = rng.normal(size=(5, len(items)))
    errors = [0.7 * own[0], 0.9 * shared + 0.5 * own[1], 0.9 * shared + 0.5 * own[2], 1.2 * own[3]]
    scores = np.clip(np.round(2 * (quality + np.array(errors))) / 2, 1, 5).T
    with (FOLDER / name).open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["facts", "reply", *RATINGS, "large", "small-1", "small-2", "other"])
        for item, row in zip(items, scores, strict=True):
            ratings = [min(5, max(1, round(rating))) for rating in item.ratings[world.NAME]]
            rows.writerow([item.source, item.output, *ratings, *(f"{score:g}" for score in row)])


def outputs(name: str, seed: int) -> None:
    """Write several outputs of each source, without ratings."""
    items = world.documents(20, 5, seed=seed)
    _lines(name, [{key: item[key] for key in ("id", "input_id", "source", "output")} for item in items])


def _lines(name: str, rows: list[dict[str, object]]) -> None:
    (FOLDER / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    replies("replies.csv", 400, seed=11)
    replies("new-replies.csv", 200, seed=12)
    verdicts("verdicts.jsonl", seed=13)
    outputs("outputs.jsonl", seed=14)
    panel("panel.csv", seed=15)
    if len(sys.argv) > 1:
        recorded(sys.argv[1])
