"""Judges as DSPy programs."""

from evalbias.programs.bridges import (
    judge_metric,
    judge_reward,
    labelled,
    preference_accuracy,
    preference_metric,
    score_closeness,
)
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
from evalbias.programs.labels import label_of
from evalbias.programs.pairwise import PairwiseJudge, load_pairwise_judge
from evalbias.programs.pointwise import PointwiseJudge, load_judge
from evalbias.programs.preference import (
    PreferenceMeasurement,
    RankingAgreement,
    measure_preference,
    ranking_agreement,
)
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
    "PreferenceMeasurement",
    "Ranking",
    "RankingAgreement",
    "judge_metric",
    "judge_reward",
    "label_of",
    "labelled",
    "load_judge",
    "load_pairwise_judge",
    "load_ranker",
    "measure_preference",
    "preference_accuracy",
    "preference_metric",
    "ranking_agreement",
    "score_closeness",
]
