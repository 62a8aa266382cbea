"""Read items from any source: columns under our names, checked fields."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from evalbias.data import files, importers, items, long_form, nested, rating_values
from evalbias.data.cells import FIRSTS, MOST_CHOICES, words_in, words_of
from evalbias.data.columns import recognised_columns
from evalbias.data.files import Record, Source
from evalbias.data.hints import lacking
from evalbias.data.items import ABSENT, FIELDS, DataError, as_number, cells_of, item_name, listed, number, word
from evalbias.data.rating_values import Codes
from evalbias.measures.arrays import mean_of_defined
from evalbias.values import first_few


class Dataset(list[Any]):
    """List of ``dspy.Example``, whose fields are those of ``read``.

    ``path`` is the file or folder that was read, ``sha256`` the hash of the uncompressed contents of all files read,
    and ``left_out`` maps a reason to the items left out for it, each as ``file:line`` or as its id. ``notes`` are
    sentences about changes to the rows. A slice or a copy is a plain list without the attributes.
    """

    def __init__(self, examples: Iterable[Any], source: Source) -> None:
        super().__init__(examples)
        self.name, self.path, self.sha256, self.notes = source.name, source.path, source.sha256, tuple(source.notes)
        self.left_out = {reason: tuple(places) for reason, places in source.left_out.items()}

    def summary(self) -> str:
        """Describe the data set in a line: number of items, and items left out by reason."""
        left = [f"{len(ids)} left out ({why}: {first_few(ids, 3)})" for why, ids in self.left_out.items()]
        return "; ".join([*self.notes, f"{self.name}: {len(self)} items", *left])


def read(
    source: Any,
    *,
    mapping: Mapping[str, str] | None = None,
    choices: Mapping[str, Sequence[object]] | None = None,
    numbers: Sequence[str] = (),
    samples: str | None = None,
    missing: Sequence[object] = (),
    keep: Sequence[object] = (),
    levels: Sequence[str] = (),
) -> Dataset:
    """Read items to judge, or pairs to compare, with human ratings and judges' answers.

    An item has ``id`` (by default the number of its line or row), ``source`` (the input), ``output``, people's
    ``score`` or ``scores`` (criterion -> number), single ``ratings`` (list, or criterion -> list), ``system`` (the
    writer) and ``input_id``. A pair has two ``outputs`` instead, which become ``candidates``, ``systems``, and
    ``better``: 0 or 1 (also A or B), the output that people prefer. Tables spell lists as ``rating_1, rating_2, ...``,
    ``output_1, output_2`` and ``system_1, system_2``. Other columns stay as they are; empty cells are undefined. Items
    with an empty output, and pairs of empty ones, are left out. Rows that repeat a text with another rater become one;
    fields ``rated_by``, ``judged_by`` and ``rated_on`` (a criterion) name the column that tells such rows apart.

    Args:
        source: A ``.jsonl``, ``.json``, ``.csv``, ``.tsv`` or ``.parquet`` file (also ``.gz``); ``NAME:PATH``, with the
            name of a tool whose export it is (``files.EXPORTS``), or of a format; ``hf:NAME`` or ``hf:NAME:SPLIT`` of
            the Hugging Face hub; a pandas data frame; dicts or ``dspy.Example``; or a ``Source`` with its rows.
        mapping: Our field -> the source's column, such as ``{"source": "question", "output": "answer"}``; for
            ``ratings`` also several, one per rater, and for ``better`` the better output's. A column may be a path into
            objects, or another column times -1 (``nested``).
        choices: Field of recorded choices between two outputs -> codes of the first output, the second and a tie, such
            as ``{"better": (1, 2, "tie")}``; no codes for those of ``items.choice``. Items have 0, 1, -1 or None.
        numbers: Fields of recorded numbers, such as a judge's scores. Items have a number or None.
        samples: Field of several scores of the same prompt: a list, in tables as JSON, or columns ``NAME_1, NAME_2,
            ...``. Items have a list of numbers and None, empty without scores.
        missing: Values that stand for a missing rating or judge's answer, such as 0 or "error".
        keep: Numbers that are ratings, although they look like such values.
        levels: Words for ratings, the worst first; see ``rating_values.Codes``.

    Raises:
        DataError: A row is not a valid item, or a column is missing; the message names the place and the likely column.
        ValueError: The source is unknown.

    Examples:
        >>> (item,) = read([{"question": "What is 2 + 2?", "output": "4", "score": 5}], mapping={"source": "question"})
        >>> item.source, item.score
        ('What is 2 + 2?', 5.0)
    """
    wanted = Wanted(choices or {}, tuple(numbers), samples, Codes(missing, keep, levels))
    for labels in wanted.choices.values():
        items.check_labels(labels)
    source = opened(source)
    answers = {*wanted.numbers, *wanted.choices, *filter(None, [samples])} - {"better"}
    table = table_of(source, mapping or nested.raters_by_name(source), answers)
    nested.add_columns(table, answers)  # of columns under our names
    nested.drop_rest(table, [*answers, *table.mapping.values()])
    table = long_form.one_row_a_text(table, answers)
    judged = wanted.judged(table.columns)
    _read_nested(table, wanted)
    rated = [n for n in table.columns if n in judged or n in wanted.choices or _RATED.fullmatch(n)]
    rating_values.read_codes(table, rated, wanted.codes)
    named = {*table.columns, *(name for name in judged if items.CRITERION in name)}  # one per criterion, not known yet
    if has_verdicts := bool(judged) and judged <= named:
        _read_labels(table, judged)
    _check_columns(table, wanted, texts=not has_verdicts)
    if "source" not in table.columns and _hold_outputs(table.columns):
        table.notes = (*table.notes, *_unread(table, table.columns, "source", "the input", words_in("inputs"), str))
    others = [name for name in table.columns if name not in judged]
    if judged and not any(map(_RATED.fullmatch, others)):
        unread = _unread(table, others, "score", "people's", words_in("people", "values"), int | float)
        table.notes = (*table.notes, *unread)
    wanted = replace(wanted, texts=not has_verdicts or _hold_outputs(table.columns))
    try:
        return _items(table, wanted)
    except DataError as error:
        named = {f"{o!r} is your column {t!r}" for o, t in table.mapping.items() if o != t and repr(o) in str(error)}
        error.args = (" ".join([str(error), *(f"({words}.)" for words in sorted(named))]),)
        raise


@dataclass(frozen=True)
class Wanted:
    """Fields to read besides an item's own; see ``read``."""

    choices: Mapping[str, Sequence[object]]
    numbers: tuple[str, ...]
    samples: str | None
    codes: Codes
    texts: bool = True  # whether an item needs an output
    shares: frozenset[str] = frozenset()  # fields of choices that are probabilities of the second output

    def judged(self, columns: Sequence[str]) -> set[str]:
        """Return the columns of a judge's numbers, including columns that the table may lack."""
        drawn = [] if self.samples in columns else _numbered(columns, self.samples)
        return {*self.numbers, *(drawn or filter(None, [self.samples]))}


