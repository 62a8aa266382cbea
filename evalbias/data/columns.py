"""Columns as people write them: which hold inputs, outputs, what people said, and what a judge said.

A column is taken for a field by its name and its cells together. Where two could be the same field, or a scale is
unclear, the answer is left to the reader.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evalbias.data import files, items
from evalbias.data.cells import (
    ASKED_FOR,
    BY_NAME,
    CHATS,
    CHOICES,
    COUNTS,
    FIRSTS,
    GIVEN_NAMES,
    INPUTS,
    JUDGES,
    LABELS,
    LETTERS,
    LISTS,
    MODELS,
    NOTHING,
    OTHERS,
    OUTCOMES,
    OUTPUTS,
    PAIRS,
    PEOPLE,
    PERSONS,
    PREFERRED,
    RATED,
    RESPONSES,
    TALKS,
    TEXTS,
    VALUES,
    VERDICTS,
    VOTERS,
    WORDS,
    WRITERS,
    Column,
    words_of,
)
from evalbias.data.files import Source
from evalbias.data.items import FIELDS, DataError, listed, word
from evalbias.data.rating_values import LIKE_A_CODE, NO_CODES, Codes, legible
from evalbias.values import shell_word

NO_FIELD = "not used, its name and values say no field"
OPTIONS = ("scores_field", "samples_field", "winner_field", "swapped_field", "labels", "criterion", "scale", "outcome")


@dataclass(frozen=True)
class OpenQuestion:
    """Open question about the columns, why, and its answers: each maps fields, or options of an audit, to columns."""

    about: str
    why: str
    answers: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True)
class Columns:
    """Contents of a table's columns: field, or option of an audit -> column, and the reason for each column."""

    fields: Mapping[str, str]
    why: Mapping[str, str]
    questions: Sequence[OpenQuestion] = ()

    @property
    def judge(self) -> str | None:
        """Column of the judge's answers, if one is known."""
        return next((self.fields[name] for name in OPTIONS[:3] if name in self.fields), None)

    def options(self, *answers: Mapping[str, str]) -> dict[str, Any]:
        """Return the options of an audit that read the columns so, with an answer to each question."""
        given = {name: column for one in (self.fields, *answers) for name, column in one.items()}
        options: dict[str, Any] = {name: given.pop(name) for name in OPTIONS if name in given}
        for name in (name for name in OPTIONS[:4] if options.get(name) in ("score", "better", "label")):
            column = options[name]  # under this name, people's are read
            options[name] = f"judge_{column}"
            given[f"judge_{column}"] = column
        if "labels" in options:
            options["labels"] = tuple(options["labels"].split(","))
        if "scale" in options:
            options["scale"] = tuple(map(float, options["scale"].split("-")))
        mapping = {ours: theirs for ours, theirs in given.items() if ours != theirs}
        return options | ({"mapping": mapping} if mapping else {})


def recognised_columns(table: Source, outcome: str | None = None, codes: Codes = NO_CODES) -> Columns:
    """Say which columns hold inputs, outputs, what people said, and what the judge said.

    With an ``outcome``, which is the column of the one rating, nobody else's is looked for.
    A column is taken for a field if its name says so, with no other word in it, and its cells can be that. None is
    taken for two fields. What two columns could be, and what their values leave unclear, is a question. ``codes`` say
    what values mean; what looks like a failure's code is left out here, and asked about where it is read.
    """
    return _Table(legible(table, looked_at(table.columns), codes), outcome).columns()


EXPECTED = (
    "Expected are items such as\n"
    '  {"source": "What is 2 + 2?", "output": "4", "score": 5}\n'
    '  {"source": "Name a prime.", "output": "It is 9.", "score": 1}\n'
    "or the same columns in a .csv, .tsv, .json or .parquet file; pairs have two texts as "
    '"outputs": ["4", "5"], in tables as output_1 and output_2.'
)
ENOUGH = 1000  # rows by which an error tells what columns may be


WIDEST, MOST_NAMED = 200, 8  # most columns looked at, and columns in an error
ROUNDED = 0.05  # largest difference of a mean from the same with one decimal


def looked_at(names: Sequence[str]) -> list[str]:
    """Return the columns that are taken for fields, if their cells fit: those whose names tell one, and the first."""
    telling = VALUES | VOTERS | JUDGES | OUTCOMES | PERSONS | INPUTS | OUTPUTS | CHATS | WRITERS | {*PREFERRED}
    first = sorted(names, key=lambda name: telling.isdisjoint(words_of(name))) if len(names) > WIDEST else names
    return [*dict.fromkeys(first[:WIDEST])]


