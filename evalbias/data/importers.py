"""Read exports of evaluation and tracing tools as items with human ratings and judges' scores.

A tool is a table of paths into its JSON records: the places of an item's texts and of the judgments on it. Files are
JSON, JSONL, CSV or Parquet, Inspect's ``.eval``, or a folder of them, such as exports of traces and of scores.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from evalbias.data import files
from evalbias.data.files import Record, Row, Rows, Source, as_list, json_values, parsed_or_given
from evalbias.data.items import LABELS, METADATA, DataError, as_number, as_object, number, values_of_words, word
from evalbias.values import read_json

# Paths: "a.b|c" is the value at b in a, or else at c. A name may hold dots, as pandas and OpenTelemetry write them. The
# step ^ is the list entry without a parent, 0 the first entry. After =, a text is parsed as JSON.


def at(record: Any, path: str) -> Any:
    """Return the first value that is not empty among a path's alternatives; None if all are empty.

    Examples:
        >>> at({"a": {"b.c": 1}, "d.e": ""}, "d.e|a.b.c"), at({"a.b": 1, "a.c": 2}, "a")
        (1, {'b': 1, 'c': 2})
    """
    for option in filter(None, path.split("|")):
        cell = _walk(record, option.removeprefix("=").split("."))
        if option.startswith("="):
            cell = parsed_or_given(cell)
        if not (cell is None or cell in ("", [], {}) or cell != cell):
            return cell
    return None


def _walk(value: Any, steps: Sequence[str]) -> Any:
    if not steps:
        return value
    if isinstance(value, list):
        roots = [v for v in value if isinstance(v, dict) and not any(v.get(name) for name in PARENTS)]
        chosen = roots if steps[0] == "^" else value if steps[0] == "0" else []
        return _walk(chosen[0], steps[1:]) if chosen else None
    if not isinstance(value, dict):
        return None
    for n in range(len(steps), 0, -1):
        if (name := ".".join(steps[:n])) in value and (inner := _walk(value[name], steps[n:])) is not None:
            return inner
    start = ".".join(steps) + "."
    return {name.removeprefix(start): cell for name, cell in value.items() if str(name).startswith(start)} or None


PARENTS = ("parent_span_id", "parentSpanId", "parent_id", "parent_run_id", "parentObservationId")

# The tools.


@dataclass(frozen=True, kw_only=True)
class JudgmentPaths:
    """Paths of a judgment on an item by a person or judge, starting from its entry."""

    within: str = ""  # path of a list, or of an object name -> entry, in the item's record
    item: str = ""  # id of the item, for entries in records of their own; the likelier first
    name: str = ""  # criterion; defaults to the entry's name in the object
    value: str  # an entry that is not an object is itself the value
    kind: str = ""  # kind of judge; an entry without it is no judgment
    people: str = ""  # the kind that stands for people
    who: str = ""  # name of the rater or judge
    unless: Mapping[str, Any] = field(default_factory=dict)  # path -> value in entries that are not scores


@dataclass(frozen=True, kw_only=True)
class Tool:
    """Paths of an item in a tool's records; see importers.json."""

    tells: Sequence[str]  # paths, separated by spaces, by which a record of this tool is recognized
    rows: Sequence[str] = ()  # lists of records in a file's single object
    id: Sequence[str] = ()  # joined by slashes; by default the place in the file
    also: Sequence[str] = ()  # other ids by which scores name the item
    source: str = ""
    output: str = ""
    beside: str = ""  # path of an object that may hold people's ratings under names of the user's
    columns: str = ""  # path of an object with the user's own columns, in place of source and output
    repeated: bool = False  # True if an item has a record for each person
    system: str = ""
    input_id: str = ""
    judgments: Sequence[JudgmentPaths]


def _inspect(sample: Record) -> Iterator[Record]:
    """Add an entry to a sample for each scorer and part of a score, and for each person who edited it."""
    entries = []
    scores = sample.get("scores")
    for scorer, score in scores.items() if isinstance(scores, dict) else ():
        edits = [edit for edit in as_list(at(score, "history")) if at(edit, "value") != "UNCHANGED"]
        for edit in edits or [score]:
            value, author = at(edit, "value"), at(edit, "provenance.author")
            parts = value.items() if isinstance(value, dict) else [("", value)]
            for part, cell in parts:
                cell = {"P": 0.5, "N": 0.0}.get(cell, cell) if isinstance(cell, str) else cell
                name = f"{scorer}/{part}" if part else scorer
                entries.append({"name": name, "value": cell, "who": author, "kind": "person" if author else "scorer"})
    yield sample | {"said": entries}


