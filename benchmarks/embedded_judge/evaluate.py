"""Evaluate the embedded judge on held-out seeds of its synthetic world and write the record of its training.

usage: python -m benchmarks.embedded_judge.evaluate FOLDER [--draws 20] [--items 400] [--write]

Every draw repeats the demo with other demonstrations: eight of 400 training items at random, then the eight of highest
RS among the others. The 400 test items are the same in every draw. The ideal judge does the same. ``--write``
writes record.json and its section of TRAINING.md; how the judge compares stands there as it was measured once, and
``benchmarks.fairness_search --sets synthetic``, ``racing`` and ``position`` measure it again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import torch

import evalbias
from benchmarks.embedded_judge.ideal import PRIOR, answer, evidence, expected, table
from benchmarks.harness import markdown, write_section
from evalbias.data import world
from evalbias.evaluation.judged import judge_examples
from evalbias.measures import bias_score, spearman, unfairness_scores
from evalbias.optimizers import BiasedDemos
from evalbias.programs.criterion import SYNTHETIC
from evalbias.programs.judges import likelihood_scores
from evalbias.programs.pointwise import PointwiseJudge

HERE = Path(__file__).parent
SEEDS = {"train": 2_000_001, "test": 2_000_002}
"""Seeds of the items; neither training nor the demo uses them."""

K = 8
"""Number of demonstrations."""


@dataclass(frozen=True)
class Figures:
    """Figures of one judge on the test items."""

    bias_score: float  # BiasScore, with the human scores
    performance: float  # Spearman's rho with the human scores
    truth: float  # Spearman's rho with the true quality
    taste: float  # points of the score per standard deviation of commonness, with quality held fixed


@dataclass(frozen=True)
class ItemFacts:
    """Likelihoods, human scores, true quality and commonness of the test items, (n,) each."""

    likelihoods: np.ndarray
    human: np.ndarray
    quality: np.ndarray
    commonness: np.ndarray

    def figures(self, scores: np.ndarray) -> Figures:
        """Return the figures of a judge with these (n,) scores."""
        design = np.column_stack([np.ones(len(scores)), self.quality, self.commonness])
        slope = np.linalg.lstsq(design, scores, rcond=None)[0][2]
        unfairness = unfairness_scores(scores, self.human)
        return Figures(
            bias_score(self.likelihoods, unfairness),
            spearman(scores, self.human).value,
            spearman(scores, self.quality).value,
            float(slope),
        )


def ideal_scores(examples: Sequence[dspy.Example], demos: Sequence[dspy.Example]) -> np.ndarray:
    """Return (n,) expected scores of the ideal judge with these demonstrations."""
    odds = PRIOR + sum(evidence(table(_item(d)), math.floor(d["scores"][world.NAME] + 0.5)) for d in demos)
    return np.array([expected(answer(table(_item(e)), odds)) for e in examples])


def _item(example: dspy.Example) -> world.Item:
    return world.Item(example.source, example.output, example.quality, example.commonness, ())


def run(folder: Path, *, draws: int, items: int) -> dict[str, Any]:
    """Compute all figures of the record."""
    torch.set_num_threads(1)
    lm = evalbias.LocalLM(str(folder), device="cpu", dtype="float32")
    train, test = (world.examples(items, seed=SEEDS[side]) for side in ("train", "test"))
    judge = PointwiseJudge(SYNTHETIC)
    facts = ItemFacts(
        likelihood_scores(test, SYNTHETIC, lm),
        *(
            np.array(values)
            for values in zip(*((e.scores[world.NAME], e.quality, e.commonness) for e in test), strict=True)
        ),
    )
    none = judge_examples(judge, test, lm=lm)
    by_id = {e.id: e for e in train}
    rows = []
    for seed in range(draws):
        optimizer = BiasedDemos(K, n_resamples=10_000, seed=seed, select=False)
        report = optimizer.compile(judge, trainset=train, valset=test, lm=lm).report
        bias = report.comparison["likelihood"]["bias_score"]
        row: dict[str, Any] = {"p_value": bias.p_value, "interval": [bias.before.low, bias.before.high]}
        sides = (("before", report.before, report.random), ("after", report.after, report.demonstrations))
        for side, judged, ids in sides:
            row[side] = vars(facts.figures(judged.answers))
            row[f"{side}_ideal"] = vars(facts.figures(ideal_scores(test, [by_id[i] for i in ids])))
        rows.append(row)
        print(json.dumps(row), flush=True)
    return {
        "items": items,
        "parameters": sum(p.numel() for p in lm.engine.loaded.model.parameters()),
        **{name: lm.provenance()[name] for name in ("torch", "transformers")},
        "likelihood_commonness": spearman(facts.likelihoods, facts.commonness).value,
        "likelihood_quality": spearman(facts.likelihoods, facts.quality).value,
        "no_demonstrations": vars(facts.figures(none.answers)),
        "draws": rows,
    }


def mean(rows: Sequence[dict[str, Any]], side: str, figure: str) -> str:
    """Format the mean and standard deviation over the draws."""
    values = np.array([row[side][figure] for row in rows])
    return f"{values.mean():.2f} ({values.std():.2f})"


def record(results: dict[str, Any], losses: Sequence[dict[str, float]]) -> str:
    """Return the record as Markdown."""
    rows, none = results["draws"], results["no_demonstrations"]
    figures = ("bias_score", "performance", "truth", "taste")
    parts = [
        "## Held-out items",
        f"{losses[-1]['step']:.0f} steps in {losses[-1]['seconds'] / 60:.0f} minutes on one CPU core. "
        f"{results['parameters']} parameters; float32; torch {results['torch']}, "
        f"transformers {results['transformers']}.",
        f"{results['items']} candidate demonstrations, {results['items']} test items, {len(rows)} draws.",
        f"LS has a rank correlation of {results['likelihood_commonness']:.2f} with commonness and of "
        f"{results['likelihood_quality']:.2f} with the true quality. The table shows means over the draws "
        "(standard deviation). Taste is the change of the score, in points, per standard deviation of commonness. The "
        "ideal judge knows quality and commonness and answers by Bayes' rule.",
    ]
    judges = [["none", "embedded", *(f"{none[f]:.2f}" for f in figures)]]
    for name, side in (("8 at random", "before"), ("8 of highest RS", "after")):
        for who, key in (("embedded", side), ("ideal", f"{side}_ideal")):
            judges.append([name, who, *(mean(rows, key, f) for f in figures)])
    parts += [
        markdown(["demonstrations", "judge", "BiasScore", "performance", "rho with true quality", "taste"], judges),
        "Losses, step by step, are in record.json.",
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--items", type=int, default=400)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    results = run(args.folder, draws=args.draws, items=args.items)
    losses = [json.loads(line) for line in (args.folder / "losses.jsonl").read_text().splitlines()]
    text = record(results, losses)
    print(text)
    if args.write:
        write_section(HERE / "TRAINING.md", "held-out items", text)
        (HERE / "record.json").write_text(json.dumps({**results, "losses": losses}) + "\n")


if __name__ == "__main__":
    main()