def lacking(place: str, table: Source, wanted: str) -> DataError:
    """Return the error that a field is missing: the columns there are, what these may be, and an example."""
    likely = _likely(table)
    if wanted not in likely and "output_1" in likely:
        wanted = "output_1"
    alike = ", ".join(f"{theirs!r} looks like {ours!r}" for ours, theirs in likely.items())
    mapping = likely if wanted in likely else {**likely, wanted: "COLUMN"}
    hint = f"{alike or 'Say which column it is'}: --map {_mapped(mapping)} (in Python, mapping={mapping})"
    return DataError(f"{place} has no column {wanted!r}; it has {listed(table.columns)}. {hint}.\n{EXPECTED}")


def like_ratings(examples: Sequence[Any], judge: str) -> str:
    """Say which fields may be people's ratings, and how to map them; fields named in ``judge`` are the judge's."""
    rows = [{name: value for name, value in item.items() if repr(name) not in judge} for item in examples[:ENOUGH]]
    likely = {o: t for o, t in _likely(files.memory_table(rows)).items() if o.startswith(("score", "rating", "better"))}
    named = ", ".join(map(repr, likely.values()))
    return f"{named} may be people's ratings: --map {_mapped(likely)}" if likely else ""


def _likely(table: Source) -> dict[str, str]:
    """Return our fields -> the columns of other names that may be them, with the likeliest answers to what is open.

    Names that fill a message by themselves are left out.
    """
    columns = recognised_columns(replace(table, rows=table.rows[:ENOUGH]))
    mapping = columns.options(*(one.answers[0] for one in columns.questions if one.answers)).get("mapping", {})
    short = ((ours, theirs) for ours, theirs in mapping.items() if not ours.startswith("judge_") and len(theirs) <= 80)
    return dict(itertools.islice(short, MOST_NAMED))


def _mapped(mapping: Mapping[str, str]) -> str:
    return shell_word(",".join(f"{ours}={theirs}" for ours, theirs in mapping.items()))


def judges_of(item: Any) -> list[str]:
    """Return the fields of an item of a tool's export that may hold judges' scores."""
    ours = {*FIELDS, "id", "scores", "ratings"}
    return [str(name) for name, value in item.items() if name not in ours and isinstance(value, int | float | None)]


def certain_options(
    table: Source, remedy: str, doctor: str, outcome: str | None, codes: Codes = NO_CODES
) -> dict[str, Any]:
    """Return the options of an audit of a table; ValueError where the judge's column, or another, is not certain."""
    columns = recognised_columns(table, outcome, codes)
    why = [f"{one.about}: {one.why}" for one in columns.questions]
    if columns.judge is None and not why:
        why = ["no column is named like a judge's answers"]
    if why:
        open_ = f"{remedy} The columns do not tell it"
        if columns.judge is not None:
            open_ = f"The column {columns.judge!r} is the judge's, but more is open"
        raise ValueError(f"{open_} ({'; '.join(why)}). '{doctor}' lists the choices.")
    return columns.options()


