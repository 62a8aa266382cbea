"""What decides a part's behavior, as far as JSON can hold it: whether a log is of the same thing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import dspy

PASSING = ("history", "callbacks", "report")
"""What a DSPy module holds that changes nothing it does."""


def described(part: Any) -> dict[str, Any]:
    """A part by its kind and its plain settings; language models by their names."""
    if isinstance(part, dspy.Predict):
        return _predictor(part)
    settings = {name: value for name, value in vars(part).items() if name not in PASSING and not name.startswith("_")}
    plain = {name: _plain(value) for name, value in settings.items()}
    return {"kind": type(part).__name__, **plain}


def _predictor(part: dspy.Predict) -> dict[str, Any]:
    """What a ``dspy.Predict`` asks, and whom."""
    return {
        "instructions": part.signature.instructions,
        "fields": list(part.signature.fields),
        "demos": [_plain(dict(demo)) for demo in part.demos],
        "config": _plain(part.config),
        "lm": getattr(part.lm or dspy.settings.lm, "model", None),
    }


def digest(content: Any) -> str:
    """16 hexadecimal digits over anything JSON can hold; what it cannot is taken by its text."""
    told = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    if value is None or isinstance(value, str | int | float):
        return value
    if hasattr(value, "model"):
        return str(value.model)
    if is_dataclass(value):
        return repr(value)
    if isinstance(value, dspy.Module) or type(value).__module__.startswith("evalbias."):
        return described(value)
    return getattr(value, "__qualname__", type(value).__name__)
