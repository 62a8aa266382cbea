"""Run refine loops of a real model on CommonGen Hard: under its own list of missing concepts, and under the true one.

The model's own list is drawn at temperature 1, as in the published code, and once more decoded greedily.

usage: python -m benchmarks.commongen --lm MODEL [--dtype bfloat16] [--items 30] [--refinements 3]
           [--max-tokens 150] [--threads 8] [--seed 0] [--out DIR] [--write]

The items are read from EVALBIAS_DATA. A stopped run resumes. ``--write`` puts the table into
benchmarks/results/self_bias.md.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from benchmarks.harness import argument_parser, data_folder, finish, judge_of, markdown
from benchmarks.self_bias import first_to_last
from evalbias.cli.models import open_lm
from evalbias.data.loops import loop_items
from evalbias.evaluation import LoopSummary, summarize_loop
from evalbias.evaluation.loops import CachedScorer, LoopRun, conclude_quality, run_loops
from evalbias.evaluation.words import count, mark
from evalbias.lm.cache import model_identity
from evalbias.measures.arrays import FloatArray
from evalbias.options import MeasuringModels
from evalbias.programs.feedback import ExactConcepts, Feedback, coverage
from evalbias.programs.tasks import constrained_generation

HEADINGS = ["feedback", "believes all covered (undefined)", "all covered", "Bias", "Dskew"]
HEADINGS += ["mean share of concepts", "change of the share"]


class CoveredShare:
    """External feedback: the share of the concepts that a text covers, and the list of those that it lacks.

    ``ExactConcepts`` gives no credit for a part of them, so a loop of a weak model accepts nothing.
    """

    name, low, high = "share of the concepts", 0.0, 1.0

    def __init__(self) -> None:
        self._exact = ExactConcepts()

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Search the output for the example's ``concepts``."""
        return Feedback(coverage(example["concepts"], output), self._exact(example, output).text)


@dataclass(frozen=True)
class Arm:
    """The loops of all items under one source of feedback."""

    name: str  # name of the feedback
    run: LoopRun  # the loops
    belief: LoopSummary  # self-bias of the model's belief that all concepts are covered
    share: FloatArray  # (t + 1, n) share of the concepts that each output covers

    def row(self, seed: int) -> list[str]:
        """Return the row of the table."""
        own, expected, bias, skewness = (
            first_to_last(self.belief, name) for name in ("own", "expected", "bias", "skewness")
        )
        undefined = ", ".join(str(self.belief.rounds[at]["bias"].undefined) for at in (0, -1))
        bias += mark(self.belief.change["bias"].p_value)
        share = np.nanmean(self.share, axis=1)
        change = conclude_quality(self.share, CoveredShare.name, seed=seed)
        shares = f"{share[0]:.2f} -> {share[-1]:.2f}"
        return [self.name, f"{own} ({undefined})", expected, bias, skewness, shares, change]


def arms(
    lm: Any,
    items: Sequence[dspy.Example],
    *,
    refinements: int,
    max_tokens: int,
    seed: int,
    threads: int,
    out: Path | None,
) -> list[Arm]:
    """Run the loop under the model's own feedback, drawn and greedy, and under the external one.

    All begin with the same outputs, and the beliefs beside the external feedback are drawn.
    """
    results = []
    share = CoveredShare()
    config: dict[str, Any] = {"max_iterations": refinements, "max_tokens": max_tokens, "seed": seed}
    for name, temperature, external in (("own", 1.0, None), ("own, greedy", 0.0, None), ("external", 1.0, share)):
        loop = constrained_generation(feedback_temperature=temperature, **config).loop
        own: Any = loop.feedback
        own.set_lm(lm)
        if external is not None:
            loop.feedback = external
        folder = None if out is None else out / name
        run = run_loops(loop, items, lm=lm, log_dir=folder, num_threads=threads)
        believed = run.quality(items, CachedScorer(own, None if folder is None else folder / "believed.jsonl"))
        covered = run.quality(items, ExactConcepts())
        belief = summarize_loop(name, believed, covered, seed=seed)
        results.append(Arm(name, run, belief, run.quality(items, share)))
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__, out="commongen")
    parser.add_argument("--lm", required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--items", type=int, default=30)
    parser.add_argument("--refinements", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=150)
    parser.add_argument("--threads", type=int, default=8)
    args = parser.parse_args(arguments)
    lm = open_lm(args.lm, MeasuringModels(dtype=args.dtype))
    items, _ = loop_items(data_folder("commongen_hard.jsonl"))
    drawn = random.Random(args.seed).sample(items, min(args.items, len(items)))
    settings = {"refinements": args.refinements, "max_tokens": args.max_tokens, "seed": args.seed}
    made = arms(lm, drawn, **settings, threads=args.threads, out=args.out)
    title = Path(args.lm).name
    failed = {item for arm in made for item in arm.run.failed}
    text = "\n\n".join(
        [
            f"## Self-bias: loops of {title} on CommonGen Hard",
            f"Model: {judge_of(model_identity(lm))}. {count(len(drawn), 'item')} of {len(items)}, at most "
            f"{args.refinements} refinements of at most {args.max_tokens} tokens; seed {args.seed}; "
            f"{count(len(failed), 'item')} failed. The model's belief is what it answers, whichever feedback drives "
            "the loop; concepts are counted as substrings, as in the paper, and Bias is belief minus truth. First "
            "output -> last; \\* p < .05, † p < .06.",
            markdown(HEADINGS, [arm.row(args.seed) for arm in made]),
        ]
    )
    finish(args, "self_bias", text, section=f"commongen {title}")


if __name__ == "__main__":
    main()
