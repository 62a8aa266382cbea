"""What compiling a refine loop found."""

from __future__ import annotations

from dataclasses import dataclass

from evalbias.measures import Iteration, PermutationTest, SelfBias


@dataclass(frozen=True)
class LoopRecord:
    """One loop over the training items.

    Attributes:
        feedback: Its source.
        margin: By how much a refinement had to be better, as a share of its range; NaN for a rule of one's own.
        own: (t + 1,) mean own score after every number of refinements.
        worth: (t + 1,) mean of what the outputs are worth.
        tokens: (t + 1,) mean tokens spent on an item.
        calls: (t + 1,) mean requests to models for an item.
        bias: Bias and Dskew of each, own scores and worth both put on [0, 1].
        bias_rises: The first number of refinements whose Bias lies above the first output's, p < .05 over all rounds by
            paired permutation tests; None where it never does.
        failed: Item -> what went wrong.
    """

    feedback: str
    margin: float
    own: tuple[float, ...]
    worth: tuple[float, ...]
    tokens: tuple[float, ...]
    calls: tuple[float, ...]
    bias: tuple[Iteration, ...]
    bias_rises: int | None
    failed: dict[str, str]


@dataclass(frozen=True)
class LoopEnd:
    """Where a loop ends on the validation items.

    Attributes:
        worth: Mean of what the final outputs are worth, over the items where both loops' are defined.
        bias: Self-bias of the final outputs, on shares of the ranges.
        tokens: Mean spent on an item.
        calls: Mean requests to models for an item.
        failed: Item -> what went wrong.
    """

    worth: float
    bias: SelfBias
    tokens: float
    calls: float
    failed: dict[str, str]


@dataclass(frozen=True)
class Validation:
    """The student's loop and the compiled one on items that neither was made from.

    Attributes:
        before: The student's.
        after: The compiled one.
        test: Paired permutation test of the worth, after against before.
    """

    before: LoopEnd
    after: LoopEnd
    test: PermutationTest


@dataclass(frozen=True)
class RefineReport:
    """What compiling found.

    Attributes:
        own: The loops under the student's own feedback, one a margin.
        external: The loop under external feedback; its Bias is 0 where that feedback is itself the worth.
        shown: The loop under its own feedback with demonstrations, over the other items; None without any.
        iterations: Refinements that the compiled loop makes at most.
        margin: By how much each must be better, as a share of the range of its own feedback.
        demonstrations: Items whose accepted refinement became a demonstration; empty where they did not help.
        items: Training items that were run.
        calls: Requests to models for them.
        validation: None without validation items.
    """

    own: tuple[LoopRecord, ...]
    external: LoopRecord
    shown: LoopRecord | None
    iterations: int
    margin: float
    demonstrations: tuple[str, ...]
    items: int
    calls: int
    validation: Validation | None