# A table: the rows of one source under our names.


def opened(source: Any) -> Source:
    """Read the rows of a source unchanged; an opened ``Source`` is returned as it is."""
    if not isinstance(source, str | os.PathLike):
        return source if isinstance(source, Source) else files.memory_table(source)
    name, path = parse_spec(os.fspath(source))
    if name in (*files.EXPORTS, *files.ANNOTATED):
        return importers.export_table(name, _existing(path))
    try:
        return files.hub_table(path) if name == files.HUB else files.file_table(name, _existing(path))
    except DataError as error:
        tool = importers.recognised(path) if Path(path).is_file() else None
        raise (DataError(f"{path} is an export of {tool}: give {tool}:{path}.") if tool else error) from None


def table_of(source: Any, mapping: Mapping[str, str] | None = None, answers: Iterable[str] = ()) -> Source:
    """Return the rows of a source, opened or not, under our names as ``read`` does; they need no output.

    A judge's ``answers`` may be paths into columns that are renamed.
    """
    table = opened(source)
    table = replace(table, rows=[(where, {**record}) for where, record in table.rows], left_out={**table.left_out})
    nested.add_columns(table, answers)
    _join_marked(table)
    _read_winners(table)
    better = next((k for k in (1, 2) if mapping and mapping.get("better") == mapping.get(f"output_{k}", 0)), None)
    if mapping and table.rows:
        mapping = {ours: theirs for ours, theirs in mapping.items() if ours != "better" or better is None}
        columns = table.columns
        named = [v.split(",") if isinstance(v, str) and v not in columns else cells_of(v) for v in mapping.values()]
        nested.add_columns(table, (name.strip() for names in named for name in names))
        mapping = _raters_apart(mapping, table)
        _check_mapping(mapping, table.columns, str(table.path))
        if "outcome" in mapping:
            mapping = _only_outcome(table, mapping)
        _rename(table, mapping)
    for _, record in table.rows if better else ():  # it names the better output itself
        record["better"] = "A" if better == 1 else "B"
    if table.name not in ("json", "jsonl"):  # where null is refused as an output; here it is an empty text, as in CSV
        for _, record in table.rows:
            record |= {name: "" for name in ("output", "output_1", "output_2") if record.get(name, "") is None}
    if table.name in ("csv", "tsv", "mturk"):
        _read_cells(table)
    return table


