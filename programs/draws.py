"""Asking a program again for another answer, where DSPy's cache would give the first one once more."""

from __future__ import annotations

from typing import Any

import dspy


def draw(module: dspy.Module, number: int, **inputs: Any) -> Any:
    """The module's number-th answer to its inputs.

    What is drawn at a temperature is asked past the cache's other draws (DSPy's ``rollout_id``); models that draw by a
    seed are given one, so that the same draw is the same text in any process. What is written greedily is the same
    every time, and the module itself is called. Otherwise a copy is, and the trace is of the module.

    Args:
        module: Left as it is.
        number: From 0; the same number finds the same draw.
        **inputs: Of the module.
    """
    copy = module.deepcopy()
    changed = [_numbered(predictor, number) for predictor in copy.predictors()]
    if not any(changed):
        return module(**inputs)
    found = copy(**inputs)
    originals = dict(zip(map(id, copy.predictors()), module.predictors(), strict=True))
    trace = dspy.settings.trace
    if trace:
        trace[:] = [(originals.get(id(predictor), predictor), *rest) for predictor, *rest in trace]
    return found


def _numbered(predictor: dspy.Predict, number: int) -> bool:
    """Let a predictor ask for one of its draws; whether that changes anything."""
    lm = predictor.lm or dspy.settings.lm
    told = {**getattr(lm, "kwargs", {}), **predictor.config}
    if lm is None or told.get("temperature") == 0:
        return False
    if getattr(lm, "draws_by_seed", False):
        predictor.config = {**predictor.config, "seed": (told.get("seed") or 0) * 1_000_003 + number}
    if number:
        predictor.config = {**predictor.config, "rollout_id": number}
    return bool(number) or "seed" in predictor.config
