"""Compile a refine loop: how long it should run, and demonstrations from what external feedback accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import dspy
import numpy as np

from evalbias.data.pairing import input_key
from evalbias.evaluation.comparison import compare
from evalbias.evaluation.external_scores import CachedScorer
from evalbias.evaluation.formatting import count
from evalbias.evaluation.loops import LoopRun
from evalbias.evaluation.measurement import Measurement
from evalbias.evaluation.self_bias import SelfBias, measure_rounds
from evalbias.measures import MeanStatistic, paired_permutation_test
from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import mean_of_defined
from evalbias.optimizers.base import JudgeOptimizer, Outcome, Problem
from evalbias.optimizers.refine_demos import most_improved, with_steps
from evalbias.optimizers.refine_report import LoopRecord, RefineReport
from evalbias.optimizers.refine_rule import QualityRule
from evalbias.optimizers.refine_variants import VariantRunner, margin_of, with_margin
from evalbias.optimizers.selection import Candidate, Rule
from evalbias.optimizers.splits import check_disjoint
from evalbias.programs.feedback.source import FeedbackSource, checked_source, expected_scores, on_one_scale
from evalbias.programs.refine import SelfRefine

LEVEL = 0.05
"""Level of the test whether the bias rises, over all rounds together (Bonferroni)."""


@dataclass(frozen=True)
class _Variant:
    """A loop that may be compiled: its record, (t + 1, n) the quality of its outputs, and its requests."""

    record: LoopRecord
    quality: FloatArray
    calls: int


class ExternalFeedbackRefine(JudgeOptimizer):
    """Compiles a refine loop under external feedback (Xu et al. 2024, section 6).

    The trainset holds items with ``id``, the loop's inputs, and what the external feedback needs. Over them, the
    student's loop runs under its own feedback, once for every margin by which a refinement must be better, and once
    under the external feedback. The refinements that external feedback accepted become demonstrations: for the
    generator the final output of an item, for the refiner the step that led there. The loop with these demonstrations
    runs over the other items. Of all loops under the student's own feedback, the compiled one reaches the highest mean
    quality with the fewest refinements; demonstrations that do not help are left out. It keeps the student's own
    feedback, because a reference exists for training items only.

    Args:
        external: Feedback to learn from.
        quality: Source of the outputs' quality. Defaults to the external feedback itself.
        k: Largest number of demonstrations, taken from the items whose quality rose most; at most half of the items.
        margins: Margins to try, as fractions of the range of the student's own feedback, ascending. A student with its
            own rule of acceptance keeps that one.
        until: ``"quality"`` stops where the quality rises no more; ``"quality or bias"`` also before the self-bias
            rises (p < .05 over all rounds) above that of the first outputs, even if the quality would still rise.
        tolerance: A rise of the mean quality below this fraction of its range does not count; nor does such a loss,
            on the held-back items, by a loop that makes fewer requests.
        select: See ``JudgeOptimizer``. The compiled loop and the student's run over the held-back items; the quality
            decides.
        budget: Largest number of requests to models, in all loops of the search. No item is begun once they are
            spent, including what the loop with demonstrations will likely cost; the last items may exceed it.
        num_threads: Items at a time.
        n_resamples: Resamples of intervals and tests.
        seed: Seed for intervals and tests.
        log_dir: Folder in which the loops are logged; the same compilation started again continues from there.
        progress: Called with 1 after every item of every loop.

    Raises:
        TypeError: ``external`` or ``quality`` is no feedback source.
        ValueError: A number is outside its range.
    """

    report_type = RefineReport
    compiles = (SelfRefine,)
    needs_probabilities = False

    def __init__(
        self,
        external: FeedbackSource,
        *,
        quality: FeedbackSource | None = None,
        k: int = 4,
        margins: Sequence[float] = (0.0, 0.1, 0.25),
        until: Literal["quality", "quality or bias"] = "quality",
        tolerance: float = 0.0,
        select: bool = True,
        budget: int | None = None,
        num_threads: int = 1,
        n_resamples: int = 2_000,
        seed: int = 0,
        log_dir: Path | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(
            select=select, n_resamples=n_resamples, budget=budget, seed=seed, log_dir=log_dir, progress=progress
        )
        if k < 0 or tolerance < 0 or num_threads < 1:
            raise ValueError(f"k={k}, tolerance={tolerance}, num_threads={num_threads}: give at least 0, 0, 1.")
        if not margins or list(margins) != sorted({*margins}) or margins[0] < 0 or margins[-1] >= 1:
            raise ValueError(f"margins={tuple(margins)}: give different fractions in [0, 1), ascending.")
        if until not in ("quality", "quality or bias"):
            raise ValueError(f"until={until!r} is unknown: choose 'quality' or 'quality or bias'.")
        self.external = checked_source(external)
        self.quality = external if quality is None else checked_source(quality)
        self.k = k
        self.margins = tuple(margins)
        self.until = until
        self.tolerance = tolerance
        self.num_threads = num_threads

    def check(self, student: SelfRefine, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """See ``JudgeOptimizer``; items are told apart by their ids and inputs."""
        if not trainset:
            raise ValueError("The trainset is empty: give training examples.")
        check_disjoint(trainset, valset, lambda e: str(e.get("id")))
        check_disjoint(trainset, valset, input_key, noun="inputs")  # a demonstration would show the answer
        if self.until == "quality or bias" and not on_one_scale(student.feedback, self.quality):
            raise ValueError(
                f"until='quality or bias' needs a Bias, but {student.feedback.name!r} and {self.quality.name!r} score "
                "on different ranges: map the quality with MappedFeedback (on the command line --quantile-map FILE)."
            )

    def search(self, problem: Problem) -> Outcome:
        """See ``JudgeOptimizer``.

        Raises:
            ValueError: Every item failed, or no item has a defined quality throughout.
        """
        student: SelfRefine = problem.student
        runner = self._runner(problem)
        variants = runner(problem.trainset, budget=self.budget)
        items = problem.trainset[: len(variants.external.loops)]
        scorer = self._scorer()
        own = [self._variant(run, items, scorer, margin) for margin, run in variants.own.items()]
        external = self._variant(variants.external, items, scorer, 0.0)
        best = most_improved(external.quality, self.k)
        others = [n for n in range(len(items)) if n not in best]
        rivals = [(variant, variant.quality[:, others]) for variant in own]
        _, chosen = self._choose(rivals)
        taught = with_steps(with_margin(student, chosen.record.margin), items, variants.external, best)
        shown = None
        if best:
            rest = [items[n] for n in others]
            shown = self._variant(runner.run(taught, rest, "shown"), rest, scorer, chosen.record.margin)
            rivals.append((shown, shown.quality))
        iterations, chosen = self._choose(rivals)
        demonstrations = tuple(str(items[n].id) for n in best) if chosen is shown else ()
        details_of_choice = {"iterations": iterations, "margin": chosen.record.margin, "demonstrations": demonstrations}
        compiled = taught if chosen is shown else with_margin(student, chosen.record.margin)
        compiled.max_iterations = iterations
        problem.calls = variants.calls + (0 if shown is None else shown.calls)
        details = {
            "own": tuple(variant.record for variant in own),
            "external": external.record,
            "shown": None if shown is None else shown.record,
            "items": len(items),
            "calls": problem.calls,
        }
        name = f"{count(iterations, 'refinement')}, {count(len(demonstrations), 'demonstration')}"
        kept = {"iterations": student.max_iterations, "margin": margin_of(student), "demonstrations": ()}
        given = Candidate("given", student, {"chosen": "the given loop", **kept})
        return Outcome([Candidate(name, compiled, details_of_choice)], given, student, details)

    def rules(self, problem: Problem) -> list[Rule]:
        """See ``JudgeOptimizer``."""
        rule = QualityRule(
            problem,
            self._runner(problem).run,
            self._scorer(),
            tolerance=self.tolerance * (self.quality.high - self.quality.low),
            n_resamples=self.n_resamples,
            seed=self.seed,
        )
        return [rule]

    def validate(self, problem: Problem, baseline: SelfRefine, program: SelfRefine) -> dict[str, Any]:
        """Run both loops over the valset and compare their self-bias, quality and cost."""
        if not problem.valset:
            return {}
        runner, scorer = self._runner(problem), self._scorer()
        named = ((baseline, "before"), (program, "after"))
        runs = [runner.run(loop, problem.valset, name) for loop, name in named]
        sides = [self._end(run, run.quality(problem.valset, scorer)) for run in runs]
        problem.calls += sum(loop.calls for run in runs for loop in run.loops)
        comparison = compare(*sides, n_resamples=self.n_resamples, n_intervals=self.n_resamples, seed=self.seed)
        failed = {name: error for run in runs for name, error in _failed(run, scorer).items()}
        return {"comparison": {SelfBias.name: comparison}, "failed": failed}

    def _runner(self, problem: Problem) -> VariantRunner:
        return VariantRunner(
            problem.student,
            self.external,
            margins=self.margins,
            log_dir=self.log_dir,
            num_threads=self.num_threads,
            progress=self.progress,
            lm=problem.lm,
        )

    def _scorer(self) -> CachedScorer:
        return CachedScorer(self.quality, None if self.log_dir is None else self.log_dir / "quality.jsonl")

    def _choose(self, rivals: Sequence[tuple[_Variant, FloatArray]]) -> tuple[int, _Variant]:
        """Return the fewest refinements, and the first loop, that reach the highest mean quality within the tolerance.

        A loop that leaves more outputs undefined than another cannot be chosen. Of the others, those items count whose
        quality is defined in all of them.

        Args:
            rivals: Loops with the quality of their outputs on the same items, (t + 1, n).
        """
        ends: dict[tuple[int, int], FloatArray] = {}
        for place, (variant, quality) in enumerate(rivals):
            end = len(quality)
            if self.until == "quality or bias" and variant.record.bias_rises is not None:
                end = variant.record.bias_rises
            ends |= {(k, place): quality[k] for k in range(end)}
        undefined = {at: int(np.isnan(row).sum()) for at, row in ends.items()}
        fewest = min(undefined.values())
        rows = {at: row for at, row in ends.items() if undefined[at] == fewest}
        counting = ~np.isnan(np.array(list(rows.values()))).any(axis=0)
        if not counting.any():
            raise ValueError(f"{self.quality.name!r} is defined for no item throughout: nothing tells where to stop.")
        means = {at: float(row[counting].mean()) for at, row in rows.items()}
        enough = max(means.values()) - self.tolerance * (self.quality.high - self.quality.low)
        iterations, place = min(at for at, mean in means.items() if mean >= enough)
        return iterations, rivals[place][0]

    def _end(self, run: LoopRun, quality: FloatArray) -> Measurement:
        """Measure a loop's final outputs; its cost is the mean of an item."""
        (measurement,) = self._measure(run, run.own()[-1:], quality[-1:])
        return replace(measurement, cost={"tokens": float(run.tokens()[-1]), "calls": float(run.calls()[-1])})

    def _measure(self, run: LoopRun, own: FloatArray, quality: FloatArray) -> list[Measurement]:
        return measure_rounds(
            own,
            expected_scores(quality, self.quality, run),
            quality=quality,
            ids=run.ids,
            n_resamples=self.n_resamples,
            seed=self.seed,
        )

    def _variant(self, run: LoopRun, items: Sequence[dspy.Example], scorer: CachedScorer, margin: float) -> _Variant:
        own, quality = run.own(), run.quality(items, scorer)
        rounds = self._measure(run, own, quality)
        record = LoopRecord(
            feedback=run.feedback,
            margin=margin,
            rounds=tuple(rounds),
            own=tuple(map(mean_of_defined, own)),
            tokens=tuple(run.tokens().tolist()),
            calls=tuple(run.calls().tolist()),
            bias_rises=self._rise([measurement.samples["bias"].values for measurement in rounds]),
            failed=_failed(run, scorer),
        )
        return _Variant(record, quality, sum(loop.calls for loop in run.loops))

    def _rise(self, differences: Sequence[FloatArray]) -> int | None:
        """Return the first round whose Bias is significantly above that of the first outputs."""
        for k in range(1, len(differences)):
            test = paired_permutation_test(
                MeanStatistic(), differences[k], differences[0], n_resamples=self.n_resamples, seed=self.seed
            )
            if test.p_value < LEVEL / (len(differences) - 1) and test.difference > 0:
                return k
        return None


def _failed(run: LoopRun, scorer: CachedScorer) -> Mapping[str, str]:
    """Return the errors of a loop and of the scores of its outputs, by item."""
    return {name: error for name, error in scorer.failed.items() if name in run.ids} | run.failed