def _label_studio(task: Record) -> Iterator[Record]:
    """Add an entry to a task for each result of an annotation or prediction about the whole task."""
    entries = []
    judged = [(kind, answer) for kind in ("annotations", "predictions") for answer in as_list(task.get(kind))]
    for kind, answer in judged:
        entry = {"kind": kind, "who": at(answer, "completed_by.email|completed_by.id|completed_by|model_version")}
        for result in [] if at(answer, "was_cancelled") else as_list(at(answer, "result")):
            value = at(result, "value")
            if isinstance(value, dict) and len(value) == 1:  # with more, it is about a part of a text
                entries += _chosen(at(result, "from_name"), at(value, "rating|number|selected|choices"), entry)
    yield task | {"said": entries}


def _chosen(name: Any, value: Any, entry: Record) -> list[Record]:
    """Return an entry with a single answer; empty if the answer has several values at once."""
    several = as_list(value)
    return [{**entry, "name": name, "value": value} for value in several if len(several) == 1]


def _mturk(row: Record) -> Iterator[Record]:
    """Add an entry for each answer to a row of a worker; a choice may be spread over boolean columns."""
    answers = _attributes(at(row, "Answer")) if at(row, "AssignmentStatus") != "Rejected" else {}
    answers = {**answers, **_attributes(at(answers, "taskAnswers.0"))}
    answers.pop("taskAnswers", None)
    names = (name.rpartition(".")[0] or name if isinstance(cell, bool) else name for name, cell in answers.items())
    entries, entry = [], {"kind": "worker", "who": at(row, "WorkerId")}
    for name in dict.fromkeys(names):
        value = at(answers, name)
        chosen = [answer for answer, is_so in value.items() if is_so is True] if isinstance(value, dict) else value
        entries += _chosen(name, at(value, "label") or chosen, entry)
    yield row | {"said": entries}


RESULT, DETAILS = "gen_ai.evaluation.result", "gen_ai.client.inference.operation.details"


def _otel(record: Record) -> Iterator[Record]:
    """Yield each span with its attributes, and each evaluation result, which names its span, as a record."""
    inner = [part for name, some in record.items() if name.lower().replace("_", "") in LISTS for part in as_list(some)]
    for part in inner:
        yield from _otel(part) if isinstance(part, dict) else ()
    ids = {name: at(record, f"{name}Id|{name}_id|context.{name}_id") for name in ("span", "trace")}
    own = _attributes(record.get("attributes"))
    if inner or not any(ids.values()):
        return
    if at(record, "eventName|event_name") == RESULT or own.get("event.name") == RESULT:
        yield own | ids
        return
    results = []
    for event in as_list(record.get("events")):
        if (name := at(event, "name")) == RESULT:
            results.append(_attributes(event.get("attributes")) | ids)
        elif name == DETAILS:
            own |= _attributes(event.get("attributes"))
    yield own | ids | {"id": ids["span"], "parent_id": at(record, "parentSpanId|parent_span_id|parent_id")}
    yield from results


LISTS = {f"{level}{kind}" for level in ("resource", "scope", "") for kind in ("spans", "logs")} | {"logrecords"}


def _attributes(value: Any) -> Record:
    """Return an object unchanged, and OTLP's list of keys and values as an object; empty for anything else."""
    if isinstance(value, dict):
        return value
    pairs = [pair for pair in as_list(value) if isinstance(pair, dict) and "key" in pair]
    return {str(pair["key"]): _attribute(pair.get("value")) for pair in pairs}


def _attribute(value: Any) -> Any:
    """Unwrap the value of an attribute, which OTLP stores under the name of its type."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = list(value.items())[:1] or [("", None)]
    if kind.startswith("int") and isinstance(content, str):
        return parsed_or_given(content)
    if kind.startswith(("array", "kvlist")):
        inner = as_list(at(content, "values"))
        return [_attribute(part) for part in inner] if kind.startswith("array") else _attributes(inner)
    return content


Prepare = Callable[[Record], Iterable[Record]]
PREPARED: dict[str, Prepare] = {"inspect": _inspect, "otel": _otel, "label-studio": _label_studio, "mturk": _mturk}
"""Tool -> function that prepares the records of its files for the paths in importers.json."""
TOOLS = {
    name: Tool(**{**paths, "judgments": [JudgmentPaths(**entry) for entry in paths["judgments"]]})
    for name, paths in read_json(Path(__file__).with_name("importers.json"), "install evalbias again").items()
}
"""Name before the colon of ``--data NAME:FILE`` -> the tool's paths."""


