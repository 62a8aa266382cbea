"""A result as a build shows it: outcomes of conditions, and a summary in Markdown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evalbias.evaluation.words import Table
from evalbias.runs import no_link, write_whole
from evalbias.values import visible


class Outcome(NamedTuple):
    """Outcome of a condition."""

    code: int  # for the build to exit with: 0 where it passed, 1 where it failed, 3 where it is undecided
    why: str
    word: str  # for the code: "passed", "failed" or "undecided"; of a rate "certified" or "not certified"
    condition: str  # as the user wrote it
    criterion: str = ""  # name, in an audit of several criteria

    @property
    def reason(self) -> str:
        """The reason, after the name of the criterion if there are several."""
        return f"{self.criterion}: {self.why}" if self.criterion else self.why

    @property
    def sentence(self) -> str:
        """The word and the reason."""
        return f"{self.word}: {self.reason}"


def markdown(title: str, sections: Mapping[str, Sequence[str | Table]], decisions: Sequence[Outcome]) -> str:
    """Return decisions, and paragraphs and tables by heading, as Markdown; text of the data is escaped."""
    parts = [f"## {title}"]
    if decisions:
        rows = [(f"{d.criterion} {d.condition}".strip(), d.word, d.why) for d in decisions]
        parts.append(_table(Table(["condition", "outcome", "why"], rows, left=3)))
    for heading, content in sections.items():
        parts += [f"### {_plain(heading)}"] if heading else []
        parts += [_table(block) if isinstance(block, Table) else _plain(block) for block in content]
    return "\n\n".join(parts) + "\n"


MARK = "<!-- evalbias -->\n"
"""First and last line of a summary: a later summary may replace a file with this mark."""
OF_JOB = "GITHUB_STEP_SUMMARY"  # environment variable: the job's own summary, to which every command may append


def check_summary(file: Path) -> None:
    """Refuse a file that holds anything but a summary of ours, unless it is the job's own; and make its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(file) and (file.is_symlink() or not (file.is_file() and (_is_appended(file) or _is_ours(file)))):
        raise ValueError(f"{file} exists and is no summary of evalbias: choose another `summary`, or delete it.")


def write_summary(file: Path, text: str) -> None:
    """Replace an earlier summary, or append to an empty file or the job's own; no link is followed."""
    check_summary(file)  # once more, because the command took its time
    content = f"{MARK}{text}\n{MARK}"
    if _is_appended(file):
        with open(file, "a", encoding="utf-8", opener=no_link) as opened:
            opened.write(content)
    else:
        write_whole(file, content)


def _is_appended(file: Path) -> bool:
    return file.exists() and (os.path.abspath(file) == os.environ.get(OF_JOB) or file.stat().st_size == 0)


def _is_ours(file: Path) -> bool:
    with file.open("rb") as opened:
        mark = MARK.rstrip().encode()
        parts = opened.read().split(mark) if opened.read(len(mark)) == mark else []
    return len(parts) == 2 and not parts[1].strip()


def _table(table: Table) -> str:
    lines = [table.headings, [":--" if k < table.left else "--:" for k in range(len(table.headings))], *table.rows]
    ruled = ["| " + " | ".join(cells if n == 1 else map(_plain, cells)) + " |" for n, cells in enumerate(lines)]
    return "\n".join(ruled) + (f"\n\n{_plain(table.caption)}" if table.caption else "")


def _plain(text: str) -> str:
    """Escape the markup of Markdown and HTML."""
    return re.sub(r"([\\`*_\[\]<>#|~&!@$])", r"\\\1", " ".join(visible(text).split()))
