"""Self-consistency for mathematics: the answer is worth what most of several paths say."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import dspy

from evalbias.measures.answers import boxed_answer, same_value
from evalbias.programs.feedback.source import Feedback, required_field
from evalbias.programs.resample import sample


class ConsistencyFeedback(dspy.Module):  # type: ignore[misc]
    """1 where the output's boxed answer is the one most paths end in, else 0 (Xu et al. 2024, section 4.3).

    Args:
        solve: A module that takes ``source`` and gives ``output``; it is asked ``paths`` times at its temperature.
        paths: How many; the paper's is 10.

    The refiner is told the answer of the majority, which takes the place of its own.

    Attributes:
        name: For reports.
        low: 0.
        high: 1.
    """

    name = "majority of its own paths"
    low, high = 0.0, 1.0

    def __init__(self, solve: dspy.Module, *, paths: int = 10) -> None:
        super().__init__()
        if paths < 1:
            raise ValueError(f"paths={paths}: draw at least one.")
        self.solve = solve
        self.paths = paths

    def forward(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Feedback on a solution of the example's ``source``."""
        source = required_field(self.name, example, "source")
        first = 1 + zlib.crc32(output.encode()) * self.paths  # another output is held against paths of its own
        paths = [sample(self.solve, first + k, source=source).output for k in range(self.paths)]
        answers = map(boxed_answer, paths)
        winner = majority([answer for answer in answers if answer is not None])
        own = boxed_answer(output)
        if winner is None:
            return Feedback(float("nan"), "no path came to an answer", status="unreadable")
        return Feedback(float(own is not None and same_value(own, winner)), f"most paths end in \\boxed{{{winner}}}")


class ExactAnswer:
    """The external oracle: 1 where the boxed answer has the value of the example's ``answer``.

    Attributes:
        name: For reports.
        low: 0.
        high: 1.
    """

    name = "the right answer"
    low, high = 0.0, 1.0

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Feedback on a solution; the refiner is told whether it is right, not what would be."""
        answer, own = str(required_field(self.name, example, "answer")), boxed_answer(output)
        right = own is not None and same_value(own, answer)
        return Feedback(float(right), "the answer is right" if right else "the answer is wrong")


def majority(answers: list[str]) -> str | None:
    """The answer whose value occurs most often, the first of equals; None without any."""
    groups: list[tuple[str, int]] = []
    for answer, count in Counter(answers).items():
        for index, (known, total) in enumerate(groups):
            if same_value(known, answer):
                groups[index] = (known, total + count)
                break
        else:
            groups.append((answer, count))
    return max(groups, key=lambda pair: pair[1])[0] if groups else None
