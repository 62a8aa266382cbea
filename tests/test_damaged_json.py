"""A JSON file that a user names, or that a run left, is named in the error if it is damaged."""

import pytest

from evalbias.lm.files import check_json_files
from evalbias.lm.load import check_adapter
from evalbias.programs.files import load
from evalbias.runs import read_run
from evalbias.values import read_json

CONTENTS = [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"n": ' + b"9" * 5000 + b"}", b"[]", b"3"]


def adapter(file):
    (file.parent / "adapter_model.safetensors").write_bytes(b"")
    check_adapter(str(file.parent))


def damage(file):
    raise ValueError(read_run(file.parent).damage)


READERS = [(read_json, "x.json"), (load, "x.json")]
READERS += [(lambda file: check_json_files(file.parent), "config.json"), (adapter, "adapter_config.json")]
READERS += [(damage, "run.json")]


@pytest.mark.parametrize(("read", "name"), READERS)
def test_a_damaged_file_is_named(tmp_path, read, name):
    file = tmp_path / name
    for content in CONTENTS:
        file.write_bytes(content + b"\n")
        with pytest.raises(ValueError, match=rf"{name}.*: |{name} (is not a quantile map|holds nothing)") as raised:
            read(file)
        assert len(str(raised.value)) < 500


def test_a_byte_order_mark_is_no_damage(tmp_path):
    (tmp_path / "x.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(tmp_path / "x.json") == {"a": 1}
