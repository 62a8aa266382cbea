"""Checks that a model has passed when it was loaded before, kept in the user's cache.

A model is run on a few texts when it is loaded: whether it is causal, and whether it computes the same answers with
shared prefixes. This takes seconds, and the outcome is the same while model, code and device are. A passed check is
therefore noted in one small file, under the hash of everything that decides its outcome: the model's fingerprint, the
device, Python, every installed package with its version, and the code of this package and of the model. A check is run
if no such file exists or its content is not exactly what was written. Failed checks are not noted.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from evalbias.lm.fingerprint import cache_folder, store
from evalbias.values import read_json

SMALL = 10_000_000
"""Number of parameters below which nothing is noted: the checks take milliseconds."""


class PassedChecks:
    """The checks that one model has passed.

    Args:
        facts: What decides the checks' outcome; None if that is not known, so that every check is run.
    """

    def __init__(self, facts: Mapping[str, str] | None = None) -> None:
        self._facts = facts

    def __contains__(self, check: str) -> bool:
        """Return whether the model has passed a check before."""
        if self._facts is None:
            return False
        try:
            return read_json(self._file(check)) == self._note(check)
        except (OSError, ValueError):
            return False

    def add(self, check: str) -> None:
        """Note that the model has passed a check."""
        if self._facts is not None:
            store(self._file(check), self._note(check))

    def under(self, settings: Mapping[str, object]) -> PassedChecks:
        """Return the checks that the model has passed under some settings."""
        if self._facts is None:
            return self
        return PassedChecks({**self._facts, **{name: str(value) for name, value in settings.items()}})

    def _note(self, check: str) -> dict[str, str]:
        return {**(self._facts or {}), "passed": check}

    def _file(self, check: str) -> Path:
        text = json.dumps(self._note(check), sort_keys=True)
        return cache_folder() / "checks" / f"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}.json"


def passed_checks(model: Any, fingerprint: str) -> PassedChecks:
    """Return the checks that a loaded model has passed before; none of a small model, or one whose code is in no file.

    Args:
        model: The model on its device.
        fingerprint: Fingerprint of its weights, configuration and dtype.
    """
    code = _code(model)
    if code is None or model.num_parameters() < SMALL:
        return PassedChecks()
    return PassedChecks(
        {
            "model": fingerprint,
            "device": _device(model.device),
            "python": sys.version,
            "evalbias": version("evalbias"),
            "packages": _packages(),
            "code": code,
        }
    )


def _device(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} {torch.cuda.get_device_capability(device)}"
    return f"{device.type} {torch.backends.cpu.get_cpu_capability()}"


@cache
def _packages() -> str:
    """Return a hash of the names and versions of all other packages that are installed.

    A checkout of this one holds its metadata, which are on the path only for commands that are run there.
    """
    folders = [Path(entry) for entry in sys.path if entry]
    installed = {file.name for folder in folders if folder.is_dir() for file in folder.glob("*-info")}
    return _hash("\n".join(sorted(name for name in installed if not name.startswith("evalbias"))).encode())


def _code(model: Any) -> str | None:
    """Return a hash of the code that runs the model: this package's, and that of all its layers."""
    modules = [sys.modules.get(name) for name in {type(layer).__module__ for layer in model.modules()}]
    files: set[Any] = {getattr(module, "__file__", None) for module in modules}
    if None in files:
        return None
    own = map(str, Path(__file__).parent.glob("*.py"))
    return _hash(b"\n".join(Path(file).read_bytes() for file in sorted({*files, *own})))


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
