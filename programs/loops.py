"""Refine loops: self-refine, self-consistency and best of k."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import dspy
from dspy.utils.callback import BaseCallback
from dspy.utils.usage_tracker import UsageTracker

from evalbias.lm.types import PromptRefused
from evalbias.programs.feedback import (
    ConsistencyFeedback,
    Feedback,
    FeedbackSource,
    Vote,
    checked_source,
    required_field,
    validated,
    vote,
)
from evalbias.programs.saved import Program, Setting, number
from evalbias.programs.writing import draws, sample, temperatures
from evalbias.values import get_logger

# One step of a refine loop: an output, its feedback and its cost.


EMPTY = "The output is empty."
"""Feedback on an empty output, which is not shown to the feedback source."""
REFUSED = "The output cannot be judged."
"""Feedback on an output that the feedback source's model refuses; the reason is the step's status."""


@dataclass(frozen=True)
class Step:
    """One output of a loop.

    Attributes:
        iteration: Number of the step; 0 is the first output.
        output: Text of the output.
        score: Score of the feedback; NaN if undefined.
        feedback: Text of the feedback.
        accepted: True if the output became the loop's output.
        status: Reason why the score is undefined, or an empty string.
        tokens: Number of prompt and completion tokens of writing and feedback. Answers from DSPy's cache and models
            that do not report their usage count 0.
        calls: Number of requests of writing and feedback, including those that the cache answered.
    """

    iteration: int
    output: str
    score: float
    feedback: str
    accepted: bool
    status: str
    tokens: int
    calls: int


def take_step(
    iteration: int,
    write: Callable[[], str],
    source: FeedbackSource,
    example: Mapping[str, Any],
    accepts: Callable[[float], bool],
) -> Step:
    """Write an output, get feedback on it and decide whether to accept it.

    Args:
        iteration: Number of the step.
        write: Function that writes the output.
        source: Feedback source. An empty output is not shown to it; its score is undefined.
        example: Item for the source.
        accepts: Function of the score that returns True if the output is accepted.

    Raises:
        ValueError: The score is outside the source's range.
    """
    with count_usage() as usage:
        output = write()
        if output.strip():
            feedback = validated(source, source(example, output))
        else:
            feedback = Feedback(float("nan"), EMPTY, status="empty output")
    accepted = accepts(feedback.score)
    return Step(iteration, output, feedback.score, feedback.text, accepted, feedback.status, usage.tokens, usage.calls)


class ItemFeedback:
    """Feedback on the outputs of one item: a source that decodes greedily is asked once for each different output.

    A source that draws its answer, at a temperature above 0, is asked every time, for a draw of its own. The same text
    may then get a better score and replace itself, as in the published loops. Feedback on an output that the source's
    model refuses, for example because it is too long, is undefined; the log and its status say why.

    Args:
        source: Source to ask.
        seed: Seed for the source's draws, for models that draw by a seed.
    """

    def __init__(self, source: FeedbackSource, seed: int) -> None:
        self.name, self.low, self.high = source.name, source.low, source.high
        self._source, self._seed = source, seed
        self._drawn = isinstance(source, dspy.Module) and any(temperatures(source))
        self._count = 0
        self._answers: dict[str, Feedback] = {}

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Return the source's feedback on an output of the item."""
        if self._drawn:
            self._count += 1
            return self._told(partial(sample, self._source, self._count - 1, self._seed), example, output)
        if output not in self._answers:
            self._answers[output] = self._told(self._source, example, output)
        return self._answers[output]

    def _told(self, ask: Callable[..., Feedback], example: Mapping[str, Any], output: str) -> Feedback:
        try:
            return ask(example, output)
        except PromptRefused as refusal:
            reason = f"The prompt {next(iter(refusal.refused.values()))}"
            get_logger(__name__).warning(
                "The feedback %r on an output of the item %.80r is undefined. %s", self.name, example.get("id"), reason
            )
            return Feedback(float("nan"), REFUSED, status=f"refused: {reason}")


def input_names(generate: dspy.Module) -> frozenset[str]:
    """Return the names of a generator's inputs.

    They are the named parameters of its ``forward``. If ``forward`` takes any arguments, they are the input fields of
    its predictors that are not output fields of another predictor.
    """
    _, *parameters = inspect.signature(type(generate).forward).parameters.values()
    if not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        return frozenset(p.name for p in parameters)
    consumed: set[str] = set()
    produced: set[str] = set()
    for predictor in generate.predictors():
        consumed |= set(predictor.signature.input_fields)
        produced |= set(predictor.signature.output_fields)
    return frozenset(consumed - produced)


