"""Self-consistency: solve a problem along several paths and take the answer that most of them reach."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import dspy

from evalbias.measures.answers import boxed_answer, same_value
from evalbias.programs.resample import draws, sample


@dataclass(frozen=True)
class Vote:
    """The majority vote of several paths (Wang et al. 2023).

    Attributes:
        answer: Answer that most paths reach; None if no path came to an answer.
        solution: Text of the first path that reaches it; empty if none does.
        count: Number of paths that reach it.
        paths: Number of paths.
    """

    answer: str | None
    solution: str
    count: int
    paths: int

    def agrees(self, output: str) -> bool:
        """Return whether a solution's boxed answer is the answer of the vote, by value."""
        own = boxed_answer(output)
        return own is not None and self.answer is not None and same_value(own, self.answer)


def vote(solve: dspy.Module, source: str, *, paths: int, number: int = 0, seed: int = 0) -> Vote:
    """Draw solutions of a problem and vote on their boxed answers; on ties the answer that came first wins.

    Args:
        solve: Module from ``source`` to ``output`` that draws at a temperature above 0.
        source: The problem.
        paths: Number of solutions.
        number: Number of the vote, from 0. Each has draws of its own; draw 0 is left to the solution that is voted on.
        seed: Seed for the draws, for models that draw by a seed.

    Raises:
        ValueError: ``solve`` decodes greedily, so that all paths would be the same.
    """
    if paths > 1 and not draws(solve):
        raise ValueError(f"The {paths} paths would all be the same: draw them at a temperature above 0.")
    first = 1 + number * paths
    solutions = [str(sample(solve, first + k, seed, source=source).output) for k in range(paths)]
    answers = [boxed_answer(solution) for solution in solutions]
    winner = majority([answer for answer in answers if answer is not None])
    if winner is None:
        return Vote(None, "", 0, paths)
    reached = [s for s, answer in zip(solutions, answers, strict=True) if answer and same_value(answer, winner)]
    return Vote(winner, reached[0], len(reached), paths)


def majority(answers: list[str]) -> str | None:
    """Return the answer whose value occurs most often; the first one on ties, None without answers."""
    groups: list[tuple[str, int]] = []
    for answer, count in Counter(answers).items():
        for index, (known, total) in enumerate(groups):
            if same_value(known, answer):
                groups[index] = (known, total + count)
                break
        else:
            groups.append((answer, count))
    return max(groups, key=lambda pair: pair[1])[0] if groups else None
