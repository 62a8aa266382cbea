"""Reports of InstructScore, read by hand."""

import pytest

from evalbias.measures import MQMError
from evalbias.measures.mqm import read_instructscore

MAJOR = 'Error type 1: Incorrect translation is missing content\nMajor/minor: Major\nError location 1: "the dog"\n'
MINOR = "Error type 2: awkward\nMajor/minor: Minor\nError location 2:\nExplanation for error 2: a matter of taste\n"
ERRORS = (
    MQMError("major", "the dog", "Incorrect translation is missing content"),
    MQMError("minor", None, "awkward"),
)


@pytest.mark.parametrize(
    ("report", "errors"),
    [
        (f"Your Translation contains 2 errors:\n{MAJOR}{MINOR}", ERRORS),
        (f"Your translation contains one error:\n{MAJOR}", ERRORS[:1]),
        (MAJOR + MINOR, ERRORS),  # announces nothing
        ("Error type 1: style\nMajor/minor: minor", (MQMError("minor", None, "style"),)),  # no location
    ],
)
def test_errors_have_a_place_a_kind_and_a_severity(report, errors):
    reading = read_instructscore(report)
    assert (reading.status, reading.errors) == ("errors", errors)


@pytest.mark.parametrize(
    ("report", "status"),
    [
        ("Your Translation contains 0 errors:", "no errors"),
        ("Your Translation contains no errors.", "no errors"),
        ("I cannot judge this.", "unreadable"),
        (f"Your Translation contains three errors:\n{MAJOR}{MINOR}", "unreadable"),
        ("Your Translation contains 1 error:\n" + MAJOR.replace("Major\n", "Major or Minor\n"), "unreadable"),
        (" \n", "empty"),
        (None, "empty"),
    ],
)
def test_a_report_without_errors_is_classified(report, status):
    reading = read_instructscore(report)
    assert (reading.status, reading.errors) == (status, ())