def shown_inputs(generate: dspy.Module, example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an item that a generator takes; the others, such as a reference, are for the feedback."""
    names = input_names(generate)
    return {name: value for name, value in example.items() if name in names}


@dataclass
class UsageCount(BaseCallback):  # type: ignore[misc]
    """Requests and tokens used inside a context.

    Attributes:
        calls: Number of requests, including those that DSPy's cache answered.
        tracker: Tracker of the tokens; cached answers cost none.
    """

    calls: int = 0
    tracker: UsageTracker = field(default_factory=UsageTracker)

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Count a request."""
        self.calls += 1

    @property
    def tokens(self) -> int:
        """Number of prompt and completion tokens."""
        totals = self.tracker.get_total_tokens().values()
        return int(sum(usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0) for usage in totals))


@contextmanager
def count_usage() -> Iterator[UsageCount]:
    """Count requests and tokens inside the context; the user's own usage tracker receives the tokens too."""
    outer, usage = dspy.settings.usage_tracker, UsageCount()
    with dspy.context(usage_tracker=usage.tracker, callbacks=[*dspy.settings.callbacks, usage]):
        try:
            yield usage
        finally:  # an item that failed has cost tokens too
            if outer is not None:
                for lm, entries in usage.tracker.usage_data.items():
                    for entry in entries:
                        outer.add_usage(lm, entry)


# Refine loops as DSPy programs: write, get feedback, rewrite, keep improvements.


Accept = Callable[[float, float], bool]
"""Acceptance rule: (score so far, new score) -> True if the new output replaces the current one."""


@dataclass(frozen=True)
class Improvement:
    """Acceptance of scores that are better by more than a margin.

    An undefined score is never accepted; a defined score always replaces an undefined one.

    Attributes:
        margin: Margin in points of the feedback's score, at least 0. The paper's is 0, strict improvement.

    Raises:
        ValueError: The margin is negative.

    Examples:
        >>> Improvement(1.0)(3, 4), Improvement(1.0)(3, 4.5)
        (False, True)
    """

    margin: float = 0.0

    def __post_init__(self) -> None:
        if not self.margin >= 0:
            raise ValueError(f"margin={self.margin} would accept worse outputs: give at least 0.")

    def __call__(self, before: float, after: float) -> bool:
        """Return True if an output with the score ``after`` is accepted."""
        return not math.isnan(after) and (math.isnan(before) or after - before > self.margin)


STRICT = Improvement()


class AcceptSetting(Setting[Accept]):
    """The acceptance rule of a loop. A rule other than ``Improvement`` is code: it is saved as None, and not loaded."""

    def loaded(self, saved: Any, current: Accept) -> Accept:
        """Return the rule; where it is code, that of the program that loads it.

        Raises:
            ValueError: The saved loop has a rule of its own and this one does not.
        """
        if saved is not None:
            return Improvement(saved)
        if isinstance(current, Improvement):
            raise ValueError(
                "The saved loop has an acceptance rule of its own, which is code and is not saved: load it into a loop "
                "that was made with this rule, SelfRefine(..., accept=RULE)."
            )
        return current


