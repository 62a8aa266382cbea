"""One function reads every source: the same three items in each format are the same examples."""

import gzip
import json
import math
import sys
import time
from pathlib import Path

import dspy
import huggingface_hub
import hypothesis
import pandas
import pytest
from commands import as_jsonl
from hypothesis import strategies as st

from evalbias import data
from evalbias.data import DataError
from evalbias.data.columns import parse_mapping
from evalbias.data.loops import loop_items, recorded_loop
from evalbias.data.pairing import human_score, is_rated, single_ratings

ROWS = [
    {"id": "a", "source": "Name a\nprime, please.", "output": 'It is "7".', "score": 4.5, "judge_score": 3},
    {"id": "b", "source": "2 + 2?", "output": "4", "score": None, "judge_score": 5},
    {"id": "c", "source": "2 + 3?", "output": "007", "score": 1, "judge_score": None},
]


def as_csv(path, rows, separator=","):
    pandas.DataFrame(rows).to_csv(path, index=False, sep=separator)
    return path


def written(folder, ending):
    path = folder / f"items.{ending}"
    if ending == "json":
        path.write_text(json.dumps(ROWS, indent=1))
    elif ending == "parquet":
        pandas.DataFrame(ROWS).to_parquet(path)
    elif ending.startswith("jsonl"):
        as_jsonl(path, ROWS)
    else:
        as_csv(path, ROWS, "\t" if ending.startswith("tsv") else ",")
    if ending.endswith(".gz") and not ending.startswith(("csv", "tsv")):  # pandas compresses by the ending
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "json", "csv", "csv.gz", "tsv", "tsv.gz", "parquet"])
def test_every_format_gives_the_same_items(tmp_path, ending):
    check(data.read(written(tmp_path, ending)))


def test_data_in_memory_give_the_same_items():
    check(data.read(ROWS))
    check(data.read([dspy.Example(**row) for row in ROWS]))
    check(data.read(pandas.DataFrame(ROWS)))


def check(items):
    assert isinstance(items, data.Dataset)
    assert [(e.id, e.source, e.output) for e in items] == [(r["id"], r["source"], r["output"]) for r in ROWS]
    assert [e.judge_score for e in items] == [3, 5, None]  # a column of any other name stays, undefined where empty
    assert [human_score(e, "wit") for e in items] == pytest.approx([4.5, math.nan, 1.0], nan_ok=True)
    assert all(is_rated(e, "wit") and "scores" not in e for e in items)
    assert set(items[0].inputs().keys()) == {"source", "output"}
    assert len(items.sha256) == 64


def test_json_objects_on_lines_are_read_under_either_ending(tmp_path):
    path = as_jsonl(tmp_path / "items.json", ROWS)
    check(data.read(path))
    path.write_text('{"data": []}')
    with pytest.raises(DataError, match="must be a JSON list"):
        data.read(path)


def test_columns_are_mapped(tmp_path):
    rows = [{"question": "2 + 2?", "answer": "4", "rating": 5, "source": "school book"}]
    mapping = {"source": "question", "output": "answer", "score": "rating"}
    for given in (rows, pandas.DataFrame(rows), as_csv(tmp_path / "a.csv", rows), as_jsonl(tmp_path / "a.jsonl", rows)):
        (item,) = data.read(given, mapping=mapping)
        assert (item.source, item.output, item.score) == ("2 + 2?", "4", 5.0)
        assert "question" not in item


def test_a_mapping_to_a_column_that_does_not_exist_is_refused(tmp_path):
    path = as_csv(tmp_path / "a.csv", [{"question": "q", "answer": "a"}])
    with pytest.raises(
        DataError, match=r"a\.csv has no column 'anser' for 'output'; .*'answer'\. Did you mean output=an"
    ):
        data.read(path, mapping={"output": "anser"})


