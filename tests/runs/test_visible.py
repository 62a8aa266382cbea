"""Texts as they may be shown: nothing in them is a command, and what is written in any script stays readable."""

import io
import logging
from pathlib import Path

import hostile
from hypothesis import given
from hypothesis import strategies as st

from evalbias.cli.terminal import LeavableStream
from evalbias.values import get_logger, message, visible


def test_commands_to_a_terminal_become_visible():
    assert visible("a\tb\nc\x00\x1b\x85é\ud83d") == "a\tb\nc\ufffd\ufffd\ufffdé\ufffd"
    assert visible("\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\U000e0000\U000e007f\ufffe") == "\ufffd" * 12
    whole = "שלום عليكم می‌خواهم 👩‍👧 naïve 中文 :: ##"  # with joiners, which shape letters
    assert visible(whole) == whole


def test_a_message_has_one_beginning():
    assert message("The answer is\nevalbias: fine") == "The answer is\n  evalbias: fine"
    assert message("::error::a\n \u00a0::b::c") == "\ufffd:error::a\n   \u00a0\ufffd:b::c"  # GitHub trims lines
    assert message("x ##[error]##vso[a]###[b] std::vector") == "x #\ufffd[error]#\ufffdvso[a]##\ufffd[b] std::vector"


@given(hostile.TEXTS)
def test_no_text_is_a_command(text):
    hostile.check_printed(message(text))
    assert hostile.obeyed(visible(text)) == []


@given(st.lists(hostile.TEXTS))
def test_nothing_that_is_written_is_a_command(texts):
    file = io.StringIO()
    stream = LeavableStream(file)
    for text in texts:
        assert stream.write(text) == len(text)
    hostile.check_printed(file.getvalue())


def test_a_line_that_has_begun_keeps_its_colons():
    file = io.StringIO()
    stream = LeavableStream(file)
    for text in ("std", "::", "vector\n", " ", "::", "error::\n"):
        stream.write(text)
    assert file.getvalue() == "std::vector\n \ufffd:error::\n"


def test_what_is_logged_is_a_message_whatever_the_handler(caplog):
    file = io.StringIO()
    handler, logger = logging.StreamHandler(file), get_logger("evalbias.programs.any")
    logger.addHandler(handler)
    logger.warning("status %d, %s", 400, hostile.WORST)
    logger.removeHandler(handler)
    logging.getLogger("another.evalbias").warning("%s", "\x1b[2J")
    hostile.check_printed(file.getvalue())
    ours, others = (record.getMessage() for record in caplog.records)
    hostile.check_printed(ours)
    assert ours.startswith("status 400, ::error::a\n  ")
    assert others == "\x1b[2J"  # not ours to change


def test_every_logger_of_ours_is_one_of_those():
    root = Path(__file__).parents[2]
    files = [file for top in ("evalbias", "programs", "optimizers") for file in (root / top).rglob("*.py")]
    makers = {file.name for file in files if "getLogger(__name__)" in file.read_text(encoding="utf-8")}
    assert files
    assert makers == set()
