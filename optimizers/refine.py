"""Refine loops compiled under external feedback: how long they should run, and demonstrations of what was accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from evalbias.data.items import input_key
from evalbias.evaluation.bias import Section
from evalbias.evaluation.biases import SelfBias
from evalbias.evaluation.estimates import Estimate, Measurement, Number, compare_judges
from evalbias.evaluation.judged import Asking, Judged
from evalbias.evaluation.loops import CachedScorer, Loop, LoopRun, measure_rounds, rounds_plot, run_loops
from evalbias.evaluation.words import count
from evalbias.measures import Draws, estimate_mean
from evalbias.measures.arrays import FloatArray, mean_of_defined
from evalbias.measures.families import holm
from evalbias.optimizers.base import JudgeOptimizer, Problem, check_disjoint
from evalbias.optimizers.rules import Rule
from evalbias.optimizers.selection import Candidate, CompileReport, Selection
from evalbias.programs.feedback import FeedbackSource, checked_source, expected_scores
from evalbias.programs.loops import Improvement, SelfRefine
from evalbias.programs.writing import module_inputs


@dataclass(frozen=True)
class LoopRecord:
    """One loop over the training items, with at most t refinements."""

    feedback: str  # name of its source
    # (t + 1,) self-bias in points of the own score, undefined if the quality is on another scale; quality in its own.
    rounds: tuple[Measurement, ...]
    tokens: tuple[float, ...]  # (t + 1,) mean tokens spent on an item
    calls: tuple[float, ...]  # (t + 1,) mean requests to models for an item
    failed: Mapping[str, str]  # item -> error that stopped it

    @property
    def quality(self) -> tuple[float, ...]:
        """(t + 1,) mean quality of the outputs."""
        return tuple(measurement["quality"].value for measurement in self.rounds)

    @property
    def qualities(self) -> FloatArray:
        """(t + 1, n) quality of every item's output."""
        return np.array([measurement.numbers["quality"].values for measurement in self.rounds])


@dataclass(frozen=True, kw_only=True, repr=False)
class RefineReport(CompileReport):
    """Report of ``ExternalFeedbackRefine``; its comparison is of the self-bias on the valset."""

    own: LoopRecord  # loop under the student's own feedback
    external: LoopRecord  # loop under external feedback; its Bias is 0 where that feedback itself defines the quality
    shown: LoopRecord | None  # loop under its own feedback with demonstrations, over the other items; None without any
    iterations: int  # largest number of refinements of the compiled loop
    demonstrations: tuple[str, ...]  # items whose accepted refinement became one; empty where they did not help
    items: int  # number of training items that were run
    calls: int  # requests to models for the training items
    failed: Mapping[str, str] = field(default_factory=dict)  # item of the valset -> error that stopped it

    @property
    def compiled_loop(self) -> LoopRecord:
        """The loop under its own feedback that was compiled, or kept."""
        return self.shown if self.demonstrations and self.shown is not None else self.own

    def sections(self) -> list[Section]:
        own, external = self.compiled_loop, self.external
        loops = {f"own feedback ({own.feedback})": own, f"external feedback ({external.feedback})": external}
        plot = rounds_plot({name: (tuple(range(len(loop.rounds))), loop.rounds) for name, loop in loops.items()})
        more = [Section("Self-bias over the refinements", [SelfBias.question, plot])] if plot else []
        return [*super().sections(), *more]


def quality_rule(*, n_resamples: int, seed: int) -> Rule:
    """Demand that a loop's final outputs are better, in a paired permutation test over the items, adjusted by Holm.

    The answers are the quality of the final outputs, and the judgments are the requests.
    """

    def estimates(judged: Judged) -> dict[str, Estimate]:
        quality = Number("quality", "quality", judged.answers, estimate_mean, signed=False)
        return {"quality": quality.estimate(seed=seed, n_resamples=n_resamples)}

    def p_values(judged: Sequence[Judged], before: Judged) -> list[float]:
        draws = Draws(seed=seed, resamples=0, swaps=n_resamples)
        changes = [estimate_mean(answers.answers, before=before.answers, draws=draws) for answers in judged]
        return holm([change.p_value / 2 if change.value > 0 else 1 - change.p_value / 2 for change in changes])

    return Rule(
        aim="a higher quality",
        p_values=p_values,
        estimates=estimates,
        costs=lambda judged: (-mean_of_defined(judged.answers), float(judged.asked.judgments)),
    )


