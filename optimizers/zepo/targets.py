"""What is searched for: the judges whose instruction ZEPO can change, and their answers as rows of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import dspy
import numpy as np

from evalbias.lm.types import ChoiceLogprobs, FloatArray, MeasuringLM
from evalbias.measures.calibration import rotations
from evalbias.programs.context_errors import name_overlong_items
from evalbias.programs.criterion import Criterion
from evalbias.programs.pairwise import CONTENT_FREE, PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.prompt import comparison_labels

Judge = PairwiseJudge | PointwiseJudge


class Target(Protocol):
    """A judge under a wording.

    Attributes:
        criterion: What it judges.
        first: The wording that the search begins with.
        classes: Answers it chooses from.
        state: What else decides its answers, for logs.
    """

    criterion: Criterion
    first: str
    classes: int
    state: dict[str, Any]

    def instruction(self, wording: str) -> str:
        """The whole instruction of a wording."""
        ...

    def probabilities(self, wordings: Sequence[str], examples: Sequence[dspy.Example]) -> FloatArray:
        """(w, n, classes) shares of the answers under every wording; NaN where undefined.

        All is asked in one call, example by example, so that the wordings of one example share what they can.
        """
        ...

    def content_free(self) -> dspy.Example:
        """An input that holds nothing to judge."""
        ...


class PairwiseTarget:
    """A pairwise judge in the order given, its debiasing and calibration set aside.

    Raises:
        ValueError: The pairs have different numbers of candidates, or there are none.
    """

    def __init__(self, judge: PairwiseJudge, pairs: Sequence[dspy.Example], lm: MeasuringLM) -> None:
        sizes = {len(e.candidates) for e in pairs}
        if len(sizes) != 1:
            raise ValueError(f"{len(pairs)} pairs with {sorted(sizes)} candidates: give pairs of one size.")
        (self._size,) = sizes
        self._judge, self._lm = judge.deepcopy(), lm
        self._judge.debias = self._judge.calibration = None
        self.criterion = judge.criterion
        self.first: str = judge.predict.signature.instructions
        self.classes = self._size + int(judge.ties)
        self.state = judge.dump_state()

    def instruction(self, wording: str) -> str:
        """The wording itself: the prompt names the answers behind it."""
        return wording

    def probabilities(self, wordings: Sequence[str], examples: Sequence[dspy.Example]) -> FloatArray:
        """(w, n, classes) by position."""
        labels = comparison_labels(self._size, ties=self._judge.ties)
        logprobs = _logprobs(self._judge, wordings, examples, labels, self._lm)  # (w n, classes)
        found = self._judge.aggregate(logprobs[:, None], rotations(self._size, every=False), None)
        return np.asarray(found.positions.reshape(len(wordings), len(examples), self.classes))

    def content_free(self) -> dspy.Example:
        """As many candidates, all without content."""
        return self._judge.content_free(self._size)


class PointwiseTarget:
    """A pointwise judge that measures; the line that names its answers stays as it is.

    Raises:
        ValueError: The judge reads what the model writes, or there are no items.
    """

    def __init__(self, judge: PointwiseJudge, items: Sequence[dspy.Example], lm: MeasuringLM) -> None:
        if judge.scoring != "expected" or not items:
            raise ValueError(
                f"scoring={judge.scoring!r}, {len(items)} items: give items, and a judge that measures ('expected')."
            )
        self._judge, self._lm = judge.deepcopy(), lm
        self.criterion = judge.criterion
        self._format = "\n" + judge.criterion.answer_format
        given: str = judge.predict.signature.instructions
        self.first = given.removesuffix(self._format)
        self.classes = len(judge.criterion.labels)
        self.state = judge.dump_state()

    def instruction(self, wording: str) -> str:
        """The wording and the line that names the answers."""
        return wording + self._format

    def probabilities(self, wordings: Sequence[str], examples: Sequence[dspy.Example]) -> FloatArray:
        """(w, n, classes) by label, ascending."""
        labels, instructions = self.criterion.labels, [self.instruction(wording) for wording in wordings]
        logprobs = _logprobs(self._judge, instructions, examples, labels, self._lm)
        found = ChoiceLogprobs(labels, logprobs).probabilities
        return found.reshape(len(wordings), len(examples), self.classes)

    def content_free(self) -> dspy.Example:
        """An output without content."""
        return dspy.Example(source=CONTENT_FREE, output=CONTENT_FREE)


def target_of(judge: Any, examples: Sequence[dspy.Example], lm: MeasuringLM) -> Target:
    """The judge as a subject of the search.

    Raises:
        TypeError: It is neither a pairwise nor a pointwise judge.
    """
    if isinstance(judge, PairwiseJudge):
        return PairwiseTarget(judge, examples, lm)
    if isinstance(judge, PointwiseJudge):
        return PointwiseTarget(judge, examples, lm)
    raise TypeError(f"{type(judge).__name__} is no judge whose instruction can be searched.")


def _logprobs(
    judge: Judge,
    instructions: Sequence[str],
    examples: Sequence[dspy.Example],
    labels: tuple[str, ...],
    lm: MeasuringLM,
) -> FloatArray:
    """(w n, c) of the labels, instruction by instruction; asked example by example."""
    judges = [judge.deepcopy() for _ in instructions]
    for one, instruction in zip(judges, instructions, strict=True):
        instruct(one, instruction)
    prompts = [one.messages(example) for example in examples for one in judges]
    asked = [example for example in examples for _ in judges]
    found = name_overlong_items(lambda some: lm.choice_logprobs(some, labels), prompts, asked).logprobs
    by_example = found.reshape(len(examples), len(judges), len(labels))
    return np.asarray(by_example.swapaxes(0, 1).reshape(-1, len(labels)))


def instruct(judge: Judge, instruction: str) -> None:
    """Give the judge another instruction; what was calibrated under the old one is gone."""
    if isinstance(judge, PairwiseJudge):
        judge.offsets = {}
    judge.predict.signature = judge.predict.signature.with_instructions(instruction)
