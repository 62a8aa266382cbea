"""Results in ``RESULTS.md``: one section per benchmark, replaced when the benchmark runs again with ``--write``."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from evalbias.runs import versions

RESULTS = Path(__file__).parent / "RESULTS.md"
TITLE = """\
# Results

Written by the benchmarks with `--write`. Every section says what was run, where and when. What follows from the figures
stands in the documentation: [likelihood](../docs/methods/likelihood.md#what-we-found), [position and the fairness
search](../docs/methods/fairness-search.md#what-we-found), [self-bias](../docs/methods/refine-loops.md#what-we-found).
"""
CHAPTERS = {
    "Likelihood bias": ("mitigation", "likelihood_bias", "fine_tuning", "choice"),
    "Position bias and the fairness search": ("zepo", "position", "merge_search"),
    "Self-bias": ("self_bias",),
    "The measures and the audit": ("statistical_truth", "mutants", "permutation_test", "audit"),
    "The judges that were trained here": ("tuned_judge", "small_judge"),
    "Speed": (),
}
"""Chapter -> first words of its sections' names, in the order of the page; the last one has all others."""


def write_section(name: str, text: str, path: Path = RESULTS, *, found: str = "Measured") -> None:
    """Replace the section of this name, or add it to its chapter; the date, the machine and the versions are added.

    Args:
        name: Name of the section.
        text: Text of the section, which begins with its heading (``##``).
        path: File to write.
        found: How its numbers were found.
    """
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = sections_of(old)
    sections[name] = f"\n{text.strip()}\n\n{found} {_provenance()}\n\n"
    path.write_text(page(sections), encoding="utf-8")


def sections_of(text: str) -> dict[str, str]:
    """Return the sections of the page by name, in their order."""
    return dict(re.findall(r"<!-- (?!end of )(.+?) -->\n(.*?)<!-- end of \1 -->\n", text, flags=re.DOTALL))


def page(sections: Mapping[str, str]) -> str:
    """Return the page of all sections, by chapter, with a table of contents."""
    chapters: dict[str, list[str]] = {chapter: [] for chapter in CHAPTERS}
    for name in sections:
        chapters[_chapter(name)].append(name)
    contents, blocks = [], []
    for chapter, names in chapters.items():
        names.sort(key=lambda name: _place(CHAPTERS[chapter], name))  # which keeps the order of equals
        links = "".join(f"\n  - {_link(sections[name])}" for name in names)
        contents += [f"- **{chapter}**{links}"] if names else []
        blocks += [f"<!-- {name} -->\n{sections[name]}<!-- end of {name} -->\n" for name in names]
    return "\n".join([TITLE, *contents, "", *blocks])


def _chapter(name: str) -> str:
    return next((chapter for chapter, firsts in CHAPTERS.items() if name.split()[0] in firsts), "Speed")


def _place(firsts: Sequence[str], name: str) -> int:
    return firsts.index(name.split()[0]) if firsts else 0


def _link(section: str) -> str:
    """Return a link to a section's heading, as GitHub names it."""
    title = section.strip().partition("\n")[0].removeprefix("## ")
    anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    return f"[{title}](#{anchor})"


def _provenance() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    packages = ", ".join(f"{name} {number}" for name, number in versions().items())
    return f"{date.today()}, {names[0] if names else platform.machine()}, {os.cpu_count()} cores; {packages}."
