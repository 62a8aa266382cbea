"""evalbias: measure the biases of LLM judges and compile them away, on DSPy.

Names are loaded when they are first used, so that ``import evalbias`` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalbias.evaluation.likelihood import measure_likelihood_bias
    from evalbias.evaluation.loops import run_loops
    from evalbias.evaluation.position import measure_preference, ranking_agreement
    from evalbias.lm.embedded import embedded_judge_lm
    from evalbias.lm.local import LocalLM
    from evalbias.lm.recorded import RecordedLM
    from evalbias.lm.server import ServerLM
    from evalbias.optimizers.biased_demos import BiasedDemos
    from evalbias.optimizers.external_refine import ExternalFeedbackRefine
    from evalbias.optimizers.study import JudgeStudy
    from evalbias.optimizers.zepo.proposers import GrammarParaphraser, LMParaphraser
    from evalbias.optimizers.zepo.search import ZEPO
    from evalbias.programs.criterion import Criterion
    from evalbias.programs.metrics import judge_metric, judge_reward, labeled, preference_accuracy, preference_metric
    from evalbias.programs.pairwise import PairwiseJudge, load_pairwise_judge
    from evalbias.programs.pointwise import PointwiseJudge, load_judge
    from evalbias.programs.ranking import PairwiseRanker
    from evalbias.programs.refine import BestOfK, Improvement, SelfRefine

_HOME = {
    "BestOfK": "evalbias.programs.refine",
    "BiasedDemos": "evalbias.optimizers.biased_demos",
    "Criterion": "evalbias.programs.criterion",
    "ExternalFeedbackRefine": "evalbias.optimizers.external_refine",
    "GrammarParaphraser": "evalbias.optimizers.zepo.proposers",
    "Improvement": "evalbias.programs.refine",
    "JudgeStudy": "evalbias.optimizers.study",
    "LMParaphraser": "evalbias.optimizers.zepo.proposers",
    "LocalLM": "evalbias.lm.local",
    "PairwiseJudge": "evalbias.programs.pairwise",
    "PairwiseRanker": "evalbias.programs.ranking",
    "PointwiseJudge": "evalbias.programs.pointwise",
    "RecordedLM": "evalbias.lm.recorded",
    "SelfRefine": "evalbias.programs.refine",
    "ServerLM": "evalbias.lm.server",
    "ZEPO": "evalbias.optimizers.zepo.search",
    "embedded_judge_lm": "evalbias.lm.embedded",
    "judge_metric": "evalbias.programs.metrics",
    "judge_reward": "evalbias.programs.metrics",
    "labeled": "evalbias.programs.metrics",
    "load_judge": "evalbias.programs.pointwise",
    "load_pairwise_judge": "evalbias.programs.pairwise",
    "measure_likelihood_bias": "evalbias.evaluation.likelihood",
    "measure_preference": "evalbias.evaluation.position",
    "preference_accuracy": "evalbias.programs.metrics",
    "preference_metric": "evalbias.programs.metrics",
    "ranking_agreement": "evalbias.evaluation.position",
    "run_loops": "evalbias.evaluation.loops",
}

__all__ = [
    "ZEPO",
    "BestOfK",
    "BiasedDemos",
    "Criterion",
    "ExternalFeedbackRefine",
    "GrammarParaphraser",
    "Improvement",
    "JudgeStudy",
    "LMParaphraser",
    "LocalLM",
    "PairwiseJudge",
    "PairwiseRanker",
    "PointwiseJudge",
    "RecordedLM",
    "SelfRefine",
    "ServerLM",
    "embedded_judge_lm",
    "judge_metric",
    "judge_reward",
    "labeled",
    "load_judge",
    "load_pairwise_judge",
    "measure_likelihood_bias",
    "measure_preference",
    "preference_accuracy",
    "preference_metric",
    "ranking_agreement",
    "run_loops",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"evalbias has no {name!r}.")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
