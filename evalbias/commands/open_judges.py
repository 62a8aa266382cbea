"""Open the judges that a command scores with: a saved one, or new ones for criteria."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from evalbias.commands.criteria import criteria_of
from evalbias.programs import PointwiseJudge, load_judge
from evalbias.runs.fingerprint import file_digest


def open_judges(
    judge: Path | None, criteria: list[str] | None, spec: str, scale: str | None, *, written: Mapping[str, str | None]
) -> tuple[list[PointwiseJudge], dict[str, Any]]:
    """Open a saved judge, or a new one for each criterion; also return what identifies the file, for run.json.

    Raises:
        BadParameter: Options that define a criterion stand beside a saved judge, which has its own.
    """
    if judge is None:
        return [PointwiseJudge(c) for c in criteria_of(spec, criteria, scale, written=written)], {}
    defining = {"criterion": criteria or None, "scale": scale, **written}
    given = [f"--{name.replace('_', '-')}" for name, value in defining.items() if value is not None]
    if given:
        raise typer.BadParameter(
            f"--judge: a saved judge has its own criterion, scale, task and labels. Leave out {', '.join(given)}."
        )
    return [load_judge(judge)], {"judge": file_digest(judge)}


def open_judge(
    judge: Path | None, criterion: str | None, spec: str, scale: str | None, *, written: Mapping[str, str | None]
) -> tuple[PointwiseJudge, dict[str, Any]]:
    """Open the one judge that is named; see ``open_judges``.

    Raises:
        BadParameter: Neither a saved judge nor a criterion is named.
    """
    if judge is None and criterion is None:
        raise typer.BadParameter("say which judge: --criterion 'name: definition' for a new one, or --judge FILE.")
    (program,), settings = open_judges(judge, None if criterion is None else [criterion], spec, scale, written=written)
    return program, settings
