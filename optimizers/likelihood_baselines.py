"""Baselines of a judge: the likelihood alone and the length alone, taken as scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy
import numpy as np

from evalbias.evaluation.estimates import Sample, clusters_of, estimate_value, estimates_of
from evalbias.evaluation.floors import surpasses
from evalbias.evaluation.formatting import number
from evalbias.evaluation.item_facts import human_scores
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, LIKELIHOODS, Judged
from evalbias.lm.types import MeasuringLM
from evalbias.measures import performance_statistic, spearman_rows
from evalbias.measures.arrays import FloatArray
from evalbias.programs.criterion import Criterion
from evalbias.programs.likelihoods import likelihood_scores

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
    human, clusters = judged.covariate(HUMAN_SCORES), clusters_of(judged)
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
