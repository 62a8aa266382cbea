"""MLflow: judges and optimizers in its traces, as its scorers, and as its judge alignment.

It takes an extra: ``pip install 'evalbias[mlflow]'``.
"""

from __future__ import annotations

try:
    import mlflow  # noqa: F401
except ImportError as error:
    raise ImportError("This module needs MLflow: pip install 'evalbias[mlflow]'.") from error

from evalbias.integrations.mlflow.alignment import JudgeAlignment
from evalbias.integrations.mlflow.judge import MeasuredJudge
from evalbias.integrations.mlflow.tracing import autolog

__all__ = ["JudgeAlignment", "MeasuredJudge", "autolog"]
