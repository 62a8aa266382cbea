"""Feedback for mathematics: agreement with the majority of sampled solutions, or with the correct answer."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import dspy

from evalbias.measures.answers import boxed_answer, same_value
from evalbias.programs.feedback.source import Feedback, required_field
from evalbias.programs.settings import NumberSetting, Program
from evalbias.programs.vote import Vote, vote


class ConsistencyFeedback(Program):
    """Self-consistency: score 1 if the boxed answer is that of most sampled solutions, else 0.

    The refiner is shown the majority's answer (Xu et al. 2024, section 4.3).

    Args:
        solve: Module from ``source`` to ``output``; it is sampled ``paths`` times at its own temperature.
        paths: Number of sampled solutions; the paper's is 10.
        seed: Seed for the samples, for models that draw by a seed.

    Attributes:
        name: Name in reports.
        low: Worst score, 0.
        high: Best score, 1.

    Raises:
        ValueError: ``paths`` is below 1.
    """

    name = "majority of its own paths"
    low, high = 0.0, 1.0
    kind = "self-consistency feedback"
    paths = NumberSetting(1, 1000, whole=True)
    seed = NumberSetting(0, whole=True)

    def __init__(self, solve: dspy.Module, *, paths: int = 10, seed: int = 0) -> None:
        super().__init__(paths=paths, seed=seed)
        self.solve = solve

    def forward(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Compare a solution with the majority of sampled solutions of the example's ``source``."""
        source = str(required_field(self.name, example, "source"))
        seed = self.seed + zlib.crc32(output.encode())  # every output is compared with samples of its own
        return self.read(vote(self.solve, source, paths=self.paths, seed=seed), output)

    def read(self, ballot: Vote, output: str) -> Feedback:
        """Return what a vote says about a solution; undefined (NaN) if no path came to an answer."""
        if ballot.answer is None:
            return Feedback(float("nan"), "no path came to an answer", status="unreadable")
        return Feedback(float(ballot.agrees(output)), f"most paths end in \\boxed{{{ballot.answer}}}")


class ExactAnswer:
    """External oracle: score 1 if the boxed answer equals the example's ``answer`` in value, else 0.

    Attributes:
        name: Name in reports.
        low: Worst score, 0.
        high: Best score, 1.
    """

    name = "the right answer"
    low, high = 0.0, 1.0

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Check a solution; the text says only that the answer is right or wrong."""
        answer, own = str(required_field(self.name, example, "answer")), boxed_answer(output)
        right = own is not None and same_value(own, answer)
        return Feedback(float(right), "the answer is right" if right else "the answer is wrong")