def _raters_apart(mapping: Mapping[str, Any], table: Source) -> dict[str, str]:
    """Return a mapping with a field for each rater: ``ratings=anna,ben`` as ``rating_1=anna`` and ``rating_2=ben``.

    Several columns may be passed as a list. A column of single ratings under ``ratings`` is one rater's.
    """
    apart, columns = dict(mapping), table.columns
    for several, single in (("ratings", "rating"), ("better", "better")):
        named = mapping.get(several, "")
        names = [name.strip() for name in named.split(",")] if isinstance(named, str) else [*named]
        cells = [files.parsed_or_given(row.get(named)) for _, row in table.rows] if named in columns else []
        alone = several == "ratings" and bool(cells) and not any(isinstance(cell, list | dict) for cell in cells)
        if (len(names) > 1 and not cells) or not isinstance(named, str) or alone:
            del apart[several]
            apart |= {f"{single}_{k}": name for k, name in enumerate([named] if alone else names, start=1)}
    return apart


def _check_mapping(mapping: Mapping[str, str], columns: Sequence[str], place: str) -> None:
    """Refuse a mapping to a misspelt field, of a column that does not exist, or of the same column to two fields.

    A misspelt field would become a further column: without its source, an item would count as its own input.
    """
    for theirs in mapping.values():
        fields = [name for name, column in mapping.items() if column == theirs]
        if len(fields) > 1:  # two raters would agree by construction, and a text be compared with itself
            raters = all(ours.startswith("rating_") for ours in fields)
            alone = f", or this one as the only score (score={theirs})" if raters else ""
            fault = f"{place}: --map gives the column {theirs!r} as {' and as '.join(map(repr, fields))}"
            raise DataError(f"{fault}: give each field its own column{alone}.")
    for ours, theirs in mapping.items():
        near = difflib.get_close_matches(ours, FIELDS, 1, cutoff=0.9)
        if near and not ours.startswith(near[0]):  # score2 is a further column, sorce is a misspelling
            raise DataError(f"{place}: {ours}={theirs} maps to no field of evalbias. Did you mean {near[0]}={theirs}?")
        if theirs not in columns:
            hint = "".join(f" Did you mean {ours}={match}?" for match in difflib.get_close_matches(theirs, columns, 1))
            raise DataError(f"{place} has no column {theirs!r} for {ours!r}; it has {listed(columns)}.{hint}")


def _rename(table: Source, mapping: Mapping[str, str]) -> None:
    """Rename a table's columns to our names, removing other columns that have these names."""
    table.mapping, taken = mapping, {*mapping, *mapping.values()}
    for _, record in table.rows if mapping else ():
        renamed = {ours: record[theirs] for ours, theirs in mapping.items() if theirs in record}
        for name in taken & record.keys():
            del record[name]
        record |= renamed


def _only_outcome(table: Source, mapping: Mapping[str, str]) -> dict[str, str]:
    """Return a mapping with the outcome as the human rating, and remove all other columns of human ratings."""
    columns, outcome = {*table.columns, *mapping}, mapping["outcome"]
    ours = "better" if columns & {"outputs", "candidates", "output_1"} else "score"
    others = [name for name in columns if _PEOPLES.fullmatch(name) or _LABEL.fullmatch(name.replace("better", "label"))]
    if both := [name for name in others if name in mapping]:
        fault = f"{table.path}: the outcome {outcome!r} is the only rating"
        raise DataError(f"{fault}: leave {both[0]}={mapping[both[0]]} out.")
    for _, row in table.rows:
        for name in (column for column in others if column in row and column not in mapping.values()):
            del row[name]
    return {ours if name == "outcome" else name: column for name, column in mapping.items()}


