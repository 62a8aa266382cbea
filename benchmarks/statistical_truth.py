"""Do tests keep their level, and do intervals cover, on simulated judges whose truth is known?

usage: python -m benchmarks.statistical_truth [--sets 2000] [--sizes 30 120 568] [--worlds NAME ...] [--out DIR]
           [--seed 0] [--write]

Two exchangeable judges score n items on a tied Likert scale; the outputs of one document share a part of their quality,
their likelihood and of each judge's errors. Every world is checked at every size, with every item of its own document
and with four outputs a document, besides: the likelihood effect (is it recovered, covered, found), panels whose raters
use the scale differently, the power of the paired tests, and how BiasScore moves with n. Each part is saved in
``--out`` when it is done and not repeated.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtr

from benchmarks import alarms, changes, probes
from benchmarks.audit.judges import likert
from benchmarks.harness import SLACK, argument_parser, finish, markdown, marked, normal, percents, simulated
from benchmarks.sets import judged_summaries
from evalbias import measures
from evalbias.evaluation import BIASES, Judged, measure
from evalbias.evaluation.findings import findings_of
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS
from evalbias.measures import Interval, bias_score, estimate_effect, unfairness_scores
from evalbias.measures.agreement import counted_spearman
from evalbias.measures.arrays import FloatArray
from evalbias.measures.equal_quality import EqualQuality
from evalbias.measures.likelihood import counted_bias_score
from evalbias.measures.loops import counted_skewness
from evalbias.measures.pairs import counted_fairness
from evalbias.measures.resample import Statistic, estimate_mean_coefficient, interval, mean

RANKED = 5
"""Outputs that a ranker orders in each document."""
Draw = Callable[[np.random.Generator, int, int], dict[str, "Judges"]]


@dataclass(frozen=True)
class Judges:
    """Two judges, as a statistic reads them."""

    estimator: Callable[..., Interval]  # of the values; gives the interval and, with ``before``, the paired test
    counted: Statistic  # that it estimates
    first: FloatArray  # (n,) or (n, d) of the first judge
    second: FloatArray  # the same of the second
    columns: tuple[FloatArray, ...] = ()  # further columns of the items


def scoring(effect: float, other: float | None = None) -> Draw:
    """Judges that score: ``effect`` standard deviations for one of LS, with quality held fixed; LS is correlated .5.

    The effects are those of both judges before their scores are rounded; by default they are equal, as in all worlds.
    """
    effects = (effect, effect if other is None else other)

    def draw(rng: np.random.Generator, n: int, outputs: int) -> dict[str, Judges]:
        quality = normal(rng, n, outputs)
        ls = 0.5 * quality + np.sqrt(0.75) * normal(rng, n, outputs)
        human = likert(3 + quality + 0.7 * rng.normal(size=(3, n))).mean(axis=0)
        noise = normal(rng, n, outputs, 2)
        first, second = (
            likert(3 + 1.1 * (0.6 * quality + e * ls + np.sqrt(1 - 0.36 - e**2 - 0.6 * e) * own))
            for e, own in zip(effects, noise, strict=True)
        )

        def bias(normalization: str) -> Judges:
            kind: dict[str, Any] = {"normalization": normalization}
            functions = partial(measures.estimate_bias_score, **kind), partial(counted_bias_score, **kind)
            return Judges(*functions, first, second, (ls, human))

        scores = {"BiasScore": bias("mean-range"), "BiasScore (z)": bias("z-score")}
        performance = Judges(measures.estimate_spearman, counted_spearman, first, second, (human,))
        judges = {**scores, "performance": performance}
        lenient = replace(performance, second=(5 + second) / 2)  # the upper half of the scale
        return {**judges, "performance, second lenient": lenient}

    return draw


def comparing(lean: float, other: float | None = None) -> Draw:
    """Judges that compare in both orders, with the pull of the first position in standard deviations of quality."""
    leans = (lean, lean if other is None else other)

    def draw(rng: np.random.Generator, n: int, outputs: int) -> dict[str, Judges]:
        better = normal(rng, n, outputs)
        sides = []
        for lean in leans:
            noise = 0.8 * normal(rng, n, outputs, 2)
            pull = np.stack([lean + better, lean - better]) + noise  # (2, n) of the first position, by order
            ties = np.abs(pull) < 0.4
            first = pull > 0
            decided = [np.stack([first, ~first], axis=-1), np.stack([first & ~ties, ~first & ~ties, ties], axis=-1)]
            shares = [verdicts.astype(np.float64).mean(axis=0) for verdicts in decided]  # (n, 2) and (n, 3)
            shares[1] = measures.win_shares(shares[1], ties=True)
            sides.append([*shares, shares[0][:, 0], (first[0] != first[1]).astype(np.float64)])
        fairness, share = (measures.estimate_fairness, counted_fairness), (measures.estimate_share, mean)
        kinds = {"fairness": fairness, "fairness, with ties": fairness, "first rate": share}
        kinds["position consistency"] = share
        return {name: Judges(e, c, a, b) for (name, (e, c)), a, b in zip(kinds.items(), *sides, strict=True)}

    return draw


def self_scoring(shift: float, other: float | None = None) -> Draw:
    """Own minus expected scores in whole points: symmetric with heavy tails around a shift."""
    shifts = np.array([[shift], [shift if other is None else other]])

    def draw(rng: np.random.Generator, n: int, outputs: int) -> dict[str, Judges]:
        scale = np.where(rng.random((2, n)) < 0.2, 3, 2)
        first, second = np.round(shifts + scale * normal(rng, n, outputs, 2))
        return {
            "Bias": Judges(measures.estimate_mean, mean, first, second),
            "Dskew": Judges(measures.estimate_skewness, counted_skewness, first, second),
        }

    return draw


def consistent(share: float, other: float | None = None) -> Draw:
    """Judges that prefer the same candidate in both orders in these shares of the pairs."""
    shares = (share, share if other is None else other)

    def draw(rng: np.random.Generator, n: int, outputs: int) -> dict[str, Judges]:
        first, second = (ndtr(normal(rng, n, outputs)) < share for share in shares)
        sides = first.astype(np.float64), second.astype(np.float64)
        return {"position consistency": Judges(measures.estimate_share, mean, sides[0], sides[1])}

    return draw


def ranking(noise: float, other: float | None = None) -> Draw:
    """Rankers of five outputs a document, by the standard deviation of their errors, where quality has 1.

    Their statistic is Spearman's rho with the mean rating, document by document.
    """
    noises = (noise, noise if other is None else other)

    def draw(rng: np.random.Generator, n: int, outputs: int) -> dict[str, Judges]:
        quality = rng.normal(size=(n, RANKED))
        human = likert(3 + quality[..., None] + 0.7 * rng.normal(size=(n, RANKED, 3))).mean(axis=2)
        documents = np.repeat(np.arange(n), RANKED).tolist()
        ranked = [(quality + noise * rng.normal(size=(n, RANKED))).ravel() for noise in noises]
        sides = [np.array(measures.spearman(scores, human.ravel(), groups=documents).by_group) for scores in ranked]
        return {"ranking agreement": Judges(estimate_mean_coefficient, mean, sides[0], sides[1])}

    return draw


WORLDS: Mapping[str, Draw] = {
    "unbiased": scoring(0.0),
    "biased, effect .3": scoring(0.3),
    "fair": comparing(0.0),
    "first position favored": comparing(0.5),
    "consistent in 95 %": consistent(0.95),
    "symmetric": self_scoring(0.0),
    "flattering by 1 point": self_scoring(1.0),
    "rankers": ranking(1.0),
}
"""Name -> world."""


LEVEL = 0.05
REJECTED, COVERED = (0.04, 0.06), (0.93, 0.97)
"""Goals: shares between which tests at 5 % reject, and 95 % intervals cover."""
POPULATION = 200_000
"""Items that stand for a population."""
OWN_EXPECTATION = ("BiasScore",)
"""Statistics that change with n: their intervals are checked against their mean over the data sets."""
BOUNDARY = {("fair", "fairness"): 0.0, ("fair", "fairness, with ties"): 0.0, ("symmetric", "Dskew"): 0.0}
"""Values at the end of their range, which no finite population has exactly."""


def check(
    world: str, draw: Draw, *, n: int, outputs: int = 1, sets: int, n_resamples: int = 399, n_swaps: int = 99, seed: int
) -> list[dict[str, Any]]:
    """Check every statistic of a world on data sets of n items, of which the outputs of a document are drawn together.

    A record a statistic: ``truth`` in the population, or, where it changes with n, the ``mean`` over the data sets;
    shares in [0, 1] in which the test of two equal judges ``rejected`` at 5 %, and the interval ``covered`` the truth;
    and on a fifth of the data sets (``part``) those of the test that swaps ``itemwise``, of the ``percentile``
    interval, and of the ``difference`` of the equal judges. The level is exactly 5 % if (n_swaps + 1) / 20 is whole.
    """
    clusters = None if outputs == 1 else (np.arange(n) // outputs).tolist()
    codes = np.arange(n) // outputs
    part = max(1, sets // 5)
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for index in range(sets):
        draws = measures.Draws(seed=index, resamples=n_resamples, swaps=0)
        for name, judges in draw(np.random.default_rng([seed, index]), n, outputs).items():
            estimator, first, columns, seen = judges.estimator, judges.first, judges.columns, found[name]
            seen["covered"].append(estimator(first, *columns, clusters=clusters, draws=draws))
            seen["rejected"].append(_rejects(judges, clusters, swaps=n_swaps, seed=index))
            if index < part:
                of_first = functools.partial(_counted, judges)
                seen["percentile"].append(interval(of_first, codes, method="percentile", draws=draws))
                seen["difference"].append(
                    estimator(judges.second, *columns, before=first, clusters=clusters, draws=draws)
                )
                if clusters is not None:
                    seen["itemwise"].append(_rejects(judges, None, swaps=n_swaps, seed=index))
    population = draw(np.random.default_rng(seed), POPULATION, outputs)
    truths = {name: float(_counted(judges, np.ones((1, len(judges.first))))[0]) for name, judges in population.items()}
    drawn = {"world": world, "n": n, "outputs": outputs, "sets": sets, "part": part}
    return [{**drawn, "statistic": name, **_summary(world, name, value, found[name])} for name, value in truths.items()]


def _rejects(judges: Judges, clusters: Sequence[object] | None, *, swaps: int, seed: int) -> bool:
    draws = measures.Draws(seed=seed, resamples=0, swaps=swaps)
    found = judges.estimator(judges.first, *judges.columns, before=judges.second, clusters=clusters, draws=draws)
    return bool(found.p_value <= LEVEL)


def _counted(judges: Judges, counts: FloatArray) -> FloatArray:
    return judges.counted(counts, judges.first, *judges.columns)


def _summary(world: str, name: str, truth: float, found: dict[str, list[Any]]) -> dict[str, float]:
    average = float(np.nanmean([estimate.value for estimate in found["covered"]]))
    truth = average if name in OWN_EXPECTATION else BOUNDARY.get((world, name), truth)
    shares = {
        kind: float(np.mean([interval.low - SLACK <= value <= interval.high + SLACK for interval in found[kind]]))
        for kind, value in (("covered", truth), ("percentile", truth), ("difference", 0.0))
    }
    tests = {kind: float(np.mean(found[kind])) if found[kind] else math.nan for kind in ("rejected", "itemwise")}
    return {"truth": truth, "mean": average, **shares, **tests}


EFFECTS = (-0.3, -0.1, 0.0, 0.1, 0.2, 0.3)
LARGE, CLOSE = 3000, 0.02
"""Items with which a planted effect should be recovered this closely."""


def drawn(
    rng: np.random.Generator, effect: float, n: int, outputs: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return quality (n,), LS (n,), tied scores of two equal judges (2, n) and tied ratings (n, 3)."""
    quality = normal(rng, n, outputs)
    ls = 0.5 * quality + np.sqrt(0.75) * normal(rng, n, outputs)
    noise = np.sqrt(1 - 0.36 - effect**2 - 0.6 * effect) * normal(rng, n, outputs, 2)
    scores = likert(3 + 1.1 * (0.6 * quality + effect * ls + noise))
    return quality, ls, scores, likert(3 + quality + 0.7 * rng.normal(size=(3, n))).T


