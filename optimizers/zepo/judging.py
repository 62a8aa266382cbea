"""Judge the wordings of a search on its examples, and count the judgments against the budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import dspy
import numpy as np

from evalbias.measures.arrays import FloatArray
from evalbias.optimizers.zepo.candidate import Candidate
from evalbias.optimizers.zepo.objectives import Objective
from evalbias.optimizers.zepo.targets import Target


class Judging:
    """Judges candidates on a search's examples.

    Args:
        target: The judge, with the instruction to fill in.
        objective: Objective to compute from the answers.
        examples: Examples in the order in which they are judged.
        budget: Largest number of judgments; None sets no limit.
        progress: Called with the number of judgments done.

    Attributes:
        judgments: Number of judgments so far.
    """

    def __init__(
        self,
        target: Target,
        objective: Objective,
        examples: Sequence[dspy.Example],
        *,
        budget: int | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.target, self.objective, self.examples = target, objective, examples
        self.budget, self.progress = budget, progress
        self.judgments = 0

    def cost(self, wordings: int) -> int:
        """Return the number of judgments that so many wordings take at most."""
        return wordings * (len(self.examples) + int(self.objective.content_free))

    def affordable(self, wordings: int) -> bool:
        """Return whether the budget covers so many more wordings."""
        return self.budget is None or self.judgments + self.cost(wordings) <= self.budget

    def test(self, candidates: Sequence[Candidate], upto: int) -> None:
        """Judge the examples up to ``upto`` that the candidates, which all had equally many, have not answered yet."""
        part = self.examples[len(candidates[0].answers) : upto]
        for candidate, rows in zip(candidates, self._probabilities(candidates, part), strict=True):
            candidate.answers = np.concatenate([candidate.answers, rows])
        if self.objective.content_free and not len(candidates[0].content_free):
            free = self._probabilities(candidates, [self.target.content_free()])
            for candidate, rows in zip(candidates, free, strict=True):
                candidate.content_free = rows
        for candidate in candidates:
            examples = self.examples[:upto]
            candidate.judged = self.target.judged(candidate.answers, examples, candidate.content_free)
            candidate.objective = self.objective(candidate.judged)

    def _probabilities(self, candidates: Sequence[Candidate], examples: Sequence[dspy.Example]) -> FloatArray:
        probabilities = self.target.probabilities([candidate.instruction for candidate in candidates], examples)
        self.judgments += len(candidates) * len(examples)
        if self.progress is not None:
            self.progress(len(candidates) * len(examples))
        return probabilities
