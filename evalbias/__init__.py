"""evalbias: compile LLM judges on DSPy that agree better with people and are less biased, and audit any judge.

The public names are listed in ``__init__.pyi`` and loaded on first use, so that ``import evalbias`` is fast.
"""

from importlib.metadata import version
from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

MOVED = {
    "load": "load_correction load_judge load_pairwise_judge load_ranker load_rule",
    "judge_metric": "judge_reward",
    "compare": "gain",
    "CompareReport": "GainReport",
    "{}Report": "Audit Drift",
    "evaluation.{}": "Comparison Judged Measurement function_scores items_needed label_next measure_ranking "
    "measure_rounds run_loops",
    "evaluation.findings.{}": "Finding",
    "evaluation.audit.AuditReports": "Audits",
    "measures.{}": "corrected_mean corrected_rate",
    "measures.corrections.{}": "ScoreCorrection",
    "optimizers.base.{}": "JudgeOptimizer",
    "programs.{}": "BestOfK Improvement Jury SelfConsistencyRefine",
    "programs.save": "save_correction",
}
"""New place -> the names that moved there; {} stands for the name. Dropped with the next version."""


def __getattr__(name: str) -> Any:
    for place, names in MOVED.items():
        if name in names.split():
            raise AttributeError(f"evalbias.{name} is now evalbias.{place.format(name)}.")
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers", "tokenizers", "huggingface_hub", "safetensors"):
            raise
        raise ImportError(
            f"{name} loads models or tokenizers, which takes an extra: pip install 'evalbias[local]'."
        ) from error


__version__ = version("evalbias")
