"""Measure the tests of the measures: the share of small faults in the code (mutants) that the tests notice.

usage: python -m benchmarks.mutants [--sample 100] [--seed 0] [--modules measures.ranks ...] [--write]

cosmic-ray (``make mutants`` installs it) finds the places and makes the faults: another operator, comparison, constant
or keyword, a negated condition, a loop that never runs. A sample is drawn by place, then by fault, so that operators
with many replacements do not decide the share. Mutants whose code differs in annotations and docstrings only are left
out. Every mutant runs the test files of its own module, up to the first failure, in a process forked from this one.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy  # noqa: F401  # what every test imports is imported once, before the forks
import pytest
import scipy.stats  # noqa: F401
from hypothesis import settings

from benchmarks.results import write_section

ROOT = Path(__file__).parent.parent
TESTS = {
    "measures.agreement": ["measures/test_agreement.py"],
    "measures.bias_and_skewness": ["measures/test_self_bias.py"],
    "measures.calibration": ["measures/test_calibration.py"],
    "measures.curve": ["measures/test_uniformity.py"],
    "measures.intervals": ["measures/test_intervals.py"],
    "measures.decision_statistics": ["measures/test_statistic.py", "measures/test_intervals.py"],
    "measures.likelihood": ["measures/test_likelihood.py"],
    "measures.mixture": ["measures/test_significance.py"],
    "measures.preference": ["measures/test_preference.py"],
    "measures.quantiles": ["measures/test_self_bias.py"],
    "measures.rank_statistic": [
        "measures/test_statistic.py",
        "measures/test_intervals.py",
        "measures/test_significance.py",
    ],
    "measures.ranks": ["measures/test_ranks.py"],
    "measures.resampling": ["measures/test_ranks.py"],
    "measures.significance": ["measures/test_significance.py"],
    "measures.statistic": ["measures/test_statistic.py", "measures/test_intervals.py"],
    "measures.uniformity": ["measures/test_uniformity.py"],
    "evaluation.comparison": ["evaluation/test_estimates.py", "evaluation/test_inputs_of_items.py"],
    "evaluation.estimates": ["evaluation/test_estimates.py", "evaluation/test_inputs_of_items.py"],
}
"""Module of evalbias -> its test files."""
BROKEN = "core/ExceptionReplacer"
"""An operator of cosmic-ray that stops at ``except (A, B)``."""
SECONDS = 120
"""Time after which a mutant that does not end counts as noticed."""


@dataclass(frozen=True)
class Mutant:
    """A fault in one place.

    Attributes:
        module: Module below evalbias.
        line: Line of the place, from 1.
        fault: Name of the fault.
        code: The module's code with the fault.
        change: The lines that differ.
    """

    module: str
    line: int
    fault: str
    code: str
    change: str


def places(module: str) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """Return every place (line, column) of a module with its faults: name, and number among the faults of the name."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast(_path(module).read_text(encoding="utf-8"))))
    found: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in sorted(operator_names()):
        if name != BROKEN and not get_operator(name).arguments():
            positions = [p for node in nodes for p in get_operator(name)().mutation_positions(node)]
            for number, (start, _) in enumerate(positions):
                found.setdefault(start, []).append((name, number))
    return found


def mutant(module: str, line: int, fault: str, number: int) -> Mutant | None:
    """Make a mutant; None if the code would mean the same or nothing."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    code = _path(module).read_text(encoding="utf-8")
    changed = mutate_code(code, get_operator(fault)(), number)
    try:
        if changed is None or _meaning(changed) == _meaning(code):
            return None
    except SyntaxError:
        return None
    lines = difflib.unified_diff(code.splitlines(), changed.splitlines(), lineterm="", n=0)
    change = "\n".join(line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))
    return Mutant(module, line, fault, changed, change)


def _path(module: str) -> Path:
    return ROOT / "evalbias" / Path(*module.split(".")).with_suffix(".py")


def _meaning(code: str) -> str:
    """Return the syntax tree without annotations and docstrings."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            node.annotation = ast.Constant(0)
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(0)
    return ast.dump(tree)


class Replaced(importlib.abc.MetaPathFinder):
    """Import one module from another file.

    Args:
        name: Full name of the module.
        file: File with its code.
    """

    def __init__(self, name: str, file: Path) -> None:
        self._name, self._file = name, file

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> object:
        """See ``importlib``."""
        return importlib.util.spec_from_file_location(fullname, self._file) if fullname == self._name else None


def killed(module: str, code: str) -> bool:
    """Run a module's tests on other code, in a forked process, and return whether one fails."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mutant.py"
        file.write_text(code, encoding="utf-8")
        child = os.fork()
        if not child:
            signal.alarm(SECONDS)
            with Path(os.devnull).open("w") as null:
                os.dup2(null.fileno(), 1)
                os.dup2(null.fileno(), 2)
            sys.meta_path.insert(0, Replaced(f"evalbias.{module}", file))
            settings.register_profile("mutants", derandomize=True, database=None, max_examples=25)
            settings.load_profile("mutants")
            options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
            os._exit(int(pytest.main([*options, *(str(ROOT / "tests" / f) for f in TESTS[module])])))
        return os.waitpid(child, 0)[1] != 0


def drawn(modules: Sequence[str], sample: int, seed: int) -> list[Mutant]:
    """Draw mutants: places in random order, and one fault of each."""
    rng = random.Random(seed)
    everywhere = [(module, *place) for module in modules for place in sorted(places(module).items())]
    rng.shuffle(everywhere)
    chosen: list[Mutant] = []
    for module, (line, _), faults in everywhere:
        made = mutant(module, line, *rng.choice(faults))
        if made is not None:
            chosen.append(made)
        if len(chosen) == sample:
            break
    return chosen


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--modules", nargs="+", choices=[*TESTS], default=[*TESTS])
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    chosen = drawn(args.modules, args.sample, args.seed)
    for module in sorted({one.module for one in chosen}):
        if killed(module, _path(module).read_text(encoding="utf-8")):
            parser.error(f"{module}: its tests fail without any fault")
    survivors = []
    for number, one in enumerate(chosen, 1):
        if not killed(one.module, one.code):
            survivors.append(one)
            print(f"{number}: {one.module}:{one.line} {one.fault}\n{one.change}\n", flush=True)
    share = 100 * (1 - len(survivors) / len(chosen))
    found = f"{len(chosen)} mutants in {len(args.modules)} modules (seed {args.seed}): {share:.0f} % noticed"
    print(found)
    if args.write:
        lines = [f"- `{m.module}` line {m.line}, {m.fault}: `{' '.join(m.change.split())}`" for m in survivors]
        write_section(
            "mutants", "\n".join(["## Faults that the tests of the measures notice\n", f"{found}.", "", *lines])
        )


if __name__ == "__main__":
    main()
