"""Long form: rows that repeat a text for each rater, judge or criterion, turned into a single row per text.

It is recognized by the rows: the same texts occur in several rows, and one column distinguishes these rows. Names of
columns only help if two readings fit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalbias.data.cells import words_in, words_of
from evalbias.data.files import Row, Source
from evalbias.data.items import DataError, code_of
from evalbias.measures.arrays import missing

RATED_BY, JUDGED_BY, RATED_ON = "rated_by", "judged_by", "rated_on"  # fields: column that distinguishes a text's rows
FEWEST = 10  # repeated texts, below which a column may differ in all of them by chance
ITEM: tuple[str, ...] = ("source", "output", "outputs", "candidates", "output_1", "output_2", "input_id")
ITEM += ("system", "systems", "system_1", "system_2")
"""Our fields that distinguish items."""
SPEAKERS, CRITERIA = words_in("persons", "speakers"), words_in("criteria")  # words in names of columns


@dataclass(frozen=True)
class LongForm:
    """Repetition of texts in the rows of a table."""

    who: str  # column that distinguishes the rows of a text
    names: Sequence[str]  # its values, in order of first appearance
    rows: int
    counts: Sequence[int]  # rows of each text
    varying: frozenset[str]  # other columns that differ between the rows of a text
    is_crossed: bool  # True if each text has a row for each name

    def sentence(self, kind: str) -> str:
        """Describe how rows are merged into texts."""
        low, high, n = min(self.counts), max(self.counts), len(self.names)
        kind = RATED_ON if CRITERIA & {*words_of(self.who)} else kind
        each = f"{low} to {high}" if low < high else f"{high}"
        what = {RATED_BY: "rater", JUDGED_BY: "judge", RATED_ON: "criterion"}[kind]
        more = {RATED_ON: "criteria"}.get(kind, f"{what}s") if high > 1 else what
        of = f" (of {n})" if n > high else ""
        return f"{self.rows} rows: {len(self.counts)} texts, {each} {more} each{of}, by {self.who!r}."


def find_form(table: Source, texts: Iterable[str], ratings: Iterable[str]) -> LongForm | None:
    """Return the long form of a table; None if no text is repeated, or no column distinguishes the repetitions.

    A column named for a speaker or criterion may do so for a few texts; any other column must for most texts.

    Args:
        table: Rows that have the columns ``texts``.
        texts: Columns that hold an item's texts, and other columns that distinguish items.
        ratings: Columns of ratings, which cannot distinguish rows.
    """
    texts, ratings = [*texts], {*ratings}
    groups = _groups(table.rows, texts)
    if len(groups) == len(table.rows) or not texts:
        return None
    repeated = [group for group in groups.values() if len(group) > 1]
    is_usual = 2 * len(repeated) >= len(groups) and len(repeated) >= FEWEST
    columns = [name for name in table.columns if name not in texts]
    differing = frozenset(_differing(repeated, columns))
    named = {name for name in columns if {*words_of(name)} & (SPEAKERS | CRITERIA)}
    for who in sorted(differing - ratings, key=lambda name: (name not in named, columns.index(name))):
        values = [row.get(who) for _, row in table.rows]
        names = [*dict.fromkeys(map(_name, values))]
        is_one = all(isinstance(value, str | int) and not missing(value) and len(str(value)) <= 80 for value in values)
        if not is_one or "" in names or 2 * len(names) > len(values) or not (who in named or is_usual):
            continue
        if all(len({_name(row[who]) for _, row in group}) == len(group) for group in repeated):
            counts = [*map(len, groups.values())]
            return LongForm(who, names, len(values), counts, differing - {who}, {*counts} == {len(names)})
    return None


def readings(form: LongForm, people: Iterable[str], judged: Iterable[str]) -> list[str]:
    """Return the fields that the distinguishing column may be: ``RATED_BY``, ``JUDGED_BY`` or ``RATED_ON``.

    Args:
        form: Long form of the table.
        people: Columns of people's ratings.
        judged: Columns of a judge's answers; empty if unknown.
    """
    words, judged = {*words_of(form.who)}, {*judged}
    people_differ, judges_differ = not form.varying.isdisjoint(people), not form.varying.isdisjoint(judged)
    judges = [name for name in form.names if words_in("judges", "models") & {*words_of(name)}]
    models = 2 * len(judges) > len(form.names)
    is_said = bool(words & (SPEAKERS | words_in("people", "judges", "writers"))) or models
    persons = words_in("people") | SPEAKERS - words_in("judges")
    may_be_crossed = form.is_crossed and (judges_differ or not judged)
    fits = {
        RATED_BY: people_differ and not judges_differ and not words & CRITERIA and not models,
        JUDGED_BY: judges_differ and not people_differ and (models or not words & persons),
        RATED_ON: people_differ and (bool(words & CRITERIA) or (may_be_crossed and not is_said)),
    }
    return [kind for kind, is_fit in fits.items() if is_fit]


def one_row_a_text(table: Source, judged: Iterable[str]) -> Source:
    """Return a table of our fields with a row for each text, if the mapping or the only possible reading says so.

    Raises:
        DataError: The columns ``judged`` hold the answers of several judges, or raters and criteria fit alike.
    """
    mapped = [kind for kind in (RATED_ON, JUDGED_BY, RATED_BY) if kind in table.mapping]
    for kind in mapped:
        table = pivoted(table, kind)
    people = [name for name in table.columns if _is_peoples(name)]
    texts = [name for name in ITEM if name in table.columns]
    if mapped or not {"output", "outputs", "candidates", "output_1"} & {*texts}:
        return table
    if (form := find_form(table, texts, [*people, *judged])) is None:
        return table
    fits, place = readings(form, people, judged), f"{table.path}: {form.rows} rows repeat {len(form.counts)} texts"
    if JUDGED_BY in fits:
        (column, *_) = form.varying & {*judged}
        each = ", ".join(repr(f"{name}/{column}")[:80] for name in form.names[:3])
        raise DataError(
            f"{place}, {column!r} differs between them, and {form.who!r} says who judged: judges are not pooled. "
            f"Read them as columns of one judge each, such as {each}, by --map {JUDGED_BY}={form.who}, and name one, "
            "or all of them to evalbias jury."
        )
    if len(fits) > 1:
        either = " or ".join(f"--map {kind}={form.who}" for kind in fits)
        raise DataError(f"{place}, told apart by {form.who!r}, which may name raters or criteria: add {either}.")
    simple = form.varying.isdisjoint({*people} - {"score", "better", "label"})
    if fits == [RATED_ON]:
        more = f"Each row is an item; by criterion: --map {RATED_ON}={form.who}"
        table.notes = [*table.notes, f"{form.sentence(RATED_ON)} {more}"]
    return pivoted(table, RATED_BY, form.who) if fits == [RATED_BY] and simple else table


def pivoted(table: Source, kind: str, who: str = "") -> Source:
    """Return a table of our fields with a row for each text; by default, the field ``kind`` distinguishes its rows.

    Raters' ratings become ``rating_1``, ``rating_2``, ... (for pairs ``better_1``, ...), a column for each rater;
    judges' answers become a column ``JUDGE/COLUMN`` for each judge; ratings on criteria become ``scores.CRITERION``,
    and a judge's answers ``CRITERION/COLUMN``. Other columns that differ become lists with an entry for each rater.

    Raises:
        DataError: A text has two rows for the same rater, judge or criterion, or human ratings differ between judges.
    """
    who = who or kind
    own = [name for name in (*ITEM, RATED_BY, JUDGED_BY, RATED_ON) if name != who and name in table.columns]
    single = [name for name in table.columns if name.startswith("rating_") and kind == RATED_ON]
    if single:  # a column for each rater
        rest = [(where, {n: c for n, c in row.items() if n not in single}) for where, row in table.rows]
        lists = [[*map(row.get, single)] for _, row in table.rows]
        table = replace(table, rows=[(w, {**row, "ratings": of}) for (w, row), of in zip(rest, lists, strict=True)])
    groups = _groups(table.rows, own)
    names = [*dict.fromkeys(_name(row.get(who)) for _, row in table.rows)]
    differing = _differing(groups.values(), [name for name in table.columns if name not in (who, *own)])
    rows = list[Row]()
    for group in groups.values():
        by = dict[str, Mapping[str, Any]]()
        for where, row in group:
            if not (name := _name(row.get(who))):
                raise DataError(f"{where}: {who!r:.80} is empty, and it tells the rows of a text apart: fill it in.")
            if by.setdefault(name, row) is not row and by[name] != row:
                fault = f"{where}: a second row of {name!r:.80} ({who!r:.80}) for the same text"
                raise DataError(f"{fault}: keep one of them, or map the column that tells them apart.")
        where, first = group[0]
        own_rows = [by.get(name, {}) for name in names]
        record = {name: value for name, value in first.items() if name == "id" or name not in (who, *differing)}
        for column in (name for name in differing if name != "id"):
            record |= _apart(kind, column, names, [row.get(column) for row in own_rows], where)
        rows.append((where, record))
    named, counts = table.mapping.get(who, who), [*map(len, groups.values())]
    form = LongForm(named, names, len(table.rows), counts, frozenset(differing), is_crossed=False)
    return replace(table, rows=rows, notes=[*table.notes, form.sentence(kind)])


def _apart(kind: str, column: str, names: Sequence[str], cells: Sequence[Any], where: str) -> dict[str, Any]:
    """Return the columns that replace a column of a text's rows, which has a cell for each name."""
    if not _is_peoples(column):
        by_name = zip(names, cells, strict=True)
        return {column: [*cells]} if kind == RATED_BY else {f"{name}/{column}": cell for name, cell in by_name}
    if kind == RATED_BY and column in ("score", "better", "label"):
        return {f"{'rating' if column == 'score' else column}_{k}": cell for k, cell in enumerate(cells, start=1)}
    if kind == RATED_BY and column.startswith("scores."):
        return {column.replace("scores.", "ratings.", 1): [*cells]}
    if kind == RATED_ON and column in ("score", "ratings"):
        cells = [[] if column == "ratings" and cell is None else cell for cell in cells]
        return {f"{'scores' if column == 'score' else column}.{n}": c for n, c in zip(names, cells, strict=True)}
    whose = {RATED_BY: "raters", JUDGED_BY: "judges", RATED_ON: "criteria"}[kind]
    fault = f"{where}: {column!r} differs between the rows of one text, which are those of {whose} ({kind})"
    raise DataError(f"{fault}: give a column of one person's ratings of one criterion, or keep the rows of one.")


def _is_peoples(column: str) -> bool:
    return column in ("score", "better", "label", "ratings", "scores") or column.startswith(("scores.", "rating"))


def _differing(groups: Collection[Sequence[Row]], columns: Iterable[str]) -> list[str]:
    """Return the columns that differ between the rows of a text."""
    return [c for c in columns if any(len({str(row.get(c)) for _, row in group}) > 1 for group in groups)]


def _groups(rows: Sequence[Row], texts: Sequence[str]) -> dict[tuple[str, ...], list[Row]]:
    groups = dict[tuple[str, ...], list[Row]]()
    for where, row in rows:
        groups.setdefault(tuple(" ".join(str(row.get(n)).split()) for n in texts), []).append((where, row))
    return groups


def _name(value: Any) -> str:
    return "" if missing(value) else code_of(value) if isinstance(value, int | float) else str(value).strip()