def recognise(record: Record) -> str | None:
    """Return the tool that wrote a file's object, line or row, by its characteristic keys; None if unknown."""
    return next((name for name, tool in TOOLS.items() if _is_of(tool, record)), None)


def _is_of(tool: Tool, record: Record) -> bool:
    # A column for each score, as tools' pages write, does not say whose it is: that is a plain table.
    flat = {n for form in tool.judgments for n in form.within.split("|") if "." not in n} - record.keys()
    tells = [tell.split() for tell in tool.tells if flat.isdisjoint(tell.split())]
    return any(all(_walk(record, path.split(".")) is not None for path in tell) for tell in tells)


def recognised(path: str | Path) -> str | None:
    """Return the tool that wrote a file, by its first record; None if unknown or the file cannot be read."""
    try:
        return next((recognise(record) for _, record in _records(Source("file", Path(path)), Path(path))), None)
    except (DataError, ImportError):
        return None


# Files: the records of each, or the lists of records in a file's single object.


def _records(source: Source, path: Path, lists: Sequence[str] = ()) -> Rows:
    """Yield (place, record) of a file; records from an object's ``lists`` get the rest of the object as ``file``."""
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind == "eval":
        yield from _archive(source, path)
    elif kind in ("csv", "tsv", "parquet"):
        table, named = Source(kind, path, digest=source.digest), TOOLS.get(source.name)
        own = f"{named.columns}." if named and named.columns else None  # the user's columns, read as in any table
        for where, row in files.FORMATS[kind](table):
            texts = {name for name in row if kind == "parquet" or (own and name.startswith(own))}
            yield where, {name: cell if name in texts else _from_cell(cell) for name, cell in row.items()}
    elif kind in ("json", "jsonl"):
        for where, value in json_values(source.text(path), path, lines=kind == "jsonl", nan=True):
            for k, entry in enumerate(value) if isinstance(value, list) else [(None, value)]:
                yield from _inner(_checked(entry, where if k is None else f"{where}[{k}]"), lists)
    else:
        raise DataError(f"{path} is no export that is read: give .json, .jsonl, .csv, .tsv, .parquet or .eval.")


def _from_cell(cell: str) -> Any:
    """Parse a cell of JSON; a number in another notation, such as 1.50, stays text."""
    value = parsed_or_given(cell)
    return cell if isinstance(value, int | float) and not isinstance(value, bool) and str(value) != cell else value


def _checked(record: Any, where: str) -> Row:
    files.check_text(as_object(record, where), where)
    return where, record


def _inner(row: Row, lists: Sequence[str]) -> Rows:
    where, record = row
    inner = {name: values for name in lists if isinstance(values := _walk(record, name.split(".")), list)}
    roots = {path.partition(".")[0] for path in inner}
    remainder = {name: value for name, value in record.items() if name not in roots}
    for name, rows in inner.items():
        for k, entry in enumerate(rows):
            place = f"{where}: {name}[{k}]"
            yield place, {**as_object(entry, place), "file": remainder}
    if not inner:
        yield row


METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, 93)
"""Allowed ZIP compressions, 93 is Zstandard; with bzip2 and LZMA, Python may unpack gigabytes at once."""
PIECE = 4096  # bytes; as many of Zstandard unpack to 130 MB at most


def _archive(source: Source, path: Path) -> Rows:
    """Yield the samples of an ``.eval`` log, a ZIP archive of JSON files, beside its header."""
    raw = source.content(path)
    with suppress(ImportError):  # comes with Inspect and teaches Python before 3.14 the compression of its logs
        import_module("zipfile_zstd")
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            read, size = dict[str, str](), 0
            for name in ["header.json", *sorted(n for n in archive.namelist() if n.startswith("samples/"))]:
                if (method := archive.getinfo(name).compress_type) not in METHODS:
                    raise zipfile.BadZipFile(f"{name:.80} is compressed by method {method}, as no log is")
                with archive.open(name) as packed:
                    content = files.read_unpacked(packed, len(raw), path, before=size, piece=PIECE)
                read[name], size = files.decoded(content, path), size + len(content)
    except NotImplementedError as error:
        fault = f"{path} is compressed by Zstandard, which Python reads from 3.14 on or beside Inspect"
        raise DataError(f"{fault}. Convert it: inspect log convert --to json --output-dir converted {path}") from error
    except (zipfile.BadZipFile, KeyError, OSError, EOFError, zlib.error, RuntimeError) as error:
        raise DataError(f"{path} is damaged or no finished log of Inspect ({error!s:.200}); log it again.") from error
    values = ((name, value) for name, text in read.items() for _, value in json_values(text, path / name, nan=True))
    (_, head), *samples = (_checked(value, f"{path}: {name}") for name, value in values)
    for where, sample in samples:
        yield where, sample | {"file": head}