def parse_spec(spec: str) -> tuple[str, str]:
    """Split ``NAME:PATH`` into name and path; without a name, the path's ending gives it.

    Examples:
        >>> parse_spec("mlflow:traces.json"), parse_spec("outputs.csv.gz"), parse_spec("hf:owner/name:test")
        (('mlflow', 'traces.json'), ('csv', 'outputs.csv.gz'), ('hf', 'owner/name:test'))
    """
    name, colon, path = spec.partition(":")
    named = sorted([*files.EXPORTS, *files.ANNOTATED])
    if colon and path and name in (*named, *files.FORMATS, files.HUB):
        return name, path
    ending = Path(spec.lower().removesuffix(".gz")).suffix.removeprefix(".")
    if ending in files.FORMATS:
        return ending, spec
    what = "is a folder, not a file of data" if Path(spec).is_dir() else "names no data"
    endings, names = ", ".join(f".{name}" for name in files.FORMATS), ", ".join(named)
    fault = f"{spec!r} {what}; give a file that ends in {endings} (also .gz), NAME:PATH with a NAME of {names}"
    raise ValueError(f"{fault}, or hf:NAME. Save a spreadsheet as CSV (in UTF-8).")


def _existing(path: str) -> Path:
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; check the path.")
    return Path(path)


def _unread(table: Source, names: Iterable[str], field: str, what: str, words: Set[str], kind: Any) -> Iterator[str]:
    """Yield how to map each column with varying values of a kind whose name fits a field that was not found."""
    for name in names:
        values = {value for _, row in table.rows if isinstance(value := row.get(name), kind)}
        if len(values) > 1 and set() < {*words_of(name)} <= words:
            how = f"--map {field}={name:.80} (in Python, mapping={{{field!r}: {name!r:.80}}})"
            yield f"{name!r:.80} is not read as {what}: {how}"


def _hold_outputs(columns: Iterable[str]) -> bool:
    return "output" in columns or _hold_pairs(columns)


def _hold_pairs(columns: Iterable[str]) -> bool:
    return bool({"outputs", "candidates", "output_1"} & set(columns))


def _numbered(columns: Iterable[str], name: str | None) -> list[str]:
    """Return the columns ``NAME_1``, ``NAME_2``, ... in numeric order."""
    form = re.compile(rf"{re.escape(name or '')}_\d{{1,9}}", re.ASCII)
    return sorted(filter(form.fullmatch, columns), key=lambda column: int(column.rpartition("_")[2]))


def _check_columns(table: Source, wanted: Wanted, *, texts: bool) -> None:
    """Refuse a column used for two fields, and a table without outputs, unless it needs no ``texts`` and has none."""
    columns, place, judged = table.columns, str(table.path), sorted(wanted.judged(table.columns))
    chosen = [name for name in wanted.choices if name != "better"]
    if columns and not _hold_outputs(columns) and (texts or _hold_outputs(recognised_columns(table).fields)):
        absent = next((name for name in (*chosen, *judged) if name not in (*columns, *table.mapping.values())), None)
        if absent and (close := difflib.get_close_matches(absent, columns, 1)):
            raise DataError(f"{place} has no column {absent!r}. Did you mean {close[0]!r}? It has {listed(columns)}.")
        place += f" has no column {absent!r}. It" if absent else ""
        raise lacking(place, table, "output_1" if chosen else "output")
    if "score" in judged and "score" in columns and not any(c.partition(".")[0] == "scores" for c in columns):
        raise DataError(
            f"{place}: the column 'score' holds people's scores, and it is asked for as the judge's too. If it is the "
            "judge's, read it under another name: --map judge_score=score and --scores-field judge_score."
        )
    for ours, theirs in table.mapping.items():
        if ours != theirs and theirs in (*wanted.choices, *judged) and theirs not in columns:
            fault = f"The column {theirs!r} is read as {ours!r} (--map or --outcome) and is asked for as {theirs!r} too"
            raise DataError(f"{fault}: name another column for one of them.")


