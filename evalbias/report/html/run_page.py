"""The report of a run folder: what a command found, and what was run, from run.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy

from evalbias.evaluation.audit import Audit
from evalbias.evaluation.formatting import model_title
from evalbias.report.html.blocks import Section
from evalbias.report.html.page import FILE, Page
from evalbias.report.html.sections import Context, sections, several_criteria
from evalbias.report.html.worst import worst_of
from evalbias.runs.folder import SETTINGS
from evalbias.runs.listing import flatten
from evalbias.runs.values import read_json

TITLES = {"measure self": "Self-bias of recorded loops"}
"""Command -> title of a run that names neither criterion nor task."""


def write_report(
    folder: Path,
    result: Any,
    *,
    verdict: str = "",
    examples: Sequence[dspy.Example] = (),
    more: Sequence[Section | None] = (),
) -> Path:
    """Write report.html into a run folder and return its path.

    Args:
        folder: The run folder, which holds run.json.
        result: What the command found: measurements, comparisons and reports, in mappings and lists of any depth.
        verdict: The answer in one sentence, which stands first; empty leaves that to the sections' findings.
        examples: The judged items, in the order of the measurements, for the texts of the worst.
        more: Sections that follow those of the result; None is left out.
    """
    settings = read_json(folder / SETTINGS)
    parts = [*sections(result, Context(several_criteria(result))), *filter(None, more)]
    worst = worst_of(result, examples)
    title = result.judge if isinstance(result, Audit) else title_of_run(settings)
    page = Page(
        title[:1].upper() + title[1:],
        str(settings["command"]),
        parts if worst is None else [*parts, worst],
        verdict=verdict,
        run=_run(settings),
        settings={name: str(value) for name, value in flatten(settings).items()},
    )
    page.write(folder / FILE)
    return folder / FILE


def title_of_run(settings: Mapping[str, Any]) -> str:
    """Return what was judged, by which model and on which data, as far as the settings tell.

    Examples:
        >>> title_of_run({"command": "judge", "criteria": [{"name": "wit"}], "lm": {"model": "local/tiny"}})
        'Wit, judged by tiny'
    """
    criteria = settings.get("criteria")
    listed = criteria if isinstance(criteria, list) else ()
    names = ", ".join(str(c["name"]) for c in listed if isinstance(c, Mapping) and "name" in c)
    task = str(settings.get("task") or "").replace("-", " ")
    command = str(settings.get("command", ""))
    what = names or task or TITLES.get(command, command)
    model = model_title(_model(settings.get("lm")))
    done = "written and judged by" if task else "judged by"
    title = f"{what}, {done} {model}" if model else what
    return title[:1].upper() + title[1:]


def _run(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that a reader asks for, in words."""
    items = {side: (settings.get(side) or {}).get("items") for side in ("train", "test")}
    data = settings.get("data", "")
    facts = {
        "command": f"evalbias {settings['command']}",
        "data": ", ".join(data) if isinstance(data, list) else str(data),
        "items": "; ".join(f"{n:,} to {use}" for use, n in _uses(items) if n),
        "judge's model": _model(settings.get("lm")),
        "model of the likelihood": _model(settings.get("likelihood_lm")),
        "model that rewords": _model(settings.get("proposer_lm")),
        "seed": str(settings.get("seed", "")),
        "versions": ", ".join(f"{name} {version}" for name, version in settings.get("versions", {}).items()),
    }
    return {name: value for name, value in facts.items() if value}


def _uses(items: Mapping[str, int | None]) -> list[tuple[str, int | None]]:
    return [("measure", items["test"]), ("compile on or draw demonstrations from", items["train"])]


def _model(identity: Any) -> str:
    """Return the name of a model from what run.json keeps of it."""
    if not isinstance(identity, Mapping):
        return ""
    return str(identity.get("model") or identity.get("name") or "")
