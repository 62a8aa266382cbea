"""Report the judgments of a batch to DSPy's callbacks, as if each had been a call of its own.

DSPy's tracing (MLflow's autolog and other tools) sees programs through callbacks around every call. A batch asks the
model without calling the program once per item, so its judgments would be invisible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy
from dspy.utils.callback import with_callbacks


def tell_callbacks(
    program: dspy.Module, inputs: Sequence[Mapping[str, Any]], predictions: Sequence[dspy.Prediction]
) -> None:
    """Report each judgment with its inputs and prediction; the time of the call is not reported.

    Args:
        program: Program that judged.
        inputs: (n,) arguments of each call.
        predictions: (n,) results.
    """
    if not (dspy.settings.callbacks or program.callbacks):
        return
    for arguments, prediction in zip(inputs, predictions, strict=True):
        _tell(program, arguments, prediction)


def _tell(program: dspy.Module, arguments: Mapping[str, Any], prediction: dspy.Prediction) -> None:
    @with_callbacks  # type: ignore[untyped-decorator]
    def call(instance: dspy.Module, *args: Any, **kwargs: Any) -> dspy.Prediction:
        """Return the prediction; the arguments are named as those of ``dspy.Module.__call__``."""
        return prediction

    call(program, **arguments)