def test_a_column_whose_name_holds_commas_is_mapped():
    mapping = parse_mapping(["source=question, raw,output=the=answer", " rating_1 = Ann, MD", "rating_2=Ben"])
    assert mapping == {"source": "question, raw", "output": "the=answer", "rating_1": "Ann, MD", "rating_2": "Ben"}
    for text in ("source", "source,output=a", "source=", "=a", ""):
        with pytest.raises(ValueError, match=f"--map {text.split(',')[0]}: write OURS=THEIRS"):
            parse_mapping([text])


def test_a_suggested_mapping_can_be_pasted_into_a_shell(tmp_path):
    path = as_csv(tmp_path / "a.csv", [{"source": "q", "Output 1": "a", "Output 2": "b"}])
    with pytest.raises(
        DataError, match=r"--map 'output_1=Output 1,output_2=Output 2' \(in Python, mapping={'output_1'"
    ):
        data.read(path)


def test_a_mapping_to_a_misspelt_field_is_refused():
    rows = [{"question": "q", "answer": "a", "other": 2}]
    with pytest.raises(DataError, match=r"sorce=question maps to no field .* Did you mean source=question\?"):
        data.read(rows, mapping={"sorce": "question", "output": "answer"})
    (item,) = data.read(rows, mapping={"source": "question", "output": "answer", "score2": "other"})
    assert (item.source, item.score2) == ("q", 2)  # a column of one's own


def test_what_was_expected_is_shown(tmp_path):
    path = as_csv(tmp_path / "a.csv", [{"Prompt": "q", "reply": "a", "rating": 3}])
    with pytest.raises(DataError) as caught:
        data.read(path)
    message = str(caught.value)
    assert "has no column 'output'; it has the columns 'Prompt', 'reply', 'rating'." in message
    assert "'rating' looks like 'score': --map output=reply,source=Prompt,score=rating" in message
    assert sum(line.startswith('  {"source": ') for line in message.splitlines()) == 2
    example = [json.loads(line) for line in message.splitlines() if line.startswith("  {")]
    assert len(data.read(example)) == 2  # the lines that it shows are themselves valid
    mapped = data.read(path, mapping={"output": "reply", "source": "Prompt", "score": "rating"})
    assert mapped[0].score == 3.0


def test_a_cell_holds_what_its_column_says(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,source,output,score,verdict,code\n1,q,12,4,1,007\n2,q,3,nan,,12\n\n3,q,5,N/A,0,x\n")
    items = data.read(path)
    assert [e.output for e in items] == ["12", "3", "5"]  # a text although every cell is a number
    assert [e.verdict for e in items] == [1, None, 0]
    assert [e.code for e in items] == ["007", "12", "x"]
    assert [e.score for e in items] == pytest.approx([4, math.nan, math.nan], nan_ok=True)


def test_semicolons_separate_where_the_header_has_no_comma(tmp_path):
    (tmp_path / "a.csv").write_text('source;output;score\n"q; r";a, b;2\n')
    (item,) = data.read(tmp_path / "a.csv")
    assert (item.source, item.output, item.score) == ("q; r", "a, b", 2.0)


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("csv", "source;output;score, in points;judge\nq;a, b;2;2,9\n"),  # a comma in the name of a column
        ("csv", "sep=;\nsource;output;judge\nq;a, b;2,9\n"),  # as Excel names it
        ("csv", '"sep=;"\r\nsource;output;judge\r\nq;a, b;2,9\r\n'),
        ("csv", "source\toutput\tjudge\nq\ta, b\t2.9\n"),
        ("tsv", "source;output;judge\nq;a, b;2,9\n"),
        ("tsv", "source\toutput\tjudge\tmean, by people; rounded, twice\nq\ta, b\t2.9\t3\n"),
        ("csv", 'source,output,judge,,\nq,"a, b",2.9,,\n'),  # columns without a name
        ("csv", ',source,output,judge\n0,q,"a, b",2.9\n'),
    ],
)
def test_tables_as_spreadsheets_save_them(tmp_path, ending, text):
    path = tmp_path / f"a.{ending}"
    path.write_text(text)
    (item,) = data.read(path, numbers=["judge"])
    assert (item.source, item.output, item.judge) == ("q", "a, b", 2.9)
    assert "" not in item
    text = text.replace("2,9", "3.0").replace("2.9", "3.0")
    path.write_text(text + text.splitlines(keepends=True)[-1].replace("3.0", "x"))
    with pytest.raises(DataError, match=rf"a\.{ending}:{len(text.splitlines()) + 1}: 'judge' is 'x'"):
        data.read(path, numbers=["judge"])


