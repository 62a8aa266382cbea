"""Variants of a refine loop, run over the same items within a budget of requests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from evalbias.evaluation.loops import Loop, LoopRun, run_loops
from evalbias.programs.feedback.source import FeedbackSource
from evalbias.programs.refine import Improvement, SelfRefine


@dataclass(frozen=True)
class Variants:
    """Loops over the same items.

    Attributes:
        own: Margin (fraction of the range; NaN for a rule of the student's own) -> run under its own feedback.
        external: Run under external feedback.
        calls: Requests to models, for all runs.
    """

    own: Mapping[float, LoopRun]
    external: LoopRun
    calls: int


class VariantRunner:
    """Runs the student's loop at every margin, and under external feedback.

    Args:
        student: Loop to vary. It keeps its own rule of acceptance if that is not an ``Improvement``, without margins.
        external: Feedback to learn from.
        margins: Fractions of the range of the student's own feedback, ascending.
        log_dir: Folder in which every loop has a folder; None logs nothing.
        num_threads: Items at a time.
        progress: Called with 1 for every item of every loop.
        lm: Model for all modules. Defaults to their own, else DSPy's.
    """

    def __init__(
        self,
        student: SelfRefine,
        external: FeedbackSource,
        *,
        margins: Sequence[float],
        log_dir: Path | None,
        num_threads: int,
        progress: Callable[[int], None] | None,
        lm: Any,
    ) -> None:
        self._log_dir, self._num_threads, self._lm = log_dir, num_threads, lm
        self._progress = progress or (lambda _: None)
        self._own = {math.nan: student}
        if isinstance(student.accept, Improvement):
            self._own = {margin: with_margin(student, margin) for margin in margins}
        self._listening: SelfRefine = student.deepcopy()
        self._listening.feedback = external
        if isinstance(student.accept, Improvement):
            self._listening.accept = Improvement()  # a margin is in points of the student's own feedback

    def __call__(self, items: Sequence[dspy.Example], *, budget: int | None) -> Variants:
        """Run all loops over the items; once the budget of requests is spent, no further item is begun.

        The budget also covers one more loop like the first, which will run later with demonstrations.

        Raises:
            ValueError: Every item failed in a loop.
        """
        size = len(items) if budget is None else self._num_threads
        own: dict[float, list[Loop]] = {margin: [] for margin in self._own}
        external: list[Loop] = []
        calls = 0
        for start in range(0, len(items), size):
            part = items[start : start + size]
            by_margin, spent = self._at_margins(part)
            listened = self.run(self._listening, part, "external").loops
            for margin, loops in by_margin.items():
                own[margin] += loops
            external += listened
            calls += spent + _calls(listened)
            if budget is not None and calls + _calls(own[next(iter(own))]) >= budget:
                break
        runs = {margin: _run_of(loops, self._own[margin].feedback) for margin, loops in own.items()}
        return Variants(runs, _run_of(external, self._listening.feedback), calls)

    def run(self, loop: SelfRefine, items: Sequence[dspy.Example], name: str) -> LoopRun:
        """Run one loop over items, logged under a name."""
        folder = None if self._log_dir is None else self._log_dir / name
        return run_loops(
            loop, items, lm=self._lm, log_dir=folder, num_threads=self._num_threads, progress=self._progress
        )

    def _at_margins(self, part: Sequence[dspy.Example]) -> tuple[dict[float, Sequence[Loop]], int]:
        """Run the loops at every margin; returns them and their number of requests.

        A wider margin changes nothing where every accepted step exceeds it: that loop is copied, not run again.
        """
        (first, *wider) = self._own
        base = self.run(self._own[first], part, f"own-{first:g}").loops
        by_margin: dict[float, Sequence[Loop]] = {first: base}
        calls = _calls(base)
        for margin in wider:
            loop = self._own[margin]
            again = [item for item, old in zip(part, base, strict=True) if _changes(old, loop.accept)]
            fresh = {one.id: one for one in self.run(loop, again, f"own-{margin:g}").loops}
            self._progress(len(part) - len(again))
            by_margin[margin] = [fresh.get(old.id, old) for old in base]
            calls += _calls(list(fresh.values()))
        return by_margin, calls


def margin_of(student: SelfRefine) -> float:
    """Return the margin as a fraction of the range of its own feedback; NaN for a rule that is no ``Improvement``."""
    if not isinstance(student.accept, Improvement):
        return math.nan
    return student.accept.margin / (student.feedback.high - student.feedback.low)


def with_margin(student: SelfRefine, margin: float) -> SelfRefine:
    """Return a copy that accepts outputs better by more than this fraction of its range; NaN keeps its own rule."""
    loop: SelfRefine = student.deepcopy()
    if not math.isnan(margin):
        loop.accept = Improvement(margin * (student.feedback.high - student.feedback.low))
    return loop


def _changes(loop: Loop, accept: Callable[[float, float], bool]) -> bool:
    """Return whether another rule refuses a step that was accepted."""
    scores = [step.score for step in loop.steps if step.accepted]
    return any(not accept(before, after) for before, after in itertools.pairwise(scores))


def _calls(loops: Sequence[Loop]) -> int:
    return sum(loop.calls for loop in loops)


def _run_of(loops: Sequence[Loop], source: FeedbackSource) -> LoopRun:
    failed = [loop.error for loop in loops if loop.error]
    if len(failed) == len(loops):
        raise ValueError(f"No item came through the loop under {source.name!r}: {failed[0]}")
    return LoopRun(tuple(loops), source.name, source.low, source.high)
