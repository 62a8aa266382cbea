"""Measure the biases of a judge, and compare two judges on the same items."""

from evalbias.evaluation.answers import function_scores, recorded_scores, recorded_verdicts
from evalbias.evaluation.audit import Finding
from evalbias.evaluation.bias import Bias, EffectBias
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.estimates import (
    Change,
    Comparison,
    Estimate,
    Measurement,
    Number,
    compare,
    items_needed,
    label_next,
    measure,
)
from evalbias.evaluation.judged import Judged, judge_examples, total
from evalbias.evaluation.loops import (
    CachedScorer,
    Loop,
    LoopPair,
    LoopRun,
    LoopScores,
    LoopSummary,
    Paraphrased,
    StyleReport,
    compare_loops,
    doublings,
    measure_aspects,
    measure_rounds,
    measure_style,
    run_loops,
    summarize_loop,
)
from evalbias.evaluation.rankings import Row, compare_with_baselines, measure_ranking, ranking_agreement

__all__ = [
    "BIASES",
    "Bias",
    "CachedScorer",
    "Change",
    "Comparison",
    "EffectBias",
    "Estimate",
    "Finding",
    "Judged",
    "Loop",
    "LoopPair",
    "LoopRun",
    "LoopScores",
    "LoopSummary",
    "Measurement",
    "Number",
    "Paraphrased",
    "Row",
    "StyleReport",
    "compare",
    "compare_loops",
    "compare_with_baselines",
    "doublings",
    "function_scores",
    "items_needed",
    "judge_examples",
    "label_next",
    "measure",
    "measure_aspects",
    "measure_ranking",
    "measure_rounds",
    "measure_style",
    "ranking_agreement",
    "recorded_scores",
    "recorded_verdicts",
    "run_loops",
    "summarize_loop",
    "total",
]