def check_field(examples: Sequence[Any], field: str, place: str) -> None:
    """Refuse items without a field that the model needs, and name the columns that look like it."""
    without = next((e for e in examples if field not in e), None)
    if without is not None and any(field in e for e in examples):
        fault = f"The item {item_name(without)!r:.80} of {place} has no {field!r}"
        raise DataError(f"{fault}; add it, or leave the item out.")
    if without is not None:
        raise lacking(place, files.memory_table(examples), field)


# Cells: the numbers of a table whose cells are texts, and words for pass and fail.


def _join_marked(table: Source) -> None:
    """Merge columns NAME_model_a, NAME_model_b and NAME_tie, with 1 in one of them, into a column NAME of choices."""
    columns, rows = table.columns, [row for _, row in table.rows]
    for name in (column.removesuffix("_tie") for column in columns if column.endswith("_tie")):
        parts = [f"{name}_{side}" for side in ("model_a", "model_b", "tie")]
        if name in columns or not {*parts} <= {*columns}:
            continue
        marked = [[part for part in parts if items.code_of(row.get(part)) in ("1", "true")] for row in rows]
        for row, chosen in zip(rows, marked, strict=True) if max(map(len, marked)) == 1 else ():
            row[name] = next((part.removeprefix(f"{name}_") for part in chosen), "")
            for part in parts:
                row.pop(part, None)


def _read_winners(table: Source) -> None:
    """Read choices that name the winning writer as A and B, if two columns name the writers of a pair."""
    columns, rows = dict.fromkeys(table.columns), [row for _, row in table.rows]
    ends = [(name, name.removesuffix(a) + b) for name in columns for a, b in FIRSTS.items() if name.endswith(a)]
    for name, other in filter(lambda pair: pair[1] in columns, ends):
        texts = np.isinf([as_number(row.get(name)) for row in rows[:100]])
        if not texts.any() or words_in("writers").isdisjoint(own := {*words_of(name)}):
            continue
        sides = [{word(row.get(name)): "A", word(row.get(other)): "B"} for row in rows]
        for choice in [c for c in columns if words_in("values", "people", "judges") & {*words_of(c)} - own]:
            read = [s.get(c := word(row.get(choice)), c) for s, row in zip(sides, rows, strict=True)]
            codes = {*map(items.choice_code, read)}
            if {"a", "b"} <= codes <= {"a", "b", "", *items.TIES, *words_in("ties")} and min(map(len, sides)) > 1:
                for row, side in zip(rows, read, strict=True):
                    row[choice] = side


TEXTS = frozenset({"id", "input_id", "source", "output", "output_1", "output_2", "system", "system_1", "system_2"})
TEXTS |= {"reference", "problem", "solution", "answer"}
"""Columns whose cells stay texts even if all of them are numbers."""
_LABEL = re.compile(r"label(_\d{1,9})?", re.ASCII)
_PEOPLES = re.compile(r"score|(scores|ratings)(\..+)?|rating_\d{1,9}", re.ASCII)
_RATED = re.compile(rf"{_PEOPLES.pattern}|(better|label)(_\d{{1,9}})?", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,308})(\.\d+)?([eE][+-]?\d+)?", re.ASCII)  # as JSON, up to the largest float


def _read_cells(table: Source) -> None:
    """Convert columns of numbers; an empty cell becomes None, but an empty output stays an empty text.

    A column holds numbers if all cells that are not empty are numbers, with a decimal point or the file's mark.
    """
    for name in table.columns:
        if not all(isinstance(record.get(name), str) for _, record in table.rows):
            continue  # read by an importer already
        cells = [record[name].strip() for _, record in table.rows]
        n_given = sum(cell.lower() not in ABSENT for cell in cells)
        written = [cells]
        if (mark := table.decimal_mark) != ".":  # beside decimal commas, 1.000 has a point of thousands
            written.append([cell.replace(".", "?").replace(mark, ".") for cell in cells])
        read = [[cell if _NUMBER.fullmatch(cell) else "" for cell in some] for some in written]
        numbers = max(read, key=lambda some: sum(map(bool, some)))
        rated = _PEOPLES.fullmatch(name) or _LABEL.fullmatch(name)  # a single other cell is then an error to name
        is_number = name not in TEXTS and sum(map(bool, numbers)) >= (1 if rated else max(n_given, 1))
        for (_, record), cell, digits in zip(table.rows, cells, numbers, strict=True):
            if is_number and digits:
                record[name] = int(digits) if digits.lstrip("-").isdecimal() else float(digits)
            elif (is_number and cell.lower() in ABSENT) or not (cell or name.startswith("output")):
                record[name] = None
    _leave_totals_out(table)


