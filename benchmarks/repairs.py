"""Which repair passes for which judge? Order of levels, negation and recalibration, on summaries of SummEval.

usage: python -m benchmarks.repairs FILE.gguf [--documents 30] [--seed 0] [--out DIR] [--write]

The judges of coherence are two models that are too small to judge, and see the summary alone: Sparrow, a decision model
of 2 MB, and a chat model of which letters of options, or Yes and No, are read, as servers of decisions do. Each repair
is tried as by ``evalbias compile order`` and ``compile forecasts``, and the table says why it was taken or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from benchmarks.gallery import LEVELS, ByLetters, Native, summaries_of
from benchmarks.harness import argument_parser, finish, keeping_answers, markdown
from evalbias import Criterion, ForecastRepair, OrderRepair, PointwiseJudge
from evalbias.evaluation.words import percent
from evalbias.lm.cache import as_measuring
from evalbias.lm.types import MeasuringLM
from evalbias.programs.criterion import PRESETS

COHERENCE = PRESETS["summeval-judges"][0]
LEVEL, YES = replace(COHERENCE, levels=LEVELS), replace(COHERENCE, scale=(0, 1))
NEGATION = "do the sentences of the summary fail to build up to one well organised text?"
PASS = 4
TASKS: dict[str, tuple[Criterion, Any, dict[str, Any]]] = {
    "level": (LEVEL, OrderRepair, {}),
    "yes or no": (YES, OrderRepair, {"negation": NEGATION}),
    "level, pass": (LEVEL, ForecastRepair, {"pass_mark": PASS}),
    "yes or no, pass": (YES, ForecastRepair, {"pass_mark": PASS}),
}
"""Question -> its criterion, and the repairs with their options."""


def rows_of(lm: MeasuringLM, items: Sequence[dspy.Example], seed: int) -> Iterator[tuple[object, ...]]:
    """Try every repair of a judge; yield a row for each."""
    for asked, (criterion, repair, options) in TASKS.items():
        judge = repair(seed=seed, **options).compile(PointwiseJudge(criterion), trainset=items, lm=lm)
        given, *tried = judge.report.candidates
        for one in tried:
            before, after = given.estimates, one.estimates
            aim = "shift" if "shift" in after else "brier_skill"
            change, agreement = (f"{before[name].text()} -> {after[name].text()}" for name in (aim, "pearson"))
            kept = percent(after["spread"].value / before["spread"].value) if "spread" in after else "-"
            yield lm.model, asked, one.name, after[aim].label, change, kept, agreement, one.reason


def main(arguments: Sequence[str] | None = None) -> None:
    """Try the repairs of both judges, and print the table."""
    parser = argument_parser(__doc__, out="repairs")
    parser.add_argument("model", type=Path, help="GGUF file of the chat model")
    parser.add_argument("--documents", type=int, default=30, help="number of articles whose summaries are judged")
    args = parser.parse_args(arguments)
    items = [
        dspy.Example(one, scores={name: np.mean(given) for name, given in one["ratings"].items()})
        for one in summaries_of(args.documents)
    ]
    models = as_measuring(Native()), ByLetters(args.model)
    judges = [keeping_answers(lm, args.out / f"{lm.model}.jsonl") for lm in models]
    rows = [row for lm in judges for row in rows_of(lm, items, args.seed)]
    headings = ("judge", "asked for", "repair", "effect", "before -> after", "spread kept", "Pearson", "verdict")
    said = (
        f"Coherence of {len(items)} summaries of {args.documents} articles in SummEval, with three experts' ratings; a "
        f"rating of {PASS} passes. Repairs of the order are chosen on half of the articles, curves on all of them, to "
        "which they are cross-fitted. Shift: the score with the levels reversed, or by the negation, less the score."
    )
    finish(args, "repairs", f"## What passes for which judge\n\n{said}\n\n{markdown(headings, rows)}")


if __name__ == "__main__":
    main()
