"""``RESULTS.md``: one section a benchmark, replaced when the benchmark is run again with ``--write``."""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
TITLE = "# Results\n\nWritten by the benchmarks with `--write`; every section says what was run, on what, and when.\n"


def write_section(name: str, text: str, path: Path = RESULTS) -> None:
    """Put a section in place of the one of the same name, or at the end."""
    first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    old = path.read_text(encoding="utf-8") if path.exists() else TITLE
    section = f"{first}\n{text.strip()}\n\n{last}"
    if first in old:
        before, _, rest = old.partition(first)
        new = before + section + rest.partition(last)[2]
    else:
        new = f"{old}\n{section}"
    path.write_text(new, encoding="utf-8")
