"""Agreement of rankings with people, beside baselines that ask no judge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import dspy
import numpy as np

from evalbias.data.items import by_input, hold_pairs, human_score, input_key, is_rated, pairs
from evalbias.evaluation.agreement import PeopleAgreement
from evalbias.evaluation.biases import measure_all
from evalbias.evaluation.estimates import Comparison, Measurement, Number, compare, measured
from evalbias.evaluation.judged import Judged, judge_examples
from evalbias.evaluation.words import UNDEFINED, Table, conclude, count, joined
from evalbias.measures import kendall, pairwise_accuracy, spearman
from evalbias.measures.arrays import FloatArray, IntArray, mean_of_defined
from evalbias.measures.pairs import Strengths, cyclic_triples, fit_strengths
from evalbias.measures.resample import SHARE, Interval, estimate_mean_coefficient, estimate_share
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.ranking import PairwiseRanker

MEASURES = {
    "spearman": (spearman, estimate_mean_coefficient, "Spearman"),
    "kendall": (kendall, estimate_mean_coefficient, "Kendall"),
    "pairwise_accuracy": (pairwise_accuracy, estimate_share, "accuracy"),
}
COUNTS = ("comparisons", "judgments", "ties", "undefined", "contradictions")


def measure_ranking(
    ranker: PairwiseRanker, documents: Sequence[Sequence[dspy.Example]], *, lm: Any = None, seed: int = 0
) -> Measurement:
    """Rank the outputs of every document and correlate the rankings with the human scores.

    ``documents`` are the rated outputs of each (``evalbias.data.by_input`` groups them), NaN where nobody rated; those
    without two different outputs are left out. ``lm`` defaults to the judge's own, else DSPy's. ValueError where an
    item lacks a score on the criterion.

    Returns:
        Estimates ``spearman``, ``kendall`` and ``pairwise_accuracy``, means over the documents, which are its items.
        ``notes`` counts comparisons, ties, undefined comparisons, contradictions and unranked outputs.
    """
    name = ranker.judge.criterion.name
    for example in (e for document in documents for e in document):
        human_score(example, name)
    usable = [document for document in documents if len({e.output for e in document}) > 1]
    examples = [dspy.Example(source=d[0].source, candidates=[e.output for e in d]) for d in usable]
    return ranking_agreement(ranker.batch(examples, lm=lm), usable, name, seed=seed)


def ranking_agreement(
    rankings: Sequence[dspy.Prediction], documents: Sequence[Sequence[dspy.Example]], criterion: str, *, seed: int = 0
) -> Measurement:
    """Correlate finished rankings, one a document, with the human scores, as ``measure_ranking`` does.

    ``documents`` are the outputs that were ranked, in their order; those unrated on the criterion are undefined.
    """
    scores = [score for ranking in rankings for score in ranking.scores]
    human = [human_score(e, criterion, required=False) for document in documents for e in document]
    groups = [index for index, document in enumerate(documents) for _ in document]
    numbers = []
    for name, (measure, estimator, label) in MEASURES.items():
        by_document = np.array(measure(scores, human, groups=groups).by_group, dtype=np.float64)
        numbers.append(Number(name, label, by_document, estimator, signed=estimator is not estimate_share))
    notes = {name: sum(ranking[name] for ranking in rankings) for name in COUNTS}
    notes["unranked"] = sum(len(ranking.unranked) for ranking in rankings)
    return measured(
        numbers,
        seed=seed,
        bias=PeopleAgreement(),
        criterion=criterion,
        ids=tuple(input_key(document[0]) for document in documents),
        columns={number.name: number.values for number in numbers},
        cost={"judgments": notes.pop("judgments")},
        notes=notes,
    )


def conclude_ranking(agreement: Measurement | None, documents: int) -> str:
    """Say whether rankings agree with people."""
    if agreement is None:
        return (
            f"Nobody rated the outputs, so it is unknown whether these {count(documents, 'ranking')} are right; "
            "'evalbias measure preference' tells whether the judge prefers a position or longer outputs."
        )
    rho = agreement["spearman"]
    shown = f"Spearman {rho.text()} (95 % interval {rho.interval}, {count(rho.n, 'document')})"
    return conclude(
        rho.low,
        rho.high,
        above=f"The rankings agree with people better than chance does: {shown}.",
        below=f"The rankings contradict people: {shown}. Do not use this judge.",
        neither=f"The rankings are not shown to agree with people better than chance does: {shown}. Rate more "
        "documents.",
        undefined=f"Whether the rankings agree with people is undefined in {count(documents, 'document')}: give more.",
    )


# Systems ranked by the choices between their outputs (Bradley and Terry; ties by Davidson), beside people's choices.


AVERAGE = "wins of 100 against the average system"


@dataclass(frozen=True, repr=False)
class SystemRanking:
    """Systems by a judge's choices in pairs, best first; intervals are over inputs.

    Attributes:
        judge: Name of the judge.
        systems: Names of the systems, best first.
        means: System -> share of its comparisons that it wins, a tie counting half.
        strengths: System -> share of wins against the average system, with the position and the features held fixed.
        against_next: System -> log-odds of a win against the next one, with its interval; not of the last one.
        people: System -> share of wins against the average system by people's choices; empty where nobody chose.
        held: "position", if it can be told, or a feature -> its log-odds: of the first place, or of one unit more.
        cyclic: Share of the triples of systems, compared on one input, in which A beats B, B beats C and C beats A.
    """

    judge: str
    systems: tuple[str, ...]
    means: Mapping[str, float]
    strengths: Mapping[str, Interval]
    against_next: Mapping[str, Interval]
    people: Mapping[str, Interval]
    held: Mapping[str, Interval]
    cyclic: Interval

    def __repr__(self) -> str:
        return f"SystemRanking({self.judge}: {self.sentence()})"

    def sentence(self) -> str:
        """Say which system is best, whether that is shown, whether people agree, and how often choices are cyclic."""
        best, second = self.systems[:2]
        if math.isnan(self.strengths[best].value):
            return f"The systems cannot be ranked: {self.strengths[best].reason}."
        shown = "is" if self.against_next[best].low > 0 else "is not shown to be"
        wins = _of_100(self.strengths[best])
        said = f"{best} wins {wins} of 100 against the average system and {shown} better than {second}"
        if "position" in self.held:
            said += f"; between equal systems, the first place has log-odds of {_log_odds(self.held['position'])}"
        human = [self.people[one].value for one in self.systems if one in self.people]
        if not np.isnan(human).any() and human:
            rho, first = spearman([*range(len(human), 0, -1)], human).value, self.systems[int(np.argmax(human))]
            said += f"; people's choices put {first} first (Spearman {rho:+.2f})"
        elif human:
            said += "; people's choices are too few to rank the systems by them"
        circles = f"; {_of_100(self.cyclic)} of 100 triples of systems go in a circle (random choices: 25)"
        return f"{said}{circles if self.cyclic.n else ''}."

    def table(self) -> Table:
        """Return one row a system, best first."""
        rows = []
        for one in self.systems:
            people = _of_100(self.people[one]) if one in self.people else ""
            next_one = _log_odds(self.against_next[one]) if one in self.against_next else ""
            rows.append((one, f"{100 * self.means[one]:.0f}", _of_100(self.strengths[one]), next_one, people))
        held = f"with {joined([*self.held])} held fixed" if self.held else "nothing held fixed"
        headings = ("system", "mean of wins", AVERAGE, "log-odds against the next", "by people")
        return Table(headings, rows, f"Systems by {self.judge}", f"{held}; in brackets: 95 % intervals").without_empty()


def _of_100(e: Interval) -> str:
    return UNDEFINED if math.isnan(e.value) else f"{100 * e.value:.0f} ({100 * e.low:.0f} to {100 * e.high:.0f})"


def _log_odds(e: Interval) -> str:
    return f"{e.value:+.2f} ({e.low:+.2f} to {e.high:+.2f})"


def rank_systems(judged: Judged, features: Mapping[str, FloatArray] = MappingProxyType({})) -> SystemRanking:
    """Rank the systems of compared outputs by a judge's choices, and by people's where there are any.

    A model of Bradley and Terry, with Davidson's ties, holds fixed the position, where systems stand in both places,
    and ``features`` (n, 2) of both outputs, such as ``{"length": length_feature(judged.covariates["lengths"])}``: what
    a system owes to them does not count. People's choices are fitted without any of them.

    ValueError where the judge scores, or the items do not name two systems.
    """
    if not judged.pairwise or len(judged.writer_names) < 2:
        raise ValueError("Give a judge's choices between outputs of two systems or more (system_1 and system_2).")
    names, shown = judged.writer_names, np.searchsorted(judged.writer_names, np.asarray(judged.writers, dtype=str))
    clusters, orders = judged.clusters or judged.ids, range(judged.answers.shape[1])
    # 1 each order of each pair is a comparison
    tie = judged.answers[..., 2:] if judged.ties else np.zeros((*judged.answers.shape[:2], 1))
    outcomes = np.concatenate([np.append(judged.answers[:, order, :2], tie[:, order], axis=1) for order in orders])
    differences = np.column_stack(
        [judged.first_less_second(x) for x in features.values()] or [np.empty((len(shown), 0))]
    )
    position = [] if judged.in_fixed_places or judged.one_stands_first else ["position"]
    signed_ones = [np.column_stack([np.ones((len(shown), len(position))), sign * differences]) for sign in (1, -1)]
    compared = np.concatenate([shown, shown[:, ::-1]][: len(orders)])
    repeated = [*clusters] * len(orders)
    fit = fit_strengths(compared, outcomes, np.concatenate(signed_ones[: len(orders)]), clusters=repeated)
    # 2 the same of people's choices, and what the order among three systems says
    people = dict[str, Interval]()
    if judged.rated:
        chosen = judged.chosen
        votes = np.where(np.isnan(chosen)[:, None], np.nan, chosen[:, None] == [1.0, 0.0, 0.5])
        theirs = fit_strengths(shown, votes, np.empty((len(shown), 0)), clusters=clusters)
        people = {one: _share(theirs, k) for k, one in enumerate(names)}
    triples, where = cyclic_triples(shown, judged.win_shares, clusters)
    best = [names[k] for k in np.argsort(-fit.value[: len(names)], kind="stable")]
    wins = {one: _wins(judged, shown, k) for k, one in enumerate(names)}
    unit = dict(zip([*names, *position, *features], np.eye(len(fit.value)), strict=True))
    return SystemRanking(
        judged.judge,
        tuple(best),
        wins,
        {one: _share(fit, k) for k, one in enumerate(names)},
        {one: fit.interval(unit[one] - unit[other]) for one, other in itertools.pairwise(best)},
        people,
        {name: fit.interval(unit[name]) for name in (*position, *features)},
        estimate_share(triples, clusters=where),
    )


def _share(fit: Strengths, place: int) -> Interval:
    """Return a system's share of wins against the average one."""
    interval = fit.interval(np.eye(len(fit.value))[place])
    value, low, high = (fit.win_share(end) for end in (interval.value, interval.low, interval.high))
    return replace(interval, value=value, low=low, high=high, unit=SHARE)


