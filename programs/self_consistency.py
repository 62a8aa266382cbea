"""The refine loop for mathematics: the majority vote of new paths replaces the solution until they agree."""

from __future__ import annotations

from typing import Any

import dspy

from evalbias.programs.feedback.consistency import ConsistencyFeedback
from evalbias.programs.feedback.source import required_field
from evalbias.programs.refine_step import Step, count_usage
from evalbias.programs.resample import sample
from evalbias.programs.settings import NumberSetting, Program
from evalbias.programs.vote import Vote, vote


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
    max_iterations = NumberSetting(0, 1000, whole=True)
    seed = NumberSetting(0, whole=True)

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
