"""A corpus that another program writes to while it is judged."""

import json
import re

import pytest

from evalbias.data import DataError
from evalbias.data.files import file_chunks
from evalbias.data.reading import read_chunks


def test_a_corpus_that_changes_under_a_run_is_noticed_where_it_is_read(tmp_path):
    file = tmp_path / "items.jsonl"

    def write(changed, text):
        rows = [{"source": "s", "output": text if n == changed else f"o{n}"} for n in range(10)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    write(None, "")
    located, _ = file_chunks(file, 3)
    assert [(c.line, c.lines) for c in located] == [(1, 3), (4, 3), (7, 3), (10, 1)]
    write(4, "x4")  # as long as before
    assert [e.output for e in read_chunks(file, located[2:])] == ["o6", "o7", "o8", "o9"]
    message = f"{file} has changed since the run began (lines 4 to 6): restore the file, or start over in a new folder"
    for some in (located, located[:2], located[1:2]):
        with pytest.raises(DataError, match=re.escape(message)):
            read_chunks(file, some)
    file.write_text("")
    with pytest.raises(DataError, match=r"has changed since the run began \(lines 10 to 10\)"):
        read_chunks(file, located[3:])
