import gzip
import json
import math
import re
from pathlib import Path

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbias import data
from evalbias.data import DataError

FORMS = {
    "webnlg2020": ("upstream/webnlg-challenge-2020", "webnlg2020_en.jsonl.gz", 2846),
    "tmu-gfm": ("upstream/tmu-gfm-dataset.csv", "tmu_gfm.jsonl.gz", 4221),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_published_form_equals_the_recorded_one(name, data_dir):
    published, recorded, count = FORMS[name]
    ours = {e.id: e for e in data.read(f"{name}:{data_dir / published}")}
    theirs = {e.id: e for e in data.read(f"{name}:{data_dir / recorded}")}
    assert len(ours) == len(theirs) == count
    assert ours.keys() == theirs.keys()
    for key, item in theirs.items():
        assert (ours[key].source, ours[key].output) == (item.source, item.output)
        assert ours[key].scores == pytest.approx(item.scores, abs=1e-6)


def records(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode("utf-8").split("\n") if line]


@pytest.mark.parametrize("name", FORMS)
def test_every_value_is_the_recorded_one(name, data_dir):
    published, recorded, count = FORMS[name]
    items = data.read(f"{name}:{data_dir / published}")
    expected = records(data_dir / recorded)
    assert [e.id for e in items] == [r["id"] for r in expected]
    assert len(items) == count
    for item, record in zip(items, expected, strict=True):
        assert (item.output, item.system) == (record["output"], record["system"])
        assert item.scores == pytest.approx(record["scores"], abs=5e-7)  # six digits are recorded
        assert set(item.inputs().keys()) == {"source", "output"}
        if name == "tmu-gfm":
            assert item.source == record["source"]
            for aspect, single in record["annotations"].items():
                expected = [r if r > 0 else math.nan for r in single]
                assert item.ratings[aspect] == pytest.approx(expected, nan_ok=True)
        else:
            assert (item.input_id, item.n_annotators) == (str(record["sample_id"]), record["n_annotators"])


def test_the_xml_of_webnlg_holds_the_recorded_triples(data_dir):
    published, recorded, _ = FORMS["webnlg2020"]
    items = data.read(f"webnlg2020:{data_dir / published}")
    for item, record in zip(items, records(data_dir / recorded), strict=True):
        facts = [[part.replace("_", " ") for part in triple] for triple in record["triples"]]
        assert [[p.strip() for p in t] for t in facts] == item.triples
        theirs = re.findall("<mtriple>(.*?)</mtriple>", record["xml"])
        ours = re.findall("<triple>(.*?)</triple>", item.source)
        assert [" ".join(t.replace("_", " ").split()) for t in theirs] == [" ".join(t.split()) for t in ours]
    assert len({e.system for e in items}) == 16
    assert len({e.input_id for e in items}) == len({e.source for e in items}) == 178


def test_recorded_tmu_gfm_is_also_plain_jsonl(data_dir):
    path = data_dir / FORMS["tmu-gfm"][1]
    plain, named = data.read(path), data.read(f"tmu-gfm:{path}")
    for field in ("id", "source", "output", "scores", "system"):
        assert [e[field] for e in plain] == [e[field] for e in named]
    assert plain.sha256 == named.sha256


def test_webnlg_reports_the_items_left_out(data_dir):
    items = data.read(f"webnlg2020:{data_dir / FORMS['webnlg2020'][0]}")
    assert {reason: len(names) for reason, names in items.left_out.items()} == {
        "empty output": 1,
        "no ratings": 1,
        "reference text": 178,
    }
    assert items.summary().startswith("webnlg2020: 2846 items; 1 left out (")
    first = next(e for e in items if e.id == "Amazon_AI_(Shanghai)/3")
    assert first.source == "<entry>\n  <triple>MotorSport Vision | city | Fawkham</triple>\n</entry>"
    assert first.scores["correctness"] == 98.5


def test_tmu_gfm_leaves_the_rating_0_out_of_the_mean(data_dir):
    items = data.read(f"tmu-gfm:{data_dir / FORMS['tmu-gfm'][0]}")
    undefined = [(e, a) for e in items for a, r in e.ratings.items() if any(map(math.isnan, r))]
    assert len(undefined) == 99
    for item, aspect in undefined:
        rest = [r for r in item.ratings[aspect] if not math.isnan(r)]
        mean = sum(rest) / len(rest) if rest else math.nan
        assert item.scores[aspect] == pytest.approx(mean, abs=0.01, nan_ok=True)


def test_webnlg_has_the_ratings_of_every_worker(data_dir):
    items = data.read(f"webnlg2020:{data_dir / FORMS['webnlg2020'][0]}")
    for item in items:
        for criterion, single in item.ratings.items():
            assert len(single) == item.n_annotators
            assert sum(single) / len(single) == pytest.approx(item.scores[criterion])
    assert "ratings" not in data.read(f"webnlg2020:{data_dir / FORMS['webnlg2020'][1]}")[0]


def test_the_hash_depends_only_on_the_contents(data_dir, tmp_path):
    (tmp_path / "other-name.csv").write_bytes((data_dir / FORMS["tmu-gfm"][0]).read_bytes())
    again = data.read(f"tmu-gfm:{tmp_path / 'other-name.csv'}")
    assert again.sha256 == data.read(f"tmu-gfm:{data_dir / FORMS['tmu-gfm'][0]}").sha256


def write(path, *records):
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def test_users_own_items(tmp_path):
    file = write(
        tmp_path / "items.jsonl",
        {"source": "s", "output": "o", "scores": {"wit": 3, "tact": None}, "topic": "x"},
        "",
        {"source": "s", "output": "  "},
        {"id": 7, "source": "s", "output": "p"},
    )
    items = data.read(str(file))
    assert [e.id for e in items] == ["1", "7"]
    assert items[0].scores["wit"] == 3.0
    assert math.isnan(items[0].scores["tact"])
    assert items[0].topic == "x"
    assert items.left_out == {"empty output": (f"{file}:3",)}


def test_users_own_ratings(tmp_path):
    file = write(
        tmp_path / "items.jsonl",
        {"source": "s", "output": "o", "ratings": {"wit": [3, None, 5], "tact": [None]}, "scores": {"wit": 4.5}},
        {"source": "s", "output": "p", "ratings": {"wit": [1, 2]}},
        {"source": "s", "output": "q"},
    )
    rated, mean, unrated = data.read(str(file))
    assert rated.ratings["wit"] == pytest.approx([3, math.nan, 5], nan_ok=True)
    assert rated.scores == pytest.approx({"wit": 4.5, "tact": math.nan}, nan_ok=True)
    assert mean.scores == {"wit": 1.5}
    assert "ratings" not in unrated


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('{"source": "s", "output": "o", "ratings": {"wit": 3}}', r"jsonl:2: the ratings on 'wit' are 3; write a list"),
        ('{"source": "s", "output": "o", "ratings": {"wit": []}}', r"the ratings on 'wit' are \[\]; write a list"),
        (
            '{"source": "s", "output": "o", "ratings": {"wit": ["3"]}}',
            r"a rating on 'wit' is '3': give a number, 3 without quotes",
        ),
        ('{"source": "s", "output": "o", "ratings": []}', r"the ratings on 'the criterion' are \[\]; write a list"),
        ('{"source": "s", "output": "o", "ratings": [3], "scores": {"wit": 3}}', r"'ratings' holds \[3\]; it must be"),
        (r'{"source": "s", "output": "a\ud83d b"}', r"'output' holds the lone surrogate U\+D83D at character 2"),
        (r'{"id": "\ud83d", "source": "s", "output": "o"}', r"jsonl:2: 'id' holds the lone surrogate U\+D83D"),
        ("{", r"items\.jsonl:2 is not valid JSON"),
        ('{"id": 1, "score": 4, "score": 2}', r"items\.jsonl:2 is not valid JSON \('score' stands twice in one object"),
        ('{"n": ' + "[" * 100_000 + "]" * 100_000 + "}", r"items\.jsonl:2 is not valid JSON \(maximum recursion"),
        ("[1]", r"items\.jsonl:2 holds \[1\]; it must be a JSON object"),
        ('{"source": "s"}', r"items\.jsonl:2: 'output' is missing; the record has only \['source'\]"),
        ('{"source": "s", "output": null}', r"items\.jsonl:2: 'output' is None"),
        ('{"source": " ", "output": "o"}', r"items\.jsonl:2: 'source' is ' '; it must be a non-empty string"),
        ('{"source": 3, "output": "o"}', r"items\.jsonl:2: 'source' is 3"),
        ('{"source": "s", "output": "o", "scores": {"wit": "3"}}', r"items\.jsonl:2: the score on 'wit' is '3'"),
        (
            '{"source": "s", "output": "o", "scores": {"wit": NaN}}',
            r"jsonl:2 is not valid JSON \(NaN is not a JSON value; .* null",
        ),
        (
            '{"source": "s", "output": "o", "scores": {"wit": -Infinity}}',
            r"items\.jsonl:2 is not valid JSON \(-Infinity",
        ),
        ('{"source": "s", "output": "o", "scores": {"wit": 1e999}}', "the score on 'wit' is inf: give a number"),
        (
            '{"source": "s", "output": "o", "scores": {"wit": 1%s}}' % ("0" * 400),
            "the score on 'wit' is 1000.*: give a number",
        ),
        (
            '{"source": "s", "output": "o", "scores": {"wit": 1%s}}' % ("0" * 9999),
            r"items\.jsonl:2",
        ),
        ('{"source": "s", "output": "o", "scores": {"wit": true}}', "the score on 'wit' is True"),
        ('{"source": "s", "output": "o", "scores": [3]}', r"items\.jsonl:2: 'scores' holds \[3\]"),
        ('{"id": 1.5, "source": "s", "output": "o"}', r"items\.jsonl:2: 'id' is 1\.5"),
        (
            '{"id": "1", "source": "s", "output": "o"}',
            r"items\.jsonl:2: the id '1' is already used at .*items\.jsonl:1;",
        ),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, match):
    file = write(tmp_path / "items.jsonl", {"id": "1", "source": "s", "output": "o"}, line)
    with pytest.raises(DataError, match=match):
        data.read(file)


