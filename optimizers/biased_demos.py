"""RS demonstrations: show the judge its most biased judgments with the human scores (Ohi et al. 2024, section 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dspy
import numpy as np

from evalbias.data.item_names import item_name
from evalbias.evaluation.judged import Judged
from evalbias.lm.types import MeasuringLM
from evalbias.measures.arrays import FloatArray
from evalbias.optimizers.base import Outcome, Problem
from evalbias.optimizers.compile_report import CompileReport
from evalbias.optimizers.demo_choice import highest_rs
from evalbias.optimizers.demos import draw_demos, rated_items, with_demos
from evalbias.optimizers.likelihood_optimizer import TRIED, LikelihoodOptimizer, check_demos_fit, check_rated, rs_of
from evalbias.optimizers.selection import Candidate
from evalbias.programs.criterion import Criterion
from evalbias.programs.pointwise import PointwiseJudge

ORDERS = ("ascending", "descending")


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


class BiasedDemos(LikelihoodOptimizer):
    """Compiles a pointwise judge with the k training items of highest RS as demonstrations.

    The trainset holds human-rated items, at least 2k + 2 of them with a defined score on the judge's criterion, in
    ``scores`` (criterion -> number) or as ``score``; twice as many where half of them are held back.
    RS comes from the judge with k random demonstrations; those are not candidates for demonstrations, because a judge
    that is shown an item's score cannot be measured on it. That judge is the paper's baseline, with which
    ``select=False`` compares the result on the valset; otherwise the comparison is with the judge that was given.

    Args:
        k: Number of demonstrations, at least 1 (the paper: 8).
        likelihood_lm: Model whose likelihood defines LS. Defaults to the judge's own model.
        bins: Edges that cut human scores into labels; see ``label_of``. By default they are on the criterion's scale.
        reduction: Reduction of token log-probabilities to LS: ``"sum"`` (eq 1) or ``"mean"``.
        normalization: Normalization of the scores whose difference is the US of RS: ``"mean-range"`` (eq 2), or
            ``"center-max"``, which the published code uses. BiasScore always follows eq 2.
        order: Order of the demonstrations by RS: ``"ascending"`` or ``"descending"``.
        select: See ``JudgeOptimizer``, ``LikelihoodRule`` and ``AgreementRule``; False is the paper's method.
        n_resamples: Swaps of each permutation test.
        seed: Seed for the held-back items, the random demonstrations and the tests.
        progress: Called with the number of judgments done.
    """

    report_type = BiasedDemosReport

    def __init__(
        self,
        k: int = 8,
        *,
        likelihood_lm: MeasuringLM | None = None,
        bins: Sequence[float] | None = None,
        reduction: str = "sum",
        normalization: str = "mean-range",
        order: str = "ascending",
        select: bool = True,
        n_resamples: int = 100_000,
        seed: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(
            likelihood_lm=likelihood_lm,
            bins=bins,
            reduction=reduction,
            normalization=normalization,
            select=select,
            n_resamples=n_resamples,
            seed=seed,
            progress=progress,
        )
        if k < 1:
            raise ValueError(f"k={k}: at least one demonstration must be chosen.")
        if order not in ORDERS:
            raise ValueError(f"order={order!r} is unknown: choose one of {ORDERS}.")
        self.k = k
        self.order = order

    def check(self, student: PointwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """See ``JudgeOptimizer``; also refuses too few rated items."""
        check_rated(trainset, student.criterion, self.k)
        super().check(student, trainset, valset)

    def search(self, problem: Problem) -> Outcome:
        """See ``JudgeOptimizer``.

        Raises:
            ValueError: A score that no label fits, or demonstrations that do not fit into the model's context.
        """
        student, lm = problem.student, problem.lm
        problem.likelihood_lm = self.likelihoods_of(lm)
        rated = rated_items(problem.trainset, student.criterion)
        random, candidates = draw_demos(rated, self.k, seed=self.seed)
        baseline = with_demos(student, random, bins=self.bins)
        judged = [*rated, *rated_items(problem.held_back, student.criterion), *problem.valset]
        self.check_likelihoods(problem, candidates[0])
        check_demos_fit(baseline, judged, lm)
        train = self.judge(problem, baseline, candidates)
        rs, unfairness = rs_of(train, self.normalization)
        highest = highest_rs(rs, self.k)
        chosen = [candidates[i] for i in (highest if self.order == "ascending" else highest[::-1])]
        compiled = with_demos(student, chosen, bins=self.bins)
        check_demos_fit(compiled, judged, lm)
        details = {
            "train": train,
            "unfairness": unfairness,
            "rs": rs,
            "demonstrations": tuple(item_name(e) for e in chosen),
            "demonstration_words": tuple(len(e.output.split()) for e in chosen),
            "mean_words": float(np.mean([len(e.output.split()) for e in candidates])),
            "random": tuple(item_name(e) for e in random),
            "left_out": len(problem.trainset) - len(rated),
            "undefined": int(np.isnan(rs).sum()),
        }
        name = f"the {self.k} demonstrations of highest RS among {len(candidates)} items"
        given = Candidate("given", student, {"chosen": "the given judge"})
        return Outcome([Candidate(name, compiled)], given, baseline, details)

    def measured(self, trainset: Sequence[dspy.Example], criterion: Criterion) -> list[dspy.Example]:
        """Return the training items whose likelihood is measured; without a choice, not the random demonstrations."""
        rated = rated_items(trainset, criterion)
        return rated if self.select else draw_demos(rated, self.k, seed=self.seed)[1]

    def judgments(self, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example], criterion: Criterion) -> int:
        """Return how many judgments compiling on these items takes; with ``select``, about how many."""
        rated = len(rated_items(trainset, criterion))
        fit, held_back = (rated - rated // 2, rated // 2) if self.select else (rated, 0)
        tried = min(TRIED, rated + len(valset))
        return max(0, fit - self.k) + 2 * held_back + 2 * len(valset) + 2 * tried
