"""Measures of a judge's bias and agreement: functions on arrays."""

from evalbias.measures.agreement import Agreement, kendall, pairwise_accuracy, pearson, spearman
from evalbias.measures.curve import QuadraticFit, quadratic_fit
from evalbias.measures.likelihood import (
    LikelihoodBias,
    bias_score,
    likelihood_bias,
    rs_scores,
    unfairness_scores,
)
from evalbias.measures.preference import (
    LikelihoodPreference,
    LongerPreference,
    calibration_gap,
    confidence,
    count_undefined,
    decision_rates,
    fairness,
    likelihood_preference,
    longer_preference,
    position_consistency,
)
from evalbias.measures.ranks import spearman_rows
from evalbias.measures.significance import (
    ConfidenceInterval,
    MeanStatistic,
    PermutationTest,
    RankStatistic,
    bias_score_statistic,
    bootstrap_ci,
    paired_permutation_test,
    performance_statistic,
)
from evalbias.measures.uniformity import score_uniformity

__all__ = [
    "Agreement",
    "ConfidenceInterval",
    "LikelihoodBias",
    "LikelihoodPreference",
    "LongerPreference",
    "MeanStatistic",
    "PermutationTest",
    "QuadraticFit",
    "RankStatistic",
    "bias_score",
    "bias_score_statistic",
    "bootstrap_ci",
    "calibration_gap",
    "confidence",
    "count_undefined",
    "decision_rates",
    "fairness",
    "kendall",
    "likelihood_bias",
    "likelihood_preference",
    "longer_preference",
    "paired_permutation_test",
    "pairwise_accuracy",
    "pearson",
    "performance_statistic",
    "position_consistency",
    "quadratic_fit",
    "rs_scores",
    "score_uniformity",
    "spearman",
    "spearman_rows",
    "unfairness_scores",
]
