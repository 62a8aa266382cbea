"""Base of the optimizers against likelihood bias: the model of LS, the rule of choice, RS, and checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import dspy
import numpy as np

from evalbias.data.ratings import human_score
from evalbias.evaluation.comparison import Comparison, compare
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, Judged, judge_examples
from evalbias.evaluation.likelihood import LikelihoodBias
from evalbias.evaluation.measurement import measure
from evalbias.lm.contract import measuring
from evalbias.lm.memo import LikelihoodMemo
from evalbias.lm.types import MeasuringLM, PromptRefused, RequestRefused
from evalbias.measures import rs_scores, unfairness_scores
from evalbias.measures.arrays import FloatArray
from evalbias.optimizers.agreement_rule import AgreementRule
from evalbias.optimizers.base import JudgeOptimizer, Problem
from evalbias.optimizers.demos import rated_items
from evalbias.optimizers.likelihood_rule import LikelihoodRule
from evalbias.optimizers.selection import Rule
from evalbias.programs.criterion import Criterion
from evalbias.programs.likelihoods import likelihood_scores
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.refused import name_refused_items
from evalbias.programs.usable import usable_item

RS_NORMALIZATIONS = ("mean-range", "center-max")
"""Normalizations of the scores in RS: the paper's, and its code's."""
TRIED = 16
"""Number of the longest items whose prompts are tried before anything is judged."""


class LikelihoodOptimizer(JudgeOptimizer):
    """Base of the optimizers that compile a pointwise judge's likelihood bias away.

    Args:
        likelihood_lm: Model whose likelihood defines LS. Defaults to the judge's own model.
        bins: Edges that cut human scores into labels; see ``label_of``. By default they are on the criterion's scale.
        reduction: Reduction of token log-probabilities to LS: ``"sum"`` (eq 1) or ``"mean"``.
        normalization: Normalization of the scores whose difference is the US of RS; see ``rs_of``.
        max_loss: Fall in performance (Spearman's rho) that a smaller bias may cost, in [0, 1); see ``LikelihoodRule``.
        select: See ``JudgeOptimizer``.
        n_resamples: Swaps of each permutation test.
        seed: Seed for everything that is drawn.
        progress: Called with the number of judgments done.
    """

    compiles = (PointwiseJudge,)

    def __init__(
        self,
        *,
        likelihood_lm: MeasuringLM | None,
        bins: Sequence[float] | None,
        reduction: str,
        normalization: str,
        max_loss: float = 0.0,
        select: bool,
        n_resamples: int,
        seed: int,
        progress: Callable[[int], None] | None,
    ) -> None:
        super().__init__(select=select, n_resamples=n_resamples, seed=seed, progress=progress)
        if normalization not in RS_NORMALIZATIONS:
            raise ValueError(f"normalization={normalization!r} is unknown: choose one of {RS_NORMALIZATIONS}.")
        if not 0 <= max_loss < 1:
            raise ValueError(f"max_loss={max_loss}: give a fall in performance from 0 to below 1, such as 0.05.")
        self.normalization = normalization
        self.max_loss = max_loss
        self.likelihood_lm = likelihood_lm
        self.bins = bins
        self.reduction = reduction

    def usable(self, student: PointwiseJudge, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """See ``JudgeOptimizer``; the texts of an item without a human score are not read, and may be empty."""
        name = student.criterion.name
        return [
            e if isinstance(e, dspy.Example) and math.isnan(human_score(e, name, required=False)) else usable_item(e, i)
            for i, e in enumerate(examples)
        ]

    def check(self, student: PointwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """See ``JudgeOptimizer``; all items of the valset are judged, so their texts are checked."""
        super().usable(student, valset)
        super().check(student, trainset, valset)

    def likelihoods_of(self, lm: MeasuringLM) -> LikelihoodMemo:
        """Return the model whose likelihood defines LS; every text is asked once."""
        return LikelihoodMemo(lm if self.likelihood_lm is None else measuring(self.likelihood_lm))

    def check_likelihoods(self, problem: Problem, item: dspy.Example) -> None:
        """Measure the LS of one item, so that a model without likelihoods is refused before a judgment is paid for.

        Raises:
            NotImplementedError: The model reports no likelihoods.
        """
        likelihood_scores([item], problem.student.criterion, problem.likelihood_lm, reduction=self.reduction)

    def measured(self, trainset: Sequence[dspy.Example], criterion: Criterion) -> list[dspy.Example]:
        """Return the training items whose likelihood is measured, held-back ones among them."""
        return rated_items(trainset, criterion)

    def judgments(self, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example], criterion: Criterion) -> int:
        """Return about how many judgments compiling on these items takes."""
        raise NotImplementedError

    def rules(self, problem: Problem) -> list[Rule]:
        """See ``LikelihoodRule`` and ``AgreementRule``; held-back items without a human score do not count."""
        rated = rated_items(problem.held_back, problem.student.criterion)
        held_back = {"held_back": len(rated), "n_resamples": self.n_resamples, "seed": self.seed}

        def answers(judge: PointwiseJudge) -> Judged:
            return self.judge(problem, judge, rated)

        return [LikelihoodRule(answers, max_loss=self.max_loss, **held_back), AgreementRule(answers, **held_back)]

    def judge(self, problem: Problem, program: PointwiseJudge, examples: Sequence[dspy.Example]) -> Judged:
        """Have a judge answer examples, with their LS as a covariate."""
        return judge_examples(
            program,
            examples,
            lm=problem.lm,
            likelihood_lm=problem.likelihood_lm,
            reduction=self.reduction,
            progress=self.progress,
        )

    def compare(self, before: Judged, after: Judged) -> dict[str, Comparison]:
        """Compare the likelihood bias only."""
        bias = LikelihoodBias()
        sides = [measure(bias, judged, seed=self.seed) for judged in (before, after)]
        return {bias.name: compare(*sides, n_resamples=self.n_resamples, seed=self.seed)}


def check_rated(trainset: Sequence[dspy.Example], criterion: Criterion, k: int) -> None:
    """Refuse too few items to draw k random demonstrations and choose k others, and scores that tell nothing.

    Raises:
        ValueError: Fewer than 2k + 2 items have a defined score on the criterion, or all scores are equal.
    """
    rated = rated_items(trainset, criterion)
    if len(rated) < 2 * k + 2:
        raise ValueError(
            f"{len(rated)} of {len(trainset)} training items have a score on {criterion.name}: k={k} random and chosen "
            f"demonstrations need at least {2 * k + 2}."
        )
    scores = {human_score(e, criterion.name) for e in rated}
    if len(scores) == 1:
        raise ValueError(
            f"All {len(rated)} rated training items have the score {scores.pop():g} on {criterion.name}: with equal "
            "ratings no judgment is more biased than another. Give items of different quality."
        )


def rs_of(judged: Judged, normalization: str) -> tuple[FloatArray, FloatArray]:
    """Return (RS, US), (n,) each, over the items where all three numbers are defined; NaN elsewhere."""
    likelihoods, model, human = judged.covariate(LIKELIHOODS), judged.answers, judged.covariate(HUMAN_SCORES)
    kept = np.isfinite(likelihoods) & np.isfinite(model) & np.isfinite(human)
    rs, unfairness = np.full(len(kept), np.nan), np.full(len(kept), np.nan)
    unfairness[kept] = unfairness_scores(model[kept], human[kept], normalization=normalization)
    rs[kept] = rs_scores(likelihoods[kept], unfairness[kept])
    return rs, unfairness


class DemosDoNotFitError(ValueError):
    """Demonstrations do not fit into the model's context."""


def check_demos_fit(judge: PointwiseJudge, examples: Sequence[dspy.Example], lm: MeasuringLM) -> None:
    """Refuse demonstrations that do not fit into the model's context, before anything is judged with them.

    An item that the model cannot take even without demonstrations is undefined anyway, and says nothing of them.

    Raises:
        DemosDoNotFitError: One of the longest items does not fit; the message says how many demonstrations would.
    """
    longest = sorted(examples, key=lambda e: len(e.source) + len(e.output))[-TRIED:]
    model = measuring(lm, judge.sampling)
    demos, trial = judge.predict.demos, judge.deepcopy()

    def refusal(items: Sequence[dspy.Example], count: int) -> PromptRefused | RequestRefused | None:
        trial.predict.demos = demos[:count]
        prompts = [trial.messages(e) for e in items]
        try:
            name_refused_items(lambda part: model.choice_logprobs(part, judge.criterion.labels), prompts, items)
        except (PromptRefused, RequestRefused) as error:  # the latter: not even a harmless text fits
            return error
        return None

    first = refusal(longest, len(demos))
    if first is None:
        return
    alone = [item for item in longest if refusal([item], 0) is None]
    if not alone:
        raise DemosDoNotFitError(f"Not even a prompt without demonstrations fits. {first}") from first
    problem = refusal(alone, len(demos))
    if problem is not None:
        count = next(count for count in range(len(demos) - 1, -1, -1) if refusal(alone, count) is None)
        raise DemosDoNotFitError(f"{count} of {len(demos)} demonstrations fit: lower k. {problem}") from problem