def test_peoples_scores_are_no_judges_scores(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("source,output,score\nq,a,4\nq,b,3\n")
    with pytest.raises(DataError, match=r"a\.csv: the column 'score' holds people's .*: --map judge_score=score and"):
        data.read(path, numbers=["score"])
    items = data.read(path, mapping={"judge_score": "score"}, numbers=["judge_score"])
    assert [(e.judge_score, "score" in e) for e in items] == [(4, False), (3, False)]
    path.write_text("source,output,score,scores.wit\nq,a,4,1\nq,b,3,2\n")  # what people said stands in scores
    assert [e.score for e in data.read(path, numbers=["score"])] == [4, 3]


def test_what_cannot_be_read_is_named_with_a_remedy(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,answer,anna,ben\nq,a,4,5\nq,b,-,3\n")
    mapping = {"source": "question", "output": "answer", "rating_1": "anna", "rating_2": "ben"}
    with pytest.raises(DataError, match=r"a\.csv:3: 'rating_1' is '-'.* leave it empty"):
        data.read(path, mapping=mapping)
    raters = r"a\.csv: --map gives the column 'anna' as 'rating_1' and as 'rating_2': .* \(score=anna\)"
    with pytest.raises(DataError, match=raters):
        data.read(path, mapping=mapping | {"rating_2": "anna"})
    with pytest.raises(DataError, match=r"'answer' as 'source' and as 'output': give each field its own column\.$"):
        data.read(path, mapping=mapping | {"source": "answer"})
    with pytest.raises(DataError, match=r"column 'ben' is read as 'rating_2' \(--map\) and is asked for as 'ben' too"):
        data.read(path, mapping=mapping, numbers=["ben"])
    path.write_text("source;output;score\nq;a;2,5\nr;b;good\n")
    with pytest.raises(DataError, match=r"a\.csv:3: the score is 'good'"):
        data.read(path)
    path.write_text("id,source,output\n7,q,a\n7,q,b\n")
    with pytest.raises(DataError, match=r"already used at .*a\.csv:2; .* --map input_id=id\."):
        data.read(path)
    assert [e.input_id for e in data.read(path, mapping={"input_id": "id"})] == ["7", "7"]
    path.write_text("ticket,source,output\n7,q,a\n7,q,b\n")
    with pytest.raises(DataError, match=r"--map input_id=ticket\."):
        data.read(path, mapping={"id": "ticket"})
    path.write_text("message,agent_text\nq,a\n")
    with pytest.raises(DataError, match=r"'agent_text'\. Say which column it is: --map output=COLUMN \(in Py"):
        data.read(path)
    path.write_text("prompt,response_a,response_b,human\nq,a,b,A\n")
    with pytest.raises(DataError, match="--map output_1=response_a,output_2=response_b,source=prompt,better=human"):
        data.read(path)
    with pytest.raises(FileNotFoundError, match=r"b\.csv does not exist; check the path\.$"):
        data.read(tmp_path / "b.csv")
    with pytest.raises(ValueError, match="Save a spreadsheet as CSV"):
        data.read(tmp_path / "a.xlsx")


def test_long_cells_are_read(tmp_path):
    (tmp_path / "a.csv").write_text("source,output\n" + "x" * 200_000 + ",o\n")
    assert len(data.read(tmp_path / "a.csv")[0].source) == 200_000


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("source,output\ns,o\ns,o,p\n", r"a\.csv:3 has 3 cells, the header has 2; correct the row, and quote texts"),
        ("source,output\ns\n", r"a\.csv:2 has 1 cells, the header has 2"),
        ("source,output,source\ns,o,p\n", r"a\.csv:1 has several columns named 'source'"),
        ('source,output\n"s,o\n', r"a\.csv:2 is not valid CSV"),
        ("source,output,score\ns,o,good\n", r"a\.csv:2: the score is 'good': give a number"),
        ("source,output,better\ns,o,2\n", None),  # a column of that name means nothing beside one output
        ("source,output_1,output_2,better\ns,o,p,2\n", r"a\.csv:2: 'better' is 2: give 0 or 'A' for the first"),
        ('source,output,ratings\ns,o,"[3, x]"\n', r"a\.csv:2: 'ratings' is '\[3, x\]'; it must be JSON"),
    ],
)
def test_a_malformed_table_is_named(tmp_path, text, match):
    (tmp_path / "a.csv").write_text(text)
    if match is None:
        assert data.read(tmp_path / "a.csv")[0].better == 2
        return
    with pytest.raises(DataError, match=match):
        data.read(tmp_path / "a.csv")


