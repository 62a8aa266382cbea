"""The tables of the fairness paper (Zhou et al. 2024) for any judge model, with its baselines.

usage: python -m benchmarks.fairness_search --lm MODEL [--dtype bfloat16] [--proposer-lm MODEL]
           [--sets synthetic newsroom summeval topicalchat] [--search-documents N] [--test-documents N] [--pairs N]
           [--labeled] [--debiased] [--places last first] [--encoder MODEL --layers N] [--curve-wordings N]
           [--longest-source CHARACTERS] [--criteria NAME ...] [--orders N] [--out DIR] [--write] [--title TEXT]

The data are read from EVALBIAS_DATA. The search and the ranking use different documents, by default as many for the
search as the paper (of TopicalChat's 60 dialogues, half), and all ordered pairs of them. ``--labeled`` adds MIPROv2 and
GEPA, which use human preferences on the documents of the search; where the wordings come from the grammar, theirs do
too, so that the searches differ only in how they choose. ``--debiased`` adds a search on decisions averaged over both
orders. All methods are run with the instruction in the first of ``--places``, by default last, as in the paper, but
first for the embedded judge; a second one adds ZEPO's rows with the instruction there. Rankings are averaged over 100
random orders (``--orders``), as in the paper's code. The answers of the model go to ``--out``, so that a stopped run
continues.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from dspy import lm15
from dspy.utils.callback import BaseCallback

from benchmarks import sets
from benchmarks.harness import argument_parser, as_text, finish, judge_of, keeping_answers, markdown
from evalbias import data
from evalbias.cli.models import open_lm
from evalbias.data import by_input, pairs, world
from evalbias.evaluation import Measurement, compare_with_baselines, measure_ranking
from evalbias.evaluation.answers import instruction_place_for
from evalbias.evaluation.rankings import ORDER_SD, PUBLISHED_ORDERS
from evalbias.evaluation.words import count, mark
from evalbias.lm.cache import measuring, model_identity, resolve_lm
from evalbias.measures import decision_rates, spearman
from evalbias.optimizers import ZEPO
from evalbias.optimizers.objectives import (
    CalibrationGap,
    Confidence,
    ContextFreeConfidence,
    DebiasedFairness,
    Fairness,
    judged_in_order,
    probabilities,
    reworded,
)
from evalbias.optimizers.proposers import GrammarParaphraser, LMParaphraser, Proposer
from evalbias.optimizers.zepo import ZEPOReport
from evalbias.options import MeasuringModels
from evalbias.programs import SYNTHETIC, Criterion, PairwiseJudge, PairwiseRanker, PointwiseJudge, preference_accuracy
from evalbias.programs.criterion import PRESETS
from evalbias.programs.judges import likelihood_scores

JUDGES = ("Mistral-7B", "Llama-3-8B")

SPEARMAN: dict[str, dict[str, tuple[str, str]]] = {
    "newsroom": {
        "coherence": (".33 -> .47", ".49 -> .57"),
        "relevance": (".40 -> .38", ".51 -> .54"),
        "informativeness": (".19 -> .44", ".46 -> .55"),
        "fluency": (".19 -> .48", ".45 -> .56"),
    },
    "summeval": {
        "coherence": (".06 -> .29", ".24 -> .40"),
        "fluency": (".01 -> .13", ".12 -> .25"),
        "consistency": (".07 -> .32", ".30 -> .30"),
        "relevance": (".16 -> .30", ".21 -> .39"),
    },
}
"""Data set -> criterion -> Spearman of the two judges in ``JUDGES``, initial instruction -> ZEPO."""

ROWS = {"initial": ".48", "initial + permutation": ".61", "searched": ".56", "searched + permutation": ".64"}
"""Judge -> Spearman on Newsroom with Llama-3-8B, averaged over the four criteria."""

PUBLISHED_OBJECTIVES = {
    "fairness": ".75",
    "calibration": "weaker",
    "confidence": "poor",
    "context-free confidence": ".36",
}
"""Objective -> correlation with agreement over instructions, or the paper's word where it prints no number."""

