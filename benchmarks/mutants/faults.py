"""Make small faults (mutants) in the code of a module, and draw a sample of them.

cosmic-ray (``make mutants`` installs it) finds the places and makes the faults: another operator, comparison, constant
or keyword, a negated condition, a loop that never runs. A sample is drawn by place, then by fault, so that operators
with many replacements do not decide the share. What is drawn in a line depends on the line, not on the code around it,
so that a change of the code leaves the rest of the sample as it was.

Left out are mutants that no test of numbers could notice: those that differ in annotations, in docstrings, in a
definition that a later one of the same name replaces (``@overload``), or in ``zip(strict=True)``, which asserts what
the code around it ensures; and those that Python warns about (``is`` with a literal), because the linter finds them.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import random
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LEFT_OUT = (
    "core/ExceptionReplacer",  # stops at ``except (A, B)``
    "core/ReplaceBinaryOperator_BitAnd_Mul",  # these two mean the same for truth values
    "core/ReplaceBinaryOperator_BitOr_Add",
)
"""Operators of cosmic-ray that are not used."""


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

    @property
    def title(self) -> str:
        """The change in one line."""
        return " ".join(self.change.split())


def path_of(module: str) -> Path:
    """Return the file of a module below evalbias; those of its optimizers lie beside it."""
    folder = ROOT if module.startswith("optimizers.") else ROOT / "evalbias"
    return folder / Path(*module.split(".")).with_suffix(".py")


def places(module: str) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """Return every place (line, column) of a module with its faults: name, and number among the faults of the name."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast(path_of(module).read_text(encoding="utf-8"))))
    found: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in sorted({*operator_names()} - {*LEFT_OUT}):
        kind = get_operator(name)
        if not kind.arguments():
            operator = kind()
            positions = [position for node in nodes for position in operator.mutation_positions(node)]
            for number, (start, _) in enumerate(positions):
                found.setdefault(start, []).append((name, number))
    return found


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
    everywhere = [
        (_lot(seed, module, name), module, line, faults)
        for module in modules
        for name, line, faults in _named_places(module)
    ]
    chosen: list[Mutant] = []
    for lot, module, line, faults in sorted(everywhere):
        made = mutant(module, line, *random.Random(lot).choice(faults))
        if made is not None:
            chosen.append(made)
        if len(chosen) == sample:
            break
    return chosen


def _named_places(module: str) -> list[tuple[str, int, list[tuple[str, int]]]]:
    """Return name, line and faults of every place."""
    found = sorted(places(module).items())
    names = names_of([place for place, _ in found], path_of(module).read_text(encoding="utf-8"))
    return [(name, line, faults) for name, ((line, _), faults) in zip(names, found, strict=True)]


def names_of(positions: Sequence[tuple[int, int]], code: str) -> list[str]:
    """Name places (line from 1, column) by their line's text, the column in it, and how often both came before."""
    lines, seen, names = code.splitlines(), Counter[tuple[str, int]](), []
    for line, column in positions:
        text = lines[line - 1]
        key = (text.strip(), column - len(text) + len(text.lstrip()))
        names.append(f"{key} {seen[key]}")
        seen[key] += 1
    return names


def _lot(seed: int, module: str, name: str) -> str:
    """Return a random string that depends on nothing else."""
    return hashlib.sha256(f"{seed} {module} {name}".encode()).hexdigest()
