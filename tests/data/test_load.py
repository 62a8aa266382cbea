import json
import math

import pytest

from evalbias import data
from evalbias.data import DataError

FORMS = {
    "webnlg2020": ("upstream/webnlg-challenge-2020", "webnlg2020_en.jsonl.gz", 2846),
    "tmu-gfm": ("upstream/tmu-gfm-dataset.csv", "tmu_gfm.jsonl.gz", 4221),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_published_form_equals_the_recorded_one(name, data_dir):
    published, recorded, count = FORMS[name]
    ours = {e.id: e for e in data.load(name, data_dir / published)}
    theirs = {e.id: e for e in data.load(name, data_dir / recorded)}
    assert len(ours) == len(theirs) == count
    assert ours.keys() == theirs.keys()
    for key, item in theirs.items():
        assert (ours[key].source, ours[key].output) == (item.source, item.output)
        assert ours[key].scores == pytest.approx(item.scores, abs=1e-6)


def test_webnlg_says_what_it_leaves_out(data_dir):
    found = data.load("webnlg2020", data_dir / FORMS["webnlg2020"][0])
    assert {reason: len(items) for reason, items in found.left_out.items()} == {
        "empty output": 1,
        "no ratings": 1,
        "reference texts, no system": 1,
    }
    assert found.summary().startswith("webnlg2020: 2846 items; 1 left out (")
    first = next(e for e in found if e.id == "Amazon_AI_(Shanghai)/3")
    assert first.source == "<entry>\n  <triple>MotorSport Vision | city | Fawkham</triple>\n</entry>"
    assert first.scores["correctness"] == 98.5


def test_tmu_gfm_leaves_the_rating_0_out_of_the_mean(data_dir):
    found = data.load("tmu-gfm", data_dir / FORMS["tmu-gfm"][0])
    other = [(e, a) for e in found for a, r in e.annotations.items() if 0 in r]
    differs = [(e, a) for e, a in other if abs(e.scores[a] - sum(e.annotations[a]) / 5) > 1e-6]
    assert len(differs) == 99


def test_the_hash_is_of_the_contents(data_dir, tmp_path):
    (tmp_path / "other-name.csv").write_bytes((data_dir / FORMS["tmu-gfm"][0]).read_bytes())
    again = data.load("tmu-gfm", tmp_path / "other-name.csv")
    assert again.sha256 == data.load("tmu-gfm", data_dir / FORMS["tmu-gfm"][0]).sha256


def write(path, *records):
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def test_a_users_own_items(tmp_path):
    file = write(
        tmp_path / "items.jsonl",
        {"source": "s", "output": "o", "scores": {"wit": 3, "tact": None}, "topic": "x"},
        "",
        {"source": "s", "output": "  "},
        {"id": 7, "source": "s", "output": "p"},
    )
    found = data.load_spec(str(file))
    assert [e.id for e in found] == ["1", "7"]
    assert found[0].scores["wit"] == 3.0
    assert math.isnan(found[0].scores["tact"])
    assert found[0].topic == "x"
    assert found.left_out == {"empty output": (f"{file}:3",)}


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("{", r"items\.jsonl:2 is no JSON"),
        ("[1]", r"items\.jsonl:2 holds no object"),
        ('{"source": "s"}', r"items\.jsonl:2: 'output' is None"),
        ('{"source": 3, "output": "o"}', r"items\.jsonl:2: 'source' is 3"),
        ('{"source": "s", "output": "o", "scores": {"wit": "3"}}', r"items\.jsonl:2: the score on 'wit' is '3'"),
        ('{"source": "s", "output": "o", "scores": {"wit": NaN}}', r"items\.jsonl:2 holds NaN"),
        ('{"source": "s", "output": "o", "scores": [3]}', r"items\.jsonl:2: 'scores' is \[3\]"),
        ('{"id": "1", "source": "s", "output": "o"}', "1 ids stand for several items, the first is '1'"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, match):
    file = write(tmp_path / "items.jsonl", {"id": "1", "source": "s", "output": "o"}, line)
    with pytest.raises(DataError, match=match):
        data.load("jsonl", file)


TMU = "source,output,grammer,fluency,meaning,system,ave_g,ave_f,ave_m\n"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\n", r"lacks the columns \['ave_f'"),
        (TMU + 's,o,"4,x","4","4",lstm,4,4,4\n', r"t\.csv:2: grammer is '4,x'"),
        (TMU + 's,o,"4,9","4","4",lstm,4,4,4\n', "ratings go from 0 to 4"),
        (TMU + 's,o,"4,2","4","4",lstm,4,4,4\n', r"have the mean 3\.000"),
        (TMU + "s,o,4,4\n", "another number of cells"),
    ],
)
def test_a_malformed_csv_row_is_named(tmp_path, text, match):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=match):
        data.load("tmu-gfm", tmp_path / "t.csv")


def test_ratings_that_are_all_other_are_undefined(tmp_path):
    (tmp_path / "t.csv").write_text(TMU + 's,o,"0,0","4,0","4",lstm,0,4,4\n')
    (found,) = data.load("tmu-gfm", tmp_path / "t.csv")
    assert math.isnan(found.scores["grammar"])
    assert found.scores["fluency"] == 4.0


def test_what_names_no_data(tmp_path):
    with pytest.raises(ValueError, match="names no data"):
        data.parse_spec("webnlg2020")
    with pytest.raises(ValueError, match="no data set 'nothing'"):
        data.load("nothing", tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        data.load("jsonl", tmp_path / "none.jsonl")
    assert data.parse_spec("tmu-gfm:a.csv") == ("tmu-gfm", "a.csv")
