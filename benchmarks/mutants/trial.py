"""Run the tests of one module on its mutants.

The tests are imported and collected once, in a process of their own, and run once to learn how long each takes. Every
mutant then gets a fork of this process, in which the functions' code is exchanged, and the shortest tests run first. A
fault outside functions decides what importing the module gives, so such a mutant starts from a process that has not
imported it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import json
import os
import resource
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy  # noqa: F401  # what every test imports is imported once, before the forks
import pytest
import scipy.stats  # noqa: F401
from _pytest.runner import runtestprotocol

from benchmarks.mutants.faults import ROOT, Mutant

SECONDS = 60
"""CPU time after which a mutant that does not end counts as noticed."""
OPTIONS = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly"]


class Trial:
    """A plugin for pytest that runs the collected tests on every mutant.

    Args:
        mutants: Mutants of one module whose faults lie within functions.
        tell: Called with each mutant and whether a test noticed it.
    """

    def __init__(self, mutants: Sequence[Mutant], tell: Callable[[Mutant, bool], None]) -> None:
        self._mutants, self._tell = mutants, tell

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests without any fault, then on each mutant in a fork."""
        timed = [(seconds, number) for number, item in enumerate(session.items) for seconds in [_seconds(item)]]
        items = [session.items[number] for _, number in sorted(timed)]
        for mutant in self._mutants:
            self._tell(mutant, _forked(lambda mutant=mutant: _fails(mutant, items)))
        return True


def _seconds(item: pytest.Item) -> float:
    reports = runtestprotocol(item, log=False)
    if any(report.failed for report in reports):
        raise pytest.UsageError(f"{item.nodeid} fails without any fault")
    return sum(report.duration for report in reports)


def _fails(mutant: Mutant, items: Sequence[pytest.Item]) -> bool:
    exchange(importlib.import_module(f"evalbias.{mutant.module}"), mutant.code)
    return any(report.failed for item in items for report in runtestprotocol(item, log=False))


def _forked(failing: Callable[[], bool]) -> bool:
    """Return whether a function says so in a fork, or the fork dies or takes too long."""
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        with Path(os.devnull).open("w") as null:
            os.dup2(null.fileno(), 1)
            os.dup2(null.fileno(), 2)
        noticed = True
        try:
            noticed = failing()
        finally:
            os._exit(int(noticed))
    return os.waitpid(child, 0)[1] != 0


def exchange(module: types.ModuleType, code: str) -> None:
    """Give the functions of a module, and the methods of its classes, the code of another version."""
    other: dict[str, Any] = {"__name__": module.__name__, "__package__": module.__package__}
    exec(compile(code, str(module.__file__), "exec"), other)
    _exchange(vars(module), other, module.__name__)


def _exchange(old: Any, new: Any, name: str) -> None:
    for key, value in new.items():
        known = old.get(key)
        if isinstance(value, type) and isinstance(known, type) and value.__module__ == name:
            _exchange(vars(known), vars(value), name)
        for one, other in zip(_functions(known), _functions(value), strict=False):
            if other.__module__ == name:
                one.__code__, one.__defaults__ = other.__code__, other.__defaults__
                one.__kwdefaults__ = other.__kwdefaults__


def _functions(value: Any) -> list[types.FunctionType]:
    if isinstance(value, property):
        return [value.fget] if isinstance(value.fget, types.FunctionType) else []
    bare = getattr(value, "__wrapped__", getattr(value, "__func__", getattr(value, "func", value)))
    return [bare] if isinstance(bare, types.FunctionType) else []


class Replaced(importlib.abc.MetaPathFinder):
    """Import one module from another file.

    Args:
        name: Full name of the module.
        file: File with its code.
    """

    def __init__(self, name: str, file: Path) -> None:
        self._name, self._file = name, file

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        """See ``importlib``."""
        return importlib.util.spec_from_file_location(fullname, self._file) if fullname == self._name else None


def imported(mutant: Mutant, files: Sequence[str]) -> bool:
    """Run tests on a mutant that is imported instead of its module, and return whether one fails."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mutant.py"
        file.write_text(mutant.code, encoding="utf-8")

        def failing() -> bool:
            sys.meta_path.insert(0, Replaced(f"evalbias.{mutant.module}", file))
            return bool(pytest.main([*OPTIONS, *_paths(files)]))

        return _forked(failing)


def try_all(mutants: Sequence[Mutant], inside: Sequence[bool], files: Sequence[str], journal: Path) -> None:
    """Try the mutants of one module and append one record each to a journal: fault and whether a test noticed it.

    Args:
        mutants: Mutants of one module.
        inside: Whether the fault of each lies within a function.
        files: Test files below tests/.
        journal: JSON lines.
    """

    def tell(mutant: Mutant, noticed: bool) -> None:
        with journal.open("a", encoding="utf-8") as lines:
            record = {"module": mutant.module, "line": mutant.line, "fault": mutant.fault, "change": mutant.title}
            lines.write(json.dumps({**record, "noticed": noticed}) + "\n")

    for mutant, within in zip(mutants, inside, strict=True):
        if not within:
            tell(mutant, imported(mutant, files))
    rest = [mutant for mutant, within in zip(mutants, inside, strict=True) if within]
    child = os.fork()
    if not child:
        with Path(os.devnull).open("w") as null:
            os.dup2(null.fileno(), 1)
        os._exit(int(pytest.main([*OPTIONS, *_paths(files)], plugins=[Trial(rest, tell)])))
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"{mutants[0].module}: its tests fail without any fault")


def _paths(files: Sequence[str]) -> list[str]:
    return [str(ROOT / "tests" / file) for file in files]
