"""Judges, rankers and refine loops as DSPy programs."""

from evalbias.programs.criterion import BINS, PRESETS, SYNTHETIC, Criterion
from evalbias.programs.items import label_of
from evalbias.programs.judges import PointwiseJudge, load_judge
from evalbias.programs.metrics import (
    judge_metric,
    judge_reward,
    labeled,
    preference_accuracy,
    preference_metric,
    score_closeness,
)
from evalbias.programs.pairwise import PairwiseJudge, load_pairwise_judge
from evalbias.programs.ranking import PairwiseRanker, load_ranker

__all__ = [
    "BINS",
    "PRESETS",
    "SYNTHETIC",
    "Criterion",
    "PairwiseJudge",
    "PairwiseRanker",
    "PointwiseJudge",
    "judge_metric",
    "judge_reward",
    "label_of",
    "labeled",
    "load_judge",
    "load_pairwise_judge",
    "load_ranker",
    "preference_accuracy",
    "preference_metric",
    "score_closeness",
]
