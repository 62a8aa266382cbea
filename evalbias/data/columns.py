"""Recognize the columns of a user's table: inputs, outputs, human ratings and a judge's answers.

A column is taken for a field by its name and its cells together. If two columns could be the same field, or a scale is
unclear, the user decides.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evalbias.data import cells, items, long_form, nested
from evalbias.data.cells import LISTS, NUMBERED, PAIRS, PREFERRED, RATED, TALKS, TEXTS, Column, words_in, words_of
from evalbias.data.files import Source, parsed_or_given
from evalbias.data.items import CRITERION, word
from evalbias.data.rating_values import NO_CODES, Codes, legible, unexplained

THE_JUDGES, PEOPLES, NAMES, EITHER = "the judge's", "people's", "people's by their names", "people's or the judge's"
Role = tuple[str, Sequence[frozenset[str]], frozenset[str], Collection[str]]
ROLES: Sequence[Role] = (
    # A role (a field, or the party whose ratings a column holds) and its evidence: the column's name has a word of each
    # of these sets, and otherwise only words of the next set; its cells are of one of these kinds (ratings: ``_fits``).
    ("output", [words_in("outputs")], words_in("beside outputs"), (TEXTS, PAIRS)),
    ("output", [words_in("outputs", "chats")], words_in("beside outputs"), (TALKS,)),
    ("source", [words_in("inputs")], words_in("beside inputs"), (TEXTS,)),
    ("source", [words_in("inputs", "chats")], words_in("beside inputs"), (cells.ASKED_FOR,)),
    ("system", [words_in("writers")], words_in("beside writers"), (TEXTS, PAIRS)),
    ("input_id", [words_in("inputs", "documents"), words_in("ids")], frozenset(), (TEXTS, RATED, cells.OTHERS)),
    (THE_JUDGES, [words_in("judges")], words_in("models", "values"), ()),
    (THE_JUDGES, [words_in("models", "games"), words_in("values")], frozenset(), ()),  # FastChat's, one per order
    (PEOPLES, [words_in("people")], words_in("values", "responses"), ()),
    (PEOPLES, [words_in("values"), words_in("responses")], frozenset(), ()),
    (NAMES, [words_in("given names")], words_in("beside given names"), ()),  # of two columns or more
    (EITHER, [words_in("values", "outcomes")], frozenset(), ()),  # several columns of labels are people's
)
OURS = ("better", "ratings")  # our own names of people's ratings
ENTRIES = ("scores.", "ratings.")  # prefixes of the paths into our objects of ratings
LOGGED = {"span_id", "root_span_id"}  # columns of a log such as Braintrust's, whose scores are not people's alone
RATINGS = ("score", "rating", "better")  # beginnings of the fields of people's ratings
FEWEST_ALIKE, COMPARED = 20, 1000  # rows that must agree to call a column a mean or majority; and rows compared
TRANSPOSED = 10  # fewest numbered columns of ratings without texts that may be items
NO_FIELD = "not used, its name and values say no field"
OPTIONS = ("scores_field", "samples_field", "winner_field", "swapped_field", "labels", "criterion", "scale", "outcome")
WIDEST, MOST_NAMED = 200, 8  # most columns looked at, and columns in an error
SCALES = ((0, 1), (1, 5), (0, 10), (1, 10), (0, 100))  # scales of judges, the likelier first
ROUNDED = 0.05  # largest difference between a mean and its value with one decimal


Groups = list[list["Column"]]  # columns of the same words


@dataclass(frozen=True)
class OpenQuestion:
    """Question about the columns that the user must answer, its reason, and the possible answers."""

    about: str
    why: str
    answers: Sequence[Mapping[str, str]] = ()  # each maps fields or options of an audit to columns, if any


@dataclass(frozen=True)
class Columns:
    """Contents of a table's columns: field, or option of an audit -> column, and the reason for each column."""

    fields: Mapping[str, str]
    why: Mapping[str, str]
    questions: Sequence[OpenQuestion] = ()
    unread: Sequence[str] = ()  # columns to reshape before the table can be read

    @property
    def judge(self) -> str | None:
        """Column of the judge's answers; None if there is none or it is not certain."""
        return next((self.fields[name] for name in OPTIONS[:3] if name in self.fields), None)

    def options(self, *answers: Mapping[str, str]) -> dict[str, Any]:
        """Return the options of an audit with these columns, given an answer to each question."""
        mapped = {field: column for fields in (self.fields, *answers) for field, column in fields.items()}
        mapped = {field: column for field, column in mapped.items() if column}
        options: dict[str, Any] = {name: mapped.pop(name) for name in OPTIONS if name in mapped}
        judge = mapped.pop("judge", CRITERION if long_form.RATED_ON in mapped else "")
        for name in (name for name in OPTIONS[:4] if name in options):
            if (column := options[name]) in ("score", "better", "label"):  # under this name, people's are read
                options[name] = f"judge_{column}"
                mapped[f"judge_{column}"] = column
            if judge:  # a column of each judge or criterion
                options[name] = f"{judge}/{options[name]}"
        if "labels" in options:
            options["labels"] = tuple(options["labels"].split(","))
        if "scale" in options:
            options["scale"] = tuple(map(float, options["scale"].split("-")))
        mapping = {ours: theirs for ours, theirs in mapped.items() if ours != theirs}
        return options | ({"mapping": mapping} if mapping else {})


