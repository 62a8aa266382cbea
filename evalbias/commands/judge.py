"""The command that scores a data set with a saved judge, in this process or on a Ray cluster."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated

import typer

from evalbias.commands.options import LM, Data, Json, Models, Out, opening_models

Workers = Annotated[
    str | None,
    typer.Option(
        help="'ray', or 'ray:N' for N actors: a .jsonl corpus on a Ray cluster, never whole in memory; ids are "
        "compared within 256 items only."
    ),
]


@opening_models
def judge(
    judge: Annotated[Path, typer.Option(help="A compiled judge's JSON file.", exists=True, dir_okay=False)],
    data: Data,
    lm: LM,
    workers: Workers = None,
    *,
    models: Models,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Score every item of a data set with a compiled judge; scores.jsonl in the run's folder, one line an item."""
    if workers is None:
        _here(judge, data, lm, models, out, as_json)
    else:
        _spread(judge, data, lm, workers, models, out, as_json)


def _here(judge: Path, data: str, lm: str, models: Models, out: Path | None, as_json: bool) -> None:
    from evalbias.commands.run import Run
    from evalbias.commands.score_rows import rows_of, summary
    from evalbias.commands.task import Task, load_items
    from evalbias.data import DataError
    from evalbias.programs import load_judge
    from evalbias.runs.values import to_json

    program = load_judge(judge)
    items = load_items(data)
    if not items and not items.left_out:
        raise DataError(f"{data} holds no items: there is nothing to judge.")
    task = Task(data, items.sha256, (program.criterion,), None, [], list(items), left_out=items.left_out)
    options = {"judge": hashlib.sha256(judge.read_bytes()).hexdigest()}
    run = Run("judge", task, lm=lm, models=models, out=out, options=options)
    with run.progress(len(items)):
        rows = rows_of(items, program.batch(items, lm=run.lm))
    file = run.folder.path / "scores.jsonl"
    file.write_text("".join(json.dumps(to_json(row)) + "\n" for row in rows), encoding="utf-8")
    brief, coverage = summary(file)
    run.finish(brief, brief, as_json, _told(brief, file), {program.criterion.name: coverage})


def _spread(judge: Path, data: str, lm: str, workers: str, models: Models, out: Path | None, as_json: bool) -> None:
    from evalbias.commands.run import print_result, progress_bar
    from evalbias.commands.run_on_ray import Spread
    from evalbias.commands.score_rows import summary

    found = re.fullmatch(r"ray(?::([1-9]\d*))?", workers)
    if found is None:
        raise typer.BadParameter(f"--workers {workers}: write ray, or ray:N for N actors.")
    spread = Spread(judge, Path(data), lm, models, out)
    with progress_bar(spread.items, "judging") as advance:
        told = spread.run(int(found[1]) if found[1] else None, advance)
    brief, coverage = summary(spread.scores)
    brief |= told
    spread.folder.write_result(brief)
    print_result(brief, as_json, _told(brief, spread.scores), {spread.program.criterion.name: coverage}, spread.folder)


def _told(brief: dict[str, object], file: Path) -> str:
    return f"{brief['n']} items scored, {brief['undefined']} undefined: {file}"
