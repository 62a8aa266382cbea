"""RS demonstrations: show the judge its most biased judgments, with the human scores (Ohi et al. 2024, section 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
import numpy as np
from dspy.teleprompt import Teleprompter

from evalbias.evaluation.likelihood import (
    LikelihoodComparison,
    LikelihoodMeasurement,
    compare_likelihood_bias,
    measure_likelihood_bias,
)
from evalbias.lm.contract import measuring
from evalbias.lm.memo import LikelihoodMemo
from evalbias.lm.tokens import PromptTooLong
from evalbias.lm.types import FloatArray, MeasuringLM
from evalbias.measures import rs_scores, unfairness_scores
from evalbias.optimizers.demos import draw_demos, rated_items, with_demos
from evalbias.programs.context_errors import name_overlong_items
from evalbias.programs.criterion import Criterion
from evalbias.programs.pointwise import PointwiseJudge

ORDERS = ("ascending", "descending")
TRIED = 16
"""Items, the longest, whose prompts are tried before anything is judged."""


@dataclass(frozen=True)
class BiasedDemosReport:
    """What compiling found.

    Attributes:
        ids: (n,) the training items measured: all that have a human score, without the random demonstrations.
        likelihoods: (n,) LS in nats.
        model_scores: (n,) Score_m under the random demonstrations.
        human_scores: (n,) Score_h as rated.
        unfairness: (n,) US as RS uses it: both scores centered and divided by their largest magnitude.
        rs: (n,) RS (eq 6), in [0, 2]; NaN where a score is undefined.
        chosen: The demonstrations' ids, in the order shown.
        random: The ids of the random demonstrations.
        left_out: Training items without a usable human score.
        undefined: Measured items whose RS is NaN.
        before: The valset under the random demonstrations, None without a valset.
        after: The valset under the chosen ones, None without a valset.
        comparison: Both side by side with significance, None without a valset.
    """

    ids: tuple[str, ...]
    likelihoods: FloatArray
    model_scores: FloatArray
    human_scores: FloatArray
    unfairness: FloatArray
    rs: FloatArray
    chosen: tuple[str, ...]
    random: tuple[str, ...]
    left_out: int
    undefined: int
    before: LikelihoodMeasurement | None
    after: LikelihoodMeasurement | None
    comparison: LikelihoodComparison | None


class BiasedDemos(Teleprompter):  # type: ignore[misc]
    """Demonstrations chosen by RS.

    Args:
        k: Number of demonstrations, at least 1 (the paper: 8).
        likelihood_lm: Whose likelihood is meant; by default the judge's own model.
        bins: How human scores become labels; see ``label_of``. By default they are on the criterion's scale already.
        reduction: Of the likelihood over tokens: ``"sum"`` (eq 1) or ``"mean"``.
        normalization: Of US in the reported BiasScore: ``"min-max"`` or ``"mean-range"``.
        order: In which the demonstrations stand, by RS.
        n_resamples: Of the permutation test.
        seed: Of the random demonstrations and of the tests.
        progress: Called with the number of judgments done.

    The random demonstrations are not candidates: a judge that is shown an item's score cannot be measured on it.
    """

    def __init__(
        self,
        k: int = 8,
        *,
        likelihood_lm: MeasuringLM | None = None,
        bins: Sequence[float] | None = None,
        reduction: str = "sum",
        normalization: str = "min-max",
        order: str = "ascending",
        n_resamples: int = 100_000,
        seed: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"k={k}: at least one demonstration must be chosen.")
        if order not in ORDERS:
            raise ValueError(f"order={order!r} is unknown: choose one of {ORDERS}.")
        self.k = k
        self.likelihood_lm = likelihood_lm
        self.bins = bins
        self.reduction = reduction
        self.normalization = normalization
        self.order = order
        self.n_resamples = n_resamples
        self.seed = seed
        self.progress = progress

    def compile(
        self,
        student: PointwiseJudge,
        *,
        trainset: Sequence[dspy.Example],
        teacher: None = None,
        valset: Sequence[dspy.Example] | None = None,
        lm: Any = None,
    ) -> PointwiseJudge:
        """A copy of the judge with the k training items of highest RS as demonstrations.

        Args:
            student: The judge; it is left as it is.
            trainset: Human-rated items (``scores``), at least 2k + 2 of them with a score on the criterion.
            teacher: Not used by this method; must be None.
            valset: Items on which before and after are measured; none may be in the trainset.
            lm: The judge's model; by default its own or DSPy's.

        Returns:
            The compiled judge; its ``report`` is a ``BiasedDemosReport``.

        Raises:
            ValueError: Too few rated items, a valset that overlaps the trainset, a score that no label fits, or
                demonstrations that do not fit into the model's context.
        """
        if teacher is not None:
            raise ValueError("BiasedDemos learns from human scores: pass no teacher.")
        lm = measuring(lm or student.predict.lm or dspy.settings.lm)
        rated = rated_items(trainset, student.criterion)
        if len(rated) < 2 * self.k + 2:
            raise ValueError(
                f"{len(rated)} of {len(trainset)} training items have a score on {student.criterion.name}: "
                f"k={self.k} random and chosen demonstrations need at least {2 * self.k + 2}."
            )
        _disjoint(rated, valset or [])
        random, candidates = draw_demos(rated, self.k, seed=self.seed)
        before = with_demos(student, random, bins=self.bins)
        _fitting(before, [*rated, *(valset or [])], lm)
        meant = LikelihoodMemo(measuring(self.likelihood_lm or lm))
        found = self._measure(before, candidates, lm, meant)
        rs, unfairness = _rs(found, student.criterion.name)
        chosen = [candidates[i] for i in self._highest(rs)]
        compiled = with_demos(student, chosen, bins=self.bins)
        _fitting(compiled, [*rated, *(valset or [])], lm)
        first = self._measure(before, valset, lm, meant) if valset else None
        second = self._measure(compiled, valset, lm, meant) if valset else None
        compiled.report = BiasedDemosReport(
            ids=found.ids,
            likelihoods=found.likelihoods,
            model_scores=found.model_scores[student.criterion.name],
            human_scores=found.human_scores[student.criterion.name],
            unfairness=unfairness,
            rs=rs,
            chosen=tuple(str(e.get("id")) for e in chosen),
            random=tuple(str(e.get("id")) for e in random),
            left_out=len(trainset) - len(rated),
            undefined=int(np.isnan(rs).sum()),
            before=first,
            after=second,
            comparison=self._compare(first, second, student.criterion.name),
        )
        return compiled

    def judgments(self, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example], criterion: Criterion) -> int:
        """How many judgments compiling on these items takes."""
        rated = rated_items(trainset, criterion)
        tried = min(TRIED, len(rated) + len(valset))
        return max(0, len(rated) - self.k) + 2 * len(valset) + 2 * tried

    def _measure(
        self, judge: PointwiseJudge, examples: Sequence[dspy.Example], lm: MeasuringLM, likelihood_lm: MeasuringLM
    ) -> LikelihoodMeasurement:
        return measure_likelihood_bias(
            judge,
            examples,
            lm=lm,
            likelihood_lm=likelihood_lm,
            reduction=self.reduction,
            normalization=self.normalization,
            progress=self.progress,
        )

    def _highest(self, rs: FloatArray) -> list[int]:
        defined = np.flatnonzero(np.isfinite(rs))
        if len(defined) < self.k:
            raise ValueError(f"RS is defined for {len(defined)} items only: {self.k} demonstrations cannot be chosen.")
        top = defined[np.argsort(-rs[defined], kind="stable")[: self.k]]
        return [int(i) for i in (top if self.order == "descending" else top[::-1])]

    def _compare(
        self, before: LikelihoodMeasurement | None, after: LikelihoodMeasurement | None, criterion: str
    ) -> LikelihoodComparison | None:
        if before is None or after is None:
            return None
        found = compare_likelihood_bias(before, after, n_resamples=self.n_resamples, seed=self.seed)
        return found[criterion]


def _rs(found: LikelihoodMeasurement, criterion: str) -> tuple[FloatArray, FloatArray]:
    """(RS, US), each (n,): computed over the items where all three numbers are defined, NaN elsewhere."""
    likelihoods, model, human = found.arrays(criterion)
    kept = np.isfinite(likelihoods) & np.isfinite(model) & np.isfinite(human)
    rs, unfairness = np.full(len(kept), np.nan), np.full(len(kept), np.nan)
    unfairness[kept] = unfairness_scores(model[kept], human[kept], normalization="center-max")
    rs[kept] = rs_scores(likelihoods[kept], unfairness[kept])
    return rs, unfairness


def _fitting(judge: PointwiseJudge, examples: Sequence[dspy.Example], lm: MeasuringLM) -> None:
    """Refuse demonstrations that do not fit into the model's context, before anything is judged with them.

    Raises:
        PromptTooLong: One of the longest items does not fit; the message says how many demonstrations would.
    """
    longest = sorted(examples, key=lambda e: len(e.source) + len(e.output))[-TRIED:]
    demos = judge.predict.demos
    for count in range(len(demos), -1, -1):
        judge.predict.demos = demos[:count]
        try:
            prompts = [judge.messages(e) for e in longest]
            name_overlong_items(lambda asked: lm.choice_logprobs(asked, judge.criterion.labels), prompts, longest)
        except PromptTooLong as error:
            refused = error
            continue
        if count < len(demos):
            raise PromptTooLong(f"{count} of {len(demos)} demonstrations fit: lower k. {refused}") from refused
        return
    raise PromptTooLong(f"Not even a prompt without demonstrations fits. {refused}") from refused


def _disjoint(trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
    shown = {(e.source, e.output) for e in trainset}
    both = [e for e in valset if (e.source, e.output) in shown and e.get("id") in {t.get("id") for t in trainset}]
    if both:
        raise ValueError(f"{len(both)} items are in trainset and valset, the first {both[0].get('id')!r}: split them.")
