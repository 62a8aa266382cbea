"""Fields of an item, its human scores and its input; pairs and splits of items."""

from __future__ import annotations

import itertools
import math
import random
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import dspy
import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import missing

FIRST, SECOND, TIE = 0.0, 1.0, -1.0  # choices between two outputs
TIES = ("tie", "both_bad")  # words for a tie; the last is the Chatbot Arena's
_TIE = re.compile(r"tie[ _]?\(.*\)")  # a tie and its reason, such as "tie (bothbad)" or FastChat's "tie (inconsistent)"
METADATA = "metadata."  # prefix of a tool's columns of numbers that are not a judge's
CRITERION = "{criterion}"  # in the name of a field, stands for a criterion's name
LARGEST = 1e30  # largest size of a score or rating: products of a few of them must stay finite in the measures
SMALLEST = 1e-9  # below, the variance of several scores or ratings is taken for a rounding error of 0

BINARY: tuple[tuple[str, str], ...] = (("true", "false"), ("yes", "no"), ("pass", "fail"), ("passed", "failed"))
BINARY += (("correct", "incorrect"), ("c", "i"), ("y", "n"), ("success", "failure"), ("accept", "reject"))
BINARY += (("valid", "invalid"), ("thumbs_up", "thumbs_down"), ("good", "bad"), ("\u2713", "\u2717"))
BINARY += (("ja", "nein"), ("oui", "non"), ("si", "no"), ("richtig", "falsch"), ("bestanden", "nicht_bestanden"))
"""Words for 1 and for 0, as ``word`` writes them, each with its opposite."""
LETTERED = ("c", "i")  # Inspect's; only in a column without other words
LABELS = {word: number for pair in BINARY for word, number in zip(pair, (1.0, 0.0), strict=True)}
"""Word -> number; a column uses the words of one pair only."""
_SIGNS = dict.fromkeys("\u2705\u2714\u2611", "\u2713") | dict.fromkeys("\u274c\u2718\u2716", "\u2717")  # ticks, crosses
_AS_WORD = str.maketrans({" ": "_", "\ufe0f": "", "\U0001f44d": "thumbs_up", "\U0001f44e": "thumbs_down"} | _SIGNS)
_OUT_OF = re.compile(r"([0-9]{1,9}(?:[.,][0-9]{1,9})?)_?(?:(?:/|out_of)_?([0-9]{1,9})|%)")  # 4/5, 4 out of 5, 80 %
_WRITTEN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")  # float() also takes 4_5 and full-width 4
_LEADING = re.compile(r"(-?[0-9]+(?:[.,][0-9]+)?)(?:\s*/.*|\D+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")


class DataError(ValueError):
    """Invalid data in a file; the message names the file, the line or item, and the remedy."""


def text(record: Mapping[str, Any], name: str, where: str, *, blank: bool = False) -> str:
    """Return a text field of a record; it must be a string, which may be empty only with ``blank``."""
    if name not in record:
        raise DataError(f"{where}: {name!r} is missing; the record has only {sorted(record)!r:.400}. Add the field.")
    value = record[name]
    if not isinstance(value, str) or not (blank or value.strip()):
        raise DataError(f"{where}: {name!r} is {value!r:.80}; it must be a {'' if blank else 'non-empty '}string.")
    return value


def lone_surrogate(text: str) -> str | None:
    """Describe the first lone surrogate in a text, which JSON can escape but no tokenizer takes; None without any."""
    match = _SURROGATE.search(text)
    return None if match is None else f"the lone surrogate U+{ord(match.group()):04X} at character {match.start() + 1}"


