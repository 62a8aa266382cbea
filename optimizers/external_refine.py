"""Compiling a refine loop: how long it should run, and what it can learn from what external feedback accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from dspy.teleprompt import Teleprompter

from evalbias.lm.types import FloatArray
from evalbias.measures import Iteration, MeanStatistic, PermutationTest, paired_permutation_test, trajectory
from evalbias.programs.feedback.source import FeedbackSource
from evalbias.programs.loops import LoopRun, run_loops
from evalbias.programs.refine import SelfRefine


@dataclass(frozen=True)
class LoopRecord:
    """One loop over the training items.

    Attributes:
        feedback: Its source.
        numbers: (t + 1,) refinements.
        own: (t + 1,) mean own score.
        worth: (t + 1,) mean of what the outputs are worth.
        tokens: (t + 1,) mean tokens spent on an item.
        bias: Bias and Dskew of each, own scores and worth both put on [0, 1].
        failed: Item -> what went wrong.
    """

    feedback: str
    numbers: tuple[int, ...]
    own: tuple[float, ...]
    worth: tuple[float, ...]
    tokens: tuple[float, ...]
    bias: tuple[Iteration, ...]
    failed: dict[str, str]


@dataclass(frozen=True)
class RefineReport:
    """What compiling found.

    Attributes:
        own: The loop under its own feedback.
        external: The same loop under external feedback.
        iterations: Refinements that the compiled loop makes.
        demonstrations: Items whose accepted refinement became a demonstration.
        before: Mean worth of the student's loop on the validation items; NaN without any.
        after: Of the compiled loop.
        test: Paired permutation test of after against before; None without validation items.
    """

    own: LoopRecord
    external: LoopRecord
    iterations: int
    demonstrations: tuple[str, ...]
    before: float
    after: float
    test: PermutationTest | None


class ExternalFeedbackRefine(Teleprompter):  # type: ignore[misc]
    """Compiles a refine loop under external feedback (Xu et al. 2024, section 6).

    The loop runs over the trainset twice, under its own feedback and under the external one. What the outputs are worth
    decides where the compiled loop stops: at the first number of refinements under its own feedback from which on the
    mean worth rises no more. The refinements that external feedback accepted become demonstrations: of the generator,
    the final output of an item; of the refiner, the step that led there. The compiled loop listens to the student's own
    feedback, since a reference is there for training items alone.

    Args:
        external: The feedback to learn from.
        worth: What the outputs are worth; by default the external feedback itself.
        k: Demonstrations at most, of the items whose worth rose most.
        tolerance: A rise of the mean worth below this share of its range is none.
        budget: Most items of the trainset that are run; the first so many. None runs all.
        num_threads: Items at a time.
        n_resamples: Of intervals and tests.
        seed: Of intervals and tests.
        log_dir: Where the loops are logged; the same compilation started again goes on from there.
        progress: Called with 1 after every item of every loop.
    """

    def __init__(
        self,
        external: FeedbackSource,
        *,
        worth: FeedbackSource | None = None,
        k: int = 4,
        tolerance: float = 0.0,
        budget: int | None = None,
        num_threads: int = 1,
        n_resamples: int = 2_000,
        seed: int = 0,
        log_dir: Path | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        if k < 0 or tolerance < 0 or (budget is not None and budget < 1):
            raise ValueError(f"k={k}, tolerance={tolerance}, budget={budget}: give at least 0, 0 and 1.")
        self.external = external
        self.worth = worth or external
        self.k = k
        self.tolerance = tolerance
        self.budget = budget
        self.num_threads = num_threads
        self.n_resamples = n_resamples
        self.seed = seed
        self.log_dir = log_dir
        self.progress = progress

    def compile(
        self,
        student: SelfRefine,
        *,
        trainset: Sequence[dspy.Example],
        teacher: None = None,
        valset: Sequence[dspy.Example] | None = None,
        lm: Any = None,
    ) -> SelfRefine:
        """A copy of the loop that stops where it should and is shown what was accepted.

        Args:
            student: The loop under its own feedback; it is left as it is.
            trainset: Items with ``id``, the inputs, and what the external feedback needs.
            teacher: Not used by this method; must be None.
            valset: Other items on which before and after are told.
            lm: In place of the modules' own or DSPy's model.

        Returns:
            The compiled loop; its ``report`` is a ``RefineReport``.

        Raises:
            ValueError: No items, items on both sides, or not one that came through.
        """
        if teacher is not None:
            raise ValueError("ExternalFeedbackRefine learns from feedback: pass no teacher.")
        items = list(trainset)[: self.budget]
        both = {str(e.get("id")) for e in items} & {str(e.get("id")) for e in valset or []}
        if not items or both:
            raise ValueError(
                f"{len(items)} training items, {len(both)} of them in the valset: give some, and split them."
            )
        own = self._run(student, items, "own", lm)
        listening: SelfRefine = student.deepcopy()
        listening.feedback, listening.perfect = self.external, self.external.high
        external = self._run(listening, items, "external", lm)
        worth_own, worth_external = (run.worth(items, self.worth) for run in (own, external))
        iterations = self._stop(worth_own)
        compiled: SelfRefine = student.deepcopy()
        compiled.max_iterations = iterations
        chosen = self._demonstrate(compiled, items, external, worth_external)
        before, after, test = self._validate(student, compiled, valset, lm)
        compiled.report = RefineReport(
            self._record(own, worth_own),
            self._record(external, worth_external),
            iterations,
            chosen,
            before,
            after,
            test,
        )
        return compiled

    def _run(self, loop: SelfRefine, items: Sequence[dspy.Example], name: str, lm: Any) -> LoopRun:
        folder = None if self.log_dir is None else self.log_dir / name
        run = run_loops(loop, items, lm=lm, log_dir=folder, num_threads=self.num_threads, progress=self.progress)
        if len(run.failed) == len(items):
            raise ValueError(f"No item came through the loop ({name}): {next(iter(run.failed.values()))}")
        return run

    def _stop(self, worth: FloatArray) -> int:
        """The first number of refinements from which on the mean worth rises by no more than the tolerance."""
        means = _means(worth)
        slack = self.tolerance * (self.worth.high - self.worth.low)
        return next(k for k, mean in enumerate(means) if k == len(means) - 1 or np.nanmax(means[k:]) <= mean + slack)

    def _demonstrate(
        self, compiled: SelfRefine, items: Sequence[dspy.Example], run: LoopRun, worth: FloatArray
    ) -> tuple[str, ...]:
        """Show the generator the best outputs, and the refiner the steps to them."""
        gain = worth[-1] - worth[0]
        best = [i for i in np.argsort(-gain, kind="stable") if gain[i] > 0][: self.k]  # NaN is not above 0
        writers, refiners = [], []
        for index in best:
            example, loop = items[index], run.loops[index]
            accepted = [step for step in loop.steps if step.accepted]
            shown = {name: example[name] for name in sorted(compiled.inputs)}
            draft, final = accepted[-2], accepted[-1]
            writers.append(dspy.Example(**shown, **{compiled.field: final.output}))
            refiners.append(
                dspy.Example(**shown, draft=draft.output, feedback=draft.feedback, **{compiled.field: final.output})
            )
        for module, demos in ((compiled.generate, writers), (compiled.refine, refiners)):
            for predictor in module.predictors():
                if demos and compiled.field in predictor.signature.output_fields:
                    predictor.demos = [*predictor.demos, *demos]
        return tuple(str(items[i].id) for i in best)

    def _validate(
        self, student: SelfRefine, compiled: SelfRefine, valset: Sequence[dspy.Example] | None, lm: Any
    ) -> tuple[float, float, PermutationTest | None]:
        if not valset:
            return float("nan"), float("nan"), None
        first, second = (
            self._run(loop, valset, name, lm).worth(valset, self.worth)[-1]
            for loop, name in ((student, "before"), (compiled, "after"))
        )
        test = paired_permutation_test(
            MeanStatistic(len(first)), second, first, n_resamples=self.n_resamples, seed=self.seed
        )
        return test.statistic_b, test.statistic_a, test

    def _record(self, run: LoopRun, worth: FloatArray) -> LoopRecord:
        own = run.own()
        low, high = self.worth.low, self.worth.high
        shares = (own - run.low) / (run.high - run.low), (worth - low) / (high - low)
        return LoopRecord(
            feedback=run.feedback,
            numbers=tuple(range(len(own))),
            own=tuple(_means(own).tolist()),
            worth=tuple(_means(worth).tolist()),
            tokens=tuple(run.tokens().tolist()),
            bias=tuple(trajectory(*shares, n_resamples=self.n_resamples, seed=self.seed)),
            failed=run.failed,
        )


def _means(rows: FloatArray) -> FloatArray:
    """(t,) means over the defined items; NaN where there is none."""
    return np.array([row[~np.isnan(row)].mean() if (~np.isnan(row)).any() else np.nan for row in rows])