def recognised_columns(table: Source, outcome: str | None = None, codes: Codes = NO_CODES) -> Columns:
    """Recognize which columns hold inputs, outputs, human ratings and the judge's answers.

    With an ``outcome``, the column of the only rating, no other human ratings are looked for. A column is taken for a
    field if its name says so, with no other word in it, and its cells fit. No column is taken for two fields. What two
    columns could be, or what their values leave unclear, becomes a question. ``codes`` give the meanings of values;
    likely failure codes are left out here, and asked about when the table is read.
    """
    return _Table(table, outcome, codes).columns()


def looked_at(names: Sequence[str]) -> list[str]:
    """Return the columns to examine, at most ``WIDEST``: those with telling names, then the first others."""
    telling = {*PREFERRED}.union(words_in("voters", "persons"), *(words for _, needs, *_ in ROLES for words in needs))
    first = sorted(names, key=lambda name: telling.isdisjoint(words_of(name))) if len(names) > WIDEST else names
    return [*dict.fromkeys(first[:WIDEST])]


class _Table:
    """Columns of a table, and the fields recognized in them so far."""

    def __init__(self, table: Source, outcome: str | None, codes: Codes) -> None:
        self.table, self.rows, self.has_outcome, self.keep = table, len(table.rows), outcome is not None, codes.keep
        self.all: dict[str, Column] = {}
        inside = nested.paths(table)
        self.questions, self.unread = list[OpenQuestion](), list[str]()
        for name in table.columns:
            if names := nested.named_entries([parsed_or_given(row.get(name)) for _, row in table.rows[:COMPARED]]):
                why = f"{name!r} lists {', '.join(map(repr, names[:3]))}: give each of these a column of its own"
                self._ask(name, why)
        for name in [*looked_at([name for name in table.columns if name != outcome]), *inside]:
            held = nested.cells_at(table, name) if name in inside else [row.get(name) for _, row in table.rows]
            self.all[name] = Column.of(name, legible(name, held, codes), is_inside=name in inside)
        self.fields, self.why = dict[str, str](), dict[str, str]()

    def columns(self) -> Columns:
        self._read_texts()
        if (lengths := self.all.get("length")) is not None and self._column("output", "outputs", "output_1"):
            self.why["length"] = "not used: the texts themselves are measured"
        elif lengths is not None and lengths.kind in (RATED, cells.OTHERS):
            self._take("length", "lengths of texts that are not here", lengths)
        self.form = self._repeats()
        self._read_writers()
        self._read_inputs()
        if not self._is_transposed():
            self._read_judgments()
            self._read_rows()
        left_open = {name for question in self.questions for answer in question.answers for name in answer.values()}
        for name, column in self.all.items():
            if name in left_open or not column.is_inside:
                self.why.setdefault(name, f"{'left to you' if name in left_open else NO_FIELD}; {column.says()}")
        return Columns(self.fields, {n: self.why[n] for n in self.all if n in self.why}, self.questions, self.unread)

    def _take(self, field: str, why: str, *columns: Column) -> None:
        """Take a column for a field, or several columns for its numbered fields."""
        for k, column in enumerate(columns, start=1):
            self.fields[f"{field}_{k}" if len(columns) > 1 else field] = column.name
            self.why[column.name] = f"{why}; {column.says()}"

    def _like(self, role: str) -> list[Column]:
        """Return the columns whose names and cells fit a role of the texts by ``ROLES``."""
        rules = [rule for rule in ROLES if rule[0] == role]
        return [c for rule in rules for c in self.all.values() if _is_named(c.words, rule) and c.kind in rule[3]]

    def _choose(self, field: str, candidates: Sequence[Column]) -> None:
        candidates = [column for column in candidates if column.name == field] or candidates
        if len(candidates) == 1:
            self._take(field, f"named like {field!r}", candidates[0])
        elif candidates:
            self._ask(field, f"{_named(candidates)} are all named like it", [{field: c.name} for c in candidates])

    def _ask(self, about: str, why: str, answers: Sequence[Mapping[str, str]] = ()) -> None:
        self.questions.append(OpenQuestion(about, why, answers))

    def _column(self, *fields: str) -> Column | None:
        """Return the column of the first of these fields that has one."""
        return next((self.all[self.fields[name]] for name in fields if name in self.fields), None)

    # 1. The texts: an input, and one or two outputs.

    def _read_texts(self) -> None:
        outputs = self._like("output")
        texts = [c for c in self.all.values() if c.kind in (TEXTS, TALKS)]
        preferred = [c for name in PREFERRED for c in texts if c.words == (name,)]
        self.is_preferred = len(preferred) == 2
        two = _pairs(outputs) + ([preferred] if self.is_preferred else [])
        paired = {c.name for pair in two for c in pair}
        single = [c for c in outputs if c.name not in paired]
        shown = self._shown_to_a_judge(single)
        self.pairwise = bool(paired) and not single
        if self.pairwise and len(two) == 1:
            self._take("outputs" if len(two[0]) == 1 else "output", "named like one of two outputs", *two[0])
        elif paired:
            names = _named(dict.fromkeys([*outputs, *preferred]))
            self._ask("outputs", f"{names} may be outputs: name one, or two that are compared")
        elif shown:
            why = f"{shown[0].name!r} stands in a prompt, as texts that a judge is shown do: the others may be its own"
            self._ask("output", why, [{"output": c.name} for c in dict.fromkeys([*shown, *single])])
        else:
            self._choose("output", single)
        output = self._column("output", "output_1")
        inputs = [c for c in self._like("source") if 2 * len({*c.filled}) >= len(c.filled) or " " in "".join(c.filled)]
        judged = shown if output is None else [output]
        inputs = [c for c in inputs if not any(_holds(c, output) for output in judged)]  # a prompt of the judge
        if output is not None and output.kind == TALKS:
            held = {c.name: f"not used: {output.name!r} holds it; {c.says()}" for c in inputs if _holds(output, c)}
            inputs = [c for c in inputs if c.name not in held]
            self.why |= held
        varied = [c for c in inputs if len({*c.filled}) > 1]
        if inputs and not varied and self.rows > 2:
            why = f"{inputs[0].name!r} is the same in all rows: one input, or an instruction that tells none"
            self._ask("source", why, [{"source": inputs[0].name}, {}])
            return
        prompts = [c for c in varied if c.has("asked")]
        self._choose("source", prompts if len(prompts) == 1 else varied or inputs)

    def _shown_to_a_judge(self, outputs: Sequence[Column]) -> list[Column]:
        """Return columns with a word for outputs that a judge's prompt contains, if it contains none of ``outputs``.

        Unlike the input of a writer, such a prompt contains another input as well.
        """
        if not outputs:
            return []
        named = [c for c in self.all.values() if c.kind == TEXTS and c.has("outputs")]
        inputs = self._like("source")
        prompts = [c for c in inputs if any(other is not c and _holds(c, other) for other in inputs)]
        prompts = [c for c in prompts if not any(_holds(c, output) for output in outputs)]
        return [c for c in named if any(_holds(prompt, c) for prompt in prompts)]

    # 2. The writers of the outputs, and the outputs that answer the same input.

    def _read_writers(self) -> None:
        writers = self._like("system")
        if not self.pairwise:
            who = self.form.who if self.form else ""
            self._choose("system", [c for c in writers if c.is_names and not c.end and c.name != who])
        elif len(two := _pairs(writers)) == 1:
            self._take("systems" if len(two[0]) == 1 else "system", "named like the writers of two outputs", *two[0])

    def _repeats(self) -> long_form.LongForm | None:
        """Return the long form in which the rows repeat outputs, if another column distinguishes the rows."""
        texts = [self.fields[name] for name in long_form.ITEM if name in self.fields]
        rated = [c for c in self.all.values() if c.kind == RATED and not c.only("persons", "ids")]
        ratings = [c.name for c in rated if c.numbers or c.has("values", "people", "judges", "models")]
        return long_form.find_form(self.table, texts, ratings) if {*texts} - {self.fields.get("source")} else None

    def _is_transposed(self) -> bool:
        """Ask if the table may be transposed: each row a person's, each column an item's. True if so."""
        rated = [c for c in self.all.values() if c.kind == RATED and not c.is_inside]
        alike = {tuple(word for word in c.words if not word.isdecimal()) for c in rated}
        if {"output", "outputs", "output_1"} & {*self.fields} or len(rated) < TRANSPOSED or len(alike) > 1:
            return False
        if is_so := all(c.end for c in rated) and _whose(rated) is None:
            why = f"{rated[0].name!r} to {rated[-1].name!r} differ in a number alone, and no column holds outputs. If "
            why += "a row is a person's and a column an item's, transpose it: a row for each item, with its text as "
            self._ask("rows and columns", f"{why}'output', a column for each person, and the judge's score")
            self.unread += [c.name for c in rated]
        return is_so

    def _read_inputs(self) -> None:
        source, own = self._column("source"), self.all.get("id")
        if own is not None and len({*map(str, own.filled)}) == len(own.filled):
            own = None  # an id of each item
        output, named = self._column("output"), self._like("input_id")
        for column in filter(None, (self.all.get("input_id"), *named, own)):
            n_ids = len({*map(str, column.filled)})
            answers = {(str(a), str(b)) for a, b in zip(column.cells, output.cells if output else (), strict=False)}
            differ = column in named or len(answers) == self.rows  # the outputs of an id
            shares = 2 * n_ids <= self.rows and differ
            if _one_to_one(column, source) if source is not None else shares:
                self._take("input_id", "one for each input", column)
                return
        if own is not None:
            self._ask("id", "several rows have the same 'id': give each item its own", [{"other_id": "id"}])

    # 3. Human ratings, and the judge's answers.

    def _read_judgments(self) -> None:
        criteria, who = self._criteria(), self.form.who if self.form else None
        taken = {*self.fields.values(), who, *(name for name in self.all if criteria and name.startswith(ENTRIES))}
        self.free = [c for name, c in self.all.items() if name not in taken]
        self.twins = self._twins()
        swapped = {twin.name for twin in self.twins.values()}
        by_whose: dict[str, list[list[Column]]] = {whose: [] for whose in (THE_JUDGES, PEOPLES, NAMES, EITHER)}
        unread = list[Column]()
        # 1. Columns whose names have the same words, grouped by the party that these words point to.
        by_words: dict[tuple[str, ...], list[Column]] = {}
        for column in (c for c in self.free if c.name not in swapped):
            by_words.setdefault(OURS if column.name in OURS else column.words, []).append(column)
        for _, alike in sorted(by_words.items()):
            fit = [c for c in alike if self._fits(c)]
            if alike[0].has("choices") and not self.pairwise and any(not c.numbers for c in fit):
                self.why |= {c.name: f"not used: choices of outputs, and no texts of two; {c.says()}" for c in fit}
                continue
            by_whose[THE_JUDGES] += [[c] for c in fit if c.name in self.twins]
            untwinned = [c for c in fit if c.name not in self.twins]
            if (whose := _whose(untwinned or alike)) is None:
                continue
            unread += [c for c in alike if c not in fit and not c.is_inside and whose != NAMES]
            groups = [[c] for c in untwinned] if whose == THE_JUDGES else [untwinned]
            by_whose[whose] += filter(None, groups)
        people, judges, values, names = by_whose[PEOPLES], by_whose[THE_JUDGES], by_whose[EITHER], by_whose[NAMES]
        if len(names) > 1 == max(map(len, names)) and not self.pairwise:
            people.append([*itertools.chain(*names)])  # anna_1 and anna_2 may belong to the same person
        self.why |= {c.name: f"not used, although its name says ratings; {c.says()}" for c in unread}
        # 2. A name beside a choice may be the chooser's, and a number beside a rating the rater's.
        for column in [c for c in unread if c.only("persons") and c.kind == TEXTS]:
            voters = all(words_in("people", "voters") & {*words_of(cell)} for cell in {*column.filled})
            if voters and len(values) == 1 and not people:
                people, values, unread = values, [], [c for c in unread if c is not column]
                self.why[column.name] = f"names of people, who chose; {column.says()}"
        for groups in (judges if people else [], people) if values else ():
            if [*map(len, groups)] == [1] and groups[0][0].may_count_persons:
                values.append(groups.pop())
        # 3. Columns computed from human ratings are not a judge's.
        for column in [c for group in (*judges, *values) for c in group if len(people) == 1]:
            if made := _made_of(column, people[0]):
                judges, values = ([[c for c in g if c is not column] for g in groups] for groups in (judges, values))
                self.why[column.name] = f"left to you; {column.says()}"
                why = f"{column.name!r} is the {made} of {_named(people[0])}: computed of these, or a judge's?"
                self._ask(column.name, why, [self._judges([column]), {}])
        judges, values = [*filter(None, judges)], [*filter(None, values)]
        chosen = [c for c in self.free if c.has("choices") and c.kind == TEXTS and c.codes is not None]
        if chosen and self._column("output", "output_1", "outputs") is None:
            why = f"{_named(chosen)} may be choices between two outputs: add their texts as 'output_1' and 'output_2'"
            self._ask("outputs", why)
            self.unread += [c.name for c in chosen]
            return
        rated = bool(criteria) or self.has_outcome
        if self.is_preferred and "output_1" in self.fields and not (rated or people):
            why = f"people prefer {(best := self.fields['output_1'])!r}, if its name says what they chose"
            self._ask("better", why, [{"better": best}, {}])
            rated = True
        self._assign([] if rated else people, judges, values, criteria, rated=rated)
        self._ask_unread(unread, rated=rated)

    def _criteria(self) -> list[str]:
        """Return the criteria in our own columns of human scores; if there are several, ask which to use."""
        entries = [c for name, c in self.all.items() if name.startswith(ENTRIES)]
        others = any(c.has("people") and self._fits(c) for c in self.all.values() if not c.is_inside)
        names_party = any(c.has("people") for c in entries) or {_whose([c]) for c in entries} & {THE_JUDGES, NAMES}
        if others or names_party or self.all.keys() >= LOGGED:
            return []  # people's and judges' in one object, or nobody's for certain
        for column in [c for name, c in self.all.items() if name in nested.OWN and c.kind == cells.BY_NAME]:
            self._take(column.name, "our own name", column)
        names = [*dict.fromkeys(c.name.split(".")[1] for c in entries)]
        if len(names) > 1:
            self._ask("criterion", "people rated several criteria", [{"criterion": name} for name in names])
        return names

    def _twins(self) -> dict[str, Column]:
        """Return column of choices in the order of the outputs -> column of choices in the swapped order."""
        full = {c.name: [w for w in (*c.words, c.end) if w] for c in self.free if self.pairwise and c.codes is not None}
        unswapped = {name: [w for w in words if w not in words_in("swapped")] for name, words in full.items()}
        for name in (name for name in full if self.all[name].has("games")):
            unswapped[name] = ["1" if w == "2" else w for w in full[name]]  # g2_winner
        return {a: self.all[b] for a in full for b in full if a != b and full[a] == unswapped[b]}

    def _fits(self, column: Column) -> bool:
        if column.kind == LISTS and self.pairwise:  # a pair's ratings are differences, not choices
            return column.name in OURS or bool((column.values() < 0).any())
        return column.kind == LISTS or (column.codes is not None if self.pairwise else column.kind == RATED)

    def _ask_unread(self, unread: Sequence[Column], *, rated: bool) -> None:
        """Ask about columns named like ratings that hold none, and about the judge's name, if they would be lost."""
        rated = rated or any(name.startswith(RATINGS) for name in {*self.fields} - {*OPTIONS})
        judged = self._column(*OPTIONS[:3]) is not None
        for column in unread:
            alike = [c for c in self.free if c.words == column.words and self._fits(c)]
            says_who = column.has("judges") and not column.has("values") and column.is_names and judged
            lost = alike or (column.has("people") and not rated) or (column.is_judges and not judged)
            inside = any(c.is_inside and c.name.startswith(f"{column.name}.") for c in self.free)
            values = [*dict.fromkeys(map(str, column.filled))]
            are_texts = column.kind == TEXTS and not column.is_names
            if inside or are_texts or len(values) < 2 or not (lost or says_who):
                continue
            first = ", ".join(repr(value[:40]) for value in values[:3])
            why = f"{column.name!r} holds {len(values)} different values, such as {first}: if it says who judged, keep "
            why += "the rows of one judge; if it holds ratings, write them as numbers"
            are_words = column.kind == TEXTS and all(text[:1].isalpha() for text in values)
            if are_words and 1 < len(values) <= MOST_NAMED and not says_who:
                why += f", or name the words {', '.join(values)} in their order: `levels` WORST,...,BEST"
            if column.kind == LISTS:
                why = f"{column.name!r} holds lists of choices: give each person a column, such as better_1, better_2"
            self._ask(column.name, why)
            self.unread += [column.name] if column.is_judges and not judged else []

    def _assign(self, people: Groups, judges: Groups, values: Groups, criteria: Sequence[str], *, rated: bool) -> None:
        """Take the columns that certainly hold human or judge's ratings, and ask whose the others are."""
        named = {c.name for group in (*people, *judges) for c in group}
        if not (people or rated):
            people, judges, values = self._told_by_rows(judges, values)
        verdicts = [[c] for c, *more in values if c.only("verdicts") and not more and c.kind != LISTS]
        n = len(people) + int(rated), len(judges), len(values)
        people, judges = self._told_by_names(people, judges, values, verdicts, n)
        sure: list[Column] = []
        for groups, whose, fields_of in ((people, PEOPLES, self._peoples), (judges, THE_JUDGES, self._judges)):
            for ours, name in fields_of(groups[0]).items() if len(groups) == 1 else ():
                sure.append(self.all[name])
                self._take(ours, f"named like {whose}{'' if name in named else ', beside the other'}", sure[-1])
        free = [c for c in self.free if c.name not in self.why and not c.has("counts") and self._fits(c)]
        called = [c for c in free if c.has("people") and not (c.is_judges or c.may_count_persons)]
        varying = [c for c in free if len({*map(str, c.filled)}) > 1]
        free = [c for c in free if c.kind == TEXTS or c.is_judges] if self.pairwise else varying
        others = [c for c in free if not c.is_judges]
        theirs = list[Column]()
        if not rated and len(people) != 1:
            theirs = [*dict.fromkeys(itertools.chain(*people, called, *values))] or others
            if n == (0, 0, 1) and verdicts:  # the columns beside a judge's verdicts are people's
                theirs = [c for c in others if c not in values[0] and _on_scale(c, values[0])] or theirs
            theirs = [c for c in theirs if not c.is_share]
        its = list[Column]()
        if len(judges) != 1:
            unnamed = [c for c in free if not c.has("people")]
            unnamed = [c for c in unnamed if not c.has("given names")] or unnamed
            its = [*dict.fromkeys(itertools.chain(*judges, *values))] or sorted(unnamed, key=lambda c: not c.is_judges)
            its = [c for c in its if not c.has("outcomes")]
        self._ask_whose(theirs, its, criteria)
        further = [c for c in others if not self.pairwise and _on_scale(c, sure)]
        if judges and further and any(c.has("given names") for c in sure):
            more = {f"rating_{k}": c.name for k, c in enumerate(further, start=len(people[0]) + 1)}
            self._ask("people's ratings", f"{_named(further)} may be further people's, too", [more, {}])
        if self.pairwise:
            self._check_codes([*sure, *(its if len(its) == 1 and theirs in ([], its) else [])])
        else:
            self._check_scales(sure)

    def _told_by_rows(self, judges: Groups, values: Groups) -> tuple[Groups, Groups, Groups]:
        """Return the groups of people, the judge and the rest: what differs between raters of a text is people's."""
        if self.form is not None:
            varied = [group for group in values if group[0].name in self.form.varying]
            judged = judges or [group for group in values if group not in varied]
            both = [[c.name for group in groups for c in group] for groups in (varied, judged)]
            if len(varied) == len(judged) == 1 and long_form.readings(self.form, *both) == [long_form.RATED_BY]:
                return varied, judged, []
        return [], judges, values

    def _told_by_names(
        self, people: Groups, judges: Groups, values: Groups, verdicts: Groups, n: tuple[int, int, int]
    ) -> tuple[Groups, Groups]:
        """Return the groups of people and the judge; names like label and verdict decide the remaining columns."""
        our_names = bool(judges) and not {"output", "outputs", "output_1"}.isdisjoint(self.all)
        labels = [g for g in values if g[0].only("labels") or (our_names and g[0].name == "score")]
        two = n == (0, 0, 2) and len(labels) == len(verdicts) == 1 and labels[0][0].words[0] in ("label", "labels")
        people = labels if two or (n == (0, 1, 1) and labels) else people
        return people, verdicts if two or (n == (1, 0, 1) and verdicts) else judges

    def _ask_whose(self, people: Sequence[Column], judges: Sequence[Column], criteria: Sequence[str]) -> None:
        """Ask about the columns that may hold people's ratings, or the judge's."""
        if not (open_ := [*dict.fromkeys([*people, *judges])]):
            return
        is_outcome = all(c.has("outcomes") for c in people)
        label = "an outcome" if is_outcome else PEOPLES
        whose = " or ".join(name for name, columns in ((label, people), (THE_JUDGES, judges)) if columns)
        why = "and the names do not tell which" if len(open_) > 1 else "and the name does not tell"
        why = why if judges or not is_outcome else "a rating without an error"
        answers = self._answers(people, judges)
        fields = [next((answer[name] for name in OPTIONS[:3] if name in answer), "") for answer in answers]
        of = [re.split(r"[./]", name)[-1] for name in fields]
        if criteria and all(name in criteria for name in of):  # a judge's column of each criterion
            self.questions = [q for q in self.questions if q.about != "criterion"]
            answers = [{**answer, "criterion": name} for answer, name in zip(answers, of, strict=True)]
        about = f"{whose} ratings" if judges or not is_outcome else "outcome"
        self._ask(about, f"{_named(open_)} may be {whose}, {why}", answers)

    def _peoples(self, group: Sequence[Column]) -> dict[str, str]:
        if len(group) == 1 and group[0].has("outcomes"):
            return {"outcome": group[0].name}
        fields, single = {c.kind: c.name for c in group if c.kind == LISTS}, [c for c in group if c.kind != LISTS]
        alone, each = ("better", "better") if self.pairwise else ("score", "rating")
        return fields | {alone if len(single) == 1 else f"{each}_{k}": c.name for k, c in enumerate(single, start=1)}

    def _judges(self, group: Sequence[Column]) -> dict[str, str]:
        column = group[0]
        if not self.pairwise:
            return {"samples_field" if column.kind == LISTS else "scores_field": column.name}
        twin = self.twins.get(column.name)
        return {"winner_field": column.name} | ({"swapped_field": twin.name} if twin is not None else {})

    def _answers(self, people: Sequence[Column], judges: Sequence[Column]) -> list[Mapping[str, str]]:
        """Return the possible owners of the remaining ratings: a column is the judge's, the others people's."""
        answers = list[Mapping[str, str]]()
        for column in judges if people else ():
            others = [c for c in people if c is not column]
            others = [c for c in others if column.is_judges and c.about == column.about] or others
            others = [c for c in others if c.kind != LISTS] or others[:1]
            groups = [others] if self.pairwise or all(_on_scale(c, others) for c in others) else [[c] for c in others]
            answers += [self._peoples(group) | self._judges([column]) for group in groups if group]
        if people and judges:
            return answers or [self._peoples(people), self._judges(judges)]
        named, outcomes = ([c for c in people if c.has(names)] for names in ("people", "outcomes"))
        single = [c for c in people if c.kind != LISTS]
        together = not outcomes and len(named) in (0, len(people)) and len(single) > 1  # outcomes are not combined
        together = together and (self.pairwise or all(_on_scale(c, single) for c in single))
        is_numbered = len({c.words for c in single}) == 1 and len(single) > MOST_NAMED  # raters, many of them
        several = [[column] for column in people if column.kind == LISTS or not is_numbered]
        several = [single, *several] if together else several
        return [*map(self._peoples, several), *(self._judges([column]) for column in judges)]

    # 4. Questions that the values leave open.

    def _check_scales(self, sure: Sequence[Column]) -> None:
        plain = [c for c in sure if c.kind == RATED and not c.numbers]
        party = {c.name: THE_JUDGES if c.name == self.fields.get("scores_field") else PEOPLES for c in plain}
        numbers = {c.name: np.array(c.filled, dtype=np.float64) for c in plain}
        failures = unexplained(numbers, party, self.keep)  # asked about earlier, when the table is read
        sure = [replace(c, cells=[None if v in failures.get(c.name, ()) else v for v in c.cells]) for c in sure]
        judge = [c for c in sure if c.name in (self.fields.get("scores_field"), self.fields.get("samples_field"))]
        people = [c for c in sure if c not in judge]
        if ranks := [c for c in sure if c.has("ranks")]:
            why = f"{_named(ranks)} may rank the outputs, 1 for the best: scores rise with quality"
            self._ask("direction", why, [self._negative(ranks), {}])
        tops_of = [c.highest for c in people]
        if people and max(tops_of) > 1.5 * min(tops_of):
            why = f"{_named(people)} go up to {', '.join(f'{top:g}' for top in tops_of)}: map those of one scale alone"
            unlike = [[c.name for c in people if not top / 1.5 <= c.highest <= 1.5 * top] for top in tops_of]
            without = [{field: "" for field, name in self.fields.items() if name in names} for names in unlike]
            self._ask("people's scales", why, [answer for k, answer in enumerate(without) if answer not in without[:k]])
        if not (judge and people):
            return
        scored, rated = judge[0].values(), np.array([c.values() for c in people])
        tops, lows = (max(tops_of), judge[0].highest), (np.nanmin(rated), np.nanmin(scored))
        if max(tops) > 1.5 * min(tops) or (min(lows) < 0) != (max(lows) < 0):
            scales = [{"scale": f"{a}-{b}"} for a, b in SCALES if a <= lows[1] and tops[1] <= b]
            why = f"people's ratings go up to {tops[0]:g} and the judge's to {tops[1]:g}: which scale is the judge's?"
            self._ask("scale", why, [*scales[:2], {}])
        counts = (~np.isnan(rated)).sum(axis=0)
        both = ~np.isnan(scored) & (counts > 0)
        x, y = scored[both], np.nansum(rated, axis=0)[both] / counts[both]
        if len(x) >= 20 and np.ptp(x) > 0 and np.ptp(y) > 0 and np.corrcoef(x, y)[0, 1] < -3 / np.sqrt(len(x)):
            why = "the judge's scores fall where people's rise: the lowest may be the best on one of the scales"
            self._ask("direction", why, [self._negative(judge), self._negative(people), {}])

    def _negative(self, columns: Sequence[Column]) -> dict[str, str]:
        """Return the fields of columns with the opposite sign."""
        return {ours: f"-{name}" for ours, name in self.fields.items() if name in [c.name for c in columns]}

    def _check_codes(self, sure: Sequence[Column]) -> None:
        readings = _readings(sure, is_preferred=self.is_preferred)
        if len(readings) > 1:
            codes = sorted(_numbers(sure))
            codes = codes if len(codes) <= cells.MOST_CHOICES else readings[0].split(",")
            wanted = "the first output" + (", the second, and a tie" if len(codes) == cells.MOST_CHOICES else "")
            why = f"choices are {', '.join(codes)}: which is {wanted}?"
            self._ask("labels", why, [{"labels": labels} for labels in readings])
        elif readings:
            self.fields |= {"labels": readings[0]} if readings[0] else {}
        else:  # a command for the columns of each code, without the other columns
            answers = list[Mapping[str, str]]()
            for code in dict.fromkeys((c.codes or ())[:2] for c in sure if c.name != self.fields.get("swapped_field")):
                alike = [c for c in sure if (c.codes or ())[:2] == code]
                others = {c.name for c in sure if c not in alike}
                without = {field: "" for field, name in self._possible() if name in others}
                answers += [{**without, "labels": labels} for labels in _readings(alike)]
            why = "code choices in different ways: write them alike to compare them, or take those of one code"
            self._ask("labels", f"{_named(sure)} {why}", answers)
        taken = {*self.fields.values()}
        for c in self.all.values():
            if c.words and c.only("orders") and c.kind != cells.NOTHING and c.name not in taken:
                why = f"{c.name!r} may say that a pair was shown in the other order: choices must be between the"
                self._ask(c.name, f"{why} outputs as they stand")
        if "swapped_field" in self.fields:
            first, swapped = self.all[self.fields["winner_field"]], self.all[self.fields["swapped_field"]]
            same = [a == b for a, b in zip(first.cells, swapped.cells, strict=True) if None not in (a, b)]
            if not same or 2 * sum(same) <= len(same):
                del self.fields["swapped_field"]
                why = f"{swapped.name!r} mostly differs from {first.name!r}: it must name the outputs as they stand"
                self._ask("swapped choices", why, [{"swapped_field": swapped.name}, {}])

    def _possible(self) -> list[tuple[str, str]]:
        """Return (field, column) for the recognized fields and for all answers to open questions."""
        open_ = [pair for question in self.questions for answer in question.answers for pair in answer.items()]
        return [*self.fields.items(), *open_]

    # 5. Rows that repeat the texts.

    def _read_rows(self) -> None:
        """Take the column that distinguishes the rows of a text if one reading fits; ask if two do or judges differ."""
        if (form := self.form) is None:
            return
        judged = {name for field, name in self._possible() if field in OPTIONS[:4]}
        people = {name for field, name in self._possible() if field.startswith(RATINGS)} - judged
        fits = long_form.readings(form, people, judged)
        if fits == [long_form.RATED_BY]:
            self._take(long_form.RATED_BY, form.sentence(long_form.RATED_BY), self.all[form.who])
            return
        answers = list[dict[str, str]]()
        for kind in fits:
            all_criteria = {"criterion": "all"} if kind == long_form.RATED_ON else {}
            judges = [{"judge": name} for name in form.names] if kind == long_form.JUDGED_BY else [{}]
            answers += [{kind: form.who} | judge | all_criteria for judge in judges]
        answers += [{}] if fits == [long_form.RATED_ON] else []  # each row as an item of its own
        readings = " or ".join(form.sentence(kind).rstrip(".") for kind in fits)
        remedy = f"{form.rows} rows repeat {len(form.counts)} texts: if {form.who!r} says who judged, keep those of one"
        self._ask(form.who, readings or remedy, answers)


