"""The refine loop: write, listen to feedback, rewrite; a rewriting counts only where the feedback is better for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import dspy
from dspy.utils.usage_tracker import UsageTracker

from evalbias.programs.feedback.source import Feedback, FeedbackSource, checked

Accept = Callable[[float, float], bool]
"""(score so far, new score) -> whether the new output takes over."""

REASONS = ("perfect", "plateau", "iterations")


@dataclass(frozen=True)
class Step:
    """One output on the way.

    Attributes:
        iteration: 0 is the first output.
        output: What was written.
        score: The feedback's; NaN where undefined.
        feedback: What was said about it.
        accepted: Whether it became the loop's output.
        status: Why the score is undefined, or empty.
        tokens: Prompt and completion tokens of writing and feedback together; 0 where the models do not tell.
    """

    iteration: int
    output: str
    score: float
    feedback: str
    accepted: bool
    status: str
    tokens: int


def strict_improvement(before: float, after: float) -> bool:
    """The paper's: better, not equal. An undefined score never takes over, a defined one does over an undefined."""
    return after == after and (before != before or after > before)


class SelfRefine(dspy.Module):  # type: ignore[misc]
    """Wraps a generator in a loop of feedback and refinement (Madaan et al. 2023; Xu et al. 2024).

    Args:
        generate: Any DSPy module: the inputs -> a prediction with the output's field.
        feedback: A source; it is shown the inputs and, where the example has more (a reference), that too.
        refine: Any DSPy module: the inputs, ``draft`` (the output so far), ``feedback`` (its text) -> the same field.
        max_iterations: Refinements at most; the paper's is 10. 0 generates alone.
        accept: Which refinement takes over.
        perfect: Stop at this score; by default the source's best. None goes on.
        plateau: Stop after so many refinements in a row that were not accepted; None never does.
        field: The output's field.

    A call gives the output's field, ``score``, ``steps`` (a list of ``Step``), ``iterations`` and ``stopped`` (one of
    ``REASONS``).
    """

    def __init__(
        self,
        generate: dspy.Module,
        feedback: FeedbackSource,
        refine: dspy.Module,
        *,
        max_iterations: int = 10,
        accept: Accept = strict_improvement,
        perfect: float | Literal["best"] | None = "best",
        plateau: int | None = None,
        field: str = "output",
    ) -> None:
        super().__init__()
        if max_iterations < 0 or (plateau is not None and plateau < 1):
            raise ValueError(
                f"max_iterations={max_iterations}, plateau={plateau}: give at least 0, and at least 1 or None."
            )
        self.generate = generate
        self.feedback = feedback
        self.refine = refine
        self.max_iterations = max_iterations
        self.accept = accept
        self.perfect = feedback.high if isinstance(perfect, str) else perfect
        self.plateau = plateau
        self.field = field

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Run the loop on one item; what the generator does not take (a reference) goes to the feedback alone."""
        shown = {name: value for name, value in inputs.items() if name in self.inputs}
        steps = [self._step(0, inputs, lambda: self.generate(**shown), lambda _: True)]
        best, rejected, stopped = steps[0], 0, "iterations"
        for iteration in range(1, self.max_iterations + 1):
            if self.perfect is not None and best.score >= self.perfect:
                stopped = "perfect"
                break
            if self.plateau is not None and rejected >= self.plateau:
                stopped = "plateau"
                break
            step = self._step(iteration, inputs, partial(self._rewrite, shown, best), partial(self.accept, best.score))
            steps.append(step)
            best, rejected = (step, 0) if step.accepted else (best, rejected + 1)
        told = {self.field: best.output, "score": best.score, "steps": steps}
        return dspy.Prediction(**told, iterations=len(steps) - 1, stopped=stopped)

    @property
    def inputs(self) -> frozenset[str]:
        """What the generator takes: the input fields of its predictors that no other of them makes."""
        made: set[str] = set()
        taken: set[str] = set()
        for predictor in self.generate.predictors():
            taken |= set(predictor.signature.input_fields)
            made |= set(predictor.signature.output_fields)
        return frozenset(taken - made)

    def _rewrite(self, shown: Mapping[str, Any], best: Step) -> Any:
        return self.refine(**shown, draft=best.output, feedback=best.feedback)

    def _step(
        self,
        iteration: int,
        inputs: Mapping[str, Any],
        write: Callable[[], Any],
        accepts: Callable[[float], bool],
    ) -> Step:
        with _tokens() as spent:
            output = str(write()[self.field])
            found = self._heard(inputs, output)
        return Step(iteration, output, found.score, found.text, accepts(found.score), found.status, _total(spent))

    def _heard(self, inputs: Mapping[str, Any], output: str) -> Feedback:
        if not output.strip():
            return Feedback(float("nan"), "The output is empty.", status="empty output")
        return checked(self.feedback, self.feedback(inputs, output))


class BestOfK(dspy.Module):  # type: ignore[misc]
    """Writes k outputs and keeps the one that the feedback scores highest: self-reward (Xu et al. 2024, section 5.4).

    Args:
        generate: Any DSPy module that writes another output each time it is called.
        feedback: A source; the model's own judge for self-reward.
        k: How many.
        field: The output's field.

    A call gives the output's field, ``score`` and ``steps``; undefined scores never win, unless there is no other.
    """

    def __init__(self, generate: dspy.Module, feedback: FeedbackSource, *, k: int = 8, field: str = "output") -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"k={k}: write at least one output.")
        self.generate = generate
        self.feedback = feedback
        self.k = k
        self.field = field

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Write k outputs of one item."""
        loop = SelfRefine(
            self.generate,
            self.feedback,
            _Again(self.generate),
            max_iterations=self.k - 1,
            perfect=None,
            field=self.field,
        )
        return loop(**inputs)


class _Again(dspy.Module):  # type: ignore[misc]
    """A refiner that writes anew, whatever it is told."""

    def __init__(self, generate: dspy.Module) -> None:
        super().__init__()
        self.generate = generate

    def forward(self, draft: str, feedback: str, **inputs: Any) -> Any:
        """Write again."""
        return self.generate(**inputs)


@contextmanager
def _tokens() -> Iterator[UsageTracker]:
    """Count what is spent inside; an outer tracker of the user's hears of it too."""
    outer, inner = dspy.settings.usage_tracker, UsageTracker()
    with dspy.context(usage_tracker=inner):
        yield inner
    if outer is not None:
        for lm, entries in inner.usage_data.items():
            for entry in entries:
                outer.add_usage(lm, entry)


def _total(spent: UsageTracker) -> int:
    told = spent.get_total_tokens().values()
    return int(sum(usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0) for usage in told))