def _leave_totals_out(table: Source) -> None:
    """Leave out a last row of totals: two or more numbers that are sums of the column, or means of whole numbers."""
    *above, (where, last) = table.rows or [("", {})]
    totals = {name: cell for name, cell in last.items() if isinstance(cell, int | float)}
    columns = ((total, [as_number(row.get(name), texts=False) for _, row in above]) for name, total in totals.items())
    if len(above) > 2 and len(totals) > 1 and all(_is_total(total, cells) for total, cells in columns):
        table.rows = above
        table.leave_out("totals of the rows above", where)


def _is_total(total: float, column: Sequence[float]) -> bool:
    cells = np.array([cell for cell in column if math.isfinite(cell)])
    mean = round(cells.mean(), len(str(total).partition(".")[2])) if len(cells) and not (cells % 1).any() else 0
    is_sum = total > cells.max(initial=0) and math.isclose(total, cells.sum())
    return bool(is_sum or (total % 1 and total == mean))


def _read_labels(table: Source, judged: Set[str]) -> None:
    """Read columns label, label_1, ... as human ratings if the table has no others.

    Beside texts, a label may be anything, such as a topic: then it counts as a rating only if most cells are numbers or
    words for pass and fail.
    """
    columns = table.columns
    if any(_PEOPLES.fullmatch(name) or name in ("outputs", "output_1") for name in columns):
        return
    ours = {n: f"rating_{n[6:]}" if n[5:] else "score" for n in columns if n not in judged and _LABEL.fullmatch(n)}
    cells = [cell for _, row in table.rows for cell in map(row.get, ours) if word(cell)]
    words = items.LABELS.keys() | items.values_of_words(cells).keys()
    others = [c for c in cells if not isinstance(c, int | float) and word(c) not in words]
    if others and 2 * len(others) >= len(cells) and _hold_outputs(columns):
        return
    table.mapping = {**table.mapping, **{field: name for name, field in ours.items()}}
    for _, row in table.rows:
        row |= {field: row[name] for name, field in ours.items() if name in row}


def _read_verdicts(table: Source, wanted: Wanted) -> None:
    """Read columns that mostly hold a pair of words, such as yes and no, as 1 and 0; refuse cells without a rating."""
    columns, judged = table.columns, wanted.judged(table.columns)
    peoples = [name for name in columns if _PEOPLES.fullmatch(name)]
    raters, drawn = [name for name in peoples if name.startswith("rating")], _numbered(columns, wanted.samples)
    alone = [name for name in columns if name not in (*raters, *drawn) and (name in peoples or name in judged)]
    for group in (raters, drawn, *([name] for name in alone)):
        rating_values.read_words(table, group)
    if not _hold_pairs(columns):  # ratings of pairs are differences
        criteria = {name: "" if name in ("score", "ratings") else name.partition(".")[2] for name in peoples}
        kinds = {name: f"{'mean' if name.startswith('score') else ''}{about}" for name, about in criteria.items()}
        rating_values.ask_about_failures(table, kinds, [name for name in columns if name in judged], wanted.codes)


# Items from rows: outputs to score, or pairs of outputs to compare, with human ratings.

NESTED = ("outputs", "candidates", "systems", "scores", "ratings")  # fields that a cell may hold as JSON
DIFFERENCES = {items.FIRST: 1, items.SECOND: -1, items.TIE: 0}
"""A person's choice -> rating of the first output minus the second's."""


def _read_nested(table: Source, wanted: Wanted) -> None:
    """Read lists and objects that are written as JSON, and turn conversations into texts."""
    dotted = {name for name in table.columns if name.startswith(tuple(f"{root}." for root in NESTED))}
    for where, record in table.rows:
        for name in (*NESTED, wanted.samples or "", *dotted):
            if isinstance(cell := record.get(name), str) and (name not in dotted or cell.lstrip()[:1] in ("[", "{")):
                record[name] = _from_json(cell, name, where)
        files.flatten_texts(record)


