"""What share of small faults (mutants) in the measures and estimators do their quick tests notice?

usage: python -m benchmarks.mutants [--sample 300] [--seed 0] [--modules measures.agreement ...] [--minutes M]
           [--out DIR] [--write]

cosmic-ray (``make mutants`` installs it) finds the places and makes the faults: another operator, comparison, constant
or keyword, a negated condition, a loop that never runs. A sample is drawn by place, then by fault, so that operators
with many replacements do not decide the share. What is drawn in a line depends on the line, not on the code around it,
so that a change of the code leaves the rest of the sample as it was.

Left out are mutants that no test of numbers could notice: those that differ in annotations, in docstrings, in a
definition that a later one of the same name replaces (``@overload``), or in ``zip(strict=True)``, which asserts what
the code around it ensures; and those that Python warns about (``is`` with a literal), because the linter finds them.
``mutants_equivalents.json`` lists mutants that mean the same as the code, with the reason.

The tests of a package are imported and collected once, in a process of their own, and run once to learn how long each
takes and which modules it calls. Every mutant then gets a fork of this process, in which the functions' code is
exchanged, and the shortest tests that call its module run first, up to the first failure. A fault outside functions
decides what importing the module gives, so such a mutant starts from a process that has not imported it. Results are
kept in ``--out``, so that a stopped run continues; a mutant that no test noticed is tried again.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import importlib.abc
import importlib.util
import json
import os
import random
import resource
import sys
import tempfile
import threading
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from benchmarks.harness import argument_parser, finish

ROOT = Path(__file__).parent.parent
LEFT_OUT = (
    "core/ExceptionReplacer",  # stops at ``except (A, B)``
    "core/ReplaceBinaryOperator_BitAnd_Mul",  # these two mean the same for truth values
    "core/ReplaceBinaryOperator_BitOr_Add",
)
"""Operators of cosmic-ray that are not used."""


@dataclass(frozen=True)
class Mutant:
    """A fault in one place."""

    module: str  # below evalbias
    line: int  # of the place, from 1
    fault: str  # name of the fault
    code: str  # of the module with the fault
    change: str  # the lines that differ

    @property
    def title(self) -> str:
        """The change in one line."""
        return " ".join(self.change.split())


def path_of(module: str) -> Path:
    """Return the file of a module below evalbias; those of its programs and optimizers lie beside it."""
    folder = ROOT if module.startswith(("programs.", "optimizers.")) else ROOT / "evalbias"
    return folder / Path(*module.split(".")).with_suffix(".py")


def places(module: str) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """Return every place (line, column) of a module with its faults: name, and number among the faults of the name."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast(path_of(module).read_text(encoding="utf-8"))))
    by_place: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in sorted({*operator_names()} - {*LEFT_OUT}):
        kind = get_operator(name)
        if not kind.arguments():
            operator = kind()
            positions = [position for node in nodes for position in operator.mutation_positions(node)]
            for number, (start, _) in enumerate(positions):
                by_place.setdefault(start, []).append((name, number))
    return by_place


def mutant(module: str, line: int, fault: str, number: int) -> Mutant | None:
    """Make a mutant; None if the code would mean the same or nothing."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    code = path_of(module).read_text(encoding="utf-8")
    changed = mutate_code(code, get_operator(fault)(), number)
    if changed is None or not compiles(changed) or meaning(changed) == meaning(code):
        return None
    lines = difflib.unified_diff(code.splitlines(), changed.splitlines(), lineterm="", n=0)
    change = "\n".join(line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))
    return Mutant(module, line, fault, changed, change)


def compiles(code: str) -> bool:
    """Return whether Python compiles the code without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            compile(code, "<mutant>", "exec")
        except SyntaxError:  # as a warning becomes too
            return False
    return True


def meaning(code: str) -> str:
    """Return the syntax tree without annotations, docstrings, replaced definitions and the ``strict`` of ``zip``."""
    tree = ast.parse(code)
    last = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    tree.body = [node for node in tree.body if not isinstance(node, ast.FunctionDef) or last[node.name] is node]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
            node.keywords = []
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            node.annotation = ast.Constant(0)
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(0)
    return ast.dump(tree)


