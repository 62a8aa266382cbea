"""Demonstrations against likelihood bias: which items can be shown, and which ones help."""

from __future__ import annotations

from collections.abc import Sequence

import dspy
import numpy as np
import scipy

from evalbias.evaluation.judged import human_scores
from evalbias.lm.cache import measuring
from evalbias.lm.types import Choices, MeasuringLM, PromptRefused, RequestRefused
from evalbias.measures.arrays import FloatArray, defined
from evalbias.measures.likelihood import normalize
from evalbias.programs.criterion import Criterion
from evalbias.programs.items import item_label
from evalbias.programs.judges import answer_items
from evalbias.programs.pointwise import PointwiseJudge

POOL = 4  # items at each end, for each demonstration, among which lengths are matched
TRIED = 16  # number of the longest items whose prompts are tried before anything is judged

# The items that can be shown, a random draw of them, and a judge that shows them.


def rated_items(examples: Sequence[dspy.Example], criterion: Criterion) -> list[dspy.Example]:
    """Return the items whose human score on the criterion is defined; refuse items that were not rated on it at all."""
    scores = human_scores(examples, criterion)
    return [e for e, score in zip(examples, scores, strict=True) if np.isfinite(score)]


def draw_demos(examples: Sequence[dspy.Example], k: int, *, seed: int) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Return k items drawn at random, in their order, and all the others; fewer than k items are refused."""
    if k > len(examples):
        raise ValueError(f"{k} demonstrations cannot be drawn from {len(examples)} rated items: lower k.")
    picked = set(np.random.default_rng(seed).choice(len(examples), k, replace=False).tolist())
    drawn = [e for i, e in enumerate(examples) if i in picked]
    return drawn, [e for i, e in enumerate(examples) if i not in picked]


def with_demos(
    student: PointwiseJudge, examples: Sequence[dspy.Example], *, bins: Sequence[float] | None = None
) -> PointwiseJudge:
    """Return a copy of the judge with these demonstrations, labeled by their human scores (see ``label_of``).

    A likelihood calibration is discarded, because it was fitted under the old demonstrations.
    """
    judge: PointwiseJudge = student.deepcopy()
    judge.correction = None
    judge.predict.demos = [
        dspy.Example(source=e.source, output=e.output, score=item_label(e, student.criterion, bins=bins))
        for e in examples
    ]
    return judge


class UnusableDemosError(ValueError):
    """There are too few items of one kind to choose demonstrations from, or they do not fit the model's context."""


def check_demos_fit(judge: PointwiseJudge, examples: Sequence[dspy.Example], lm: MeasuringLM) -> None:
    """Refuse demonstrations with which one of the longest items exceeds the model's context, and say how many fit.

    An item that the model cannot take even without demonstrations is undefined anyway, and says nothing of them.
    """
    longest = sorted(examples, key=lambda e: len(e.source) + len(e.output))[-TRIED:]
    model = measuring(lm, judge.sampling)
    demos, trial = judge.predict.demos, judge.deepcopy()

    def refusal(items: Sequence[dspy.Example], count: int) -> PromptRefused | RequestRefused | None:
        trial.predict.demos = demos[:count]
        questions = [Choices(trial.messages(e), tuple(judge.criterion.labels)) for e in items]
        try:
            answer_items(model, questions, items, refused="raise")
        except (PromptRefused, RequestRefused) as error:  # the latter: not even a harmless text fits
            return error
        return None

    first = refusal(longest, len(demos))
    if first is None:
        return
    alone = [item for item in longest if refusal([item], 0) is None]
    if not alone:
        raise UnusableDemosError(f"Not even a prompt without demonstrations fits. {first}") from first
    problem = refusal(alone, len(demos))
    if problem is not None:
        count = next(count for count in range(len(demos) - 1, -1, -1) if refusal(alone, count) is None)
        raise UnusableDemosError(f"{count} of {len(demos)} demonstrations fit: lower k. {problem}") from problem


# Ways to choose demonstrations; each returns indices of items in the order shown.


