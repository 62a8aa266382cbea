"""Judges as DSPy programs."""

from evalbias.programs.bridges import judge_metric, judge_reward, labelled, score_closeness
from evalbias.programs.criteria import INTRINSIC, SYNTHETIC, TMU_GFM, WEBNLG, WEBNLG_BINS
from evalbias.programs.criterion import Criterion
from evalbias.programs.labels import label_of
from evalbias.programs.pointwise import PointwiseJudge, load_judge

__all__ = [
    "INTRINSIC",
    "SYNTHETIC",
    "TMU_GFM",
    "WEBNLG",
    "WEBNLG_BINS",
    "Criterion",
    "PointwiseJudge",
    "judge_metric",
    "judge_reward",
    "label_of",
    "labelled",
    "load_judge",
    "score_closeness",
]
