"""Measures of a judge's bias and agreement: functions on arrays."""

from evalbias.measures.agreement import Agreement, kendall, pairwise_accuracy, pearson, spearman
from evalbias.measures.bias_and_skewness import SelfBias, distance_skewness, measure_self_bias, self_bias
from evalbias.measures.corrected import corrected_mean, corrected_rate
from evalbias.measures.curve import QuadraticFit, quadratic_fit
from evalbias.measures.decision_statistics import FairnessStatistic, OddsStatistic
from evalbias.measures.effect import FeatureEffect
from evalbias.measures.effect_statistic import EffectStatistic
from evalbias.measures.equal_quality import (
    effect_at_equal_quality,
    effect_change,
    likelihood_effect,
    likelihood_effect_change,
)
from evalbias.measures.forecasts import brier_scores, calibration_error
from evalbias.measures.intervals import ConfidenceInterval, bootstrap_ci, share_interval
from evalbias.measures.likelihood import (
    LikelihoodBias,
    bias_score,
    likelihood_bias,
    rs_scores,
    unfairness_scores,
)
from evalbias.measures.mqm import MQMError, MQMReading, mqm_score
from evalbias.measures.mqm_reading import parse_mqm, read_mqm
from evalbias.measures.preference import (
    calibration_gap,
    confidence,
    consistent_preferences,
    count_undefined,
    decision_rates,
    decision_shares,
    fairness,
    longer_wins,
    negative_entropies,
    position_consistency,
)
from evalbias.measures.quantiles import QuantileMap
from evalbias.measures.rank_statistic import RankStatistic, bias_score_statistic, performance_statistic
from evalbias.measures.ranks import spearman_rows
from evalbias.measures.reliability import cohen_kappa, krippendorff_alpha
from evalbias.measures.significance import PermutationTest, paired_permutation_test
from evalbias.measures.statistic import MeanStatistic, ShareStatistic, SkewnessStatistic, Statistic
from evalbias.measures.uniformity import score_uniformity

__all__ = [
    "Agreement",
    "ConfidenceInterval",
    "EffectStatistic",
    "FairnessStatistic",
    "FeatureEffect",
    "LikelihoodBias",
    "MQMError",
    "MQMReading",
    "MeanStatistic",
    "OddsStatistic",
    "PermutationTest",
    "QuadraticFit",
    "QuantileMap",
    "RankStatistic",
    "SelfBias",
    "ShareStatistic",
    "SkewnessStatistic",
    "Statistic",
    "bias_score",
    "bias_score_statistic",
    "bootstrap_ci",
    "brier_scores",
    "calibration_error",
    "calibration_gap",
    "cohen_kappa",
    "confidence",
    "consistent_preferences",
    "corrected_mean",
    "corrected_rate",
    "count_undefined",
    "decision_rates",
    "decision_shares",
    "distance_skewness",
    "effect_at_equal_quality",
    "effect_change",
    "fairness",
    "kendall",
    "krippendorff_alpha",
    "likelihood_bias",
    "likelihood_effect",
    "likelihood_effect_change",
    "longer_wins",
    "measure_self_bias",
    "mqm_score",
    "negative_entropies",
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
    "share_interval",
    "spearman",
    "spearman_rows",
    "unfairness_scores",
]