TMU = "source,output,grammer,fluency,meaning,system,ave_g,ave_f,ave_m\n"
ROW = {"source": "s", "output": "o", "grammer": "4,4,4,4,4", "fluency": "4,4,4,4,4", "meaning": "4,4,4,4,4"}


def row(**cells):
    """Return a CSV file of one valid row with the given cells replaced."""
    values = {**ROW, "system": "lstm", "ave_g": "4.0", "ave_f": "4.0", "ave_m": "4.0", **cells}
    return TMU + ",".join(f'"{cell}"' for cell in values.values()) + "\n"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\n", r"lacks the columns \['ave_f'"),
        (row(grammer="4,4,4,4,x"), r"t\.csv:2: grammer is '4,4,4,4,x'; it must hold 5 ratings from 0 to 4"),
        (row(grammer="4,4,4,4,9"), "5 ratings from 0 to 4"),
        (row(fluency="4,4"), "fluency is '4,4'; it must hold 5 ratings"),
        (row(meaning="4,4,4,2,2"), r"ave_m is 4\.0, but the ratings \[4, 4, 4, 2, 2\] without 0 have the mean 3\.200"),
        (row(ave_g="nan"), "ave_g is 'nan': give a number"),
        (row(ave_g="four"), "ave_g is 'four': give a number"),
        (row() + "s,o,4,4\n", r"t\.csv:3 has 4 cells, the header has 9"),
        (row() + 's,"o"o,4,4\n', r"t\.csv:3 is not valid CSV"),
        (row() + 's,"o\n\n', r"t\.csv:3 is not valid CSV \(unexpected end of data"),
        (row(source="a\nb") + "s,o,4,4\n", r"t\.csv:4 has 4 cells, the header has 9"),
        (row(source=" "), r"t\.csv:2: 'source' is ' '"),
    ],
)
def test_a_malformed_csv_row_is_named(tmp_path, text, match):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=match):
        data.read(f"tmu-gfm:{tmp_path / 't.csv'}")