def test_an_empty_output_is_left_out_and_an_empty_source_is_none(tmp_path):
    frame = pandas.DataFrame([{"source": None, "output": "o"}, {"source": "s", "output": None}])
    for given in (frame, as_csv(tmp_path / "a.csv", frame)):
        items = data.read(given)
        assert [e.output for e in items] == ["o"]
        assert "source" not in items[0]
        assert list(items.left_out) == ["empty output"]


RATED = [
    ({"ratings": [4, None, 5]}, 4.5, [4, math.nan, 5]),
    ({"ratings": [4, None, 5], "score": 4}, 4, [4, math.nan, 5]),
    ({"rating_1": 4, "rating_2": None, "rating_3": 5}, 4.5, [4, math.nan, 5]),
    ({"rating_10": 5, "rating_2": 4}, 4.5, [4, 5]),
    ({"rating_1": None, "rating_2": None}, math.nan, [math.nan, math.nan]),
    ({"ratings": "[4, null, 5]"}, 4.5, [4, math.nan, 5]),
    ({"scores": {"wit": 3}, "ratings": {"wit": [2, 4]}}, 3, [2, 4]),
    ({"scores": '{"wit": 3}'}, 3, []),
    ({"scores.wit": 3, "ratings.wit": "[2, 4]", "scores.tact": None}, 3, [2, 4]),
]


@pytest.mark.parametrize(("fields", "score", "single"), RATED)
def test_scores_and_ratings(fields, score, single):
    (item,) = data.read([{"source": "s", "output": "o", **fields}])
    assert human_score(item, "wit") == pytest.approx(score, nan_ok=True)
    assert single_ratings(item, "wit") == pytest.approx(single, nan_ok=True)


@pytest.mark.parametrize(("fields", "score", "single"), RATED)
def test_scores_and_ratings_of_a_table(tmp_path, fields, score, single):
    fields = {k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in fields.items()}
    (item,) = data.read(as_csv(tmp_path / "a.csv", [{"source": "s", "output": "o", **fields}]))
    assert human_score(item, "wit") == pytest.approx(score, nan_ok=True)
    assert single_ratings(item, "wit") == pytest.approx(single, nan_ok=True)


