"""From tables to items: columns under our names, checked fields; read any source, and add the columns of another."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from evalbias.data.files import (
    FORMATS,
    HUB,
    Chunk,
    Row,
    Source,
    check_text,
    chunk_table,
    file_table,
    hub_table,
    memory_table,
    parsed,
)
from evalbias.data.items import (
    BINARY,
    FIRST,
    SECOND,
    TIE,
    DataError,
    check_labels,
    choice,
    item_name,
    number,
    rating_row,
    ratings,
    scores,
    text,
)
from evalbias.data.sets import SETS
from evalbias.measures.arrays import mean_of_defined, missing


class Dataset(list[Any]):
    """List of ``dspy.Example`` with ``id``, ``source``, ``output`` and ``scores`` (criterion -> number or NaN).

    ``path`` is the file or folder it was read from, ``sha256`` the hash of the uncompressed contents of all files read,
    and ``left_out`` maps a reason to the items left out for it, each as ``file:line`` or as its id. A slice or a copy
    is a plain list without the attributes.
    """

    def __init__(
        self,
        examples: Iterable[dspy.Example],
        *,
        name: str,
        path: Path,
        sha256: str,
        left_out: Mapping[str, Sequence[str]],
    ) -> None:
        super().__init__(examples)
        self.name = name
        self.path = path
        self.sha256 = sha256
        self.left_out = {reason: tuple(items) for reason, items in left_out.items()}

    def summary(self) -> str:
        """Describe the data set in one line: number of items, and items left out by reason."""
        left = [
            f"{len(items)} left out ({reason}: {', '.join(items[:3])}{', ...' if len(items) > 3 else ''})"
            for reason, items in self.left_out.items()
        ]
        return "; ".join([f"{self.name}: {len(self)} items", *left])


def read(
    source: Any,
    *,
    mapping: Mapping[str, str] | None = None,
    choices: Mapping[str, Sequence[object]] | None = None,
    numbers: Sequence[str] = (),
    samples: str | None = None,
) -> Dataset:
    """Read items to judge, or pairs to compare, with what people and other judges said about them.

    An item has ``id`` (by default the number of its line or row), ``source`` (the input), ``output``, people's
    ``score`` or ``scores`` (criterion -> number), single ``ratings`` (list, or criterion -> list), ``system`` (the
    writer) and ``input_id``. A pair has two ``outputs`` instead, which become ``candidates``, ``systems``, and
    ``better``: 0 or 1 (also A or B), the one that people prefer. Tables spell lists as ``rating_1, rating_2, ...``,
    ``output_1, output_2`` and ``system_1, system_2``. Other columns stay as they are; empty cells are undefined. Items
    with an empty output, and pairs of two, are left out.

    Args:
        source: A ``.jsonl``, ``.json``, ``.csv``, ``.tsv`` or ``.parquet`` file (also ``.gz``); ``NAME:PATH``, with the
            name of a known data set or of a format; ``hf:NAME`` or ``hf:NAME:SPLIT`` of the Hugging Face hub; a pandas
            data frame; or dicts or ``dspy.Example``.
        mapping: Our field -> the source's column, such as ``{"source": "question", "output": "answer"}``.
        choices: Field of recorded choices between two outputs -> codes of the first output, the second and a tie, such
            as ``{"better": (1, 2, "tie")}``; no codes for those of ``items.choice``. Items have 0, 1, -1 or None.
        numbers: Fields of recorded numbers, such as a judge's scores. Items have a number or None.
        samples: Field of several scores of the same prompt: a list, of a table as JSON, or columns ``NAME_1, NAME_2,
            ...``. Items have a list of numbers and None, empty where there is none.

    Raises:
        DataError: A row is not a valid item, or a column is missing; the message names the place and the likely column.
        ValueError: The source is unknown, or a mapping or codes are given for a known data set.

    Examples:
        >>> (item,) = read([{"question": "What is 2 + 2?", "output": "4", "score": 5}], mapping={"source": "question"})
        >>> item.source, item.score
        ('What is 2 + 2?', 5.0)
    """
    choices = choices or {}
    for labels in choices.values():
        check_labels(labels)
    if isinstance(source, str | os.PathLike):
        name, path = parse_spec(os.fspath(source))
        if name in SETS:
            if mapping:
                raise ValueError(f"The columns of {name} are known: give {name}:{path} without a mapping (--map).")
            if any(choices.values()):
                raise ValueError(f"The choices of {name} are known: give {name}:{path} without labels (--labels).")
            files = Source(name, _existing(path))
            return _items(files, SETS[name].rows(files), samples=samples, rated=SETS[name].rated)
    table = table_of(source, mapping)
    drawn = [] if samples is None else [samples] if samples in table.columns else _numbered(table.columns, samples)
    said = [*numbers, *(drawn or filter(None, [samples]))]
    recorded = bool(said) and set(said) <= set(table.columns)  # what a judge said needs no texts
    if recorded:
        _label_verdicts(table, said)
    _check_columns(table, choices, said, texts=not recorded)
    try:
        for where, row in table.rows:
            row |= {
                n: _from_json(v, n, where) for n, v in row.items() if n in ("scores", "ratings", samples) and str(v)
            }
        table.rows = with_verdicts(table.rows, numbers, drawn)
        texts = not recorded or _hold_outputs(table.columns)
        return _items(table, table.rows, choices, numbers, samples=samples, texts=texts)
    except DataError as error:
        named = {f"{o!r} is your column {t!r}" for o, t in table.mapping.items() if o != t and repr(o) in str(error)}
        raise DataError(" ".join([str(error), *(f"({words}.)" for words in sorted(named))])) from error


def read_chunks(path: Path, some: Sequence[Chunk], mapping: Mapping[str, str] | None = None) -> Dataset:
    """Read the items of consecutive chunks as ``read``; a mapped column may be missing, a changed file is refused."""
    table = chunk_table(path, some)
    table.mapping = mapping or {}
    return _items(table, [(where, renamed(record, table.mapping)) for where, record in table.rows])


# A table: the rows of one source under our names.


def table_of(source: Any, mapping: Mapping[str, str] | None = None) -> Source:
    """Read the rows of a source that is no known data set, under our names, as ``read`` does; they need no output."""
    if not isinstance(source, str | os.PathLike):
        table = memory_table(source)
    else:
        name, path = parse_spec(os.fspath(source))
        if name in SETS:
            raise ValueError(
                f"{source}: {name} holds outputs to judge; give a file with the fields that are needed here."
            )
        table = hub_table(path) if name == HUB else file_table(name, _existing(path))
    table.mapping = mapping or {}
    if table.mapping and table.rows:
        check_mapping(table.mapping, table.columns, str(table.path))
        table.rows = [(where, renamed(record, table.mapping)) for where, record in table.rows]
    if table.name not in ("json", "jsonl"):  # where null is refused as an output; here it is an empty text, as in CSV
        for _, record in table.rows:
            record |= {name: "" for name in ("output", "output_1", "output_2") if record.get(name, "") is None}
    if table.name in ("csv", "tsv"):
        table.rows = typed(table.rows, table.decimal_mark)
    return table


def parse_spec(spec: str) -> tuple[str, str]:
    """Split ``NAME:PATH`` into name and path; the name of a path alone is its format, from the ending.

    Examples:
        >>> parse_spec("tmu-gfm:ratings.csv"), parse_spec("outputs.csv.gz"), parse_spec("hf:owner/name:test")
        (('tmu-gfm', 'ratings.csv'), ('csv', 'outputs.csv.gz'), ('hf', 'owner/name:test'))
    """
    name, colon, path = spec.partition(":")
    if colon and (name in SETS or name in FORMATS or name == HUB) and path:
        return name, path
    ending = Path(spec.lower().removesuffix(".gz")).suffix.removeprefix(".")
    if ending in FORMATS:
        return ending, spec
    what = "is a folder, not a file of data" if Path(spec).is_dir() else "names no data"
    raise ValueError(
        f"{spec!r} {what}; give a file that ends in {', '.join('.' + name for name in FORMATS)} (also .gz), NAME:PATH "
        f"with a NAME of {', '.join(sorted(SETS))}, or hf:NAME. Save a spreadsheet as CSV (in UTF-8)."
    )


def _existing(path: str) -> Path:
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; check the path.")
    return Path(path)


# The names of columns: ours for a file's own, and the likely ones where one is missing.

SYNONYMS: dict[str, tuple[str, ...]] = {
    "source": ("question", "prompt", "input", "instruction", "query", "document", "article", "context", "text"),
    "output": ("answer", "response", "reply", "completion", "generation", "prediction", "summary", "text"),
    "score": ("rating", "label", "human_score", "human_rating", "human", "grade", "mos", "quality", "stars"),
    "better": ("preference", "preferred", "chosen", "label", "winner", "human", "human_choice", "human_preference"),
    "system": ("model", "writer", "generator"),
    "output_1": ("output_a", "answer_a", "response_a", "reply_a", "completion_a", "answer_1", "response_1", "reply_1"),
    "output_2": ("output_b", "answer_b", "response_b", "reply_b", "completion_b", "answer_2", "response_2", "reply_2"),
}
"""Names that other data sets give to our fields, the likelier first."""

FIELDS = (*SYNONYMS, "outputs", "scores", "ratings", "systems", "system_1", "system_2", "input_id")
"""Our fields, apart from those that are numbered or named by criterion."""

EXPECTED = (
    "Expected are items such as\n"
    '  {"source": "What is 2 + 2?", "output": "4", "score": 5}\n'
    '  {"source": "Name a prime.", "output": "It is 9.", "score": 1}\n'
    "or the same columns in a .csv, .tsv, .json or .parquet file; pairs have two texts as "
    '"outputs": ["4", "5"], in tables as output_1 and output_2.'
)

_BETWEEN_PAIRS = re.compile(r",(?=[^,=]+=)")  # a comma before the name of a field


def parse_mapping(texts: Iterable[str]) -> dict[str, str]:
    """Read ``ours=theirs`` pairs, several between commas, each field once; a column's own name may hold commas.

    Examples:
        >>> parse_mapping(["source=question,output=answer", "score=rating"])
        {'source': 'question', 'output': 'answer', 'score': 'rating'}
        >>> parse_mapping(["source=the question, asked twice,output=answer"])
        {'source': 'the question, asked twice', 'output': 'answer'}
    """
    mapping: dict[str, str] = {}
    for pair in (pair for given in texts for pair in _BETWEEN_PAIRS.split(given)):
        ours, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (ours and equals and theirs):
            raise ValueError(f"--map {pair}: write OURS=THEIRS, such as --map source=question,output=answer.")
        if ours in mapping:
            raise ValueError(f"--map gives the field {ours!r} twice, as {mapping[ours]!r} and {theirs!r}: keep one.")
        mapping[ours] = theirs
    return mapping


def check_mapping(mapping: Mapping[str, str], columns: Sequence[str], place: str) -> None:
    """Refuse a mapping to a misspelt field, of a column that does not exist, or of one column to two fields.

    A misspelt field would be a further column, and without its source an item counts as an input of its own.
    """
    for theirs, count in Counter(mapping.values()).items():
        fields = [ours for ours, column in mapping.items() if column == theirs]
        if count > 1:  # two raters would agree by construction, and a text be compared with itself
            raters = all(ours.startswith("rating_") for ours in fields)
            alone = f", or this one as the only score (score={theirs})" if raters else ""
            raise DataError(
                f"{place}: --map gives the column {theirs!r} as {' and as '.join(map(repr, fields))}: give each field "
                f"its own column{alone}."
            )
    for ours, theirs in mapping.items():
        near = difflib.get_close_matches(ours, FIELDS, 1, cutoff=0.9)
        if near and not ours.startswith(near[0]):  # score2 is a further column, sorce is none
            raise DataError(f"{place}: {ours}={theirs} maps to no field of evalbias. Did you mean {near[0]}={theirs}?")
        if theirs not in columns:
            hint = "".join(f" Did you mean {ours}={one}?" for one in difflib.get_close_matches(theirs, columns, 1))
            raise DataError(f"{place} has no column {theirs!r} for {ours!r}; it has {listed(columns)}.{hint}")


def renamed(record: Mapping[str, Any], mapping: Mapping[str, str]) -> dict[str, Any]:
    """Return a record with their columns under our names; a column that has one of these names makes way."""
    kept = {name: value for name, value in record.items() if name not in {*mapping, *mapping.values()}}
    return kept | {ours: record[name] for ours, name in mapping.items() if name in record}


def lacking(place: str, columns: Sequence[str], wanted: str, *, beside: Iterable[str] = ()) -> DataError:
    """Return the error that a column is missing: the columns there are, the likely ones, and an example.

    Fields ``beside`` it are looked for too, so that one message gives the whole ``--map``.
    """
    likely = suggestions(columns, [wanted, *beside])
    hint = f" Say which column it is: --map {wanted}=COLUMN (in Python, mapping={{{wanted!r}: COLUMN}})."
    if likely:
        alike = ", ".join(f"{theirs!r} looks like {ours!r}" for ours, theirs in likely.items())
        option = ",".join(f"{ours}={theirs}" for ours, theirs in likely.items())
        hint = f" {alike}: --map {shlex.quote(option)} (in Python, mapping={likely})."
    return DataError(f"{place} has no column {wanted!r}; it has {listed(columns)}.{hint}\n{EXPECTED}")


def suggestions(columns: Sequence[str], wanted: Iterable[str], *, alike: bool = True) -> dict[str, str]:
    """Return field -> column that looks like it, for the wanted fields that are no columns; no column twice.

    Names that are spelled like a field's count if ``alike``, besides its synonyms.

    Examples:
        >>> suggestions(["Question", "reply", "rating"], ["source", "output", "score"])
        {'source': 'Question', 'output': 'reply', 'score': 'rating'}
    """
    column_of: dict[str, str] = {}
    for field in (field for field in wanted if field not in columns):
        free = {name.lower().strip().replace(" ", "_"): name for name in columns if name not in column_of.values()}
        exact = [free[name] for name in (field, *SYNONYMS.get(field, ())) if name in free]
        close = [free[name] for name in difflib.get_close_matches(field, free, 1, cutoff=0.75) if alike]
        if exact or close:
            column_of[field] = (exact or close)[0]
    return column_of


def listed(columns: Sequence[str]) -> str:
    """Name columns in an error, the first 50 of them."""
    more = f" and {len(columns) - 50} more" if len(columns) > 50 else ""
    return "the columns " + ", ".join(f"{c!r:.80}" for c in columns[:50]) + more if columns else "no columns"


def _hold_outputs(columns: Iterable[str]) -> bool:
    return bool({"output", "outputs", "candidates", "output_1"} & set(columns))


def _label_verdicts(table: Source, numbers: Sequence[str]) -> None:
    """Read columns label, label_1, ... as what people say; beside texts, where they hold only numbers or verdicts."""
    columns, words = table.columns, {*ABSENT, *sum(BINARY, ())}
    ours = {n: f"rating_{n[6:]}" if n[5:] else "score" for n in columns if n not in numbers and _LABEL.fullmatch(n)}
    cells = [row.get(name) for _, row in table.rows for name in ours if _hold_outputs(columns)]
    if any(_RATED.fullmatch(name) or name in ("scores", "ratings", "outputs", "output_1") for name in columns) or any(
        not isinstance(cell, int | float | None) and str(cell).strip().lower() not in words for cell in cells
    ):
        return
    table.mapping = {**table.mapping, **{field: name for name, field in ours.items()}}
    table.rows = [(w, {**row, **{ours[n]: row[n] for n in ours if n in row}}) for w, row in table.rows]


def _check_columns(table: Source, choices: Iterable[str], said: Sequence[str], *, texts: bool) -> None:
    """Refuse a table without outputs, unless it needs no ``texts`` and has none, and one column for two fields."""
    columns, place = table.columns, str(table.path)
    chosen = [name for name in choices if name != "better"]
    texts = texts or bool(suggestions(columns, ["output", "output_1", "output_2"], alike=False))
    if columns and not _hold_outputs(columns) and texts:
        absent = next((name for name in (*chosen, *said) if name not in (*columns, *table.mapping.values())), None)
        if absent and (close := difflib.get_close_matches(absent, columns, 1)):
            raise DataError(f"{place} has no column {absent!r}. Did you mean {close[0]!r}? It has {listed(columns)}.")
        place += f" has no column {absent!r}. It" if absent else ""
        if chosen or {"output_1", "output_2"} == set(suggestions(columns, ["output_1", "output_2"], alike=False)):
            raise lacking(place, columns, "output_1", beside=("output_2", "source", "better"))
        rated = {"scores", "ratings", "rating_1"} & set(columns)
        raise lacking(place, columns, "output", beside=("source",) if rated else ("source", "score"))
    if "score" in said and "score" in columns and not any(c.partition(".")[0] == "scores" for c in columns):
        raise DataError(
            f"{place}: the column 'score' holds people's scores, and it is asked for as the judge's too. If it is the "
            "judge's, read it under another name: --map judge_score=score and --scores-field judge_score."
        )
    for name in (*choices, *said):
        for ours in (o for o, theirs in table.mapping.items() if theirs == name != o and name not in columns):
            raise DataError(
                f"The column {name!r} is read as {ours!r} (--map) and is asked for as {name!r} too: name another "
                "column, or leave it out of --map."
            )


def check_field(items: Sequence[Any], field: str, place: str) -> None:
    """Refuse items that lack a field which a model must be shown, and name the columns that look like it."""
    without = next((e for e in items if field not in e), None)
    if without is not None and any(field in e for e in items):
        raise DataError(
            f"The item {item_name(without)!r:.80} of {place} has no {field!r}; add it, or leave the item out."
        )
    if without is not None:
        columns = dict.fromkeys(name for e in items for name in e.keys())  # noqa: SIM118 (an Example is no Mapping)
        raise lacking(place, list(columns), field)


# The columns of numbers of a table whose cells are texts.

TEXTS = frozenset({"id", "input_id", "source", "output", "output_1", "output_2", "system", "system_1", "system_2"})
TEXTS |= {"reference", "problem", "solution", "answer"}
"""Columns whose cells stay texts even where all of them are numbers."""
ABSENT = ("", "na", "n/a", "nan", "null", "none")  # cells without a value in a column of numbers, in lower case
_RATED = re.compile(r"score|scores\..+|rating_\d+", re.ASCII)
"""Columns of numbers by their meaning: where a cell of them is something else, it alone stays a text, to be named."""
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,308})(\.\d+)?([eE][+-]?\d+)?", re.ASCII)  # as JSON, up to the largest float


def typed(rows: Sequence[Row], decimal_mark: str) -> list[Row]:
    """Give columns of numbers their numbers; an empty cell is None, but an empty output stays an empty text.

    A column holds numbers if every cell that is not empty is one, with a decimal point or with the file's own mark.
    """
    columns = rows[0][1] if rows else {}
    marks: dict[str, str] = {}
    for name in columns.keys() - TEXTS:
        given = [cell for _, record in rows if (cell := record[name].strip()).lower() not in ABSENT]
        found = {mark: sum(map(bool, (_as_json(cell, mark) for cell in given))) for mark in (".", decimal_mark)}
        mark = max(found, key=found.__getitem__)
        if found[mark] >= (1 if _RATED.fullmatch(name) or _LABEL.fullmatch(name) else max(len(given), 1)):
            marks[name] = mark
    return [(where, {n: _value(n, cell, marks.get(n, "")) for n, cell in record.items()}) for where, record in rows]


def _as_json(cell: str, mark: str) -> str:
    """Return a number as JSON writes it, empty for none; beside decimal commas, 1.000 has a point of thousands."""
    number = cell if mark == "." else cell.replace(".", "?").replace(mark, ".")
    return number if _NUMBER.fullmatch(number) else ""


_LABEL = re.compile(r"label(_\d{1,9})?", re.ASCII)


def with_verdicts(rows: Sequence[Row], numbers: Sequence[str] = (), samples: Sequence[str] = ()) -> list[Row]:
    """Read columns mostly of one pair, such as yes and no, as 1 and 0; refuse what else they, or those beside, hold."""
    groups, read = dict[str, dict[str, list[tuple[str, Any]]]](), dict[str, tuple[str, ...]]()
    for name in rows[0][1] if rows else ():
        if _RATED.fullmatch(name) or name in ("scores", "ratings", *numbers, *samples):
            group = "ratings" if name.startswith("rating") else "samples" if name in samples else name
            cells = [(where, cell) for where, record in rows for cell in _cells(record.get(name)) if _word(cell)]
            groups.setdefault(group, {})[name] = cells
            read.update((name, p) for p in BINARY if 2 * sum(_word(c) in p for _, c in cells) > len(cells))
    for columns in groups.values():
        beside = [read[name] for name in columns if name in read]
        for name, where, cell in [(n, *one) for n in columns for one in columns[n] if beside]:
            if _word(cell) not in read.get(name, ("0", "1", "0.0", "1.0")):
                one, zero = read.get(name, beside[0])
                raise DataError(f"{where}: {name!r} is {cell!r:.80} among {one} and {zero}: give one of these two.")

    def converted(value: Any, pair: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {key: converted(one, pair) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [converted(one, pair) for one in value]
        return 1 - pair.index(_word(value)) if _word(value) else None

    return [
        (where, {n: converted(v, read[n]) if n in read else v for n, v in record.items()}) for where, record in rows
    ]


def _cells(value: Any) -> Iterator[Any]:
    nested = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
    yield from (value,) if nested is None else (cell for one in nested for cell in _cells(one))


def _word(cell: Any) -> str:
    """Return a cell in lower case; empty where it holds none."""
    return "" if missing(cell) or (word := str(cell).strip().lower()) in ABSENT else word


def _value(name: str, cell: str, mark: str) -> Any:
    if mark and cell.strip().lower() in ABSENT:
        return None
    if mark and (number := _as_json(cell.strip(), mark)):
        return json.loads(number)
    return cell if cell.strip() or name.startswith("output") else None


# Items from rows: outputs to score, or pairs of outputs to compare, with what people said about them.

NESTED = ("outputs", "candidates", "systems", "scores", "ratings")  # a table's cell may hold them as JSON


def _items(
    source: Source,
    rows: Iterable[Row],
    choices: Mapping[str, Sequence[object]] | None = None,
    numbers: Sequence[str] = (),
    *,
    samples: str | None = None,
    rated: Sequence[str] = (),
    texts: bool = True,
) -> Dataset:
    examples, places = list[dspy.Example](), dict[str, str]()
    for where, row in rows:
        record = _gathered(row, where)
        for name in (name for name in numbers if name in record):
            value = number(record[name], f"{where}: {name!r}", texts=True)
            record[name] = None if value != value else value
        if samples is not None:
            _gather_samples(record, samples, where)
        fields = _item(record, where, choices or {}, rated, texts=texts)
        if (first := places.setdefault(fields["id"], where)) != where:
            raise DataError(
                f"{where}: the id {fields['id']!r:.80} is already used at {first}; give each item its own id. If it "
                f"names an input that several outputs share: --map input_id={source.mapping.get('id', 'id')}."
            )
        judged = "candidates" if "candidates" in fields else "output"
        if not texts or any(one.strip() for one in fields.get("candidates") or [fields["output"]]):
            examples.append(dspy.Example(fields).with_inputs("source", judged))
        else:
            source.leave_out("empty output", where)
    return Dataset(examples, name=source.name, path=source.path, sha256=source.sha256, left_out=source.left_out)


def _item(
    record: dict[str, Any],
    where: str,
    choices: Mapping[str, Sequence[object]],
    required: Sequence[str],
    *,
    texts: bool,
) -> dict[str, Any]:
    """Return an item's fields; criteria that are ``required`` need a score."""
    fields: dict[str, Any] = {"id": item_id(record, where)}
    if record.get("source") is None:
        record.pop("source", None)
    else:
        fields["source"] = text(record, "source", where)
    outputs = record.pop("outputs", None)
    pair = record.pop("candidates", None) or outputs
    if pair is None and texts:
        fields["output"] = text(record, "output", where, blank=True)
    elif pair is not None:
        fields |= _pair(record, pair, where, choices)
    return {**record, **fields, **_rated(record, where, pair=pair is not None, required=required)}