DEBIASED = ".495 to .51, .26 to .43"
"""Range of decision rates and of Spearman over wordings after debiasing (Llama-3-8B, coherence, SummEval; figure 4)."""

FEWEST_WORDINGS = 8
"""Fewest wordings over which a correlation or a fit is printed: of three, a third of all orders give 1 or -1."""

PROMPTS = 60_000
"""Number of judge prompts that the published code needs for one criterion of SummEval."""


def direct(criterion: Criterion, items: Sequence[dspy.Example], lm: Any) -> np.ndarray:
    """Return (n,) most probable labels, the paper's direct scoring (Zhou et al. 2024, appendix A)."""
    return np.array([p.mode for p in PointwiseJudge(criterion).batch(items, lm=lm)])


def g_eval(criterion: Criterion, items: Sequence[dspy.Example], lm: Any) -> np.ndarray:
    """Return (n,) expected scores under the probabilities of the labels (Liu et al., 2023)."""
    return np.array([p.score for p in PointwiseJudge(criterion).batch(items, lm=lm)])


def gpt_score(criterion: Criterion, items: Sequence[dspy.Example], lm: Any) -> np.ndarray:
    """Return (n,) mean log-likelihoods per token of the output (Fu et al., 2023).

    The task that precedes the output asks for one that is good on the aspect, so that aspects differ in their scores.
    """
    aspect = f"The {criterion.output_label.lower()} should be as good as possible on {criterion.title}"
    task = f"{criterion.task} {aspect}: {criterion.definition}"
    return likelihood_scores(items, replace(criterion, task=task), lm, reduction="mean")


class BERTScore:
    """BERTScore F1 of the output against its source (Zhang et al., 2020).

    Args:
        encoder: Folder or name of the encoder.
        layers: Number of the encoder's layers to use.
    """

    def __init__(self, encoder: str, layers: int) -> None:
        from bert_score import BERTScorer

        self._scorer = BERTScorer(model_type=encoder, num_layers=layers)

    def __call__(self, criterion: Criterion, items: Sequence[dspy.Example], lm: Any) -> np.ndarray:
        """Return (n,) scores, which do not depend on the criterion."""
        _, _, f1 = self._scorer.score([e.output for e in items], [e.source for e in items])
        return f1.numpy().astype(np.float64)


class Counter(BaseCallback):
    """Counter of the calls of one model."""

    def __init__(self, lm: Any) -> None:
        self._lm = lm
        self.calls = 0

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Count a call."""
        self.calls += instance is self._lm


CANDIDATES, TRIALS = 10, 15  # of MIPROv2: proposed instructions, and trials
LABELED = {"MIPROv2 (labels)": dspy.MIPROv2, "GEPA (labels)": dspy.GEPA}


def compiled(
    name: str,
    judge: PairwiseJudge,
    train: list[dspy.Example],
    val: list[dspy.Example],
    *,
    lm: Any,
    writer: Any,
    seed: int,
    budget: int,
) -> tuple[PairwiseJudge, int]:
    """Compile a judge by one of ``LABELED``; return it and the number of judgments.

    The writer proposes instructions, which are chosen by accuracy on the validation pairs; GEPA has a budget.
    """
    counter, sets = Counter(lm), {"trainset": list(train), "valset": list(val)}

    def metric(example: Any, prediction: Any, *_: Any) -> Any:
        score = preference_accuracy(example, prediction)
        return dspy.Prediction(score=score, feedback=f"People prefer {example.preference}: the answer scores {score}.")

    with dspy.context(lm=lm, callbacks=[counter]), redirect_stdout(sys.stderr):  # stdout is for results, not progress
        better: PairwiseJudge
        if LABELED[name] is dspy.MIPROv2:
            models = {"prompt_model": writer, "task_model": lm, "num_candidates": CANDIDATES, "num_threads": 1}
            optimizer = dspy.MIPROv2(preference_accuracy, auto=None, seed=seed, **models)
            counts = {"num_trials": TRIALS, "max_bootstrapped_demos": 0, "max_labeled_demos": 0}
            better = optimizer.compile(judge.deepcopy(), **sets, minibatch=False, **counts)
        else:
            options = {"reflection_lm": writer, "num_threads": 1, "use_merge": False, "seed": seed}
            better = dspy.GEPA(metric, max_metric_calls=budget, **options).compile(judge.deepcopy(), **sets)
    return better, counter.calls


FIELD = re.compile(r"\[\[ ## (\w+) ## \]\]")
JSON_FIELD = re.compile(r"`(\w+)`")


class GrammarEngine:
    """Engine that answers every request with the next wording."""

    def __init__(self, proposer: GrammarParaphraser, criterion: Criterion) -> None:
        self._wordings = (
            text for seed in itertools.count() for text in proposer(criterion, "", 1, known=(), seed=seed).instructions
        )

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the next wording as the value of every requested field, in the format of DSPy's adapter."""
        output_format = (request.messages[-1].text or "").rpartition("Respond with")[2]
        wording = next(self._wordings)
        if "JSON object" in output_format:
            answer = json.dumps(dict.fromkeys(JSON_FIELD.findall(output_format), wording))
        else:
            fields = [name for name in FIELD.findall(output_format) if name != "completed"]
            text = "".join(f"[[ ## {name} ## ]]\n{wording}\n\n" for name in dict.fromkeys(fields))
            answer = f"{text}[[ ## completed ## ]]"
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(answer),
            finish_reason="stop",
            usage=lm15.Usage(input_tokens=0, output_tokens=0, total_tokens=0),
        )

    def dump_state(self) -> dict[str, Any]:
        """Return an empty state: the engine has none."""
        return {}


