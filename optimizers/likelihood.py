"""Mitigation of likelihood bias: demonstrations by RS, calibration, and baselines."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dspy
import numpy as np

from evalbias.data.items import item_name
from evalbias.data.pairing import human_score
from evalbias.evaluation.agreement import surpasses
from evalbias.evaluation.biases import LikelihoodBias
from evalbias.evaluation.estimates import (
    Comparison,
    Estimate,
    Sample,
    compare,
    estimate_value,
    estimates_of,
    measure,
)
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, LIKELIHOODS, Judged, human_scores, judge_examples, total
from evalbias.evaluation.words import count, number
from evalbias.lm.cache import CachedLM, measuring
from evalbias.lm.contract import resolve_lm
from evalbias.lm.types import Choices, MeasuringLM, PromptRefused, RequestRefused
from evalbias.measures import performance_statistic, rs_scores, spearman_rows, unfairness_scores
from evalbias.measures.arrays import FloatArray
from evalbias.measures.likelihood import TOTAL
from evalbias.optimizers.base import JudgeOptimizer, Outcome, Problem
from evalbias.optimizers.demonstrations import (
    TooFewError,
    balanced,
    both_ends,
    draw_demos,
    highest_rs,
    rated_items,
    signed_rs,
    with_demos,
)
from evalbias.optimizers.likelihood_rules import (
    AgreementRule,
    LikelihoodRule,
    Objective,
    cross_fitted,
    fitted,
    last_items,
    objective_of,
)
from evalbias.optimizers.selection import Candidate, CompileReport, Rule
from evalbias.programs.criterion import Criterion
from evalbias.programs.items import read_item
from evalbias.programs.judges import REDUCTIONS, PointwiseJudge, answer_items, likelihood_scores

# Base of the optimizers against likelihood bias: the model of LS, the rule of choice, RS, and checks.


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
            e if isinstance(e, dspy.Example) and math.isnan(human_score(e, name, required=False)) else read_item(e, i)
            for i, e in enumerate(examples)
        ]

    def check(self, student: PointwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """See ``JudgeOptimizer``; all items of the valset are judged, so their texts are checked."""
        super().usable(student, valset)
        super().check(student, trainset, valset)

    def likelihoods_of(self, lm: MeasuringLM) -> CachedLM:
        """Return the model whose likelihood defines LS; every text is asked once."""
        return CachedLM(lm if self.likelihood_lm is None else self.likelihood_lm)

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
        raise DemosDoNotFitError(f"Not even a prompt without demonstrations fits. {first}") from first
    problem = refusal(alone, len(demos))
    if problem is not None:
        count = next(count for count in range(len(demos) - 1, -1, -1) if refusal(alone, count) is None)
        raise DemosDoNotFitError(f"{count} of {len(demos)} demonstrations fit: lower k. {problem}") from problem


# RS demonstrations: show the judge its most biased judgments with the human scores (Ohi et al. 2024, section 2.2).


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
        """Return about how many judgments compiling on these items takes; some that are tried are asked once."""
        rated = len(rated_items(trainset, criterion))
        fit, held_back = (rated - rated // 2, rated // 2) if self.select else (rated, 0)
        tried = min(TRIED, rated + len(valset))
        return max(0, fit - self.k) + 2 * held_back + 2 * len(valset) + 2 * tried


# Baselines of a judge: the likelihood alone and the length alone, taken as scores.


NAMES = {LIKELIHOODS: "likelihood alone", LENGTHS: "length alone"}


def baseline_facts(
    examples: Sequence[dspy.Example], criterion: Criterion, lm: MeasuringLM, *, reduction: str
) -> dict[str, FloatArray]:
    """Return what a baseline is made of, (n,) each: LS in nats, length in characters, Score_h."""
    return {
        LIKELIHOODS: likelihood_scores(examples, criterion, lm, reduction=reduction),
        LENGTHS: np.array([len(e.output) for e in examples], dtype=np.float64),
        HUMAN_SCORES: human_scores(examples, criterion),
    }


def against_baselines(
    judged: Judged, fitted: Mapping[str, FloatArray], *, n_resamples: int, seed: int
) -> dict[str, Any]:
    """Compare a judge's performance with that of likelihood alone and of length alone.

    Args:
        judged: The judge's answers.
        fitted: ``baseline_facts`` of other items, which tell whether more or less of each is better.
        n_resamples: Swaps of each permutation test.
        seed: Seed for tests and intervals.

    Returns:
        The fields ``baselines`` (name -> estimate of the performance) and ``against_baselines`` (a sentence).
    """
    human, clusters = judged.covariate(HUMAN_SCORES), judged.clusters
    performance = performance_statistic(human)
    own = estimate_value(Sample(judged.answers, performance, "performance"))
    samples, unbeaten = {}, []
    for column, name in NAMES.items():
        known = ~np.isnan(fitted[column] + fitted[HUMAN_SCORES])
        sign = np.sign(spearman_rows(fitted[column][known][None], fitted[HUMAN_SCORES][known])[0])
        scores = sign * judged.covariate(column)
        samples[name] = Sample(scores, performance, name)
        if not surpasses(performance, judged.answers, scores, clusters=clusters, n_resamples=n_resamples, seed=seed):
            unbeaten.append(name)
    baselines = estimates_of(samples, seed=seed, clusters=clusters)
    listed = ", ".join(f"{name} {number(baselines[name].value)}" for name in samples)
    sentence = f"Performance on the held-back items: the judge {number(own)}, {listed}."
    if unbeaten:
        sentence += f" The judge is not significantly better than {' or '.join(unbeaten)}: no gain is shown."
    return {"baselines": baselines, "against_baselines": sentence}


# Several mitigations of likelihood bias behind one compiler, which takes the one that is shown to help.


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
        problem.lm = CachedLM(problem.lm)
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


# One task judged on several criteria: each judge is compiled on its own, and all of them and the total compared.


LIKELIHOOD = "likelihood"


@dataclass(frozen=True)
class CompiledCriteria:
    """Judges compiled side by side.

    Attributes:
        judges: Criterion -> compiled judge.
        reports: Criterion -> report of its compilation.
        before: Criterion, and ``total`` where there are several -> the baseline's answers on the valset.
        after: The same of the compiled judges.
        comparisons: The same -> comparison of the likelihood bias.
    """

    judges: dict[str, PointwiseJudge]
    reports: dict[str, CompileReport]
    before: dict[str, Judged]
    after: dict[str, Judged]
    comparisons: dict[str, Comparison]


def compile_each(
    optimizer: LikelihoodOptimizer,
    judges: Sequence[PointwiseJudge],
    *,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
    lm: Any = None,
) -> CompiledCriteria:
    """Compile one judge for each of several criteria of one task.

    Args:
        optimizer: Optimizer for every criterion, with the same settings and seed; LS is measured once for all.
        judges: At least one judge, each of another criterion.
        trainset: See the optimizer.
        valset: Items on which all are compared.
        lm: Model of the judges. Defaults to their own, else DSPy's.

    Raises:
        ValueError: As the optimizer's ``compile``, an empty valset, or one ``score`` for several criteria.
    """
    if not judges or not valset:
        raise ValueError(f"{len(judges)} judges and {len(valset)} validation items: give at least one of each.")
    ambiguous = [e for e in (*trainset, *valset) if "score" in e and e.get("scores") is None]
    if len(judges) > 1 and ambiguous:
        raise ValueError(
            f"The item {item_name(ambiguous[0])!r:.80} has one score for {len(judges)} criteria: give one for each, "
            "scores={CRITERION: NUMBER}."
        )
    optimizer = copy.copy(optimizer)
    models = [resolve_lm(lm, j.predict) for j in judges]
    if optimizer.likelihood_lm is not None:
        optimizer.likelihood_lm = CachedLM(optimizer.likelihood_lm)
    elif all(model is models[0] for model in models):
        lm = CachedLM(models[0])
    compiled = {j.criterion.name: optimizer.compile(j, trainset=trainset, valset=valset, lm=lm) for j in judges}
    reports: dict[str, CompileReport] = {name: judge.report for name, judge in compiled.items()}
    before = {name: report.before for name, report in reports.items() if report.before}
    after = {name: report.after for name, report in reports.items() if report.after}
    comparisons = {name: report.comparison[LIKELIHOOD] for name, report in reports.items()}
    if len(reports) > 1:
        before[TOTAL], after[TOTAL] = total(list(before.values())), total(list(after.values()))
        comparisons[TOTAL] = optimizer.compare(before[TOTAL], after[TOTAL])[LIKELIHOOD]
    return CompiledCriteria(compiled, reports, before, after, comparisons)


def count_answers(
    optimizer: LikelihoodOptimizer,
    criteria: Sequence[Criterion],
    *,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
) -> int:
    """Return about how many answers ``compile_each`` asks for: judgments, and each text's likelihood once."""
    texts = {(e.source, e.output) for e in valset}
    for criterion in criteria:
        texts |= {(e.source, e.output) for e in optimizer.measured(trainset, criterion)}
    return len(texts) + sum(optimizer.judgments(trainset, valset, c) for c in criteria)
