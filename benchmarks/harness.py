"""Shared by the benchmarks: arguments, data and models, kept answers, Markdown tables, and their pages of results.

A benchmark is one module: its docstring says what it asks and how it is called, ``main`` runs it and ends in
``finish``, which prints the section and with ``--write`` puts it into ``results/NAME.md``. Only the text between a
section's two markers is replaced, so what people write around them stays.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import platform
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import evalbias.runs
from evalbias.measures import Interval
from evalbias.measures.arrays import FloatArray

if TYPE_CHECKING:
    from evalbias.lm.cache import CachedLM

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"


def argument_parser(doc: str | None, *, out: str | None = None) -> argparse.ArgumentParser:
    """Return a parser with ``--seed`` and ``--write``, and ``--out`` if the benchmark keeps files in ``runs/OUT``."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--write", action="store_true", help="put the section into benchmarks/results")
    if out is not None:
        made.add_argument("--out", type=Path, default=Path("runs") / out)
    return made


def data_folder(name: str = "") -> Path:
    """Return the folder of recorded data, or what it holds under a name.

    Raises:
        SystemExit: There is no such file or folder.
    """
    path = Path(os.environ.get("EVALBIAS_DATA", ROOT.parent / "shared/data")).resolve() / name
    if not path.exists():
        raise SystemExit(f"{path} does not exist: set EVALBIAS_DATA to the folder of recorded data.")
    return path


def lines(name: str) -> list[dict[str, Any]]:
    """Return the records of a file of the recorded data."""
    path = data_folder(name)
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        return [dict(json.loads(line)) for line in file]


SHARED = 0.4
"""Part of a variance that the outputs of one document share."""


def normal(rng: np.random.Generator, n: int, outputs: int, *shape: int) -> FloatArray:
    """Draw standard normal numbers (..., n), of which the outputs of a document share a part."""
    own = rng.normal(size=(*shape, n))
    if outputs == 1:
        return own
    shared = rng.normal(size=(*shape, -(-n // outputs))).repeat(outputs, axis=-1)[..., :n]
    return np.asarray(np.sqrt(SHARED) * shared + np.sqrt(1 - SHARED) * own)


Simulation = Callable[[int], Mapping[str, tuple[Interval, float]]]
"""Takes the number of a data set; returns by name an estimate from it, and what is true."""


def simulated(once: Simulation, sets: int) -> dict[str, dict[str, float]]:
    """Count what becomes of estimates in data sets 0 to ``sets`` - 1, by name.

    ``covered`` is the share of the defined intervals that hold the ``truth``, ``found`` that of the data sets in which
    one excludes 0, and ``undefined`` that of those without one; ``mean`` and ``median`` are of the estimates.
    """
    drawn = defaultdict[str, list[tuple[float, ...]]](list)
    for number in range(sets):
        for name, (e, truth) in once(number).items():
            drawn[name].append((truth, e.value, e.low, e.high))
    rows = {}
    for name, many in drawn.items():
        truth, value, low, high = np.array(many).T
        bounded = ~np.isnan(low)
        covered = ((low - SLACK <= truth) & (truth <= high + SLACK))[bounded].mean() if bounded.any() else math.nan
        found = {"covered": covered, "found": ((low > 0) | (high < 0)).mean(), "undefined": 1 - bounded.mean()}
        found |= {"truth": truth.mean(), "mean": np.nanmean(value), "median": np.nanmedian(value)}
        found["width"] = np.nanmedian(high - low) if bounded.any() else math.nan
        rows[name] = {key: float(value) for key, value in found.items()}
    return rows


SLACK = 1e-9  # rounding error of an end


def keeping_answers(lm: Any, file: Path) -> CachedLM:
    """Return the model with a file of its answers, which hold for the same weights, precision and packages only."""
    from evalbias.lm.cache import CachedLM  # it loads torch

    return CachedLM(lm, file)


def markdown(headings: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def percents(*shares: float) -> list[str]:
    """Return shares as percentages of one decimal; empty for NaN."""
    return ["" if math.isnan(share) else f"{100 * share:.1f} %" for share in shares]


def marked(share: float, low: float, high: float, *, error: float = 0.0) -> str:
    """Return a share in percent: bold where it misses its goal, with "?" within two standard errors of it."""
    if math.isnan(share) or low <= share <= high:
        return "".join(percents(share))
    missed = share < low - 2 * error or share > high + 2 * error
    return f"**{100 * share:.1f} %**" if missed else f"{100 * share:.1f} % ?"


def as_text(value: float | None, form: str = ".2f") -> str:
    """Return a number in a format; "undefined" for NaN and None."""
    if value is None or math.isnan(value):
        return "undefined"
    return format(round(value, 10) + 0.0, form)  # no minus before a zero


def finish(args: argparse.Namespace, page: str, text: str, *, section: str = "") -> None:
    """Print a section; with ``--write``, put it into its page.

    Args:
        args: Parsed arguments.
        page: Name of the page in ``results``.
        text: The section, which begins with its heading (``##``).
        section: Name of the section on a page with several, such as the judge's.
    """
    print(text, flush=True)
    if args.write:
        write_section(RESULTS / f"{page}.md", section or page, text)


def write_section(file: Path, section: str, text: str) -> None:
    """Replace a section of a page, or add it at the end; the date, the machine and the versions are added."""
    replace_section(file, section, f"{text}\n\nMeasured {provenance()}")


def replace_section(file: Path, section: str, text: str) -> None:
    """Replace what stands between a section's markers in a page, or add it at the end."""
    old = file.read_text(encoding="utf-8") if file.exists() else f"# {file.stem.replace('_', ' ').capitalize()}\n"
    begin, end = f"<!-- begin {section} -->", f"<!-- end {section} -->"
    new = f"{begin}\n\n{text}\n\n{end}"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    found = pattern.search(old)
    content = old[: found.start()] + new + old[found.end() :] if found else f"{old.rstrip()}\n\n{new}\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")


def provenance() -> str:
    """Return the date, the processor and the versions of what computed a result."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    packages = ", ".join(f"{name} {number}" for name, number in evalbias.runs.versions().items())
    return f"{date.today()}, {names[0] if names else platform.machine()}, {os.cpu_count()} cores; {packages}."


def judge_of(identity: Any) -> str:
    """Return the parts of a model's identity on one line."""
    return ", ".join(f"{key} {value}" for key, value in identity.items())
