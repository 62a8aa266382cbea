"""evalbias: measure the biases of LLM judges and compile them away, on DSPy.

Names are loaded when they are first used, so that ``import evalbias`` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalbias.lm.embedded import embedded_judge_lm
    from evalbias.lm.local import LocalLM
    from evalbias.lm.recorded import RecordedLM
    from evalbias.optimizers.biased_demos import BiasedDemos
    from evalbias.programs.bridges import judge_metric, judge_reward, labelled
    from evalbias.programs.criterion import Criterion
    from evalbias.programs.measurement import measure_likelihood_bias
    from evalbias.programs.pointwise import PointwiseJudge, load_judge

_HOME = {
    "BiasedDemos": "evalbias.optimizers.biased_demos",
    "Criterion": "evalbias.programs.criterion",
    "LocalLM": "evalbias.lm.local",
    "PointwiseJudge": "evalbias.programs.pointwise",
    "RecordedLM": "evalbias.lm.recorded",
    "embedded_judge_lm": "evalbias.lm.embedded",
    "judge_metric": "evalbias.programs.bridges",
    "judge_reward": "evalbias.programs.bridges",
    "labelled": "evalbias.programs.bridges",
    "load_judge": "evalbias.programs.pointwise",
    "measure_likelihood_bias": "evalbias.programs.measurement",
}

__all__ = [
    "BiasedDemos",
    "Criterion",
    "LocalLM",
    "PointwiseJudge",
    "RecordedLM",
    "embedded_judge_lm",
    "judge_metric",
    "judge_reward",
    "labelled",
    "load_judge",
    "measure_likelihood_bias",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"evalbias has no {name!r}.")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
