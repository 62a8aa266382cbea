"""The journal: chunks are whole or absent, whatever happens while they are written."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from evalbias.runs import journal as module
from evalbias.runs.journal import Journal, write_jsonl


def test_what_is_appended_is_read_back(tmp_path):
    journal = Journal(tmp_path / "deep/log.jsonl")
    assert journal.read() == []
    journal.append([{"a": math.nan}])
    journal.append([{"b": np.array([1.0, -np.inf])}, {"c": 3}])
    assert journal.read() == [{"a": None}, {"b": [1.0, "-Infinity"], "chunk": 2}, {"c": 3, "chunk": 2}]


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_torn_chunk_is_cut_off_whole(tmp_path, cut):
    journal = Journal(tmp_path / "log.jsonl")
    journal.append([{"first": 1}])
    whole = journal.path.read_bytes()
    journal.append([{"second": 2}, {"third": 3}])
    os.truncate(journal.path, journal.path.stat().st_size - cut)
    assert journal.read() == [{"first": 1}]
    assert journal.path.read_bytes() == whole


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "log.jsonl")
    journal.append([{"a": 1}])

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left .*log\.jsonl"):
        journal.append([{"b": 2}])
    with pytest.raises(OSError, match=r"No space left .*log\.jsonl"):
        journal.rewrite([{"b": 2}])
    assert [file.name for file in tmp_path.iterdir()] == ["log.jsonl"]
    monkeypatch.undo()
    journal.append([{"c": 3}])
    assert journal.read() == [{"a": 1}, {"c": 3}]


LIMITED = """
import resource, signal, sys
from evalbias.runs.journal import Journal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal(sys.argv[1])
journal.append([{"a": 1}])
resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))
try:
    journal.append([{"b": "x" * 30}, {"c": "y" * 30}])
except OSError:
    sys.exit(3)
"""


def test_a_write_that_ends_halfway_is_cut_back(tmp_path):
    """The system writes a part of the chunk and then refuses the rest."""
    assert subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path / "log.jsonl")], check=False).returncode == 3
    assert (tmp_path / "log.jsonl").read_text() == '{"a": 1}\n'


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"a": 1}\nnonsense\n{"b": 2}\n')
    with pytest.raises(ValueError, match=r"log\.jsonl:2 is not JSON .*delete the file to start over"):
        Journal(tmp_path / "log.jsonl").read()
    (tmp_path / "log.jsonl").write_text("[1]\n")
    with pytest.raises(ValueError, match=r"log\.jsonl:1 is not a JSON object"):
        Journal(tmp_path / "log.jsonl").read()


def test_files_are_replaced_whole(tmp_path):
    journal = Journal(tmp_path / "log.jsonl")
    journal.append([{"a": 1}, {"a": 2}])
    journal.rewrite([{"a": 9}])
    assert journal.read() == [{"a": 9}]
    write_jsonl(tmp_path / "rows.jsonl", [{"x": math.inf}, {"x": "\u2028"}])
    rows = (tmp_path / "rows.jsonl").read_text(encoding="utf-8").split("\n")
    assert [json.loads(row) for row in rows if row] == [{"x": "Infinity"}, {"x": "\u2028"}]
    assert {file.name for file in tmp_path.iterdir()} == {"log.jsonl", "rows.jsonl"}
