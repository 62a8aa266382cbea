"""``evalbias doctor``: the content of a file, the audits that it allows, and their commands."""

from __future__ import annotations

import csv
import itertools
import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from evalbias.cli.flags import LABELING, as_typed, command_line, spelled
from evalbias.cli.terminal import PlainConsole
from evalbias.data import importers, reading
from evalbias.data.columns import NO_FIELD, WIDEST, Columns, looked_at, recognised_columns
from evalbias.data.files import ANNOTATED, EXPORTS, Source, folder_files, memory_table
from evalbias.data.hints import judges_of
from evalbias.data.items import METADATA, DataError
from evalbias.data.long_form import JUDGED_BY
from evalbias.data.nested import cells_at
from evalbias.data.rating_values import OpenValuesError
from evalbias.evaluation.answers import answers_of, resolve_each
from evalbias.evaluation.biases import BIASES
from evalbias.evaluation.estimates import label_next as next_labels
from evalbias.evaluation.estimates import rate_again
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.words import Table, beginning, count, joined
from evalbias.options import RECORDED, AuditOptions, DoctorOptions
from evalbias.values import first_few, message, visible

SHOWN = 40  # largest number of characters of a cell
MOST = 6  # commands that are printed
SERVES = (  # of 500 simulated sets, 60 of 300 items each (tests/evaluation/test_sample_size.py)
    " The longest and the shortest come first, for the effect of length: its error is .5 to .7 of that by random ones. "
    "That of likelihood is .7 to .9 where it goes with length, and up to 1.1 where not; that of a system up to 1.1. "
    "Agreement with people rests on all items."
)


def doctor_command(options: DoctorOptions) -> None:
    """Print the content of a file and the audits that it allows; or, as CSV, a number of items to rate next.

    With options of an audit, these items come from that audit.
    """
    file, label_next = options.file or options.data, options.label_next
    settings = {name: value for name in LABELING if (value := getattr(options, name))}
    if label_next is None:
        if settings:
            raise ValueError(f"{', '.join(map(spelled, settings))}: for --label-next, as of 'evalbias audit'.")
        _examine(file)
        return
    if settings:
        columns: Sequence[str] = reading.opened(file).columns
        judged = [answers_of(resolve_each(AuditOptions(file, **settings))[0])]
    else:
        with redirect_stdout(sys.stderr):
            judged, columns = _examine(file)
    again = [name for answered in judged[:1] for name in rate_again(answered, label_next, 0)]
    chosen = [*again, *(name for answered in judged[:1] for name in next_labels(answered, label_next, 0))][:label_next]
    if not chosen:
        raise DataError(f"{file}: no item with an answer of the judge has one rating or none, so none is left to rate.")
    served, others = SERVES if again else "", len(chosen) - len(again)
    typer.echo(f"{len(again)} with one rating, for a second person; {others} without any.{served}", err=True)
    examples = dict(zip(judged[0].ids, judged[0].examples, strict=True))
    rows = csv.writer(sys.stdout, lineterminator="\n")
    key = "id" if "id" in columns else "row"
    rows.writerow((key, "input_id", "system", "source", "output_1", "output_2", "rating"))
    for name in chosen:
        e = examples[name]
        texts = (e.get("candidates") or [e.get("output"), ""])[:2]
        rows.writerow([*map(_cell, (name, e.get("input_id"), e.get("system"), e.get("source"), *texts)), ""])


def _cell(value: Any) -> str:
    """Return a text in visible characters; an apostrophe precedes text that a spreadsheet would run."""
    text = visible("" if value is None else re.sub(r"\r\n?", "\n", str(value)))
    return f"'{text}" if re.match(r"[=+@\t-](?!\d+$)", text) else text