def _is_named(words: Collection[str], rule: Role) -> bool:
    """Return whether a name's words include one of each set that a rule needs, and no word outside the rule."""
    _, needs, beside, _ = rule
    return not any(names.isdisjoint(words) for names in needs) and beside.union(*needs).issuperset(words)


def _whose(columns: Sequence[Column]) -> str | None:
    """Return the party whose ratings these columns hold by ``ROLES``; None if their shared words do not say."""
    words = {word for word in columns[0].words if not word.isdecimal()}
    if columns[0].name in OURS or (len(columns) > 1 and words and words <= words_in("labels")):
        return PEOPLES
    return next((rule[0] for rule in ROLES if not rule[3] and _is_named(words, rule)), None)


def _numbers(columns: Sequence[Column]) -> frozenset[str]:
    """Return the codes of choices other than letters."""
    return frozenset(items.choice_code(cell) for c in columns for cell in c.filled) - cells.LETTERS


def _readings(columns: Sequence[Column], *, is_preferred: bool = False) -> Sequence[str]:
    """Return the possible ``labels`` for columns of choices: "" for plain codes, nothing if the columns disagree.

    For a chosen and a rejected output (``is_preferred``), a judge that agrees may have the first output or 1. Shares,
    such as AlpacaEval's 1 + P, lie between the codes of both outputs.
    """
    whole = [c for c in columns if not c.is_share]
    if 0 < len(whole) < len(columns) and {"1", "2"} <= (numbers := _numbers(whole)) <= {"1", "2", "1.5"}:
        return NUMBERED[frozenset(("1", "2", "1.5"))]
    numbers, coded = _numbers(columns), {c.codes for c in columns if c.codes}
    if is_preferred and {"0", "1"} <= numbers <= {"0", "1", "0.5"}:
        return "1,0,0.5", "0,1,0.5"
    if numbers in NUMBERED or not coded:
        return NUMBERED.get(numbers, ("",))
    if len({codes[:2] for codes in coded}) > 1 or _numbers([c for c in columns if not c.codes]):
        return ()
    first, second, *tie = max(coded, key=len)
    orders = ((first, second), (second, first)) if first == "1" else ((first, second),)
    return [",".join((*order, *tie)) for order in orders]


