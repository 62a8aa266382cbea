"""MQM feedback: each text is read whole, with exactly the errors that it reports, or not at all."""

import gzip
import itertools
import json
import time
from collections import Counter

import pytest

from evalbias.lm.reading import named_choice
from evalbias.measures import MQMError, mqm_score, read_mqm
from evalbias.measures.mqm import LONGEST
from evalbias.programs.feedback import boxed_answer, read_missing, same_value

READ = [  # with the critical, major and minor errors
    ("'cat' is a critical accuracy/mistranslation error", (1, 0, 0)),
    ('"cat" is a major accuracy/addition error\n"the" is a minor style/awkward error', (0, 1, 1)),
    ("1. 'cat' is a major accuracy/omission error\n2. 'dog' is a major accuracy/omission error", (0, 2, 0)),
    ("- 'cat' is a minor fluency/grammar error.\n- 'dog' is a minor fluency/grammar error.", (0, 0, 2)),
    ("**'cat'** is a **major** accuracy/mistranslation error", (0, 1, 0)),
    ("\u201ccat\u201d is considered a critical accuracy/mistranslation error", (1, 0, 0)),
    ("'the dogs' house' is a minor fluency/punctuation error", (0, 0, 1)),
    ("'no major errors' is a minor style/awkward error", (0, 0, 1)),
    ("'cat' is a major accuracy/mistranslation error\n'dog' is a min", (0, 1, 0)),
    ("'cat' is a major accuracy/mistranslation error\n'dog' is a", (0, 1, 0)),
    ("'cat' is a major accuracy/mistranslation error\n'dog and", (0, 1, 0)),
    ("MQM annotations:\n'cat' is a minor fluency/spelling error", (0, 0, 1)),
    ('Critical:\nno-error\nMajor:\naccuracy/addition - "cat"', (0, 1, 0)),
    ('Critical:\nno-error\nMajor:\naccuracy/addition - "cat"\nfluency/grammar - "dog"\nMinor:\nstyle - "a"', (0, 2, 1)),
    ("Critical:\nno-error\nMajor:\nno-error\nMinor:\nno-error", (0, 0, 0)),
    ("**Critical:**\n- None\n\n**Major:**\n- accuracy/omission - 'cat'\n\n**Minor:**\n- None", (0, 1, 0)),
    ("Major:\nErrors:\n'cat'", (0, 1, 0)),
    ("Major: accuracy/mistranslation - 'cat'\nMajor: accuracy/omission - 'dog'", (0, 2, 0)),
    ("Major: fluency", (0, 1, 0)),
    ("Major: accuracy/mistranslation - 'a, b and c'", (0, 1, 0)),
    ("'a' is a major accuracy error, it should be 'b'.", (0, 1, 0)),
    ("The source says nothing, so there is a critical non-translation error.", (1, 0, 0)),
    ("'a' is a major accuracy error and 'b' is a minor fluency error", (0, 1, 1)),
    ("no-error", (0, 0, 0)),
    ("No errors were found, no-error.", (0, 0, 0)),
    ("'no-error'", (0, 0, 0)),
    ("The translation does not contain any errors.", (0, 0, 0)),
    ("No errors.", (0, 0, 0)),
    ("There are no errors in the translation.", (0, 0, 0)),
    ("None found.", (0, 0, 0)),
    ("The translation is correct and contains no errors.", (0, 0, 0)),
    ("No", (0, 0, 0)),
    ("\"a\" is a minor style error; 'b' is a Major terminology error.", (0, 1, 1)),
    ("'it's' is a minor fluency/spelling error", (0, 0, 1)),
    ("'is highly critical' is a major accuracy/mistranslation error", (0, 1, 0)),
    ("'10 major projects' is a minor accuracy/addition error", (0, 0, 1)),
    ("\u2018wort\u2019 is considered a minor accuracy/addition error", (0, 0, 1)),
    ("'word' is a minor flu", (0, 0, 1)),
    ("The source is not a valid input, so there is a critical non-translation error.", (1, 0, 0)),
]
RECORDS = [  # of no list in the published forms, which are the only ones that are read
    '[{"span": "cat", "severity": "major"}]',
    '{"errors": []}',
    "[]",
    '{\n  "major": [\n    "cat"\n  ],\n  "minor": []\n}',
    "| span | severity |\n|---|---|\n| cat | major |",
    "[" * 15_000,
]
UNREADABLE = r"""
'cat', 'dog' and 'cow' are minor terminology errors
'cat' is a minor style error. 'dog' is a maj; 'cow' is a minor style error.
'cat' is a major accuracy/mistranslation error\n'dog' is a typo, it should be 'hound'
'London' is a major city.
'cat' is an accuracy/mistranslation error (major)
accuracy/omission (major): 'cat' and 'dog'
'cat' is a major accuracy/mistranslation error\nno-error
no-error\n'cat' is a minor style/awkward error
'cat' is a major accuracy/mistranslation error. Some minor errors remain.
Critical:\nno-error\nMajor:\nno-error\nMinor:
Critical:\nno-error
Critical: 0\nMajor: 2\nMinor: 1
## Major errors\n'cat' is mistranslated
Major (2):\n- accuracy/omission - 'cat'\n- accuracy/omission - 'dog'
Minor: 'a', 'the'
Major:\nSee above.
Major: accuracy, mistranslation
Major: accuracy/mistranslation, fluency/grammar - 'a'
Major: 'a' since it is plural / 'b' since it is past
Major: two omissions
Major: 'a' (2)
Major: 2 errors: 'a'
Major: accuracy/mistranslation (should be 'c'), 'b'
Major: 'a' Minor: 'b'
Major:\nError 1: 'a'\nError 2: 'b'
Major:\nSpan: 'a'\nCategory: accuracy/omission
Major: should be 'b' instead of 'a'
'don't', 'can't' are minor fluency/spelling errors
There are 3 major errors:\n'cat' is a major accuracy error\n'dog' is a major accuracy error
The translation contains several major errors.
no-error. The translation is fine except a major mistranslation of 'cat'.
There is a mistranslation of 'cat'. The error is minor.
The change in meaning is major.
'cat' is wrong, and 'dog' is a minor style error.
There is a major error in 'a' and a minor one in 'b'.
There is a major mistranslation and a serious omission.
There is a major error, and there is a mistake in the tense.
Two errors: 'a' is a major accuracy error.
There are two major errors: 'a', 'b' and 'c'.
'a' is a major accuracy error\n'b' too
No errors in the first sentence.
Almost no errors.
Are there no errors?
Where there is nothing to find, write no-error.
The categories are accuracy, fluency, style, terminology, non-translation, other, or no-error.
No errors in grammar.
The translation is not correct and contains no errors.
There are no major errors.
1. 2. 3. 4.
The translation is not provided.
've V' is a typo, it should be 've V'
No errors. However, 'cat' should be 'dog'.
I am not sure that there are no errors.
The translation is not free of errors.
The translation is not accurate.
No errors. The second sentence is missing.
'cat' - major/accuracy, 'dog' - minor/fluency, 'cow' - minor/style
""".replace("\n\n", "\n")
UNREADABLE = [line.replace("\\n", "\n") for line in UNREADABLE.strip().split("\n")]
"""Texts that report another number of errors than one could read, or of which nobody can be sure."""