def number(
    value: Any,
    written: str,
    *,
    low: float = -LARGEST,
    high: float = LARGEST,
    texts: bool = False,
    required: bool = False,
) -> float:
    """Read a number in [low, high]; NaN for None, NaN or an empty text unless ``required``; refuse anything else.

    ``True`` and ``False`` are refused; texts such as ``"3.5"`` are numbers only with ``texts``. ``written`` is the
    place for errors, such as ``"items.csv:3: 'score'"``.

    Examples:
        >>> number("3.5", "'my_score'", texts=True), number(None, "'my_score'")
        (3.5, nan)
    """
    read = as_number(value, texts=texts)
    if low <= read <= high or (math.isnan(read) and not required):
        return read
    wanted = "a number"
    if high < LARGEST:
        wanted += f" from {low:g} to {high:g}"
    elif LARGEST < abs(read) < math.inf:
        wanted += f" of at most {LARGEST:g}"
    remedy = remedy_for(value) or ("" if required else "or leave it empty (null in JSON) where there is none")
    raise DataError(f"{written} is {value!r:.80}: give {wanted}{remedy and f', {remedy}'}.")


def as_number(value: Any, *, texts: bool = True) -> float:
    """Return a value as a number; NaN for no value, infinity for something else. ``texts`` is as in ``number``."""
    if isinstance(value, str):
        written = value.strip().lower().replace("\u2212", "-")  # the typographer's minus
        if written and not (texts and (written == "nan" or _WRITTEN.fullmatch(written))):
            return math.inf
        value = written or None
    try:
        return math.nan if value is None else math.inf if isinstance(value, bool | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.inf


def remedy_for(value: object) -> str:
    """Say how to write a value that stands for a number; empty if it does not stand for a number.

    Examples:
        >>> remedy_for("2.9/5"), remedy_for("2,9"), remedy_for(True)
        ('2.9 alone', '2.9 with a decimal point', '1 for true and 0 for false')
    """
    text = str(value).strip()
    for passes, fails in BINARY:
        if word(value) in (passes, fails) and (passes, fails) != LETTERED:
            return f"1 for {passes} and 0 for {fails}"
    match = _LEADING.fullmatch(text) if isinstance(value, str) and len(text) <= 80 else None
    if match is None:
        return ""
    form = "alone" if match[1] != text else "with a decimal point" if "," in text else "without quotes"
    return f"{match[1].replace(',', '.')} {form}"


def labelled(value: object) -> float | None:
    """Return 1 or 0 for a word of ``LABELS`` or a truth value; None for anything else, including numbers."""
    return LABELS.get(word(value)) if isinstance(value, str | bool) else None


def values_of_words(cells: Iterable[Any]) -> dict[str, float]:
    """Return word -> number if most of a column's cells are a pair in ``BINARY``, or numbers out of the same maximum.

    Examples:
        >>> values_of_words(["Pass", "fail", None, "?", "pass"]), values_of_words(["3/5", "4 out of 5"])
        ({'pass': 1.0, 'fail': 0.0}, {'3/5': 3.0, '4_out_of_5': 4.0, '5/5': 5.0})
    """
    counts = Counter[str]()
    for written, times in Counter(str(cell) for cell in cells if not missing(cell)).items():
        counts[word(written)] += times
    del counts[""]
    for pair in BINARY:
        n = sum(counts[text] for text in pair)
        if 2 * n > counts.total() and (pair != LETTERED or n == counts.total()):  # C is a grade, too
            return {text: LABELS[text] for text in pair}
    parts = {text: match.groups(default="100") for text in counts if (match := _OUT_OF.fullmatch(text))}
    wholes = {whole for _, whole in parts.values()}
    if len(wholes) != 1 or 2 * sum(counts[text] for text in parts) <= counts.total():
        return {}
    (whole,) = wholes
    read = {text: float(part.replace(",", ".")) for text, (part, _) in parts.items()}
    read[f"{whole}/{whole}"] = float(whole)
    return {text: value for text, value in read.items() if value <= float(whole)}


def check_size(values: ArrayLike, label: str) -> None:
    """Refuse nonzero numbers that are all smaller than ``SMALLEST`` in size, which measures would take for 0."""
    sizes = np.abs(np.asarray(values, dtype=np.float64))
    largest = float(np.max(sizes, initial=0.0, where=~np.isnan(sizes)))
    if 0 < largest < SMALLEST:
        fault = f"{label} are at most {largest:.2g} in size, too small to tell from 0"
        raise DataError(f"{fault}: multiply them, so that the largest is {SMALLEST:g} or more.")


def scores(value: Any, where: str) -> dict[str, float]:
    """Return criterion -> score from the ``scores`` of a record; null becomes NaN."""
    scored = as_object(value or {}, f"{where}: 'scores'")
    return {name: number(value, f"{where}: the score on {name!r:.80}") for name, value in scored.items()}


def ratings(content: Any, where: str) -> dict[str, list[float]]:
    """Return criterion -> single ratings, in the raters' order, from the ``ratings`` of a record; null becomes NaN.

    A criterion with an empty list is left out: nobody rated the item on it.
    """
    rated = as_object(content or {}, f"{where}: 'ratings'")
    return {name: rating_row(row, name, where) for name, row in rated.items() if row != []}


def rating_row(row: Any, name: str, where: str) -> list[float]:
    """Return an item's single ratings on a criterion; NaN for null."""
    if not isinstance(row, list) or not row:
        fault = f"{where}: the ratings on {name!r:.80} are {row!r:.80}"
        raise DataError(f"{fault}; write a list with one number for each rater, null where one gave none.")
    return [number(value, f"{where}: a rating on {name!r:.80}") for value in row]


def as_object(value: Any, label: str) -> dict[str, Any]:
    """Return a JSON object; refuse any other value."""
    if not isinstance(value, dict):
        raise DataError(f"{label} holds {value!r:.80}; it must be a JSON object, {{...}}.")
    return value


def choice(value: Any, written: str, labels: Sequence[object] = (), *, count: int = 2) -> float:
    """Read a choice between outputs: 0 for the first, 1 for the second and so on, -1 for a tie, NaN without a choice.

    A value is 0, 1 or -1, also as text; a letter from A on, ``"model_a"``, ``"model_b"`` or a word of ``TIES``, in any
    case, also with a reason in brackets; or None, NaN or an empty text, which mean no choice. Anything else is refused.
    ``labels`` are codes of the first output, the second and, if there is one, a tie, in place of 0, 1 and -1: letters
    keep their meaning, unless a code is a letter. At most 26 outputs.

    Examples:
        >>> [choice(value, "the winner") for value in ("b", 1, "TIE")]
        [1.0, 1.0, -1.0]
        >>> choice(1, "the winner", labels=(1, 2))
        0.0
    """
    if value is None or value != value or not str(value).strip():
        return math.nan
    read = dict.fromkeys(TIES, TIE)
    if labels:
        read |= zip(map(choice_code, labels), (FIRST, SECOND, TIE), strict=False)
    else:
        read |= {str(place): float(place) for place in range(count)} | {"-1": TIE, "model_a": FIRST, "model_b": SECOND}
    if not any(len(code) == 1 and code.isalpha() for code in read):
        read |= {letter: float(place) for place, letter in enumerate(string.ascii_lowercase[:count])}
    if (code := choice_code(value)) in read:
        return read[code]
    codes = "0 or 'A' for the first output, 1 or 'B' for the second, 'tie' (or -1)"
    if labels:
        codes = "one of the labels " + ", ".join(map(repr, map(str, labels)))
    raise DataError(f"{written} is {value!r:.80}: give {codes}, or null for none.")


def check_labels(labels: Sequence[object]) -> None:
    """Refuse labels that are not two or three different codes: they would leave open which output was chosen."""
    codes = {choice_code(label) for label in labels} - {""}
    if labels and (len(codes) != len(labels) or len(codes) not in (2, 3)):
        raise ValueError(
            f"The labels {', '.join(map(repr, labels))} do not tell the outputs apart: give the code of the first "
            "output, that of the second and, if there is one, that of a tie, such as --labels 1,2,tie (in Python, "
            "labels=(1, 2, 'tie'))."
        )


def code_of(value: object) -> str:
    """Return a code as text in lower case; 1, 1.0 and "1.0" are the same."""
    text = str(value).strip().lower()
    return str(int(float(text))) if _WRITTEN.fullmatch(text) and float(text).is_integer() else text


def choice_code(value: object) -> str:
    """Return the code of a choice; a tie with its reason in brackets is a tie.

    Examples:
        >>> choice_code("Tie (inconsistent)"), choice_code(2.0)
        ('tie', '2')
    """
    code = code_of(value)
    return "tie" if _TIE.fullmatch(code) else code


ABSENT = ("", "na", "n/a", "nan", "null", "none")  # cells without a value in a column of numbers, in lower case


def word(cell: Any) -> str:
    """Return a cell in lower case, with a single sign for all ticks and another for crosses; empty without a value."""
    return "" if missing(cell) or (word := _spelled(cell)) in ABSENT else word


def is_absent(cell: Any) -> bool:
    """Return whether a cell holds no value: it is missing, or a text that says so."""
    return cell.strip().lower() in ABSENT if isinstance(cell, str) else missing(cell)


def value_code(cell: Any) -> str:
    """Return a cell as text in lower case, in which 1, 1.0 and "1.0" are the same."""
    return code_of(_spelled(cell))


def _spelled(cell: Any) -> str:
    return str(cell).strip().lower().translate(_AS_WORD)


def cells_of(value: Any) -> Iterator[Any]:
    """Yield the values in a cell, at any depth of lists and objects."""
    nested = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
    yield from (value,) if nested is None else (cell for inner in nested for cell in cells_of(inner))


# The names of an item's fields.

FIELDS = (
    *("source", "output", "score", "better", "system", "output_1", "output_2"),
    *("outputs", "scores", "ratings", "systems", "system_1", "system_2", "input_id"),
)
"""Our fields, except those with a number or a criterion in their name."""


def listed(columns: Sequence[str]) -> str:
    """List the first 50 columns for an error."""
    more = f" and {len(columns) - 50} more" if len(columns) > 50 else ""
    return "the columns " + ", ".join(f"{c!r:.80}" for c in columns[:50]) + more if columns else "no columns"


# An item: its name, human scores and ratings, and the input of its output.


def item_name(example: Any, index: int | None = None) -> str:
    """Return an item's ``id``, a pair's ``ids`` joined, the item's number, or the beginning of its text."""
    if example.get("ids"):
        return " | ".join(map(str, example["ids"]))
    if example.get("id") is not None:
        return str(example["id"])
    return str(example.get("source") or dict(example))[:60] if index is None else str(index)


def is_rated(example: dspy.Example, criterion: str) -> bool:
    """Return whether an example has a human score on a criterion, defined or not; see ``human_score``."""
    scores = _by_criterion(example)
    return "score" in example if scores is None else criterion in scores


def human_score(example: dspy.Example, criterion: str, *, required: bool = True) -> float:
    """Return an example's human score on a criterion, NaN where undefined: ``scores[criterion]``, or else ``score``.

    An example that has ``scores`` without the criterion is not rated on it, because its ``score`` may belong to another
    criterion. An unrated example is refused if ``required``; its score is NaN otherwise.

    Examples:
        >>> human_score(dspy.Example(score=4), "politeness")
        4.0
        >>> human_score(dspy.Example(score=4, scores={"politeness": 2}), "politeness")
        2.0
    """
    scores = _by_criterion(example)
    item = f"{item_name(example)!r:.80}"
    if is_rated(example, criterion):
        value = example["score"] if scores is None else scores[criterion]
        return number(value, f"The score of the item {item} on {criterion!r:.80}", texts=True)
    if not required:
        return math.nan
    others = "neither in 'scores' nor as 'score'"
    if scores is not None:
        others = f"only on {sorted(scores)}"
        others += "; its 'score' is not used, because 'scores' says what was rated" if "score" in example else ""
    remedy = f"leave the item out, or add scores={{{criterion!r:.80}: NUMBER}} (None if undefined)"
    raise ValueError(f"The item {item} has no score on {criterion!r:.80}, {others}: name another criterion, {remedy}.")


def single_ratings(example: dspy.Example, criterion: str) -> list[float]:
    """Return an example's single ratings on a criterion in the raters' order, NaN where a rater gave none.

    ``ratings`` are criterion -> numbers, or only numbers beside a single ``score``; without them the list is empty.

    Examples:
        >>> single_ratings(dspy.Example(ratings={"politeness": [4, None, 5]}), "politeness")
        [4.0, nan, 5.0]
    """
    held = example.get("ratings") or {}
    row = held if isinstance(held, list | tuple) else isinstance(held, Mapping) and (held.get(criterion) or ())
    try:
        if not isinstance(row, list | tuple):
            raise DataError(f"they are {row!r:.80}")
        return [number(rating, "one of them", texts=True) for rating in row]
    except DataError as error:
        fault = f"The item {item_name(example)!r:.80} has ratings={held!r:.80}"
        remedy = f"give criterion -> list of numbers of at most {LARGEST:g}, None where a rater gave none"
        raise ValueError(f"{fault}: {remedy}.") from error


def rated_criteria(examples: Iterable[dspy.Example]) -> list[str]:
    """Return the criteria in the examples' ``scores`` and ``ratings``, in order of first appearance."""
    fields = (e.get(field) for e in examples for field in ("scores", "ratings"))
    return list(dict.fromkeys(name for by_name in fields if isinstance(by_name, Mapping) for name in by_name))


def check_once(criteria: Sequence[str]) -> None:
    """Refuse criteria with equal names."""
    if len({*criteria}) < len(criteria):
        raise ValueError(f"`criterion`: {', '.join(criteria)}: name each criterion once.")


def check_rated_apart(examples: Iterable[dspy.Example], criteria: Sequence[str]) -> None:
    """Refuse items with a single score, rating or choice for several criteria."""
    for e in examples if len(criteria) > 1 else ():
        if "better" in e or (e.get("scores") is None and ("score" in e or isinstance(e.get("ratings"), list))):
            fault = f"The item {item_name(e)!r:.80} has one score, and {len(criteria)} criteria are judged"
            remedy = "give one `criterion`, or scores by criterion ('scores', or columns such as scores.fluency)"
            raise DataError(f"{fault}: {remedy}.")


def _by_criterion(example: dspy.Example) -> Mapping[str, Any] | None:
    scores = example.get("scores")
    if scores is None or isinstance(scores, Mapping):
        return scores
    fault = f"The item {item_name(example)!r:.80} has scores={scores!r:.80}"
    raise ValueError(f"{fault}: give criterion -> number, or one number as score=.")


def by_input(examples: Sequence[dspy.Example]) -> dict[str, list[dspy.Example]]:
    """Group examples by input, as ``input_key`` identifies it, in order of first appearance.

    An ``input_id`` with two sources is refused, because outputs would be judged against the wrong source; so is a
    source with two values of ``input_id``, which could be on both sides of a split.
    """
    groups: dict[str, list[dspy.Example]] = {}
    keys: dict[str, str] = {}
    for example in examples:
        key = input_key(example)
        group = groups.setdefault(key, [])
        source = example.get("source")
        if group and group[0].get("source") != source:
            raise ValueError(
                f"The items {item_name(group[0])!r:.80} and {item_name(example)!r:.80} have the same input_id "
                f"{key!r:.80} but different sources; give each source its own input_id."
            )
        if source is not None and keys.setdefault(source, key) != key:
            raise ValueError(
                f"The item {item_name(example)!r:.80} has the input_id {key!r:.80}, but another item with the same "
                f"source has {keys[source]!r:.80}; give all items of a source the same input_id, or none."
            )
        group.append(example)
    return groups


def input_key(example: dspy.Example) -> str:
    """Identify an example's input: by its ``input_id``, else by its source, else by its own id."""
    field = input_field(example)
    if field is None:
        raise ValueError(f"The example {example} has no input_id, source or id; give each example an id.")
    return str(example[field])


def input_field(example: dspy.Example) -> str | None:
    """Return the field that identifies an example's input; None if the example has no such field."""
    return next((name for name in ("input_id", "source", "id") if example.get(name) is not None), None)


TELLING = 20  # fewest characters of texts whose equality is no coincidence


def contents_of(examples: Sequence[dspy.Example], *, every: bool = False) -> list[str]:
    """Return the texts that identify each item, or ``every`` field but its ids; empty for an item that is alone.

    It is every field for an item with an ``input_id`` too, because several inputs may have the same answer. An item is
    alone if no other has its outputs, or if they are short.
    """
    texts_of = [sorted(map(str, outputs)) for outputs in map(_outputs, examples)]
    joined = ["".join("".join(texts).split()) for texts in texts_of]  # most outputs differ: the rest need not be read
    counts, contents = Counter(joined), list[str]()
    for example, texts, key in zip(examples, texts_of, joined, strict=True):
        if counts[key] == 1 or sum(map(len, texts)) < TELLING:
            contents.append("")
        elif every or example.get("input_id") is not None:
            held = [(name, value) for name, value in example.items() if name not in ("id", "input_id")]
            contents.append(repr(sorted((name, _spaced(value)) for name, value in held)))
        else:
            contents.append(repr([*map(_spaced, (example.get("source"), *texts))]))
    return contents


def _outputs(example: dspy.Example) -> Sequence[Any]:
    output = example.get("output")
    return example.get("candidates") or example.get("outputs") or ([output] if isinstance(output, str) else [])


def _spaced(value: Any) -> Any:
    """Return a text with single spaces, because copies may differ in spacing; lines keep their indentation."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    lines = text.splitlines() if "\n " in text or "\n\t" in text else [text]
    return "\n".join(line[: len(line) - len(line.lstrip())] + " ".join(line.split()) for line in lines)


def input_keys(examples: Sequence[dspy.Example]) -> list[str]:
    """Identify each example's input as ``input_key`` does; equal texts belong to the same input, whatever their ids.

    See ``contents_of`` for when texts are equal. An example without source and ids gets its own key.

    Examples:
        >>> input_keys([dspy.Example(id=k, output="The same long answer twice.") for k in "ab"])
        ['a', 'a']
    """
    keys = [f"item {i}" if input_field(e) is None else _spaced(input_key(e)) for i, e in enumerate(examples)]
    same: dict[str, str] = {}  # key -> another key of the same input, if any

    def first(key: str) -> str:
        while key in same:
            key = same[key]
        return key

    by_content: dict[str, str] = {}
    for key, content in zip(keys, contents_of(examples), strict=True):
        if content and (original := first(by_content.setdefault(content, key))) != (other := first(key)):
            same[other] = original
    return [*map(first, keys)]


def pairs(
    examples: Sequence[dspy.Example],
    *,
    inputs: int | None = None,
    limit: int | None = None,
    criterion: str | None = None,
    ordered: bool = True,
    seed: int,
) -> list[dspy.Example]:
    """Pair all different outputs of each input, or a random part of them, in random order; pairs are kept.

    Ten documents of SummEval with 16 different outputs give the 2400 pairs of Zhou et al. (2024, appendix A).

    Args:
        examples: Examples with ``source`` and ``output``; repeated outputs of an input count once. Or pairs, with
            ``candidates``, which are returned unchanged and, if ``ordered``, also in the other order.
        inputs: Number of inputs to draw, each with two different outputs; all by default.
        limit: Largest number of pairs to draw; all by default.
        criterion: Criterion whose human scores label the pairs by ``preference``: ``"A"`` if the first candidate has
            the higher score, ``"B"`` if the second; pairs with equal or missing scores are left out.
        ordered: Return both orders of each pair. If False, return a random order of each pair.
        seed: Seed for all random draws.

    Returns:
        Examples with ``source``, ``candidates`` (two outputs), ``ids`` and ``input_id``. If both outputs have single
        ``ratings``, the pair has each rater's difference: the first candidate's rating minus the second's.
    """
    rng, groups = random.Random(seed), comparable(examples)
    n_inputs = len(groups) if inputs is None else inputs
    if not 1 <= n_inputs <= len(groups) or (limit is not None and limit < 1):
        raise ValueError(
            f"inputs={inputs} and limit={limit} cannot be drawn: only {len(groups)} inputs have two different outputs; "
            "give 1 to that many inputs, and a limit of at least 1."
        )
    chosen = sorted(rng.sample(sorted(groups), n_inputs))
    if hold_pairs(examples):
        own = [pair for key in chosen for pair in groups[key]]
        own = [pair for pair in own if criterion is None or _label(pair, "preference") in (FIRST, SECOND)]
        made = [*own, *map(_swapped, own)] if ordered else own
    else:
        paired = [(key, a, b) for key in chosen for a, b in itertools.combinations(groups[key], 2)]
        if ordered:
            paired += [(key, b, a) for key, a, b in paired]
        else:
            paired = [(key, *rng.sample((a, b), 2)) for key, a, b in paired]
        made = [pair for members in paired if (pair := _make_pair(*members, criterion)) is not None]
    return rng.sample(made, len(made) if limit is None else min(limit, len(made)))


def count_pairs(examples: Sequence[dspy.Example]) -> int:
    """Count the pairs that ``pairs`` makes without a limit, in both orders."""
    sizes = [*map(len, comparable(examples).values())]
    return sum(sizes) * 2 if hold_pairs(examples) else sum(n * (n - 1) for n in sizes)


def hold_pairs(examples: Sequence[dspy.Example]) -> bool:
    """Return whether the examples are pairs, with ``candidates`` instead of an ``output``: all of them or none."""
    paired = [e.get("candidates") is not None for e in examples]
    if any(paired) and not all(paired):
        fault = f"{sum(paired)} of {len(paired)} examples are pairs and the others single outputs"
        raise ValueError(f"{fault}: give one kind.")
    return any(paired)


def comparable(examples: Sequence[dspy.Example]) -> dict[str, list[dspy.Example]]:
    """Return input -> what can be compared: two or more different outputs, or pairs of different texts."""
    groups = by_input(examples)
    if hold_pairs(examples):
        different = {k: [e for e in v if len(set(e.candidates)) > 1] for k, v in groups.items()}
        return {key: pairs for key, pairs in different.items() if pairs}
    outputs = {key: list({e.output: e for e in reversed(group)}.values())[::-1] for key, group in groups.items()}
    return {key: group for key, group in outputs.items() if len(group) > 1}


def _swapped(pair: dspy.Example) -> dspy.Example:
    """Return a pair in the other order, with its labels and ratings swapped accordingly."""
    swapped = pair.copy(id=f"{pair.get('id')} swapped", candidates=list(pair.candidates)[::-1])
    for name in ("ids", "systems"):
        if pair.get(name) is not None:
            swapped[name] = list(pair[name])[::-1]
    if (label := _label(pair, "preference")) in (FIRST, SECOND):
        swapped["preference"] = "BA"[int(label)]
    if (label := _label(pair, "better")) in (FIRST, SECOND):
        swapped["better"] = 1 - int(label)
    ratings = pair.get("ratings")
    if isinstance(ratings, list):
        swapped["ratings"] = [-difference for difference in ratings]
    elif ratings:
        swapped["ratings"] = {criterion: [-d for d in differences] for criterion, differences in ratings.items()}
    return swapped


def _label(pair: dspy.Example, field: str) -> float:
    return choice(pair.get(field), f"The label {field!r} of the item {item_name(pair)!r:.80}")


def _make_pair(key: str, a: dspy.Example, b: dspy.Example, criterion: str | None) -> dspy.Example | None:
    """Return a pair, labeled by human scores if there is a criterion; None if the scores are equal or missing."""
    shared = {n: text for n, text in a.items() if n not in FIELDS and isinstance(text, str) and b.get(n) == text}
    ids = [str(a.get("id")), str(b.get("id"))]
    pair = dspy.Example(**shared, source=a.source, candidates=[a.output, b.output], ids=ids, input_id=key)
    if criterion is not None:
        first, second = (human_score(e, criterion, required=False) for e in (a, b))
        if first == second or math.isnan(first + second):
            return None
        pair["preference"] = "A" if first > second else "B"
    if a.get("system") is not None and b.get("system") is not None:
        pair["systems"] = [str(a.system), str(b.system)]
    rated = [e.get("ratings") or {} for e in (a, b)]
    if all(isinstance(held, list) for held in rated):  # on the only criterion that is judged
        if differences := _differences(a, b, ""):
            pair["ratings"] = differences
    elif differences_by := {c: d for c in rated[0] if c in rated[1] and (d := _differences(a, b, c))}:
        pair["ratings"] = differences_by
    return pair.with_inputs("source", "candidates")


def _differences(a: dspy.Example, b: dspy.Example, criterion: str) -> list[float]:
    """Return each rater's rating of the first output minus the second; empty if the numbers of raters differ."""
    first, second = (single_ratings(e, criterion) for e in (a, b))
    return [x - y for x, y in zip(first, second, strict=True)] if len(first) == len(second) else []


BY = ("instance", "input")


def split(
    examples: Sequence[dspy.Example], *, test_fraction: float = 0.2, seed: int, by: str = "instance"
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Split examples with distinct ``id`` at random into a training and a test set, each sorted by id.

    The split depends on the ids and the seed, not on the order of the examples. ``test_fraction`` is the share of the
    test set, in (0, 1); its number of instances or inputs is rounded to the nearest integer, halves up: 2846 instances
    give 569. ``by`` is ``"instance"``, or ``"input"`` to keep all outputs of an input (``input_id``, else ``source``)
    in one set. A set that would be empty is refused.
    """
    if by not in BY:
        raise ValueError(f"by={by!r} is unknown; choose one of {BY}.")
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction={test_fraction} is out of range; give a number between 0 and 1, such as 0.2.")
    missing = next((i for i, e in enumerate(examples) if e.get("id") is None), None)
    if missing is not None:
        raise ValueError(f"The example at index {missing} has no id; give each example an id, which the split uses.")
    items: list[Any] = sorted(examples, key=lambda e: str(e.id))
    repeated = next((a.id for a, b in itertools.pairwise(items) if str(a.id) == str(b.id)), None)
    if repeated is not None:
        raise ValueError(f"Several examples have the same id {repeated!r:.80}; give each example its own id.")
    keys: list[tuple[str, ...]] = [(str(e.id),) for e in items]
    if by == "input":  # an input_id is no source
        keys = [(str(input_field(e)), key) for e, key in zip(items, input_keys(items), strict=True)]
    groups = sorted(set(keys))
    size = math.floor(len(groups) * Fraction(test_fraction).limit_denominator(10**6) + Fraction(1, 2))
    if not 0 < size < len(groups):
        raise ValueError(
            f"{len(groups)} {by if len(groups) == 1 else f'{by}s'} cannot be split with test_fraction={test_fraction}: "
            "one set would be empty. Give more examples or another fraction."
        )
    random.Random(seed).shuffle(groups)
    test_keys = set(groups[:size])
    train = [e for e, key in zip(items, keys, strict=True) if key not in test_keys]
    return train, [e for e, key in zip(items, keys, strict=True) if key in test_keys]