class SelfRefine(Program):
    """Wraps a generator in a loop of feedback and refinement (Madaan et al. 2023; Xu et al. 2024).

    Args:
        generate: DSPy module from the inputs to a prediction with the output field.
        feedback: Feedback source; it receives the inputs and all other fields of the example, such as a reference.
        refine: DSPy module from the inputs, ``draft`` (current output) and ``feedback`` (its text) to the same field.
        max_iterations: Largest number of refinements; the paper's is 10, and 0 generates only.
        accept: Rule that decides whether a refinement replaces the current output. A rule other than ``Improvement`` is
            code: it is not saved, and a saved loop is loaded into one that was made with it.
        perfect: Score at which the loop stops. Defaults to the source's best score; None disables it.
        plateau: Number of consecutive rejected refinements after which the loop stops; None disables it.
        seed: Seed for the draws, for models that draw by a seed.
        field: Name of the output field.

    A call returns the output field, ``score``, ``steps`` (a list of ``Step``), ``iterations`` and ``stopped``, which is
    ``"perfect"``, ``"plateau"``, ``"repeats"`` or ``"iterations"``.

    Every refinement is a new draw, so the refiner needs a temperature above 0: after a rejected refinement it is asked
    the same again. One that decodes greedily would write the same text, and the loop stops there (``"repeats"``).
    Feedback that decodes greedily is asked once for each different output.

    Raises:
        TypeError: ``feedback`` is no feedback source, such as a plain function without a range of scores.
        ValueError: ``max_iterations`` or ``plateau`` is outside its range, or ``perfect`` is another word.
    """

    kind = "refine loop"
    max_iterations = Setting[int](number(0, 1000, whole=True))
    accept = AcceptSetting(dump=lambda rule: rule.margin if isinstance(rule, Improvement) else None)
    perfect = Setting[float | Literal["best"] | None](number(also=("best", None)))
    plateau = Setting[int | None](number(1, whole=True, also=(None,)))
    seed = Setting[int](number(0, whole=True))
    field = Setting[str]()

    def __init__(
        self,
        generate: dspy.Module,
        feedback: FeedbackSource,
        refine: dspy.Module,
        *,
        max_iterations: int = 10,
        accept: Accept = STRICT,
        perfect: float | Literal["best"] | None = "best",
        plateau: int | None = None,
        seed: int = 0,
        field: str = "output",
    ) -> None:
        super().__init__(
            max_iterations=max_iterations, accept=accept, perfect=perfect, plateau=plateau, seed=seed, field=field
        )
        self.generate = generate
        self.feedback = checked_source(feedback)
        self.refine = refine

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Run the loop on one item; fields that the generator does not take (a reference) go to the feedback only."""
        shown, source = shown_inputs(self.generate, inputs), ItemFeedback(self.feedback, self.seed)
        write = partial(self._write, self.generate, 0, **shown)
        steps = [take_step(0, write, source, inputs, lambda _: True)]
        best, rejected, stopped = steps[0], 0, "iterations"
        perfect = self.feedback.high if self.perfect == "best" else self.perfect
        redraws = draws(self.refine)
        for iteration in range(1, self.max_iterations + 1):
            if perfect is not None and best.score >= perfect:
                stopped = "perfect"
                break
            if self.plateau is not None and rejected >= self.plateau:
                stopped = "plateau"
                break
            write = partial(self._write, self.refine, iteration, **shown, draft=best.output, feedback=best.feedback)
            step = take_step(iteration, write, source, inputs, partial(self.accept, best.score))
            steps.append(step)
            best, rejected = (step, 0) if step.accepted else (best, rejected + 1)
            if rejected and not redraws:
                stopped = "repeats"
                break
        fields = {self.field: best.output, "score": best.score, "steps": steps}
        return dspy.Prediction(**fields, iterations=len(steps) - 1, stopped=stopped)

    @property
    def inputs(self) -> frozenset[str]:
        """Names of the generator's inputs; see ``input_names``."""
        return input_names(self.generate)

    def _write(self, module: dspy.Module, index: int, /, **inputs: Any) -> str:
        return str(sample(module, index, self.seed, **inputs)[self.field])


# Best-of-k sampling as a DSPy program: draw k outputs, keep the one with the best feedback.


class RepeatedDrafts(UserWarning):
    """Fewer than k of the drafts of an item are different, so that k counts for less than it says."""


