"""Judges whose instruction ZEPO can change, and their answers as rows of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import dspy
import numpy as np

from evalbias.data.pairing import input_key
from evalbias.evaluation.judged import LENGTHS, Judged
from evalbias.lm.contract import measuring
from evalbias.lm.types import ChoiceLogprobs, MeasuringLM
from evalbias.measures.arrays import FloatArray
from evalbias.measures.calibration import rotations
from evalbias.optimizers.inside import state_without_model
from evalbias.optimizers.zepo.objectives import DISTRIBUTIONS
from evalbias.programs.criterion import Criterion
from evalbias.programs.pairwise import CONTENT_FREE, PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.prompt import comparison_labels
from evalbias.programs.refused import answer_choices

Judge = PairwiseJudge | PointwiseJudge


class Target(Protocol):
    """A judge whose instruction is searched.

    Attributes:
        criterion: Criterion that it judges.
        first: Instruction that the search begins with.
        classes: Number of answers that it chooses from.
        state: Whatever else decides its answers, for logs.
    """

    criterion: Criterion
    first: str
    classes: int
    state: dict[str, Any]

    def instruction(self, wording: str) -> str:
        """Return the whole instruction of a wording."""
        ...

    def probabilities(self, wordings: Sequence[str], examples: Sequence[dspy.Example]) -> FloatArray:
        """Return (w, n, classes) probabilities of the answers under every wording; NaN where undefined.

        All wordings are asked in one call, example by example, so that the wordings of one example share a prefix.
        """
        ...

    def judged(self, answers: FloatArray, examples: Sequence[dspy.Example], content_free: FloatArray) -> Judged:
        """Return (n, classes) answers to examples with the examples' covariates."""
        ...

    def content_free(self) -> dspy.Example:
        """Return an input that holds nothing to judge."""
        ...


class PairwiseTarget:
    """A pairwise judge in the given order, without its debiasing and calibration.

    Raises:
        ValueError: There are no pairs, or they have different numbers of candidates.
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
        self.state = state_without_model(judge)

    def instruction(self, wording: str) -> str:
        """Return the wording itself: the prompt names the answers after it."""
        return wording

    def probabilities(self, wordings: Sequence[str], examples: Sequence[dspy.Example]) -> FloatArray:
        """Return (w, n, classes) probabilities by position; see ``Target``."""
        labels = comparison_labels(self._size, ties=self._judge.ties)
        logprobs = _logprobs(self._judge, wordings, examples, labels, self._lm)  # (w n, classes)
        combined = self._judge.aggregate(logprobs[:, None], rotations(self._size, every=False), None)
        return np.asarray(combined.positions.reshape(len(wordings), len(examples), self.classes))

    def judged(self, answers: FloatArray, examples: Sequence[dspy.Example], content_free: FloatArray) -> Judged:
        """See ``Target``."""
        return judged_in_order(self._judge, answers, examples, content_free)

    def content_free(self) -> dspy.Example:
        """Return as many candidates, all without content."""
        return self._judge.content_free(self._size)


class PointwiseTarget:
    """A pointwise judge with probabilities; a wording is followed by the line that names its answers.

    The judge's own instruction stays as it is, also where it ends without that line.

    Raises:
        ValueError: The judge reads what the model writes, or there are no items.
    """

    def __init__(self, judge: PointwiseJudge, items: Sequence[dspy.Example], lm: MeasuringLM) -> None:
        if judge.scoring == "direct" or not items:
            raise ValueError(
                f"scoring={judge.scoring!r}, {len(items)} items: give items, and a judge with probabilities "
                "('expected' or 'sampled')."
            )
        self._judge, self._lm = judge.deepcopy(), lm
        self.criterion = judge.criterion
        self._format = "\n" + judge.criterion.answer_format
        self._given: str = judge.predict.signature.instructions
        self.first = self._given.removesuffix(self._format)
        self.classes = len(judge.criterion.labels)
        self.state = state_without_model(judge)

    def instruction(self, wording: str) -> str:
        """Return the wording and the line that names the answers; of the judge's own, what the judge is told."""
        return self._given if wording == self.first else wording + self._format

    def probabilities(self, wordings: Sequence[str], examples: Sequence[dspy.Example]) -> FloatArray:
        """Return (w, n, classes) probabilities by label, ascending; see ``Target``."""
        labels, instructions = self.criterion.labels, [self.instruction(wording) for wording in wordings]
        logprobs = _logprobs(self._judge, instructions, examples, labels, self._lm)
        shares = ChoiceLogprobs(labels, logprobs).probabilities
        return shares.reshape(len(wordings), len(examples), self.classes)

    def judged(self, answers: FloatArray, examples: Sequence[dspy.Example], content_free: FloatArray) -> Judged:
        """See ``Target``."""
        lengths = np.array([len(e.output) for e in examples], dtype=np.float64)
        return Judged(
            ids=tuple(str(e.get("id", i)) for i, e in enumerate(examples)),
            criterion=self.criterion.name,
            answers=answers @ np.array(self.criterion.values, dtype=np.float64),
            covariates={DISTRIBUTIONS: answers, LENGTHS: lengths},
            inputs=[input_key(e) for e in examples],
            content_free=content_free if len(content_free) else None,
            judgments=len(examples),
        )

    def content_free(self) -> dspy.Example:
        """Return an output without content."""
        return dspy.Example(source=CONTENT_FREE, output=CONTENT_FREE)


def target_of(judge: Judge, examples: Sequence[dspy.Example], lm: MeasuringLM) -> Target:
    """Return a judge as a target of the search."""
    return (PairwiseTarget if isinstance(judge, PairwiseJudge) else PointwiseTarget)(judge, examples, lm)


def judged_in_order(
    judge: PairwiseJudge, answers: FloatArray, pairs: Sequence[dspy.Example], content_free: FloatArray
) -> Judged:
    """Return (n, c) probabilities by position, asked in the given order only, with the pairs' covariates."""
    return Judged(
        ids=tuple(str(e.get("id", i)) for i, e in enumerate(pairs)),
        criterion=judge.criterion.name,
        answers=answers[:, None],
        covariates={LENGTHS: np.array([[len(text) for text in e.candidates] for e in pairs], dtype=np.float64)},
        inputs=[input_key(e) for e in pairs],
        ties=judge.ties,
        content_free=content_free if len(content_free) else None,
        judgments=len(pairs),
    )


def _logprobs(
    judge: Judge,
    instructions: Sequence[str],
    examples: Sequence[dspy.Example],
    labels: tuple[str, ...],
    lm: MeasuringLM,
) -> FloatArray:
    """Return (w n, c) log-probabilities of the labels, instruction by instruction; asked example by example.

    NaN for an example that the model cannot take, for example because it is too long.
    """
    judges = [judge.deepcopy() for _ in instructions]
    for one, instruction in zip(judges, instructions, strict=True):
        instruct(one, instruction)
    prompts = [one.messages(example) for example in examples for one in judges]
    items = [example for example in examples for _ in judges]
    model = measuring(lm, judge.sampling)
    logprobs = answer_choices(model, prompts, labels, items).logprobs
    by_example = logprobs.reshape(len(examples), len(judges), len(labels))
    return np.asarray(by_example.swapaxes(0, 1).reshape(-1, len(labels)))


def instruct(judge: Judge, instruction: str) -> None:
    """Change a judge's instruction. What was fitted under the old one is discarded."""
    if isinstance(judge, PairwiseJudge):
        judge.corrections = {}
    else:
        judge.likelihood_calibration = None
    judge.predict.signature = judge.predict.signature.with_instructions(instruction)
