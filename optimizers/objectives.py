"""What a search optimizes, and how its candidates are answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import dspy
import numpy as np
from numpy.typing import ArrayLike

from evalbias.data.pairing import input_key
from evalbias.evaluation.estimates import Bias, Estimate, estimate_value
from evalbias.evaluation.judged import LENGTHS, Judged
from evalbias.lm.cache import measuring
from evalbias.lm.types import ChoiceLogprobs, MeasuringLM
from evalbias.measures import calibration_gap, confidence, fairness, score_uniformity
from evalbias.measures.arrays import SLACK, BoolArray, FloatArray
from evalbias.measures.families import holm
from evalbias.measures.pairs import FairnessStatistic, decision_shares, negative_entropies
from evalbias.measures.position_calibration import rotations
from evalbias.measures.resample import MeanStatistic, Statistic, aligned, cluster_codes, defined_items
from evalbias.optimizers.base import state_without_model
from evalbias.optimizers.selection import LEVEL
from evalbias.programs.criterion import Criterion
from evalbias.programs.judges import PointwiseJudge, answer_choices
from evalbias.programs.pairwise import CONTENT_FREE, PairwiseJudge
from evalbias.programs.prompts import comparison_labels

# Mixtures of two judges' answers to the same examples.


def mixed(first: Judged, second: Judged, swap: BoolArray) -> Judged:
    """Return the first judge's answers, with the second's on the swapped items."""

    def pick(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(swap.reshape(-1, *(1,) * (a.ndim - 1)), b, a)

    return _combined(first, second, pick)


def stacked(first: Judged, second: Judged) -> Judged:
    """Return the first judge's answers and then the second's, as answers to twice as many items."""
    both = _combined(first, second, lambda a, b: np.concatenate([a, b]))
    return replace(both, ids=(*first.ids, *second.ids), inputs=[*first.inputs, *second.inputs])


def _combined(first: Judged, second: Judged, combine: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Judged:
    return replace(
        first,
        answers=combine(first.answers, second.answers),
        covariates={name: combine(column, second.covariates[name]) for name, column in first.covariates.items()},
    )


# Objectives of an instruction search, without labels. Higher is better for every one.


DISTRIBUTIONS = "distributions"
"""Covariate of a pointwise judge's answers: (n, c) probabilities of the labels, ascending."""


class Objective(Protocol):
    """A number for the answers under one instruction: higher is better, NaN if undefined, and then never accepted.

    An objective may also have a method ``resampled(judged, counts)``, which returns its value in each of k resamples,
    (k,), given how often each holds each item, (k, n). Racing is then faster.

    Attributes:
        name: Name in reports.
        content_free: Whether it needs the answer to a content-free input.
    """

    name: str
    content_free: bool

    def __call__(self, judged: Judged) -> float:
        """Return the objective of the answers."""
        ...


class Fairness:
    """Minus the distance of the decision rates from a prior, in [-2, 0] (the paper's objective).

    Args:
        prior: (c,) rate at which each class should win. Defaults to the uniform distribution over the positions.
        by_document: Average the decision rates over the documents, as the published code does, instead of all pairs.
    """

    content_free = False

    def __init__(self, prior: ArrayLike | None = None, *, by_document: bool = False) -> None:
        self.prior = prior
        self.by_document = by_document
        self.name = "fairness by document" if by_document else "fairness"

    def __call__(self, judged: Judged) -> float:
        """See ``Objective``."""
        groups = judged.inputs if self.by_document else None
        return fairness(_probabilities(judged), prior=self.prior, groups=groups, ties=judged.ties)

    def resampled(self, judged: Judged, counts: FloatArray) -> FloatArray:
        """See ``Objective``."""
        if self.by_document:
            return one_by_one(self, judged, counts)
        statistic = FairnessStatistic(self.prior, ties=judged.ties)
        return _resampled(statistic, decision_shares(_probabilities(judged)), counts)


