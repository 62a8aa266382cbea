"""RS demonstrations: show the judge its most biased judgments with the human scores (Ohi et al. 2024, section 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dspy
import numpy as np

from evalbias.evaluation.comparison import Comparison, compare
from evalbias.evaluation.estimates import measure
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, Judged, judge_examples
from evalbias.evaluation.likelihood import LikelihoodBias
from evalbias.lm.contract import measuring
from evalbias.lm.memo import LikelihoodMemo
from evalbias.lm.types import MeasuringLM, PromptRefused, RequestRefused
from evalbias.measures import rs_scores, unfairness_scores
from evalbias.measures.arrays import FloatArray
from evalbias.measures.likelihood import NORMALIZATIONS
from evalbias.optimizers.base import CompileReport, JudgeOptimizer, Outcome, Problem
from evalbias.optimizers.demos import draw_demos, rated_items, with_demos
from evalbias.programs.criterion import Criterion
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.refused import name_refused_items

ORDERS = ("ascending", "descending")
TRIED = 16
"""Number of the longest items whose prompts are tried before anything is judged."""


@dataclass(frozen=True, kw_only=True)
class BiasedDemosReport(CompileReport):
    """Report of ``BiasedDemos``.

    Attributes:
        train: The measured training items: all that have a human score, without the random demonstrations; judged under
            those.
        unfairness: (n,) US as RS uses it (eq 2).
        rs: (n,) RS (eq 6), in [0, 2]; NaN where a score is undefined.
        demonstrations: Ids of the chosen demonstrations, in the order shown.
        demonstration_words: Words of each chosen demonstration's output. The sum in LS favors long outputs.
        mean_words: Mean number of words of the measured items' outputs.
        random: Ids of the random demonstrations of the baseline.
        left_out: Training items without a human score.
        undefined: Measured items whose RS is NaN.
    """

    train: Judged
    unfairness: FloatArray
    rs: FloatArray
    demonstrations: tuple[str, ...]
    demonstration_words: tuple[int, ...]
    mean_words: float
    random: tuple[str, ...]
    left_out: int
    undefined: int


class BiasedDemos(JudgeOptimizer):
    """Compiles a pointwise judge with the k training items of highest RS as demonstrations.

    The trainset holds human-rated items, at least 2k + 2 of them with a defined score on the judge's criterion, in
    ``scores`` (criterion -> number) or as ``score``.
    The baseline is the judge with k random demonstrations; those are not candidates, because a judge that is shown an
    item's score cannot be measured on it.

    Args:
        k: Number of demonstrations, at least 1 (the paper: 8).
        likelihood_lm: Model whose likelihood defines LS. Defaults to the judge's own model.
        bins: Edges that cut human scores into labels; see ``label_of``. By default they are on the criterion's scale.
        reduction: Reduction of token log-probabilities to LS: ``"sum"`` (eq 1) or ``"mean"``.
        normalization: Normalization of the scores whose difference is the US of RS: ``"mean-range"`` (eq 2), or
            ``"center-max"``, which the published code uses. BiasScore always follows eq 2.
        order: Order of the demonstrations by RS: ``"ascending"`` or ``"descending"``.
        n_resamples: Swaps of each permutation test.
        seed: Seed for the random demonstrations and the tests.
        progress: Called with the number of judgments done.
    """

    report_type = BiasedDemosReport
    compiles = (PointwiseJudge,)

    def __init__(
        self,
        k: int = 8,
        *,
        likelihood_lm: MeasuringLM | None = None,
        bins: Sequence[float] | None = None,
        reduction: str = "sum",
        normalization: str = "mean-range",
        order: str = "ascending",
        n_resamples: int = 100_000,
        seed: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(n_resamples=n_resamples, seed=seed, progress=progress)
        if k < 1:
            raise ValueError(f"k={k}: at least one demonstration must be chosen.")
        if normalization not in NORMALIZATIONS:
            raise ValueError(f"normalization={normalization!r} is unknown: choose one of {NORMALIZATIONS}.")
        if order not in ORDERS:
            raise ValueError(f"order={order!r} is unknown: choose one of {ORDERS}.")
        self.k = k
        self.likelihood_lm = likelihood_lm
        self.bins = bins
        self.reduction = reduction
        self.normalization = normalization
        self.order = order

    def check(self, student: PointwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """See ``JudgeOptimizer``; also refuses too few rated items."""
        rated = rated_items(trainset, student.criterion)
        if len(rated) < 2 * self.k + 2:
            raise ValueError(
                f"{len(rated)} of {len(trainset)} training items have a score on {student.criterion.name}: "
                f"k={self.k} random and chosen demonstrations need at least {2 * self.k + 2}."
            )
        super().check(student, trainset, valset)

    def search(self, problem: Problem) -> Outcome:
        """See ``JudgeOptimizer``.

        Raises:
            ValueError: A score that no label fits, or demonstrations that do not fit into the model's context.
        """
        student, lm = problem.student, problem.lm
        problem.likelihood_lm = LikelihoodMemo(lm if self.likelihood_lm is None else measuring(self.likelihood_lm))
        rated = rated_items(problem.trainset, student.criterion)
        random, candidates = draw_demos(rated, self.k, seed=self.seed)
        baseline = with_demos(student, random, bins=self.bins)
        _check_fit(baseline, [*rated, *problem.valset], lm)
        train = judge_examples(
            baseline,
            candidates,
            lm=lm,
            likelihood_lm=problem.likelihood_lm,
            reduction=self.reduction,
            progress=self.progress,
        )
        rs, unfairness = _rs(train, self.normalization)
        chosen = [candidates[i] for i in self._highest(rs)]
        compiled = with_demos(student, chosen, bins=self.bins)
        _check_fit(compiled, [*rated, *problem.valset], lm)
        details = {
            "chosen": f"the {self.k} demonstrations of highest RS among {len(candidates)} items",
            "train": train,
            "unfairness": unfairness,
            "rs": rs,
            "demonstrations": tuple(str(e.get("id")) for e in chosen),
            "demonstration_words": tuple(len(e.output.split()) for e in chosen),
            "mean_words": float(np.mean([len(e.output.split()) for e in candidates])),
            "random": tuple(str(e.get("id")) for e in random),
            "left_out": len(problem.trainset) - len(rated),
            "undefined": int(np.isnan(rs).sum()),
        }
        return Outcome(compiled, baseline, details)

    def compare(self, before: Judged, after: Judged) -> dict[str, Comparison]:
        """Compare the likelihood bias only."""
        bias = LikelihoodBias()
        sides = [measure(bias, judged, seed=self.seed) for judged in (before, after)]
        return {bias.name: compare(*sides, n_resamples=self.n_resamples, seed=self.seed)}

    def judgments(self, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example], criterion: Criterion) -> int:
        """Return how many judgments compiling on these items takes."""
        rated = rated_items(trainset, criterion)
        tried = min(TRIED, len(rated) + len(valset))
        return max(0, len(rated) - self.k) + 2 * len(valset) + 2 * tried

    def _highest(self, rs: FloatArray) -> list[int]:
        defined = np.flatnonzero(np.isfinite(rs))
        if len(defined) < self.k:
            raise ValueError(f"RS is defined for only {len(defined)} items: {self.k} demonstrations cannot be chosen.")
        top = defined[np.argsort(-rs[defined], kind="stable")[: self.k]]
        return [int(i) for i in (top if self.order == "descending" else top[::-1])]


def _rs(judged: Judged, normalization: str) -> tuple[FloatArray, FloatArray]:
    """Return (RS, US), (n,) each, over the items where all three numbers are defined; NaN elsewhere."""
    likelihoods, model, human = judged.covariate(LIKELIHOODS), judged.answers, judged.covariate(HUMAN_SCORES)
    kept = np.isfinite(likelihoods) & np.isfinite(model) & np.isfinite(human)
    rs, unfairness = np.full(len(kept), np.nan), np.full(len(kept), np.nan)
    unfairness[kept] = unfairness_scores(model[kept], human[kept], normalization=normalization)
    rs[kept] = rs_scores(likelihoods[kept], unfairness[kept])
    return rs, unfairness


def _check_fit(judge: PointwiseJudge, examples: Sequence[dspy.Example], lm: MeasuringLM) -> None:
    """Refuse demonstrations that do not fit into the model's context, before anything is judged with them.

    An item that the model cannot take even without demonstrations is undefined anyway, and says nothing of them.

    Raises:
        ValueError: One of the longest items does not fit; the message says how many demonstrations would.
    """
    longest = sorted(examples, key=lambda e: len(e.source) + len(e.output))[-TRIED:]
    model = measuring(lm, judge.sampling)
    demos = judge.predict.demos

    def refusal(items: Sequence[dspy.Example], count: int) -> PromptRefused | RequestRefused | None:
        judge.predict.demos = demos[:count]
        prompts = [judge.messages(e) for e in items]
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
        raise ValueError(f"Not even a prompt without demonstrations fits. {first}") from first
    problem = refusal(alone, len(demos))
    if problem is not None:
        count = next(count for count in range(len(demos) - 1, -1, -1) if refusal(alone, count) is None)
        raise ValueError(f"{count} of {len(demos)} demonstrations fit: lower k. {problem}") from problem
