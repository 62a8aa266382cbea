"""Compiling a refine loop: how long it should run, and what it can learn from what external feedback accepted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import dspy
import numpy as np
from dspy.teleprompt import Teleprompter

from evalbias.evaluation.external_scores import CachedScorer
from evalbias.evaluation.loops import LoopRun
from evalbias.lm.types import FloatArray
from evalbias.measures import MeanStatistic, PermutationTest, measure_self_bias, paired_permutation_test, trajectory
from evalbias.measures.checks import mean_of_defined
from evalbias.optimizers.refine_report import LoopEnd, LoopRecord, RefineReport, Validation
from evalbias.optimizers.refine_variants import VariantRunner, with_margin
from evalbias.programs.feedback.source import FeedbackSource, as_fraction_of_range
from evalbias.programs.refine import SelfRefine

LEVEL = 0.05
"""Of the test whether the bias rises, over all rounds together (Bonferroni)."""


@dataclass(frozen=True)
class _Loop:
    """A loop that may be compiled: what is reported of it, (t + 1, n) what its outputs are worth, and its requests."""

    record: LoopRecord
    worth: FloatArray
    calls: int


class ExternalFeedbackRefine(Teleprompter):  # type: ignore[misc]
    """Compiles a refine loop under external feedback (Xu et al. 2024, section 6).

    Over the trainset the student's loop runs under its own feedback, once for every margin by which a refinement must
    be better, and once under the external feedback. The refinements that external feedback accepted become
    demonstrations: of the generator, the final output of an item; of the refiner, the step that led there. The loop
    that is shown them runs over the other items. Of all these loops under its own feedback, the compiled one is that
    which reaches the highest mean worth with the fewest refinements; demonstrations that do not help are left out. It
    listens to the student's own feedback, since a reference is there for training items alone.

    Args:
        external: The feedback to learn from.
        worth: What the outputs are worth; by default the external feedback itself.
        k: Demonstrations at most, of the items whose worth rose most; never more than half of the items.
        margins: Tried, as shares of the range of the student's own feedback, ascending from the loop that is to be
            improved. A student with a rule of its own keeps that one.
        until: ``"worth"`` stops where the worth rises no more; ``"worth or bias"`` also before the self-bias rises
            (p < .05 over all rounds) above the first outputs', even if the worth would still rise.
        tolerance: A rise of the mean worth below this share of its range is none.
        budget: Requests to models, in all loops over the trainset: no item is begun once they are spent, what the loop
            with demonstrations is likely to cost included; the last items may exceed it. None runs all items.
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
        runner = VariantRunner(
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
        worth = CachedScorer(self.worth, None if self.log_dir is None else self.log_dir / "worth.jsonl")
        own = [self._loop(run, items, worth, margin) for margin, run in arms.own.items()]
        external = self._loop(arms.external, items, worth, 0.0)
        best = self._best(external.worth)
        others = [n for n in range(len(items)) if n not in best]
        loops = [(loop, loop.worth[:, others]) for loop in own]
        _, chosen = self._choose(loops)
        taught = self._taught(self._at(student, chosen), items, arms.external, best)
        shown = None
        if best:
            rest = [items[n] for n in others]
            run = runner.run(taught, rest, "shown")
            shown = self._loop(run, rest, worth, chosen.record.margin)
            loops.append((shown, shown.worth))
        iterations, chosen = self._choose(loops)
        kept = chosen is shown
        compiled = taught if kept else self._at(student, chosen)
        compiled.max_iterations = iterations
        compiled.report = RefineReport(
            own=tuple(loop.record for loop in own),
            external=external.record,
            shown=None if shown is None else shown.record,
            iterations=iterations,
            margin=chosen.record.margin,
            demonstrations=tuple(str(items[n].id) for n in best) if kept else (),
            items=len(items),
            calls=arms.calls + (0 if shown is None else shown.calls),
            validation=self._validate(runner, student, compiled, valset, worth),
        )
        return compiled

    def _at(self, student: SelfRefine, chosen: _Loop) -> SelfRefine:
        """A copy of the student with the chosen margin."""
        margin = chosen.record.margin
        copy: SelfRefine = student.deepcopy() if math.isnan(margin) else with_margin(student, margin)
        return copy

    def _choose(self, loops: Sequence[tuple[_Loop, FloatArray]]) -> tuple[int, _Loop]:
        """The fewest refinements, and the first loop, that reach the highest mean worth but for the tolerance.

        A loop that leaves more outputs undefined than another is none to choose; of the others, the items count whose
        worth is defined in all of them.

        Args:
            loops: With the worth of their outputs on the same items, (t + 1, n).
        """
        ends: dict[tuple[int, int], FloatArray] = {}
        for place, (loop, values) in enumerate(loops):
            end = len(values)
            if self.until == "worth or bias" and loop.record.bias_rises is not None:
                end = loop.record.bias_rises
            ends |= {(k, place): values[k] for k in range(end)}
        undefined = {at: int(np.isnan(row).sum()) for at, row in ends.items()}
        fewest = min(undefined.values())
        rows = {at: row for at, row in ends.items() if undefined[at] == fewest}
        counting = ~np.isnan(np.array(list(rows.values()))).any(axis=0)
        if not counting.any():
            raise ValueError(f"{self.worth.name!r} is defined for no item throughout: nothing tells where to stop.")
        means = {at: float(row[counting].mean()) for at, row in rows.items()}
        enough = max(means.values()) - self.tolerance * (self.worth.high - self.worth.low)
        iterations, place = min(at for at, mean in means.items() if mean >= enough)
        return iterations, loops[place][0]

    def _best(self, worth: FloatArray) -> list[int]:
        """The items whose worth rose most under external feedback."""
        gain = worth[-1] - worth[0]
        most = min(self.k, len(gain) // 2)
        return [int(n) for n in np.argsort(-gain, kind="stable") if gain[n] > 0][:most]  # NaN is not above 0

    def _taught(self, loop: SelfRefine, items: Sequence[dspy.Example], run: LoopRun, best: Sequence[int]) -> SelfRefine:
        """Show the loop's generator the best outputs, and its refiner the steps to them."""
        writers, refiners = [], []
        for index in best:
            example, accepted = items[index], [step for step in run.loops[index].steps if step.accepted]
            shown = {name: example[name] for name in sorted(loop.inputs) if name in example}
            draft, final = accepted[-2], accepted[-1]
            writers.append(dspy.Example(**shown, **{loop.field: final.output}))
            refiners.append(
                dspy.Example(**shown, draft=draft.output, feedback=draft.feedback, **{loop.field: final.output})
            )
        for module, demos in ((loop.generate, writers), (loop.refine, refiners)):
            for predictor in module.predictors():
                inputs = set(predictor.signature.input_fields)
                if demos and inputs <= set(demos[0].keys()) and loop.field in predictor.signature.output_fields:
                    predictor.demos = [*predictor.demos, *demos]
        return loop

    def _validate(
        self,
        runner: VariantRunner,
        student: SelfRefine,
        compiled: SelfRefine,
        valset: Sequence[dspy.Example] | None,
        worth: CachedScorer,
    ) -> Validation | None:
        if not valset:
            return None
        runs = [runner.run(loop, valset, name) for loop, name in ((student, "before"), (compiled, "after"))]
        ends = [run.worth(valset, worth)[-1] for run in runs]
        test = self._test(ends[1], ends[0])
        means = test.statistic_b, test.statistic_a
        before, after = (
            self._end(run, values, mean, worth) for run, values, mean in zip(runs, ends, means, strict=True)
        )
        return Validation(before, after, test)

    def _end(self, run: LoopRun, values: FloatArray, mean: float, worth: CachedScorer) -> LoopEnd:
        own, value = as_fraction_of_range(run.own()[-1], run), as_fraction_of_range(values, self.worth)
        spent = float(run.tokens()[-1]), float(run.calls()[-1])
        return LoopEnd(mean, measure_self_bias(own, value), *spent, failed=_failed(run, worth))

    def _loop(self, run: LoopRun, items: Sequence[dspy.Example], worth: CachedScorer, margin: float) -> _Loop:
        own, values = run.own(), run.worth(items, worth)
        mine, value = as_fraction_of_range(own, run), as_fraction_of_range(values, self.worth)
        record = LoopRecord(
            feedback=run.feedback,
            margin=margin,
            own=tuple(map(mean_of_defined, own)),
            worth=tuple(map(mean_of_defined, values)),
            tokens=tuple(run.tokens().tolist()),
            calls=tuple(run.calls().tolist()),
            bias=tuple(trajectory(mine, value, n_resamples=self.n_resamples, seed=self.seed)),
            bias_rises=self._rise(mine - value),
            failed=_failed(run, worth),
        )
        return _Loop(record, values, sum(loop.calls for loop in run.loops))

    def _rise(self, difference: FloatArray) -> int | None:
        for k in range(1, len(difference)):
            test = self._test(difference[k], difference[0])
            if test.p_value < LEVEL / (len(difference) - 1) and test.statistic_a > test.statistic_b:
                return k
        return None

    def _test(self, a: FloatArray, b: FloatArray) -> PermutationTest:
        return paired_permutation_test(MeanStatistic(len(a)), a, b, n_resamples=self.n_resamples, seed=self.seed)


def _failed(run: LoopRun, worth: CachedScorer) -> dict[str, str]:
    """What went wrong in a loop, or with the worth of its outputs."""
    ids = {loop.id for loop in run.loops}
    return {name: error for name, error in worth.failed.items() if name in ids} | run.failed