class BestOfK(Program):
    """Draws k outputs and keeps the one with the best feedback: self-reward (Xu et al. 2024, section 4.4).

    The drafts are k draws of the generator. The steps of a call are nested: the output that stands after step i is the
    best of the first i + 1 drafts, so that one run with k = 32 has the results for every smaller k as well.

    Args:
        generate: DSPy module that draws its output at a temperature above 0.
        feedback: Feedback source; the model's own judge for self-reward.
        k: Number of drafts.
        seed: Seed for the draws, for models that draw by a seed.
        field: Name of the output field.

    A call returns the output field, ``score``, ``steps``, ``distinct`` (number of different drafts) and ``stopped``
    (``"iterations"``). An output with an undefined score is returned only if all scores are undefined. A generator that
    decodes greedily has one draft and is asked once.

    Warns:
        RepeatedDrafts: Fewer than k drafts of an item are different. Told once; ``distinct`` counts for every item.

    Raises:
        TypeError: ``feedback`` is no feedback source.
        ValueError: ``k`` is below 1.
    """

    kind = "best of k"
    k = Setting[int](number(1, 1000, whole=True))
    seed = Setting[int](number(0, whole=True))
    field = Setting[str]()

    def __init__(
        self, generate: dspy.Module, feedback: FeedbackSource, *, k: int = 8, seed: int = 0, field: str = "output"
    ) -> None:
        super().__init__(k=k, seed=seed, field=field)
        self.generate = generate
        self.feedback = checked_source(feedback)
        self._warned = False

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Draw k outputs for one item and return the best."""
        shown, source = shown_inputs(self.generate, inputs), ItemFeedback(self.feedback, self.seed)
        best = take_step(0, partial(self._draw, 0, shown), source, inputs, lambda _: True)
        steps = [best]
        for index in range(1, self.k if draws(self.generate) else 1):
            step = take_step(index, partial(self._draw, index, shown), source, inputs, partial(STRICT, best.score))
            steps.append(step)
            best = step if step.accepted else best
        distinct = len({step.output for step in steps})
        self._warn(distinct)
        fields = {self.field: best.output, "score": best.score, "steps": steps}
        return dspy.Prediction(**fields, distinct=distinct, stopped="iterations")

    def _draw(self, index: int, shown: Mapping[str, Any]) -> str:
        return str(sample(self.generate, index, self.seed, **shown)[self.field])

    def _warn(self, distinct: int) -> None:
        if distinct < self.k and not self._warned:
            self._warned = True
            warnings.warn(
                f"Only {distinct} of the {self.k} drafts of an item are different: draw them at a temperature above 0, "
                "or choose a smaller k. This is told once; 'distinct' of every prediction counts.",
                RepeatedDrafts,
                stacklevel=3,
            )


# The refine loop for mathematics: the majority vote of new paths replaces the solution until they agree.


class SelfConsistencyRefine(Program):
    """Solves a problem and refines the answer by self-consistency (Xu et al. 2024, section 4.1).

    Every iteration votes on ``paths`` new solutions. If the vote agrees with the current answer, the score is 1 and the
    loop stops. If not, the score is 0, and the solution is replaced by one that reaches the vote's answer, whether or
    not the score improves. A vote without any answer is undefined (NaN): the solution stays, and the next iteration
    votes anew. ``SelfRefine`` with ``ConsistencyFeedback`` is the loop in which a refiner is told the vote, and its
    solution is accepted only if the score is better.

    The published code draws 20 paths once and votes on overlapping tens of them; here, as in the paper's text, every
    vote has paths of its own.

    Args:
        generate: DSPy module from ``source`` to ``output`` that draws at a temperature above 0; it writes the first
            solution and the paths.
        paths: Number of paths of each vote; the paper's is 10.
        max_iterations: Largest number of replacements; the paper's is 10.
        seed: Seed for the draws, for models that draw by a seed.

    Attributes:
        feedback: The vote as a feedback source.
        field: Name of the output field, ``"output"``.

    A call returns ``output``, ``score``, ``steps``, ``iterations`` and ``stopped``, which is ``"perfect"`` (the last
    vote agreed) or ``"iterations"``.

    Raises:
        ValueError: ``paths`` is below 1 or ``max_iterations`` below 0.
    """

    field = "output"
    kind = "self-consistency loop"
    max_iterations = Setting[int](number(0, 1000, whole=True))
    seed = Setting[int](number(0, whole=True))

    def __init__(self, generate: dspy.Module, *, paths: int = 10, max_iterations: int = 10, seed: int = 0) -> None:
        super().__init__(max_iterations=max_iterations, seed=seed)
        self.generate = generate
        self.feedback = ConsistencyFeedback(generate, paths=paths, seed=seed)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Run the loop on one item with a ``source``; its other fields are not shown to the model."""
        source = str(required_field(self.feedback.name, inputs, "source"))
        steps: list[Step] = []
        solution: str | None = None
        stopped = "iterations"
        for iteration in range(self.max_iterations + 1):
            step, ballot = self._step(iteration, source, solution)
            steps.append(step)
            if step.score == self.feedback.high:
                stopped = "perfect"
                break
            solution = step.output if ballot.answer is None else ballot.solution
        last = steps[-1]
        fields = {self.field: last.output, "score": last.score, "steps": steps}
        return dspy.Prediction(**fields, iterations=len(steps) - 1, stopped=stopped)

    def _step(self, iteration: int, source: str, solution: str | None) -> tuple[Step, Vote]:
        """Vote on a solution, or on the first one, which is drawn here."""
        with count_usage() as usage:
            if solution is None:
                solution = str(sample(self.generate, 0, self.seed, source=source)[self.field])
            ballot = vote(self.generate, source, paths=self.feedback.paths, number=iteration, seed=self.seed)
        verdict = self.feedback.read(ballot, solution)
        outcome = (verdict.score, verdict.text, True, verdict.status)
        return Step(iteration, solution, *outcome, usage.tokens, usage.calls), ballot