def _items(table: Source, wanted: Wanted) -> Dataset:
    # 1. Words for numbers.
    _read_verdicts(table, wanted)
    wanted = replace(wanted, shares=frozenset(name for name in wanted.choices if _are_shares(table, name, wanted)))
    for name in ("better", *wanted.choices, *_numbered(table.columns, "better")):
        if _hold_pairs(table.columns) and name not in wanted.shares:
            codes = wanted.choices.get(name, wanted.choices.get("better", ()) if name.startswith("better_") else ())
            rating_values.refuse_choices([*rating_values.given_cells(table, name)], codes)
    # 2. Items, each with its own id and an output.
    examples, places = list[dspy.Example](), dict[str, str]()
    columns = {name: _numbered(table.columns, name) for name in ("rating", "better", wanted.samples or "")}
    for where, row in table.rows:
        fields = _item(_gathered(row, where, wanted, columns), where, wanted, columns["better"])
        if (first := places.setdefault(fields["id"], where)) != where:
            raise DataError(
                f"{where}: the id {fields['id']!r:.80} is already used at {first}; give each item its own id. If it "
                f"names an input that several outputs share: --map input_id={table.mapping.get('id', 'id')}."
            )
        judged = "candidates" if "candidates" in fields else "output"
        if not wanted.texts or any(text.strip() for text in fields.get("candidates") or [fields["output"]]):
            examples.append(dspy.Example(fields).with_inputs("source", judged))
        else:
            table.leave_out("empty output", where)
    return Dataset(examples, table)


def _from_json(value: str, name: str, where: str) -> Any:
    """Read a cell of JSON; an empty cell is None."""
    if not value.strip():
        return None
    try:
        content = files.parsed_cell(value)
    except ValueError as error:
        raise DataError(f"{where}: {name!r:.80} is {value!r:.80}; it must be JSON ({error}).") from error
    files.check_text({name: content}, where)
    return content


def _gathered(row: Record, where: str, wanted: Wanted, columns: Mapping[str, Sequence[str]]) -> Record:
    """Return a record in which lists and objects have one field each, and recorded numbers are numbers.

    ``columns`` has the table's numbered columns by name: a rater or answer that a row lacks keeps its place.
    """
    record, judged = dict(row), {*wanted.numbers, *wanted.choices, wanted.samples}
    nested = [column for column in record if "." in column and column not in judged]  # as pandas writes records
    for name in NESTED if nested else ():
        dotted = [column for column in nested if column.startswith(f"{name}.")]
        if dotted and name not in record:
            record[name] = {column.removeprefix(f"{name}."): record.pop(column) for column in dotted}
    if "ratings" not in record and any(name in record for name in columns["rating"]):
        record["ratings"] = [number(record.pop(name, None), f"{where}: {name!r}") for name in columns["rating"]]
    if {"output_1", "output_2"} <= record.keys() and "output" not in record:
        for name in ("output", "system"):
            if {f"{name}_1", f"{name}_2"} <= record.keys():
                record[f"{name}s"] = [record.pop(f"{name}_1"), record.pop(f"{name}_2")]
    for name in (name for name in wanted.numbers if name in record):
        record[name] = _number(record[name], f"{where}: {name!r}")
    if (samples := wanted.samples) is not None:
        if samples not in record and any(name in record for name in columns[samples]):
            record[samples] = [record.pop(name, None) for name in columns[samples]]
        scores = record.get(samples) or []
        if not isinstance(scores, list):
            fault = f"{where}: {samples!r} is {scores!r:.80}; give a list of the judge's scores of the same prompt"
            raise DataError(f"{fault}, such as [4, 5, null], or name a field of single scores by --scores-field.")
        if samples in record:
            record[samples] = [_number(value, f"{where}: a score of {samples!r}") for value in scores]
    return record


def _number(value: Any, written: str) -> float | None:
    read = number(value, written, texts=True)
    return None if read != read else read


