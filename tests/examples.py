"""The examples of README and docs: fenced blocks that run as a reader runs them, and the output shown below them.

The ``python`` and ``shell`` blocks of a page run in order, in one folder that looks like a checkout, and with one
namespace. A ``text`` block right below a block is its output: words must be equal, numbers nearly so. A comment on the
line above a block says what is special about it:

    <!-- example: slow -->                      runs with make test-all
    <!-- example: needs models -->              runs with make test-all after make models
    <!-- example: needs inspect_ai -->          runs with make test-integrations, which installs this package
    <!-- example: not run, it installs -->      does not run; a reason follows the comma
    <!-- example: exits with 1 -->              the last command of the block ends with this code

``python tests/examples.py [--all] PAGE ...`` runs pages, with slow examples or without, and writes outputs into them;
notebooks are pages too.
"""

import ast
import contextlib
import html
import io
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MODELS = Path(os.environ.get("EVALBIAS_MODELS", ROOT / ".models"))
WIDTH = "80"

_BLOCK = re.compile(
    r"(?:^<!-- example: (?P<mark>.*?) -->\n)?^```(?P<language>python|shell)\n(?P<text>.*?)^```\n"
    r"(?:\n^```text\n(?P<output>.*?)^```\n)?",
    flags=re.DOTALL | re.MULTILINE,
)
_NUMBER = re.compile(r"[-+−]?(?:\d[\d,]*\.?\d*|\.\d+)")  # noqa: RUF001 - a minus sign as it is printed
_VARIES = re.compile(r"runs/[\w./-]+|\d+(\.\d+)? (s|seconds)\b|[─━│┃┏┓┗┛┡┩╇┳┴┬┼├┤└┘╭╮╰╯ ]+")


@dataclass(frozen=True)
class Example:
    """One block of a page."""

    line: int  # of the page, on which the block's text begins
    language: str  # ``python`` or ``shell``
    text: str
    mark: str  # what the comment above says, or an empty text
    output: str | None  # that the page shows, if any
    span: tuple[int, int]  # where in the page the output stands

    def runs(self, available: Collection[str]) -> bool:
        """Whether all that the mark asks for is available."""
        return not self.mark or self.mark.startswith("exits with ") or self.mark in available

    @property
    def code(self) -> int:
        """The exit code that the page promises."""
        return int(self.mark.removeprefix("exits with ")) if self.mark.startswith("exits with ") else 0

    def commands(self) -> list[str]:
        """Return the commands of a shell block, without comments and with continued lines joined."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]


def examples_of(page: str) -> list[Example]:
    """Return the blocks of a page's text."""
    examples = []
    for found in _BLOCK.finditer(page):
        line, mark = page.count("\n", 0, found.start("text")) + 1, found["mark"] or ""
        examples.append(Example(line, found["language"], found["text"], mark, found["output"], found.span("output")))
    return examples


def run_page(page: Path, folder: Path, available: Collection[str] = ()) -> list[tuple[Example, str]]:
    """Run the examples of a page for which everything is available; returns each with what it printed."""
    (folder / "docs").symlink_to(ROOT / "docs")
    if MODELS.is_dir() and not (folder / ".models").exists():
        (folder / ".models").symlink_to(MODELS.resolve())
    namespace = {"__name__": "example"}
    ran = []
    for example in examples_of(page.read_text(encoding="utf-8")):
        if example.runs(available):
            try:
                printed = _run(example, folder, namespace)
            except Exception as error:
                raise AssertionError(f"{page.name}, line {example.line}: {error!r}") from error
            ran.append((example, printed))
    return ran


def _run(example: Example, folder: Path, namespace: dict[str, object]) -> str:
    from commands import changed_directory

    if example.language == "shell":
        return "".join(_shell(command, folder, example) for command in example.commands())
    out = io.StringIO()
    with changed_directory(folder), contextlib.redirect_stdout(out), mock.patch.dict(os.environ, COLUMNS=WIDTH):
        exec(compile(example.text, "example", "exec"), namespace)
    return out.getvalue()


def _shell(command: str, folder: Path, example: Example) -> str:
    """Run a command; ``evalbias`` in this process, which has imported what it needs, and any other in a shell."""
    from commands import evalbias

    with mock.patch.dict(os.environ, COLUMNS=WIDTH, TERMINAL_WIDTH=WIDTH):
        if command.startswith("evalbias ") and not re.search(r" [|>] ", command):
            done = evalbias(*shlex.split(command)[1:], cwd=folder, check=False)
        else:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PATH": path}
            done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, env=environment)
    if done.returncode != example.code:
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout if done.stdout or example.code == 0 else done.stderr


