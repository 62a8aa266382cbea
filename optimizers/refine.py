"""Refine loops compiled with external feedback, and their report."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import dspy
import numpy as np

from evalbias.data.pairing import input_key
from evalbias.evaluation.biases import SelfBias
from evalbias.evaluation.estimates import Estimate, Measurement, Sample, compare, estimates_of
from evalbias.evaluation.loops import CachedScorer, Loop, LoopRun, measure_rounds, run_loops
from evalbias.evaluation.words import count
from evalbias.measures import MeanStatistic, paired_permutation_test
from evalbias.measures.arrays import FloatArray, mean_of_defined
from evalbias.measures.families import holm
from evalbias.optimizers.base import JudgeOptimizer, Outcome, Problem, check_disjoint
from evalbias.optimizers.selection import LEVEL, Candidate, CompileReport, Rule
from evalbias.programs.feedback import FeedbackSource, checked_source, expected_scores, on_one_scale
from evalbias.programs.loops import Improvement, SelfRefine

# Demonstrations for a refine loop: the steps that external feedback accepted.


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


# Report of compiling a refine loop.


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


# The choice between a compiled refine loop and the given one, on held-back items.


@dataclass(frozen=True)
class Ran:
    """A loop over the held-back items: (n,) quality of the final outputs, and the requests for all items."""

    quality: FloatArray
    calls: int


class QualityRule:
    """A loop is better if its final outputs are, in a paired permutation test over the items (``Rule``).

    A loop that makes fewer requests may lose ``tolerance`` points of quality: it is better if its quality, raised by
    the tolerance, is.

    Args:
        problem: Input of the search.
        run: Runs a loop over items under a name.
        scorer: Source of the quality.
        tolerance: Points of quality that a cheaper loop may lose.
        n_resamples: Swaps of the test and resamples of the interval.
        seed: Seed for both.
    """

    level = LEVEL

    def __init__(
        self,
        problem: Problem,
        run: Callable[[SelfRefine, Sequence[dspy.Example], str], LoopRun],
        scorer: CachedScorer,
        *,
        tolerance: float,
        n_resamples: int,
        seed: int,
    ) -> None:
        self.aim = "a higher quality" + (f", or fewer requests for at most {tolerance:g} points" if tolerance else "")
        self._problem, self._run, self._scorer = problem, run, scorer
        self._tolerance, self._n_resamples, self._seed = tolerance, n_resamples, seed
        self._loops = 0

    def answers(self, program: SelfRefine) -> Ran:
        """Run a loop over the held-back items."""
        self._loops += 1
        run = self._run(program, self._problem.held_back, f"held-back-{self._loops}")
        calls = sum(loop.calls for loop in run.loops)
        self._problem.calls += calls
        return Ran(run.quality(self._problem.held_back, self._scorer)[-1], calls)

    def undefined(self, answers: Ran, given: Ran) -> int:
        """Return the number of items that it leaves without a defined quality beyond those of the given loop."""
        return int(np.isnan(answers.quality).sum()) - int(np.isnan(given.quality).sum())

    def estimates(self, answers: Ran) -> dict[str, Estimate]:
        """Return the mean quality with its interval."""
        samples = {"quality": Sample(answers.quality, MeanStatistic(), "quality", signed=False)}
        return estimates_of(samples, seed=self._seed, n_resamples=self._n_resamples)

    def p_values(self, answers: Sequence[Ran], given: Ran) -> list[float]:
        """Return the one-sided p that each quality is no higher, adjusted by Holm."""
        return holm([self._p_value(one, given) for one in answers])

    def _p_value(self, answers: Ran, given: Ran) -> float:
        allowed = self._tolerance if answers.calls < given.calls else 0.0
        test = paired_permutation_test(
            MeanStatistic(), answers.quality + allowed, given.quality, n_resamples=self._n_resamples, seed=self._seed
        )
        return test.p_value / 2 if test.difference > 0 else 1 - test.p_value / 2

    def loss(self, answers: Ran, given: Ran) -> str:
        """Return nothing: the quality is all that a loop is for."""
        return ""

    def error(self, answers: Ran) -> float:
        """Return 0: any difference decides."""
        return 0.0

    def costs(self, answers: Ran) -> tuple[float, ...]:
        """Return minus the mean quality, and the requests."""
        return (-mean_of_defined(answers.quality), float(answers.calls))


# Variants of a refine loop, run over the same items within a budget of requests.


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


# Compile a refine loop: how long it should run, and demonstrations from what external feedback accepted.


REFINE_LEVEL = 0.05
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
            if test.p_value < REFINE_LEVEL / (len(differences) - 1) and test.difference > 0:
                return k
        return None


def _failed(run: LoopRun, scorer: CachedScorer) -> Mapping[str, str]:
    """Return the errors of a loop and of the scores of its outputs, by item."""
    return {name: error for name, error in scorer.failed.items() if name in run.ids} | run.failed