class _Table:
    """Columns of a table, and what has been found of them."""

    def __init__(self, table: Source, outcome: str | None) -> None:
        rows = [record for _, record in table.rows]
        names = looked_at([name for name in table.columns if name != outcome])
        self.all = {name: Column.of(name, [record.get(name) for record in rows]) for name in names}
        self.rows, self.has_outcome = len(rows), outcome is not None
        self.fields: dict[str, str] = {}
        self.why: dict[str, str] = {}
        self.questions: list[OpenQuestion] = []

    def columns(self) -> Columns:
        self._read_texts()
        self._read_writers()
        self._read_inputs()
        self._read_judgments()
        left_open = {name for one in self.questions for answer in one.answers for name in answer.values()}
        for name, one in self.all.items():
            left = "left to you" if name in left_open else NO_FIELD
            self.why.setdefault(name, f"{left}; {one.says()}")
        return Columns(self.fields, {name: self.why[name] for name in self.all}, self.questions)

    def _take(self, column: Column, field: str, why: str) -> None:
        self.fields[field] = column.name
        self.why[column.name] = f"{why}; {column.says()}"

    def _take_pair(self, pair: Sequence[Column], field: str, why: str) -> None:
        for k, one in enumerate(pair, start=1):
            self._take(one, f"{field}_{k}" if len(pair) > 1 else f"{field}s", why)

    def _called(self, names: frozenset[str], beside: frozenset[str], *kinds: str) -> list[Column]:
        return [c for c in self.all.values() if c.called(names, beside) and c.kind in kinds]

    def _choose(self, field: str, candidates: Sequence[Column]) -> None:
        candidates = [one for one in candidates if one.name == field] or candidates
        if len(candidates) == 1:
            self._take(candidates[0], field, f"named like {field!r}")
        elif candidates:
            self._ask(field, f"{_named(candidates)} are all named like it", [{field: one.name} for one in candidates])

    def _ask(self, about: str, why: str, answers: Sequence[Mapping[str, str]] = ()) -> None:
        self.questions.append(OpenQuestion(about, why, answers))

    # 1. The texts: an input, and an output or two.

    def _read_texts(self) -> None:
        beside = WORDS["beside outputs"]
        outputs = self._called(OUTPUTS, beside, TEXTS, PAIRS) + self._called(OUTPUTS | CHATS, beside, TALKS)
        two = _pairs(outputs)
        preferred = [
            c for name in PREFERRED for c in self.all.values() if c.words == (name,) and c.kind in (TEXTS, TALKS)
        ]
        if len(preferred) == 2:
            two.append(preferred)
            why = f"people prefer {preferred[0].name!r}: for agreement with them, add a column 'better' that is A"
            self._ask("better", why, [{}])
        paired = {c.name for one in two for c in one}
        single = [c for c in outputs if c.name not in paired]
        self.pairwise = bool(paired) and not single
        if paired and (single or len(two) > 1):
            names = _named(dict.fromkeys([*outputs, *preferred]))
            self._ask("outputs", f"{names} may be outputs: name one, or two that are compared")
        elif paired:
            self._take_pair(two[0], "output", "named like one of two outputs")
        else:
            ended = [c.words for c in single if c.end]
            self._choose("output", [c for c in single if not c.end and c.words not in ended] or single)
        output = self.all.get(self.fields.get("output") or self.fields.get("output_1", ""))
        beside = WORDS["beside inputs"]
        inputs = self._called(INPUTS, beside, TEXTS) + self._called(INPUTS | CHATS, beside, ASKED_FOR)
        inputs = [c for c in inputs if any(" " in text for text in c.given) or 2 * len({*c.given}) > len(c.given)]
        inputs = [c for c in inputs if output is None or not _holds(c, output)]  # a prompt of the judge
        inputs = [c for c in inputs if c.words != ("task",)] or inputs  # beside another, a task may be its kind
        held = [c for c in inputs if output is not None and output.kind == TALKS and _holds(output, c)]
        self.why |= {c.name: f"not used: {output.name!r} holds it; {c.says()}" for c in held if output is not None}
        inputs = [c for c in inputs if c not in held]
        varied = [c for c in inputs if len({*c.given}) > 1]
        if inputs and not varied and self.rows > 2:
            why = f"{inputs[0].name!r} is the same in all rows: one input, or an instruction that tells none"
            self._ask("source", why, [{"source": inputs[0].name}, {}])
            return
        prompts = [c for c in varied if WORDS["asked"] & {*c.words}]
        self._choose("source", prompts if len(prompts) == 1 else varied or inputs)

    # 2. Who wrote the outputs, and which of them answer one input.

    def _read_writers(self) -> None:
        writers = self._called(WRITERS, WORDS["beside writers"], TEXTS, PAIRS)
        if self.pairwise:
            twos = [two for two in _pairs(writers) if len(two) == 1 or _joined(two).is_names]
            if len(twos) == 1:
                self._take_pair(twos[0], "system", "named like the writers of two outputs")
        else:
            self._choose("system", [c for c in writers if c.is_names and not c.end and not self._repeats()])

    def _repeats(self, most: float = 1) -> bool:
        """Return whether outputs stand in several rows, so that at most this share differs."""
        names = [name for name in ("source", "output", "outputs", "output_1", "output_2") if name in self.fields]
        rows = [*map(str, zip(*(self.all[self.fields[name]].cells for name in names), strict=True))]
        return names not in ([], ["source"]) and len({*rows}) < most * len(rows)

    def _read_inputs(self) -> None:
        source, own = self.all.get(self.fields.get("source", "")), self.all.get("id")
        if own is not None and len({*map(str, own.given)}) == len(own.given):
            own = None  # of each item
        named = [c for c in self.all.values() if c.called(INPUTS | {"doc"}, frozenset({"id"}))]
        ids = [c for c in named if c.words[-1] == "id"]
        for one in filter(None, (self.all.get("input_id"), *ids, own)):
            if source is not None and _one_to_one(one, source):
                self._take(one, "input_id", "one for each input")
                return
        if own is not None:
            self._ask("id", "several rows have the same 'id': give each item its own", [{"other_id": "id"}])

    # 3. What people said, and what the judge said.

    def _read_judgments(self) -> None:
        criteria = self._criteria()
        self.free = [c for name, c in self.all.items() if name not in self.fields.values()]
        self.twins = self._twins()
        swapped = {twin.name for twin in self.twins.values()}
        people, judges, values = list[list[Column]](), list[list[Column]](), list[list[Column]]()
        persons, unread, by_name = list[Column](), list[tuple[Column, bool]](), list[list[Column]]()
        # 1. Columns of the same words, by whose ratings these words say that they hold.
        for words, group in itertools.groupby(sorted(self.free, key=lambda c: c.words), key=lambda c: c.words):
            called, these = {w for w in words if not w.isdecimal()}, [c for c in group if c.name not in swapped]
            fit = [c for c in these if self._fits(c)]
            rest = [c for c in fit if c.name not in self.twins]
            judges += [[c] for c in fit if c.name in self.twins]
            if called & CHOICES and not self.pairwise and any(not c.numbers for c in fit):
                self.why |= {c.name: f"not used: choices of outputs, and no texts of two; {c.says()}" for c in fit}
                continue
            judged = called & JUDGES or (called & MODELS and called & VALUES)
            said = called & PEOPLE or (called & VALUES and called & RESPONSES)
            if judged and called <= JUDGES | MODELS | VALUES:
                judges += [[c] for c in rest]
            elif (said and called <= PEOPLE | VALUES | RESPONSES) or (called <= LABELS and len(rest) > 1):
                people += [rest] if rest else []
            elif rest and rest[0].name in ("better", "ratings"):  # our own names of people's
                people = [[*rest, *own] for own in people if own[0].name in ("better", "ratings")] or [*people, rest]
            elif called and called <= VALUES | OUTCOMES:
                values += [rest] if rest else []
            elif called and called <= GIVEN_NAMES:
                by_name.append(rest)
                continue
            else:
                persons += [c for c in these if called & (WRITERS | PERSONS) and (c.is_names or "id" in called)]
                continue
            unread += [(c, bool(fit)) for c in these if c not in fit]
        if len(by_name := [c for c in by_name if c]) > 1 == max(map(len, by_name)) and not self.pairwise:
            people.append([*itertools.chain(*by_name)])  # anna_1 and anna_2 may be one person's
        self.why |= {c.name: f"not used, although its name says ratings; {c.says()}" for c, _ in unread}
        # 2. A name beside a choice may say who chose, and a number beside a rating who rated.
        for one in (c for c, fits in unread if {*c.words} <= PERSONS and not fits and c.kind == TEXTS):
            voters = [{*words_of(cell)} for cell in {*one.given}]
            if len(values) == 1 and not people and all(words & VOTERS for words in voters):
                people, values, unread = values, [], [(c, fits) for c, fits in unread if c is not one]
                self.why[one.name] = f"names of people, who chose; {one.says()}"
        counts = values or self._repeats()
        for groups in (judges if people else [], people) if counts else ():
            if [*map(len, groups)] == [1] and groups[0][0].may_count_persons:
                values.append(groups.pop())
        rated = bool(criteria) or self.has_outcome
        self._assign([] if rated else people, judges, values, known=rated)
        self._ask_unread(unread, persons, known=rated)

    def _criteria(self) -> list[str]:
        """Return the criteria of people's scores by name, our own columns, and ask which is meant."""
        by_name = [c for name, c in self.all.items() if name in ("scores", "ratings") and c.kind == BY_NAME]
        names = [name.partition(".")[2] for name in self.all if name.startswith(("scores.", "ratings."))]
        names += [name for c in by_name for cell in c.given for name in cell]
        for one in by_name:
            self._take(one, one.name, "our own name")
        if len(names := [*dict.fromkeys(names)]) > 1:
            self._ask("criterion", "people rated several criteria", [{"criterion": name} for name in names])
        return names

    def _twins(self) -> dict[str, Column]:
        """Return the choices in the order of the outputs -> those in the other order."""
        full = {c.name: [w for w in (*c.words, c.end) if w] for c in self.free if self.pairwise and c.codes is not None}
        rest = {name: [w for w in words if w not in WORDS["swapped"]] for name, words in full.items()}
        return {one: self.all[other] for one in full for other in full if one != other and full[one] == rest[other]}

    def _fits(self, one: Column) -> bool:
        return one.kind == LISTS or (one.codes is not None if self.pairwise else one.kind == RATED)

    def _ask_unread(self, unread: Sequence[tuple[Column, bool]], persons: Sequence[Column], *, known: bool) -> None:
        """Ask about what is named like ratings and holds none, and who judged, where either is lost otherwise."""
        known = known or any(name.startswith(("score", "rating", "better")) for name in {*self.fields} - {*OPTIONS})
        judged, repeats = not {*OPTIONS[:3]}.isdisjoint(self.fields), self._repeats()
        ambiguous = [c for c in persons if c.name not in self.fields.values()]
        ambiguous = [c for c in ambiguous if self._repeats(1 if {*c.words} & (JUDGES | PERSONS) else 2 / 3)]
        for one, beside in unread:
            words = {*one.words}
            lost = beside or (words & PEOPLE and not known) or (words & JUDGES and not judged)
            who = not words & VALUES and (words & JUDGES or repeats)
            ambiguous += [one] if (one.is_names and (lost or who)) or (one.kind == OTHERS and lost) else []
        for one in ambiguous:
            why = f"{one.name!r} holds {one.kind}: if it says who judged, keep the rows of one judge"
            words = [*dict.fromkeys(map(str, one.given))]
            order = f", or name the words {', '.join(words)} in their order: `levels` WORST,...,BEST"
            few = one.kind == TEXTS and 1 < len(words) <= MOST_NAMED and all(word[:1].isalpha() for word in words)
            self._ask(one.name, f"{why}; if it holds ratings, write them as numbers{order * few}")

    def _assign(
        self, people: list[list[Column]], judges: list[list[Column]], values: list[list[Column]], *, known: bool
    ) -> None:
        named = {c.name for group in (*people, *judges) for c in group}
        # 1. What the names say, and what follows for the one that they leave.
        labels = [group for group in values if {*group[0].words} <= LABELS]
        verdicts = [[one] for one, *more in values if {*one.words} <= VERDICTS and not more and one.kind != LISTS]
        if {"output", "outputs", "output_1"} & {*self.all} and judges:
            labels = [group for group in values if group[0].name in ("score", "better")] or labels
        n = len(people) + known, len(judges), len(values)
        two = n == (0, 0, 2) and len(labels) == len(verdicts) == 1 and labels[0][0].words[0] in ("label", "labels")
        if two or (n == (0, 1, 1) and labels):
            people = labels
        if two or (n == (1, 0, 1) and verdicts):
            judges = verdicts
        if len(people) + known == len(judges) == 1:
            values = []
        # 2. The fields of what is sure; of the rest, a question.
        sure: list[Column] = []
        for groups, fields_of in ((people, self._peoples), (judges, self._judges)):
            for ours, name in fields_of(groups[0]).items() if len(groups) == 1 else ():
                sure.append(self.all[name])
                whose = "a judge's" if ours in OPTIONS else "people's"
                self._take(sure[-1], ours, f"named like {whose}{'' if name in named else ', beside the other'}")
        free = [c for c in self.free if c.name not in self.why and not COUNTS & {*c.words}]
        unknown = [c for c in free if self._is_like(c, sure)]
        theirs, its = [c for c in unknown if not c.is_judges], [c for c in unknown if not {*c.words} & PEOPLE]
        called = [c for c in free if {*c.words} & PEOPLE and self._fits(c) and not (c.is_judges or c.may_count_persons)]
        left = [
            [*dict.fromkeys(itertools.chain(*people, called, *values))] or theirs or unknown,
            [*dict.fromkeys(itertools.chain(*judges, *values))] or its or unknown,
        ]
        if n == (0, 0, 1) and verdicts:  # people's are beside what is named like a judge's
            left[0] = [c for c in theirs if c not in values[0] and self._is_like(c, values[0])] or left[0]
        left[0] = [] if known or len(people) == 1 else left[0]
        left[1] = [] if len(judges) == 1 else [c for c in left[1] if not OUTCOMES & {*c.words}]
        if open_ := [*dict.fromkeys([*left[0], *left[1]])]:
            label = "an outcome" if all(OUTCOMES & {*c.words} for c in left[0]) else "people's"
            whose = " or ".join(name for name, some in zip((label, "the judge's"), left, strict=True) if some)
            names = "and the names do not tell which" if len(open_) > 1 else "and the name does not tell"
            names = "a rating without an error" if whose == "an outcome" else names
            about = "outcome" if whose == "an outcome" else f"{whose} ratings"
            self._ask(about, f"{_named(open_)} may be {whose}, {names}", self._answers(*left))
        if judges and theirs and any(GIVEN_NAMES & {*c.words} for c in sure):
            more = {f"rating_{k}": c.name for k, c in enumerate(theirs, start=len(people[0]) + 1)}
            self._ask("people's ratings", f"{_named(theirs)} may be further people's, too", [more, {}])
        (self._check_codes if self.pairwise else self._check_scales)(sure)

    def _peoples(self, group: Sequence[Column]) -> dict[str, str]:
        if len(group) == 1 and OUTCOMES & {*group[0].words}:
            return {"outcome": group[0].name}
        fields, single = {c.kind: c.name for c in group if c.kind == LISTS}, [c for c in group if c.kind != LISTS]
        alone, each = ("better", "better") if self.pairwise else ("score", "rating")
        return fields | {alone if len(single) == 1 else f"{each}_{k}": c.name for k, c in enumerate(single, start=1)}

    def _judges(self, group: Sequence[Column]) -> dict[str, str]:
        one = group[0]
        if not self.pairwise:
            return {"samples_field" if one.kind == LISTS else "scores_field": one.name}
        twin = self.twins.get(one.name)
        return {"winner_field": one.name} | ({"swapped_field": twin.name} if twin is not None else {})

    def _answers(self, people: Sequence[Column], judges: Sequence[Column]) -> list[Mapping[str, str]]:
        """Return who may have given the ratings that are left: one column is the judge's, the others people's."""
        if people and judges:
            parted = [(one, [c for c in people if c is not one]) for one in judges]
            alike = [[c for c in others if one.is_judges and c.about == one.about] for one, others in parted]
            parted = [(one, same or others) for same, (one, others) in zip(alike, parted, strict=True)]
            both = [self._peoples(others) | self._judges([one]) for one, others in parted if others]
            return [*both] or [self._peoples(people), self._judges(judges)]
        named, outcomes = ([c for c in people if names & {*c.words}] for names in (PEOPLE, OUTCOMES))
        together = not outcomes and len(named) in (0, len(people)) and len(people) > 1  # an outcome stands alone
        several = [people] * together + [[one] for one in people]
        return [*map(self._peoples, several), *(self._judges([one]) for one in judges)]

    def _is_like(self, one: Column, sure: Sequence[Column]) -> bool:
        """Return whether a column of an unknown name may be on the scale of those that are known."""
        if self.pairwise:
            return one.codes is not None and one.kind == TEXTS
        varies = one.kind == RATED and len({*map(word, {*one.given})}) > 1
        return varies and all(2 / 3 <= one.highest / (c.highest or 1) <= 3 / 2 for c in sure)

    # 4. What the values leave unclear.

    def _check_scales(self, sure: Sequence[Column]) -> None:
        judge = [c for c in sure if c.name in (self.fields.get("scores_field"), self.fields.get("samples_field"))]
        people = [c for c in sure if c not in judge]
        tops_of = [c.highest for c in people]
        if people and max(tops_of) > 1.5 * min(tops_of):
            why = f"{_named(people)} go up to {', '.join(f'{top:g}' for top in tops_of)}: map those of one scale alone"
            if LIKE_A_CODE.fullmatch(top := f"{max(tops_of):g}"):
                why += f", or, where {top} says that there is no rating, `missing` {top}"
            self._ask("people's scales", why)
        if not (judge and people):
            return
        scored, rated = judge[0].values(), np.array([c.values() for c in people])
        tops, lows = (max(tops_of), judge[0].highest), (np.nanmin(rated), np.nanmin(scored))
        if max(tops) > 1.5 * min(tops) or (min(lows) < 0) != (max(lows) < 0):
            low, top = float(lows[1]), tops[1]
            ends = [(a, b) for a, b in ((0, 1), (1, 5), (0, 10), (1, 10), (0, 100)) if a <= low and top <= b][:2]
            why = f"people's ratings go up to {tops[0]:g} and the judge's to {tops[1]:g}: which scale is the judge's?"
            self._ask("scale", why, [*({"scale": f"{a}-{b}"} for a, b in ends), {}])
        counts = (~np.isnan(rated)).sum(axis=0)
        both = ~np.isnan(scored) & (counts > 0)
        x, y = scored[both], np.nansum(rated, axis=0)[both] / counts[both]
        if len(x) >= 20 and np.ptp(x) > 0 and np.ptp(y) > 0 and np.corrcoef(x, y)[0, 1] < -3 / np.sqrt(len(x)):
            why = "the judge's scores fall where people's rise: if the lowest is the best on one of the scales, "
            self._ask("direction", f"{why}subtract that column from its highest value first", [{}])
        if len(people) > 1 and len(x) >= 20 and np.abs(x - y).max() <= ROUNDED:
            self._ask(
                judge[0].name, f"{judge[0].name!r} is the mean of {_named(people)}: take out what is no judge's", [{}]
            )

    def _check_codes(self, sure: Sequence[Column]) -> None:
        coded = {c.codes for c in sure if c.codes}
        plain = {items.code_of(cell) for c in sure if c.codes == () for cell in c.given} - LETTERS
        pairs = {codes[:2] for codes in coded}
        if len(pairs) > 1 or (pairs and plain):
            self._ask("labels", "the columns code choices in different ways: write them alike")
        elif pairs:
            labels = max(coded, key=len)
            self.fields["labels"] = ",".join(labels)
            if labels[:2] == ("1", "2"):
                del self.fields["labels"]
                tie = "".join(f",{one}" for one in labels[2:])
                why = "choices are 1 and 2: which is the first output?"
                self._ask("labels", why, [{"labels": f"1,2{tie}"}, {"labels": f"2,1{tie}"}])
        for one in self.all.values():
            if one.called(WORDS["orders"]) and one.name not in self.fields.values() and one.kind != NOTHING:
                why = f"{one.name!r} may say that a pair was shown in the other order: choices must be between the"
                self._ask(one.name, f"{why} outputs as they stand")
        if "swapped_field" in self.fields:
            one, other = self.all[self.fields["winner_field"]], self.all[self.fields["swapped_field"]]
            same = [a == b for a, b in zip(one.cells, other.cells, strict=True) if None not in (a, b)]
            if not same or 2 * sum(same) <= len(same):
                del self.fields["swapped_field"]
                why = f"{other.name!r} mostly differs from {one.name!r}: it must name the outputs as they stand"
                self._ask("swapped choices", why, [{"swapped_field": other.name}, {}])


