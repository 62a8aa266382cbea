"""Compare mitigations of position bias on held-out pairs: of the synthetic world, LLMBar, or PandaLM.

usage: python -m benchmarks.position [--lm MODEL] [--adapter FOLDER] [--dtype bfloat16] [--pairs llmbar]
           [--fit-pairs N] [--test-pairs N] [--seed N] [--write]

In the synthetic world the truth is known. LLMBar's better output carries out the instruction by construction, PandaLM's
is the choice of two of three people; both are read from EVALBIAS_DATA. Everything is fitted to
pairs without labels. The test pairs have other sources and are asked in both orders, because a judge's fairness and
consistency show only there; the column of prompts counts what a user's pair takes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from benchmarks import sets
from benchmarks.harness import argument_parser, finish, judge_of, markdown
from evalbias import data
from evalbias.cli.models import open_lm
from evalbias.data import world
from evalbias.data.items import input_key
from evalbias.evaluation import judge_examples, measure
from evalbias.evaluation.answers import instruction_place_for
from evalbias.evaluation.biases import Position
from evalbias.evaluation.estimates import Estimate, Number
from evalbias.lm.cache import model_identity
from evalbias.measures import decision_shares
from evalbias.measures.position_calibration import by_candidate, rotations
from evalbias.measures.resample import estimate_mean
from evalbias.optimizers import ZEPO
from evalbias.optimizers.proposers import GrammarParaphraser
from evalbias.options import MeasuringModels
from evalbias.programs import SYNTHETIC, Criterion, PairwiseJudge
from evalbias.programs.pairwise import CalibrationError

SYNTHETIC_WORLD = "synthetic"
INSTRUCTION = Criterion("quality", "How well does the output carry out the instruction?")
DOCUMENTS = 40
"""Documents with six outputs each, for fitting and as many others for the test."""


@dataclass(frozen=True)
class Mitigation:
    """A judge with one mitigation."""

    judge: PairwiseJudge | None  # the judge; None if it cannot be fitted
    fit_prompts: int  # prompts that the fit takes
    why: str = ""  # reason if it cannot be fitted

    @property
    def prompts(self) -> int:
        """Prompts that a pair takes."""
        return 2 if self.judge is not None and self.judge.debias == "permutation" else 1


def true_pairs(n: int, *, seed: int, without: frozenset[str] = frozenset()) -> list[dspy.Example]:
    """Draw at most n pairs of the synthetic world whose candidates differ in true quality; "A" or "B" is better.

    Sources of ``without`` are left out.
    """
    items = [e for e in world.documents(DOCUMENTS, 6, seed=seed) if e.source not in without]
    made = data.pairs(items, ordered=False, seed=seed)
    quality = [[world.true_quality(e.source, text) for text in e.candidates] for e in made]
    labeled = [e.copy(preference="AB"[q[1] > q[0]]) for e, q in zip(made, quality, strict=True) if q[0] != q[1]]
    return labeled[:n]


def recorded_pairs(name: str, fit: int, test: int, *, seed: int) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Draw pairs of recorded data for fitting, and others of other sources for the test, of which one is better.

    Pairs with an empty output are left out: PandaLM has 34 of 699.
    """
    pairs = [e for e in sets.read(name) if e.better is not None and all(e.candidates)]
    random.Random(seed).shuffle(pairs)
    sources = frozenset(e.source for e in pairs[:fit])
    return pairs[:fit], [e for e in pairs[fit:] if e.source not in sources][:test]