def grammar_writer(proposer: GrammarParaphraser, criterion: Criterion) -> dspy.LM:
    """Return the writer as a DSPy language model."""
    return dspy.LM("local/grammar", engine=GrammarEngine(proposer, criterion), cache=False)


OBJECTIVES = (Fairness(), CalibrationGap(), Confidence(), ContextFreeConfidence())
SCORERS: dict[str, Callable[..., Any]] = {
    "direct scoring": direct,
    "G-Eval (expected score)": g_eval,
    "GPTScore (LS per token)": gpt_score,
}
TITLES = {
    "initial": "pairwise + PairS",
    "initial + permutation": "pairwise + permutation",
    "searched": "ZEPO",
    "searched + permutation": "ZEPO + permutation",
}


@dataclass(frozen=True)
class Settings:
    """Settings of all methods."""

    proposer: Proposer  # of ZEPO's wordings
    writer: Any  # LM that proposes instructions in DSPy's optimizers; None leaves these out
    bert_score: Callable[..., Any] | None  # None leaves this baseline out
    pairs: int | None  # largest number of pairs in a search and in a measurement; None takes all
    curve: int | None  # number of tried wordings to rank with, for the curve; None takes all
    seed: int
    instruction_place: str  # in the prompt of judges that compare: last or first
    plain_lm: Any = None  # the judges' model without kept answers, which DSPy's optimizers ask
    orders: int = 1  # random initial orders of a ranking, over which agreement is averaged

    def judge(self, criterion: Criterion, **options: Any) -> PairwiseJudge:
        """Return a new judge that compares."""
        return PairwiseJudge(criterion, instruction_place=self.instruction_place, **options)


@dataclass(frozen=True)
class Outcome:
    """One method on the test documents."""

    spearman: float  # Spearman's rho with people, mean over the documents where it is defined
    documents: int  # number of these
    undefined: int  # number of the others
    decision_rate: float | None = None  # win rate of the first position; None where the method does not compare
    p_value: float | None = None  # of the test against pairwise + PairS; None where there was none
    deviation: float | None = None  # standard deviation of Spearman's rho over the initial orders; None of one order


@dataclass(frozen=True)
class CurvePoint:
    """One instruction on rated documents."""

    instruction: str
    decision_rate: float  # win rate of the first position, in [0, 1]
    agreement: float  # mean Spearman of the rankings with people
    objectives: Mapping[str, float]  # by name, of ``OBJECTIVES``


