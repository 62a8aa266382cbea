"""Demonstrations for a refine loop: the steps that external feedback accepted."""

from __future__ import annotations

from collections.abc import Sequence

import dspy
import numpy as np

from evalbias.evaluation.loops import LoopRun
from evalbias.measures.arrays import FloatArray
from evalbias.programs.refine import SelfRefine


def most_improved(quality: FloatArray, k: int) -> list[int]:
    """Return at most k items, and half of all, whose quality rose most from the first round to the last.

    Args:
        quality: (t + 1, n); NaN is undefined, and has not risen.
        k: Largest number of items.
    """
    gain = quality[-1] - quality[0]
    return [int(n) for n in np.argsort(-gain, kind="stable") if gain[n] > 0][: min(k, len(gain) // 2)]


def with_steps(loop: SelfRefine, items: Sequence[dspy.Example], run: LoopRun, shown: Sequence[int]) -> SelfRefine:
    """Return a copy whose generator sees the final outputs of some items, and whose refiner the steps to them.

    Args:
        loop: Loop to teach.
        items: Items of the run.
        run: Run under external feedback.
        shown: Places of the items to show, each with a refinement that was accepted.
    """
    taught: SelfRefine = loop.deepcopy()
    outputs, steps = [], []
    for n in shown:
        draft, final = [step for step in run.loops[n].steps if step.accepted][-2:]
        inputs = {name: items[n][name] for name in sorted(loop.inputs) if name in items[n]}
        answer = {loop.field: final.output}
        outputs.append(dspy.Example(**inputs, **answer))
        steps.append(dspy.Example(**inputs, draft=draft.output, feedback=draft.feedback, **answer))
    for module, demos in ((taught.generate, outputs), (taught.refine, steps)):
        for predictor in module.predictors():
            names = set(predictor.signature.input_fields)
            if demos and names <= set(demos[0].keys()) and loop.field in predictor.signature.output_fields:
                predictor.demos = [*predictor.demos, *demos]
    return taught
