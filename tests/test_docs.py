"""The examples of README and docs run as they stand, and the output that a page shows is what they print."""

import ast
import doctest
import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from pkgutil import resolve_name
from types import ModuleType

import pytest
from examples import NOTEBOOKS, PAGES, ROOT, code_cells, examples_of, run_page, same, text_of
from picture import PICTURE, audit
from PIL import Image
from test_layers import MODULES

NAMES = [str(page.relative_to(ROOT)) for page in PAGES if examples_of(page.read_text(encoding="utf-8"))]


def check(name, folder, available=()):
    for example, printed in run_page(ROOT / name, folder, available):
        if example.output is not None:
            assert same(example.output, printed), f"{name}, line {example.line} prints:\n{printed}"


def marks(name):
    return {example.mark for example in examples_of((ROOT / name).read_text(encoding="utf-8"))}


_LONG = ("programs", "correct", "drift", "compare", "notebook", "likelihood", "scale-use", "position")
_LONG += ("dspy", "tutorial", "jury", "agreement", "how-to/probes")
LONG = ("README.md", *(f"{page}.md" for page in _LONG))
"""Pages whose examples take seconds."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * name.endswith(LONG)) for name in NAMES])
def test_the_examples_of_a_page_run(name, tmp_path):
    check(name, tmp_path)


def test_the_examples_of_docstrings_run():
    tried = 0
    for module, file in MODULES.items():
        if ">>>" in file.read_text(encoding="utf-8"):
            found = doctest.testmod(import_module(module))
            assert not found.failed, module
            tried += found.attempted
    assert tried > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if "slow" in marks(name)])
def test_the_slow_examples_of_a_page_run(name, tmp_path):
    check(name, tmp_path, {"slow"})


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if "needs models" in marks(name)])
@pytest.mark.usefixtures("models_dir")
def test_the_examples_of_a_page_with_a_pretrained_model_run(name, tmp_path):
    check(name, tmp_path, {"needs models"})


@pytest.mark.slow
@pytest.mark.parametrize("name", [file.name for file in NOTEBOOKS])
def test_a_notebook_shows_what_its_cells_do(name, tmp_path):
    kept, ran = ROOT / "docs" / "notebooks" / name, tmp_path / name
    shutil.copy(kept, ran)
    subprocess.run([sys.executable, ROOT / "tests" / "examples.py", ran], check=True, cwd=ROOT)  # without this process
    before, after = (code_cells(json.loads(file.read_text(encoding="utf-8"))) for file in (kept, ran))
    assert sum("text/html" in out.get("data", {}) for cell in before for out in cell["outputs"]) > 0
    for one, other in zip(before, after, strict=True):
        assert same(text_of(one), text_of(other)), f"{''.join(one['source'])}\nshows:\n{text_of(other)}"


def test_every_command_has_the_options_that_a_page_gives_it():
    from typer.main import get_command

    from evalbias.cli.app import app

    found, whole = 0, get_command(app)
    for page in PAGES:
        for example in examples_of(page.read_text(encoding="utf-8")):
            for line in example.commands() if example.language == "shell" else []:
                if line.startswith("evalbias "):
                    command, words = whole, shlex.split(line, comments=True)[1:]
                    while hasattr(command, "commands") and words and not words[0].startswith("-"):
                        command = command.commands[words.pop(0)]
                    options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
                    given = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
                    assert given <= options | {"--help"}, f"{page.name}: {line}"
                    found += 1
    assert found


FIGURES = r"""
docs/biases/likelihood.md | statistical_truth
effect of \.1 in (\d+) % of samples, \.2 in (\d+) %, and \.3 in (\d+) %
an effect is found: .* of \+0\.1 in (\d+) %, of \+0\.2 in (\d+) %, of \+0\.3 in (\d+) %
docs/limits.md | statistical_truth
one moves \.8 points and the other 1\.2, an unbiased judge is called biased in (\d+) % of samples of 600
\| 0\.8, 1\.2 \| 600 \|(?: [^|]+ \|){3} \**(\d+\.\d) %
docs/limits.md | statistical_truth
with ten outputs an input are doubted in (\d+\.\d) %
right forecasts, 10 outputs an input \| no \| 400 \| (\d+\.\d) %
docs/methods/likelihood.md | mitigation
choose for (\d+) pairs .* The given judge was kept in (\d+);
Compiled: the given judge was kept in (?=\d+ of (\d+))(\d+) of
docs/methods/likelihood.md | correction
of length or better in (\d+) of (\d+) rows of a judge
halved or better at no lower Pearson in (\d+) of (\d+) rows
docs/methods/fairness-search.md | racing
formula, 100 searches each \| 100 \| (\d+) % \| (\d+) %
100 searches of 5 epochs .*? \| 100 \| [\d, ]+ \| (\d+)% (?:[^|]+\|){4} (\d+)%
docs/how-to/probes.md | probes
planted biases of \.3 to \.4 points are found in (\d+) to (\d+) %
0\.3 points, [^|]+ \| one kind \| ([\d.]+)%.*? 0\.4 points, [^|]+ \| one kind \| ([\d.]+)%
docs/how-to/server.md | serving
gets ([\d,]+) judgments with 8 demonstrations .* with 64 requests in flight, and ([\d,]+) with 1,024
CPU ms a request .*?\| 64 \| (\d+) .*? \| 1024 \| (\d+)
""".strip().splitlines()
"""Page and file of results; what the page says; what the results say: three lines for each."""


@pytest.mark.parametrize("figures", [FIGURES[k : k + 3] for k in range(0, len(FIGURES), 3)])
def test_the_figures_of_a_page_are_those_of_results(figures):
    where, told, measured = figures
    page, results = where.split(" | ")
    files = page, f"benchmarks/results/{results}.md"
    texts = [" ".join((ROOT / file).read_text(encoding="utf-8").split()) for file in files]
    found = [re.search(pattern, text) for pattern, text in zip((told, measured), texts, strict=True)]
    page_says, results_say = ([round(float(f.replace(",", ""))) for f in match.groups()] for match in found)
    assert page_says == results_say


def test_every_link_inside_the_documentation_leads_somewhere():
    for page in (*PAGES, *NOTEBOOKS):
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_first_screen_of_readme_says_what_this_is_for():
    screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:60])
    uses = ("## Compile a judge", "## Optimize a prompt for a new criterion", "## Embed the judge in a DSPy program")
    assert [use for use in uses if use not in screen] == []
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


@pytest.mark.slow
def test_every_picture_shows_what_a_command_of_today_draws(tmp_path):
    from benchmarks import gallery

    drawn = {PICTURE.name, *(f"gallery-{bias}.png" for bias in gallery.PLOTS)}  # which a test of the gallery compares
    assert {file.name for file in (ROOT / "docs").rglob("*.png")} <= drawn
    assert same(Image.open(PICTURE).text["verdict"], audit(tmp_path))


def test_the_reference_shows_every_public_name():
    import evalbias

    shown = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {id(resolve_name(path)) for path in shown}
    public = {name: getattr(evalbias, name) for name in evalbias.__all__}
    assert [n for n, value in public.items() if not (isinstance(value, ModuleType) or id(value) in named)] == []


@pytest.mark.parametrize(("shown", "printed", "equal"), [
    ("effect +0.71 *", "effect   +0.72 *\n", True),  # rounding differs between machines
    ("effect +0.71 *", "effect +0.81 *", False),
    ("effect +0.71", "effect -0.71", False),
    ("biased", "not biased", False),
    ("see runs/audit-1/report.html", "see runs/audit-2/report.html", True),
    ("first\n...\nlast 3", "first\nsecond\nthird\nlast 3", True),
    ("first\n...\nlast", "first\nlast\nmore", False),
    ("a\n...\nc\n...\ne", "a b c d e", True),
    ("a\n...\nx\n...\ne", "a b c d e", False),
])  # fmt: skip
def test_shown_and_printed_output_are_compared_by_words_and_by_value(shown, printed, equal):
    assert same(shown, printed) == equal


def test_whatever_the_architecture_names_exists():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    missing, named = [], re.findall(r"`([\w/]+\.py)(?::([\w.]+))?`", text)
    for path, name in named:
        file = next((f for f in (ROOT / path, ROOT / "evalbias" / path) if f.is_file()), None)
        if file is None or not {*name.split(".")} - {""} <= names_in(file):
            missing.append(f"{path}:{name}")
    assert missing == []
    assert len(named) > 60


@cache
def names_in(file):
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