def highest_rs(rs: FloatArray, k: int) -> list[int]:
    """Choose the k items of largest RS, signed or not, ascending as in the paper (Ohi et al. 2024, section 2.2)."""
    usable = np.flatnonzero(np.isfinite(rs))
    if len(usable) < k:
        raise UnusableDemosError(f"RS is defined for only {len(usable)} items: {k} demonstrations cannot be chosen.")
    top = usable[np.argsort(-np.abs(rs[usable]), kind="stable")[:k]]
    return [int(i) for i in top[::-1]]


def both_ends(signed: FloatArray, words: FloatArray, k: int) -> list[int]:
    """Choose k / 2 (k even) likely overrated items of high RS, and as many unlikely underrated ones of similar lengths.

    The highest RS alone often takes one end only, and with a sum over tokens the longest outputs: such demonstrations
    teach a preference for another length instead of none.
    """
    order = np.argsort(-np.abs(signed), kind="stable")  # NaN last
    likely, unlikely = ([i for i in order if sign * signed[i] > 0][: POOL * k // 2] for sign in (1, -1))
    if min(len(likely), len(unlikely)) < k // 2:
        raise UnusableDemosError(f"{len(likely)} likely overrated and {len(unlikely)} unlikely underrated items")
    return _matched(likely, unlikely, words, k // 2)


def balanced(likelihoods: FloatArray, human: FloatArray, words: FloatArray, k: int) -> list[int]:
    """Choose k / 2 (k even) pairs of a likely and an unlikely output that people rated alike, of similar lengths.

    The pairs are spread over the human scores. Each lies on both sides of the mean LS of all items, if the items of
    such scores do, as symmetrically as their lengths allow, so that likelihood tells little about the label.
    """
    usable = np.flatnonzero(defined(likelihoods, human))
    if len(usable) < 3 * k:
        raise UnusableDemosError(f"{len(usable)} items have a likelihood and a human score, for {k} demonstrations")
    chosen: list[int] = []
    center, spread = likelihoods[usable].mean(), likelihoods[usable].std() or 1.0
    for stratum in np.array_split(usable[np.argsort(human[usable], kind="stable")], k // 2):
        by_likelihood = stratum[np.argsort(likelihoods[stratum], kind="stable")]
        third = len(by_likelihood) // 3
        ends = by_likelihood[likelihoods[by_likelihood] > center], by_likelihood[likelihoods[by_likelihood] < center]
        likely = ends[0] if len(ends[0]) else by_likelihood[-third:]
        unlikely = ends[1] if len(ends[1]) else by_likelihood[:third]
        off = np.abs((likelihoods[likely][:, None] + likelihoods[unlikely]) / 2 - center) / spread
        chosen += _matched(likely, unlikely, words, 1, more=off)
    return chosen


def signed_rs(likelihoods: FloatArray, unfairness: FloatArray) -> FloatArray:
    """Compute RS with its sign: positive for a likely overrated output, negative for an unlikely underrated one."""
    kept = defined(likelihoods, unfairness)
    stars = [normalize(np.where(kept, x, np.nan), "center-max") for x in (likelihoods, unfairness)]
    return np.asarray(stars[0] + stars[1])


def _matched(
    first: np.ndarray | list[int],
    second: np.ndarray | list[int],
    words: FloatArray,
    pairs: int,
    more: FloatArray | float = 0.0,
) -> list[int]:
    """Return pairs of one item of each kind whose lengths differ least, one after the other.

    Lengths count in standard deviations; ``more`` (len(first), len(second)) is added to their difference.
    """
    a, b = np.asarray(first), np.asarray(second)
    cost = np.abs(words[a][:, None] - words[b]) / (words.std() or 1.0) + more
    rows, columns = scipy.optimize.linear_sum_assignment(cost)
    nearest = np.argsort(cost[rows, columns], kind="stable")[:pairs]
    return [int(i) for n in nearest for i in (a[rows[n]], b[columns[n]])]
