"""From rows to items: examples with checked fields. Read any source, and add the columns of another table."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy

from evalbias.data.cells import DataError, check_labels, choice, number, rating_row, ratings, scores, text
from evalbias.data.columns import Row, lacking, listed, suggestions
from evalbias.data.files import (
    FORMATS,
    HUB,
    Chunk,
    Source,
    check_text,
    chunk_table,
    file_table,
    hub_table,
    memory_table,
    parsed,
)
from evalbias.data.sets import SETS
from evalbias.measures.arrays import mean_of_defined


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


def item_name(example: Any, index: int | None = None) -> str:
    """Return an item's ``id``, a pair's ``ids`` joined, the item's number, or the beginning of its text."""
    if example.get("ids"):
        return " | ".join(map(str, example["ids"]))
    if example.get("id") is not None:
        return str(example["id"])
    return str(example.get("source") or dict(example))[:60] if index is None else str(index)


def read(
    source: Any,
    *,
    mapping: Mapping[str, str] | None = None,
    choices: Mapping[str, Sequence[object]] | None = None,
    numbers: Sequence[str] = (),
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
            as ``{"better": (1, 2, "tie")}``; no codes for those of ``cells.choice``. Items have 0, 1, -1 or None.
        numbers: Fields of recorded numbers, such as a judge's scores. Items have a number or None.

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
            return _items(files, SETS[name].rows(files), rated=SETS[name].rated)
    table = table_of(source, mapping)
    _check_columns(table, [*choices, *numbers], judged="score" in numbers)
    try:
        return _items(table, table.rows, choices, numbers)
    except DataError as error:
        named = {f"{o!r} is your column {t!r}" for o, t in table.mapping.items() if o != t and repr(o) in str(error)}
        raise DataError(" ".join([str(error), *(f"({words}.)" for words in sorted(named))])) from error


def read_chunks(path: Path, some: Sequence[Chunk], mapping: Mapping[str, str] | None = None) -> Dataset:
    """Read the items of consecutive chunks as ``read``; a mapped column may be missing, a changed file is refused."""
    table = chunk_table(path, some, mapping)
    return _items(table, table.rows)


def table_of(source: Any, mapping: Mapping[str, str] | None = None) -> Source:
    """Read the rows of a source that is no known data set, under our names, as ``read`` does; they need no output."""
    if not isinstance(source, str | os.PathLike):
        return memory_table(source, mapping)
    name, path = parse_spec(os.fspath(source))
    if name == HUB:
        return hub_table(path, mapping)
    if name in SETS:
        raise ValueError(f"{source}: {name} holds outputs to judge; give a file with the fields that are needed here.")
    return file_table(name, _existing(path), mapping)


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


def _check_columns(table: Source, asked: Sequence[str], *, judged: bool) -> None:
    """Refuse a table without outputs, and one column for two fields."""
    columns, place = table.columns, str(table.path)
    if columns and not {"output", "outputs", "candidates", "output_1"} & set(columns):
        if {"output_1", "output_2"} == set(suggestions(columns, ["output_1", "output_2"], alike=False)):
            raise lacking(place, columns, "output_1", beside=("output_2", "source", "better"))
        rated = {"scores", "ratings", "rating_1"} & set(columns)
        raise lacking(place, columns, "output", beside=("source",) if rated else ("source", "score"))
    if judged and "score" in columns and not any(c.partition(".")[0] == "scores" for c in columns):
        raise DataError(
            f"{place}: the column 'score' holds people's scores, and it is asked for as the judge's too. If it is the "
            "judge's, read it under another name: --map judge_score=score and --scores-field judge_score."
        )
    for name in asked:
        ours = next((o for o, theirs in table.mapping.items() if theirs == name != o), None)
        if ours is not None and name not in columns:
            raise DataError(
                f"The column {name!r} is read as {ours!r} (--map) and is asked for as {name!r} too: name another "
                "column, or leave it out of --map."
            )


# Items from rows: outputs to score, or pairs of outputs to compare, with what people said about them.

NESTED = ("outputs", "candidates", "systems", "scores", "ratings")  # a table's cell may hold them as JSON
LETTERS = ("A", "B")  # answers of a pairwise judge, for the first and the second candidate
_RATING = re.compile(r"rating_(\d{1,9})", re.ASCII)


def _items(
    source: Source,
    rows: Iterable[Row],
    choices: Mapping[str, Sequence[object]] | None = None,
    numbers: Sequence[str] = (),
    *,
    rated: Sequence[str] = (),
) -> Dataset:
    examples, places = list[dspy.Example](), dict[str, str]()
    for where, row in rows:
        record = _gathered(row, where)
        for name in (name for name in numbers if name in record):
            value = number(record[name], f"{where}: {name!r}", texts=True)
            record[name] = None if value != value else value
        fields = _item(record, where, choices or {}, rated)
        if (first := places.setdefault(fields["id"], where)) != where:
            raise DataError(
                f"{where}: the id {fields['id']!r:.80} is already used at {first}; give each item its own id. If it "
                f"names an input that several outputs share: --map input_id={source.mapping.get('id', 'id')}."
            )
        judged = "candidates" if "candidates" in fields else "output"
        if any(one.strip() for one in fields.get("candidates") or [fields["output"]]):
            examples.append(dspy.Example(fields).with_inputs("source", judged))
        else:
            source.leave_out("empty output", where)
    return Dataset(examples, name=source.name, path=source.path, sha256=source.sha256, left_out=source.left_out)


def _item(
    record: dict[str, Any], where: str, choices: Mapping[str, Sequence[object]], required: Sequence[str]
) -> dict[str, Any]:
    """Return an item's fields; criteria that are ``required`` need a score."""
    fields: dict[str, Any] = {"id": item_id(record, where)}
    if record.get("source") is None:
        record.pop("source", None)
    else:
        fields["source"] = text(record, "source", where)
    outputs = record.pop("outputs", None)
    pair = record.pop("candidates", None) or outputs
    if pair is None:
        fields["output"] = text(record, "output", where, blank=True)
    else:
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
    places = sorted((int(match[1]), name) for name in record if (match := _RATING.fullmatch(name)))
    if places and "ratings" not in record:
        record["ratings"] = [number(record.pop(name), f"{where}: {name!r}") for _, name in places]
    if {"output_1", "output_2"} <= record.keys() and "output" not in record:
        record["outputs"] = [record.pop("output_1"), record.pop("output_2")]
        if {"system_1", "system_2"} <= record.keys():
            record["systems"] = [record.pop("system_1"), record.pop("system_2")]
    return record


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
    for name in (name for name in {**choices, "better": ()} if name in record):
        try:
            value = choice(record[name], f"{where}: {name!r}", choices.get(name, ()))
        except DataError as error:
            hint = "" if choices.get(name) else " If 1 means the first and 2 the second: --labels 1,2."
            python = "in Python, labels of evalbias.audit or choices of evalbias.data.read"
            raise DataError(f"{error} Name other codes by --labels FIRST,SECOND,TIE ({python}).{hint}") from error
        fields[name] = None if value != value else int(value)
    if fields.get("better") in (0, 1):
        fields["preference"] = LETTERS[fields["better"]]
    elif "better" in fields:
        fields["better"] = None  # after a tie, people prefer neither
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


def check_field(items: Sequence[Any], field: str, place: str) -> None:
    """Refuse items that lack a field which a model must be shown, and name the columns that look like it."""
    without = next((e for e in items if field not in e), None)
    if without is None:
        return
    if any(field in e for e in items):
        raise DataError(
            f"The item {item_name(without)!r:.80} of {place} has no {field!r}; add it, or leave the item out."
        )
    columns = list(dict.fromkeys(name for e in items for name in e.keys()))  # noqa: SIM118 (an Example is no Mapping)
    raise lacking(place, columns, field)


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
