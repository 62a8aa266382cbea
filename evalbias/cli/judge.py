"""``evalbias judge``: score the items of a file, also of one larger than memory, or rank the outputs of each input."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from evalbias import data
from evalbias.cli.items import compared, comparing_judge, load_items, narrowed, scoring_judges
from evalbias.cli.run import Run, RunOutcome, Split
from evalbias.data import DataError, by_input, is_rated
from evalbias.data.files import file_chunks
from evalbias.data.reading import read_chunks
from evalbias.evaluation.rankings import COUNTS, conclude_ranking, order_spread, ranking_agreement
from evalbias.evaluation.words import beginning, count
from evalbias.lm.types import CHUNK, chunk_of
from evalbias.measures.arrays import FloatArray
from evalbias.options import MeasuringModels, Options, Out
from evalbias.program_options import JudgeOptions, RankOptions, ScoreOptions
from evalbias.programs import PairwiseRanker, PointwiseJudge
from evalbias.programs.judges import as_judged, asked_together, own_mapping
from evalbias.programs.ranking import most_comparisons
from evalbias.report.page import ranked_section, scored_section
from evalbias.runs import Journal, write_jsonl
from evalbias.values import json_number, json_object

FORMS: dict[str, type[Options]] = {"scores": ScoreOptions, "`rank`": RankOptions}


def judge_command(options: JudgeOptions, models: MeasuringModels, out: Out) -> None:
    if options.rank:
        rank_outputs(narrowed(options, "`rank`", FORMS, out.given), models, out)
        return
    chosen = narrowed(options, "scores", FORMS, out.given)
    programs = scoring_judges(chosen)
    if models.workers is None:
        judge_items(chosen, models, out, programs)
    elif len(programs) == 1:
        judge_corpus(chosen, models, out, programs[0])
    else:
        raise ValueError("`workers` judge one criterion at a time: name one, `criterion`.")


# Score every item.


def judge_items(options: ScoreOptions, models: MeasuringModels, out: Out, programs: Sequence[PointwiseJudge]) -> None:
    """Score items that fit in memory; of several judges, records name the criterion."""
    items = load_items(options, programs[0])
    if not items and not items.left_out:
        raise DataError(f"{options.data} holds no items: there is nothing to judge.")
    more, rows = Split(items, tuple(one.criterion for one in programs), items).settings(), list[dict[str, Any]]()
    with Run("judge", options, models, out, more=more) as run:
        with run.progress(len(items) * len(programs)):
            lm = asked_together(programs if len(programs) > 1 else (), items, run.options.lm)
            for program in programs:
                named = {"criterion": program.criterion.name} if len(programs) > 1 else {}
                rows += [named | row for row in rows_of(items, program.batch(items, lm=lm, refused=options.refused))]
        file = run.folder.path / "scores.jsonl"
        write_jsonl(file, rows)
        _leave(run, programs, file, {})


def judge_corpus(options: ScoreOptions, models: MeasuringModels, out: Out, program: PointwiseJudge) -> None:
    """Score a JSONL file of any size, one call of the model at a time.

    Scores are written in the order of the file after each call; a stopped run continues after the last of them. Answers
    of the call that is under way are journaled as far as they are there when it is interrupted or fails. Ids are
    compared within a call only, because remembering all would grow with the corpus. A change of the file stops it.
    """
    name, place = data.parse_spec(str(options.data))
    file = Path(place if name == "jsonl" else options.data)
    parts, sha256 = file_chunks(file, CHUNK)
    more = {"data_sha256": sha256, "criteria": [asdict(program.criterion)]}
    with Run("judge", options, models, out, more=more) as run:
        scores, log = run.folder.path / "scores.jsonl", Journal(run.folder.path / "chunks.jsonl")
        done = _written(log, scores, [part.line for part in parts])
        size = max(1, chunk_of(run.options.lm) // CHUNK)
        with run.progress(sum(part.lines for part in parts)) as advance:
            advance(sum(record["lines"] for record in done))
            for first in range(sum(record["chunks"] for record in done), len(parts), size):
                part = parts[first : first + size]
                items = read_chunks(file, part, own_mapping(program, options.mapping, (program.judged,)))
                items[:] = as_judged(program, items)
                rows = rows_of(items, program.batch(items, lm=run.options.lm, refused=options.refused))
                Journal(scores).append_lines(rows)
                left_out = {reason: len(places) for reason, places in items.left_out.items()}
                lines = sum(chunk.lines for chunk in part)
                at = {"line": part[0].line, "chunks": len(part), "lines": lines, "bytes": scores.stat().st_size}
                done.append({**at, "items": len(rows), "left_out": left_out})
                log.append(done[-1:])
                run.forget()
                advance(lines - len(rows))  # the judged ones were counted as their answers came
        counts: Counter[str] = Counter()
        for record in done:
            counts.update(record["left_out"])
        if not counts and not any(record["items"] for record in done):
            raise DataError(f"{file} holds no items: there is nothing to judge.")
        _leave(run, [program], scores, {"left_out": dict(counts)})


def _written(log: Journal, scores: Path, todo: list[int]) -> list[dict[str, Any]]:
    """Return the records of calls with written scores, cut off all else; ``todo`` has the first line of each chunk."""
    records = log.read("line", "chunks", "lines", "items", "left_out", "bytes")
    size = scores.stat().st_size if scores.exists() else 0
    done: list[dict[str, Any]] = []
    for record in records:
        if not todo or record["line"] != todo[0] or record["bytes"] > size:
            break  # a record out of order: what follows cannot be trusted
        done.append(record)
        todo = todo[record["chunks"] :]
    if len(done) < len(records):
        log.rewrite(done)
    with scores.open("ab") as file:
        file.truncate(done[-1]["bytes"] if done else 0)
    return done


def _leave(run: Run, programs: Sequence[PointwiseJudge], file: Path, counts: Mapping[str, Any]) -> None:
    names = [one.criterion.name for one in programs]
    summaries = {name: summary(file, name if len(names) > 1 else None) for name in names}
    briefs = {name: one[0] for name, one in summaries.items()}
    covered = {name: one[2] for name, one in summaries.items()}
    brief = {**briefs[names[0]], **counts} if len(names) == 1 else {"criteria": briefs}
    shown = [(f"{name}: " if len(names) > 1 else "") + in_words(one, file) for name, one in briefs.items()]
    shown.append(TRUST)
    scored = [scored_section(one[1]) for one in summaries.values()]
    if len(names) > 1:
        scored = [replace(one, title=f"{one.title}: {name}") for name, one in zip(names, scored, strict=True)]
    run.leave(RunOutcome(brief, brief, shown, covered, more=scored))


TRUST = "To find out whether scores can be trusted, run 'evalbias audit' with the same judge and model on rated items."


def in_words(brief: Mapping[str, Any], file: Path) -> str:
    """Say how many items have a score, and which have none and why."""
    scored, refused = brief["n"], brief["refused"]
    items = f"item{'s' * (len(refused) != 1)} {', '.join(map(str, refused[:5]))}{', ...' * (len(refused) > 5)}"
    named = f" (the model cannot take {items})"
    unanswered = (
        f"{brief['unanswered']} items have no score although the model answered: it gave no label enough probability, "
        "or the server reported none. Try a prompt that asks for a label alone, or another model."
    )
    sentence = f"{count(scored, 'item')} scored, {brief['undefined']} undefined{named * bool(refused)}: {file}"
    return f"{sentence}\n{unanswered}" if brief["unanswered"] else sentence


# The records of scores, one per item.


NAMED = 100  # largest number of items that are named as refused


def rows_of(items: Sequence[Any], predictions: Sequence[Any]) -> list[dict[str, Any]]:
    """Return one record per item: its id, how its texts begin, score, most probable label, coverage and distribution.

    Beside an estimated distribution stands the number of its answers (``samples``), beside a score corrected for
    likelihood its ``raw_score`` and LS in nats (``likelihood``); ``undefined`` says why the model could not be asked.
    """
    fields = ("score", "mode", "coverage", "distribution")
    optional = ("samples", "undefined", "raw_score", "likelihood", "reasons", "scores")
    return [
        {
            "id": e.get("id", i),
            "source_begins": beginning(e.get("source")),
            "output_begins": beginning(e.output),
            **{name: p[name] for name in fields if name in p},
            **{name: p[name] for name in optional if p.get(name) is not None},
        }
        for i, (e, p) in enumerate(zip(items, predictions, strict=True))
    ]


def summary(file: Path, criterion: str | None = None) -> tuple[dict[str, Any], FloatArray, FloatArray]:
    """Return what to say of a file of scores, and (n,) scores and coverage, NaN where undefined; it is read by lines.

    If several criteria were judged, these are the scores on one. ``refused`` has the first ids that the model could not
    be asked about; ``unanswered`` counts others without a score.
    """
    numbers, covered, refused, reasons = array("d"), array("d"), list[str](), 0
    with file.open("rb") as lines:
        for n, line in enumerate(lines, start=1):
            row = json_object(line, f"{file}:{n}", "delete its folder to start over")
            if not {"id", "score", "coverage"} <= row.keys():
                raise ValueError(f"{file}:{n} is no record of a judged item: delete its folder to start over.")
            if row.get("criterion") != criterion:
                continue
            numbers.append(json_number(row["score"]))
            covered.append(json_number(row["coverage"]))
            if "undefined" in row:
                reasons += 1
                refused += [row["id"]] if len(refused) < NAMED else []
    scores = np.array(numbers)
    defined = scores[~np.isnan(scores)]
    brief = {
        "n": len(defined),
        "undefined": len(scores) - len(defined),
        "mean": float(defined.mean()) if len(defined) else None,
        "refused": refused,
        "unanswered": len(scores) - len(defined) - reasons,
    }
    return brief, scores, np.array(covered)


# Rank the outputs of each document.


SHOWN = 5  # number of documents whose ranking is printed; all are in rankings.jsonl


def rank_outputs(options: RankOptions, models: MeasuringModels, out: Out) -> None:
    """Sort the outputs of each document by comparing them, and measure the agreement with people where these rated."""
    judge = comparing_judge(options)
    split = compared(options, judge)
    own = {"ties": judge.ties, "debias": judge.debias, "calibration": judge.calibration}  # a saved judge has its own
    with Run("judge", options, models, out, more={"rank": True, **split.settings(), **own}) as run:
        ranker = PairwiseRanker(judge, seed=options.seed, orders=options.orders)
        groups = by_input(split.test)
        documents = [g[0].copy(candidates=[e.output for e in g]) for g in groups.values()]
        with run.progress(sum(most_comparisons(len(e.candidates), options.orders) for e in documents)):
            rankings = ranker.batch(documents, lm=run.options.lm)
        rows = [_ranked(key, group, r) for (key, group), r in zip(groups.items(), rankings, strict=True)]
        brief: dict[str, Any] = {"documents": len(rows), **{f: sum(row[f] for row in rows) for f in COUNTS}}
        brief["unranked"] = sum(len(row["unranked"]) for row in rows)
        text, agreement, name = ", ".join(f"{value} {n}" for n, value in brief.items()), None, judge.criterion.name
        if any(is_rated(e, name) for e in split.test):
            agreement = ranking_agreement(rankings, list(groups.values()), name, seed=options.seed)
            brief["agreement"] = agreement.to_dict(items=False)
            text += (
                f"\nagreement with people on {name}, mean over {count(agreement['spearman'].n, 'document')}: "
                + ", ".join(f"{estimate.label} {estimate.shown}" for estimate in agreement.estimates.values())
            )
            text = "; ".join([text, *order_spread([agreement])])
        second = brief["comparisons"] - brief["first"] - brief["ties"] - brief["undefined"]
        one_place = judge.one_place({0: brief["first"], 1: second})
        brief["conclusion"] = " ".join(filter(None, [one_place, conclude_ranking(agreement, len(rows))]))
        file = run.folder.path / "rankings.jsonl"
        write_jsonl(file, rows)
        shown = f"{_first(rows)}\n{text}\n{brief['conclusion']}\n{file}"
        more = [ranked_section(rows, list(groups.values()))]
        run.leave(RunOutcome(brief, brief, [shown], page=[agreement], more=more))


def _ranked(key: str, group: Sequence[dspy.Example], ranking: Any) -> dict[str, Any]:
    """Return a document's record: its ids best first, the score of each, and why any is not ranked."""
    ids = [str(e.get("id")) for e in group]
    return {
        "input_id": key,
        "source_begins": beginning(group[0].source),
        "order": [ids[i] for i in ranking.order],
        "begins": {ids[i]: beginning(group[i].output) for i in (*ranking.order, *ranking.unranked)},
        "scores": dict(zip(ids, ranking.scores, strict=True)),
        "unranked": {ids[i]: reason for i, reason in ranking.unranked.items()},
        **{name: ranking[name] for name in COUNTS},
    }


def _first(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in rows[:SHOWN]:
        lines.append(f"{row['input_id'] if len(row['input_id']) <= 40 else row['source_begins']}")
        for place, name in enumerate(row["order"], start=1):
            lines.append(f"{place:4}. {name}: {row['begins'][name]}")
        lines += [f"   -  {name}: {reason}" for name, reason in row["unranked"].items()]
    if len(rows) > SHOWN:
        lines.append(f"and {count(len(rows) - SHOWN, 'more document')}")
    return "\n".join(lines)
