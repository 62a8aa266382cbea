import json
import shutil

import pytest

from evalbias import data
from evalbias.data import DataError

TABLES = "evaluation/human-evaluation/amt-scripts/data/en/tables/tables_xml.json"
CELL = '<td class="tg-0lax">{}</td>'
FAIR = {"Correctness": 90, "DataCoverage": 80, "Fluency": 70, "Relevance": 60, "TextStructure": 50}


def table(*parts):
    return "".join(CELL.format(part) for part in parts)


def ratings(root, system):
    return root / "evaluation/human-evaluation/results/en" / system / "primary.json"


def outputs(root, system):
    return root / "submissions/rdf2text/en" / system / "primary.en"


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


@pytest.fixture
def checkout(tmp_path):
    """Create a checkout with two systems and the reference, in which samples 2 and 10 of ten lines are rated."""
    put(
        tmp_path / TABLES,
        {"10": table("A_b", "is &lt; than", "C"), "2": table("D", "e", "F", "G", "h", "&quot;I&quot;")},
    )
    for system in ("b", "a"):
        put(outputs(tmp_path, system), "\n".join(f"{system}{k}" for k in range(1, 11)))
        put(ratings(tmp_path, system), {"10": {"w1": FAIR, "w2": {**FAIR, "Fluency": 71}}, "2": {"w1": FAIR}})
    put(ratings(tmp_path, "WebNLG-2020-reference"), {"2": {"w1": FAIR}})
    return tmp_path


def test_line_k_is_sample_k_in_the_order_of_systems_and_samples(checkout):
    items = data.read(f"webnlg2020:{checkout}")
    assert [(e.id, e.output, e.input_id) for e in items] == [
        ("a/2", "a2", "2"),
        ("a/10", "a10", "10"),
        ("b/2", "b2", "2"),
        ("b/10", "b10", "10"),
    ]
    assert items[1].scores["fluency"] == 70.5
    assert items[1].n_annotators == 2
    assert items[1].ratings["fluency"] == [70.0, 71.0]
    assert items[1].source == "<entry>\n  <triple>A b | is &lt; than | C</triple>\n</entry>"
    assert items[0].triples == [["D", "e", "F"], ["G", "h", '"I"']]
    assert items.left_out == {"reference text": ("WebNLG-2020-reference/2",)}


def test_items_left_out_are_listed_by_reason(checkout):
    put(outputs(checkout, "a"), "\n".join(["a", " ", *"abcdefgh"]) + "\n")
    put(ratings(checkout, "b"), {"2": {}})
    put(outputs(checkout, "c"), "unrated")
    items = data.read(f"webnlg2020:{checkout}")
    assert [e.id for e in items] == ["a/10"]
    assert items.left_out == {
        "empty output": ("a/2",),
        "no ratings": ("b/2", "b/10"),
        "reference text": ("WebNLG-2020-reference/2",),
        "system without ratings": ("c",),
    }


