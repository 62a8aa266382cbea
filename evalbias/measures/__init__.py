"""Measures of a judge's bias and agreement: functions on arrays."""

from evalbias.measures.agreement import Agreement, kendall, pairwise_accuracy, pearson, spearman
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
    PermutationTest,
    RankStatistic,
    bias_score_statistic,
    bootstrap_ci,
    paired_permutation_test,
    performance_statistic,
)

__all__ = [
    "Agreement",
    "ConfidenceInterval",
    "LikelihoodBias",
    "LikelihoodPreference",
    "LongerPreference",
    "PermutationTest",
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
    "rs_scores",
    "spearman",
    "spearman_rows",
    "unfairness_scores",
]
