"""Measures of a judge's bias and agreement: functions on arrays."""

from evalbias.measures.agreement import Agreement, kendall, pairwise_accuracy, pearson, spearman
from evalbias.measures.bias_and_skewness import SelfBias, distance_skewness, measure_self_bias, self_bias
from evalbias.measures.curve import QuadraticFit, quadratic_fit
from evalbias.measures.likelihood import (
    LikelihoodBias,
    bias_score,
    likelihood_bias,
    rs_scores,
    unfairness_scores,
)
from evalbias.measures.mqm import MQMError, MQMReading, mqm_score, parse_mqm, read_mqm
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
from evalbias.measures.quantiles import QuantileMap
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
from evalbias.measures.trajectories import Iteration, compare_self_bias, trajectory
from evalbias.measures.uniformity import score_uniformity

__all__ = [
    "Agreement",
    "ConfidenceInterval",
    "Iteration",
    "LikelihoodBias",
    "LikelihoodPreference",
    "LongerPreference",
    "MQMError",
    "MQMReading",
    "MeanStatistic",
    "PermutationTest",
    "QuadraticFit",
    "QuantileMap",
    "RankStatistic",
    "SelfBias",
    "bias_score",
    "bias_score_statistic",
    "bootstrap_ci",
    "calibration_gap",
    "compare_self_bias",
    "confidence",
    "count_undefined",
    "decision_rates",
    "distance_skewness",
    "fairness",
    "kendall",
    "likelihood_bias",
    "likelihood_preference",
    "longer_preference",
    "measure_self_bias",
    "mqm_score",
    "paired_permutation_test",
    "pairwise_accuracy",
    "parse_mqm",
    "pearson",
    "performance_statistic",
    "position_consistency",
    "quadratic_fit",
    "read_mqm",
    "rs_scores",
    "score_uniformity",
    "self_bias",
    "spearman",
    "spearman_rows",
    "trajectory",
    "unfairness_scores",
]