def same(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed: equal words, and numbers that differ no more than between machines.

    A line ``...`` stands for any lines. Names of run folders and seconds may differ.
    """
    parts = [_plain(part) for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)]
    return _follow(parts, _plain(printed))


def _follow(parts: list[list[str]], words: list[str]) -> bool:
    """Whether the words are the parts in their order, with any words between two of them."""
    (part, *later), length = parts, len(parts[0])
    if not later:
        return _equal(part, words)
    ends = range(length, len(words) + 1)
    return _equal(part, words[:length]) and any(_follow(later, words[end:]) for end in ends)


def _plain(text: str) -> list[str]:
    return _VARIES.sub(" ", text).split()


def _equal(left: list[str], right: list[str]) -> bool:
    return len(left) == len(right) and all(_near(a, b) for a, b in zip(left, right, strict=True))


def _near(left: str, right: str) -> bool:
    if _NUMBER.sub("#", left) != _NUMBER.sub("#", right):
        return False
    pairs = zip(_NUMBER.findall(left), _NUMBER.findall(right), strict=True)
    return all(math.isclose(_value(a), _value(b), rel_tol=0.05, abs_tol=0.03) for a, b in pairs)


def _value(number: str) -> float:
    return float(number.replace("−", "-").replace(",", "").rstrip("."))  # noqa: RUF001


def write_outputs(page: Path, available: Collection[str]) -> None:
    """Run a page and write what was printed into it."""
    with tempfile.TemporaryDirectory() as folder:
        ran = run_page(page, Path(folder), available)
    text = page.read_text(encoding="utf-8")
    for example, printed in reversed(ran):
        if example.output is not None and not re.search(r"^\.\.\.$", example.output, flags=re.MULTILINE):
            start, end = example.span
            lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
            text = text[:start] + "\n".join(lines) + "\n" + text[end:]
    page.write_text(text, encoding="utf-8")


def write_notebook(file: Path) -> None:
    """Run the code cells of a notebook in order and write what they show into it, as Jupyter does."""
    from commands import changed_directory

    notebook, namespace = json.loads(file.read_text(encoding="utf-8")), {"__name__": "notebook"}
    with tempfile.TemporaryDirectory() as folder:
        (beside := Path(folder, "docs", "notebooks")).mkdir(parents=True)
        (beside.parent / "data").symlink_to(ROOT / "docs" / "data")
        with changed_directory(beside):
            for number, cell in enumerate(code_cells(notebook), start=1):
                cell |= {"execution_count": number, "outputs": _shown(cell, namespace, number)}
    file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells of a notebook that run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _shown(cell: dict[str, Any], namespace: dict[str, object], number: int) -> list[dict[str, Any]]:
    """Run a cell; returns its outputs: what it printed, and the value of an expression on its last line."""
    tree, out = ast.parse("".join(cell["source"])), io.StringIO()
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "cell", "exec"), namespace)
        value = last and eval(compile(last, "cell", "eval"), namespace)
    lines = [text.splitlines(keepends=True) for text in (out.getvalue(), *_views(value))]
    outputs = [{"name": "stdout", "output_type": "stream", "text": lines[0]}] if lines[0] else []
    if lines[1:]:
        data = dict(zip(("text/plain", "text/html"), lines[1:], strict=False))
        outputs += [{"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}]
    return outputs


def _views(value: object) -> list[str]:
    """Return a value as text and, if it has such a view, as HTML; nothing of None."""
    if value is None:
        return []
    return [repr(value), *([value._repr_html_()] if hasattr(value, "_repr_html_") else [])]


def text_of(cell: dict[str, Any]) -> str:
    """Return the words that a cell shows, without drawings."""
    texts = ["".join(text) for out in cell["outputs"] for text in out.get("data", {"": out.get("text")}).values()]
    return html.unescape(re.sub(r"<(style|svg).*?</\1>|<[^>]+>", " ", "\n".join(texts), flags=re.DOTALL))


if __name__ == "__main__":
    everything = {"slow", *(["needs models"] if MODELS.is_dir() else [])} if "--all" in sys.argv else set()
    failures = 0
    for name in sys.argv[1:]:
        if not name.startswith("--"):
            try:
                write_notebook(Path(name)) if name.endswith(".ipynb") else write_outputs(Path(name), everything)
            except AssertionError as error:
                print(error, file=sys.stderr)
                failures += 1
    sys.exit(failures > 0)
