"""The size of the house: who adds, removes."""

import ast
from collections import Counter

import pytest

from tests.test_layers import MODULES, ROOT, imported, trees  # whose trees are parsed once

LINES = {"sources": 40788, "tests": 34999, "benchmarks": 9290}
"""Most lines of each; the sources are to fall to 34,000, the tests to 31,000, the benchmarks to 9,000."""
MOST_MODULES, MOST_WITH_ONE_IMPORTER, LONGEST = 130, 15, 700
FIELDS = 12
"""Most fields of a dataclass that is no set of options."""
PARAMETERS = 8
"""Most parameters of a function that mirrors no command."""
MIRRORS = {
    "evaluation.audit.audit_answers",  # mirrors a command's options
    "lm.local.__init__",
    "lm.server.__init__",
    "lm.attention.attend",  # the signature that transformers calls
    "measures.equal_quality.__init__",  # these are what a user decides, each with a default
    "programs.pairwise.__init__",
    "programs.pointwise.__init__",
}
"""Functions with more."""
TWICE = {"Likelihood"}
"""Public names that two modules define: the bias of likely texts, and the question for a text's likelihood."""

CODE = {module: file for module, file in MODULES.items() if file.name != "__init__.py"}


def lines(files):
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


@pytest.mark.parametrize("part", LINES)
def test_lines(part):
    files = MODULES.values() if part == "sources" else (ROOT / part).rglob("*.py")
    assert lines(files) <= LINES[part]


def test_modules():
    importers = Counter(other for module in MODULES for other in imported()[module])
    assert len(CODE) <= MOST_MODULES
    assert sum(importers[module] == 1 for module in CODE) <= MOST_WITH_ONE_IMPORTER
    assert {module for module, file in CODE.items() if lines([file]) > LONGEST} == set()


def test_no_public_name_is_defined_twice():
    places = {}
    for module, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, set()).add(module)
    assert {name: sorted(where) for name, where in places.items() if len(where) > 1 and name not in TWICE} == {}


def test_dataclasses_have_few_fields():
    many = {}
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list):
                own = [one for one in node.body if isinstance(one, ast.AnnAssign)]
                many[f"{module}.{node.name}"] = sum("ClassVar" not in ast.unparse(one.annotation) for one in own)
    assert {name: count for name, count in many.items() if count > FIELDS} == {}


def test_functions_take_few_parameters():
    many = {}
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [one.arg for one in (*node.args.args, *node.args.kwonlyargs)]
                count = len(names) - (names[:1] in (["self"], ["cls"]))
                if count > PARAMETERS:
                    many[f"{module}.{node.name}".removeprefix("evalbias.")] = count
    assert {name: count for name, count in many.items() if name not in MIRRORS} == {}