def _wins(judged: Judged, shown: IntArray, place: int) -> float:
    wins = np.concatenate([judged.win_shares[shown[:, 0] == place], 1 - judged.win_shares[shown[:, 1] == place]])
    return mean_of_defined(wins)


# A compiled judge beside the one it was compiled from, and permutation debiasing of both: it alone mends much of what a
# search mends (Zhou et al., EMNLP 2024, table 3), so no result stands without it.


PROMPTS = {"initial": 1, "initial + permutation": 2, "searched": 1, "searched + permutation": 2}
"""Row -> prompts that a comparison takes."""


@dataclass(frozen=True)
class Row:
    """One judge on the test documents."""

    measurements: Mapping[str, Measurement]  # name of a bias, or "agreement" with people where any rated
    comparisons: Mapping[str, Comparison]  # the same against the initial judge; empty for that one itself


def compare_with_baselines(
    initial: PairwiseJudge,
    compiled: PairwiseJudge,
    items: Sequence[dspy.Example],
    *,
    lm: Any = None,
    limit: int | None = None,
    n_resamples: int = 100_000,
    seed: int = 0,
) -> dict[str, Row]:
    """Measure four judges: initial, initial + permutation, searched, searched + permutation.

    ``items`` are outputs of documents that took no part in the search, or pairs, which are not ranked. Where people
    rated some (``scores``), the agreement is measured. The biases are measured on at most ``limit`` pairs.
    """
    name = initial.criterion.name
    rated = not hold_pairs(items) and any(is_rated(e, name) for e in items)
    scored = [e.copy(scores={name: human_score(e, name, required=False)}) for e in items] if rated else items
    documents = list(by_input(scored).values())
    compared = pairs(items, limit=limit, ordered=False, seed=seed)
    rows: dict[str, Row] = {}
    for title, judge in zip(PROMPTS, (initial, initial, compiled, compiled), strict=True):
        one: PairwiseJudge = judge.deepcopy()
        one.debias = "permutation" if title.endswith("permutation") else None
        measurements = measure_all(judge_examples(one, compared, lm=lm), seed=seed)
        if rated:
            ranker = PairwiseRanker(one, seed=seed)
            measurements[PeopleAgreement.name] = measure_ranking(ranker, documents, lm=lm, seed=seed)
        first, how = rows["initial"].measurements if rows else {}, {"n_resamples": n_resamples, "seed": seed}
        comparisons = {bias: compare(first[bias], m, **how) for bias, m in measurements.items() if bias in first}
        rows[title] = Row(measurements, comparisons)
    return rows