def listed(text):
    """The errors of a text; None if it was not read."""
    reading = read_mqm(text)
    return list(reading.errors) if reading.status in ("errors", "no errors") else None


@pytest.mark.parametrize(("text", "counts"), [*READ, *((text, None) for text in (*RECORDS, *UNREADABLE))])
def test_layouts(text, counts):
    errors = listed(text)
    by_severity = [[e for e in errors or () if e.severity == s] for s in ("critical", "major", "minor")]
    assert (None if errors is None else tuple(map(len, by_severity))) == counts


def test_text_without_errors_is_classified():
    texts = {"": "empty", " \n": "empty", None: "empty", "no-error": "no errors", "See above.": "unreadable"}
    blocked = ("blocked", "The response was blocked.", "I'm sorry, but I cannot help with that.")
    texts |= dict.fromkeys(blocked, "blocked")
    assert {text: read_mqm(text).status for text in texts} == texts


UNTRANSLATED = MQMError("major", "the cat", "accuracy", "untranslated text")
ADDED = [MQMError("major", "cat", "accuracy", "addition"), MQMError("minor", None, "style")]


@pytest.mark.parametrize(("text", "errors"), [
    ("'the cat' is a major accuracy/untranslated text error", [UNTRANSLATED]),
    ('Critical:\nno-error\nMajor:\naccuracy/addition - "cat"\nMinor: style', ADDED),
    ("'it's' is a minor error", [MQMError("minor", "it's")]),
    ("There is a critical non-translation error.", [MQMError("critical", None, "non-translation")]),
])  # fmt: skip
def test_spans_and_categories(text, errors):
    assert listed(text) == errors


