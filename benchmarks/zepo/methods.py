"""Run every method on one criterion: search on some documents, rank others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dspy

from benchmarks.zepo import baselines, labeled
from evalbias.data import by_input, pairs
from evalbias.evaluation import Measurement, compare_with_baselines, measure_ranking
from evalbias.measures import spearman
from evalbias.optimizers import ZEPO
from evalbias.optimizers.zepo import (
    CalibrationGap,
    Confidence,
    ContextFreeConfidence,
    CurvePoint,
    Fairness,
    Proposer,
    ZEPOReport,
    sensitivity_curve,
)
from evalbias.programs import Criterion, PairwiseJudge, PairwiseRanker

OBJECTIVES = (Fairness(), CalibrationGap(), Confidence(), ContextFreeConfidence())
SCORERS: dict[str, Callable[..., Any]] = {
    "direct scoring": baselines.direct,
    "G-Eval (expected score)": baselines.g_eval,
    "GPTScore (LS per token)": baselines.gpt_score,
}
TITLES = {
    "initial": "pairwise + PairS",
    "initial + permutation": "pairwise + permutation",
    "searched": "ZEPO",
    "searched + permutation": "ZEPO + permutation",
}


@dataclass(frozen=True)
class Settings:
    """Settings of all methods.

    Attributes:
        proposer: Source of ZEPO's wordings.
        writer: LM that proposes instructions in DSPy's optimizers; None leaves these out.
        bert_score: BERTScore baseline; None leaves it out.
        pairs: Largest number of pairs in a search and in a measurement; None takes all.
        curve: Number of tried wordings to rank with, for the curve; None takes all.
        seed: Seed for everything.
    """

    proposer: Proposer
    writer: Any
    bert_score: Callable[..., Any] | None
    pairs: int | None
    curve: int | None
    seed: int


@dataclass(frozen=True)
class Outcome:
    """Result of one method on the test documents.

    Attributes:
        spearman: Spearman's rho with people, mean over the documents where it is defined.
        documents: Number of these documents.
        undefined: Number of documents where it is not defined.
        decision_rate: Win rate of the first position; None where the method does not compare.
        p_value: P of the test against pairwise + PairS; None where the method was not tested against it.
    """

    spearman: float
    documents: int
    undefined: int
    decision_rate: float | None = None
    p_value: float | None = None


@dataclass
class Cost:
    """Cost of a search.

    Attributes:
        judgments: Prompts that the judge answered.
        tokens: Tokens that the model processed, including padding; 0 where the model does not report them.
        seconds: Wall-clock time.
    """

    judgments: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class CriterionResult:
    """Results of all methods on one criterion.

    Attributes:
        outcomes: Method -> result on the test documents.
        costs: Search -> cost.
        search: Report of the full search.
        racing: Report of the search with racing.
        points: Wordings of the full search, measured on the test documents.
        debiased: The same wordings after permutation debiasing.
        pairs: Number of ordered pairs that the searches used.
        documents: Number of documents in the search and in the ranking.
    """

    outcomes: dict[str, Outcome]
    costs: dict[str, Cost]
    search: ZEPOReport
    racing: ZEPOReport
    points: list[CurvePoint] = field(default_factory=list)
    debiased: list[CurvePoint] = field(default_factory=list)
    pairs: int = 0
    documents: tuple[int, int] = (0, 0)


def run(
    criterion: Criterion, train: Sequence[dspy.Example], test: Sequence[dspy.Example], lm: Any, settings: Settings
) -> CriterionResult:
    """Run all methods on one criterion."""
    seed, costs, outcomes = settings.seed, dict[str, Cost](), dict[str, Outcome]()
    groups, human = [e.input_id for e in test], [e.scores[criterion.name] for e in test]
    scorers = SCORERS if settings.bert_score is None else {**SCORERS, "BERTScore": settings.bert_score}
    for name, scorer in scorers.items():
        agreement = spearman(scorer(criterion, test, lm), human, groups=groups)
        outcomes[name] = Outcome(agreement.value, agreement.groups, agreement.undefined_groups)
    judge, drawn = PairwiseJudge(criterion), pairs(train, limit=settings.pairs, seed=seed)
    searches = {}
    for name, racing in (("ZEPO", False), ("ZEPO, racing", True)):
        zepo = ZEPO(settings.proposer, racing=racing, seed=seed, select=False)
        with _spent(lm) as costs[name]:
            searches[name] = zepo.compile(judge, trainset=drawn, lm=lm)
        costs[name].judgments = searches[name].report.judgments
    whole, part = searches.values()
    rows = compare_with_baselines(judge, whole, test, lm=lm, limit=settings.pairs, seed=seed)
    for name, row in rows.items():
        rate = row.measurements["position"]["first_rate"].value
        p_value = row.comparisons["agreement"]["spearman"].p_value if row.comparisons else None
        outcomes[TITLES[name]] = _outcome(row.measurements["agreement"], rate, p_value)
    if settings.writer is not None:
        _labeled(criterion, train, test, lm, settings, outcomes, costs)
    instructions = [t.instruction for t in whole.report.tried][: settings.curve]
    points, debiased = (
        sensitivity_curve(one, instructions, test, objectives=OBJECTIVES, lm=lm, limit=settings.pairs, seed=seed)
        for one in (judge, PairwiseJudge(criterion, debias="permutation"))
    )
    return CriterionResult(
        outcomes,
        costs,
        whole.report,
        part.report,
        points,
        debiased,
        len(drawn),
        (len(by_input(train)), len(by_input(test))),
    )


def _labeled(
    criterion: Criterion,
    train: Sequence[dspy.Example],
    test: Sequence[dspy.Example],
    lm: Any,
    settings: Settings,
    outcomes: dict[str, Outcome],
    costs: dict[str, Cost],
) -> None:
    """Run DSPy's optimizers on the documents of the search; one half of them is the validation set."""
    documents = list(by_input(train).values())
    half = len(documents) // 2
    sides = [
        pairs(
            [e for d in part for e in d],
            limit=settings.pairs and settings.pairs // 2,
            criterion=criterion.name,
            seed=settings.seed,
        )
        for part in (documents[:half], documents[half:])
    ]
    common = {"lm": lm, "writer": settings.writer, "seed": settings.seed}
    for name, optimize in (
        ("MIPROv2 (labels)", labeled.miprov2(**common)),
        ("GEPA (labels)", labeled.gepa(**common, budget=costs["ZEPO"].judgments)),
    ):
        with _spent(lm) as costs[name]:
            compiled, calls = labeled.compiled(optimize, PairwiseJudge(criterion), *sides, lm=lm)
        costs[name].judgments = calls
        ranker = PairwiseRanker(compiled, seed=settings.seed)
        outcomes[name] = _outcome(measure_ranking(ranker, list(by_input(test).values()), lm=lm))


def _outcome(agreement: Measurement, decision_rate: float | None = None, p_value: float | None = None) -> Outcome:
    rho = agreement["spearman"]
    return Outcome(rho.value, rho.n, rho.undefined, decision_rate, p_value)


@contextmanager
def _spent(lm: Any) -> Iterator[Cost]:
    cost, tokens, started = Cost(), getattr(lm, "tokens_run", 0), time.monotonic()
    yield cost
    cost.tokens, cost.seconds = getattr(lm, "tokens_run", 0) - tokens, time.monotonic() - started