def test_a_mean_of_only_zero_ratings_is_undefined(tmp_path):
    (tmp_path / "t.csv").write_text(row(grammer="0,0,0,0,0", ave_g="0", fluency="4,0,0,0,0"))
    (item,) = data.read(f"tmu-gfm:{tmp_path / 't.csv'}")
    assert math.isnan(item.scores["grammar"])
    assert item.scores["fluency"] == 4.0


def test_specifications_of_data(tmp_path):
    with pytest.raises(ValueError, match=r"is a folder, not a file of data; .* a NAME of evalbiasbench, llmbar"):
        data.parse_spec(str(tmp_path))
    with pytest.raises(ValueError, match="names no data"):
        data.parse_spec("webnlg2020")
    with pytest.raises(ValueError, match=r"is a folder|names no data"):
        data.read(f"nothing:{tmp_path}")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        data.read(tmp_path / "none.jsonl")
    assert data.parse_spec("tmu-gfm:a.csv") == ("tmu-gfm", "a.csv")
    assert data.parse_spec("a.jsonl.gz") == ("jsonl", "a.jsonl.gz")
    assert data.parse_spec(r"jsonl:C:\a.txt") == ("jsonl", r"C:\a.txt")
    with pytest.raises(DataError, match="is a folder, not a file"):
        data.read(f"jsonl:{tmp_path}")


