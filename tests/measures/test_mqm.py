import math

import pytest

from evalbias.measures import MQMError, mqm_score, parse_mqm, read_mqm
from evalbias.measures.mqm_verdicts import verdict
from evalbias.measures.quotations import mask_quotations, quoted


@pytest.mark.parametrize(
    ("text", "severities"),
    [
        ("'cat' is a major accuracy/mistranslation error", ["major"]),
        ("'a' is a minor fluency/grammar error\n'b' is a critical accuracy/omission error", ["minor", "critical"]),
        ("\"a\" is a minor style error; 'b' is a Major terminology error.", ["minor", "major"]),
        ("'it's' is a minor fluency/spelling error", ["minor"]),
        ("'is highly critical' is a major accuracy/mistranslation error", ["major"]),
        ("'10 major projects' is a minor accuracy/addition error", ["minor"]),
        ("No major errors. One minor fluency/punctuation error is the missing comma.", ["minor"]),
        ("No major errors, but there is a minor fluency/spelling error.", ["minor"]),
        ("There are no problems, but a major accuracy error", ["major"]),
        ("\u2018wort\u2019 is considered a minor accuracy/addition error", ["minor"]),
        ("'word' (major accuracy/mistranslation)", ["major"]),
        ("'word': minor fluency", ["minor"]),
        ("'word' is a minor flu", ["minor"]),  # cut off by the length limit
        ("The source is not a valid input, so there is a critical non-translation error.", ["critical"]),
    ],
)
def test_errors_in_the_shapes_that_models_write(text, severities):
    assert [e.severity for e in read_mqm(text).errors] == severities


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("no-error", "no errors"),
        ("No errors.", "no errors"),
        ("There are no errors in the translation.", "no errors"),
        ("There are no major errors.", "unreadable"),  # nothing is said of minor ones
        ("no critical or major errors", "unreadable"),
        ("no critical, major or minor errors", "no errors"),
        ("none", "no errors"),
        ("None found.", "no errors"),
        ("The translation is correct and contains no errors.", "no errors"),
        ("The translation does not contain any errors.", "no errors"),
        ("", "empty"),
        (" \n", "empty"),
        (None, "empty"),
        ("blocked", "blocked"),
        ("The response was blocked.", "blocked"),
        ("I'm sorry, but I cannot help with that.", "blocked"),
        ("1. 2. 3. 4.", "unreadable"),
        ("The translation is not provided.", "unreadable"),
        ("'ve V' is a typo, it should be 've V'", "unreadable"),  # an error without a severity
    ],
)
def test_text_without_errors_is_classified(text, status):
    assert read_mqm(text).status == status
    assert parse_mqm(text) == ([] if status == "no errors" else None)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The translation has no errors", "none"),
        ("The translation has no errors in grammar", "unsure"),  # and elsewhere?
        ("There is an error in the tense", "unsure"),
        ("I am unable to answer", "blocked"),
        ("The translation is accurate", "label"),
        ("Here are the errors", "label"),
        ("Explanation: the word is missing", "label"),
        ("...", "label"),
        ("The sentence is long", "other"),
        ("There are no other errors", "other"),
        ("This error changes the meaning", "other"),
    ],
)
def test_sentences_without_a_severity(sentence, expected):
    assert verdict(sentence) == expected


def test_location_category_and_severity_are_read():
    (error,) = parse_mqm("'the cat' is a major accuracy/untranslated text error")
    assert error == MQMError("major", "the cat", "accuracy", "untranslated text")
    (bare,) = parse_mqm("a minor locale convention error")
    assert bare == MQMError("minor", None, "locale convention", "")


def test_scores_by_hand():
    errors = parse_mqm("'a' is a minor x error\n'b' is a major x error\n'c' is a critical x error")
    assert mqm_score(errors) == -11
    assert mqm_score(errors, critical=-10) == -16
    assert mqm_score(errors * 3) == -25
    assert mqm_score(errors * 3, floor=-100) == -33
    assert mqm_score([]) == 0
    assert math.isnan(mqm_score(parse_mqm("")))


def test_other_wordings_of_the_same_verdict():
    assert read_mqm("I cannot find any errors.").status == "no errors"
    assert read_mqm('"no-error"').status == "no errors"
    assert read_mqm("I cannot help with that.").status == "blocked"
    (error,) = read_mqm("'cat' is an accuracy error (major).").errors
    assert (error.severity, error.span, error.category) == ("major", "cat", "accuracy")


def test_a_quotation_ends_where_the_sentence_goes_on_or_the_line_ends():
    for text in ("'the dogs' house' is wrong", "'the dogs' house' IS WRONG", "'the dogs' house'\nThe rest"):
        masked, spans = mask_quotations(text)
        assert spans == ["the dogs' house"]
        assert quoted(masked[0], spans) == "the dogs' house"
    assert mask_quotations("'a' is MAJOR, 'b' is minor")[1] == ["a", "b"]


@pytest.mark.parametrize("mark", "'\u2018\u201a`\u00b4\"\u201c\u201e\u00ab")
def test_a_quotation_that_breaks_off_is_no_error(mark):
    assert len(parse_mqm(f"'cat' is a minor style error\n{mark}dog and")) == 1
    assert len(parse_mqm(f"Minor:\n'cat'\n{mark}dog and")) == 1
