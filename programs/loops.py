"""Refine loops: self-refine, best of k, and self-consistency for mathematics.

A loop writes an output, gets feedback on it, and writes again. ``_Run`` does this for a single item; the loops differ
in what they write and accept.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Literal

import dspy

from evalbias.lm.dspy_seam import BaseCallback, UsageTracker
from evalbias.lm.types import PromptRefused
from evalbias.programs.feedback import (
    ConsistencyFeedback,
    Feedback,
    FeedbackSource,
    checked_source,
    required_field,
    validated,
    vote,
)
from evalbias.programs.prompts import Fields
from evalbias.programs.saved import Program, Setting, instance_of, number_within, one_of
from evalbias.programs.writing import draws, module_inputs, sample, temperatures
from evalbias.values import get_logger

EMPTY = "The output is empty."  # feedback on an empty output, which is not sent to the feedback source


@dataclass(frozen=True)
class Step:
    """Output of a loop, with its feedback."""

    iteration: int  # 0 is the first output
    output: str
    score: float  # of the feedback; NaN if undefined
    feedback: str  # its text
    accepted: bool  # True if the output replaced the loop's current output
    status: str  # why the score is undefined; empty if it is not
    tokens: int  # prompt and completion of writing and feedback; DSPy's cache and models without reports count 0
    calls: int  # requests of writing and feedback, including those that the cache answered


def take_step(
    iteration: int,
    write: Callable[[], str],
    judge: Callable[[str], Feedback],
    accepts: Callable[[float], bool] | None = None,
) -> Step:
    """Write an output, get feedback on it unless it is empty, and accept it by the rule; None accepts always."""
    with count_usage() as used:
        output = write()
        feedback = judge(output) if output.strip() else Feedback(math.nan, EMPTY, status="empty output")
    accepted = accepts is None or accepts(feedback.score)
    return Step(iteration, output, feedback.score, feedback.text, accepted, feedback.status, used.tokens, used.calls)


@dataclass
class Used(BaseCallback):  # type: ignore[misc]
    """Requests and tokens used inside a context; answers from DSPy's cache count as requests and cost no tokens."""

    tracker: UsageTracker
    calls: int = 0

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.calls += 1

    @property
    def tokens(self) -> int:
        totals = self.tracker.get_total_tokens().values()
        return int(sum(usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0) for usage in totals))


@contextmanager
def count_usage() -> Iterator[Used]:
    """Count requests and tokens inside the context; the user's own usage tracker receives the tokens too."""
    with dspy.track_usage() as tracker:
        used = Used(tracker)
        with dspy.context(callbacks=[*dspy.settings.callbacks, used]):
            yield used


class _Run:
    """Run of a loop on one item: the generator receives the fields that it takes, the feedback source all fields.

    Feedback that decodes greedily is asked for once for each different output. Feedback that draws its answer is asked
    for every time: the same text may then get a better score and replace itself, as in the published loops.
    """

    def __init__(self, loop: SelfRefine | BestOfK, item: Fields) -> None:
        self._loop, self._item = loop, item
        names = module_inputs(loop.generate)
        self._inputs = {name: value for name, value in item.items() if name in names}
        source = loop.feedback
        self._draws = 0 if isinstance(source, dspy.Module) and any(temperatures(source)) else None
        self._feedbacks: dict[str, Feedback] = {}
        self.steps: list[Step] = []

    @property
    def best(self) -> Step:
        return next(step for step in reversed(self.steps) if step.accepted)

    def step(self, module: dspy.Module, accept: Improvement, **more: Any) -> Step:
        """Draw the step's number from a module, and replace the best output if ``accept`` allows."""
        number = len(self.steps)

        def write() -> str:
            return str(sample(module, number, self._loop.seed, **self._inputs, **more)[self._loop.field])

        accepts = partial(accept, self.best.score) if self.steps else None  # the first output is accepted as it is
        self.steps.append(take_step(number, write, self._judge, accepts))
        return self.steps[-1]

    def prediction(self, **fields: Any) -> dspy.Prediction:
        output = {self._loop.field: self.best.output, "score": self.best.score, "steps": self.steps}
        return dspy.Prediction(**output, **fields)

    def _judge(self, output: str) -> Feedback:
        source = self._loop.feedback
        ask: Callable[..., Feedback] = source
        if self._draws is not None:
            ask = partial(sample, source, self._draws, self._loop.seed)
            self._draws += 1
        elif output in self._feedbacks:
            return self._feedbacks[output]
        try:
            feedback = validated(source, ask(self._item, output))
        except PromptRefused as refusal:
            reason = f"The prompt {next(iter(refusal.refused.values()))}"
            get_logger(__name__).warning(
                "The feedback %r on an output of the item %.80r is undefined. %s",
                source.name,
                self._item.get("id"),
                reason,
            )
            feedback = Feedback(math.nan, "The output cannot be judged.", status=f"refused: {reason}")
        self._feedbacks[output] = feedback
        return feedback