@functools.cache
def truth(effect: float, *, seed: int, n: int = 400_000) -> float:
    """Return the effect after rounding to the scale, by least squares on the quality itself."""
    quality, ls, scores, _ = drawn(np.random.default_rng(seed), effect, n, 1)
    columns = np.column_stack([np.ones(n), quality, (ls - ls.mean()) / ls.std()])
    return float(np.linalg.lstsq(columns, (scores[0] - scores[0].mean()) / scores[0].std(), rcond=None)[0][2])


def check_effect(effect: float, *, n: int, outputs: int, sets: int, seed: int) -> dict[str, Any]:
    """Return what becomes of one planted effect over many data sets of n items."""
    clusters = None if outputs == 1 else (np.arange(n) // outputs).tolist()
    how: dict[str, Any] = {"names": ("likelihood",), "clusters": clusters}

    def once(number: int) -> dict[str, tuple[Interval, float]]:
        _, ls, scores, ratings = drawn(np.random.default_rng([seed, number]), effect, n, outputs)
        found = estimate_effect(scores[0], ratings, ls, **how)
        change = estimate_effect(scores[1], ratings, ls, before=scores[0], **how)
        return {"one": (found, truth(effect, seed=seed)), "change": (change, 0.0)}

    estimate, change = simulated(once, sets).values()
    return {"effect": effect, "n": n, "outputs": outputs, "sets": sets, **estimate, "changed": change["found"]}


def effect_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown table; figures that miss their goal are bold."""
    head = ["planted", "truth", "n", "documents", "sets", "mean", "undefined", "interval covers", "p <= .05"]
    body = []
    for row in sorted(rows, key=lambda r: (r["effect"], r["outputs"], r["n"])):
        mean = f"{row['mean']:+.3f}"
        if row["n"] == LARGE and abs(row["mean"] - row["truth"]) > CLOSE:
            mean = f"**{mean}**"
        figures = [f"{row['effect']:+.1f}", f"{row['truth']:+.3f}", row["n"], _documents(row["n"], row["outputs"])]
        found = marked(row["found"], *((0.0, 1.0) if row["effect"] else REJECTED))
        shares = [marked(row["covered"], *COVERED), found, marked(row["changed"], *REJECTED)]
        body.append([*figures, row["sets"], mean, *percents(row["undefined"]), *shares])
    power = {row["effect"]: row["found"] for row in rows if (row["n"], row["outputs"]) == (120, 1)}
    sentence = ", ".join(f"of {effect:+.1f} in {100 * power[effect]:.0f} %" for effect in sorted(power) if effect)
    sentence = f"With 120 items, an effect is found: {sentence}."
    return f"{sentence}\n\n{markdown([*head, 'two equal judges differ'], body)}"


def _documents(n: int, outputs: int) -> str:
    return "own" if outputs == 1 else f"{n // outputs} of {outputs}"


PANELS = ((1.0, 1.0, 1.0), (0.7, 1.0, 1.3), (0.5, 1.0, 1.5), (1.0, 1.0), (0.8, 1.2), (0.6, 1.4))


def rated_on_scales(
    rng: np.random.Generator, scales: Sequence[float], n: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return LS (n,), which is correlated .6 with quality, scores (n,), .9 with it alone, and ratings (n, r)."""
    quality, other, own = rng.normal(size=(3, n))
    ratings = quality[:, None] * np.asarray(scales) + 0.7 * rng.normal(size=(n, len(scales)))
    return 0.6 * quality + 0.8 * other, 0.9 * quality + np.sqrt(0.19) * own, ratings


def check_scales(n: int, *, sets: int, seed: int) -> list[dict[str, Any]]:
    """Return how often the judge is called biased with n items, by panel."""

    def once(scales: Sequence[float], number: int) -> dict[str, tuple[Interval, float]]:
        ls, scores, ratings = rated_on_scales(np.random.default_rng([seed, number]), scales, n)
        return {"effect": (estimate_effect(scores, ratings, ls, names=("likelihood",)), 0.0)}

    effects = {scales: simulated(partial(once, scales), sets)["effect"] for scales in PANELS}
    return [{"scales": list(scales), "n": n, "sets": sets, **row} for scales, row in effects.items()]


def scales_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown table; shares that miss their goal are bold."""
    head = ["points for one of quality", "n", "sets", "mean effect", "undefined", "p <= .05"]
    body = []
    for row in sorted(rows, key=lambda r: (-len(r["scales"]), PANELS.index(tuple(r["scales"])), r["n"])):
        scales = ", ".join(f"{scale:g}" for scale in row["scales"])
        figures = [row["n"], row["sets"], f"{row['mean']:+.3f}", *percents(row["undefined"])]
        body.append([scales, *figures, marked(row["found"], 0.0, 0.06)])
    return markdown(head, body)


def judged_texts(
    rng: np.random.Generator, n: int, *, length: float = 0.0, likelihood: float = 0.0, r: float = -0.85, **rated: float
) -> Judged:
    """Judge that scores texts whose LS and log length correlate ``r``, and each .3 with quality.

    The ratings are three, with noise of .7 of their quality's deviation, but for ``raters`` and ``noise``.
    """
    quality = rng.normal(size=n)
    features = 0.3 * quality[:, None] + np.sqrt(0.91) * rng.multivariate_normal([0, 0], [[1, r], [r, 1]], size=n)
    errors = rated.get("noise", 0.7) * rng.normal(size=(n, int(rated.get("raters", 3))))
    scores = likert(3 + 0.6 * quality + features @ [length, likelihood] + 0.6 * rng.normal(size=n))
    ratings = likert(3 + quality[:, None] + errors)
    covariates = {LENGTHS: np.exp(features[:, 0]), LIKELIHOODS: features[:, 1], RATINGS: ratings}
    return Judged(IDS[:n], "quality", scores, covariates | {HUMAN_SCORES: ratings.mean(axis=1)})


def judged_pairs(
    rng: np.random.Generator, n: int, *, length: float = 0.0, better: float = 0.0, verdicts: bool = False
) -> Judged:
    """Judge of pairs, with three people's preferences (1, 0, -1), a third of them 0; log length correlates .5.

    If ``better`` is not 0, one system wrote all first texts, which are so much better, and one person chooses.
    """
    quality = rng.normal([better, 0.0], size=(n, 2))
    log_length = 0.5 * (quality - [better, 0.0]) + np.sqrt(0.75) * rng.normal(size=(n, 2))
    apart, longer = ((values @ [1, -1]) / np.sqrt(2) for values in (quality, log_length))
    pull = 0.6 * apart + length * longer + np.sqrt(0.64 - length**2 - 0.6 * length) * rng.normal(size=n)
    wins = (pull > 0).astype(np.float64) if verdicts else 1 / (1 + np.exp(-pull))
    seen = (quality[:, None] + 0.7 * rng.normal(size=(n, 3, 2))) @ [1, -1]
    orders = np.stack([wins, 1 - wins], axis=1)  # (n, 2) of the first output, then of the second
    answers = np.stack([orders, orders[:, ::-1]], axis=1)
    if better:
        choices = {BETTER: (seen[:, 0] <= 0).astype(np.float64)}
        return Judged(IDS[:n], "quality", answers[:, :1], choices, writers=[("model", "reference")] * n)
    covariates = {LENGTHS: np.exp(log_length), RATINGS: np.where(np.abs(seen) < 0.7, 0.0, np.sign(seen))}
    return Judged(IDS[:n], "quality", answers, covariates)


@functools.cache
def experts() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return ratings of coherence by SummEval's experts, each of them without bias, and log length and LS of the texts.

    They are (100, 12, 3) for documents, systems and experts, twice, and (100, 12, 2), standardized. An expert's own
    effects at equal quality, as the other two see it, are subtracted, so that no bias is left in all 1,200 summaries.
    """
    scored = sorted(judged_summaries(), key=lambda row: (row["input_id"], row["system"]))
    ratings = np.array([row["ratings"]["coherence"] for row in scored], dtype=np.float64)  # (1200, 3)
    features = np.array([[math.log(len(row["output"])), row["likelihood"]] for row in scored])
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    unbiased = ratings.copy()
    for expert in range(3):
        for _ in range(3):  # what is left of an effect shrinks with each round
            own, named = unbiased[:, expert], {"length": features[:, 0], "likelihood": features[:, 1]}
            fit = EqualQuality(own, np.delete(ratings, expert, axis=1), named)
            found = np.array([(e := fit.effect(name)).value * e.score_sd for name in named])
            unbiased[:, expert] = own - features @ found
    return unbiased.reshape(100, 12, 3), ratings.reshape(100, 12, 3), features.reshape(100, 12, 2)


def judged_by_experts(rng: np.random.Generator, n: int, *, likelihood: float = 0.0, systems: bool = True) -> Judged:
    """Judge of drawn documents of SummEval: one of its experts, with noise and an effect of LS; the other two rate."""
    unbiased, ratings, features = experts()
    drawn, expert = rng.integers(100, size=n // 12), int(rng.integers(3))
    own, others = unbiased[drawn][:, :, expert].ravel(), np.delete(ratings[drawn], expert, axis=2).reshape(-1, 2)
    length, ls = features[drawn].reshape(-1, 2).T
    scores = own + likelihood * own.std() * ls + 0.5 * rng.normal(size=len(own))
    covariates = {LENGTHS: np.exp(length), LIKELIHOODS: ls, RATINGS: others, HUMAN_SCORES: others.mean(axis=1)}
    inputs = np.repeat([f"{place}" for place in range(len(drawn))], 12).tolist()
    writers = np.tile([f"system {place}" for place in range(12)], len(drawn)).tolist() if systems else ()
    return Judged(IDS[: len(own)], "coherence", scores, covariates, inputs=inputs, writers=writers)


IDS = tuple(map(str, range(5000)))
AUDITED: Mapping[str, tuple[Callable[..., Judged], bool]] = {
    "texts, LS and length correlate -.85": (judged_texts, False),
    "texts, LS and length correlate -.5": (partial(judged_texts, r=-0.5), False),
    "texts, LS and length uncorrelated": (partial(judged_texts, r=0.0), False),
    "texts, effects of .3 and .35 points cancel": (partial(judged_texts, length=0.3, likelihood=0.35), True),
    "texts, one rating of reliability .3": (partial(judged_texts, raters=1, noise=1.53), False),
    "preferences, log-odds": (judged_pairs, False),
    "preferences, log-odds, an effect of length of .2": (partial(judged_pairs, length=0.2), True),
    "preferences, verdicts": (partial(judged_pairs, verdicts=True), False),
    "preferences, verdicts, an effect of length of .2": (partial(judged_pairs, verdicts=True, length=0.2), True),
    "one order, the better system always first": (partial(judged_pairs, verdicts=True, better=1.0), False),
    "SummEval, an expert is the judge": (judged_by_experts, False),
    "SummEval, an expert is the judge, systems unknown": (partial(judged_by_experts, systems=False), False),
    "SummEval, an expert with an effect of LS of .2": (partial(judged_by_experts, likelihood=0.2), True),
    "SummEval, an expert with an effect of LS of .2, systems unknown": (
        partial(judged_by_experts, likelihood=0.2, systems=False),
        True,
    ),
}
"""Judge and items -> draw, and whether the judge is biased."""


def audited(n: int, *, sets: int, seed: int, names: Collection[str] = AUDITED) -> list[dict[str, Any]]:
    """Return in how many audits of n items a judge is called biased, by any of its biases; one record a kind."""
    rows = []
    for name in names:
        (draw, biased), found = AUDITED[name], 0
        for index in range(sets):
            judged = draw(np.random.default_rng([seed, index]), n)
            tested = [bias for bias in TESTED if bias.applies(judged)]
            measured = {bias.name: measure(bias, judged, seed=0, n_resamples=20) for bias in tested}
            found += any(finding.status == "biased" for finding in findings_of(measured, judged, {}))
        rows.append({"judge": name, "n": n, "sets": sets, "biased": biased, "found": found / sets})
    return rows


TESTED = [BIASES[name] for name in ("likelihood", "verbosity", "position", "joint")]


def audited_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table; shares of unbiased judges above their goal are bold."""
    sizes = sorted({row["n"] for row in rows})
    cells = {(row["judge"], row["n"]): marked(row["found"], 0.0, 1.0 if row["biased"] else 0.06) for row in rows}
    body = [[name, "yes" if AUDITED[name][1] else "no", *(cells.get((name, n), "") for n in sizes)] for name in AUDITED]
    return markdown(["judge and items", "biased", *(f"n = {n}" for n in sizes)], body)


WRITERS = ("gpt-4", "gpt-4-turbo", "gpt-3.5", "llama", "mistral", "claude")


def judged_relatives(
    rng: np.random.Generator, n: int, *, own: float = 0.0, family: float = 0.0, likelihood: float = 0.0
) -> Judged:
    """Judge gpt-4, which gives itself, its family gpt-*, or likely text a bonus; the family writes likely text."""
    by = rng.integers(len(WRITERS), size=n)
    quality, relative = np.array([1.0, 1.2, 0.3, -0.8, 0.0, 0.9])[by] + rng.normal(size=n), by < 3
    ls = 0.4 * quality + relative + rng.normal(size=n)
    scores = quality + own * (by == 0) + family * (relative & (by > 0)) + likelihood * ls + 0.5 * rng.normal(size=n)
    people = quality[:, None] + 0.8 * rng.normal(size=(n, 3))
    covariates = {RATINGS: people, LIKELIHOODS: ls, LENGTHS: np.exp(5 + 0.2 * rng.normal(size=n))}
    return Judged(IDS[:n], "quality", scores, covariates, writers=[WRITERS[k] for k in by], scale=(-5, 5))


def preferred(family: float, *, sets: int, seed: int) -> dict[str, dict[str, float]]:
    """Return what becomes of the points that a judge gives its family beyond strangers, in 300 outputs."""
    bias = BIASES["family_preference"].configured(own="gpt-4", family="gpt-*")

    def once(number: int) -> dict[str, tuple[Interval, float]]:
        judged = judged_relatives(np.random.default_rng([seed, number]), 300, own=0.8, family=family)
        e = measure(bias, judged, seed=0)["family_excess"]
        return {"family": (Interval(e.value * e.points, e.low * e.points, e.high * e.points), family)}

    return simulated(once, sets)


ANSWERS: Mapping[str, Callable[..., dict[str, dict[str, float]]]] = {
    **{
        f"probe: {name}": partial(probes.covered, name)
        for name in ("noise that the outputs of an input share", "a point in every fifth item, else the same in 97 %")
    },
    **{f"family: {bonus:g} points, and .8 for itself": partial(preferred, bonus) for bonus in (0.0, 0.4)},
}
"""Planted truth -> coverage and errors of the estimates in many data sets, by name."""


def answers(*, sets: int, seed: int) -> str:
    """Return the section of estimators of one part each."""
    body = []
    for name, run in ANSWERS.items():
        for part, row in run(sets=sets, seed=seed).items():
            figures = (f"{row[key]:+.2f}" for key in ("truth", "mean", "median"))
            body.append([name, part, *figures, *percents(row["covered"], row["found"], row["undefined"])])
    head = ["planted", "estimate", "truth", "mean", "median", "interval covers", "excludes 0", "undefined"]
    return f"{sets} data sets a row.\n\n{markdown(head, body)}"


PAGES: Mapping[str, Callable[..., str]] = {"answers": answers, "compare": changes.compared_table}
SETS = 1000
SCORING, COMPARING, SELF = ("BiasScore", "BiasScore (z)"), ("fairness", "first rate"), ("Bias", "Dskew")
PAIRS: Sequence[tuple[str, Draw, tuple[str, ...]]] = [
    *((f"likelihood effect {e:.1f} and 0", scoring(e, 0.0), SCORING) for e in (0.1, 0.2, 0.3)),
    *((f"pull of the first position {p} sd and 0", comparing(p, 0.0), COMPARING) for p in (0.25, 0.5)),
    *(
        (f"consistent in 90 % and in {100 * s:.0f} %", consistent(0.9, s), ("position consistency",))
        for s in (0.8, 0.7)
    ),
    *((f"own scores {s:.1f} points too high and 0", self_scoring(s, 0.0), SELF) for s in (0.5, 1.0)),
    *((f"ranking errors of 1 sd and {e} sd", ranking(1.0, e), ("ranking agreement",)) for e in (1.25, 1.5)),
]
"""Difference between two judges, their world, and the statistics that should show it."""


def power(n: int, *, sets: int, seed: int) -> list[dict[str, Any]]:
    """Return the share of data sets of n items in which each difference is found; one record a statistic."""
    rows, sets = [], min(sets, SETS)
    for judges, draw, statistics in PAIRS:
        rejected = dict.fromkeys(statistics, 0)
        for index in range(sets):
            drawn = draw(np.random.default_rng([seed, index]), n, 1)
            for name in statistics:
                rejected[name] += _rejects(drawn[name], None, swaps=199, seed=index)
        rows += [
            {"statistic": name, "judges": judges, "n": n, "sets": sets, "found": number / sets}
            for name, number in rejected.items()
        ]
    return rows


def power_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown table of the records of all sizes."""
    sizes = sorted({row["n"] for row in rows})
    shares = {(row["statistic"], row["judges"], row["n"]): f"{100 * row['found']:.0f} %" for row in rows}
    kinds = sorted(dict.fromkeys((row["statistic"], row["judges"]) for row in rows), key=lambda kind: kind[0])
    body = [[*kind, *(shares.get((*kind, n), "") for n in sizes)] for kind in kinds]
    sets = {row["n"]: row["sets"] for row in rows}
    return markdown(["statistic", "judges", *(f"n = {n} ({sets[n]} sets)" for n in sizes)], body)


SIZES = {30: 1500, 120: 500, 568: 150, 3000: 60}
"""Items -> data sets."""
NORMALIZATIONS = ("mean-range", "z-score")


def drift(effects: Sequence[float], *, seed: int) -> list[dict[str, Any]]:
    """Return the mean BiasScores of judges whose expected scores are continuous, by effect and number of items.

    Quality, LS and judge are normal, LS is correlated .5 with quality, and people are the mean of three Likert ratings.
    """
    rng, rows = np.random.default_rng(seed), []
    for effect in effects:
        noise = np.sqrt(1 - 0.36 - effect**2 - 0.6 * effect)
        for n, sets in SIZES.items():
            drawn_scores = []
            for _ in range(sets):
                quality, other, own = rng.normal(size=(3, n))
                ls = 0.5 * quality + np.sqrt(0.75) * other
                human = likert(3 + quality + 0.7 * rng.normal(size=(3, n))).mean(axis=0)
                model = 0.6 * quality + effect * ls + noise * own
                drawn_scores.append(
                    [bias_score(ls, unfairness_scores(model, human, normalization=name)) for name in NORMALIZATIONS]
                )
            rows.append(
                {"effect": effect, "n": n, **dict(zip(NORMALIZATIONS, np.mean(drawn_scores, axis=0), strict=True))}
            )
    return rows


def drift_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown table."""
    sizes = sorted({row["n"] for row in rows})
    head = ["judge", "BiasScore", *(f"n = {n}" for n in sizes)]
    body = []
    for effect in sorted({row["effect"] for row in rows}):
        for name in NORMALIZATIONS:
            means = {row["n"]: row[name] for row in rows if row["effect"] == effect}
            body.append([f"effect {effect}", name, *(f"{means[n]:+.2f}" for n in sizes)])
    return markdown(head, body)


def worlds_table(checks: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the records of all worlds."""
    columns = [
        ("test rejects", "rejected", REJECTED, "sets"),
        ("item-wise", "itemwise", REJECTED, "part"),
        ("percentile covers", "percentile", COVERED, "part"),
        ("ours covers", "covered", COVERED, "sets"),
        ("difference covers", "difference", COVERED, "part"),
    ]
    head = ["world", "statistic", "n", "documents", "sets", "truth", "mean", *(name for name, *_ in columns)]
    body = []
    for c in sorted(checks, key=lambda c: ([*WORLDS].index(c["world"]), c["statistic"], c["outputs"], c["n"])):
        cells = []
        for _, field, (low, high), size in columns:
            target = (low + high) / 2
            cells.append(marked(c[field], low, high, error=math.sqrt(target * (1 - target) / c[size])))
        sets = f"{c['sets']} / {c['part']}"
        figures = [_documents(c["n"], c["outputs"]), sets, f"{c['truth']:.3f}", f"{c['mean']:.3f}"]
        body.append([c["world"], c["statistic"], c["n"], *figures, *cells])
    return markdown(head, body)


OUTPUTS = (1, 4)
TABLES: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], str]] = {
    "worlds": worlds_table,
    "effect": effect_table,
    "scales": scales_table,
    "drift": drift_table,
    "power": power_table,
    "audited": audited_table,
    "alarms": alarms.table,
}
"""Section of the page -> its table."""