# Rows: each item with its judgments.


Given = dict[str, dict[str, list[tuple[str, Any]]]]  # item -> rater or judge -> scores, each with its place


def _numbers(name: str, by_id: Given) -> dict[str, dict[str, list[Any]]]:
    """Return the scores as numbers if at least half are numbers; otherwise unchanged, as labels."""
    scores = [score for by in by_id.values() for some in by.values() for score in some]
    words = {**LABELS, **values_of_words(value for _, value in scores)}
    others = [(where, value) for where, value in scores if _score(value, words) is None]
    is_label = 2 * len(others) > len(scores)
    if others and not is_label:
        where, value = others[0]
        fault = f"{where}: the score {name!r:.80} is {value!r:.80}"
        raise DataError(f"{fault}: give a number of at most 1e30, a word such as pass or fail, or leave it out.")
    read = (lambda value, _: value) if is_label else _score
    return {i: {who: [read(value, words) for _, value in some] for who, some in by.items()} for i, by in by_id.items()}


def _score(value: Any, words: Mapping[str, float]) -> float | None:
    try:
        from_word = words.get(word(value)) if isinstance(value, str | bool) else None
        return number(value, "", texts=True, required=True) if from_word is None else from_word
    except DataError:
        return None


_RATINGS = {"id", "score", "scores", "ratings", "better"}  # our fields that are not columns of the user's
RESERVED = {"id", "input_id", "source", "output", "system", "score", "scores", "ratings"}
Heard = tuple[str, JudgmentPaths, Any, str, str]  # place, form, entry, criterion, and ids of the item, one per line


def _rows(tool: Tool, source: Source) -> Rows:
    """Yield a row for each item with a score, or, if no item has a score, for each item with an output.

    ``ratings`` are criterion -> one score per rater, the raters in order of first appearance; if a rater gave several
    scores, the last counts. A judge's scores are a column ``JUDGE/CRITERION``, or ``CRITERION`` where the tool names no
    judge, and columns ``NAME_1``, ``NAME_2``, ... where it scored an item several times. Labels that are not numbers
    stay unchanged; people's are in a column ``RATER/CRITERION``.
    """
    items, other_ids, heard = _found(tool, source)
    people, judges = _told_apart(source, heard, lambda name: name if name in items else other_ids.get(name))
    columns: dict[str, dict[str, Any]] = {}  # column -> item -> value
    rated: dict[str, dict[str, list[Any]]] = {}  # criterion -> item -> ratings
    for name, by_item in people.items():
        read = _numbers(name, by_item)
        raters = list(dict.fromkeys(who for by in read.values() for who in by))
        if all(isinstance(score, float) for by in read.values() for some in by.values() for score in some):
            rated[name] = {i: [by.get(who, [None])[-1] for who in raters] for i, by in read.items()}
        else:
            columns |= {f"{who}/{name}": {i: by[who][-1] for i, by in read.items() if who in by} for who in raters}
    for name, by_item in judges.items():
        flat = {i: [score for some in by.values() for score in some] for i, by in _numbers(name, by_item).items()}
        most = max(map(len, flat.values()))
        for k in range(most):
            held = {i: some[k] for i, some in flat.items() if k < len(some)}
            columns[name if most == 1 else f"{name}_{k + 1}"] = held
    scored = {i for by_item in (*people.values(), *judges.values()) for i in by_item}
    for name, (where, row) in items.items():
        if name in scored or (not scored and (tool.columns or row.get("output"))):
            ratings = {c: by.get(name) or [None] * len(next(iter(by.values()))) for c, by in rated.items()}
            cells = {column: held.get(name) for column, held in columns.items()}
            yield where, row | cells | ({"ratings": ratings} if rated else {})
        else:
            source.leave_out("nobody scored it" if scored else "no output", where)