def drawn(modules: Sequence[str], sample: int, seed: int) -> list[Mutant]:
    """Draw mutants: places in random order, and one fault of each."""
    everywhere = []
    for module in modules:
        found = sorted(places(module).items())
        names = names_of([place for place, _ in found], path_of(module).read_text(encoding="utf-8"))
        for name, ((line, _), faults) in zip(names, found, strict=True):
            lot = hashlib.sha256(f"{seed} {module} {name}".encode()).hexdigest()  # depends on nothing else
            everywhere.append((lot, module, line, faults))
    chosen: list[Mutant] = []
    for lot, module, line, faults in sorted(everywhere):
        made = mutant(module, line, *random.Random(lot).choice(faults))
        if made is not None:
            chosen.append(made)
        if len(chosen) == sample:
            break
    return chosen


def names_of(positions: Sequence[tuple[int, int]], code: str) -> list[str]:
    """Name places (line from 1, column) by their line's text, the column in it, and how often both came before."""
    lines, seen, names = code.splitlines(), Counter[tuple[str, int]](), []
    for line, column in positions:
        text = lines[line - 1]
        key = (text.strip(), column - len(text) + len(text.lstrip()))
        names.append(f"{key} {seen[key]}")
        seen[key] += 1
    return names


SECONDS = 60
"""CPU time after which a mutant that does not end counts as noticed."""
OPTIONS = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly"]


