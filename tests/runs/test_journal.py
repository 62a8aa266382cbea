"""The journal: chunks are whole or absent, whatever happens while they are written."""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from evalbias import runs as module
from evalbias.runs import Journal, write_json, write_jsonl


def test_what_is_appended_is_read_back(tmp_path):
    journal = Journal(tmp_path / "deep/log.jsonl")
    assert journal.read() == []
    journal.append([{"a": math.nan}])
    journal.append([{"b": np.array([1.0, -np.inf])}, {"c": 3}])
    assert journal.read() == [{"a": None}, {"b": [1.0, "-Infinity"], "chunk": 2}, {"c": 3, "chunk": 2}]


def test_a_torn_chunk_is_set_aside_whole(tmp_path):
    for cut in range(1, 88):
        journal = Journal(tmp_path / f"{cut}/log.jsonl")
        journal.append([{"first": 1}])
        whole = journal.path.read_bytes()
        journal.append([{"second": 2}, {"third": 3}])
        os.truncate(journal.path, journal.path.stat().st_size - cut)
        left = journal.path.read_bytes()
        resumed = Journal(journal.path)
        kept = resumed.read()
        assert journal.path.read_bytes() == left  # whoever reads need not hold the lock
        assert kept == ([{"first": 1}] if cut > 1 else journal.read())  # without its newline, a record is whole
        resumed.append([{"fourth": 4}])
        assert Journal(journal.path).read() == [*kept, {"fourth": 4}]
        aside = journal.path.with_name("log.jsonl.torn")
        assert (aside.read_bytes() if aside.exists() else b"") == (left[len(whole) :] + b"\n" if cut > 1 else b"")


@pytest.mark.parametrize("content", [
    b'[{"key": 1}, {"key": 2}]', b"my notes", b'{"my": "notes"}', b'{"my": "no', b"\x00" * 9, b"[" * 10_000 + b"\n"
])  # fmt: skip
@pytest.mark.parametrize("first", ["read", "append"])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path, content, first):
    file = tmp_path / "notes.jsonl"
    file.write_bytes(content)
    journal = Journal(file)
    with pytest.raises(ValueError, match=r"notes\.jsonl:1 is no"):
        journal.read("key")
    if content != b'{"my": "no':  # which a kill may have left of a record, if no key is required
        with pytest.raises(ValueError, match=r"notes\.jsonl:1 is no"):
            Journal(file).append([{"key": 1}])
    assert file.read_bytes() == content
    assert [f.name for f in tmp_path.iterdir()] == ["notes.jsonl"]


@pytest.mark.parametrize("length", ["20", "0", "-1", "true", "null", '"x"', "[]", "2.0", "1e9", "NaN"])
@pytest.mark.parametrize("place", [0, 1])
def test_records_of_a_chunk_agree_on_its_length(tmp_path, length, place):
    lines = ['{"a": 1, "chunk": 2}\n', '{"a": 2, "chunk": 2}\n', '{"a": 3}\n']
    lines[place] = lines[place].replace("2}", f"{length}}}")
    lines = [module._checked(line) for line in lines]
    (tmp_path / "log.jsonl").write_text("".join(lines))
    with pytest.raises(ValueError, match=r"log\.jsonl:[12] is damaged \(its chunk has .* records"):
        Journal(tmp_path / "log.jsonl").read()
    assert (tmp_path / "log.jsonl").read_text() == "".join(lines)


@pytest.mark.parametrize(("line", "told"), [
    (None, r"damaged \(its checksum differs\): delete the line"),  # a changed digit
    ('{"score": 4.5, "crc": "0123456x"}', r"damaged \(its checksum differs\): delete the line"),
    ('{"scor": 4.5, "crc": "01234567"}', r"damaged \(its checksum differs\): delete the line"),
    ("nonsense", "not JSON .*delete the file to start over"),
    ("[1]", "not a JSON object: delete the file to start over"),
    ('{"score": 4.5}', r"no record of this log, it lacks \['crc'\]: delete the file"),
    ('{"n": 4.5}', r"no record of this log, it lacks \['score', 'crc'\]: delete the file"),
])  # fmt: skip
def test_a_damaged_line_is_named(tmp_path, line, told):
    journal = Journal(tmp_path / "log.jsonl")
    journal.append([{"score": 1.25}])
    journal.append([{"score": 4.5}])
    first, second = journal.path.read_text().splitlines()
    journal.path.write_text(f"{first}\n{line or second.replace('4.5', '4.7')}\n{first}\n")
    with pytest.raises(ValueError, match=rf"log\.jsonl:2 is {told}"):
        journal.read("score")


@pytest.mark.parametrize("place", [1, 2, 3])
def test_after_what_a_damaged_line_asks_for_the_other_chunks_are_read(tmp_path, place):
    journal = Journal(tmp_path / "log.jsonl")
    for chunk in ([0], [1, 2, 3], [4, 5]):
        journal.append([{"n": n} for n in chunk])
    lines = journal.path.read_text().splitlines(keepends=True)
    lines[place] = lines[place].replace(str(place), "9", 1)
    journal.path.write_text("".join(lines))
    with pytest.raises(ValueError, match=rf"jsonl:{place + 1} is damaged .*: delete the lines 2 to 4, which were"):
        journal.read()
    journal.path.write_text("".join(lines[:1] + lines[4:]))
    assert [record["n"] for record in journal.read()] == [0, 4, 5]


