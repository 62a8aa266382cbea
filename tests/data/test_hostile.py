"""Files that somebody else made: odd values, damaged bytes, and small ones that unpack to much."""

import contextlib
import datetime
import decimal
import gzip
import io
import json
import random
import re
import time
import tracemalloc
import zipfile
from pathlib import Path

import pandas
import pyarrow
import pyarrow.parquet
import pytest

import evalbias
from evalbias import data
from evalbias.data import DataError
from evalbias.data.files import Source, check_unpacked, parquet_rows
from evalbias.data.items import remedy_for

ROW = {"source": "s", "output": "o", "score": 1}


def read(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return data.read(path)


def parquet(**columns):
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


@pytest.mark.parametrize(("field", "message"), [
    ({"system": "a\ud800"}, "'system' holds the lone surrogate U+D800 at character 2"),
    ({"input_id": "\ud800"}, "'input_id' holds the lone surrogate U+D800 at character 1"),
    ({"b\udfff": 1}, r"'b\udfff' holds the lone surrogate U+DFFF at character 2"),
    ({"ratings": {"w\ud800": [1]}}, "'ratings' holds the lone surrogate U+D800;"),
    ({"x": [{"y": ["\ud800"]}]}, "'x' holds the lone surrogate U+D800;"),
])  # fmt: skip
def test_a_lone_surrogate_in_any_field_is_named(tmp_path, field, message):
    with pytest.raises(DataError, match=re.escape(f"list, row 1: {message}")):
        data.read([ROW | field])
    for name, content in (("a.jsonl", json.dumps(ROW | field)), ("a.json", json.dumps([ROW | field]))):
        with pytest.raises(DataError, match=rf"{name}(:1|\[0\]): " + re.escape(message)):
            read(tmp_path, name, content)


STRICT = [('{""q"": 1, ""q"": 5}', "'q' stands twice in one object"), ('{""q"": NaN}', "NaN is not a JSON value")]
STRICT += [('{""\\ud800"": 1}', "holds the lone surrogate U+D800"), ("[" * 5000, "maximum recursion depth")]
STRICT += [('{""q"": ' + "9" * 5000 + "}", "Exceeds the limit")]


@pytest.mark.parametrize(("cell", "problem"), STRICT)
def test_json_in_a_cell_is_as_strict_as_in_a_file(tmp_path, cell, problem):
    with pytest.raises(DataError, match=rf"a\.csv:2: 'scores' .*{re.escape(problem)}"):
        read(tmp_path, "a.csv", f'source,output,scores\ns,o,"{cell}"\n')


def test_only_plain_digits_of_a_size_that_a_number_can_have_are_numbers(tmp_path):
    for cell in ("9" * 5000, "1\u0663", "\uff11"):
        with pytest.raises(DataError, match=r"a\.csv:2: 'score' is '"):
            read(tmp_path, "a.csv", f"source,output,score\ns,o,{cell}\ns,p,2\n")
        assert read(tmp_path, "a.csv", f"source,output,bits\ns,o,{cell}\ns,p,2\n")[0].bits == cell
    (item,) = read(tmp_path, "a.csv", f"source,output,rating_{'1' * 5000},rating_\u0663,rating_2\ns,o,1,2,3\n")
    assert item.ratings == [3]


@pytest.mark.parametrize("field", ["source", "score", "js", "system", "input_id", "ratings", "extra"])
def test_pandas_na_in_dicts_is_undefined_as_in_a_data_frame(field):
    rows = [{"id": str(n), "source": f"s{n % 5}", "output": "w " * (n % 7 + 1)} for n in range(20)]
    rows = [{**row, "score": n % 5, "js": n % 4, "system": "ab"[n % 2]} for n, row in enumerate(rows)]
    rows[3][field] = [3, pandas.NA] if field == "ratings" else pandas.NA
    (item,) = [e for e in data.read(rows, numbers=["js"]) if e.id == "3"]
    if field == "ratings":
        assert item.ratings == pytest.approx([3, float("nan")], nan_ok=True)
    elif field == "score":
        assert item.score != item.score
    else:
        assert item.get(field) is None
    evalbias.audit(rows, scores_field="js")
    pair = {"source": "s", "outputs": ["a", "b"], "better": pandas.NA, "when": pandas.NaT}
    assert data.read([pair])[0].toDict().items() >= {"better": None, "when": None}.items()


MAP = pyarrow.map_("str", "str")
NESTED = {
    "source": [f"What is {n // 9}?" for n in range(50)],
    "texts": [["x" * n, None] if n % 3 else None for n in range(50)],
    "record": [{"q": 1.5, "r": {"z": [f"t{n}"]}} if n % 2 else None for n in range(50)],
    "map": pyarrow.array([[(f"k{n}", "v")] * (n % 3) if n % 5 else None for n in range(50)], MAP),
    "two": pyarrow.array([["a", f"b{n}"] for n in range(50)], pyarrow.list_(pyarrow.string(), 2)),
    "shared": pyarrow.array(["u", "v"] * 25).dictionary_encode(),
    "large": pyarrow.array([f"{n}" for n in range(50)], pyarrow.large_string()),
    "bytes": [b"\xff", None] * 25,
    "fixed": pyarrow.array([b"1234"] * 50, pyarrow.binary(4)),
    "number": [decimal.Decimal("1.5")] * 50,
    "when": [datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)] * 50,
    "empty": pyarrow.nulls(50),
}

