"""Best-of-k sampling as a DSPy program: draw k outputs, keep the one with the best feedback."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import dspy

from evalbias.programs.feedback.source import FeedbackSource, checked_source
from evalbias.programs.refine import STRICT
from evalbias.programs.refine_step import ItemFeedback, shown_inputs, take_step
from evalbias.programs.resample import draws, sample
from evalbias.programs.settings import NumberSetting, Program, Setting


class RepeatedDrafts(UserWarning):
    """Fewer than k of the drafts of an item are different, so that k counts for less than it says."""


class BestOfK(Program):
    """Draws k outputs and keeps the one with the best feedback: self-reward (Xu et al. 2024, section 4.4).

    The drafts are k draws of the generator. The steps of a call are nested: the output that stands after step i is the
    best of the first i + 1 drafts, so that one run with k = 32 has the results for every smaller k as well.

    Args:
        generate: DSPy module that draws its output at a temperature above 0.
        feedback: Feedback source; the model's own judge for self-reward.
        k: Number of drafts.
        seed: Seed for the draws, for models that draw by a seed.
        field: Name of the output field.

    A call returns the output field, ``score``, ``steps``, ``distinct`` (number of different drafts) and ``stopped``
    (``"iterations"``). An output with an undefined score is returned only if all scores are undefined. A generator that
    decodes greedily has one draft and is asked once.

    Warns:
        RepeatedDrafts: Fewer than k drafts of an item are different. Told once; ``distinct`` counts for every item.

    Raises:
        TypeError: ``feedback`` is no feedback source.
        ValueError: ``k`` is below 1.
    """

    kind = "best of k"
    k = NumberSetting(1, 1000, whole=True)
    seed = NumberSetting(0, whole=True)
    field = Setting[str]()

    def __init__(
        self, generate: dspy.Module, feedback: FeedbackSource, *, k: int = 8, seed: int = 0, field: str = "output"
    ) -> None:
        super().__init__(k=k, seed=seed, field=field)
        self.generate = generate
        self.feedback = checked_source(feedback)
        self._warned = False

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Draw k outputs for one item and return the best."""
        shown, source = shown_inputs(self.generate, inputs), ItemFeedback(self.feedback, self.seed)
        best = take_step(0, partial(self._draw, 0, shown), source, inputs, lambda _: True)
        steps = [best]
        for index in range(1, self.k if draws(self.generate) else 1):
            step = take_step(index, partial(self._draw, index, shown), source, inputs, partial(STRICT, best.score))
            steps.append(step)
            best = step if step.accepted else best
        distinct = len({step.output for step in steps})
        self._warn(distinct)
        fields = {self.field: best.output, "score": best.score, "steps": steps}
        return dspy.Prediction(**fields, distinct=distinct, stopped="iterations")

    def _draw(self, index: int, shown: Mapping[str, Any]) -> str:
        return str(sample(self.generate, index, self.seed, **shown)[self.field])

    def _warn(self, distinct: int) -> None:
        if distinct < self.k and not self._warned:
            self._warned = True
            warnings.warn(
                f"Only {distinct} of the {self.k} drafts of an item are different: draw them at a temperature above 0, "
                "or choose a smaller k. This is told once; 'distinct' of every prediction counts.",
                RepeatedDrafts,
                stacklevel=3,
            )
