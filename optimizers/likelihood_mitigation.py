"""Several mitigations of likelihood bias behind one compiler, which takes the one that is shown to help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dspy
import numpy as np

from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.formatting import count
from evalbias.evaluation.judged import HUMAN_SCORES, Judged
from evalbias.lm.memo import ChoiceMemo, LikelihoodMemo
from evalbias.lm.types import MeasuringLM
from evalbias.measures import unfairness_scores
from evalbias.optimizers.base import Outcome, Problem
from evalbias.optimizers.compile_report import CompileReport
from evalbias.optimizers.cross_fitting import cross_fitted, fitted
from evalbias.optimizers.demo_choice import TooFewError, balanced, both_ends, highest_rs, signed_rs
from evalbias.optimizers.demos import draw_demos, rated_items, with_demos
from evalbias.optimizers.likelihood_baselines import against_baselines, baseline_facts
from evalbias.optimizers.likelihood_objective import Objective, objective_of
from evalbias.optimizers.likelihood_optimizer import (
    TRIED,
    DemosDoNotFitError,
    LikelihoodOptimizer,
    check_demos_fit,
    check_rated,
)
from evalbias.optimizers.likelihood_rule import last_items
from evalbias.optimizers.selection import Candidate
from evalbias.programs.criterion import Criterion
from evalbias.programs.likelihoods import REDUCTIONS, likelihood_scores
from evalbias.programs.pointwise import PointwiseJudge

STRENGTHS = (0.25, 0.5, 0.75, 1.0)
"""Parts of the likelihood effect that the calibrated candidates subtract."""


@dataclass(frozen=True, kw_only=True)
class MitigationReport(CompileReport):
    """Report of ``LikelihoodMitigation``.

    Attributes:
        objective: Name of the estimate that is brought to 0, and why it is this one.
        left_out: Candidate -> why it could not be made.
        paper: Answers of the paper's method on the valset: the largest k demonstrations of highest RS; None without a
            valset, or where it could not be made.
        baselines: ``"likelihood alone"``, ``"length alone"`` -> performance of the baseline on the held-back items.
        against_baselines: Whether the compiled judge agrees with people better than each baseline, in a sentence.
    """

    objective: str
    left_out: Mapping[str, str]
    paper: Judged | None
    baselines: Mapping[str, Estimate]
    against_baselines: str


class LikelihoodMitigation(LikelihoodOptimizer):
    """Compiles the mitigation of likelihood bias that is shown to help on held-back items, or keeps the given judge.

    Candidates are the judge with

    * k demonstrations of highest RS, with LS as a sum and as a mean over tokens (the paper's method);
    * k demonstrations of high RS, half of them likely and overrated, half unlikely and underrated, of matched lengths;
    * k demonstrations in pairs of a likely and an unlikely output that people rated alike;
    * random demonstrations;
    * a likelihood calibration at several strengths, of the given judge and of the one with random demonstrations.

    The choice is ``LikelihoodRule``'s: of the candidates whose likelihood effect is significantly smaller in magnitude
    than the given judge's, and whose performance is shown not to be lower by much, those within one standard error of
    the smallest effect are taken, and of these the one that agrees best with people. Without any, it is
    ``AgreementRule``'s: better agreement with people at no larger effect.

    Demonstrations are drawn from one half of the inputs and tested on the other. A calibration of the given judge needs
    no prompts of its own, so it is fitted on all rated items, and tested on all of them by cross-fitting: every input
    is corrected by a fit on others (``cross_fitted``). The trainset holds human-rated items as for ``BiasedDemos``;
    where no item has several ratings (``ratings``), the z-scored BiasScore takes the place of the effect, which the
    report says.

    Args:
        k: Numbers of demonstrations to try, each at least 2.
        likelihood_lm: Model whose likelihood defines LS. Defaults to the judge's own model. Calibrated candidates need
            the judge's own, because a calibrated judge measures LS wherever it judges.
        bins: Edges that cut human scores into labels; see ``label_of``.
        reduction: Reduction of token log-probabilities to LS, for the measured bias and the calibration.
        normalization: See ``BiasedDemos``.
        max_loss: Fall in performance (Spearman's rho, from 0 to 1) that a smaller bias may cost; a judge is taken if
            the items rule out a larger one. 0 takes only judges that are not significantly worse.
        n_resamples: Swaps of each permutation test.
        seed: Seed for the held-back items, the random demonstrations and the tests.
        progress: Called with the number of judgments done.
    """

    report_type = MitigationReport

    def __init__(
        self,
        k: Sequence[int] = (2, 4, 8),
        *,
        likelihood_lm: MeasuringLM | None = None,
        bins: Sequence[float] | None = None,
        reduction: str = "sum",
        normalization: str = "mean-range",
        max_loss: float = 0.0,
        n_resamples: int = 10_000,
        seed: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(
            likelihood_lm=likelihood_lm,
            bins=bins,
            reduction=reduction,
            normalization=normalization,
            max_loss=max_loss,
            select=True,
            n_resamples=n_resamples,
            seed=seed,
            progress=progress,
        )
        if isinstance(k, int) or not k or min(k) < 2:
            raise ValueError(f"k={k}: give the numbers of demonstrations to try, each at least 2, such as (2, 4, 8).")
        self.k = tuple(k)

    def check(self, student: PointwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """See ``JudgeOptimizer``; also refuses too few rated items."""
        check_rated(trainset, student.criterion, max(self.k))
        super().check(student, trainset, valset)

    def search(self, problem: Problem) -> Outcome:
        """See ``JudgeOptimizer``.

        Raises:
            ValueError: A score that no label fits.
        """
        student = problem.student
        problem.lm = LikelihoodMemo(ChoiceMemo(problem.lm))
        problem.likelihood_lm = problem.lm if self.likelihood_lm is None else self.likelihoods_of(problem.lm)
        rated = rated_items(problem.trainset, student.criterion)
        everything = [*rated, *rated_items(problem.held_back, student.criterion), *problem.valset]
        drawn, pool = draw_demos(rated, max(self.k), seed=self.seed)
        shown = Candidate(f"{max(self.k)} random demonstrations", with_demos(student, drawn, bins=self.bins))
        self.check_likelihoods(problem, pool[0])
        check_demos_fit(shown.program, everything, problem.lm)
        judged = self.judge(problem, shown.program, pool)
        candidates, left_out = [shown], {}
        for name, choose in self._choices(problem, judged, pool):
            try:
                judge = with_demos(student, [pool[i] for i in choose()], bins=self.bins)
                check_demos_fit(judge, everything, problem.lm)
            except (TooFewError, DemosDoNotFitError) as error:
                left_out[name] = str(error)
            else:
                candidates.append(Candidate(name, judge))
        objective = objective_of(judged, seed=self.seed)
        given = Candidate("given", student, {"chosen": "the given judge"})
        name = "likelihood calibration"
        if self.likelihood_lm is None:
            calibrated, given = self._calibrated_given(problem, given, objective)
            with_random = self._calibrated(f"{shown.name} and {name}", shown.program, judged, objective)
            undefined = f"the {objective.label} to take out is undefined"
            left_out |= {
                who: undefined
                for who, found in ((name, calibrated), (f"{shown.name} and {name}", with_random))
                if not found
            }
            candidates += calibrated + with_random
        else:
            left_out[name] = "LS is another model's, which the judge does not ask"
        details = {
            "objective": f"{objective.label}, because {objective.because}",
            "left_out": left_out,
        }
        return Outcome(candidates, given, student, details)

    def beside(self, problem: Problem, outcome: Outcome, answers: Judged) -> dict[str, Any]:
        """Compare what was chosen with likelihood alone and length alone, and run the paper's method on the valset."""
        name = _rs_name(max(self.k), self.reduction)
        papers = [one.program for one in outcome.candidates if one.name == name and problem.valset]
        criterion = problem.student.criterion
        rated, held_back = rated_items(problem.trainset, criterion), rated_items(problem.held_back, criterion)
        facts = baseline_facts(rated, criterion, problem.likelihood_lm, reduction=self.reduction)
        compared = last_items(answers, len(held_back))  # calibrated scores answer all items
        return {
            "paper": self.judge(problem, papers[0], problem.valset) if papers else None,
            **against_baselines(compared, facts, n_resamples=self.n_resamples, seed=self.seed),
        }

    def judgments(self, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example], criterion: Criterion) -> int:
        """Return about how many judgments compiling on these items takes."""
        half = len(rated_items(trainset, criterion)) // 2
        sets = 1 + len(list(self._names()))
        return 2 * half + (1 + sets) * half + 3 * len(valset) + sets * TRIED

    def _names(self) -> Iterator[tuple[str, int, str]]:
        """Yield name, number and kind of every chosen set of demonstrations."""
        for k in self.k:
            for reduction in REDUCTIONS:
                yield _rs_name(k, reduction), k, reduction
        for k in sorted({k - k % 2 for k in self.k}):
            yield f"{k} demonstrations of high RS at both ends", k, "both ends"
            yield f"{k} demonstrations balanced in likelihood", k, "balanced"

    def _choices(
        self, problem: Problem, judged: Judged, pool: Sequence[dspy.Example]
    ) -> Iterator[tuple[str, Callable[[], list[int]]]]:
        """Yield the name of every set of demonstrations with the function that chooses it."""
        human, model = judged.covariate(HUMAN_SCORES), judged.answers
        words = np.array([len(e.output.split()) for e in pool], dtype=np.float64)
        by_reduction = {
            reduction: likelihood_scores(pool, problem.student.criterion, problem.likelihood_lm, reduction=reduction)
            for reduction in REDUCTIONS
        }
        unfairness = unfairness_scores(model, human, normalization=self.normalization)
        signed = {reduction: signed_rs(ls, unfairness) for reduction, ls in by_reduction.items()}
        own = by_reduction[self.reduction]
        for name, k, kind in self._names():
            if kind == "both ends":
                yield name, partial(both_ends, signed[self.reduction], words, k)
            elif kind == "balanced":
                yield name, partial(balanced, own, human, words, k)
            else:
                yield name, partial(highest_rs, signed[kind], k)

    def _calibrated_given(
        self, problem: Problem, given: Candidate, objective: Objective
    ) -> tuple[list[Candidate], Candidate]:
        """Return the given judge calibrated, and as it is, with answers to all rated training items.

        The fit needs no prompts beside those of the given judge, so it takes all items, the held-back ones last; the
        answers that it is tested by are cross-fitted.
        """
        criterion = problem.student.criterion
        everything = [*rated_items(problem.trainset, criterion), *(held := rated_items(problem.held_back, criterion))]
        bare: PointwiseJudge = problem.student.deepcopy()
        bare.likelihood_calibration = None
        judged = self.judge(problem, bare, everything)
        candidates = self._calibrated("likelihood calibration", bare, judged, objective)
        inputs = count(len(set(map(self.input_of, everything))), "training input")
        some = count(len(set(map(self.input_of, held))), "held-back input")
        given = replace(given, answers=self.judge(problem, problem.student, everything), items=some)
        if not candidates:
            return [], given
        answers = cross_fitted(
            judged,
            STRENGTHS,
            objective.slope,
            reduction=self.reduction,
            scale=criterion.scale,
            seed=self.seed,
        )
        where = f"all {inputs}"
        tested = [replace(one, answers=own, items=where) for one, own in zip(candidates, answers, strict=True)]
        return tested, replace(given, items=f"{some} (calibrations of the given judge: on {where})")

    def _calibrated(self, name: str, judge: PointwiseJudge, judged: Judged, objective: Objective) -> list[Candidate]:
        """Return the judge with a likelihood calibration at every strength; none where it cannot be fitted."""
        calibration = fitted(judged, objective.slope, reduction=self.reduction)
        if calibration is None:
            return []
        candidates = []
        for strength in STRENGTHS:
            copy: PointwiseJudge = judge.deepcopy()
            copy.likelihood_calibration = calibration.at(strength)
            candidates.append(Candidate(f"{name} of strength {strength:g}", copy))
        return candidates


def _rs_name(k: int, reduction: str) -> str:
    return f"{k} demonstrations of highest RS ({reduction} LS)"