class Trial:
    """A plugin for pytest that runs the collected tests on mutants whose faults lie within functions.

    ``tell`` is called with each mutant and whether a test noticed it; none is tried after ``end``, by the clock.
    """

    def __init__(self, mutants: Sequence[Mutant], tell: Callable[[Mutant, bool], None], end: float) -> None:
        self._mutants, self._tell, self._end = mutants, tell, end

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests without any fault, then those that call its module on each mutant in a fork."""
        files = {str(path_of(mutant.module)) for mutant in self._mutants}
        timed = [(*_timed(item, files), number) for number, item in enumerate(session.items)] if files else []
        timed.sort(key=lambda one: one[1:])
        for mutant in self._mutants:
            file = str(path_of(mutant.module))
            items = [session.items[number] for called, _, number in timed if file in called]
            if time.monotonic() > self._end:
                break
            self._tell(mutant, _forked(partial(_fails, mutant, items)))
        return True


def _timed(item: pytest.Item, files: Set[str]) -> tuple[set[str], float]:
    """Run a test; return the files of which it calls a function, and the seconds that it takes."""
    called = set[str]()

    def watch(frame: types.FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename in files:
            called.add(frame.f_code.co_filename)
            if called == files:
                stop(None)

    def stop(function: Any) -> None:
        sys.setprofile(function)
        threading.setprofile(function)

    stop(watch)
    try:
        reports = runtestprotocol(item, log=False)
    finally:
        stop(None)
    if any(report.failed for report in reports):
        raise pytest.UsageError(f"{item.nodeid} fails without any fault")
    return called, sum(report.duration for report in reports)


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
    """Import one module, by its full name, from another file."""

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


def try_all(
    mutants: Sequence[Mutant], inside: Sequence[bool], files: Sequence[str], journal: Path, *, end: float
) -> None:
    """Try the mutants of one package; append to a journal (JSON lines) each fault and whether a test noticed it.

    ``inside`` says of each whether the fault lies within a function; ``files`` are test files below tests/; none is
    tried after ``end``, by the clock.
    """

    def tell(mutant: Mutant, noticed: bool) -> None:
        with journal.open("a", encoding="utf-8") as lines:
            record = {"module": mutant.module, "line": mutant.line, "fault": mutant.fault, "change": mutant.title}
            lines.write(json.dumps({**record, "noticed": noticed}) + "\n")

    for mutant, within in zip(mutants, inside, strict=True):
        if not within and time.monotonic() < end:
            tell(mutant, imported(mutant, files))
    rest = [mutant for mutant, within in zip(mutants, inside, strict=True) if within]
    child = os.fork()
    if not child:
        with Path(os.devnull).open("w") as null:
            os.dup2(null.fileno(), 1)
        os._exit(int(pytest.main([*OPTIONS, *_paths(files)], plugins=[Trial(rest, tell, end)])))
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"{', '.join(sorted({one.module for one in mutants}))}: tests fail without any fault")


def _paths(files: Sequence[str]) -> list[str]:
    return [str(ROOT / "tests" / file) for file in files]


FOLDERS = {
    "measures": ("measures", "evaluation"),
    "evaluation": ("evaluation", "report"),
    "optimizers": ("optimizers",),
}
"""Part of evalbias -> folders of the tests that may notice its faults."""
LEFT_OUT_MODULES = ("measures.arrays", "evaluation.answers", "optimizers.proposers")
"""Modules that only word, load or propose, or that every test of the measures runs."""
MODULES = sorted(
    f"{part}.{path.stem}"
    for part in FOLDERS
    for path in path_of(f"{part}.any").parent.glob("[a-z]*.py")
    if f"{part}.{path.stem}" not in LEFT_OUT_MODULES
)
"""The measures, and the estimators and rules of choice of the other packages."""
EQUIVALENTS = Path(__file__).parent / "mutants_equivalents.json"


def files_of(folders: Sequence[str]) -> list[str]:
    """Return the test files of folders below tests/."""
    return [
        f"{folder}/{path.name}" for folder in folders for path in sorted((ROOT / "tests" / folder).glob("test_*.py"))
    ]


def within_function(mutant: Mutant) -> bool:
    """Return whether the fault lies in the body of a function, so that importing the module does not meet it."""
    tree = ast.parse(path_of(mutant.module).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return any(node.body[0].lineno <= mutant.line <= (node.end_lineno or 0) for node in functions)


def sample(folder: Path, size: int, seed: int) -> list[Mutant]:
    """Draw mutants, or read those drawn before from the same code: making one takes a second."""
    code = "".join(path_of(module).read_text(encoding="utf-8") for module in MODULES)
    key = hashlib.sha256(f"{size} {seed} {code}".encode()).hexdigest()[:12]
    path = folder / f"drawn-{key}.json"
    if not path.exists():
        path.write_text(json.dumps([asdict(one) for one in drawn(MODULES, size, seed)]), encoding="utf-8")
    return [Mutant(**one) for one in json.loads(path.read_text(encoding="utf-8"))]


def tried(journal: Path) -> dict[tuple[str, str], bool]:
    """Return (module, change) -> whether a test noticed it, by the latest record."""
    if not journal.exists():
        return {}
    records = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    return {(one["module"], one["change"]): one["noticed"] for one in records}


def section(chosen: list[Mutant], noticed: dict[tuple[str, str], bool], equivalents: list[Any], seed: int) -> str:
    """Return the section."""
    left_out = {(one["module"], one["change"]) for one in equivalents}
    same = [one for one in chosen if (one.module, one.title) in left_out]
    judged = [one for one in chosen if one in same or (one.module, one.title) in noticed]
    survivors = [one for one in judged if one not in same and not noticed[one.module, one.title]]
    killed, different = len(judged) - len(same) - len(survivors), len(judged) - len(same)
    modules = len({one.module for one in judged})
    parts = [
        "## Faults that the tests of the measures and estimators notice",
        f"{len(judged)} of {len(chosen)} drawn mutants were tried, of {modules} modules (seed {seed}): {killed} "
        f"noticed, {len(same)} mean the same as the code, {len(survivors)} survive: "
        f"{100 * killed / max(different, 1):.0f} % of those that differ in meaning are noticed.",
    ]
    counts = Counter(one.module for one in survivors)
    missing = Counter(one.module for one in chosen if one not in judged)
    if missing:
        parts.append("Not tried: " + ", ".join(f"`{name}` {count}" for name, count in sorted(missing.items())) + ".")
    if survivors:
        parts.append("Survivors: " + ", ".join(f"`{name}` {count}" for name, count in sorted(counts.items())) + ".")
        parts.append("\n".join(f"- `{one.module}` line {one.line}: `{one.title}`" for one in survivors))
    return "\n\n".join(parts)


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__, out="mutants")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--modules", nargs="+", choices=MODULES, default=MODULES)
    parser.add_argument("--minutes", type=float, default=60.0, help="try no further mutant after these")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    journal, end = args.out / "journal.jsonl", time.monotonic() + 60 * args.minutes
    equivalents = json.loads(EQUIVALENTS.read_text(encoding="utf-8"))
    left_out = {(one["module"], one["change"]) for one in equivalents}
    chosen, noticed = sample(args.out, args.sample, args.seed), tried(journal)
    for package, folders in FOLDERS.items():
        open_ones = [
            one
            for one in chosen
            if one.module in args.modules and one.module.partition(".")[0] == package
            if (one.module, one.title) not in left_out and not noticed.get((one.module, one.title))
        ]
        if open_ones and time.monotonic() < end:
            try_all(open_ones, [within_function(one) for one in open_ones], files_of(folders), journal, end=end)
    finish(args, "mutants", section(chosen, tried(journal), equivalents, args.seed))


if __name__ == "__main__":
    main()
