"""Compare mitigations of position bias on held-out pairs of the synthetic world, where the truth is known.

usage: python -m benchmarks.zepo.mitigations [--lm MODEL] [--fit-pairs N] [--test-pairs N] [--seed N] [--write]

Everything is fitted to pairs without labels. The test pairs are of other documents and asked in both orders, because a
judge's fairness and consistency show only there; the column of prompts counts what a user's pair takes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dspy
import numpy as np

from benchmarks.results import write_section
from evalbias import data
from evalbias.commands.models import identity, open_lm
from evalbias.data import wordings, world
from evalbias.evaluation import judge_examples, measure
from evalbias.evaluation.estimates import Sample, clusters_of, measured
from evalbias.evaluation.position import PositionBias
from evalbias.measures import decision_shares
from evalbias.measures.calibration import by_candidate, rotations
from evalbias.measures.statistic import MeanStatistic
from evalbias.optimizers import ZEPO, GrammarParaphraser
from evalbias.programs import SYNTHETIC, PairwiseJudge
from evalbias.programs.position_calibration import CalibrationError

DOCUMENTS = 40
"""Documents with six outputs each, for fitting and as many others for the test."""


@dataclass(frozen=True)
class Mitigation:
    """A judge with one mitigation.

    Attributes:
        judge: The judge; None if it cannot be fitted.
        fit_prompts: Prompts that the fit takes.
        why: Reason if it cannot be fitted.
    """

    judge: PairwiseJudge | None
    fit_prompts: int
    why: str = ""

    @property
    def prompts(self) -> int:
        """Prompts that a pair takes."""
        return 2 if self.judge is not None and self.judge.debias == "permutation" else 1


def true_pairs(n: int, *, seed: int, known: frozenset[str] = frozenset()) -> list[dspy.Example]:
    """Draw pairs of the synthetic world whose candidates differ in true quality; "A" or "B" says which is better.

    Args:
        n: Largest number of pairs.
        seed: Seed for documents and pairs.
        known: Sources that are left out.
    """
    items = [e for e in world.documents(DOCUMENTS, 6, seed=seed) if e.source not in known]
    made = data.pairs(items, ordered=False, seed=seed)
    quality = [[world.true_quality(e.source, text) for text in e.candidates] for e in made]
    labeled = [e.copy(preference="AB"[q[1] > q[0]]) for e, q in zip(made, quality, strict=True) if q[0] != q[1]]
    return labeled[:n]


def mitigations(fit: Sequence[dspy.Example], lm: Any, *, seed: int) -> dict[str, Mitigation]:
    """Return every mitigation, fitted to pairs without labels."""
    pairs = [dspy.Example(source=e.source, candidates=e.candidates, input_id=e.input_id) for e in fit]
    made = {"none": Mitigation(PairwiseJudge(SYNTHETIC), 0)}
    made["contextual"] = Mitigation(PairwiseJudge(SYNTHETIC, calibration="contextual"), 1)
    for title, kind in (("batch", "batch"), ("PriDe", "pride"), ("CalibraEval", "calibraeval")):
        judge = PairwiseJudge(SYNTHETIC, calibration=kind)
        try:
            made[title] = Mitigation(judge, judge.calibrate(pairs, lm=lm))
        except CalibrationError as error:
            made[title] = Mitigation(None, 0, str(error))
    compiled = ZEPO(GrammarParaphraser(wordings.PARTS), seed=seed, select=False).compile(
        PairwiseJudge(SYNTHETIC), trainset=pairs, lm=lm
    )
    made["ZEPO"] = Mitigation(compiled, compiled.report.judgments)
    both = compiled.deepcopy()
    both.calibration = "pride"
    made["ZEPO + PriDe"] = Mitigation(both, compiled.report.judgments + both.calibrate(pairs, lm=lm))
    made["permutation"] = Mitigation(PairwiseJudge(SYNTHETIC, debias="permutation"), 0)
    return made


def row(title: str, mitigation: Mitigation, test: Sequence[dspy.Example], lm: Any, *, seed: int) -> str:
    """Measure one mitigation on the test pairs, and write its row of the table."""
    if mitigation.judge is None:
        return f"| {title} | {mitigation.why} |  |  |  |  |"
    judged = judge_examples(mitigation.judge, test, lm=lm)
    position = measure(PositionBias(), judged, seed=seed)
    candidates = by_candidate(judged.answers, rotations(2, every=True))  # (n, 2, 2)
    better = ["AB".index(e.preference) for e in test]
    right = np.mean([decision_shares(candidates[:, r])[range(len(test)), better] for r in range(2)], axis=0)
    sample = Sample(right, MeanStatistic(), "agreement")
    fields = {"bias": "agreement", "criterion": judged.criterion, "ids": judged.ids, "headlines": (), "columns": {}}
    agreement = measured({"agreement": sample}, seed=seed, clusters=clusters_of(judged), **fields)["agreement"]
    cells = [*(position[name] for name in ("fairness", "position_consistency")), agreement]
    shown = [f"{e.value:.2f} [{e.low:.2f}, {e.high:.2f}]" for e in cells]
    return "| " + " | ".join([title, *shown, str(mitigation.fit_prompts), str(mitigation.prompts)]) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", default="embedded")
    parser.add_argument("--fit-pairs", type=int, default=100)
    parser.add_argument("--test-pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(arguments)
    lm = open_lm(args.lm)
    fit = true_pairs(args.fit_pairs, seed=5_000_001 + args.seed)
    known = frozenset(e.source for e in fit)
    test = true_pairs(args.test_pairs, seed=5_100_001 + args.seed, known=known)
    rows = [row(title, one, test, lm, seed=args.seed) for title, one in mitigations(fit, lm, seed=args.seed).items()]
    judge = ", ".join(f"{k} {v}" for k, v in identity(lm).items())
    text = "\n".join(
        [
            f"## Mitigations of position bias: {args.lm}",
            "",
            f"Judge: {judge}. Fitted to {len(fit)} pairs without labels, measured on {len(test)} pairs of other "
            f"documents of the synthetic world; seed {args.seed}. Agreement: share of pairs, in both orders, in which "
            "the candidate of higher true quality is preferred, a tie counting half. 95% intervals resample documents. "
            "Where permutation agrees with the truth in every pair, the table cannot rank the corrections.",
            "",
            "| mitigation | fairness | consistency | agreement with the truth | prompts to fit | prompts a pair |",
            "| --- | --- | --- | --- | --- | --- |",
            *rows,
        ]
    )
    print(text)
    if args.write:
        write_section(f"position mitigations {args.lm}", text)


if __name__ == "__main__":
    main()
