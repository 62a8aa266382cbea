"""Report of compiling a refine loop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from evalbias.evaluation.measurement import Measurement
from evalbias.optimizers.compile_report import CompileReport


@dataclass(frozen=True)
class LoopRecord:
    """One loop over the training items, with at most t refinements.

    Attributes:
        feedback: Name of its feedback source.
        margin: Margin by which a refinement had to be better, as a fraction of the source's range; NaN for a rule of
            the student's own.
        rounds: (t + 1,) self-bias after each number of refinements, in points of the own score; undefined if the
            quality is on another scale. ``quality`` is in its own points.
        own: (t + 1,) mean own score in its own points.
        tokens: (t + 1,) mean tokens spent on an item.
        calls: (t + 1,) mean requests to models for an item.
        bias_rises: First number of refinements whose Bias lies above the first output's, p < .05 over all rounds by
            paired permutation tests; None where it never does.
        failed: Item -> error that stopped it.
    """

    feedback: str
    margin: float
    rounds: tuple[Measurement, ...]
    own: tuple[float, ...]
    tokens: tuple[float, ...]
    calls: tuple[float, ...]
    bias_rises: int | None
    failed: Mapping[str, str]

    @property
    def quality(self) -> tuple[float, ...]:
        """(t + 1,) mean quality of the outputs."""
        return tuple(measurement["quality"].value for measurement in self.rounds)


@dataclass(frozen=True, kw_only=True)
class RefineReport(CompileReport):
    """Report of ``ExternalFeedbackRefine``; its comparison is of the self-bias on the valset.

    Attributes:
        own: Loops under the student's own feedback, one for each margin.
        external: Loop under external feedback; its Bias is 0 where that feedback itself defines the quality.
        shown: Loop under its own feedback with demonstrations, over the other items; None without any.
        iterations: Largest number of refinements of the compiled loop.
        margin: Margin of the compiled loop, as a fraction of the range of its own feedback.
        demonstrations: Items whose accepted refinement became a demonstration; empty where they did not help.
        items: Training items that were run.
        calls: Requests to models for the training items.
        failed: Item of the valset -> error that stopped it.
    """

    own: tuple[LoopRecord, ...]
    external: LoopRecord
    shown: LoopRecord | None
    iterations: int
    margin: float
    demonstrations: tuple[str, ...]
    items: int
    calls: int
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def compiled_loop(self) -> LoopRecord:
        """The loop under its own feedback that was compiled; for a given one that was kept, the nearest margin's."""
        if self.demonstrations and self.shown is not None:
            return self.shown
        return min(self.own, key=lambda r: 0.0 if math.isnan(r.margin) else abs(r.margin - self.margin))
