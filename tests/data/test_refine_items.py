"""Load the items of refine loops."""

import pytest

from evalbias.data import DataError
from evalbias.data.loops import loop_items


def test_items_keep_their_fields_and_get_an_id(data_dir, tmp_path):
    items, digest = loop_items(data_dir / "commongen_hard.jsonl")
    assert len(items) == 200
    assert all(20 <= len(e.concepts) <= 30 for e in items)
    assert len({e.id for e in items}) == 200
    assert len(digest) == 64
    file = tmp_path / "items.jsonl"
    file.write_text('{"source": "a"}\n\n{"source": "b"}\n')
    assert [(e.id, e.source) for e in loop_items(file)[0]] == [("1", "a"), ("3", "b")]
    file.write_text('{"id": 1}\n{"id": "1"}\n')
    with pytest.raises(DataError, match=r"items.jsonl:2: a second item with the id '1'"):
        loop_items(file)
    file.write_text("\n")
    with pytest.raises(DataError, match="holds no items"):
        loop_items(file)
