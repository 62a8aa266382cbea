"""The tables of the fairness paper (Zhou et al. 2024) for any judge model, with its baselines.

usage: python -m benchmarks.fairness_search --lm MODEL [--dtype bfloat16] [--proposer-lm MODEL]
           [--sets synthetic newsroom summeval topicalchat] [--search-documents N] [--test-documents N] [--pairs N]
           [--place first] [--curve-wordings N] [--longest-source CHARACTERS] [--criteria NAME ...]
           [--orders N] [--out DIR] [--write] [--title TEXT]

The data are read from EVALBIAS_DATA. The search and the ranking use different documents, by default as many for the
search as the paper (of TopicalChat's 60 dialogues, half), and all ordered pairs of them. The instruction stands last in
the prompt, as in the paper, but first for the embedded judge or with ``--place``. Rankings are averaged over 100 random
orders (``--orders``), as in the paper's code. The answers of the model go to ``--out``: a stopped run continues.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import numpy as np

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
from evalbias.measures import decision_rates, decision_shares, negative_entropies, spearman
from evalbias.measures.arrays import FloatArray, mean_of_defined
from evalbias.measures.pairs import counted_fairness
from evalbias.optimizers import ZEPO
from evalbias.optimizers.objectives import answers_under, over_defined, reworded, shares_of
from evalbias.optimizers.proposers import GrammarParaphraser, LMParaphraser, Proposer
from evalbias.optimizers.zepo import ZEPOReport
from evalbias.options import MeasuringModels
from evalbias.programs import SYNTHETIC, Criterion, PairwiseJudge, PairwiseRanker, PointwiseJudge
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


def objectives(shares: FloatArray, free: FloatArray) -> dict[str, float]:
    """Return what the paper compares with fairness, higher is better: of (n, c) probabilities, and (1, c) of nothing.

    Calibration is minus the gap of the positions' mean log-probabilities; an answer of certainty has none of the other,
    and is left out. Confidence is the mean of ``sum_j p_j log p_j``.
    """
    unsure = shares[(shares > 0).all(axis=1)]  # without NaN, too
    return {
        "fairness": float(over_defined(counted_fairness, np.ones((1, len(shares))), decision_shares(shares))[0]),
        "calibration": -float(np.ptp(np.log(unsure).mean(axis=0))) if len(unsure) else math.nan,
        "confidence": mean_of_defined(negative_entropies(shares)),
        "context-free confidence": -mean_of_defined(negative_entropies(free)),
    }


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
    pairs: int | None  # largest number of pairs in a search and in a measurement; None takes all
    curve: int | None  # number of tried wordings to rank with, for the curve; None takes all
    seed: int
    instruction_place: str  # in the prompt of judges that compare: last or first
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
    objectives: Mapping[str, float]  # by name, of ``PUBLISHED_OBJECTIVES``


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
    documents, nothing = list(by_input(items).values()), [dspy.Example(source="[N/A]", candidates=["[N/A]"] * 2)]
    points = []
    for text in instructions:
        worded = reworded(judge, text)
        if debiased:
            shares = np.array([answer.probabilities for answer in worded.batch(compared, lm=lm)])
        else:
            (answered,) = answers_under(judge, [text], compared, model)
            shares = shares_of(answered)
        (free,) = map(shares_of, answers_under(judge, [text], nothing, model))
        agreement = measure_ranking(PairwiseRanker(worded, seed=seed, orders=orders), documents, lm=lm)
        values = objectives(shares, free)
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
    for name, scorer in SCORERS.items():
        agreement = spearman(scorer(criterion, test, lm), human, groups=groups)
        outcomes[name] = Outcome(agreement.value, agreement.groups, agreement.undefined_groups)
    judge, drawn = settings.judge(criterion), pairs(train, limit=settings.pairs, seed=seed)
    search, searches = partial(ZEPO, settings.proposer, seed=seed, select=False), {}
    for name, racing in (("ZEPO", False), ("ZEPO, racing", True)):
        searches[name] = search(racing=racing).compile(judge, trainset=drawn, lm=lm)
        judgments[name] = searches[name].report.judgments
    whole, part = searches.values()
    outcomes |= _with_baselines(judge, whole, test, lm, settings)
    averaged = settings.judge(criterion, debias="permutation")
    instructions = [t.instruction for t in whole.report.tried][: settings.curve]
    how: dict[str, Any] = {"lm": lm, "limit": settings.pairs, "seed": seed, "orders": settings.orders}
    points, debiased = (sensitivity_curve(compared, instructions, test, **how) for compared in (judge, averaged))
    sizes = len(by_input(train)), len(by_input(test))
    return CriterionResult(outcomes, judgments, whole.report, part.report, points, debiased, len(drawn), sizes)


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
    for name, published in PUBLISHED_OBJECTIVES.items():
        values = [[p.objectives[name] for p in result.points] for result in results.values()]
        cells = [_over_wordings(x, r.points, correlated) for x, r in zip(values, results.values(), strict=True)]
        body.append([name, *cells, published])
    for suffix, curves, published in (
        ("", [result.points for result in results.values()], "-"),
        (" after permutation", [result.debiased for result in results.values()], DEBIASED),
    ):
        body.append([f"decision rates, agreement{suffix}", *map(_ranges, curves), published])
        fits = [_over_wordings([p.decision_rate for p in curve], curve, parabola) for curve in curves]
        body.append([f"quadratic fit{suffix}: R², peak", *fits, "near quadratic, .5"])
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


def run_dataset(dataset: str, args: argparse.Namespace, lm: Any) -> dict[str, CriterionResult]:
    """Run all methods on every criterion of a data set."""
    search, test_documents = DOCUMENTS[dataset]
    train, test = documents(
        dataset,
        args.search_documents or search,
        args.test_documents or test_documents,
        longest=args.longest_source,
        seed=args.seed,
    )
    proposer: Proposer = GrammarParaphraser(world.PARTS)
    if args.proposer_lm != "grammar":
        proposer = LMParaphraser(lm if args.proposer_lm == args.lm else open_lm(args.proposer_lm))
    args.out.mkdir(parents=True, exist_ok=True)
    asked, results = keeping_answers(lm, args.out / f"answers-{Path(args.lm).name}.jsonl"), {}
    for criterion in CRITERIA[dataset]:
        if args.criteria and criterion.name not in args.criteria:
            continue
        started = time.monotonic()
        limits = args.pairs, args.curve_wordings, args.seed
        settings = Settings(proposer, *limits, args.place, orders=args.orders)
        results[criterion.name] = run(criterion, train, test, asked, settings)
        print(f"{dataset} {criterion.name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return results


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
    parser.add_argument("--place", choices=["last", "first"], help="of the instruction")
    parser.add_argument("--title", default="a judge")
    args = parser.parse_args(arguments)
    lm = open_lm(args.lm, MeasuringModels(dtype=args.dtype))
    args.place = args.place or instruction_place_for(lm)
    settings = (
        f"Judge: {judge_of(model_identity(lm))}. {args.orders} orders of each ranking. Instruction {args.place} in "
        f"the prompt. Wordings: {args.proposer_lm}; 5 epochs of 5. Different documents for the search and the ranking; "
        f"{f'at most {args.pairs}' if args.pairs else 'all'} pairs; seed {args.seed}."
    )
    if args.longest_source:
        settings += f" Documents of more than {args.longest_source} characters are left out."
    parts = [f"## Fairness search (Zhou et al. 2024): {args.title}"]
    for dataset in args.sets:
        parts.append(report(dataset, run_dataset(dataset, args, lm), settings))
    finish(args, "fairness_search", "\n\n".join(parts), section=args.title)


if __name__ == "__main__":
    main()