def mitigations(
    fit: Sequence[dspy.Example], lm: Any, *, seed: int, criterion: Criterion = SYNTHETIC
) -> dict[str, Mitigation]:
    """Return every mitigation, fitted to pairs without labels."""
    pairs = [dspy.Example(source=e.source, candidates=e.candidates, input_id=input_key(e)) for e in fit]
    new = partial(PairwiseJudge, criterion, instruction_place=instruction_place_for(lm))
    made = {"none": Mitigation(new(), 0)}
    for title, kind in (("batch", "batch"), ("PriDe", "pride")):
        judge = new(calibration=kind)
        try:
            made[title] = Mitigation(judge, judge.calibrate(pairs, lm=lm))
        except CalibrationError as error:
            made[title] = Mitigation(None, 0, str(error))
    zepo = ZEPO(GrammarParaphraser(world.PARTS), seed=seed, select=False, racing=True)
    compiled = zepo.compile(new(), trainset=pairs, lm=lm)
    made["ZEPO"] = Mitigation(compiled, compiled.report.judgments)
    both = compiled.deepcopy()
    both.calibration = "pride"
    made["ZEPO + PriDe"] = Mitigation(both, compiled.report.judgments + both.calibrate(pairs, lm=lm))
    made["permutation"] = Mitigation(new(debias="permutation"), 0)
    return made


def row(title: str, mitigation: Mitigation, test: Sequence[dspy.Example], lm: Any, *, seed: int) -> list[object]:
    """Measure one mitigation on the test pairs, and return its row of the table."""
    if mitigation.judge is None:
        return [title, mitigation.why, "", "", "", ""]
    judged = judge_examples(mitigation.judge, test, lm=lm)
    position = measure(Position(), judged, seed=seed)
    candidates = by_candidate(judged.answers, rotations(2, every=True))  # (n, 2, 2)
    better = ["AB".index(e.preference) for e in test]
    right = np.mean([decision_shares(candidates[:, r])[range(len(test)), better] for r in range(2)], axis=0)
    agreement = Number("agreement", "agreement", right, estimate_mean).estimate(judged.clusters, seed=seed)
    cells = [*(position[name] for name in ("fairness", "position_consistency")), agreement]
    return [title, *map(_cell, cells), mitigation.fit_prompts, mitigation.prompts]


def _cell(estimate: Estimate) -> str:
    value, low, high = (f"{round(end, 2) + 0.0:.2f}" for end in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]" if math.isfinite(estimate.low) else value


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__)
    parser.add_argument("--lm", default="embedded")
    parser.add_argument("--adapter")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--pairs", choices=[SYNTHETIC_WORLD, "llmbar", "pandalm"], default=SYNTHETIC_WORLD)
    parser.add_argument("--fit-pairs", type=int, default=100)
    parser.add_argument("--test-pairs", type=int, default=300)
    args = parser.parse_args(arguments)
    lm = open_lm(args.lm, MeasuringModels(adapter=args.adapter, dtype=args.dtype))
    if args.pairs == SYNTHETIC_WORLD:
        criterion, truth = SYNTHETIC, "the candidate of higher true quality"
        fit = true_pairs(args.fit_pairs, seed=5_000_001 + args.seed)
        sources = frozenset(e.source for e in fit)
        test = true_pairs(args.test_pairs, seed=5_100_001 + args.seed, without=sources)
    else:
        criterion, truth = INSTRUCTION, "the candidate that people prefer"
        fit, test = recorded_pairs(args.pairs, args.fit_pairs, args.test_pairs, seed=args.seed)
    made = mitigations(fit, lm, seed=args.seed, criterion=criterion)
    rows = [row(title, judge, test, lm, seed=args.seed) for title, judge in made.items()]
    name = Path(args.lm).name + (", tuned" if args.adapter else "")
    title = name if args.pairs == SYNTHETIC_WORLD else f"{name}, {args.pairs}"
    headings = ["mitigation", "fairness", "consistency", "agreement with the truth", "prompts to fit", "prompts a pair"]
    text = "\n\n".join(
        [
            f"## Mitigations of position bias: {title}",
            f"Judge: {judge_of(model_identity(lm))}. Instruction {instruction_place_for(lm)} in the prompt. "
            f"Fitted to {len(fit)} pairs without labels, measured on "
            f"{len(test)} pairs of other sources, {args.pairs} data; seed {args.seed}. Agreement: share of pairs, in "
            f"both orders, in which {truth} is preferred, a tie counting half; where it is the same in every pair, it "
            "has no interval. 95% intervals resample sources. Where permutation agrees with the truth in every pair, "
            "the table cannot rank the corrections.",
            markdown(headings, rows),
        ]
    )
    finish(args, "position", text, section=title)


if __name__ == "__main__":
    main()