def test_pairs(tmp_path):
    rows = [
        {"source": "q", "outputs": ["a", "b"], "better": 1, "winner": 0, "systems": ["x", "y"]},
        {"source": "r", "outputs": ["c", "d"], "better": None, "winner": None, "systems": ["x", "y"]},
        {"source": "t", "outputs": ["", " "], "better": 0, "winner": 1, "systems": ["x", "y"]},
        {"source": "u", "outputs": ["c", ""], "better": 0, "winner": 1, "systems": ["x", "y"]},
    ]
    flat = [
        {"source": r["source"], "better": r["better"], "winner": r["winner"]}
        | {f"{name}_{k}": r[f"{name}s"][k - 1] for name in ("output", "system") for k in (1, 2)}
        for r in rows
    ]
    for given in (rows, as_jsonl(tmp_path / "a.jsonl", rows), as_csv(tmp_path / "a.csv", flat), pandas.DataFrame(flat)):
        first, second, half = items = data.read(given)
        assert half.candidates == ["c", ""]
        assert (first.candidates, first.better, first.preference) == (["a", "b"], 1, "B")
        assert (second.better, second.winner, "preference" in second) == (None, None, False)
        assert first.systems == ["x", "y"]
        assert "outputs" not in first
        assert set(first.inputs().keys()) == {"source", "candidates"}
        assert {reason: len(places) for reason, places in items.left_out.items()} == {"empty output": 1}


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"outputs": ["a"]}, r"the outputs are \['a'\]; a pair has a list of two texts"),
        ({"outputs": ["a", 3]}, "'output' is 3; it must be a string"),
        ({"outputs": ["a", "b"], "systems": ["x"]}, "name the writers of both outputs"),
        ({"outputs": ["a", "b"], "better": "C"}, "'better' is 'C': give 0 or 'A' for the first"),
    ],
)
def test_a_malformed_pair_is_named(fields, match):
    with pytest.raises(DataError, match=rf"list, row 1: .*{match}"):
        data.read([{"source": "q", **fields}])


def test_recorded_judges_need_no_source():
    items = data.read([{"output": "a", "score": 3}, {"output": "a", "score": 4}])
    assert [e.id for e in items] == ["1", "2"]
    assert list(data.by_input(items)) == ["1", "2"]  # each its own input
    train, test = data.split(items, test_fraction=0.5, seed=0, by="input")
    assert len(train) == len(test) == 1


def test_pairs_of_outputs_keep_each_raters_difference():
    items = data.read([{"source": "q", "output": o, "ratings": r} for o, r in (("a", [3, 5]), ("b", [4, 1]))])
    (pair,) = data.pairs(items, ordered=False, criterion="wit", seed=0)
    sign = 1 if pair.candidates == ["a", "b"] else -1
    assert single_ratings(pair, "wit") == [-sign, 4 * sign]
    assert pair.preference == ("A" if pair.candidates == ["a", "b"] else "B")


def test_a_source_that_names_nothing_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"'items\.txt' names no data; give a file that ends in \.jsonl, \.json, \.csv"
    ):
        data.read("items.txt")
    with pytest.raises(FileNotFoundError, match=r"none\.csv does not exist"):
        data.read(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="The columns of summeval are known"):
        data.read("summeval:x.jsonl", mapping={"source": "question"})
    with pytest.raises(DataError, match="list, row 2 is 'x'; give dicts or DSPy examples"):
        data.read([{"output": "a"}, "x"])


@pytest.mark.parametrize(
    ("library", "source", "match"),
    [("pyarrow", "a.parquet", r"pip install 'evalbias\[parquet\]'"), ("datasets", "hf:x/y", r"'evalbias\[hf\]'")],
)
def test_a_missing_library_is_named(tmp_path, monkeypatch, library, source, match):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(ImportError, match=match):
        data.read(source)


def test_a_damaged_parquet_file_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"none")
    with pytest.raises(DataError, match=r"a\.parquet is damaged or no Parquet file"):
        data.read(tmp_path / "a.parquet")


def test_lists_in_parquet_are_lists(tmp_path):
    pandas.DataFrame([{"source": "q", "outputs": ["a", "b"], "better": 0}]).to_parquet(tmp_path / "a.parquet")
    (item,) = data.read(tmp_path / "a.parquet")
    assert (item.candidates, item.better) == (["a", "b"], 0)


def test_data_in_memory_have_a_hash_of_their_contents():
    assert data.read(ROWS).sha256 == data.read(ROWS).sha256
    assert data.read(ROWS).sha256 != data.read(ROWS[:2]).sha256


