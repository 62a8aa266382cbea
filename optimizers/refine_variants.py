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
        own: Margin (share of the range; NaN for a rule of the student's own) -> the run under its own feedback.
        external: The run under external feedback.
        calls: Requests to models, for all of them.
    """

    own: Mapping[float, LoopRun]
    external: LoopRun
    calls: int


class VariantRunner:
    """Runs the student's loop at every margin, and under external feedback.

    Args:
        student: Keeps its own rule of acceptance if that is no ``Improvement``; then there are no margins.
        external: The feedback to learn from.
        margins: Shares of the range of the student's own feedback, ascending.
        log_dir: Where every loop has a folder.
        num_threads: Items at a time.
        progress: Called with 1 for every item of every loop.
        lm: In place of the modules' own or DSPy's model.
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
        """All loops over the items, until so many requests are spent: then no further item is begun.

        One more loop like the first is going to run over the items, and is counted as if it had.

        Raises:
            ValueError: Not one item came through a loop.
        """
        size = len(items) if budget is None else self._num_threads
        own: dict[float, list[Loop]] = {margin: [] for margin in self._own}
        external: list[Loop] = []
        calls = 0
        for start in range(0, len(items), size):
            part = items[start : start + size]
            found, spent = self._at_margins(part)
            listened = self.run(self._listening, part, "external").loops
            for margin, loops in found.items():
                own[margin] += loops
            external += listened
            calls += spent + _calls(listened)
            if budget is not None and calls + _calls(own[next(iter(own))]) >= budget:
                break
        runs = {margin: _run_of(loops, self._own[margin].feedback) for margin, loops in own.items()}
        return Variants(runs, _run_of(external, self._listening.feedback), calls)

    def run(self, loop: SelfRefine, items: Sequence[dspy.Example], name: str) -> LoopRun:
        """One loop over items, logged under a name."""
        folder = None if self._log_dir is None else self._log_dir / name
        return run_loops(
            loop, items, lm=self._lm, log_dir=folder, num_threads=self._num_threads, progress=self._progress
        )

    def _at_margins(self, part: Sequence[dspy.Example]) -> tuple[dict[float, Sequence[Loop]], int]:
        """The loops at every margin, and their requests.

        A wider margin changes nothing where every accepted step exceeds it: that loop is taken over, not run again.
        """
        (first, *wider) = self._own
        base = self.run(self._own[first], part, f"own-{first:g}").loops
        found: dict[float, Sequence[Loop]] = {first: base}
        calls = _calls(base)
        for margin in wider:
            loop = self._own[margin]
            again = [item for item, old in zip(part, base, strict=True) if _turned_down(old, loop.accept)]
            fresh = {one.id: one for one in self.run(loop, again, f"own-{margin:g}").loops}
            self._progress(len(part) - len(again))
            found[margin] = [fresh.get(old.id, old) for old in base]
            calls += _calls(list(fresh.values()))
        return found, calls


def with_margin(student: SelfRefine, margin: float) -> SelfRefine:
    """A copy that accepts what is better by more than this share of the range of its own feedback."""
    loop: SelfRefine = student.deepcopy()
    loop.accept = Improvement(margin * (student.feedback.high - student.feedback.low))
    return loop


def _turned_down(loop: Loop, accept: Callable[[float, float], bool]) -> bool:
    """Whether another rule refuses a step that was accepted."""
    scores = [step.score for step in loop.steps if step.accepted]
    return any(not accept(before, after) for before, after in itertools.pairwise(scores))


def _calls(loops: Sequence[Loop]) -> int:
    return sum(loop.calls for loop in loops)


def _run_of(loops: Sequence[Loop], source: FeedbackSource) -> LoopRun:
    failed = [loop.error for loop in loops if loop.error]
    if len(failed) == len(loops):
        raise ValueError(f"No item came through the loop under {source.name!r}: {failed[0]}")
    return LoopRun(tuple(loops), source.name, source.low, source.high)
