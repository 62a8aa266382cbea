"""Repeated draws from a program, past DSPy's cache and reproducible by number."""

from __future__ import annotations

from typing import Any

import dspy

from evalbias.lm.contract import resolve_lm
from evalbias.lm.dspy_compat import active_trace

STRIDE = 1_000_003
"""Distance between the draws of two seeds; more draws of one prompt than this would repeat those of the next seed."""
LARGEST_SEED = 2**31 - 1
"""Largest seed that every server takes."""


def sample(module: Any, index: int, seed: int = 0, /, *values: Any, **inputs: Any) -> Any:
    """Return one of a module's draws for the given inputs.

    Requests at a temperature above 0 get a ``rollout_id`` of their own, so that DSPy's cache keeps the draws apart.
    Models that draw by a seed also get a seed, so that a draw is the same text in every process. If all predictors
    decode greedily, all draws are the same and the module itself is called. Otherwise a copy is called, and the trace
    names the predictors of the module.

    Args:
        module: Module to call; left unchanged.
        index: Number of the draw, from 0. The same index and seed return the same draw.
        seed: Seed for all draws; a seed of the model or of a predictor is added to it.
        *values: Inputs of the module by position.
        **inputs: Inputs of the module by name.
    """
    configs = [_config(predictor, index, seed) for predictor in module.predictors()]
    if not any(configs):
        return module(*values, **inputs)
    copy = module.deepcopy()
    for predictor, config in zip(copy.predictors(), configs, strict=True):
        predictor.config = {**predictor.config, **config}
    prediction = copy(*values, **inputs)
    originals = dict(zip(map(id, copy.predictors()), module.predictors(), strict=True))
    trace = active_trace()
    if trace:
        trace[:] = [(originals.get(id(predictor), predictor), *rest) for predictor, *rest in trace]
    return prediction


def draws(module: dspy.Module) -> bool:
    """Return whether a module may answer the same inputs differently.

    It cannot if it has predictors and all of them decode greedily, at temperature 0. A module without predictors is
    the user's own code, which may.
    """
    known = temperatures(module)
    return not known or any(temperature != 0 for temperature in known)


def temperatures(module: dspy.Module) -> list[float | None]:
    """Return the temperature of each predictor of a module; None where neither it nor its model tells one."""
    return [_settings(predictor).get("temperature") for predictor in module.predictors()]


def _settings(predictor: dspy.Predict) -> dict[str, Any]:
    lm = resolve_lm(None, predictor)
    default = {"temperature": getattr(lm, "default_temperature", None)}
    given = {**getattr(lm, "kwargs", {}), **predictor.config}
    return {**default, **{name: value for name, value in given.items() if value is not None}}


def _config(predictor: dspy.Predict, index: int, seed: int) -> dict[str, int]:
    """Settings that select a predictor's draw; empty if it decodes greedily."""
    lm, settings = resolve_lm(None, predictor), _settings(predictor)
    if lm is None or settings.get("temperature") == 0:
        return {}
    rollout = seed * STRIDE + index
    config = {"rollout_id": rollout} if rollout else {}
    if getattr(lm, "draws_by_seed", False):
        config["seed"] = ((settings.get("seed") or 0) * STRIDE + rollout) % LARGEST_SEED
    return config