def _examine(file: str) -> tuple[list[Judged], Sequence[str]]:
    """Print the content of a file and the audits that it allows; return their recorded answers, and its columns."""
    # 1. The file and the content of its columns.
    spec, source = _opened(file)
    name, columns = reading.parse_spec(spec)[0], source.columns
    kind = "an export of" if name in (*EXPORTS, *ANNOTATED) else "a plain table:"
    _print(f"{file}: {kind} {name} with {count(len(source.rows), 'row')}.")
    if len(seen := looked_at(columns)) < len(columns):
        most = f"those whose names tell a field, then the first, up to {seen[-1]!r:.80}"
        _print(f"Of its {count(len(columns), 'column')}, {len(seen)} are looked at: {most}. --map can name any other.")
        source.rows = [(where, {name: row[name] for name in seen if name in row}) for where, row in source.rows]
    for reason, places in source.left_out.items():
        _print(f"Left out, {reason}: {first_few(places, 3)}.")
    table = reading.table_of(source)
    judges = judges_of(table.rows[0][1]) if name in EXPORTS and table.rows else []
    reasons = dict.fromkeys(judges, "a judge's, as the tool says")
    if name in EXPORTS and any(row.get("ratings") for _, row in table.rows):
        reasons |= {c: "not used, beside people's ratings in the tool" for c in table.columns if c.startswith(METADATA)}
    unexplained = [(where, {n: cell for n, cell in row.items() if n not in reasons}) for where, row in table.rows]
    recognised = recognised_columns(replace(table, rows=unexplained))
    fields = {column: ours for ours, column in recognised.fields.items()}
    reasons |= {c: why for c, why in recognised.why.items() if len(seen) < WIDEST or not why.startswith(NO_FIELD)}
    first = replace(table, rows=table.rows[:3])
    shown = {c: [row.get(c) for _, row in first.rows] if c in table.columns else cells_at(first, c) for c in reasons}
    cells = {c: " | ".join(beginning(cell, SHOWN) for cell in some) for c, some in shown.items()}
    rows = [(column, fields.get(column, "-"), why, cells[column]) for column, why in reasons.items()]
    PlainConsole().print(Table(("column", "read as", "why", "first rows"), rows, left=4))
    for question in (q for q in recognised.questions if not judges or q.about != "the judge's ratings"):
        _print(f"Left to you, {question.about}: {question.why}{'' if question.why.endswith('?') else '.'}")
    # 2. The commands that audit it, and their measures.
    commands, panel, judged, values = list[str](), list[str](), list[Judged](), set[str]()
    n_answers = math.prod(len(question.answers) for question in recognised.questions if question.answers)
    open_ = [*_answered(recognised, name, judges)]
    while open_ and (len(commands) < MOST or name in EXPORTS):
        settings = open_.pop(0)
        command, opened = command_line(spec, settings), spec if name in EXPORTS else source
        if recognised.unread:
            continue  # the question explains the first step
        has_answers = any(name in settings for name in RECORDED)
        try:
            if has_answers:
                judged.append(answers_of(resolve_each(AuditOptions(opened, **settings))[0]))
            else:
                codes = {option: settings.get(option, ()) for option in ("missing", "keep")}
                choices = {"better": settings.get("labels", ())}
                reading.read(opened, mapping=settings.get("mapping"), choices=choices, **codes)
        except OpenValuesError as error:  # a command for each thing that these values may be
            if str(error) not in values:
                _print(f"Left to you, {error}")
            values.add(str(error))
            open_[:0] = [settings | {name: [*settings.get(name, ()), *error.values]} for name in error.options]
        except ValueError as error:
            _print(f"This command cannot read it yet: {command}\n{error}")
        else:
            commands.append(command)
            if has_answers and JUDGED_BY in settings.get("mapping", {}) and judged[-1].ratings.shape[1] > 1:
                panel.append(next(settings[name] for name in RECORDED if name in settings))
    for answers in judged[:1]:
        _print(_measurable(answers))
    if commands:
        if not judged:
            _print("No column holds a judge's answers for certain: put in a MODEL that judges.")
        is_open = values or any(len(question.answers) > 1 for question in recognised.questions)
        _print("One command for each answer:" if len(commands) > 1 and is_open else "The command:")
    for command in commands:
        typer.echo(f"  {command}")
    if len(panel) > 1 and not any("," in name for name in panel):
        together = {"mapping": settings["mapping"], "judges": panel}
        typer.echo(f"\nThe judges together:\n\n  {command_line(spec, together, 'jury')}")
    if n_answers > MOST and name not in EXPORTS:
        _print(f"Not listed: {count(n_answers - MOST, 'more command')} of the same form, with other columns.")
    return judged, columns


def _print(text: str) -> None:
    typer.echo(f"{message(as_typed(text))}\n")


def _answered(recognised: Columns, name: str, judges: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the options of an audit for each answer to the questions, or for each judge of a tool's export."""
    if name in EXPORTS:
        answers = (answer for question in recognised.questions for answer in question.answers if "criterion" in answer)
        criteria = [*dict.fromkeys(answer["criterion"] for answer in answers)]
        people = {ours: column for ours, column in recognised.fields.items() if column.startswith(METADATA)}
        mapped: dict[str, Any] = {"mapping": people} if people else {}
        for judge in judges or [""]:
            own = [name for name in criteria if judge and name == judge.rpartition("/")[2]] or criteria
            settings = mapped | ({"scores_field": judge} if judge else {})
            yield from [{**settings, "criterion": name} for name in own] or [settings]
        return
    alternatives = [question.answers for question in recognised.questions if question.answers]
    for chosen in itertools.islice(itertools.product(*alternatives), MOST):
        yield recognised.options(*chosen)


def _opened(spec: str) -> tuple[str, Source]:
    """Return a file as ``--data`` names it, and its rows; an export of a tool is recognised by its form."""
    path = Path(spec)
    name = importers.recognised(path) if path.exists() else None
    if name is None and path.is_dir():
        files = [file.name for file in folder_files(path)]
        kinds = {reading.parse_spec(file)[0] for file in files}
        if len(kinds) != 1:
            held = f"{', '.join(files[:20])}: name one of them" if files else "no file of data"
            raise DataError(f"{spec} holds {held}.")
        return (spec := f"{kinds.pop()}:{spec}"), reading.opened(spec)
    named = f"{name}:{spec}" if name else spec
    if reading.parse_spec(named)[0] in EXPORTS:
        return named, memory_table(reading.read(named))
    source = reading.opened(named)
    if not source.rows and name is None:
        raise DataError(f"{spec} holds no rows: give a file with one row for each output.")
    return named, source


def _measurable(judged: Judged) -> str:
    """Return sentences about the measures of an audit of such answers, and about the needs of the others."""
    suiting = [bias for bias in BIASES.values() if bias.suits(judged)]
    shown = [bias for bias in suiting if bias.applies(judged) and not (bias.kind == "bias" and bias.lacks(judged))]
    can, needed = [bias.title for bias in shown], dict[str, list[str]]()
    for bias in suiting:
        for need in () if bias.title in can else bias.missing(judged):
            needed.setdefault(need, []).append(bias.title)
    lacking = [f"{joined(titles)} {'needs' if len(titles) == 1 else 'need'} {need}" for need, titles in needed.items()]
    measured = f"Can be measured: {joined(can or ['nothing yet'])}."
    return f"{measured}\nMissing: {'; '.join(lacking)}." if lacking else measured
