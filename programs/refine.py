"""Refine loops as DSPy programs: write, get feedback, rewrite, keep improvements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import dspy

from evalbias.programs.feedback.source import FeedbackSource
from evalbias.programs.refine_step import ItemFeedback, input_names, shown_inputs, take_step
from evalbias.programs.resample import draws, sample

Accept = Callable[[float, float], bool]
"""Acceptance rule: (score so far, new score) -> True if the new output replaces the current one."""

SETTINGS = ("max_iterations", "perfect", "plateau", "field")
STATE_KEY = "evalbias_refine"


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
        return after == after and (before != before or after - before > self.margin)


STRICT = Improvement()


class SelfRefine(dspy.Module):  # type: ignore[misc]
    """Wraps a generator in a loop of feedback and refinement (Madaan et al. 2023; Xu et al. 2024).

    Args:
        generate: DSPy module from the inputs to a prediction with the output field.
        feedback: Feedback source; it receives the inputs and all other fields of the example, such as a reference.
        refine: DSPy module from the inputs, ``draft`` (current output) and ``feedback`` (its text) to the same field.
        max_iterations: Largest number of refinements; the paper's is 10, and 0 generates only.
        accept: Rule that decides whether a refinement replaces the current output.
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
        ValueError: ``max_iterations`` or ``plateau`` is outside its range.
    """

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
        super().__init__()
        if max_iterations < 0 or (plateau is not None and plateau < 1):
            raise ValueError(
                f"max_iterations={max_iterations}, plateau={plateau}: give max_iterations >= 0, plateau >= 1 or None."
            )
        self.generate = generate
        self.feedback = feedback
        self.refine = refine
        self.max_iterations = max_iterations
        self.accept = accept
        self.perfect = perfect
        self.plateau = plateau
        self.seed = seed
        self.field = field

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Run the loop on one item; fields that the generator does not take (a reference) go to the feedback only."""
        shown, source = shown_inputs(self.generate, inputs), ItemFeedback(self.feedback, self.seed)
        write = partial(self._write, self.generate, 0, **shown)
        steps = [take_step(0, write, source, inputs, lambda _: True)]
        best, rejected, stopped = steps[0], 0, "iterations"
        perfect = self.feedback.high if isinstance(self.perfect, str) else self.perfect
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

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Return the predictors' state and the options; models and API keys are left out.

        A custom ``accept`` is code and is not saved; the program that loads the state keeps its own rule.
        """
        state: dict[str, Any] = super().dump_state(json_mode)
        own = {name: getattr(self, name) for name in SETTINGS}
        if isinstance(self.accept, Improvement):
            own["margin"] = self.accept.margin
        return {**state, STATE_KEY: {**own, "fields": self._fields()}}

    def load_state(self, state: dict[str, Any], **kwargs: Any) -> None:
        """Replace options and predictor states by those of a saved loop with the same fields.

        Raises:
            ValueError: The state is not a refine loop's, or the loop has other fields.
        """
        if STATE_KEY not in state:
            raise ValueError(
                f"The state is not a refine loop's: {STATE_KEY!r} is missing. Save a loop with loop.save(path)."
            )
        own = dict(state[STATE_KEY])
        if own["fields"] != self._fields():
            raise ValueError(
                f"The state is another loop's: its fields are {own['fields']}, not {self._fields()}. Load it into a "
                "loop with the same signatures."
            )
        if "margin" in own:
            self.accept = Improvement(own.pop("margin"))
        for name in SETTINGS:
            setattr(self, name, own[name])
        super().load_state({k: v for k, v in state.items() if k != STATE_KEY}, **kwargs)

    def _fields(self) -> dict[str, list[str]]:
        return {name: list(predictor.signature.fields) for name, predictor in self.named_predictors()}