class JournalMachine(RuleBasedStateMachine):
    """A log that is appended to, killed, damaged and read, against a list of its records."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="evalbias-journal-")
        self.path = Path(self.folder.name) / "log.jsonl"
        self.journal, self.records, self.count = Journal(self.path), [], 0

    def teardown(self):
        self.folder.cleanup()

    def appended(self, length):
        new = [{"n": self.count + i, "text": "\u2028\n\x85"} for i in range(length)]
        self.count += length
        with mock.patch.object(module.os, "fsync"):
            self.journal.append(new)
        return new

    @rule(length=st.integers(1, 4))
    def append(self, length):
        self.records += self.appended(length)

    @rule(length=st.integers(1, 4), data=st.data())
    def kill(self, length, data):
        """End in the middle of an append: the file holds a beginning of the chunk."""
        new = self.appended(length)
        size = self.path.stat().st_size
        chunk = sum(len(line) + 1 for line in self.path.read_bytes().split(b"\n")[:-1][-length:])
        cut = data.draw(st.integers(1, chunk))
        os.truncate(self.path, size - cut)
        self.records += new if cut == 1 else []
        self.journal = Journal(self.path)

    @rule()
    def reopen(self):
        self.journal = Journal(self.path)

    @rule(data=st.data())
    def flip(self, data):
        """A damaged copy is refused, or nothing but its last chunk is missing."""
        content = bytearray(self.path.read_bytes() if self.path.exists() else b"")
        if not content:
            return
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        copy = self.path.with_name("copy.jsonl")
        copy.write_bytes(content)
        try:
            found = [record["n"] for record in Journal(copy).read("n")]
        except ValueError as error:
            assert "copy.jsonl:" in str(error)  # noqa: PT017
        else:
            all_numbers = [record["n"] for record in self.records]
            assert found == all_numbers[: len(found)]
            assert len(found) >= len(all_numbers) - 4
        assert copy.read_bytes() == content

    @invariant()
    def what_is_whole_is_read(self):
        before = self.path.read_bytes() if self.path.exists() else b""
        read = Journal(self.path).read("n")
        assert [(r["n"], r["text"]) for r in read] == [(r["n"], r["text"]) for r in self.records]
        assert (self.path.read_bytes() if self.path.exists() else b"") == before


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(stateful_step_count=12)


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "log.jsonl")
    journal.append([{"a": 1}])
    monkeypatch.setattr(module.os, "fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match=r"No space left .*log\.jsonl"):
        journal.append([{"b": 2}])
    with pytest.raises(OSError, match=r"No space left .*log\.jsonl"):
        write_jsonl(journal.path, [{"b": 2}])
    assert [file.name for file in tmp_path.iterdir()] == ["log.jsonl"]
    monkeypatch.undo()
    journal.append([{"c": 3}])
    assert journal.read() == [{"a": 1}, {"c": 3}]


LIMITED = """
import resource, signal, sys
from evalbias.runs import Journal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal(sys.argv[1])
journal.append([{"a": 1}])
resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))
try:
    journal.append([{"b": "x" * 30}, {"c": "y" * 30}])
except OSError:
    sys.exit(3)
"""


def test_an_interrupt_while_the_disk_is_waited_for_loses_no_whole_chunk(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "log.jsonl")
    monkeypatch.setattr(module.os, "fsync", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        journal.append([{"k": 1}, {"k": 2}])
    assert Journal(journal.path).read() == [{"k": 1, "chunk": 2}, {"k": 2, "chunk": 2}]


def test_a_write_that_ends_halfway_is_cut_back(tmp_path):
    """The system writes a part of the chunk and then refuses the rest."""
    assert subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path / "log.jsonl")], check=False).returncode == 3
    assert Journal(tmp_path / "log.jsonl").read() == [{"a": 1}]
    assert (tmp_path / "log.jsonl").read_bytes().count(b"\n") == 1


def test_files_are_replaced_whole(tmp_path):
    write_jsonl(tmp_path / "rows.jsonl", [{"x": 1}] * 3)
    write_jsonl(tmp_path / "rows.jsonl", [{"x": math.inf}, {"x": "\u2028"}])
    rows = (tmp_path / "rows.jsonl").read_text(encoding="utf-8").split("\n")
    assert [json.loads(row) for row in rows if row] == [{"x": "Infinity"}, {"x": "\u2028"}]
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_table_of_numbers_is_written_a_row_a_line(tmp_path):
    content = {"a": [[1.5, None], [3, 4]], "b": [["x], [y"], [1]], "c": [[[1], [2]], [[3]]]}
    content |= {"d": [{"e": [[]]}, [1, [2]]]}
    write_json(tmp_path / "table.json", content)
    text = (tmp_path / "table.json").read_text(encoding="utf-8")
    assert json.loads(text) == content
    assert text.startswith('{\n  "a": [\n    [1.5, null],\n    [3, 4]\n  ],\n  "b": [\n    [\n      "x], [y"\n    ],\n')


def test_a_draft_is_not_written_through_a_link(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "log.jsonl.part").symlink_to(tmp_path / "precious")
    write_jsonl(tmp_path / "log.jsonl", [{"a": 1}])
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "log.jsonl").read_text() == '{"a": 1}\n'
    torn = module._checked('{"a": 1}\n') + '{"a'
    (tmp_path / "log.jsonl").write_text(torn)
    (tmp_path / "log.jsonl.torn").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=r"log\.jsonl\.torn"):
        Journal(tmp_path / "log.jsonl").append([{"a": 2}])
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "log.jsonl").read_text() == torn