def sensitivity_curve(
    judge: PairwiseJudge,
    instructions: Sequence[str],
    items: Sequence[dspy.Example],
    *,
    lm: Any,
    limit: int | None = None,
    seed: int = 0,
    orders: int = 1,
) -> list[CurvePoint]:
    """Measure decision rate and agreement under every instruction (Zhou et al. 2024, figures 2 and 4).

    It shows whether fairness is worth seeking. ``items`` are rated outputs (``scores``) of documents; decision rates
    and objectives are of at most ``limit`` of their pairs, ordered and without the judge's calibration. With
    ``debias="permutation"``, decision rates and rankings are of the probabilities averaged over both orders (the figure
    after debiasing): both say the same, so each pair counts once, in an order drawn at random.
    """
    debiased, model = judge.debias == "permutation", measuring(resolve_lm(lm, judge.predict))
    compared = pairs(items, limit=limit, ordered=not debiased, seed=seed)
    documents, nothing = list(by_input(items).values()), [judge.content_free(2)]
    points = []
    for text in instructions:
        (shares,) = probabilities(judge, [text], compared, model, debiased=debiased)
        (free,) = probabilities(judge, [text], nothing, model, debiased=debiased)
        judged = judged_in_order(judge, shares, compared, free)
        agreement = measure_ranking(PairwiseRanker(reworded(judge, text), seed=seed, orders=orders), documents, lm=lm)
        values = {objective.name: objective(judged) for objective in OBJECTIVES}
        points.append(CurvePoint(text, float(decision_rates(shares)[0]), agreement["spearman"].value, values))
    return points


@dataclass(frozen=True)
class CriterionResult:
    """All methods on one criterion."""

    outcomes: dict[str, Outcome]  # by method
    judgments: dict[str, int]  # by search, the prompts that it asks the judge
    search: ZEPOReport  # without racing
    racing: ZEPOReport
    points: list[CurvePoint]  # wordings of the search without racing, measured on the test documents
    debiased: list[CurvePoint]  # the same after permutation debiasing
    pairs: int  # ordered pairs of the searches
    documents: tuple[int, int]  # of the search, and of the ranking


def run(
    criterion: Criterion, train: Sequence[dspy.Example], test: Sequence[dspy.Example], lm: Any, settings: Settings
) -> CriterionResult:
    """Run all methods on one criterion."""
    seed, judgments, outcomes = settings.seed, dict[str, int](), dict[str, Outcome]()
    groups, human = [e.input_id for e in test], [e.scores[criterion.name] for e in test]
    scorers = SCORERS if settings.bert_score is None else {**SCORERS, "BERTScore": settings.bert_score}
    for name, scorer in scorers.items():
        agreement = spearman(scorer(criterion, test, lm), human, groups=groups)
        outcomes[name] = Outcome(agreement.value, agreement.groups, agreement.undefined_groups)
    judge, drawn = settings.judge(criterion), pairs(train, limit=settings.pairs, seed=seed)
    searches = {}
    for name, racing in (("ZEPO", False), ("ZEPO, racing", True)):
        searches[name] = _zepo(settings, racing=racing).compile(judge, trainset=drawn, lm=lm)
        judgments[name] = searches[name].report.judgments
    whole, part = searches.values()
    outcomes |= _with_baselines(judge, whole, test, lm, settings)
    if settings.writer is not None:
        sides = _labeled_pairs(criterion, train, settings)
        for name in LABELED:
            better, judgments[name] = compiled(
                name, judge, *sides, lm=settings.plain_lm, writer=settings.writer, seed=seed, budget=judgments["ZEPO"]
            )
            outcomes[name] = _ranked(better, test, lm, settings)
    instructions = [t.instruction for t in whole.report.tried][: settings.curve]
    how: dict[str, Any] = {"lm": lm, "limit": settings.pairs, "seed": seed, "orders": settings.orders}
    judges = judge, settings.judge(criterion, debias="permutation")
    points, debiased = (sensitivity_curve(judge_of_curve, instructions, test, **how) for judge_of_curve in judges)
    sizes = len(by_input(train)), len(by_input(test))
    return CriterionResult(outcomes, judgments, whole.report, part.report, points, debiased, len(drawn), sizes)


