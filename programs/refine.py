"""Refine loops as DSPy programs: write, get feedback, rewrite, keep improvements."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import dspy

from evalbias.programs.feedback.source import FeedbackSource, checked_source
from evalbias.programs.refine_step import ItemFeedback, input_names, shown_inputs, take_step
from evalbias.programs.resample import draws, sample
from evalbias.programs.settings import NumberSetting, Program, Setting

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
    """The acceptance rule of a loop. A rule other than ``Improvement`` is code and is not saved."""

    def dump(self, value: Accept) -> Any:
        """Return the margin of an ``Improvement``, None for any other rule."""
        return value.margin if isinstance(value, Improvement) else None

    def load(self, saved: Any, current: Accept) -> Accept:
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


class PerfectSetting(NumberSetting):
    """The score at which a loop stops: a number, ``"best"`` for the best of its source, or None."""

    def checked(self, value: Any) -> Any:
        """Return the score if it is one of these."""
        return value if value == "best" else super().checked(value)

    def _wanted(self) -> str:
        return "'best', a number"


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
    max_iterations = NumberSetting(0, 1000, whole=True)
    accept = AcceptSetting()
    perfect = PerfectSetting(optional=True)
    plateau = NumberSetting(1, whole=True, optional=True)
    seed = NumberSetting(0, whole=True)
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
