"""Load items of refine loops: JSONL, parallel files, and mathematics problems."""

import json

import pytest

from evalbias.data import DataError
from evalbias.data.refinements import load_items, load_mathematics, load_parallel


def test_items_keep_their_fields_and_get_an_id(data_dir, tmp_path):
    items, digest = load_items(data_dir / "commongen_hard.jsonl")
    assert len(items) == 200
    assert all(20 <= len(e.concepts) <= 30 for e in items)
    assert len({e.id for e in items}) == 200
    assert len(digest) == 64
    file = tmp_path / "items.jsonl"
    file.write_text('{"source": "a"}\n\n{"source": "b"}\n')
    assert [(e.id, e.source) for e in load_items(file)[0]] == [("1", "a"), ("3", "b")]
    file.write_text('{"id": 1}\n{"id": "1"}\n')
    with pytest.raises(DataError, match=r"items.jsonl:2: a second item with the id '1'"):
        load_items(file)
    file.write_text("\n")
    with pytest.raises(DataError, match="holds no items"):
        load_items(file)


def test_parallel_files_are_read_line_by_line(tmp_path):
    (tmp_path / "yor").write_text("bawo\nodaro\u2028kan\n", encoding="utf-8")
    (tmp_path / "eng").write_text("hello\ngood night\n", encoding="utf-8")
    items = load_parallel(tmp_path / "yor", tmp_path / "eng", target_language="English")
    assert [(e.id, e.source, e.reference, e.target_language) for e in items] == [
        ("1", "bawo", "hello", "English"),
        ("2", "odaro\u2028kan", "good night", "English"),
    ]
    (tmp_path / "eng").write_text("hello\n")
    with pytest.raises(DataError, match=r"has 2 lines, .*eng has 1"):
        load_parallel(tmp_path / "yor", tmp_path / "eng", target_language="English")


def test_the_answer_is_in_the_last_box_of_the_solution(tmp_path):
    file = tmp_path / "math.jsonl"
    rows = [
        {"problem": "1+1?", "solution": r"\boxed{3}, no: \boxed{2}", "level": "1"},
        {"problem": "half?", "answer": "1/2", "id": "h"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    items = load_mathematics(file)
    assert [(e.id, e.source, e.answer) for e in items] == [("1", "1+1?", "2"), ("h", "half?", "1/2")]
    file.write_text('{"problem": "p", "solution": "no box"}\n')
    with pytest.raises(DataError, match=r"math.jsonl:1: a problem needs"):
        load_mathematics(file)