def search_elsewhere(
    criterion: Criterion, train: Sequence[dspy.Example], test: Sequence[dspy.Example], lm: Any, settings: Settings
) -> tuple[dict[str, Outcome], dict[str, int]]:
    """Return ZEPO's rows and judgments with the instruction in another place; undefined where the judge is mute."""
    judge, title = settings.judge(criterion), f", instruction {settings.instruction_place}"
    drawn, zepo = pairs(train, limit=settings.pairs, seed=settings.seed), _zepo(settings)
    try:
        found = zepo.compile(judge, trainset=drawn, lm=lm)
    except ValueError as error:  # it must not cost the rows before it
        print(f"{criterion.name}{title}: {error}", file=sys.stderr)
        mute = Outcome(math.nan, 0, len(by_input(test)))
        return dict.fromkeys((name + title for name in TITLES.values()), mute), {f"ZEPO{title}": 0}
    rows = _with_baselines(judge, found, test, lm, settings)
    return {name + title: row for name, row in rows.items()}, {f"ZEPO{title}": found.report.judgments}


def search_debiased(
    criterion: Criterion, train: Sequence[dspy.Example], test: Sequence[dspy.Example], lm: Any, settings: Settings
) -> tuple[dict[str, Outcome], dict[str, int]]:
    """Return row and judgments of the search on decisions averaged over both orders, ranked in both orders."""
    drawn = pairs(train, limit=settings.pairs, ordered=False, seed=settings.seed)
    judge, zepo = settings.judge(criterion, debias="permutation"), _zepo(settings, objective=DebiasedFairness())
    found = zepo.compile(judge, trainset=drawn, lm=lm)
    title = "ZEPO on debiased decisions"
    return {f"{title} + permutation": _ranked(found, test, lm, settings)}, {title: found.report.judgments}


def _zepo(settings: Settings, **options: Any) -> ZEPO:
    return ZEPO(settings.proposer, seed=settings.seed, select=False, **{"racing": False, **options})


def _with_baselines(
    judge: PairwiseJudge, searched: PairwiseJudge, test: Sequence[dspy.Example], lm: Any, settings: Settings
) -> dict[str, Outcome]:
    how: dict[str, Any] = {"lm": lm, "limit": settings.pairs, "seed": settings.seed, "orders": settings.orders}
    rows, outcomes = compare_with_baselines(judge, searched, test, **how), {}
    for name, row in rows.items():
        rate = row.measurements["position"]["first_rate"].value
        p_value = row.comparisons["agreement"]["spearman"].p_value if row.comparisons else None
        outcomes[TITLES[name]] = _outcome(row.measurements["agreement"], rate, p_value)
    return outcomes


