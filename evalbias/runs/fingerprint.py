"""Fingerprints: one digest for settings, data and programs, by which a log is known to be of the same thing."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

PRIVATE = re.compile("key|token$|secret|headers|base|url|cache$|callbacks")
"""Settings of a language model that name a secret or a place, or decide nothing."""
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

    A language model counts by its name and settings, without keys and addresses; a function by its code. Attributes
    that begin with an underscore do not count.
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
        "fields": {name: _describe_field(field) for name, field in part.signature.fields.items()},
        "demos": [_plain(dict(demo)) for demo in part.demos],
        "config": _plain(part.config),
        "lm": _plain(part.lm or dspy.settings.lm),
    }


def _describe_field(field: Any) -> dict[str, str]:
    extra = field.json_schema_extra or {}
    return {"type": str(field.annotation), **{name: str(extra.get(name)) for name in ("desc", "prefix")}}


def _describe_lm(lm: Any) -> Any:
    settings = getattr(lm, "kwargs", None) or {}
    kept = {name: _plain(value) for name, value in settings.items() if not PRIVATE.search(name)}
    return {"model": str(lm.model), **kept} if kept else str(lm.model)


def _describe_function(function: Any) -> dict[str, Any]:
    around = inspect.getclosurevars(function).nonlocals
    enclosed = {
        name: _code(one.__code__) if isinstance(one, FunctionType) else _plain(one) for name, one in around.items()
    }
    given = [_plain(function.__defaults__), _plain(function.__kwdefaults__), enclosed]
    return {"function": function.__qualname__, "code": digest([_code(function.__code__), *given])}


def _code(code: CodeType) -> list[Any]:
    """Return what a compiled function does, and what it names."""
    return [code.co_code.hex(), code.co_names, [_constant(one) for one in code.co_consts]]


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _code(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)  # a set has no order of its own


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
        return _describe_lm(value)
    if isinstance(value, FunctionType):
        return _describe_function(value)
    if is_dataclass(value):
        return repr(value)
    if _is_predictor(value) or hasattr(value, "named_parameters") or type(value).__module__.startswith("evalbias."):
        return describe(value)
    return getattr(value, "__qualname__", type(value).__name__)
