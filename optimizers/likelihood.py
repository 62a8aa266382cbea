"""Methods against likelihood bias: RS demonstrations, a choice among mitigations, and several criteria at once."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any

import dspy
import numpy as np

from evalbias import evaluation
from evalbias.data.items import human_score, input_key, item_name
from evalbias.data.probes import BAR, ORIGINAL
from evalbias.evaluation.agreement import surpasses
from evalbias.evaluation.estimates import Comparison, Estimate, Number
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, LIKELIHOODS, Judged, human_ratings, human_scores, total
from evalbias.evaluation.words import count, signed
from evalbias.lm.cache import CachedLM, resolve_lm
from evalbias.lm.types import MeasuringLM, PromptRefused, RequestRefused
from evalbias.measures import estimate_spearman, pearson, rs_scores, spearman, unfairness_scores
from evalbias.measures.arrays import FloatArray, defined
from evalbias.measures.corrections import ScoreCorrection, Slope
from evalbias.measures.likelihood import TOTAL
from evalbias.optimizers import rules
from evalbias.optimizers.base import JudgeOptimizer, Problem
from evalbias.optimizers.correction import STRENGTHS, cross_fitted
from evalbias.optimizers.objectives import ProbeObjective, objective_rule
from evalbias.optimizers.rules import Rule, fair_rule, last_items, likelihood_rule
from evalbias.optimizers.selection import Candidate, CompileReport, Selection
from evalbias.programs.criterion import Criterion
from evalbias.programs.items import item_label, text_length
from evalbias.programs.judges import REDUCTIONS, answer_items, likelihood_scores
from evalbias.programs.pointwise import LIKELIHOOD, PointwiseJudge

BASELINES = {LIKELIHOODS: "likelihood alone", LENGTHS: "length alone"}
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
        dspy.Example(**judge.own(e), score=item_label(e, student.criterion, bins=bins)) for e in examples
    ]
    return judge


class UnusableDemosError(ValueError):
    """There are too few items of one kind to choose demonstrations from, or they do not fit the model's context."""


def check_demos_fit(judge: PointwiseJudge, examples: Sequence[dspy.Example], lm: MeasuringLM) -> None:
    """Refuse demonstrations with which one of the longest items exceeds the model's context, and say how many fit.

    An item that the model cannot take even without demonstrations is undefined anyway, and says nothing of them.
    """
    longest = sorted(examples, key=lambda e: sum(map(len, judge.own(e).values())))[-TRIED:]
    model = judge.measuring(lm)
    demos, trial = judge.predict.demos, judge.deepcopy()

    def refusal(items: Sequence[dspy.Example], k: int) -> PromptRefused | RequestRefused | None:
        trial.predict.demos = demos[:k]
        questions = [trial.question(e) for e in items]
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
    refused = refusal(alone, len(demos))
    if refused is not None:
        fitting = next(k for k in range(len(demos) - 1, -1, -1) if refusal(alone, k) is None)
        raise UnusableDemosError(f"{fitting} of {len(demos)} demonstrations fit: lower k. {refused}") from refused


# The paper's choice: the items of highest RS.


def highest_rs(rs: FloatArray, k: int) -> list[int]:
    """Return the k items (n,) of largest RS, ascending as in the paper (Ohi et al. 2024, section 2.2)."""
    usable = np.flatnonzero(np.isfinite(rs))
    if len(usable) < k:
        raise UnusableDemosError(f"RS is defined for only {len(usable)} items: {k} demonstrations cannot be chosen.")
    top = usable[np.argsort(-rs[usable], kind="stable")[:k]]
    return [int(i) for i in top[::-1]]


# The methods.


