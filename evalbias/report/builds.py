"""A result as a build shows it: a summary in Markdown, and a badge."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

from evalbias.evaluation.audit import Audit, Audits
from evalbias.evaluation.biases import title_of
from evalbias.evaluation.words import Table, in_one_line, joined
from evalbias.measures.equal_quality import SCORE_SD
from evalbias.measures.resample import SHARE
from evalbias.measures.scale_use import SLOPE
from evalbias.report.tables import biases_table
from evalbias.values import message, visible


class Outcome(NamedTuple):
    """Outcome of a condition."""

    code: int  # for the build to exit with: 0 where it passed, 1 where it failed, 3 where it is undecided
    why: str
    word: str  # for the code: "passed", "failed" or "undecided"; of a rate "certified" or "not certified"
    condition: str  # as the user wrote it
    criterion: str = ""  # of an audit of several

    @property
    def reason(self) -> str:
        """Why, after the name of the criterion if there are several."""
        return f"{self.criterion}: {self.why}" if self.criterion else self.why

    @property
    def sentence(self) -> str:
        """The word and the reason."""
        return f"{self.word}: {self.reason}"


def markdown(title: str, sections: Mapping[str, Sequence[str | Table]], decisions: Sequence[Outcome]) -> str:
    """Return what was decided, and paragraphs and tables by heading, as Markdown; no text of the data marks up."""
    parts = [f"## {title}"]
    if decisions:
        rows = [(f"{one.criterion} {one.condition}".strip(), one.word, one.why) for one in decisions]
        parts.append(_table(Table(["condition", "outcome", "why"], rows, left=3)))
    for heading, content in sections.items():
        parts += [f"### {_plain(heading)}"] * bool(heading)
        parts += [_table(one) if isinstance(one, Table) else _plain(one) for one in content]
    return "\n\n".join(parts) + "\n"


def sections_of(audits: Mapping[str, Audit]) -> dict[str, Sequence[str | Table]]:
    """Return each audit's verdict and table of biases by criterion; a single audit has the name ``""``."""
    sections: dict[str, Sequence[str | Table]] = {} if "" in audits else {"": [Audits(audits).verdict]}
    for name, audit in audits.items():
        sections[name] = [*audit.paragraphs, biases_table(audit)]
    return sections


SVG, LABEL = "http://www.w3.org/2000/svg", "judge audited"
GREEN, RED, GREY = "#2e7d32", "#b3261e", "#6a675f"
UNITS = {SCORE_SD: " sd", SHARE: " in win rate", SLOPE: " in slope"}


def badge(result: Mapping[str, Any]) -> str:
    """Return an SVG badge of the result.json of an audit; KeyError, TypeError or AttributeError for another result.

    It is red where a bias is found, grey where one is undecided, none was measured or the judge is not shown to tell
    good from bad, and green where every measured bias is ruled out: above the farther end of its 95 % interval.
    """
    audits = {name: one["audit"] for name, one in result.get("criteria", {"": result}).items()}
    findings = [(_named(bias, name), f) for name, one in audits.items() for bias, f in one["biases"].items()]
    status: dict[str, list[str]] = {}
    for name, finding in findings:
        status.setdefault(finding["status"], []).append(name)
    validities = [one["validity"]["status"] for one in audits.values() if one["validity"]]
    doubts = [one for one in validities if one not in ("valid", "no better than a floor")]
    undecided = [*status.get("too few items", []), *status.get("bounds only", [])]
    color, text = GREY, "no bias could be measured"
    if biased := status.get("biased"):
        color, text = RED, f"biased ({joined(biased)})"
    elif doubts:
        text = f"agreement: {doubts[0]}"
    elif undecided:
        text = f"undecided ({joined(undecided)})"
    elif "no sign" in status:
        color, text = GREEN, ", ".join(_ruled_out(name, f) for name, f in findings if f["status"] == "no sign")
    parts = (LABEL, message(in_one_line(text)))
    widths = [6.5 * len(part) for part in parts]  # pixels
    size = {"width": f"{sum(widths) + 40:g}", "height": "20"}
    svg = ElementTree.Element("svg", {"xmlns": SVG, **size, "role": "img", "aria-label": ": ".join(parts)})
    x = 0.0
    for part, width, fill in zip(parts, widths, ("#3b3934", color), strict=True):
        ElementTree.SubElement(svg, "rect", x=f"{x:g}", width=f"{width + 20:g}", height="20", fill=fill)
        font = {"font-family": "Verdana,DejaVu Sans,sans-serif", "font-size": "11", "textLength": f"{width:g}"}
        ElementTree.SubElement(svg, "text", {"x": f"{x + 10:g}", "y": "14", "fill": "#fff", **font}).text = part
        x += width + 20
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def _named(bias: str, criterion: str) -> str:
    return title_of(bias) + (f" on {criterion}" if criterion else "")


def _ruled_out(name: str, finding: Mapping[str, Any]) -> str:
    """Say above which size a bias is ruled out; nothing is measured of one that the judge's making rules out."""
    if finding["margin"] is None:
        return f"no {name} by construction"
    low, high = finding["low"], finding["high"]
    end = -low if finding["estimates"][finding["name"]]["only_below"] else max(-low, high)
    bound = math.ceil(100 * max(end, 0.0)) / 100
    return f"no {name} bias above {bound:.2f}{UNITS.get(finding['unit'], '')}"


def _table(table: Table) -> str:
    lines = [table.headings, [":--" if k < table.left else "--:" for k in range(len(table.headings))], *table.rows]
    ruled = ["| " + " | ".join(cells if n == 1 else map(_plain, cells)) + " |" for n, cells in enumerate(lines)]
    return "\n".join(ruled) + (f"\n\n{_plain(table.caption)}" if table.caption else "")


def _plain(text: str) -> str:
    """Escape what Markdown and HTML would read as marks."""
    return re.sub(r"([\\`*_\[\]<>#|~&!@$])", r"\\\1", " ".join(visible(text).split()))
