"""Judges, rankers and refine loops as DSPy programs."""

from evalbias.programs.criteria import (
    INTRINSIC,
    NEWSROOM,
    SUMMEVAL,
    SYNTHETIC,
    TMU_GFM,
    TOPICALCHAT,
    WEBNLG,
    WEBNLG_BINS,
)
from evalbias.programs.criterion import Criterion
from evalbias.programs.label_metrics import labeled, preference_accuracy, score_closeness
from evalbias.programs.labels import label_of
from evalbias.programs.metrics import judge_metric, judge_reward, preference_metric
from evalbias.programs.pairwise import PairwiseJudge, load_pairwise_judge
from evalbias.programs.pointwise import PointwiseJudge, load_judge
from evalbias.programs.ranking import PairwiseRanker, Ranking, load_ranker

__all__ = [
    "INTRINSIC",
    "NEWSROOM",
    "SUMMEVAL",
    "SYNTHETIC",
    "TMU_GFM",
    "TOPICALCHAT",
    "WEBNLG",
    "WEBNLG_BINS",
    "Criterion",
    "PairwiseJudge",
    "PairwiseRanker",
    "PointwiseJudge",
    "Ranking",
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
