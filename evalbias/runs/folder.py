"""The folder a run leaves: run.json (what was run), judgments.jsonl (the journal), result.json and plots."""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("evalbias", "dspy", "torch", "transformers", "numpy", "scipy")


def versions() -> dict[str, str]:
    """Of Python and of the packages that make the numbers."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def plain(value: Any) -> Any:
    """What JSON can hold: dataclasses as objects, arrays as lists, NaN and infinities as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class RunFolder:
    """One run's folder; a run with the same settings goes on in it.

    Args:
        path: Made if missing.
        settings: What decides the numbers: command, models, seed, data hash and options. Kept in run.json.

    Raises:
        ValueError: The folder holds a run with other settings; the message names what differs.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        told = {**plain(settings), "versions": versions()}
        file = path / "run.json"
        if file.exists():
            _same(path, json.loads(file.read_text(encoding="utf-8")), told)
        else:
            try:
                path.mkdir(parents=True, exist_ok=True)
                _write(file, told)
            except OSError as error:
                raise ValueError(f"{path} cannot be written ({error}): choose another --out.") from error

    @property
    def journal(self) -> Path:
        """Where the answers go as they come."""
        return self.path / "judgments.jsonl"

    def file(self, kind: str, name: str, suffix: str) -> Path:
        """Where something of a criterion goes; signs that no file name can hold become dashes."""
        return self.path / (f"{kind}-" + re.sub(r"[^\w.-]+", "-", name) + suffix)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write result.json."""
        _write(self.path / "result.json", plain(result))


def _write(file: Path, content: Any) -> None:
    """JSON, whole or not at all."""
    draft = file.with_suffix(".part")
    draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    draft.replace(file)


def _same(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    other = [k for k in sorted({*there, *here}) if there.get(k) != here.get(k)]
    if other:
        told = "; ".join(f"{k}: {there.get(k)!r} there, {here.get(k)!r} now" for k in other)
        raise ValueError(f"{path} holds a run with other settings ({told}): choose another --out or delete the folder.")