def _on_scale(column: Column, others: Sequence[Column]) -> bool:
    """Return whether the highest rating of a column may be that of the others' scale."""
    return column.kind == RATED and all(2 / 3 <= column.highest / (c.highest or 1) <= 3 / 2 for c in others)


def _made_of(column: Column, people: Sequence[Column]) -> str:
    """Return "mean" or "majority" if a column may be that of several people's, by its first rows; empty if neither."""
    column, *people = (replace(c, cells=c.cells[:COMPARED]) for c in (column, *people))
    rows = zip(column.cells, *(c.cells for c in people), strict=True)
    both = [(str(cell), Counter(map(str, filter(word, items.cells_of(v))))) for cell, *v in rows if cell is not None]
    disagreeing = [(cell, votes.most_common(2)) for cell, votes in both if len(votes) > 1]
    if len(both) < FEWEST_ALIKE or len(disagreeing) < FEWEST_ALIKE / 4:
        return ""
    clear = [cell == first for cell, ((first, n), (_, m)) in disagreeing if n > m]
    if len(clear) >= FEWEST_ALIKE / 4 and all(clear) and all(cell in votes for cell, votes in both if len(votes) == 1):
        return "majority"
    if column.kind != RATED or any(c.kind not in (RATED, LISTS) for c in people):
        return ""
    x, y = column.values(), np.array([c.values() for c in people])
    defined = ~np.isnan(x) & (~np.isnan(y)).any(axis=0)
    return "mean" if np.abs(x[defined] - np.nanmean(y[:, defined], axis=0)).max() <= ROUNDED else ""


