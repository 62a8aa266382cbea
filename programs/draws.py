"""Asking a program again for another answer, where DSPy's cache would give the first one once more."""

from __future__ import annotations

import dspy


def drawn(module: dspy.Module, number: int) -> dspy.Module:
    """The module as it draws its number-th answer.

    What is drawn at a temperature is asked past the cache's other draws (DSPy's ``rollout_id``); what is written
    greedily is the same every time, and stays as it is.

    Args:
        module: Left as it is.
        number: From 0, the first draw; the same number finds the same draw in the cache.
    """
    if number == 0:
        return module
    copy: dspy.Module = module.deepcopy()
    for predictor in copy.predictors():
        lm = predictor.lm or dspy.settings.lm
        if lm is not None and predictor.config.get("temperature", lm.kwargs.get("temperature")) != 0:
            predictor.lm = lm.copy(rollout_id=number)
    return copy