def test_scores_by_hand():
    errors = listed("'a' is a minor x error\n'b' is a major x error\n'c' is a critical x error")
    assert mqm_score(errors) == -11
    assert mqm_score(errors, critical=-10) == -16
    assert mqm_score(errors * 3) == -25
    assert mqm_score([]) == 0


@pytest.mark.parametrize("mark", "'\u2018`\"\u201c\u201e")
def test_a_quotation_that_breaks_off_is_no_error(mark):
    assert len(listed(f"'cat' is a minor style error\n{mark}dog and")) == 1
    assert len(listed(f"Minor:\n'cat'\n{mark}dog and")) == 1


def test_a_judge_who_adds_a_doubt_never_raises_the_score():
    """Whatever is said besides a certain report, the score stays the same or becomes undefined: it is never better."""
    report = "'cat' is a major accuracy/mistranslation error"
    for text in [*(text for text, _ in READ), *UNREADABLE]:
        errors = listed(f"{report}\n{text}")
        assert errors is None or mqm_score(errors) <= -5, text


ERRORS = ["'{}'", "'{}' (wrong)", "accuracy/omission - '{}'", "'{}': fluency/grammar", "omission of '{}'"]
ERRORS += ["'{}' is wrong"]
JOINTS = (", ", "; ", " and ", ", and ", " & ", ". ", " / ", " | ", "\n", " ")


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("heading", ["Major: ", "Major errors:\n", "Major:\n- "])
def test_errors_on_one_line_are_all_counted_or_the_text_is_undefined(n, heading):
    for layout in itertools.product(ERRORS, repeat=n):
        written = [error.format(word) for error, word in zip(layout, ("cat", "don't", "a, b"), strict=False)]
        numbered = " ".join(f"{number}. {error}" for number, error in enumerate(written, start=1))
        for text in [numbered, *(joint.join(written) for joint in JOINTS)]:
            errors = listed(heading + text)
            assert errors is None or len(errors) == n, text


@pytest.mark.parametrize("rest", ["{} too", "another in {}", "a mistranslation of {}", "{} as well", "also {}", "{}"])
@pytest.mark.parametrize("joint", [" and ", ", ", ", and ", ". Also ", "; "])
def test_an_error_without_a_severity_is_never_left_out(rest, joint):
    text = "'cat' is a major accuracy/mistranslation error" + joint + rest.format("'dog'") + "."
    assert listed(text) is None


# Long answers: small models repeat themselves up to the length limit.

READERS = {"mqm": read_mqm, "mqm section": lambda text: read_mqm(f"Major: {text}")}
READERS |= {"missing concepts": lambda text: read_missing(text, ["dog", "park", "run and jump", "a"])}
READERS |= {"named choice": lambda text: named_choice(text, ["A", "B", "tie"])}
READERS |= {"boxed answer": lambda text: same_value(boxed_answer(f"\\boxed{{{text}}}") or text, "1")}
WORST = [(one, "") for one in ("Minor/accuracy ", "major: ", "- ", "missing ", "\u2018")] + [("'", "{"), ("\n", "-")]
"""Pairs that once took quadratic or cubic time."""


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # of odd literals in what reads like a list
@pytest.mark.parametrize("name", READERS)
def test_no_reader_takes_long_for_what_a_model_repeats_up_to_the_length_limit(name):
    start = time.process_time()
    for pair in WORST:
        READERS[name](("".join(pair) * LONGEST)[:LONGEST])
    assert time.process_time() - start < 10  # well under a second; squares take minutes


def test_what_is_longer_than_any_list_is_unreadable():
    line = "'cat' is a minor style error\n"
    text = line * (LONGEST // len(line))
    assert len(read_mqm(text).errors) == LONGEST // len(line)
    assert read_missing("dog".ljust(LONGEST), ["dog"]) == ["dog"]
    assert read_mqm(text.ljust(LONGEST + 1)).status == "unreadable"
    assert read_missing("dog".ljust(LONGEST + 1), ["dog"]) is None
    assert read_mqm(" " * (LONGEST + 1)).status == "empty"


@pytest.mark.parametrize("number", ["123", "12345678", "9" * 5_000])
def test_a_number_of_errors_that_nobody_could_list_is_unreadable(number):
    assert read_mqm(f"Major ({number}):").status == "unreadable"


def test_answers_of_too_many_digits_are_texts_and_a_severity_far_from_its_words_is_undecided():
    assert same_value("1" * 5_000, "1" * 5_000)
    assert not same_value("1" * 5_000, "1")
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
