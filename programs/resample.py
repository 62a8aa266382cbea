"""Asking a program again for another answer, where DSPy's cache would give the first one once more."""

from __future__ import annotations

from typing import Any

import dspy

from evalbias.lm.contract import resolve_lm
from evalbias.lm.dspy_compat import active_trace


def sample(module: dspy.Module, number: int, **inputs: Any) -> Any:
    """The module's number-th answer to its inputs.

    What is drawn at a temperature is asked past the cache's other draws (DSPy's ``rollout_id``); models that draw by a
    seed are given one, so that the same draw is the same text in any process. What is written greedily is the same
    every time, and the module itself is called. Otherwise a copy is, and the trace is of the module.

    Args:
        module: Left as it is.
        number: From 0; the same number finds the same draw.
        **inputs: Of the module.
    """
    configs = [_numbered(predictor, number) for predictor in module.predictors()]
    if not any(configs):
        return module(**inputs)
    copy = module.deepcopy()
    for predictor, config in zip(copy.predictors(), configs, strict=True):
        predictor.config = {**predictor.config, **config}
    found = copy(**inputs)
    originals = dict(zip(map(id, copy.predictors()), module.predictors(), strict=True))
    trace = active_trace()
    if trace:
        trace[:] = [(originals.get(id(predictor), predictor), *rest) for predictor, *rest in trace]
    return found


def _numbered(predictor: dspy.Predict, number: int) -> dict[str, int]:
    """What makes a predictor's request that of its number-th draw; nothing where it is the same every time."""
    lm = resolve_lm(None, predictor)
    told = {**getattr(lm, "kwargs", {}), **predictor.config}
    if lm is None or told.get("temperature") == 0:
        return {}
    drawn = {"rollout_id": number} if number else {}
    if getattr(lm, "draws_by_seed", False):
        drawn["seed"] = (told.get("seed") or 0) * 1_000_003 + number
    return drawn