def test_items_and_records_of_refine_loops_are_tables_too(tmp_path):
    path = as_csv(tmp_path / "a.csv", [{"text": "x", "lang": "English"}, {"text": "y", "lang": "English"}])
    items, _ = loop_items(path, mapping={"source": "text", "target_language": "lang"})
    assert [(e.source, e.target_language) for e in items] == [("x", "English"), ("y", "English")]
    path = as_csv(tmp_path / "b.csv", [{"i": 0, "round": r, "own": r + 0.5} for r in (0, 1)])
    loop = recorded_loop(path, mapping={"iteration": "round"})
    assert loop.name == "b"
    assert loop.scores("own").tolist() == [[0.5], [1.5]]


def test_data_sets_of_the_hub_are_read_by_split(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    pytest.importorskip("datasets").config.HF_DATASETS_CACHE = tmp_path / "cache"
    folder = tmp_path / "set"
    folder.mkdir()
    for split in ("train", "test"):
        as_jsonl(folder / f"{split}.jsonl", [{"question": split, "answer": "a", "score": 2}])
    (item,) = data.read(f"hf:{folder}:test", mapping={"source": "question", "output": "answer"})
    assert (item.source, item.output, item.score) == ("test", "a", 2.0)
    with pytest.raises(DataError, match="has the splits train, test; name it as hf:NAME:SPLIT"):
        data.read(f"hf:{folder}")
    with pytest.raises(DataError, match=r"cannot be loaded .*none"):
        data.read(f"hf:{folder}:none")


def test_a_data_set_that_the_hub_cannot_be_asked_about_is_refused_without_retries(monkeypatch, tmp_path):
    monkeypatch.setattr(pytest.importorskip("datasets").config, "HF_DATASETS_CACHE", tmp_path)
    from evalbias.data.files import check_hub

    nowhere = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", nowhere)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waited {seconds} s"))
    for name in ("no-such/data", "no such/data", "a/b/c"):
        with pytest.raises(DataError, match=f"hf:{name} is neither a folder nor .*: check the name and the network"):
            data.read(f"hf:{name}:test")
    (tmp_path / "some___data" / "default" / "0.0.0" / "hash").mkdir(parents=True)
    check_hub("some/data")  # in the cache


def pair_rows(*values, name="better"):
    return [{"source": "q", "output_1": "a", "output_2": "b", name: value} for value in values]


@pytest.mark.parametrize(
    ("values", "labels", "choices"),
    [
        (["A", "b", "tie", "Tie", None], (), [0, 1, None, None, None]),
        ([0, 1, -1, None], (), [0, 1, None, None]),
        ([1, 2, "tie", None], (1, 2, "tie"), [0, 1, None, None]),
        ([1, 2, "A", "B"], ("1", "2"), [0, 1, 0, 1]),  # a letter means the same beside other codes
        ([True, False, None], ("true", "false"), [0, 1, None]),
        (["B", "A"], ("B", "A"), [0, 1]),
        ([1, 0], (1, 0), [0, 1]),  # what is named is never guessed
    ],
)
def test_choices_in_the_codes_of_a_file(tmp_path, values, labels, choices):
    rows = pair_rows(*values)
    for given in (rows, as_csv(tmp_path / "a.csv", rows), pandas.DataFrame(rows, dtype=object)):
        items = data.read(given, choices={"better": labels})
        assert [e.better for e in items] == choices