class Confidence:
    """Mean negative entropy of the answers, in [-log c, 0]."""

    name = "confidence"
    content_free = False

    def __call__(self, judged: Judged) -> float:
        """See ``Objective``."""
        return confidence(_probabilities(judged))

    def resampled(self, judged: Judged, counts: FloatArray) -> FloatArray:
        """See ``Objective``."""
        return _resampled(MeanStatistic(), negative_entropies(_probabilities(judged)), counts)


class ContextFreeConfidence:
    """Entropy of the answer to a content-free input, in [0, log c]: unsure where there is nothing to judge."""

    name = "context-free confidence"
    content_free = True

    def __call__(self, judged: Judged) -> float:
        """See ``Objective``.

        Raises:
            ValueError: The content-free input was not asked.
        """
        if judged.content_free is None:
            raise ValueError("The context-free confidence needs the answer to a content-free input.")
        return -confidence(judged.content_free)


class CalibrationGap:
    """Minus the gap between the positions' mean log-probabilities, at most 0."""

    name = "calibration"
    content_free = False

    def __call__(self, judged: Judged) -> float:
        """See ``Objective``; an answer that is certain has no finite gap and is left out."""
        with np.errstate(divide="ignore"):
            logprobs = np.log(_probabilities(judged))
        logprobs[np.isinf(logprobs).any(axis=1)] = np.nan
        return -calibration_gap(logprobs)


class ScoreUniformity:
    """Evenness with which a pointwise judge's expected scores fill its scale, in [-.5, 0]: ours, not the paper's."""

    name = "score uniformity"
    content_free = False

    def __call__(self, judged: Judged) -> float:
        """See ``Objective`` and ``evalbias.measures.score_uniformity``."""
        distributions = judged.covariate(DISTRIBUTIONS)
        levels = np.linspace(0.0, 1.0, distributions.shape[1])
        return score_uniformity(np.clip(distributions @ levels, 0.0, 1.0), low=0.0, high=1.0)


class BiasObjective:
    """Minus the distance of a registered bias from the value of an unbiased judge.

    Args:
        bias: A bias of ``evalbias.evaluation.BIASES`` with an objective, such as ``BIASES["verbosity"]``.

    Raises:
        ValueError: The bias has no objective.
    """

    content_free = False

    def __init__(self, bias: Bias) -> None:
        if bias.objective is None:
            raise ValueError(f"The bias {bias.name!r} has no objective: choose another.")
        self.bias = bias
        self.name = bias.name

    def __call__(self, judged: Judged) -> float:
        """See ``Objective``."""
        sample = self.bias.samples(judged)[str(self.bias.objective)]
        return -abs(estimate_value(sample) - float(sample.null or 0.0))

    def resampled(self, judged: Judged, counts: FloatArray) -> FloatArray:
        """See ``Objective``."""
        sample = self.bias.samples(judged)[str(self.bias.objective)]
        return -np.abs(_resampled(sample.statistic, sample.values, counts) - float(sample.null or 0.0))


def one_by_one(objective: Objective, judged: Judged, counts: FloatArray) -> FloatArray:
    """Return any objective's values in resamples, (k,), one resample after the other; see ``Objective``."""
    items = np.arange(counts.shape[1])
    return np.array([objective(judged.take(np.repeat(items, row))) for row in counts.astype(np.int64)])


def _resampled(statistic: Statistic, values: FloatArray, counts: FloatArray) -> FloatArray:
    """Return a statistic's values in resamples, (k,), over the items that define it; NaN without any."""
    kept = defined_items(*aligned(values, *statistic.references))
    found = np.full(len(counts), np.nan)
    some = counts[:, kept].any(axis=1)
    if some.any():
        found[some] = statistic.keep(kept).resampled(values[kept], counts[np.ix_(some, kept)])
    return found


def _probabilities(judged: Judged) -> FloatArray:
    """Return (n, c) probabilities in the order given."""
    return judged.answers[:, 0] if judged.pairwise else judged.covariate(DISTRIBUTIONS)


# Judges whose instruction ZEPO can change, and their answers as rows of probabilities.


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


# The choice between an instruction that was found and the given one, on held-back examples.


