"""Measures of a judge's bias and agreement: functions on arrays."""

from evalbias.measures.agreement import Agreement, kendall, pearson, spearman
from evalbias.measures.likelihood import (
    LikelihoodBias,
    bias_score,
    likelihood_bias,
    rs_scores,
    unfairness_scores,
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
    "PermutationTest",
    "RankStatistic",
    "bias_score",
    "bias_score_statistic",
    "bootstrap_ci",
    "kendall",
    "likelihood_bias",
    "paired_permutation_test",
    "pearson",
    "performance_statistic",
    "rs_scores",
    "spearman",
    "spearman_rows",
    "unfairness_scores",
]
