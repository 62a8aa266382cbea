"""Imports run one way and in no circle, and importing the package loads nothing heavy."""

import ast
import importlib
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import evalbias

ROOT = Path(__file__).parent.parent
SOURCES = {"evalbias": "evalbias", "programs": "evalbias.programs", "optimizers": "evalbias.optimizers"}
"""Folder -> name under which it is imported."""
LAYERS = ["values", "options", "program_options", "measures", "runs", "lm", "data", "programs", "evaluation"]
LAYERS += ["optimizers", "report", "integrations", "cli", "testing"]
"""From the bottom up: a layer may import itself and those before it."""
APART = {(later, "options") for later in ("measures", "runs", "lm", "data")}
APART |= {("measures", "values"), ("runs", "measures"), ("data", "lm"), ("integrations", "report")}
APART |= {("cli", "integrations")}
"""(layer, an earlier one) that stand side by side."""

HEAVY = ("torch", "transformers", "openai", "aiohttp", "matplotlib", "dspy", "litellm", "scipy", "mlflow", "inspect_ai")

JUDGE = "evalbias.cli.items, evalbias.cli.run, evalbias.cli.judge, evalbias.programs, evalbias.report.page"
"""What ``evalbias judge`` imports before it opens a model."""


def modules():
    """Return the name of each module -> its file."""
    found = {}
    for folder, package in SOURCES.items():
        for file in (ROOT / folder).rglob("*.py"):
            parts = [package, *file.relative_to(ROOT / folder).with_suffix("").parts]
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


MODULES = modules()


@cache
def trees():
    """Return the name of each module -> its syntax tree; parsed only where a test asks."""
    return {module: ast.parse(file.read_text(encoding="utf-8")) for module, file in MODULES.items()}


def imports(module):
    """Yield the modules of ours that a module imports, also inside functions and for types."""
    for node in ast.walk(trees()[module]):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{a.name}" for a in node.names]
        for name in names:
            inner = name if name in MODULES else name.rpartition(".")[0]
            if inner in MODULES and inner != module:
                yield inner


@cache
def imported():
    """Return the name of each module -> those of ours that it imports."""
    return {module: set(imports(module)) for module in MODULES}


def test_one_module_imports_what_dspy_does_not_export():
    deep = re.compile(r"^\s*(?:from|import) dspy\.", re.MULTILINE)
    found = {module for module, file in MODULES.items() if deep.search(file.read_text(encoding="utf-8"))}
    assert found == {"evalbias.lm.dspy_seam"}


def layer_of(module):
    return module.split(".")[1] if "." in module else module


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_run_one_way(layer):
    inside = [module for module in MODULES if layer_of(module) == layer]
    assert inside
    allowed = {name for name in LAYERS[: LAYERS.index(layer) + 1] if (layer, name) not in APART}
    pairs = [(module, other) for module in inside for other in imported()[module]]
    assert [pair for pair in pairs if layer_of(pair[1]) not in {*allowed, "evalbias"}] == []


def test_no_module_imports_itself_through_others():
    left = {module: set(others) for module, others in imported().items()}
    while free := [module for module, others in left.items() if not others]:
        left = {module: others - set(free) for module, others in left.items() if module not in free}
    assert sorted(left) == []


@pytest.mark.parametrize("package", ["data", "evaluation", "measures", "optimizers", "programs"])
def test_no_public_name_is_the_name_of_a_submodule(package):
    source = Path(importlib.import_module(f"evalbias.{package}").__file__)
    stub = source.with_suffix(".pyi")  # that of a package that loads its names on first use
    public = ast.parse((stub if stub.exists() else source).read_text(encoding="utf-8"))
    names = {one.asname or one.name for node in public.body if isinstance(node, ast.ImportFrom) for one in node.names}
    assert names
    assert not {f"evalbias.{package}.{name}" for name in names} & MODULES.keys()


def test_importing_loads_nothing_heavy():
    later = [name for name in HEAVY if name not in ("dspy", "scipy")] + ["scipy.stats", "scipy.optimize"]
    loaded, policy = "print([m for m in {!r} if m in sys.modules])".format, "print(os.environ['OMP_WAIT_POLICY'])"
    light = f"import os, sys, evalbias; {policy}; {loaded(HEAVY)}"
    whole = f"import evalbias.cli.app; {light}; import {JUDGE}; {loaded(later)}"
    # threads of torch sleep, unless the user says otherwise
    for chosen, code in (({}, whole), ({"OMP_WAIT_POLICY": "ACTIVE"}, light)):
        env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | chosen
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/", env=env)
        assert done.stdout.split() == (["ACTIVE", "[]"] if chosen else ["PASSIVE", "[]", "[]"])


def test_every_public_name_loads_and_they_are_few_and_differ_by_more_than_a_capital():
    for name in evalbias.__all__:
        assert getattr(evalbias, name) is not None
    with pytest.raises(AttributeError, match="No evalbias attribute Nothing"):
        _ = evalbias.Nothing
    names = dir(evalbias)
    assert len(names) <= 55
    assert [name for name, times in Counter(map(str.lower, names)).items() if times > 1] == []


@pytest.mark.parametrize(("package", "base", "others"), [
    ("optimizers", "JudgeOptimizer", {"learn_correction", "learn_jury"}), ("programs", "Program", None)
])  # fmt: skip
def test_a_package_lists_every_optimizer_or_program(package, base, others):
    module = importlib.import_module(f"evalbias.{package}")
    members = [vars(importlib.import_module(name)) for name in MODULES if name.startswith(f"{module.__name__}.")]
    classes = {cls for one in members for cls in one.values() if isinstance(cls, type)}
    classes = {cls for cls in classes if base in (parent.__name__ for parent in cls.__mro__)}
    ends = {cls.__name__ for cls in classes} - {parent.__name__ for cls in classes for parent in cls.__mro__[1:]}
    assert ends <= set(dir(module))
    assert others is None or ends | others == set(dir(module))