def _named(columns: Iterable[Column]) -> str:
    return ", ".join(f"{column.name!r:.80}" for column in columns)


def _pairs(columns: Sequence[Column]) -> list[list[Column]]:
    """Return pairs of columns of outputs or writers: lists, or two columns whose names differ only at the end."""
    groups: dict[tuple[str, ...], list[Column]] = {}
    for column in (c for c in columns if c.kind != PAIRS):
        groups.setdefault(column.words, []).append(column)
    orders = [order for group in groups.values() if len(group) == 2 for order in (group, group[::-1])]
    named = [[a, b] for a, b in orders if cells.FIRSTS.get(a.end) == b.end]
    return [*named, *([c] for c in columns if c.kind == PAIRS)]


def _holds(prompt: Column, output: Column) -> bool:
    """Return whether most cells of a column contain the output in their row."""
    both = [(str(a), str(b)) for a, b in zip(prompt.cells, output.cells, strict=True) if a and b and len(str(b)) > 9]
    return 2 * sum(b in a for a, b in both) > len(both)


def _one_to_one(ids: Column, source: Column) -> bool:
    """Return whether ids and inputs match one to one, without missing ids or inputs."""
    both = {(str(a), str(b)) for a, b in zip(ids.cells, source.cells, strict=True)}
    complete = len(ids.filled) == len(source.filled) == len(ids.cells)
    return complete and len(both) == len({a for a, _ in both}) == len({b for _, b in both})