def _found(tool: Tool, source: Source) -> tuple[dict[str, Row], dict[str, str], list[Heard]]:
    """Read id -> place and texts of each item, other id -> id, and all judgments."""
    prepare = PREPARED.get(source.name)
    paths = sorted(filter(Path.is_file, source.path.rglob("*.*"))) if source.path.is_dir() else [source.path]
    items, other_ids, heard = dict[str, Row](), dict[str, str](), list[Heard]()
    rows = (row for path in paths for row in _of_tool(tool, source, path))
    for where, record in ((where, part) for where, raw in rows for part in (prepare(raw) if prepare else [raw])):
        own = next((s for s in tool.judgments if s.item and at(record, s.name) and at(record, s.item)), None)
        if own is not None and (not own.kind or at(record, own.kind)):
            ids = [str(i) for i in (at(record, path) for path in own.item.split("|")) if i is not None]
            heard.append((where, own, record, str(at(record, own.name)), "\n".join(ids)))
            continue
        parts = [str(part) for part in (at(record, path) for path in tool.id) if part is not None]
        name, place = "/".join(parts), where.removeprefix(f"{source.path.parent}/")
        name = place if not name or (name in items and len(parts) < len(tool.id)) else name
        if name in items and not tool.repeated:
            raise DataError(f"{where}: the id {name!r:.80} is already used at {items[name][0]}; leave one of them out.")
        items.setdefault(name, (where, {**_item(tool, record), "id": name}))
        is_root = not any(at(record, parent) for parent in PARENTS)
        for key in (str(k) for k in (at(record, path) for path in tool.also) if k is not None):
            other_ids[key] = name if is_root else other_ids.get(key, name)
        for form in (paths for paths in tool.judgments if paths.within):
            entries = at(record, f"={form.within.replace('|', '|=')}")
            pairs = entries.items() if isinstance(entries, dict) else (("", entry) for entry in as_list(entries))
            named = ((at(entry, form.name) or key, entry) for key, entry in pairs)
            heard += [(where, form, entry, str(criterion), name) for criterion, entry in named if criterion]
    return items, other_ids, heard


def _of_tool(tool: Tool, source: Source, path: Path) -> Rows:
    """Yield the records of a file; refuse it if the first record is of another tool."""
    for k, (where, record) in enumerate(_records(source, path, tool.rows)):
        if k == 0 and not _is_of(tool, record) and (other := recognise(record)):
            raise DataError(f"{path} is an export of {other}, not of {source.name}: give {other}:{source.path}.")
        yield where, record


def _told_apart(
    source: Source, heard: Sequence[Heard], item_of: Callable[[str], str | None]
) -> tuple[dict[str, Given], dict[str, Given]]:
    """Return people's scores by criterion, and judges' scores by column."""
    people, judges, strangers = dict[str, Given](), dict[str, Given](), 0
    for where, form, entry, criterion, ids in heard:
        value = at(entry, form.value) if isinstance(entry, dict) else entry
        kind, who = (str(at(entry, path) or "") for path in (form.kind, form.who))
        target = next(filter(None, map(item_of, ids.split("\n"))), None)
        is_score = value not in (None, "") and bool(kind or not form.kind)
        if target is None:
            strangers += 1
        elif is_score and not any(at(entry, path) == wanted for path, wanted in form.unless.items()):
            score = (f"{where}: item {target!r:.80}", value)
            if form.people and kind == form.people:
                by = people.setdefault(criterion, {}).setdefault(target, {})
                by[who if who and who != kind else f"{kind} {len(by) + 1}"] = [score]
            else:
                name = f"{who}/{criterion}" if who else f"judge/{criterion}" if criterion in RESERVED else criterion
                judges.setdefault(name, {}).setdefault(target, {}).setdefault(who, []).append(score)
    if strangers and not (people or judges):
        fault = f"{source.path} has {strangers} scores of outputs that it does not hold"
        raise DataError(f"{fault}: give a folder with the export of the scores and that of the traces.")
    return people, judges


def _item(tool: Tool, record: Record) -> Record:
    """Return an item's texts, and its system and input id if the record has them."""
    if tool.columns:
        texts = _attributes(at(record, tool.columns))
        return {f"{tool.columns}.{name}" if name in _RATINGS else name: value for name, value in texts.items()}
    row = {"source": at(record, tool.source), "output": at(record, tool.output)}
    if row["output"] is None:  # a whole conversation in one field
        row |= dict(zip(("source", "output"), files.transcript(row["source"]) or (row["source"], ""), strict=True))
    files.flatten_texts(row)
    row = {name: files.text_of(value) for name, value in row.items()}
    for name in ("system", "input_id"):
        if (value := at(record, getattr(tool, name))) is not None:
            row[name] = str(value)
    for name, value in _attributes(at(record, tool.beside)).items():
        if isinstance(value, bool) or math.isfinite(as_number(value)):
            row[f"{METADATA}{name}"] = value
    return {name: value for name, value in row.items() if value is not None}


def export_table(name: str, path: Path) -> Source:
    """Read a file or folder that a tool of ``TOOLS`` exported; see ``_rows``."""
    source = Source(name, path)
    try:
        source.rows = list(_rows(TOOLS[name], source))
    except RecursionError as error:
        raise DataError(f"{path} nests objects too deeply to be read; export it again.") from error
    return source