DELTA = {"column_encoding": {"source": "DELTA_BYTE_ARRAY"}}


@pytest.mark.parametrize("options", [
    {}, {"row_group_size": 7}, *({"use_dictionary": False, **more} for more in ({"store_schema": False}, DELTA))
])  # fmt: skip
def test_parquet_read_in_pieces_is_the_same_table(tmp_path, options):
    pyarrow.parquet.write_table(pyarrow.table(NESTED), tmp_path / "a.parquet", **options)
    rows = dict(parquet_rows(Source("parquet", tmp_path / "a.parquet")))
    assert list(rows.values()) == pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert list(rows)[-1] == f"{tmp_path / 'a.parquet'}, row 50"


def test_a_parquet_column_that_python_cannot_hold_is_named(tmp_path):
    late = pyarrow.array([2**60], pyarrow.timestamp("us"))
    with pytest.raises(DataError, match=r"a\.parquet, rows 1 to 1: 'when' cannot be read \(.*\); correct the column"):
        read(tmp_path, "a.parquet", parquet(source=["s"], output=["o"], when=late))
    bad = pyarrow.array([b"\xff\xfe"]).view(pyarrow.string())
    with pytest.raises(DataError, match=r"a\.parquet, rows 1 to 1: 'source' cannot be read \('utf-8' codec"):
        read(tmp_path, "a.parquet", parquet(source=bad, output=["o"]))
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table([["s"], ["o"], ["p"]], names=["source", "output", "output"]), file)
    with pytest.raises(DataError, match=r"a\.parquet has several columns named 'output'; give each its own name"):
        read(tmp_path, "a.parquet", file.getvalue())


def test_a_small_file_may_unpack_to_a_hundred_times_its_size(tmp_path, monkeypatch):
    path, remedy = tmp_path / "a", "set the environment variable EVALBIAS_UNPACKED_GB=8"
    for packed, most in ((1, 256e6), (10e6, 1000e6), (100e6, 2000e6)):
        check_unpacked(int(most), int(packed), path)
        with pytest.raises(DataError, match=rf"a has .* MB and unpacks to more than {most / 1e6:.0f} MB.*{remedy}"):
            check_unpacked(int(most) + 1, int(packed), path)
    monkeypatch.setenv("EVALBIAS_UNPACKED_GB", "0.003")
    long = "source,output\n" + "s," + "x" * 2_900_000 + "\n"
    assert len(read(tmp_path, "a.csv.gz", gzip.compress(long.encode()))) == 1
    with pytest.raises(DataError, match=r"a\.csv\.gz has 0\.00\d+ MB and unpacks to more than 3 MB"):
        read(tmp_path, "a.csv.gz", gzip.compress(long.encode() * 2))
    monkeypatch.setenv("EVALBIAS_UNPACKED_GB", "lots")
    with pytest.raises(ValueError, match="EVALBIAS_UNPACKED_GB is 'lots': give a number of gigabytes"):
        read(tmp_path, "a.csv.gz", gzip.compress(long.encode()))


