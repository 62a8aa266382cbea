"""The commands of run folders: list, show, delete."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evalbias.cli.terminal import PlainConsole, print_json
from evalbias.values import message

if TYPE_CHECKING:
    from evalbias.runs import RunRecord


Root = Annotated[Path, typer.Option("--root", help="Folder that holds the run folders.", file_okay=False)]
Folder = Annotated[Path, typer.Argument(help="A run folder.", exists=True, file_okay=False)]

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")]

app = typer.Typer(no_args_is_help=True, help="List, show and delete run folders.")


@app.command("list")
def list_command(root: Root = Path("runs"), as_json: Json = False) -> None:
    """List the run folders, latest first."""
    from evalbias.evaluation.words import Table, count, model_title
    from evalbias.runs import list_runs

    if not root.is_dir():
        raise ValueError(f"{root} is not a folder: name the folder that holds the run folders with --root.")
    runs = list_runs(root)
    if as_json:
        print_json([_summary(run) for run in runs])
        return
    named = ("command", "data", "model", "status")
    rows = []
    for run in runs:
        summary = _summary(run)
        summary["model"] = model_title(str(summary["model"] or ""))
        rows.append((run.path.name, *(str(summary[n] or "-") for n in named), f"{run.changed:%Y-%m-%d %H:%M}"))
    headings = ("folder", *named, "changed (UTC)")
    table = Table(headings, rows, f"{count(len(runs), 'run')} in {root}", left=len(headings)).__rich__()
    table.columns[0].no_wrap = True  # a folder's name is copied for the next command
    PlainConsole().print(table)


@app.command("show")
def show_command(run: Folder, as_json: Json = False) -> None:
    """Show a run's settings and the numbers of its result."""
    from evalbias.runs import flatten, read_run

    record = read_run(run)
    if as_json:
        print_json({"settings": record.settings, "result": record.result, "status": record.status})
        return
    typer.echo(message(f"{record.path}: {record.status}"))
    if record.damage:
        typer.echo(message(record.damage))
    for part, content in (("settings", record.settings), ("result", record.result)):
        typer.echo(f"\n{part}")
        for name, value in flatten(content or {}).items():
            typer.echo("  " + message(f"{name}: {value}".replace("\n", "\n  ")))


@app.command("delete")
def delete_command(
    run: Folder, yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False
) -> None:
    """Delete what a run wrote into its folder, and the folder if nothing else is in it."""
    from evalbias.runs import delete_run, read_run

    record = read_run(run)
    if not yes:
        typer.confirm(message(f"Delete {record.path} ({record.status})?"), abort=True)
    left = delete_run(record.path)
    typer.echo(message(f"deleted {record.path}"))
    if left:
        names = ", ".join(file.name for file in left)
        typer.echo(message(f"kept {record.path} for what is not the run's: {names}"))


def _summary(run: RunRecord) -> dict[str, Any]:
    named = run.settings.get("lm")
    model = named if isinstance(named, dict) else {}
    return {
        "path": str(run.path),
        "command": run.settings.get("command"),
        "data": run.settings.get("data"),
        "model": model.get("model", model.get("name")),
        "status": run.status,
        "process": run.process,
        "changed": run.changed.isoformat(),
    }