def checked(world: str, n: int, outputs: int, **how: int) -> list[dict[str, Any]]:
    """Check one world at one size; one record a statistic or effect. Drift and alarms have sizes of their own."""
    if world == "alarms":
        return alarms.check(**how)
    if world in WORLDS:
        return check(world, WORLDS[world], n=n, outputs=outputs, **how)
    if world == "effect":
        return [check_effect(effect, n=n, outputs=outputs, **how) for effect in EFFECTS]
    if world == "drift":
        return drift((0.0, 0.3), seed=how["seed"])
    return {"scales": check_scales, "power": power, "audited": audited}[world](n, **how)


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__, out="statistical-truth")
    parser.add_argument("--sets", type=int, default=2000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 120, 568])
    worlds = [*WORLDS, *[*TABLES][1:], *PAGES]
    parser.add_argument("--worlds", nargs="+", choices=worlds, default=worlds)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for world in args.worlds:
        if world in PAGES:
            finish(args, "statistical_truth", PAGES[world](sets=args.sets // 5, seed=args.seed), section=world)
            continue
        for n in {"effect": [*args.sizes, LARGE], "drift": [LARGE], "alarms": [LARGE]}.get(world, args.sizes):
            for outputs in (1,) if world in ("scales", "power", "drift", "rankers", "audited", "alarms") else OUTPUTS:
                path = args.out / f"{world.replace(' ', '-')}-{n}-{outputs}.json"
                if path.exists() or (outputs > 1 and not 60 < n < LARGE):  # too few documents
                    continue
                started = time.monotonic()
                found = checked(world, n, outputs, sets=args.sets, seed=args.seed)
                path.write_text(json.dumps(found, indent=1), encoding="utf-8")
                print(f"{path.name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    rows = defaultdict[str, list[dict[str, Any]]](list)
    for path in sorted(args.out.glob("*.json")):
        kind = next((kind for kind in TABLES if path.stem.startswith(kind)), "worlds")
        rows[kind] += json.loads(path.read_text(encoding="utf-8"))
    for name, table in TABLES.items():
        if rows[name]:
            finish(args, "statistical_truth", table(rows[name]), section=name)


if __name__ == "__main__":
    main()