def test_an_empty_correction_is_left_out_and_the_ids_stay(tmp_path):
    (tmp_path / "t.csv").write_text(row(output="") + row()[len(TMU) :])
    items = data.read(f"tmu-gfm:{tmp_path / 't.csv'}")
    assert [e.id for e in items] == ["tmu-0001"]
    assert items.left_out == {"empty output": (f"{tmp_path / 't.csv'}:2",)}


@pytest.mark.parametrize(
    "content", [gzip.compress(b'{"source": "s", "output": "o"}')[:-9], b"plain", b""], ids=["torn", "plain", "empty"]
)
def test_a_damaged_archive_is_named(tmp_path, content):
    (tmp_path / "items.jsonl.gz").write_bytes(content)
    if content:
        with pytest.raises(DataError, match=r"items\.jsonl\.gz is damaged"):
            data.read(tmp_path / "items.jsonl.gz")
    else:
        assert data.read(tmp_path / "items.jsonl.gz") == []


def test_byte_order_marks_and_encodings(tmp_path):
    file = tmp_path / "items.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + b'{"source": "s", "output": "o"}\r\n')  # as editors on Windows save it
    assert data.read(file)[0].output == "o"
    file.write_bytes('{"source": "s", "output": "ö"}'.encode("latin-1"))
    with pytest.raises(DataError, match=r"items\.jsonl is not UTF-8 text: line 1 has the byte 0xf6"):
        data.read(file)


def test_a_data_set_is_a_list_with_its_origin(tmp_path):
    file = write(tmp_path / "items.jsonl", {"source": "s", "output": "o", "base": "b", "self": "me"})
    items = data.read(f"jsonl:{file}")
    assert isinstance(items, list)
    assert isinstance(items[0], dspy.Example)
    assert (items[0].get("base"), items[0].get("self")) == ("b", "me")  # names that dspy.Example defines itself
    assert (items.name, items.path, items.left_out) == ("jsonl", file, {})
    assert items.summary() == "jsonl: 1 items"


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
rated = st.dictionaries(texts, st.none() | st.floats(-1e30, 1e30) | st.integers(-100, 100))


@given(
    items=st.lists(st.fixed_dictionaries({"id": texts, "source": texts, "output": texts, "scores": rated}), max_size=5),
    ascii_only=st.booleans(),
    suffix=st.sampled_from([".jsonl", ".jsonl.gz"]),
)
def test_jsonl_round_trip(tmp_path_factory, items, ascii_only, suffix):
    items = list({item["id"]: item for item in items}.values())
    content = "\n".join(json.dumps(item, ensure_ascii=ascii_only) for item in items).encode("utf-8")
    file: Path = tmp_path_factory.mktemp("items") / f"items{suffix}"
    file.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    loaded = data.read(str(file))
    nulls = [{k: None if v != v else v for k, v in e.scores.items()} for e in loaded]
    assert [{**e.toDict(), "scores": s} for e, s in zip(loaded, nulls, strict=True)] == items
