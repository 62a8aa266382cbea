"""The refine loop: write, listen to feedback, rewrite; a rewriting counts only where the feedback is better for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import dspy

from evalbias.programs.feedback.source import FeedbackSource
from evalbias.programs.refine_step import take_step
from evalbias.programs.resample import sample

Accept = Callable[[float, float], bool]
"""(score so far, new score) -> whether the new output takes over."""

SETTINGS = ("max_iterations", "perfect", "plateau", "field")
STATE_KEY = "evalbias_refine"


@dataclass(frozen=True)
class Improvement:
    """Accepts what is better by more than a margin; the paper's is 0: better, not equal.

    An undefined score never takes over, a defined one does over an undefined.

    Attributes:
        margin: In points of the feedback's score, at least 0.
    """

    margin: float = 0.0

    def __post_init__(self) -> None:
        if not self.margin >= 0:
            raise ValueError(f"margin={self.margin}: give at least 0, or worse outputs would take over.")

    def __call__(self, before: float, after: float) -> bool:
        """Whether an output of the score ``after`` takes over."""
        return after == after and (before != before or after - before > self.margin)


STRICT = Improvement()


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

    A call gives the output's field, ``score``, ``steps`` (a list of ``Step``), ``iterations`` and ``stopped``, which is
    ``"perfect"``, ``"plateau"`` or ``"iterations"``.
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
        self.perfect = perfect
        self.plateau = plateau
        self.field = field

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Run the loop on one item; what the generator does not take (a reference) goes to the feedback alone."""
        taken = self.inputs
        shown = {name: value for name, value in inputs.items() if name in taken}
        write = partial(self._written, self.generate, 0, **shown)
        steps = [take_step(0, write, self.feedback, inputs, lambda _: True)]
        best, rejected, stopped = steps[0], 0, "iterations"
        enough = self.feedback.high if isinstance(self.perfect, str) else self.perfect
        for iteration in range(1, self.max_iterations + 1):
            if enough is not None and best.score >= enough:
                stopped = "perfect"
                break
            if self.plateau is not None and rejected >= self.plateau:
                stopped = "plateau"
                break
            write = partial(self._written, self.refine, iteration, **shown, draft=best.output, feedback=best.feedback)
            step = take_step(iteration, write, self.feedback, inputs, partial(self.accept, best.score))
            steps.append(step)
            best, rejected = (step, 0) if step.accepted else (best, rejected + 1)
        told = {self.field: best.output, "score": best.score, "steps": steps}
        return dspy.Prediction(**told, iterations=len(steps) - 1, stopped=stopped)

    @property
    def inputs(self) -> frozenset[str]:
        """What the generator takes.

        The parameters of its ``forward`` by name; where that takes anything, the input fields of its predictors that no
        other of them makes.
        """
        _, *parameters = inspect.signature(type(self.generate).forward).parameters.values()
        if not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
            return frozenset(p.name for p in parameters)
        made: set[str] = set()
        taken: set[str] = set()
        for predictor in self.generate.predictors():
            taken |= set(predictor.signature.input_fields)
            made |= set(predictor.signature.output_fields)
        return frozenset(taken - made)

    def _written(self, module: dspy.Module, number: int, **inputs: Any) -> str:
        return str(sample(module, number, **inputs)[self.field])

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """The predictors' state and when the loop stops; no model and no key.

        An ``accept`` of one's own is code and is not saved: the program that loads the state keeps its own.
        """
        state: dict[str, Any] = super().dump_state(json_mode)
        own = {name: getattr(self, name) for name in SETTINGS}
        if isinstance(self.accept, Improvement):
            own["margin"] = self.accept.margin
        return {**state, STATE_KEY: {**own, "fields": self._fields()}}

    def load_state(self, state: dict[str, Any], **kwargs: Any) -> None:
        """Take over a saved loop of the same shape.

        Raises:
            ValueError: The state is of no refine loop, or of one with other fields.
        """
        if STATE_KEY not in state:
            raise ValueError(
                f"This is the state of no refine loop ({STATE_KEY!r} is missing): save one with loop.save(path)."
            )
        own = dict(state[STATE_KEY])
        if own["fields"] != self._fields():
            raise ValueError(
                f"This is the state of another loop, with the fields {own['fields']}, not {self._fields()}."
            )
        if "margin" in own:
            self.accept = Improvement(own.pop("margin"))
        for name in SETTINGS:
            setattr(self, name, own[name])
        super().load_state({k: v for k, v in state.items() if k != STATE_KEY}, **kwargs)

    def _fields(self) -> dict[str, list[str]]:
        return {name: list(predictor.signature.fields) for name, predictor in self.named_predictors()}


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
            WriteAgain(self.generate),
            max_iterations=self.k - 1,
            perfect=None,
            field=self.field,
        )
        return loop(**inputs)


class WriteAgain(dspy.Module):  # type: ignore[misc]
    """A refiner that writes anew, whatever it is told."""

    def __init__(self, generate: dspy.Module) -> None:
        super().__init__()
        self.generate = generate

    def forward(self, draft: str, feedback: str, **inputs: Any) -> Any:
        """Write again."""
        return self.generate(**inputs)
