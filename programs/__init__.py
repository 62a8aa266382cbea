"""Judges, rankers and refine loops as DSPy programs."""

from evalbias.programs.criterion import BINS as BINS
from evalbias.programs.criterion import PRESETS as PRESETS
from evalbias.programs.criterion import SYNTHETIC as SYNTHETIC
from evalbias.programs.criterion import Criterion as Criterion
from evalbias.programs.items import label_of as label_of
from evalbias.programs.jury import Jury as Jury
from evalbias.programs.jury import load_rule as load_rule
from evalbias.programs.metrics import judge_metric as judge_metric
from evalbias.programs.metrics import judge_reward as judge_reward
from evalbias.programs.metrics import labeled as labeled
from evalbias.programs.metrics import preference_accuracy as preference_accuracy
from evalbias.programs.metrics import preference_metric as preference_metric
from evalbias.programs.metrics import score_closeness as score_closeness
from evalbias.programs.pairwise import PairwiseJudge as PairwiseJudge
from evalbias.programs.pairwise import load_pairwise_judge as load_pairwise_judge
from evalbias.programs.pointwise import PointwiseJudge as PointwiseJudge
from evalbias.programs.pointwise import load_judge as load_judge
from evalbias.programs.ranking import PairwiseRanker as PairwiseRanker
from evalbias.programs.ranking import load_ranker as load_ranker