@dataclass(frozen=True)
class Improvement:
    """Acceptance of scores that are better by more than ``margin`` points, at least 0; the paper's is 0.

    An undefined score is never accepted; a defined score always replaces an undefined one.

    Examples:
        >>> Improvement(1.0)(3, 4), Improvement(1.0)(3, 4.5)
        (False, True)
    """

    margin: float = 0.0

    def __post_init__(self) -> None:
        number_within(0)("margin", self.margin)  # below 0, worse outputs would be accepted

    def __call__(self, before: float, after: float) -> bool:
        return not math.isnan(after) and (math.isnan(before) or after - before > self.margin)


STRICT = Improvement()


def _saved_margin(rule: Improvement) -> float:
    if type(rule) is not Improvement:
        fault = f"accept={rule!r:.80} cannot be saved, because a file holds no more than a margin"
        raise TypeError(f"{fault}: set loop.accept = Improvement(MARGIN) first, and your own rule again after loading.")
    return rule.margin


def _check_perfect(name: str, value: Any) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)
    if not number and value not in ("best", None):
        raise ValueError(f"{name}={value!r:.80}: give 'best', a number or None.")


class SelfRefine(Program):
    """Wraps a generator in a loop of feedback and refinement (Madaan et al. 2023; Xu et al. 2024).

    A call returns the output field, ``score``, ``steps`` (a list of ``Step``), ``iterations`` and ``stopped``:
    ``"perfect"``, ``"repeats"`` or ``"iterations"``. Every refinement is a new draw. A refiner that
    decodes greedily would write a rejected text again, so the loop stops there (``"repeats"``).

    Args:
        generate: DSPy module from the inputs to a prediction with the output field.
        feedback: Feedback source; it receives all fields of the example, such as a reference.
        refine: DSPy module from the inputs, ``draft`` (current output) and ``feedback`` (its text) to the same field.
        max_iterations: Largest number of refinements, up to 1000; the paper's is 10, and 0 generates only.
        accept: Rule that decides whether a refinement replaces the current output.
        perfect: Score at which the loop stops. Defaults to the source's best score; None disables it.
        seed: Seed for the draws, for models that draw by a seed.
        field: Name of the output field.
    """

    kind = "refine loop"
    max_iterations = Setting[int](number_within(0, 1000, whole=True))
    accept = Setting[Improvement](instance_of(Improvement, "Improvement(MARGIN)"), dump=_saved_margin, load=Improvement)
    perfect = Setting[float | Literal["best"] | None](_check_perfect)
    seed = Setting[int](number_within(0, whole=True))
    field = Setting[str]()

    def __init__(
        self,
        generate: dspy.Module,
        feedback: FeedbackSource,
        refine: dspy.Module,
        *,
        max_iterations: int = 10,
        accept: Improvement = STRICT,
        perfect: float | Literal["best"] | None = "best",
        seed: int = 0,
        field: str = "output",
    ) -> None:
        super().__init__()
        self.max_iterations, self.accept, self.perfect = max_iterations, accept, perfect
        self.seed, self.field = seed, field
        self.generate, self.feedback, self.refine = generate, checked_source(feedback), refine

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Run the loop on one item; fields that the generator does not take (a reference) go to the feedback only."""
        run, stopped = _Run(self, inputs), "iterations"
        # 1. The first output is accepted as it is.
        run.step(self.generate, self.accept)
        perfect = self.feedback.high if self.perfect == "best" else self.perfect
        redraws = draws(self.refine)
        for _ in range(self.max_iterations):
            if perfect is not None and run.best.score >= perfect:
                stopped = "perfect"
                break
            # 2. The refiner sees the best output so far and its feedback; a better output takes its place.
            step = run.step(self.refine, self.accept, draft=run.best.output, feedback=run.best.feedback)
            # 3. After a rejection, a refiner that decodes greedily would repeat itself.
            if not step.accepted and not redraws:
                stopped = "repeats"
                break
        return run.prediction(iterations=len(run.steps) - 1, stopped=stopped)


class RepeatedDrafts(UserWarning):
    """An item has fewer than k different drafts, so its best output is the best of fewer than k."""


class BestOfK(Program):
    """Draws k outputs and keeps the one with the best feedback: self-reward (Xu et al. 2024, section 4.4).

    ``generate`` draws ``field`` at a temperature above 0; a generator that decodes greedily is asked for one draft.
    ``feedback`` is the model's own judge for self-reward. The output that stands after step i of a call is the best of
    the first i + 1 drafts, so that one run with k = 32 has the results for every smaller k. A call returns ``field``,
    ``score``, ``steps``, ``distinct`` (number of different drafts) and ``stopped`` (``"iterations"``). An undefined
    score wins only if all scores are undefined. ``RepeatedDrafts`` warns once if fewer than k drafts are different.
    """

    kind = "best of k"
    k = Setting[int](number_within(1, 1000, whole=True))
    seed = Setting[int](number_within(0, whole=True))
    field = Setting[str]()

    def __init__(
        self, generate: dspy.Module, feedback: FeedbackSource, *, k: int = 8, seed: int = 0, field: str = "output"
    ) -> None:
        super().__init__()
        self.k, self.seed, self.field = k, seed, field
        self.generate, self.feedback, self._warned = generate, checked_source(feedback), False

    def forward(self, **inputs: Any) -> dspy.Prediction:
        run = _Run(self, inputs)
        for _ in range(self.k if draws(self.generate) else 1):
            run.step(self.generate, STRICT)
        distinct = len({step.output for step in run.steps})
        if distinct < self.k and not self._warned:
            self._warned = True
            warnings.warn(
                f"Only {distinct} of the {self.k} drafts of an item are different: draw them at a temperature above 0, "
                "or choose a smaller k. This is told once; 'distinct' of every prediction counts.",
                RepeatedDrafts,
                stacklevel=2,
            )
        return run.prediction(distinct=distinct, stopped="iterations")


class SelfConsistencyRefine(Program):
    """Solves a problem and refines the answer by self-consistency (Xu et al. 2024, section 4.1).

    Every iteration votes on ``paths`` new solutions of ``generate``, which draws ``output`` for a ``source`` at a
    temperature above 0. If the vote agrees with the current answer, the score is 1; if not, it is 0, and a solution
    that reaches the vote's answer replaces the current solution, whether or not the score improves. A vote without any
    answer is undefined (NaN), and the solution stays. In ``SelfRefine`` with ``ConsistencyFeedback``, by contrast, a
    refiner receives the result of the vote. The published code draws 20 paths once, votes on the first 10, 15 and 20 of
    them and pools the differences of these three rounds; here, as in the paper's text, every vote has its own paths.

    Args:
        generate: DSPy module from ``source`` to ``output``.
        paths: Number of solutions drawn for each vote; 10 in the paper.
        max_iterations: Number of votes after the first, which every item gets, as in the paper.
        stop: Whether an item ends with the first vote that agrees (``"perfect"``). It saves calls and keeps the answer,
            but its last own score is then 1 by construction, so that Bias grows with the iterations for any model.
        seed: Seed for drawing solutions.
    """

    field = "output"
    kind = "self-consistency loop"
    max_iterations = Setting[int](number_within(0, 1000, whole=True))
    stop = Setting[bool](one_of(False, True))
    seed = Setting[int](number_within(0, whole=True))

    def __init__(
        self, generate: dspy.Module, *, paths: int = 10, max_iterations: int = 10, stop: bool = False, seed: int = 0
    ) -> None:
        super().__init__()
        self.max_iterations, self.stop, self.seed = max_iterations, stop, seed
        self.generate = generate
        self.feedback = ConsistencyFeedback(generate, paths=paths, seed=seed)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Run the loop on one item with a ``source``; the model receives no other field."""
        source = str(required_field(self.feedback.name, inputs, "source"))
        steps: list[Step] = []
        solution, stopped = "", "iterations"
        for number in range(self.max_iterations + 1):
            # 1. A new vote judges the solution; the first one is drawn.
            with count_usage() as used:
                if number == 0:
                    solution = str(sample(self.generate, 0, self.seed, source=source)[self.field])
                ballot = vote(self.generate, source, paths=self.feedback.paths, number=number, seed=self.seed)
            verdict = self.feedback.read(ballot, solution)
            outcome = (verdict.score, verdict.text, True, verdict.status)
            steps.append(Step(number, solution, *outcome, used.tokens, used.calls))
            agreed = verdict.score == self.feedback.high
            if agreed and self.stop:
                stopped = "perfect"
                break
            # 2. A solution that reaches the vote's answer replaces a solution that does not.
            solution = solution if agreed else ballot.solution or solution
        last = steps[-1]
        fields = {self.field: last.output, "score": last.score, "steps": steps}
        return dspy.Prediction(**fields, iterations=len(steps) - 1, stopped=stopped)