@dataclass(kw_only=True, eq=False, repr=False)
class LikelihoodOptimizer(JudgeOptimizer):
    """Base of the methods against likelihood bias of a pointwise judge: LS, what is read of an item, and the rules.

    It also takes the options of every optimizer; see ``JudgeOptimizer``.

    Args:
        likelihood_lm: Model whose likelihood defines LS. Defaults to the judge's own model.
        bins: Edges that cut human scores into labels; see ``label_of``. By default they are on the criterion's scale.
        reduction: Reduction of token log-probabilities to LS: ``"sum"`` (eq 1) or ``"mean"``.
    """

    compiles = (PointwiseJudge,)
    biases = ("likelihood",)
    max_loss = 0.0

    likelihood_lm: MeasuringLM | None = None
    bins: Sequence[float] | None = None
    reduction: str = "sum"
    k: int | Sequence[int] = field(init=False)

    def read(self, student: PointwiseJudge, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Return the examples; the texts of one without a human score are not read, and may be empty."""
        name = student.criterion.name
        return [
            e
            if isinstance(e, dspy.Example) and math.isnan(human_score(e, name, required=False))
            else student.read(e, i)
            for i, e in enumerate(examples)
        ]

    def check(self, student: PointwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """Refuse fewer than 2k + 2 rated items (k random and k chosen demonstrations), and equal scores."""
        k, name, rated = self.most_demos, student.criterion.name, rated_items(trainset, student.criterion)
        if len(rated) < 2 * k + 2:
            raise ValueError(
                f"{len(rated)} of {len(trainset)} training items have a score on {name}: k={k} random and chosen "
                f"demonstrations need at least {2 * k + 2}."
            )
        scores = {human_score(e, name) for e in rated}
        if len(scores) == 1:
            raise ValueError(
                f"All {len(rated)} rated training items have the score {scores.pop():g} on {name}: with equal ratings "
                "no judgment is more biased than another. Give items of different quality."
            )
        super().read(student, valset)  # all items of the valset are judged, so their texts are checked
        super().check(student, trainset, valset)

    @property
    def most_demos(self) -> int:
        return self.k if isinstance(self.k, int) else max(self.k)

    def rules(self, problem: Problem) -> list[Rule]:
        """Less likelihood bias, or else better agreement."""
        name = self.number(problem)
        return [likelihood_rule(name, max_loss=self.max_loss, seed=self.seed), fair_rule(name, seed=self.seed)]

    def number(self, problem: Problem) -> str:
        """Return the name of the number that says the bias of all rated items; see ``bias_number``."""
        return rules.bias_number(human_ratings([*problem.fit, *problem.held_back], problem.student.criterion))

    def answers(self, problem: Problem, judge: PointwiseJudge, examples: Sequence[dspy.Example]) -> Judged:
        """Have a judge answer examples, with their LS as a covariate."""
        return evaluation.judge_examples(
            judge,
            examples,
            lm=problem.lm,
            likelihood_lm=problem.likelihood_lm,
            reduction=self.reduction,
            progress=self.progress,
        )

    def validate(self, problem: Problem, selection: Selection) -> dict[str, Any]:
        """Also say beside the choice how well likelihood itself agrees with people on the held-back items."""
        fields = super().validate(problem, selection)
        if selection.answers is not None and LIKELIHOODS in selection.answers.covariates:
            held_back = last_items(selection.answers, len(problem.held_back))  # calibrated scores answer all items
            worth = rules.proxy_worth(held_back, LIKELIHOODS, LIKELIHOOD)
            fields["decision"] = f"{selection.decision} {worth}"
        return fields

    def prepare(self, problem: Problem) -> None:
        """Keep the rated items alone, and refuse a model that reports no likelihoods before a judgment is paid for."""
        criterion = problem.student.criterion
        problem.likelihood_lm = problem.lm if self.likelihood_lm is None else CachedLM(self.likelihood_lm)
        problem.fit = rated_items(problem.fit, criterion)
        problem.held_back = rated_items(problem.held_back, criterion)
        likelihood_scores(problem.fit[-1:], criterion, problem.likelihood_lm, reduction=self.reduction)

    def showing(self, problem: Problem, examples: Sequence[dspy.Example]) -> PointwiseJudge:
        """Return the judge with demonstrations; refuse some with which a prompt exceeds the model's context."""
        judge = with_demos(problem.student, examples, bins=self.bins)
        check_demos_fit(judge, [*problem.fit, *problem.held_back, *problem.valset], problem.lm)
        return judge


@dataclass(frozen=True, kw_only=True, repr=False)
class BiasedDemosReport(CompileReport):
    """Report of ``BiasedDemos``."""

    train: Judged  # all training items with a human score but the random demonstrations, judged under those
    unfairness: FloatArray  # (n,) US as RS uses it (eq 2); with an objective the effect of an edit, in points
    rs: FloatArray  # (n,) RS (eq 6), in [0, 2], or the largest effect of an edit; NaN where a score is undefined
    demonstrations: tuple[str, ...]  # ids of the chosen demonstrations, in the order shown
    demonstration_words: tuple[int, ...]  # in the output of each; the sum in LS favors long outputs
    mean_words: float  # mean number of words of the measured items' outputs
    random: tuple[str, ...]  # ids of the random demonstrations of the baseline
    unrated: int  # number of training items without a human score
    undefined: int  # number of measured items whose RS is NaN


@dataclass(eq=False, repr=False)
class BiasedDemos(LikelihoodOptimizer):
    """Compiles a judge with the k training items of highest RS as demonstrations (Ohi et al. 2024, section 2.2).

    The trainset holds human-rated items, at least 2k + 2 of them with a defined score on the judge's criterion, in
    ``scores`` (criterion -> number) or as ``score``; twice as many where half of them are held back. RS comes from the
    judge with k random demonstrations, the paper's baseline, which are not shown again. On the valset the result is
    compared with this baseline where ``select=False``, the paper's method, otherwise with the judge that was given.
    With an ``objective``, the demonstrations are the k items that an edit moves most, with this edit; the random ones
    compete with them, and a judge is better if edits move it less on held-back items. It also takes the options of
    ``LikelihoodOptimizer`` and of every optimizer.

    Args:
        k: Number of demonstrations, at least 1 (the paper: 8).
        objective: Probe to search against, such as ``ProbeObjective("authority")``, in the place of likelihood.
    """

    report_type = BiasedDemosReport
    k: int = 8
    _: KW_ONLY
    objective: ProbeObjective | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k={self.k}: at least one demonstration must be chosen.")

    def prepare(self, problem: Problem) -> None:
        items = len(problem.fit) + len(problem.held_back)
        super().prepare(problem)
        problem.details["unrated"] = items - len(problem.fit) - len(problem.held_back)

    def candidates(self, problem: Problem) -> list[Candidate]:
        # 1. k random demonstrations make the paper's baseline, under which all other rated items are judged.
        random, pool = draw_demos(problem.fit, self.k, seed=self.seed)
        baseline = self.showing(problem, random)
        train = self.answers(problem, baseline, pool)
        if not self.select:
            problem.given = Candidate("the paper's baseline", baseline)
        if self.objective is None:
            # 2. US = Score_m - Score_h, both normalized (eq 2); RS = |LS* + US*| (eq 6), NaN where one is undefined.
            likelihoods, human = train.covariate(LIKELIHOODS), train.covariate(HUMAN_SCORES)
            model = np.where(np.isnan(likelihoods), np.nan, train.answers)
            unfairness = unfairness_scores(model, human)
            rs, offered, most = rs_scores(likelihoods, unfairness), pool, f"highest RS among {len(pool)} items"
        else:
            # 2. Against a probe, the largest difference of an edit and its placebo stands in the place of both.
            rows = self.objective.searched(pool, problem.student.criterion.scale)
            judged = JudgeOptimizer.answers(self, problem, baseline, rows)
            answers = judged.answers.reshape(len(pool), -1)  # (n, 1 + 2 edits)
            effects = answers[:, 1::2] - answers[:, 2::2]
            largest = np.argmax(np.nan_to_num(np.abs(effects), nan=-1.0), axis=1)
            unfairness = effects[np.arange(len(pool)), largest]
            edited = [rows[i * answers.shape[1] + 1 + 2 * kind] for i, kind in enumerate(largest)]
            offered = [e.copy(output=row.output) for e, row in zip(pool, edited, strict=True)]
            rs, most = np.abs(unfairness), f"the {len(pool)} items that edits move most, edited"
        # 3. The k items of highest RS are shown with their human scores, ascending as in the published code.
        chosen = [offered[i] for i in highest_rs(rs, self.k)]
        biased = Candidate(f"the {self.k} demonstrations of {most}", self.showing(problem, chosen), kind="chosen")
        problem.details |= {
            "train": train,
            "unfairness": unfairness,
            "rs": rs,
            **_shown_items(chosen),
            "mean_words": float(np.mean([len(e.output.split()) for e in pool])),
            "random": tuple(item_name(e) for e in random),
            "undefined": int(np.isnan(rs).sum()),
        }
        others = [Candidate(f"{self.k} random demonstrations", baseline, _shown_items(random))]
        return [biased, *(others if self.objective else [])]

    def rules(self, problem: Problem) -> list[Rule]:
        """Against a probe: edits move the judge less, at no lower agreement with people on the items as they are."""
        if self.objective is None:
            return super().rules(problem)

        def lost(judged: Judged, before: Judged) -> str:
            kept = np.flatnonzero([f"{BAR}{ORIGINAL}{BAR}" in name for name in before.ids])  # the items as they are
            return rules.lost_agreement(judged.take(kept), before.take(kept), max_loss=0.0, seed=self.seed)

        at = " at no significant loss of agreement"
        return [objective_rule(self.objective, seed=self.seed, keeps=(lost,), at=at)]

    def tested(self, problem: Problem, program: PointwiseJudge) -> Judged:
        """Have a judge answer the held-back items, against a probe with each edit and placebo."""
        if self.objective is None:
            return super().tested(problem, program)
        rows = self.objective.searched(problem.held_back, problem.student.criterion.scale)
        return JudgeOptimizer.answers(self, problem, program, rows)


def _shown_items(items: Sequence[dspy.Example]) -> dict[str, Any]:
    words = tuple(len(e.output.split()) for e in items)
    return {"demonstrations": tuple(map(item_name, items)), "demonstration_words": words}


def baseline_facts(
    examples: Sequence[dspy.Example], criterion: Criterion, lm: MeasuringLM, *, reduction: str
) -> dict[str, FloatArray]:
    """Return what a baseline is made of, (n,) each: LS in nats, length in characters, Score_h."""
    return {
        LIKELIHOODS: likelihood_scores(examples, criterion, lm, reduction=reduction),
        LENGTHS: np.array([text_length(e.output) for e in examples], dtype=np.float64),
        HUMAN_SCORES: human_scores(examples, criterion),
    }


def against_baselines(
    judged: Judged, facts: Mapping[str, FloatArray], *, n_resamples: int, seed: int
) -> dict[str, Any]:
    """Return report fields that compare a judge's performance with that of likelihood alone and of length alone.

    ``facts`` are ``baseline_facts`` of other items, which tell whether more or less of each is better.
    """
    human, clusters = judged.covariate(HUMAN_SCORES), judged.clusters
    performance = Number("performance", "performance", judged.answers, estimate_spearman, columns=(human,))
    baselines, unbeaten = {}, []
    for column, name in BASELINES.items():
        scores = np.sign(spearman(facts[column], facts[HUMAN_SCORES]).value) * judged.covariate(column)
        baselines[name] = replace(performance, name=name, label=name, values=scores).estimate(clusters, seed=seed)
        if not surpasses(performance, scores, clusters=clusters, n_resamples=n_resamples, seed=seed):
            unbeaten.append(name)
    listed = ", ".join(f"{name} {signed(estimate.value)}" for name, estimate in baselines.items())
    sentence = f"Performance on the held-back items: the judge {signed(performance.value())}, {listed}."
    if unbeaten:
        sentence += f" The judge is not significantly better than {' or '.join(unbeaten)}: no gain is shown."
    return {"baselines": baselines, "against_baselines": sentence}


@dataclass(frozen=True, kw_only=True, repr=False)
class MitigationReport(CompileReport):
    """Report of ``LikelihoodMitigation``."""

    objective: str  # name of the estimate that is brought to 0, and why it is this one
    # Answers on the valset with the largest k demonstrations of highest RS (the paper's method); None without either.
    paper: Judged | None
    baselines: Mapping[str, Estimate]  # "likelihood alone", "length alone" -> its performance on the held-back items
    against_baselines: str  # whether the compiled judge agrees with people better than each baseline, in a sentence


@dataclass(eq=False, repr=False)
class LikelihoodMitigation(LikelihoodOptimizer):
    """Compiles the mitigation of likelihood bias that is shown to help on held-back items, or keeps the given judge.

    Candidates are the judge with

    * k demonstrations of highest RS, with LS as a sum and as a mean over tokens (the paper's method);
    * random demonstrations;
    * a likelihood calibration at several strengths, of the given judge and of the one with random demonstrations.

    ``likelihood_rule`` looks for a smaller likelihood effect at no loss of agreement; without any,
    ``fair_rule`` for better agreement with people at no larger effect. Demonstrations are drawn from one half
    of the inputs and tested on the other; calibrations of the given judge are fitted and tested on all rated items
    (``cross_fitted``). The trainset is as for ``BiasedDemos``; where no item has several ratings (``ratings``), the
    z-scored BiasScore takes the place of the effect, which the report says.

    It also takes the options of ``LikelihoodOptimizer`` and of every optimizer, and always chooses (``select``). With a
    ``likelihood_lm`` no candidate is calibrated, because a calibrated judge measures LS wherever it judges.

    Args:
        k: Numbers of demonstrations to try, each at least 2.
        max_loss: Fall in agreement (Pearson's r, from 0 to below 1) that a smaller bias may cost; a judge is taken
            if the items rule out a larger one. 0 takes only judges that are not significantly worse.
    """

    report_type = MitigationReport
    counts_distinct = True

    k: Sequence[int] = (2, 4, 8)
    _: KW_ONLY
    max_loss: float = 0.0

    def __post_init__(self) -> None:
        if not self.select:
            raise ValueError("select=False: LikelihoodMitigation always chooses; BiasedDemos has a bare form.")
        if not 0 <= self.max_loss < 1:
            raise ValueError(f"max_loss={self.max_loss}: give a fall in agreement from 0 to below 1, such as 0.05.")
        if isinstance(self.k, int) or not self.k or min(self.k) < 2:
            raise ValueError(
                f"k={self.k}: give the numbers of demonstrations to try, each at least 2, such as (2, 4, 8)."
            )
        self.k = tuple(self.k)

    def candidates(self, problem: Problem) -> list[Candidate]:
        name = self.number(problem)
        # 1. Random demonstrations, under which all other rated items are judged.
        demos, pool = draw_demos(problem.fit, self.most_demos, seed=self.seed)
        random = Candidate(f"{self.most_demos} random demonstrations", self.showing(problem, demos))
        judged, candidates = self.answers(problem, random.program, pool), [random]
        # 2. Demonstrations of highest RS, with LS as a sum and as a mean.
        human, criterion, lm = judged.covariate(HUMAN_SCORES), problem.student.criterion, problem.likelihood_lm
        unfairness = unfairness_scores(judged.answers, human)
        rs = {
            reduction: rs_scores(likelihood_scores(pool, criterion, lm, reduction=reduction), unfairness)
            for reduction in REDUCTIONS
        }
        for k, reduction in itertools.product(self.k, REDUCTIONS):
            title = _rs_name(k, reduction)
            try:
                chosen = highest_rs(rs[reduction], k)
                candidates.append(Candidate(title, self.showing(problem, [pool[i] for i in chosen])))
            except UnusableDemosError as error:
                problem.left_out[title] = str(error)
        # 3. Calibrations of the given judge, which all rated items fit and test, and of the one with random ones.
        alone, both = "likelihood calibration", f"{random.name} and likelihood calibration"
        if self.likelihood_lm is None:
            for title, strengths in (
                (alone, self._calibrated_given(problem, name, alone)),
                (both, _at_strengths(both, random.program, fitted(judged, name, reduction=self.reduction))),
            ):
                candidates += strengths
                if not strengths:
                    problem.left_out[title] = f"the {rules.BIAS_LABELS[name]} to take out is undefined"
        else:
            problem.left_out[alone] = "LS is another model's, which the judge does not ask"
        # 4. The paper's method answers the valset, for the report.
        papers = _rs_name(self.most_demos, self.reduction)
        paper = next((candidate.program for candidate in candidates if candidate.name == papers), None)
        problem.details = {
            "objective": f"{rules.BIAS_LABELS[name]}, because {rules.REASONS[name]}",
            "paper": self.answers(problem, paper, problem.valset) if paper and problem.valset else None,
        }
        return candidates

    def validate(self, problem: Problem, selection: Selection) -> dict[str, Any]:
        """Also compare what was chosen with likelihood alone and length alone, on the held-back items."""
        assert selection.answers is not None
        compared = last_items(selection.answers, len(problem.held_back))
        criterion, lm = problem.student.criterion, problem.likelihood_lm
        facts = baseline_facts(problem.fit, criterion, lm, reduction=self.reduction)
        beside = against_baselines(compared, facts, n_resamples=self.n_resamples, seed=self.seed)
        return {**super().validate(problem, selection), **beside}

    def _calibrated_given(self, problem: Problem, name: str, title: str) -> list[Candidate]:
        """Return the given judge calibrated, with cross-fitted answers to all rated items, the held-back ones last."""
        everything = [*problem.fit, *problem.held_back]
        bare: PointwiseJudge = problem.student.deepcopy()
        bare.correction = None
        judged = self.answers(problem, bare, everything)
        fit = partial(fitted, name=name, reduction=self.reduction)
        candidates = _at_strengths(title, bare, fit(judged))
        inputs, held_back = (len(set(map(input_key, items))) for items in (everything, problem.held_back))
        on_all, where = f"all {count(inputs, 'training input')}", count(held_back, "held-back input")
        if candidates and problem.held_back:
            where += f" (calibrations of the given judge: on {on_all})"
        problem.given = replace(problem.given, answers=self.answers(problem, problem.student, everything), items=where)
        if not candidates:
            return []
        features = {LIKELIHOOD: judged.covariate(LIKELIHOODS)}
        answers = cross_fitted(judged, features, fit, scale=bare.criterion.scale, seed=self.seed)
        return [replace(c, answers=own, items=on_all) for c, own in zip(candidates, answers, strict=True)]


def slope(name: str, judged: Judged) -> float:
    """Return the change in the score for one standard deviation of LS that is bias, in standard deviations."""
    if name == rules.EFFECT:
        return rules.bias_value(rules.EFFECT, judged)
    columns = [judged.covariate(LIKELIHOODS), judged.answers, judged.covariate(HUMAN_SCORES)]
    ls, model, human = (column[defined(*columns)] for column in columns)
    return pearson(model, ls).value - pearson(human, ls).value


def fitted(judged: Judged, name: str, *, reduction: str) -> list[ScoreCorrection]:
    """Fit a likelihood calibration at every strength to scores of a judge without one; none if the bias is undefined.

    ``name`` is the number that says the bias (``bias_number``), ``reduction`` that by which LS was computed.
    """
    bias = slope(name, judged)
    if np.isnan(bias):
        return []
    kept = defined(judged.covariate(LIKELIHOODS), judged.answers)
    ls, scores = judged.covariate(LIKELIHOODS)[kept], judged.answers[kept]
    full = Slope(float(bias * scores.std() / ls.std()), float(ls.mean()), (float(ls.min()), float(ls.max())))
    return [ScoreCorrection({LIKELIHOOD: full}, reduction=reduction).at(strength) for strength in STRENGTHS]


def _at_strengths(title: str, judge: PointwiseJudge, corrections: Sequence[ScoreCorrection]) -> list[Candidate]:
    """Return the judge with a correction of every strength; nothing without corrections."""
    candidates = []
    for strength, correction in zip(STRENGTHS, corrections, strict=False):
        candidates.append(Candidate(f"{title} of strength {strength:g}", judge.deepcopy()))
        candidates[-1].program.correction = correction
    return candidates


def _rs_name(k: int, reduction: str) -> str:
    return f"{k} demonstrations of highest RS ({reduction} LS)"


@dataclass(frozen=True)
class CompiledCriteria:
    """Judges compiled side by side."""

    judges: dict[str, PointwiseJudge]  # criterion -> compiled judge
    reports: dict[str, CompileReport]  # criterion -> report of its compilation
    before: dict[str, Judged]  # criterion, and "total" of several -> the baseline's answers on the valset
    after: dict[str, Judged]  # the same of the compiled judges
    comparisons: dict[str, Comparison]  # the same -> comparison of the likelihood bias


def compile_each(
    optimizer: LikelihoodOptimizer,
    judges: Sequence[PointwiseJudge],
    *,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
    lm: Any = None,
) -> CompiledCriteria:
    """Compile one or more judges, each of another criterion of one task, with the same settings and seed.

    LS is measured once for all. The arguments are those of the optimizer's ``compile``; ``ValueError`` as there, and
    for an empty valset, or items with one ``score`` for several criteria.
    """
    if not judges or not valset:
        raise ValueError(f"{len(judges)} judges and {len(valset)} validation items: give at least one of each.")
    ambiguous = [e for e in (*trainset, *valset) if "score" in e and e.get("scores") is None]
    if len(judges) > 1 and ambiguous:
        raise ValueError(
            f"The item {item_name(ambiguous[0])!r:.80} has one score for {len(judges)} criteria: give one for each, "
            "scores={CRITERION: NUMBER}."
        )
    # 1. One memory of likelihoods for all compilations, where they ask the same model.
    optimizer = copy.copy(optimizer)
    models = [resolve_lm(lm, j.predict) for j in judges]
    if optimizer.likelihood_lm is not None:
        optimizer.likelihood_lm = CachedLM(optimizer.likelihood_lm)
    elif all(model is models[0] for model in models):
        lm = CachedLM(models[0])
    # 2. Each judge is compiled on its own.
    compiled = {j.criterion.name: optimizer.compile(j, trainset=trainset, valset=valset, lm=lm) for j in judges}
    reports: dict[str, CompileReport] = {name: judge.report for name, judge in compiled.items()}
    # 3. The total averages the scores of all criteria.
    before = {name: report.before for name, report in reports.items() if report.before}
    after = {name: report.after for name, report in reports.items() if report.after}
    comparisons = {name: report.comparison["likelihood"] for name, report in reports.items()}
    if len(reports) > 1:
        before[TOTAL], after[TOTAL] = total(list(before.values())), total(list(after.values()))
        comparisons[TOTAL] = optimizer.compare(before[TOTAL], after[TOTAL])["likelihood"]
    return CompiledCriteria(compiled, reports, before, after, comparisons)
