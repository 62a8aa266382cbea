"""Repeated sampling from a program, past DSPy's cache and reproducible by index."""

from __future__ import annotations

from typing import Any

import dspy

from evalbias.lm.contract import resolve_lm
from evalbias.lm.dspy_compat import active_trace


def sample(module: dspy.Module, index: int, /, **inputs: Any) -> Any:
    """Return one of a module's samples for the given inputs.

    Requests at a temperature above 0 get a ``rollout_id`` of their own, so that DSPy's cache keeps the samples apart.
    Models that sample by a seed also get a seed, so that a sample is the same text in every process. If all predictors
    decode greedily, all samples are the same and the module itself is called. Otherwise a copy is called, and the trace
    names the predictors of the module.

    Args:
        module: Module to call; left unchanged.
        index: Number of the sample, from 0. The same index returns the same sample.
        **inputs: Inputs of the module.
    """
    configs = [_config(predictor, index) for predictor in module.predictors()]
    if not any(configs):
        return module(**inputs)
    copy = module.deepcopy()
    for predictor, config in zip(copy.predictors(), configs, strict=True):
        predictor.config = {**predictor.config, **config}
    prediction = copy(**inputs)
    originals = dict(zip(map(id, copy.predictors()), module.predictors(), strict=True))
    trace = active_trace()
    if trace:
        trace[:] = [(originals.get(id(predictor), predictor), *rest) for predictor, *rest in trace]
    return prediction


def _config(predictor: dspy.Predict, index: int) -> dict[str, int]:
    """Settings that select a predictor's sample; empty if it decodes greedily."""
    lm = resolve_lm(None, predictor)
    settings = {**getattr(lm, "kwargs", {}), **predictor.config}
    if lm is None or settings.get("temperature") == 0:
        return {}
    config = {"rollout_id": index} if index else {}
    if getattr(lm, "draws_by_seed", False):
        config["seed"] = (settings.get("seed") or 0) * 1_000_003 + index
    return config