def _item(record: Record, where: str, wanted: Wanted, votes: Sequence[str]) -> Record:
    """Return an item's fields; ``votes`` are columns with people's choices."""
    fields: Record = {"id": item_id(record, where)}
    if record.get("source") is None:
        record.pop("source", None)
    else:
        fields["source"] = items.text(record, "source", where)
    outputs = record.pop("outputs", None)
    if isinstance(outputs, dict) and "output" in record:
        outputs = None  # columns such as outputs.coherence: a tool's name for its results
    pair = record.pop("candidates", None) or outputs
    if pair is None and wanted.texts:
        fields["output"] = items.text(record, "output", where, blank=True)
    elif pair is not None:
        if not isinstance(pair, list) or len(pair) != 2:
            raise DataError(f"{where}: the outputs are {pair!r:.80}; a pair has a list of two texts.")
        fields["candidates"] = [items.text({"output": output}, "output", where, blank=True) for output in pair]
        fields |= _chosen(record, where, wanted, votes)
    return {**record, **fields, **_rated(record, where, pair=pair is not None)}


def item_id(record: Record, where: str) -> str:
    """Return the id of a record, or else the number of the line or row at the end of its place."""
    name = record.get("id")
    if name is None:
        return str(re.findall(r"\d+", where)[-1])
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DataError(f"{where}: 'id' is {name!r:.80}; it must be a string or an integer.")
    return str(name)


def _are_shares(table: Source, name: str, wanted: Wanted) -> bool:
    """Return whether choices are numbers between the codes of both outputs, such as AlpacaEval's 1 + P(second)."""
    ends = sorted(map(as_number, wanted.choices[name][:2]))
    numbers = [as_number(cell) for _, row in table.rows if word(cell := row.get(name))]
    between = ends and all(ends[0] <= value <= ends[1] for value in numbers) and math.isfinite(ends[1])
    return bool(between and name != "better" and len({*numbers}) > MOST_CHOICES)


def _chosen(record: Record, where: str, wanted: Wanted, votes: Sequence[str]) -> Record:
    """Return people's preferred output of a pair, and recorded choices; several people's choices become ratings."""
    systems = record.get("systems")
    if systems is not None and (not isinstance(systems, list) or len(systems) != 2):
        raise DataError(f"{where}: 'systems' is {systems!r:.80}; name the writers of both outputs, or leave it out.")
    codes = {"better": (), **wanted.choices}
    plain = [name for name in codes if name in record and name not in wanted.shares]
    chosen: Record = {name: _choice(record[name], f"{where}: {name!r}", codes[name]) for name in plain}
    for name in wanted.shares & record.keys():
        first, second = map(as_number, codes[name][:2])
        value = as_number(record[name])
        chosen[name] = None if value != value else (value - first) / (second - first)
    if any(name in record for name in votes):
        if record.get("ratings") is not None:
            raise DataError(f"{where}: both {votes[0]!r} and ratings say what people prefer: leave one of them out.")
        choices = [_choice(record.get(name), f"{where}: {name!r}", codes["better"]) for name in votes]
        record["ratings"] = [None if vote is None else DIFFERENCES[vote] for vote in choices]
        differences = [difference for difference in record["ratings"] if difference is not None]
        majority = {1: items.FIRST, -1: items.SECOND, 0: items.TIE}[int(np.sign(sum(differences)))]
        chosen.setdefault("better", int(majority) if differences else None)
    if chosen.get("better") in (items.FIRST, items.SECOND) and "preference" not in codes:  # it may be a judge's
        chosen["preference"] = "AB"[chosen["better"]]
    return chosen


def _choice(value: Any, written: str, codes: Sequence[object]) -> int | None:
    read = items.choice(value, written, codes)
    return None if read != read else int(read)


def _rated(record: Record, where: str, *, pair: bool) -> Record:
    """Return human scores and ratings: by criterion, or for the only criterion that is judged.

    A criterion without a score gets the mean of its ratings. A pair's ratings are differences by rater, the first
    output's rating minus the second's, and it has no score.
    """
    ratings = record.get("ratings")
    if isinstance(ratings, list) and not isinstance(record.get("scores"), Mapping):
        single = items.rating_row(ratings, "the criterion", where)
        if pair:
            return {"ratings": single}
        score = number(record.get("score"), f"{where}: the score")
        return {"score": score if score == score else mean_of_defined(single), "ratings": single}
    if "score" in record and record.get("scores") is None and ratings is None:
        return {"score": number(record["score"], f"{where}: the score")}
    single_by = items.ratings(ratings, where)
    by_criterion = {name: mean_of_defined(row) for name, row in single_by.items()}
    by_criterion |= items.scores(record.get("scores"), where)
    return {"scores": by_criterion, **({"ratings": single_by} if single_by else {})}
