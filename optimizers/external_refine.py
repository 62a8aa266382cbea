"""Compiling a refine loop: how long it should run, and what it can learn from what external feedback accepted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import dspy
import numpy as np
from dspy.teleprompt import Teleprompter

from evalbias.lm.types import FloatArray
from evalbias.measures import MeanStatistic, PermutationTest, measure_self_bias, paired_permutation_test, trajectory
from evalbias.optimizers.refine_arms import ArmRunner, with_margin
from evalbias.optimizers.refine_report import LoopEnd, LoopRecord, RefineReport, Validation
from evalbias.programs.feedback.source import FeedbackSource, shares
from evalbias.programs.loops import LoopRun
from evalbias.programs.refine import SelfRefine
from evalbias.programs.worth import Worth

LEVEL = 0.05
"""Of the test whether the bias rises."""


class ExternalFeedbackRefine(Teleprompter):  # type: ignore[misc]
    """Compiles a refine loop under external feedback (Xu et al. 2024, section 6).

    Over the trainset the student's loop runs under its own feedback, once for every margin by which a refinement must
    be better, and once under the external feedback. What the outputs are worth decides which margin the compiled loop
    takes and where it stops: the fewest refinements, and of equals the smallest margin, that reach the highest mean
    worth. The refinements that external feedback accepted become demonstrations: of the generator, the final output of
    an item; of the refiner, the step that led there. The compiled loop listens to the student's own feedback, since a
    reference is there for training items alone.

    Args:
        external: The feedback to learn from.
        worth: What the outputs are worth; by default the external feedback itself.
        k: Demonstrations at most, of the items whose worth rose most.
        margins: Tried, as shares of the range of the student's own feedback, ascending from the loop that is to be
            improved. A student with a rule of its own keeps that one.
        until: ``"worth"`` stops where the worth rises no more; ``"worth or bias"`` also before the self-bias rises
            (p < .05) above the first outputs', even if the worth would still rise.
        tolerance: A rise of the mean worth below this share of its range is none.
        budget: Requests to models, in all loops over the trainset: no item is begun once they are spent, so that the
            last ones may exceed it. None runs all items.
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
        margins: Sequence[float] = (0.0, 0.1, 0.25),
        until: Literal["worth", "worth or bias"] = "worth",
        tolerance: float = 0.0,
        budget: int | None = None,
        num_threads: int = 1,
        n_resamples: int = 2_000,
        seed: int = 0,
        log_dir: Path | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        if k < 0 or tolerance < 0 or num_threads < 1 or (budget is not None and budget < 1):
            raise ValueError(
                f"k={k}, tolerance={tolerance}, num_threads={num_threads}, budget={budget}: give at least 0, 0, 1, 1."
            )
        if not margins or list(margins) != sorted({*margins}) or margins[0] < 0 or margins[-1] >= 1:
            raise ValueError(f"margins={tuple(margins)}: give different shares in [0, 1), ascending.")
        if until not in ("worth", "worth or bias"):
            raise ValueError(f"until={until!r} is unknown: choose 'worth' or 'worth or bias'.")
        self.external = external
        self.worth = worth or external
        self.k = k
        self.margins = tuple(margins)
        self.until = until
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
            ValueError: No items, items on both sides, not one that came through, or a worth that is never defined.
        """
        if teacher is not None:
            raise ValueError("ExternalFeedbackRefine learns from feedback: pass no teacher.")
        items = list(trainset)
        both = {str(e.get("id")) for e in items} & {str(e.get("id")) for e in valset or []}
        if not items or both:
            raise ValueError(
                f"{len(items)} training items, {len(both)} of them in the valset: give some, and split them."
            )
        runner = ArmRunner(
            student,
            self.external,
            margins=self.margins,
            log_dir=self.log_dir,
            num_threads=self.num_threads,
            progress=self.progress,
            lm=lm,
        )
        arms = runner(items, budget=self.budget)
        items = items[: len(arms.external.loops)]
        worth = Worth(self.worth, None if self.log_dir is None else self.log_dir / "worth.jsonl")
        own = [self._record(run, items, worth, margin) for margin, run in arms.own.items()]
        iterations, margin = self._stop(own)
        compiled = student.deepcopy() if math.isnan(margin) else with_margin(student, margin)
        compiled.max_iterations = iterations
        chosen = self._demonstrate(compiled, items, arms.external, arms.external.worth(items, worth))
        compiled.report = RefineReport(
            own=tuple(own),
            external=self._record(arms.external, items, worth, 0.0),
            iterations=iterations,
            margin=margin,
            demonstrations=chosen,
            items=len(items),
            calls=arms.calls,
            validation=self._validate(runner, student, compiled, valset, worth),
        )
        return compiled

    def _stop(self, own: Sequence[LoopRecord]) -> tuple[int, float]:
        """The fewest refinements, then the smallest margin, that reach the highest mean worth but for the tolerance."""
        means: dict[tuple[int, int], float] = {}
        for place, record in enumerate(own):
            end = len(record.worth)
            if self.until == "worth or bias" and record.bias_rises is not None:
                end = record.bias_rises
            means |= {(k, place): record.worth[k] for k in range(end) if not math.isnan(record.worth[k])}
        if not means:
            raise ValueError(f"{self.worth.name!r} is undefined for every output: nothing tells where to stop.")
        enough = max(means.values()) - self.tolerance * (self.worth.high - self.worth.low)
        iterations, place = min(at for at, mean in means.items() if mean >= enough)
        return iterations, own[place].margin

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
        self,
        runner: ArmRunner,
        student: SelfRefine,
        compiled: SelfRefine,
        valset: Sequence[dspy.Example] | None,
        worth: Worth,
    ) -> Validation | None:
        if not valset:
            return None
        runs = [runner.run(loop, valset, name) for loop, name in ((student, "before"), (compiled, "after"))]
        ends = [run.worth(valset, worth)[-1] for run in runs]
        before, after = (self._end(run, values, worth) for run, values in zip(runs, ends, strict=True))
        return Validation(before, after, self._test(ends[1], ends[0]))

    def _end(self, run: LoopRun, values: FloatArray, worth: Worth) -> LoopEnd:
        own, value = shares(run.own()[-1], run), shares(values, self.worth)
        spent = float(run.tokens()[-1]), float(run.calls()[-1])
        return LoopEnd(_mean(values), measure_self_bias(own, value), *spent, failed=_failed(run, worth))

    def _record(self, run: LoopRun, items: Sequence[dspy.Example], worth: Worth, margin: float) -> LoopRecord:
        own, values = run.own(), run.worth(items, worth)
        mine, value = shares(own, run), shares(values, self.worth)
        return LoopRecord(
            feedback=run.feedback,
            margin=margin,
            own=tuple(map(_mean, own)),
            worth=tuple(map(_mean, values)),
            tokens=tuple(run.tokens().tolist()),
            calls=tuple(run.calls().tolist()),
            bias=tuple(trajectory(mine, value, n_resamples=self.n_resamples, seed=self.seed)),
            bias_rises=self._rise(mine - value),
            failed=_failed(run, worth),
        )

    def _rise(self, difference: FloatArray) -> int | None:
        for k in range(1, len(difference)):
            test = self._test(difference[k], difference[0])
            if test.p_value < LEVEL and test.statistic_a > test.statistic_b:
                return k
        return None

    def _test(self, a: FloatArray, b: FloatArray) -> PermutationTest:
        return paired_permutation_test(MeanStatistic(len(a)), a, b, n_resamples=self.n_resamples, seed=self.seed)


def _failed(run: LoopRun, worth: Worth) -> dict[str, str]:
    """What went wrong in a loop, or with the worth of its outputs."""
    ids = {loop.id for loop in run.loops}
    return {name: error for name, error in worth.failed.items() if name in ids} | run.failed


def _mean(row: FloatArray) -> float:
    """Over the defined items; NaN where there is none."""
    defined = row[~np.isnan(row)]
    return float(defined.mean()) if len(defined) else math.nan
