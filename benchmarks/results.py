"""Results in ``RESULTS.md``: one section per benchmark, replaced when the benchmark runs again with ``--write``."""

from __future__ import annotations

import os
import platform
import re
from datetime import date
from pathlib import Path

from evalbias.runs.folder import versions

RESULTS = Path(__file__).parent / "RESULTS.md"
TITLE = "# Results\n\nWritten by the benchmarks with `--write`. Every section says what was run, where and when.\n"


def write_section(name: str, text: str, path: Path = RESULTS, *, found: str = "Measured") -> None:
    """Replace the section of this name, or append it; the date, the machine and the versions are added to its text.

    Args:
        name: Name of the section.
        text: Text of the section.
        path: File to write.
        found: How its numbers were found.
    """
    first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    old = path.read_text(encoding="utf-8") if path.exists() else TITLE
    section = f"{first}\n{text.strip()}\n\n{found} {_provenance()}\n\n{last}"
    if first in old:
        before, _, rest = old.partition(first)
        new = before + section + rest.partition(last)[2]
    else:
        new = f"{old}\n{section}"
    path.write_text(new, encoding="utf-8")


def _provenance() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    packages = ", ".join(f"{name} {number}" for name, number in versions().items())
    return f"{date.today()}, {names[0] if names else platform.machine()}, {os.cpu_count()} cores; {packages}."
