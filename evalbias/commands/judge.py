"""The command that scores a data set with a judge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from evalbias.commands.model_options import ModelOptions
from evalbias.commands.option_groups import option_groups
from evalbias.commands.options import (
    LM,
    AnyJudge,
    Columns,
    Data,
    Json,
    OneCriterion,
    Out,
    OutputLabel,
    Scale,
    Seed,
    SourceLabel,
)

if TYPE_CHECKING:
    from evalbias.programs import PointwiseJudge
    from evalbias.programs.refused import Refused


@option_groups
def judge(
    data: Data,
    lm: LM,
    columns: Columns = None,
    criterion: OneCriterion = None,
    scale: Scale = None,
    source_label: SourceLabel = None,
    output_label: OutputLabel = None,
    judge: AnyJudge = None,
    refused: Annotated[
        Literal["undefined", "raise"],
        typer.Option(
            help="What to do with an item that the model cannot take, such as one that is too long: leave it "
            "undefined and name it, or raise an error."
        ),
    ] = "undefined",
    seed: Seed = 0,
    *,
    models: ModelOptions,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Score every item of a data set with a judge, saved or new.

    Writes scores.jsonl to the run's folder, one line for each item. With --workers, the data must be a .jsonl file. It
    is read in parts, so it may be larger than memory, and duplicate ids are found only within a part.
    """
    from evalbias.commands.open_judges import open_judge

    written = {"source_label": source_label, "output_label": output_label}
    program, saved = open_judge(judge, criterion, data, scale, written=written)
    score = _judge_here if models.workers is None else _judge_corpus
    score(
        program,
        saved,
        data,
        lm,
        columns=columns,
        refused=refused,
        seed=seed,
        models=models,
        out=out,
        as_json=as_json,
    )


def _judge_here(
    program: PointwiseJudge,
    saved: dict[str, Any],
    data: str,
    lm: str,
    *,
    columns: list[str] | None,
    refused: Refused,
    seed: int,
    models: ModelOptions,
    out: Path | None,
    as_json: bool,
) -> None:
    from evalbias.commands.run import Run
    from evalbias.commands.score_rows import rows_of, summary
    from evalbias.commands.task import Task, load_items
    from evalbias.data import DataError
    from evalbias.data.columns import parse_mapping
    from evalbias.report.html.texts import lowest_section, scored_section
    from evalbias.runs.journal import write_jsonl

    mapping = parse_mapping(columns or ())
    items = load_items(data, mapping)
    if not items and not items.left_out:
        raise DataError(f"{data} holds no items: there is nothing to judge.")
    task = Task(
        data, items.sha256, (program.criterion,), None, [], list(items), left_out=items.left_out, mapping=mapping
    )
    with Run("judge", task, lm=lm, models=models, seed=seed, out=out, options=saved) as run:
        with run.progress(len(items)):
            rows = rows_of(items, program.batch(items, lm=run.lm, refused=refused))
        file = run.folder.path / "scores.jsonl"
        write_jsonl(file, rows)
        brief, coverage = summary(file)
        scores = [row["score"] for row in rows]
        shown = [scored_section(scores), lowest_section(scores, items, [row["id"] for row in rows])]
        run.finish(brief, brief, as_json, _line(brief, file), {program.criterion.name: coverage}, more=shown)


def _judge_corpus(
    program: PointwiseJudge,
    saved: dict[str, Any],
    data: str,
    lm: str,
    *,
    columns: list[str] | None,
    refused: Refused,
    seed: int,
    models: ModelOptions,
    out: Path | None,
    as_json: bool,
) -> None:
    from evalbias.commands.run import print_result
    from evalbias.commands.run_corpus import Corpus
    from evalbias.commands.score_rows import scores_of, summary
    from evalbias.commands.terminal import counting
    from evalbias.data.columns import parse_mapping
    from evalbias.evaluation.coverage import coverage_warning
    from evalbias.report.html.run_page import write_report
    from evalbias.report.html.texts import scored_section

    mapping = parse_mapping(columns or ())
    with Corpus(program, saved, Path(data), lm, models, out, refused=refused, seed=seed, mapping=mapping) as corpus:
        with counting(corpus.items, "judging") as advance:
            counts = corpus.run(advance)
        brief, coverage = summary(corpus.scores)
        brief |= counts
        corpus.folder.write_result(brief)
        covered = {program.criterion.name: coverage}
        shown = [scored_section(scores_of(corpus.scores))]
        write_report(corpus.folder.path, brief, verdict=coverage_warning(covered), more=shown)
        print_result(brief, as_json, [_line(brief, corpus.scores)], corpus.folder, coverage=covered)


def _line(brief: dict[str, object], file: Path) -> str:
    from evalbias.evaluation.formatting import count

    scored: Any = brief["n"]
    refused: Any = brief["refused"]
    items = f"item{'s' * (len(refused) != 1)} {', '.join(map(str, refused[:5]))}{', ...' * (len(refused) > 5)}"
    named = f" (the model cannot take {items})"
    unanswered = (
        f"{brief['unanswered']} items have no score although the model answered: it gave no label enough probability, "
        "or the server reported none. Try a prompt that asks for a label alone, or another model.\n"
    )
    return (
        f"{count(scored, 'item')} scored, {brief['undefined']} undefined{named * bool(refused)}: {file}\n"
        f"{unanswered * bool(brief['unanswered'])}"
        "To find out whether these scores can be trusted, run 'evalbias audit' with the same judge and model on rated "
        "items."
    )