def test_a_missing_line_is_refused(checkout):
    put(outputs(checkout, "c"), "\n".join("abcdefghi"))
    put(ratings(checkout, "c"), {"2": {"w1": FAIR}})
    with pytest.raises(DataError, match=r"Most systems have 10 lines, but .*c/primary\.en': 9"):
        data.read(f"webnlg2020:{checkout}")
    for system in "abc":
        put(outputs(checkout, system), "a\nb\nc\n")
    with pytest.raises(DataError, match=r"a/primary\.json, sample 10 is rated, but .* only 3 lines"):
        data.read(f"webnlg2020:{checkout}")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{", r"b/primary\.json:1 is not valid JSON"),
        ("[1]", r"b/primary\.json holds \[1\]"),
        ({"3": {"w": FAIR}}, r"b/primary\.json: the samples \['3'\] have no table"),
        ({"2": [FAIR]}, r"b/primary\.json, sample 2 holds \[.* it must hold the raters"),
        ({"2": {"w": 5}}, r"b/primary\.json, sample 2 holds \{'w': 5\}"),
        ({"2": {"w": {**FAIR, "Fluency": 101}}}, "sample 2, w: Fluency is 101: give a number from 0 to 100"),
        ({"2": {"w": {**FAIR, "Fluency": True}}}, "sample 2, w: Fluency is True"),
        ({"2": {"w": {**FAIR, "Fluency": None}}}, "sample 2, w: Fluency is None"),
        ('{"2": {"w": {"Correctness": NaN}}}', r"b/primary\.json:1 is not valid JSON \(NaN is not a JSON value"),
    ],
)
def test_malformed_ratings_are_named(checkout, content, match):
    put(ratings(checkout, "b"), content)
    with pytest.raises(DataError, match=match):
        data.read(f"webnlg2020:{checkout}")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"2": table("a", "b")}, r"tables_xml\.json, sample 2 holds 2 table cells"),
        ({"2": None}, "sample 2 holds 0 table cells"),
        ({"x": table("a", "b", "c")}, r"the samples \['x'\] are not line numbers"),
    ],
)
def test_malformed_tables_are_named(checkout, content, match):
    put(checkout / TABLES, content)
    with pytest.raises(DataError, match=match):
        data.read(f"webnlg2020:{checkout}")


@pytest.mark.parametrize("missing", [ratings, outputs])
def test_a_missing_file_is_named(checkout, missing):
    missing(checkout, "b").unlink()
    with pytest.raises(DataError, match=r"b/primary\.\w+ is missing; give the file that webnlg2020 is read from"):
        data.read(f"webnlg2020:{checkout}")


def test_a_folder_that_is_not_a_checkout_is_refused(checkout):
    shutil.rmtree(checkout / "submissions")
    with pytest.raises(DataError, match="contains no system folder; give the top folder"):
        data.read(f"webnlg2020:{checkout}")


def test_the_hash_changes_with_a_rating(checkout):
    before = data.read(f"webnlg2020:{checkout}").sha256
    assert data.read(f"webnlg2020:{checkout}").sha256 == before
    put(ratings(checkout, "b"), {"2": {"w1": {**FAIR, "Fluency": 1}}})
    assert data.read(f"webnlg2020:{checkout}").sha256 != before


RECORD = {
    "id": "a/2",
    "sample_id": 2,
    "system": "a",
    "triples": [["A_b", "c", "D"]],
    "output": "o",
    "scores": dict.fromkeys(("correctness", "data_coverage", "fluency", "relevance", "text_structure"), 50.0),
    "n_annotators": 1,
}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"triples": []}, r"w\.jsonl:1: 'triples' is \[\]"),
        ({"triples": [["a", "b"]]}, r"w\.jsonl:1: 'triples' is"),
        ({"triples": [["a", "b", 3]]}, r"w\.jsonl:1: 'triples' is"),
        ({"sample_id": None}, r"w\.jsonl:1: sample_id is None"),
        ({"scores": {"fluency": 1}}, r"w\.jsonl:1: 'scores' lacks \['correctness', .*null"),
    ],
)
def test_a_malformed_record_is_named(tmp_path, change, match):
    put(tmp_path / "w.jsonl", {**RECORD, **change})
    with pytest.raises(DataError, match=match):
        data.read(f"webnlg2020:{tmp_path / 'w.jsonl'}")


def test_a_record_gives_the_same_fields_as_the_checkout(tmp_path):
    put(tmp_path / "w.jsonl", json.dumps(RECORD) + "\n" + json.dumps({**RECORD, "id": "a/3", "output": ""}))
    items = data.read(f"webnlg2020:{tmp_path / 'w.jsonl'}")
    assert (items[0].id, items[0].input_id, items[0].triples) == ("a/2", "2", [["A b", "c", "D"]])
    assert items.left_out == {"empty output": (f"{tmp_path / 'w.jsonl'}:2",)}