def _named(columns: Iterable[Column]) -> str:
    return ", ".join(f"{one.name!r:.80}" for one in columns)


def _joined(two: Sequence[Column]) -> Column:
    return replace(two[0], cells=[cell for one in two for cell in one.cells])


def _pairs(columns: Sequence[Column]) -> list[list[Column]]:
    """Return the columns of two outputs, or their writers: lists, or names alike but for their ends, and no third."""
    groups: dict[tuple[str, ...], list[Column]] = {}
    for one in (c for c in columns if c.kind != PAIRS):
        groups.setdefault(one.words, []).append(one)
    orders = [order for group in groups.values() if len(group) == 2 for order in (group, group[::-1])]
    return [*([a, b] for a, b in orders if FIRSTS.get(a.end) == b.end), *([c] for c in columns if c.kind == PAIRS)]


def _holds(prompt: Column, output: Column) -> bool:
    """Return whether most texts of a column contain the output of their row."""
    both = [(str(a), str(b)) for a, b in zip(prompt.cells, output.cells, strict=True) if a and b and len(str(b)) > 9]
    return 2 * sum(b in a for a, b in both) > len(both)


def _one_to_one(ids: Column, source: Column) -> bool:
    """Return whether each input has one id and each id one input, and none is missing."""
    both = {(str(a), str(b)) for a, b in zip(ids.cells, source.cells, strict=True)}
    complete = len(ids.given) == len(source.given) == len(ids.cells)
    return complete and len(both) == len({a for a, _ in both}) == len({b for _, b in both})
