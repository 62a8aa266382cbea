"""The folder that a run leaves: run.json (what was run), journals, result.json (what came out) and plots."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from reprlib import Repr
from typing import Any, TypeVar

from evalbias.runs.fingerprint import digest
from evalbias.runs.journal import write_whole
from evalbias.runs.lock import FILE, KERNEL, lock_folder
from evalbias.runs.values import read_json, to_json

PACKAGES = ("evalbias", "dspy", "torch", "transformers", "numpy", "scipy")
SETTINGS, RESULT = "run.json", "result.json"
LOCKS = (FILE, KERNEL)
WRITTEN = re.compile(
    r"((run|result|sample|program|loop|search|judge(-.+)?)\.json|report\.html"
    r"|(judgments|likelihoods|answers|chunks|scores|rankings|outputs|steps|quality|fluency|understandability"
    r"|proposals|instructions)\.jsonl"
    r"|(consistency|sides|trajectory|history|curve|(scatter|scores|differences)(-.+)?)\.png)(\.part|\.torn)?"
    r"|\.lock(\.fd)?"
)
"""Names of the files that runs write into their folders and into those below."""

_DIGEST = re.compile(r"[0-9a-f]{16,}")
_SHORT = Repr()
_SHORT.maxstring = 120

Opened = TypeVar("Opened", bound="Closable")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that make the numbers."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def default_path(settings: Mapping[str, Any]) -> Path:
    """Return ``runs/COMMAND-DIGEST``: the same settings always name the same folder."""
    return Path("runs") / f"{str(settings['command']).replace(' ', '-')}-{digest(to_json(settings), 10)}"


class Closable:
    """An object with a ``close`` that ``with`` calls."""

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release what is held."""
        raise NotImplementedError


class RunFolder(Closable):
    """One run's folder, locked until it is closed; a run with the same settings continues in it.

    Args:
        path: Folder of this run, or an empty one; made if missing. None takes ``default_path(settings)``.
        settings: Everything that decides the numbers: command, models, seed, data hash and options. Kept in run.json.

    Raises:
        FolderInUse: Another process works in the folder.
        ValueError: The folder holds a run with other settings, or files of no run, or cannot be written; the message
            names what differs.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.path = path = default_path(settings) if path is None else path
        content = {**settings, "versions": versions()}
        try:
            path.mkdir(parents=True, exist_ok=True)
            _check_files(path, SETTINGS)
            self._lock = lock_folder(path)
            try:
                check_settings(path / SETTINGS, content)
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise ValueError(f"{path} cannot be written ({error.strerror or error}): choose another --out.") from error

    @property
    def journal(self) -> Path:
        """File to which answers are appended as they come."""
        return self.path / "judgments.jsonl"

    def file(self, kind: str, name: str, suffix: str) -> Path:
        """Return the path of a named artifact.

        Characters that no file name can hold become dashes; a digest then keeps names apart that differ in these only.
        """
        plain = re.sub(r"[^\w.-]+", "-", name)
        return self.path / (f"{kind}-" + (plain if plain == name else f"{plain}-{digest(name, 6)}") + suffix)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write result.json."""
        _write(self.path / RESULT, result)

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()


def _check_files(path: Path, settings: str) -> None:
    """Refuse a folder that holds files, but no run and no log with these settings: its files could be overwritten.

    Refuse one of a run too if a link stands where the run writes: it may lead to any file.
    """
    names = {file.name for file in path.iterdir()}
    other = names - {*LOCKS, f"{settings}.part"}
    if other and not other & {SETTINGS, settings}:
        raise ValueError(
            f"{path} holds files of no run, such as {min(other):.80}: choose a new folder as --out or log_dir."
        )
    if links := [name for name in sorted(names) if WRITTEN.fullmatch(name) and (path / name).is_symlink()]:
        raise ValueError(f"{path / links[0]} is a link, and a run writes there: delete the link.")


def check_settings(file: Path, settings: Mapping[str, Any]) -> None:
    """Keep settings in a file, or compare them with those that it keeps.

    Raises:
        ValueError: The file keeps other settings; the message names what differs. Or its folder holds files of no run.
    """
    content = to_json(settings)
    if file.parent.exists():
        _check_files(file.parent, file.name)
    if file.exists():
        _check_same(file.parent, read_json(file), content)
    else:
        _write(file, content)


def _write(file: Path, content: Any) -> None:
    write_whole(file, json.dumps(to_json(content), indent=2, allow_nan=False) + "\n")


def _check_same(path: Path, kept: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    differences = "; ".join(_differences(kept, given))
    if differences:
        raise ValueError(
            f"{path} holds a run with other settings ({differences}): choose another folder, or delete this one."
        )


def _differences(kept: Any, given: Any, name: str = "") -> Iterator[str]:
    """Say what differs between two JSON values, down to the parts that do, such as ``criteria[0].definition``."""
    if kept == given:
        return
    if isinstance(kept, Mapping) and isinstance(given, Mapping):
        for key in sorted({*kept, *given}):
            yield from _differences(kept.get(key), given.get(key), f"{name}.{key}" if name else key)
    elif isinstance(kept, list) and isinstance(given, list) and len(kept) == len(given):
        for index, pair in enumerate(zip(kept, given, strict=True)):
            yield from _differences(*pair, f"{name}[{index}]")
    else:
        yield f"{name}: {_shown(kept)} there, {_shown(given)} now"


def _shown(value: Any) -> str:
    """Show a setting; the first 8 digits of a digest, and both ends of a long text, tell two apart."""
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return f"{value[:8]}..."
    return _SHORT.repr(value)
