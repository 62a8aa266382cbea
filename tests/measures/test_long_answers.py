"""Readers of models' answers take linear time: small models repeat themselves up to the length limit."""

import gzip
import itertools
import json
import time
from collections import Counter

import pytest

from evalbias.lm.reading import named_choice
from evalbias.measures import read_mqm
from evalbias.measures.mqm import LONGEST, read_instructscore
from evalbias.programs.feedback import boxed_answer, read_missing, same_value

pytestmark = pytest.mark.filterwarnings("ignore::SyntaxWarning")  # of odd literals in what reads like a list
READERS = {
    "mqm": read_mqm,
    "mqm section": lambda text: read_mqm(f"Major: {text}"),
    "instructscore": read_instructscore,
    "missing concepts": lambda text: read_missing(text, ["dog", "park", "run and jump", "a"]),
    "named choice": lambda text: named_choice(text, ["A", "B", "tie"]),
    "boxed answer": lambda text: same_value(boxed_answer(f"\\boxed{{{text}}}") or text, "1"),
}
PIECES = [
    *("- ", "1. ", "major: ", "Minor/accuracy ", "'", '"', "(", "[", "{", "*", "**", "\n", " ", "\t", "no-error "),
    *("critical", "accuracy/mistranslation - ", "span: ", "-", "/", "\u2014", ",", ";", ":", "|", "|---", "\u2018"),
    *("\u201c", "\u201d", "none, ", "no errors ", "missing ", "the text ", "not mention ", "and ", "1", "12345678"),
    *("a", "aa ", "is ", "are ", "of the them ", "the the the ", "all of the ", "```json", '{"a":', "\\", "...", "A "),
    *("\u2011", "\u00a0", "\u202e", "Error type 1: ", "Major/minor: major\n", "%", "=", "_", "\\text{", "<"),
]
WORST = [(one, "") for one in ("Minor/accuracy ", "major: ", "- ", "missing ", "\u2018")] + [("'", "{"), ("\n", "-")]
"""Pairs that once took quadratic or cubic time."""


def slow(name, pair):
    """Whether a reader takes more than 10 times as long for four times the text, and more than half a second."""

    def seconds(length):
        start = time.process_time()
        READERS[name](("".join(pair) * length)[:length])
        return time.process_time() - start

    return seconds(12_000) > 0.5 and seconds(12_000) > 10 * seconds(3_000)


@pytest.mark.parametrize("name", READERS)
def test_the_time_is_linear_in_the_length(name):
    assert not [pair for pair in WORST if slow(name, pair)]


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_the_time_is_linear_for_all_pairs_of_pieces(name):
    assert not [pair for pair in itertools.product(PIECES, PIECES) if slow(name, pair)]


def test_what_is_longer_than_any_list_is_unreadable():
    line = "'cat' is a minor style error\n"
    text = line * (LONGEST // len(line))
    assert len(read_mqm(text).errors) == LONGEST // len(line)
    report = "Your Translation contains 0 errors:"
    assert read_instructscore(report.ljust(LONGEST)).status == "no errors"
    assert read_missing("dog".ljust(LONGEST), ["dog"]) == ["dog"]
    assert read_mqm(text.ljust(LONGEST + 1)).status == "unreadable"
    assert read_instructscore(report.ljust(LONGEST + 1)).status == "unreadable"
    assert read_missing("dog".ljust(LONGEST + 1), ["dog"]) is None
    assert read_mqm(" " * (LONGEST + 1)).status == read_instructscore(" " * (LONGEST + 1)).status == "empty"


@pytest.mark.parametrize("number", ["123", "12345678", "9" * 5_000])
def test_a_number_of_errors_that_nobody_could_list_is_unreadable(number):
    assert read_mqm(f"Major ({number}):").status == "unreadable"


def test_answers_of_more_digits_than_python_reads_are_compared_as_texts():
    assert same_value("1" * 5_000, "1" * 5_000)
    assert not same_value("1" * 5_000, "1")


def test_a_severity_far_from_its_words_stays_undecided():
    assert read_mqm(f"no {'major, or ' * 50}minor errors").status == "unreadable"  # what is denied?
    quotations = ", ".join(f"'{n}'" for n in range(90))
    assert read_mqm(f"{quotations} are minor style errors").status == "unreadable"  # not an error short


@pytest.mark.slow
def test_all_recorded_feedback_is_read_as_ever(data_dir):
    """The published runs: 18,600 lists of errors and 1,100 of missing concepts."""
    found, missing = Counter(), Counter()
    for file in sorted((data_dir / "self_bias_recorded").glob("*/*")):
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                if "concepts" in record:
                    words = read_missing(record["feedback_text"] or "", record["concepts"])
                    missing["unreadable" if words is None else "words"] += 1 if words is None else len(words)
                else:
                    reading = read_mqm(record["feedback_text"])
                    found[reading.status] += 1
                    found.update(f"{error.severity} {error.span is None}" for error in reading.errors)
    of_quotations = {"minor False": 54_678, "major False": 5_077, "critical False": 3_135}
    without = {"minor True": 10, "major True": 11, "critical True": 7}
    assert found == {"errors": 13_083, "no errors": 4_925, "unreadable": 592, **of_quotations, **without}
    assert missing == {"words": 3_494, "unreadable": 5}