def test_choices_in_any_field_name_their_place(tmp_path):
    path = as_csv(tmp_path / "a.csv", pair_rows("A", "tie", "", "B", name="verdict"))
    assert [e.verdict for e in data.read(path, choices={"verdict": ()})] == [0, -1, None, 1]
    assert [e.verdict for e in data.read(path)] == ["A", "tie", None, "B"]  # another column stays as it is
    path = as_csv(tmp_path / "b.csv", pair_rows(1, 2, name="verdict"))
    with pytest.raises(DataError, match=r"b\.csv:3: 'verdict' is 2: give 0 or 'A' for the first .* --labels 1,2\."):
        data.read(path, choices={"verdict": ()})
    with pytest.raises(DataError, match=r"b\.csv:2: 'verdict' is 1: give one of the labels 'x', 'y', or null"):
        data.read(path, choices={"verdict": ("x", "y")})
    path = as_csv(tmp_path / "c.csv", pair_rows("C", "A", "B"))
    with pytest.raises(DataError, match=r"c\.csv:4: 'better' is 'B': give one of the labels 'C', 'A', or null"):
        data.read(path, choices={"better": ("C", "A")})  # B is no second output where letters are codes
    for labels in (("1",), (1, "1.0"), (1, 2, 3, 4), ("a", "")):
        with pytest.raises(ValueError, match="do not tell the outputs apart"):
            data.read(path, choices={"verdict": labels})
    with pytest.raises(ValueError, match=r"The choices of llmbar are known: give llmbar:x without labels"):
        data.read("llmbar:x", choices={"better": (1, 2)})