def _labeled_pairs(
    criterion: Criterion, train: Sequence[dspy.Example], settings: Settings
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Return labeled pairs of the documents of the search; one half of them is the validation set."""
    documents = list(by_input(train).values())
    half, limit = len(documents) // 2, settings.pairs and settings.pairs // 2
    sides = ([e for d in part for e in d] for part in (documents[:half], documents[half:]))
    first, second = (pairs(side, limit=limit, criterion=criterion.name, seed=settings.seed) for side in sides)
    return first, second


def _ranked(judge: PairwiseJudge, items: Sequence[dspy.Example], lm: Any, settings: Settings) -> Outcome:
    ranker = PairwiseRanker(judge, seed=settings.seed, orders=settings.orders)
    return _outcome(measure_ranking(ranker, list(by_input(items).values()), lm=lm))


def _outcome(agreement: Measurement, decision_rate: float | None = None, p_value: float | None = None) -> Outcome:
    rho = agreement["spearman"]
    return Outcome(rho.value, rho.n, rho.undefined, decision_rate, p_value, agreement.notes.get(ORDER_SD))


def report(dataset: str, results: Mapping[str, CriterionResult], settings: str) -> str:
    """Return the report of one data set as Markdown; results are by criterion."""
    first = next(iter(results.values()))
    searched, ranked = first.documents
    used = f"{searched} documents with {first.pairs} ordered pairs for the search, {ranked} others for the ranking."
    parts = [f"### {dataset}", f"{settings} {used}", agreement_table(dataset, results)]
    if dataset == "newsroom":
        rows = ", ".join(f"{name} {value}" for name, value in ROWS.items())
        parts.append(f"Published, {JUDGES[1]}, average: {rows}.")
    parts += [cost_table(results), search_table(results), objective_table(results)]
    return "\n\n".join(parts)


def agreement_table(dataset: str, results: Mapping[str, CriterionResult]) -> str:
    """Return Spearman with people: one row per method, one column per criterion; the published figures are last."""
    names = list(next(iter(results.values())).outcomes)
    body = []
    for name in names:
        outcomes = [result.outcomes[name] for result in results.values()]
        values = [o.spearman for o in outcomes]
        defined = [v for v in values if not math.isnan(v)]
        average = as_text(float(np.mean(defined))) if defined else "undefined"
        missing = f" (of {len(defined)})" if defined and len(defined) < len(values) else ""
        body.append([name, *(_outcome_cell(o) for o in outcomes), average + missing])
    published = SPEARMAN.get(dataset, {})
    for index, judge in enumerate(JUDGES):
        if published:
            cells = [published[c][index] if c in published else "-" for c in results]
            body.append([f"published: {judge}, pairwise -> ZEPO", *cells, "-"])
    note = (
        "Mean Spearman over documents, ± its standard deviation over the initial orders of a ranking; in brackets the "
        "win rate of the first position, for judges that compare. "
        "\\* p < .05, † p < .06 against pairwise + PairS, the instruction in the same place (paired permutation test "
        "over documents)."
    )
    return f"{markdown(['method', *results, 'average'], body)}\n\n{note}"


def _outcome_cell(outcome: Outcome) -> str:
    sign = mark(outcome.p_value) if outcome.p_value is not None else ""
    rate = f" ({outcome.decision_rate:.2f})" if outcome.decision_rate is not None else ""
    undefined = f", {count(outcome.undefined, 'document')} undefined" if outcome.undefined else ""
    deviation = "" if outcome.deviation is None else f" ± {outcome.deviation:.2f}"
    return f"{as_text(outcome.spearman)}{deviation}{sign}{rate}{undefined}"


def cost_table(results: Mapping[str, CriterionResult]) -> str:
    """Return the mean cost of each search, with that of the published code."""
    body = []
    for name in next(iter(results.values())).judgments:
        judgments = float(np.mean([result.judgments[name] for result in results.values()]))
        body.append([name, f"{judgments:.0f}", f"{judgments / PROMPTS:.2f}"])
    body.append([f"published code, SummEval: {PROMPTS} prompts", str(PROMPTS), "1.00"])
    return markdown(["search, mean over criteria", "judgments", "relative to published code"], body)


def search_table(results: Mapping[str, CriterionResult]) -> str:
    """Return the first and last fairness of each search, and whether racing finds the same wording."""
    body = []
    for name, result in results.items():
        whole, part = (r.tried[r.best] for r in (result.search, result.racing))
        saved = 1 - result.racing.judgments / result.search.judgments
        same = "the same" if whole.instruction == part.instruction else f"another ({_signed(part.objective)})"
        change = f"{_signed(result.search.tried[0].objective)} -> {_signed(whole.objective)}"
        rejected, instruction = len(result.search.rejected), " ".join(whole.instruction.split()).replace("|", "\\|")
        body.append([name, change, f"{same}, {saved:.0%} fewer judgments", rejected, instruction])
    return markdown(["criterion", "fairness", "winner with racing", "wordings rejected", "instruction"], body)


def objective_table(results: Mapping[str, CriterionResult]) -> str:
    """Return each objective's correlation with agreement over the wordings, and the quadratic fit of the curve."""
    body, correlated = [], lambda x, y: [spearman(x, y).value]
    for objective in OBJECTIVES:
        values = [[p.objectives[objective.name] for p in result.points] for result in results.values()]
        cells = [_over_wordings(x, r.points, correlated) for x, r in zip(values, results.values(), strict=True)]
        body.append([objective.name, *cells, PUBLISHED_OBJECTIVES.get(objective.name, "-")])
    for suffix, curves, published in (
        ("", [result.points for result in results.values()], ("-", "near quadratic, .5")),
        (" after permutation", [result.debiased for result in results.values()], (DEBIASED, "near quadratic, .5")),
    ):
        body.append([f"decision rates, agreement{suffix}", *map(_ranges, curves), published[0]])
        fits = [_over_wordings([p.decision_rate for p in curve], curve, parabola) for curve in curves]
        body.append([f"quadratic fit{suffix}: R², peak", *fits, published[1]])
    return markdown(["objective against agreement, Spearman over wordings", *results, "published"], body)


def _ranges(curve: Sequence[CurvePoint]) -> str:
    """Return the ranges of the wordings' decision rates and of their agreement."""
    columns = [p.decision_rate for p in curve], [p.agreement for p in curve]
    defined = [[v for v in column if not math.isnan(v)] for column in columns]
    return ", ".join(f"{min(c):.2f} to {max(c):.2f}" if c else "undefined" for c in defined)


def _over_wordings(x: Sequence[float], curve: Sequence[CurvePoint], figures: Callable[..., Sequence[float]]) -> str:
    """Return figures of agreement on x, and the number of wordings where both are defined; none of fewer than 8."""
    y = [p.agreement for p in curve]
    n = sum(not math.isnan(a + b) for a, b in zip(x, y, strict=True))
    return f"{', '.join(map(as_text, figures(x, y))) if n >= FEWEST_WORDINGS else 'too few'} (n = {n})"


def parabola(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Return R² and the highest point of the least-squares parabola of y on x, without points that hold a NaN.

    NaN for fewer than four points, fewer than three distinct x, or a constant y; and for a top that is none.
    """
    points = np.array([x, y], dtype=np.float64)
    a, b = points[:, ~np.isnan(points).any(axis=0)]
    if len(a) < 4 or len(np.unique(a)) < 3 or np.ptp(b) == 0:
        return math.nan, math.nan
    curvature, slope, constant = np.polyfit(a, b, 2).tolist()
    rest = b - np.polyval([curvature, slope, constant], a)
    top = -slope / (2 * curvature) if curvature < 0 else math.nan
    return float(1 - (rest**2).sum() / ((b - b.mean()) ** 2).sum()), top


def _signed(value: float) -> str:
    return as_text(value, "+.2f")


DOCUMENTS = {"synthetic": (20, 40), "newsroom": (20, 40), "summeval": (10, 40), "topicalchat": (30, 30)}
"""Data set -> number of documents for the search and for the ranking."""
CRITERIA = {name: PRESETS.get(name, (SYNTHETIC,)) for name in DOCUMENTS}


def documents(
    dataset: str, search: int, test: int, *, longest: int | None, seed: int
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Return the outputs of so many documents for the search and for the ranking, of at most ``longest`` characters.

    Raises:
        SystemExit: The data set has too few such documents.
    """
    if dataset == "synthetic":
        return world.documents(search, 6, seed=3_000_001 + seed), world.documents(test, 6, seed=3_100_001 + seed)
    groups = data.by_input(sets.read(dataset))
    keys = sorted(key for key, items in groups.items() if longest is None or len(items[0].source) <= longest)
    random.Random(seed).shuffle(keys)
    if search + test > len(keys):
        raise SystemExit(
            f"{dataset} has only {len(keys)} documents of suitable length, but {search} for the search and {test} for "
            "the ranking are requested: lower --search-documents or --test-documents, or raise --longest-source."
        )
    sides = keys[:search], keys[search : search + test]
    first, second = ([e for key in sorted(side) for e in groups[key]] for side in sides)
    return first, second


def run_dataset(dataset: str, args: argparse.Namespace, lm: Any, bert_score: Any) -> dict[str, CriterionResult]:
    """Run all methods on every criterion of a data set."""
    search, test_documents = DOCUMENTS[dataset]
    train, test = documents(
        dataset,
        args.search_documents or search,
        args.test_documents or test_documents,
        longest=args.longest_source,
        seed=args.seed,
    )
    grammar = GrammarParaphraser(world.PARTS)
    proposer = grammar if args.proposer_lm == "grammar" else LMParaphraser(_proposer_lm(args, lm))
    args.out.mkdir(parents=True, exist_ok=True)
    asked, results = keeping_answers(lm, args.out / f"answers-{Path(args.lm).name}.jsonl"), {}
    for criterion in CRITERIA[dataset]:
        if args.criteria and criterion.name not in args.criteria:
            continue
        writer = None
        if args.labeled:
            writer = grammar_writer(grammar, criterion) if args.proposer_lm == "grammar" else _proposer_lm(args, lm)
        started = time.monotonic()
        limits = args.pairs, args.curve_wordings, args.seed
        settings = Settings(proposer, writer, bert_score, *limits, args.places[0], plain_lm=lm, orders=args.orders)
        found = results[criterion.name] = run(criterion, train, test, asked, settings)
        more = [search_debiased(criterion, train, test, asked, settings)] if args.debiased else []
        for place in args.places[1:]:
            more.append(search_elsewhere(criterion, train, test, asked, replace(settings, instruction_place=place)))
        for outcomes, judgments in more:
            found.outcomes.update(outcomes)
            found.judgments.update(judgments)
        print(f"{dataset} {criterion.name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return results


def _proposer_lm(args: argparse.Namespace, lm: Any) -> Any:
    return lm if args.proposer_lm == args.lm else open_lm(args.proposer_lm)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__, out="zepo")
    parser.add_argument("--lm", required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--proposer-lm", default="grammar")
    parser.add_argument("--sets", nargs="+", choices=[*CRITERIA], default=[*CRITERIA])
    parser.add_argument("--criteria", nargs="+")
    parser.add_argument("--search-documents", type=int, help="default: as the paper")
    parser.add_argument("--test-documents", type=int, help="default: 40; 30 of TopicalChat")
    parser.add_argument("--longest-source", type=int, help="characters; longer documents are left out")
    parser.add_argument("--pairs", type=int, help="largest number of pairs; default: all")
    parser.add_argument("--curve-wordings", type=int, help="wordings on the curve; default: all that were tried")
    parser.add_argument("--orders", type=int, default=PUBLISHED_ORDERS)
    parser.add_argument("--labeled", action="store_true")
    parser.add_argument("--debiased", action="store_true")
    parser.add_argument("--places", nargs="+", choices=["last", "first"], help="of the instruction")
    parser.add_argument("--encoder")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--title", default="a judge")
    args = parser.parse_args(arguments)
    lm = open_lm(args.lm, MeasuringModels(dtype=args.dtype))
    bert_score = BERTScore(args.encoder, args.layers) if args.encoder else None
    args.places = list(dict.fromkeys(args.places or [instruction_place_for(lm)]))
    settings = (
        f"Judge: {judge_of(model_identity(lm))}. {args.orders} orders of each ranking. Instruction {args.places[0]} in "
        f"the prompt. Wordings: {args.proposer_lm}; 5 epochs of 5. Different documents for the search and the ranking; "
        f"{f'at most {args.pairs}' if args.pairs else 'all'} pairs; seed {args.seed}."
    )
    if args.longest_source:
        settings += f" Documents of more than {args.longest_source} characters are left out."
    if args.encoder:
        settings += f" BERTScore: {args.encoder}, {args.layers} layers, against the source."
    parts = [f"## Fairness search (Zhou et al. 2024): {args.title}"]
    for dataset in args.sets:
        parts.append(report(dataset, run_dataset(dataset, args, lm, bert_score), settings))
    finish(args, "fairness_search", "\n\n".join(parts), section=args.title)


if __name__ == "__main__":
    main()