@dataclass(eq=False, repr=False)
class ExternalFeedbackRefine(JudgeOptimizer):
    """Compiles a refine loop under external feedback (Xu et al. 2024, section 5).

    The trainset holds items with ``id``, the loop's inputs, and what the external feedback needs. Over them, the
    student's loop runs under its own feedback, and under the external feedback. Refinements that the latter accepted
    become demonstrations, with which the loop runs over the other items. With or without them, the loop is compiled
    that reaches the highest mean quality with the fewest refinements.

    It also takes the options of every optimizer; see ``JudgeOptimizer``. Intervals and tests have 2,000 resamples by
    default, and ``progress`` is called with 1 after every item of every loop.

    Args:
        external: Feedback to learn from.
        quality: Source of the outputs' quality. Defaults to the external feedback itself.
        k: Largest number of demonstrations, taken from the items whose quality rose most; at most half of the items.
        num_threads: Items at a time.
        budget: Largest number of requests to models in the search. No item is begun once they are spent, with what the
            loop with demonstrations will likely cost; the last items may exceed it.
        log_dir: Folder in which the loops are logged; the same compilation started again continues from there.

    Raises:
        TypeError: ``external`` or ``quality`` is no feedback source.
        ValueError: A number is outside its range.
    """

    report_type = RefineReport
    compiles = (SelfRefine,)
    noun = "loop"
    measures = False
    enough = 0  # loops are long, and each is run once

    external: FeedbackSource
    _: KW_ONLY
    quality: Any = None
    k: int = 4
    num_threads: int = 1
    budget: int | None = None
    log_dir: Path | None = None
    n_resamples: int = 2_000

    def __post_init__(self) -> None:
        if self.k < 0 or self.num_threads < 1:
            raise ValueError(f"k={self.k}, num_threads={self.num_threads}: give at least 0 and 1.")
        if self.budget is not None and self.budget < 1:
            raise ValueError(f"budget={self.budget}: allow at least one prompt, or None for no limit.")
        checked_source(self.external)
        self.quality = self.external if self.quality is None else checked_source(self.quality)

    def read(self, student: SelfRefine, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Return the examples; the loop reads their fields when it runs."""
        return list(examples)

    def check(self, student: SelfRefine, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """Refuse items in both sets, by id and by input."""
        if not trainset:
            raise ValueError("The trainset is empty: give training examples.")
        check_disjoint(trainset, valset, lambda e: str(e.get("id")))
        check_disjoint(trainset, valset, input_key, noun="inputs")  # a demonstration would show the answer

    def candidates(self, problem: Problem) -> list[Candidate]:
        """Return the loop with the number of refinements and the demonstrations that are best.

        ``ValueError`` if every item failed, or no item has a defined quality throughout.
        """
        student: SelfRefine = problem.student
        scorer = self._scorer()
        # 1. Run the student's loop, also under the external feedback, within the budget.
        own_run, external_run = self._run_both(problem)
        items = problem.fit[: len(external_run.loops)]
        own, external = (self._record(run, items, scorer) for run in (own_run, external_run))
        # 2. The items whose quality rose most are shown; the others tell whether that helps.
        rise = external.qualities[-1] - external.qualities[0]  # (n,)
        most = min(self.k, len(items) // 2)
        best = [int(n) for n in np.argsort(-rise, kind="stable") if rise[n] > 0][:most]
        others = [n for n in range(len(items)) if n not in best]
        qualities = [own.qualities[:, others]]
        # 3. With the accepted refinements as demonstrations, the loop runs over these others again.
        demonstrated, taught = None, with_steps(student, items, external_run, best)
        if best:
            remaining = [items[n] for n in others]
            demonstrated = self._record(self._run(problem, taught, remaining, "shown"), remaining, scorer)
            qualities.append(demonstrated.qualities)
        # 4. The best with the fewest refinements is compiled.
        iterations, with_demonstrations = self._choose(qualities)
        compiled = taught if with_demonstrations else student.deepcopy()
        compiled.max_iterations = iterations
        demonstrations = tuple(str(items[n].id) for n in best) if with_demonstrations else ()
        loops = {"own": own, "external": external, "shown": demonstrated}
        problem.details = {**loops, "items": len(items), "calls": problem.calls}
        problem.given = replace(problem.given, details={"iterations": student.max_iterations, "demonstrations": ()})
        name = f"{count(iterations, 'refinement')}, {count(len(demonstrations), 'demonstration')}"
        return [Candidate(name, compiled, {"iterations": iterations, "demonstrations": demonstrations})]

    def rules(self, problem: Problem) -> list[Rule]:
        return [quality_rule(n_resamples=self.n_resamples, seed=self.seed)]

    def tested(self, problem: Problem, program: SelfRefine) -> Judged:
        """Run a loop over the held-back items; the answers are the quality of its final outputs."""
        name = "held-back-1" if program is problem.student else "held-back-2"
        run = self._run(problem, program, problem.held_back, name)
        quality = run.quality(problem.held_back, self._scorer())[-1]
        return Judged(run.ids, self.quality.name, quality, asked=Asking(judgments=_calls(run.loops)))

    def validate(self, problem: Problem, selection: Selection) -> dict[str, Any]:
        if not problem.valset:
            return {}
        scorer, sides, failed = self._scorer(), list[Measurement](), dict[str, str]()
        for program, name in ((problem.student, "before"), (selection.chosen.program, "after")):
            run = self._run(problem, program, problem.valset, name)
            quality = run.quality(problem.valset, scorer)
            (measurement,) = self._measure(run, run.own()[-1:], quality[-1:])
            cost = {"tokens": float(run.tokens()[-1]), "calls": float(run.calls()[-1])}  # mean of an item
            sides.append(replace(measurement, cost=cost))
            failed |= _failed(run, scorer)
        comparison = compare_judges(*sides, n_resamples=self.n_resamples, n_intervals=self.n_resamples, seed=self.seed)
        return {"comparison": {SelfBias.name: comparison}, "failed": failed}

    # Loops over the same items, within a budget of requests.

    def _run(self, problem: Problem, loop: SelfRefine, items: Sequence[dspy.Example], name: str) -> LoopRun:
        run = run_loops(
            loop,
            items,
            lm=problem.lm,
            log_dir=None if self.log_dir is None else self.log_dir / name,
            num_threads=self.num_threads,
            progress=self.progress,
        )
        problem.calls += _calls(run.loops)
        return run

    def _run_both(self, problem: Problem) -> tuple[LoopRun, LoopRun]:
        """Return the runs of the student's loop under its own feedback and under the external one.

        The budget also covers one more loop like the first, which will run later with demonstrations.
        """
        student, items = problem.student, problem.fit
        listening: SelfRefine = student.deepcopy()
        listening.feedback, listening.accept = self.external, Improvement()  # a margin is in points of its own feedback
        own, external = list[Loop](), list[Loop]()
        size = len(items) if self.budget is None else self.num_threads
        for start in range(0, len(items), size):
            part = items[start : start + size]
            own += self._run(problem, student, part, "own").loops
            external += self._run(problem, listening, part, "external").loops
            if self.budget is not None and problem.calls + _calls(own) >= self.budget:
                break
        return _run_of(own, student.feedback), _run_of(external, self.external)

    # What the loops come to.

    def _scorer(self) -> CachedScorer:
        return CachedScorer(self.quality, None if self.log_dir is None else self.log_dir / "quality.jsonl")

    def _measure(self, run: LoopRun, own: FloatArray, quality: FloatArray) -> list[Measurement]:
        return measure_rounds(
            own,
            expected_scores(quality, self.quality, run),
            quality=quality,
            ids=run.ids,
            n_resamples=self.n_resamples,
            seed=self.seed,
        )

    def _record(self, run: LoopRun, items: Sequence[dspy.Example], scorer: CachedScorer) -> LoopRecord:
        rounds = self._measure(run, run.own(), run.quality(items, scorer))
        return LoopRecord(
            feedback=run.feedback,
            rounds=tuple(rounds),
            tokens=tuple(run.tokens().tolist()),
            calls=tuple(run.calls().tolist()),
            failed=_failed(run, scorer),
        )

    def _choose(self, qualities: Sequence[FloatArray]) -> tuple[int, int]:
        """Return the fewest refinements, and the place of the first loop, that reach the highest mean quality.

        Each loop has the quality of its outputs on the same items, (t + 1, n). A loop that leaves more of them
        undefined than another cannot be chosen. Of the others, items count whose quality is defined in all of them.
        """
        ends = {(k, place): row for place, quality in enumerate(qualities) for k, row in enumerate(quality)}
        undefined = {at: int(np.isnan(row).sum()) for at, row in ends.items()}
        fewest = min(undefined.values())
        rows = {at: row for at, row in ends.items() if undefined[at] == fewest}
        counting = ~np.isnan(np.array(list(rows.values()))).any(axis=0)  # (n,)
        if not counting.any():
            raise ValueError(f"{self.quality.name!r} is defined for no item throughout: nothing tells where to stop.")
        means = {at: float(row[counting].mean()) for at, row in rows.items()}
        return min(at for at, mean in means.items() if mean == max(means.values()))


def _calls(loops: Sequence[Loop]) -> int:
    return sum(loop.calls for loop in loops)


def _run_of(loops: Sequence[Loop], source: FeedbackSource) -> LoopRun:
    return LoopRun(tuple(loops), source.name, source.low, source.high).checked()


def _failed(run: LoopRun, scorer: CachedScorer) -> Mapping[str, str]:
    return {name: error for name, error in scorer.failed.items() if name in run.ids} | run.failed


# Loops with demonstrations: the steps that external feedback accepted.


def with_steps(loop: SelfRefine, items: Sequence[dspy.Example], run: LoopRun, places: Sequence[int]) -> SelfRefine:
    """Return a copy whose generator sees the final outputs of the items at ``places``, and whose refiner their steps.

    In the run under external feedback, each of these has a refinement that was accepted.
    """
    taught: SelfRefine = loop.deepcopy()
    outputs, steps = [], []
    for n in places:
        draft, final = [step for step in run.loops[n].steps if step.accepted][-2:]
        inputs = {name: items[n][name] for name in sorted(module_inputs(loop.generate)) if name in items[n]}
        answer = {loop.field: final.output}
        outputs.append(dspy.Example(**inputs, **answer))
        steps.append(dspy.Example(**inputs, draft=draft.output, feedback=draft.feedback, **answer))
    for module, demos in ((taught.generate, outputs), (taught.refine, steps)):
        for predictor in module.predictors():
            names = set(predictor.signature.input_fields)
            if demos and names <= set(demos[0].keys()) and loop.field in predictor.signature.output_fields:
                predictor.demos = [*predictor.demos, *demos]
    return taught
