"""Measure the biases of a judge, and compare two judges on the same items."""

from evalbias.evaluation.agreement import measure_ranking, ranking_agreement
from evalbias.evaluation.aspects import Aspect, measure_aspects
from evalbias.evaluation.baselines import Row, compare_with_baselines
from evalbias.evaluation.comparison import Change, Comparison, compare
from evalbias.evaluation.estimates import Estimate, Sample
from evalbias.evaluation.external_scores import CachedScorer
from evalbias.evaluation.finding import Finding
from evalbias.evaluation.function_judge import function_scores
from evalbias.evaluation.judged import Judged, judge_examples, total
from evalbias.evaluation.loop_comparison import LoopPair, LoopScores, compare_loops
from evalbias.evaluation.loop_summary import LoopSummary, doublings, summarize_loop
from evalbias.evaluation.loops import Loop, LoopRun, run_loops
from evalbias.evaluation.measurement import Bias, Measurement, measure
from evalbias.evaluation.recorded_judge import recorded_scores, recorded_verdicts
from evalbias.evaluation.registry import BIASES
from evalbias.evaluation.sample_size import items_needed, label_next
from evalbias.evaluation.self_bias import measure_rounds
from evalbias.evaluation.style import Paraphrased, StyleReport, measure_style

__all__ = [
    "BIASES",
    "Aspect",
    "Bias",
    "CachedScorer",
    "Change",
    "Comparison",
    "Estimate",
    "Finding",
    "Judged",
    "Loop",
    "LoopPair",
    "LoopRun",
    "LoopScores",
    "LoopSummary",
    "Measurement",
    "Paraphrased",
    "Row",
    "Sample",
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
