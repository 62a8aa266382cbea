"""MLflow's tracing of judges and optimizers."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import mlflow

from evalbias import optimizers


def autolog(**options: Any) -> None:
    """Trace judges, loops and optimizers in MLflow: ``mlflow.dspy.autolog`` for programs of evalbias.

    A judgment is a span with its source and output, score, distribution and coverage; a batch makes one trace for each
    item. The prompt and the measured answer of the model are spans below it, unless it was part of a batch. With
    ``log_compiles=True``, an optimizer's ``compile`` is a run with the compiled program and the trainset as artifacts.

    MLflow traces the ``compile`` of optimizers that are imported when tracing starts. This function imports those of
    evalbias first; otherwise every judgment of a search would be a trace.

    Args:
        **options: Options of ``mlflow.dspy.autolog``.
    """
    for module in pkgutil.walk_packages(optimizers.__path__, f"{optimizers.__name__}."):
        importlib.import_module(module.name)
    mlflow.dspy.autolog(**options)