def test_a_decimal_comma_is_read_where_semicolons_separate(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("source;output;rating_1;judge\nq;2,5;4,5;2,9\nr;1;3;\n")
    first, second = data.read(path)
    assert (first.output, second.output) == ("2,5", "1")  # a text although every cell is a number
    assert (first.judge, second.judge) == (2.9, None)
    assert (first.score, second.score) == (4.5, 3)
    path.write_text("source;output;judge\nq;a;2.9\nr;b;3\n")
    assert [e.judge for e in data.read(path)] == [2.9, 3]
    path.write_text("source;output;judge\nq;a;1.000\nr;b;2,5\n")  # the point of thousands: not 1
    with pytest.raises(DataError, match=r"a\.csv:2: 'judge' is '1\.000'|a\.csv:3: 'judge' is '2,5'"):
        data.read(path, numbers=["judge"])


@pytest.mark.parametrize(
    ("cell", "remedy"),
    [
        ("2.9/5", "2.9 alone"),
        ("4 stars", "4 alone"),
        ("2,9", "2.9 with a decimal point"),
        ("True", "1 for true and 0 for false"),
        ("no", "1 for yes and 0 for no"),
        ("FAIL", "1 for pass and 0 for fail"),
        ("4_5", r"or leave it empty \(null in JSON\) where there is none"),  # Python reads 45
        ("good", r"or leave it empty \(null in JSON\) where there is none"),
        ("inf", r"or leave it empty \(null in JSON\) where there is none"),
    ],
)
def test_a_number_that_is_none_names_its_line_and_the_remedy(tmp_path, cell, remedy):
    path = tmp_path / "a.csv"
    path.write_text(f'source,output,judge\nq,"two\nlines",1\nr,b,"{cell}"\n')
    with pytest.raises(DataError, match=rf"a\.csv:4: 'judge' is '{cell}': give a number, {remedy}\."):
        data.read(path, numbers=["judge"])


def test_a_rating_that_is_none_names_its_column(tmp_path):
    path = as_csv(tmp_path / "a.csv", [{"source": "q", "output": "a", "rating_1": "4 stars", "rating_2": 3}])
    with pytest.raises(DataError, match=r"a\.csv:2: 'rating_1' is '4 stars': give a number, 4 alone"):
        data.read(path)


@pytest.mark.parametrize("value", [1e308, -1e31, 10**40])
def test_a_number_with_which_the_measures_would_overflow_names_its_line(tmp_path, value):
    path = tmp_path / "a.jsonl"
    for field, rated in (("the score", {"score": value}), ("a rating on 'wit'", {"ratings": {"wit": [3, value]}})):
        path.write_text(json.dumps({"source": "q", "output": "a", **rated}))
        remedy = "give a number of at most 1e\\+30, or leave it empty"
        with pytest.raises(DataError, match=rf"a\.jsonl:1: {field} is .*: {remedy}"):
            data.read(path)
    path.write_text(json.dumps({"source": "q", "output": "a", "judge": value}))
    with pytest.raises(DataError, match=r"a\.jsonl:1: 'judge' is .*: give a number of at most 1e\+30, or leave it"):
        data.read(path, numbers=["judge"])


def test_text_in_another_encoding_is_to_be_saved_as_utf8(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("source,output\nq,a\nr,Größe\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.csv is not UTF-8 text: line 3 has the byte 0xf6; save it as UTF-8"):
        data.read(path)
    path.write_bytes("source,output\nq,Größe\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"a\.csv is UTF-16 text; save it as UTF-8"):
        data.read(path)


def test_a_mapped_output_that_is_missing_is_left_out_of_a_data_frame_too(tmp_path):
    frame = pandas.DataFrame([{"q": "s", "answer": None, "b": "x"}, {"q": "t", "answer": "o", "b": None}])
    for given in (frame, as_csv(tmp_path / "a.csv", frame)):
        items = data.read(given, mapping={"source": "q", "output": "answer"})
        assert [e.output for e in items] == ["o"]
        assert list(items.left_out) == ["empty output"]
        pairs = data.read(given, mapping={"source": "q", "output_1": "answer", "output_2": "b"})
        assert [e.candidates for e in pairs] == [["", "x"], ["o", ""]]


def test_an_error_names_the_users_own_column(tmp_path):
    rows = [{"q": "s", "answer": 5, "human": 3}]
    with pytest.raises(DataError, match=r"'output' is 5; .* \('output' is your column 'answer'\.\)"):
        data.read(rows, mapping={"source": "q", "output": "answer"})
    path = as_csv(tmp_path / "a.csv", [{"q": "s", "a": "x", "b": "y", "human": 3}])
    with pytest.raises(DataError, match=r"a\.csv:2: 'better' is 3: give .* \('better' is your column 'human'\.\)$"):
        data.read(path, mapping={"source": "q", "output_1": "a", "output_2": "b", "better": "human"})


# --- one's own JSONL files ---


def test_recorded_tmu_gfm_is_also_plain_jsonl(data_dir):
    path = data_dir / "tmu_gfm.jsonl.gz"
    plain, named = data.read(path), data.read(f"tmu-gfm:{path}")
    for field in ("id", "source", "output", "scores", "system"):
        assert [e[field] for e in plain] == [e[field] for e in named]
    assert plain.sha256 == named.sha256


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


@hypothesis.given(
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


# --- columns of another table ---


def test_join_of_ones_own_files(tmp_path):
    items = data.read([{"id": k, "source": "s", "output": k} for k in "abc"])
    (tmp_path / "v.csv").write_text("id,judge,mine\na,x,3\nb,x,\na,y,5\nz,y,1\n")
    joined = data.join(items, tmp_path / "v.csv", judge="x")
    assert [(e.id, e.mine) for e in joined] == [("a", 3), ("b", None)]
    assert joined[0].inputs().keys() == items[0].inputs().keys()
    assert "mine" not in items[0]
    assert list(joined.left_out.values()) == [("c",)]
    with pytest.raises(
        DataError, match=r"v\.csv:4: a second row for the item 'a', with other values {'judge': \('x', 'y'"
    ):
        data.join(items, tmp_path / "v.csv")
    with pytest.raises(DataError, match=r"No item has a row in .*v\.csv with {'judge': 'z'}"):
        data.join(items, tmp_path / "v.csv", judge="z")
    with pytest.raises(DataError, match=r"v\.csv has no column 'model'; it has the columns 'id', 'judge', 'mine'"):
        data.join(items, tmp_path / "v.csv", model="x")
    (item,) = data.join(items[:1], [{"id": "a", "base": 1, "self": 2}])
    assert (item["base"], item["self"], set(item.inputs().keys())) == (1, 2, {"source", "output"})
    with pytest.raises(DataError, match="list, row 2 has no 'id'"):
        data.join(items, [{"id": "a"}, {"mine": 3}])
    with pytest.raises(DataError, match="'a' and its row in list both have 'output', 'a' and 'b'; rename one"):
        data.join(items, [{"id": "a", "output": "b"}])
