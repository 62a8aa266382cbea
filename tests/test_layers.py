"""Imports run one way, and importing the package loads nothing heavy."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = {
    "measures": ROOT / "evalbias/measures",
    "runs": ROOT / "evalbias/runs",
    "lm": ROOT / "evalbias/lm",
    "data": ROOT / "evalbias/data",
    "programs": ROOT / "programs",
    "evaluation": ROOT / "evalbias/evaluation",
    "optimizers": ROOT / "optimizers",
    "report": ROOT / "evalbias/report",
    "integrations": ROOT / "evalbias/integrations",
    "commands": ROOT / "evalbias/commands",
}
"""From the bottom up: a layer may import itself and those before it."""
APART = {("runs", "measures"), ("data", "lm"), ("integrations", "report"), ("commands", "integrations")}
"""(layer, an earlier one) that stand side by side."""

HEAVY = ("torch", "transformers", "openai", "aiohttp", "matplotlib", "dspy", "litellm", "scipy", "mlflow", "inspect_ai")

JUDGE = (
    "evalbias.commands.open_judges, evalbias.commands.run, evalbias.commands.score_rows, evalbias.programs, "
    "evalbias.report.html.texts"
)
"""What ``evalbias judge`` imports before it opens a model."""


def imported_layers(file):
    for node in ast.walk(ast.parse(file.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{a.name}" for a in node.names]
        for name in names:
            if name.startswith("evalbias."):
                yield name.split(".")[1]


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_run_one_way(layer):
    files = sorted(LAYERS[layer].rglob("*.py"))
    assert files
    names = list(LAYERS)
    allowed = {name for name in names[: names.index(layer) + 1] if (layer, name) not in APART}
    wrong = {(f.name, name) for f in files for name in imported_layers(f) if name not in allowed}
    assert not wrong


@pytest.mark.parametrize("package", ["data", "evaluation", "measures", "optimizers", "programs"])
def test_no_public_name_is_the_name_of_a_submodule(package):
    public = importlib.import_module(f"evalbias.{package}").__all__
    assert not set(public) & {path.stem for path in LAYERS[package].iterdir()}


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("evalbias, evalbias.cli", HEAVY),
        (JUDGE, [name for name in HEAVY if name not in ("dspy", "scipy")] + ["scipy.stats", "scipy.optimize"]),
    ],
)
def test_importing_loads_nothing_heavy(modules, heavy):
    code = f"import sys, {modules}; print([m for m in {heavy!r} if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert told.stdout.strip() == "[]"


def test_packages_are_attributes():
    code = "import evalbias; print(evalbias.programs.SYNTHETIC.name, evalbias.data.read.__name__)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert told.stdout == "quality read\n"


def test_every_public_name_loads():
    import evalbias

    assert [name for name in evalbias.__all__ if getattr(evalbias, name) is None] == []
    with pytest.raises(AttributeError, match="No evalbias attribute Nothing"):
        _ = evalbias.Nothing