def _gathered(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a record whose lists and objects are in one field each."""
    record = dict(row)
    for name in NESTED:
        if isinstance(record.get(name), str):
            record[name] = _from_json(record[name], name, where)
        columns = [column for column in record if column.startswith(f"{name}.")]  # as pandas writes nested records
        if columns and name not in record:
            cells = {column: record.pop(column) for column in columns}
            record[name] = {c.removeprefix(f"{name}."): _from_json(v, c, where) for c, v in cells.items()}
    if "ratings" not in record and (columns := _numbered(record, "rating")):
        record["ratings"] = [number(record.pop(name), f"{where}: {name!r}") for name in columns]
    if {"output_1", "output_2"} <= record.keys() and "output" not in record:
        record["outputs"] = [record.pop("output_1"), record.pop("output_2")]
        if {"system_1", "system_2"} <= record.keys():
            record["systems"] = [record.pop("system_1"), record.pop("system_2")]
    return record


def _gather_samples(record: dict[str, Any], name: str, where: str) -> None:
    """Gather the columns ``NAME_1``, ``NAME_2``, ... of a record, and read its list of numbers."""
    if name not in record and (columns := _numbered(record, name)):
        record[name] = [record.pop(column) for column in columns]
    if name not in record:
        return
    given = _from_json(record[name] or [], name, where)
    if not isinstance(given, list):
        raise DataError(
            f"{where}: {name!r} is {given!r:.80}; give a list of the judge's scores of the same prompt, such as "
            "[4, 5, null], or name a field of single scores by --scores-field."
        )
    scores = [number(value, f"{where}: a score of {name!r}", texts=True) for value in given]
    record[name] = [None if score != score else score for score in scores]


def _numbered(columns: Iterable[str], name: str) -> list[str]:
    """Return the columns ``NAME_1``, ``NAME_2``, ... in order."""
    form = re.compile(rf"{re.escape(name)}_\d{{1,9}}", re.ASCII)
    return sorted(filter(form.fullmatch, columns), key=lambda column: int(column.rpartition("_")[2]))


def _from_json(value: Any, name: str, where: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        content = parsed(value)
    except ValueError as error:
        raise DataError(f"{where}: {name!r:.80} is {value!r:.80}; it must be JSON ({error}).") from error
    check_text({name: content}, where)
    return content


def item_id(record: Mapping[str, Any], where: str) -> str:
    """Return the id of a record; without one, the number of the line or row in which its place ends."""
    name = record.get("id")
    if name is None:
        return str(re.findall(r"\d+", where)[-1])
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DataError(f"{where}: 'id' is {name!r:.80}; it must be a string or an integer.")
    return str(name)


def _pair(record: dict[str, Any], outputs: Any, where: str, choices: Mapping[str, Sequence[object]]) -> dict[str, Any]:
    """Return the fields of a pair: its candidates, which of them people prefer, and recorded choices."""
    if not isinstance(outputs, list) or len(outputs) != 2:
        raise DataError(f"{where}: the outputs are {outputs!r:.80}; a pair has a list of two texts.")
    fields: dict[str, Any] = {"candidates": [text({"output": one}, "output", where, blank=True) for one in outputs]}
    systems = record.get("systems")
    if systems is not None and (not isinstance(systems, list) or len(systems) != 2):
        raise DataError(f"{where}: 'systems' is {systems!r:.80}; name the writers of both outputs, or leave it out.")
    votes = _numbered(record, "better")  # of several people
    codes = {"better": (), **choices}
    codes |= dict.fromkeys(votes, codes["better"])
    for name in (name for name in codes if name in record):
        try:
            value = choice(record[name], f"{where}: {name!r}", codes[name])
        except DataError as error:
            hint = "" if codes[name] else " If 1 means the first and 2 the second: --labels 1,2."
            python = "in Python, labels of evalbias.audit or choices of evalbias.data.read"
            raise DataError(f"{error} Name other codes by --labels FIRST,SECOND,TIE ({python}).{hint}") from error
        fields[name] = None if value != value else int(value)
    if votes and record.get("ratings") is not None:
        raise DataError(f"{where}: both {votes[0]!r} and ratings say what people prefer: leave one of them out.")
    if votes:
        given = [{FIRST: 1, SECOND: -1, TIE: 0}.get(fields.pop(name)) for name in votes]
        record["ratings"], known = given, [one for one in given if one is not None]
        majority = {1: FIRST, -1: SECOND, 0: TIE}[int(np.sign(sum(known)))] if known else None
        fields.setdefault("better", None if majority is None else int(majority))
    if fields.get("better") in (0, 1):
        fields["preference"] = "AB"[fields["better"]]
    return fields


def _rated(record: Mapping[str, Any], where: str, *, pair: bool, required: Sequence[str]) -> dict[str, Any]:
    """Return people's scores and ratings: by criterion, or of the one criterion that is judged.

    A criterion without a score gets the mean of its ratings. A pair's ratings are each rater's difference, the first
    output's less the second's, and it has no score.
    """
    given = record.get("ratings")
    if isinstance(given, list) and not isinstance(record.get("scores"), Mapping):
        single = rating_row(given, "the criterion", where)
        if pair:
            return {"ratings": single}
        score = number(record.get("score"), f"{where}: the score")
        return {"score": score if score == score else mean_of_defined(single), "ratings": single}
    if "score" in record and record.get("scores") is None and given is None:
        return {"score": number(record["score"], f"{where}: the score")}
    single_by = ratings(given, where)
    by_criterion = {name: mean_of_defined(row) for name, row in single_by.items()}
    by_criterion |= scores(record.get("scores"), where)
    if missing := sorted(set(required) - set(by_criterion)):
        raise DataError(f"{where}: 'scores' lacks {missing}; write null for an undefined score.")
    return {"scores": by_criterion, **({"ratings": single_by} if single_by else {})}


# The columns of another table.


def join(examples: Sequence[dspy.Example], rows: Any, **chosen: Any) -> Dataset:
    """Add the columns of another table, such as a judge's recorded verdicts, to the items with the same ``id``.

    Args:
        examples: Items with ``id``; those without a row come to stand in ``left_out``.
        rows: File, data frame or list of dicts with a column ``id``; see ``read``.
        **chosen: Column -> its value in the rows to use, such as ``judge="ChatGPT", prompt="Vanilla"``.

    Raises:
        DataError: No item has a row, an item has several, a column does not exist, or item and row differ in one.

    Examples:
        >>> item, verdict = dspy.Example(id="a", output="Yes."), {"id": "a", "judge": "mine", "verdict": 4}
        >>> join([item], [verdict], judge="mine")[0].verdict
        4
    """
    table = table_of(rows)
    name, columns = str(table.path), table.columns
    for column in ("id", *chosen):
        if column not in columns:
            raise DataError(f"{name} has no column {column!r}; it has {listed(columns)}.")
    rows_by_id: dict[str, dict[str, Any]] = {}
    for where, row in table.rows:
        if row.get("id") is None:
            raise DataError(f"{where} has no 'id'; name the item that the row is about.")
        if all(row.get(column) == value for column, value in chosen.items()):
            first = rows_by_id.setdefault(str(row["id"]), row)
            if first is not row:
                differing = {c: (first.get(c), row.get(c)) for c in columns if first.get(c) != row.get(c)}
                raise DataError(
                    f"{where}: a second row for the item {row['id']!r:.80}, with other values {differing!r:.400}; "
                    "choose one by its columns, such as join(..., judge=NAME)."
                )
    ids = [str(e.get("id")) for e in examples]
    joined = [_with(e, rows_by_id[i], name) for i, e in zip(ids, examples, strict=True) if i in rows_by_id]
    if not joined:
        raise DataError(f"No item has a row in {name} with {chosen}: compare the ids and the chosen values.")
    before = examples
    if not isinstance(before, Dataset):
        before = Dataset(examples, name="list", path=Path("list"), sha256="", left_out={})
    missing = [i for i in ids if i not in rows_by_id]
    left_out = before.left_out | ({f"no row in {name}": tuple(missing)} if missing else {})
    sha256 = hashlib.sha256(f"{before.sha256} {table.sha256} {chosen}".encode()).hexdigest()
    return Dataset(joined, name=before.name, path=before.path, sha256=sha256, left_out=left_out)


def _with(example: dspy.Example, row: dict[str, Any], name: str) -> dspy.Example:
    joined = example.copy()
    for column, value in row.items():
        if column == "id":
            continue
        if column in example and example[column] != value:
            raise DataError(
                f"The item {item_name(example)!r:.80} and its row in {name} both have {column!r:.80}, "
                f"{example[column]!r:.80} and {value!r:.80}; rename one of the columns."
            )
        joined[column] = value
    return joined
