"""Fingerprints: one digest for settings, data and programs, by which a log is known to be of the same thing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

NEUTRAL = ("history", "callbacks", "report")
"""Attributes of a DSPy module that do not change what it does."""


def digest(content: Any, length: int = 16) -> str:
    """Return the first digits of the SHA-256 of JSON content; an object that JSON cannot hold counts by its text."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def describe(part: Any) -> dict[str, Any]:
    """Describe what decides the behavior of a module, metric or proposer as far as JSON can hold it.

    A language model counts by its name; attributes that begin with an underscore do not count.
    """
    if _is_predictor(part):
        return _describe_predictor(part)
    settings = {name: value for name, value in vars(part).items() if name not in NEUTRAL and not name.startswith("_")}
    return {"kind": type(part).__name__, **{name: _plain(value) for name, value in settings.items()}}


def _is_predictor(part: Any) -> bool:
    return hasattr(part, "signature") and hasattr(part, "demos")


def _describe_predictor(part: Any) -> dict[str, Any]:
    import dspy

    return {
        "instructions": part.signature.instructions,
        "fields": list(part.signature.fields),
        "demos": [_plain(dict(demo)) for demo in part.demos],
        "config": _plain(part.config),
        "lm": getattr(part.lm or dspy.settings.lm, "model", None),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    if value is None or isinstance(value, str | int | float):
        return value
    if hasattr(value, "model"):
        return str(value.model)
    if is_dataclass(value):
        return repr(value)
    if _is_predictor(value) or hasattr(value, "named_parameters") or type(value).__module__.startswith("evalbias."):
        return describe(value)
    return getattr(value, "__qualname__", type(value).__name__)