N_RESAMPLES = 2_000
"""Swaps of the permutation test, and resamples of the interval."""


class ObjectiveRule:
    """A judge is better if its objective is higher (``Rule``).

    The test swaps both judges' answers input by input, which is right whatever the objective: under the null hypothesis
    it does not matter which of them answered.

    Args:
        objective: Objective; one that asks a content-free input says nothing about examples and is refused.
        examples: Held-back examples.
        lm: Model to ask.
        seed: Seed for swaps and resamples.

    Raises:
        ValueError: The objective asks a content-free input.
    """

    level = LEVEL

    def __init__(self, objective: Objective, examples: Sequence[dspy.Example], lm: MeasuringLM, *, seed: int) -> None:
        check_held_back(objective)
        self.objective = objective
        self.aim = f"a higher {objective.name}"
        self.examples, self.lm, self._seed = list(examples), lm, seed
        self._codes = cluster_codes([input_key(e) for e in examples], np.ones(len(examples), dtype=bool))

    def answers(self, program: Judge) -> Judged:
        """Return the judge's answers to the examples in the given order."""
        target = target_of(program, self.examples, self.lm)
        (rows,) = target.probabilities([target.first], self.examples)
        return target.judged(rows, self.examples, rows[:0])

    def undefined(self, answers: Judged, given: Judged) -> int:
        """Return the number of examples that it leaves without an answer beyond those of the given judge."""
        return _undefined(answers) - _undefined(given)

    def estimates(self, answers: Judged) -> dict[str, Estimate]:
        """Return the objective with its interval over inputs."""
        members = [np.flatnonzero(self._codes == code) for code in range(self._codes.max() + 1)]
        rng = np.random.default_rng(self._seed)
        draws = rng.integers(0, len(members), size=(N_RESAMPLES, len(members)))
        values = [self.objective(answers.take(np.concatenate([members[i] for i in draw]))) for draw in draws]
        low, high = np.nanquantile(values, [0.025, 0.975]) if not np.isnan(values).all() else (np.nan, np.nan)
        name, undefined = self.objective.name, _undefined(answers)
        estimate = Estimate(
            name=name,
            label=name,
            value=self.objective(answers),
            low=float(low),
            high=float(high),
            null=None,
            n=len(answers.ids) - undefined,
            undefined=undefined,
        )
        return {name: estimate}

    def p_values(self, answers: Sequence[Judged], given: Judged) -> list[float]:
        """Return the one-sided p that each objective is not higher, adjusted by Holm."""
        return holm([self._p_value(one, given) for one in answers])

    def _p_value(self, answers: Judged, given: Judged) -> float:
        observed = self.objective(answers) - self.objective(given)
        if np.isnan(observed):
            return float("nan")
        swaps = np.random.default_rng(self._seed).random((N_RESAMPLES, self._codes.max() + 1)) < 0.5
        extreme = 0
        for swap in swaps:
            mask = swap[self._codes]
            difference = self.objective(mixed(answers, given, mask)) - self.objective(mixed(given, answers, mask))
            extreme += not difference < observed - SLACK  # a tie counts, and NaN, which is not below
        return (1 + extreme) / (1 + N_RESAMPLES)

    def loss(self, answers: Judged, given: Judged) -> str:
        """Return nothing: the objective is all that is known without labels."""
        return ""

    def error(self, answers: Judged) -> float:
        """Return 0: any difference decides."""
        return 0.0

    def costs(self, answers: Judged) -> tuple[float, ...]:
        """Return minus the objective."""
        return (-self.objective(answers),)


def check_held_back(objective: Objective | None) -> None:
    """Refuse an objective that held-back examples do not change.

    Raises:
        ValueError: The objective asks a content-free input.
    """
    if objective is not None and objective.content_free:
        raise ValueError(
            f"The {objective.name} asks a content-free input, so no held-back examples can tell whether it is better: "
            "give select=False (--bare), or another objective."
        )


def _undefined(judged: Judged) -> int:
    return int(np.isnan(judged.answers.reshape(len(judged.ids), -1)).any(axis=1).sum())