def repeated(value, rows, kind):
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows, kind), pyarrow.array([value]))


SHARED = repeated("v" * 100_000, 10_000, pyarrow.int32())
BOMBS = {  # what makes each, because it takes a second of every process that collects these tests
    "text": lambda: SHARED,
    "list": lambda: pyarrow.ListArray.from_arrays(pyarrow.array(range(10_001), pyarrow.int32()), SHARED),
    "record": lambda: pyarrow.StructArray.from_arrays([SHARED], ["a"]),
    "rows": lambda: repeated("v", 5_000_000, pyarrow.int32()),
    "nulls": lambda: pyarrow.array([[None] * 5_000_000], pyarrow.list_(pyarrow.int64())),
    "bytes": lambda: pyarrow.array([b"x" * 100_000] * 3000, pyarrow.binary(100_000)),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_parquet_file_of_kilobytes_that_unpacks_to_gigabytes_is_refused(tmp_path, kind):
    content = parquet(source=BOMBS[kind]())
    assert len(content) < 100_000
    allocated = pyarrow.total_allocated_bytes()
    with pytest.raises(DataError, match=r"a\.parquet has 0\.0.* MB and unpacks to more than 256 MB"):
        read(tmp_path, "a.parquet", content)
    assert pyarrow.total_allocated_bytes() - allocated < 1e8


def zipped(method, size, stated):
    """Return an archive of Inspect whose header is longer than it says."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("header.json", b" " * size)
    raw, number = file.getvalue(), size.to_bytes(4, "little")
    assert raw.count(number) == 2
    return raw.replace(number, stated.to_bytes(4, "little"))


@pytest.mark.parametrize(("method", "stated", "message"), [
    (zipfile.ZIP_DEFLATED, 20_000_000, r"a\.eval has 0\.\d+ MB and unpacks to more than 3 MB"),
    (zipfile.ZIP_DEFLATED, 100, r"a\.eval is damaged"),
    (zipfile.ZIP_BZIP2, 100, r"a\.eval is damaged .*method 12"),
    (zipfile.ZIP_LZMA, 100, r"a\.eval is damaged .*method 14"),
])  # fmt: skip
def test_an_archive_that_states_a_false_size_takes_no_memory(tmp_path, monkeypatch, method, stated, message):
    monkeypatch.setenv("EVALBIAS_UNPACKED_GB", "0.003")
    (tmp_path / "a.eval").write_bytes(zipped(method, 20_000_000, stated))
    tracemalloc.start()
    with pytest.raises(DataError, match=message):
        data.read(f"inspect:{tmp_path}/a.eval")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 15e6


def test_errors_stay_short(tmp_path):
    long = "x" * 1_000_000
    wide = ",".join(f"column {n}" for n in range(10_000)) + "\n"
    twice = (json.dumps({**ROW, "id": long}) + "\n") * 2
    tables = [wide + "1," * 9_999 + "1\n", f"source,{long},{long}\n"]
    tables += [f"source,output,score\ns,o,{'1' * 1000} {long}\ns,p,2\n"]
    lines = [twice, f'{{"{long}": 1, "{long}": 2}}', json.dumps({**ROW, "scores": {long: "x"}})]
    lines += [json.dumps({**ROW, long: "\ud800"})]
    for name, content in (*(("a.csv", one) for one in tables), *(("a.jsonl", one) for one in lines)):
        with pytest.raises(DataError, match=name) as raised:
            read(tmp_path, name, content)
        assert len(str(raised.value)) < 1500 + len(str(tmp_path))


GROWING = {
    "wide header": (50_000, lambda n: ("a.csv", ",".join(f"c{i}" for i in range(n)) + "\n")),
    "repeated name": (50_000, lambda n: ("a.jsonl", "{" + ",".join(f'"c{i}":1' for i in range(n)) + ',"c0":2}\n')),
    "many rows": (2_000, lambda n: ("a.jsonl", "".join(f'{{"id":"i{i}","output":"o"}}\n' for i in range(n)))),
    "long cell": (100_000, lambda n: ("a.csv", f"source,output,score,x\ns,{'word ' * n},1{' ' * n}2,{'1' * n}\n" * 2)),
    "deep": (1_000_000, lambda n: ("a.jsonl", '{"x": ' + "[" * n)),
    "packed": (2_000, lambda n: ("a.csv.gz", gzip.compress(b"source,output\n" + b"s,o\n" * n))),
    "nested texts": (2_000, lambda n: ("a.parquet", parquet(source=["s"] * n, output=["o"] * n, x=[["a", "b"]] * n))),
}


@pytest.mark.parametrize(("n", "make"), GROWING.values(), ids=GROWING)
def test_reading_takes_seconds_where_squares_would_take_minutes(tmp_path, n, make):
    content, start = make(n), time.process_time()
    with contextlib.suppress(DataError):
        read(tmp_path, *content)
    assert time.process_time() - start < 10


def test_a_value_that_looks_like_a_number_is_looked_at_once():
    start = time.process_time()
    assert remedy_for("1" + " " * 1_000_000 + "2") == ""
    assert time.process_time() - start < 5
    assert [remedy_for(v) for v in ("4 / 5", "4 of 5", "4\u00a0stars", "4 stars")] == ["4 alone", "", *["4 alone"] * 2]


PIECES = [b"\\ud800", b"NaN", b"1e400", b"9" * 5000, b"[" * 3000, b'"', b"\x00", b"\xef\xbb\xbf", "1\u0663".encode()]
PIECES += [b',"id":1', b"null", b"sep=;\n", b'{"q":1,"q":2}', *(bytes([one]) for one in b"\xff\n\r,;\t{}-")]


def mutated(content, rng):
    """Return bytes with one to four changes: a flipped bit, a part that is left out, doubled, random or odd."""
    content = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        i = rng.randrange(len(content) + 1)
        j = min(len(content), i + rng.randint(1, 40))
        flipped = bytes(b ^ 4 for b in content[i : i + 1])
        content[i:j] = rng.choice([content[i:j] * 2, b"", rng.choice(PIECES), rng.randbytes(j - i), flipped])
    return bytes(content)


def whole(kind):
    """Return a file of 20 items in a format."""
    rows = [{**ROW, "id": f"i{n}", "output": "é " * n, "ratings": [n, None], "system": "ab"[n % 2]} for n in range(20)]
    if kind.startswith("json"):
        text = "".join(json.dumps(row) + "\n" for row in rows) if kind == "jsonl" else json.dumps(rows)
        return text.encode()
    frame = pandas.DataFrame([{**row, "ratings": json.dumps(row["ratings"])} for row in rows])
    return frame.to_csv(index=False, sep="\t" if kind == "tsv" else ",").encode()


@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv"])
def test_a_damaged_file_is_read_or_named(tmp_path, kind, count):
    content, path = whole(kind), tmp_path / f"a.{kind}"
    packed, outcomes = Path(f"{path}.gz"), set()
    for seed in range(count):
        rng = random.Random(seed)
        path.write_bytes(mutated(content, rng))
        packed.write_bytes(mutated(gzip.compress(content), rng))
        for file in (path, packed):
            message = ""
            try:
                data.read(file)
            except DataError as error:
                message = str(error)
            assert not message or (file.name in message and len(message) < 1500), f"seed {seed}: {message}"
            outcomes.add(bool(message))
    assert outcomes == {True, False}
