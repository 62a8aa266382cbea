"""One function reads every source: the same three items in each format are the same examples."""

import gzip
import itertools
import json
import math
import sys
import time

import dspy
import huggingface_hub
import hypothesis
import pandas
import pytest
from commands import as_jsonl
from hypothesis import strategies as st
from refusals import refusals

import evalbias
from evalbias import data
from evalbias.cli.flags import parse_mapping
from evalbias.data import DataError
from evalbias.data.items import human_score, is_rated, single_ratings
from evalbias.data.loops import loop_items, recorded_loop

ROWS = [
    {"id": "a", "source": "Name a\nprime, please.", "output": 'It is "7".', "score": 4.5, "judge_score": 3},
    {"id": "b", "source": "2 + 2?", "output": "4", "score": None, "judge_score": 5},
    {"id": "c", "source": "2 + 3?", "output": "007", "score": 1, "judge_score": None},
]


def as_csv(path, rows, separator=","):
    pandas.DataFrame(rows).to_csv(path, index=False, sep=separator)
    return path


def every_source(folder, rows):
    """Yield the rows in memory and as files."""
    yield from (rows, [dspy.Example(**row) for row in rows], pandas.DataFrame(rows, dtype=object))
    (folder / "a.json").write_text(json.dumps(rows, indent=1))
    pandas.DataFrame(rows).to_parquet(folder / "a.parquet")
    as_jsonl(folder / "a.jsonl", rows)
    as_csv(folder / "a.csv", rows)
    as_csv(folder / "a.tsv", rows, "\t")
    for file in list(folder.iterdir()):
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    yield from folder.iterdir()
    yield as_jsonl(folder / "lines.json", rows)


def test_every_source_gives_the_same_items(tmp_path):
    sources = list(every_source(tmp_path, ROWS))
    assert len(sources) == 3 + 2 * 5 + 1
    for source in sources:
        items = data.read(source)
        assert isinstance(items, data.Dataset)
        assert [(e.id, e.source, e.output) for e in items] == [(r["id"], r["source"], r["output"]) for r in ROWS]
        assert [e.judge_score for e in items] == [3, 5, None]  # a column of any other name stays, undefined where empty
        assert [human_score(e, "wit") for e in items] == pytest.approx([4.5, math.nan, 1.0], nan_ok=True)
        assert all(is_rated(e, "wit") and "scores" not in e for e in items)
        assert set(items[0].inputs().keys()) == {"source", "output"}
        assert len(items.sha256) == 64
    assert data.read(ROWS).sha256 == data.read(ROWS).sha256 != data.read(ROWS[:2]).sha256


def test_columns_are_mapped_also_those_whose_names_hold_commas(tmp_path):
    rows = [{"question": "2 + 2?", "answer": "4", "rating": 5, "source": "school book", "other": 2}]
    mapping = {"source": "question", "output": "answer", "score": "rating", "score2": "other"}  # or one's own field
    for given in every_source(tmp_path, rows * 2):
        item, _ = data.read(given, mapping=mapping)
        assert (item.source, item.output, item.score, item.score2) == ("2 + 2?", "4", 5.0, 2)
        assert "question" not in item
    mapping = parse_mapping(["source=question, raw,output=the=answer", " rating_1 = Ann, MD", "rating_2=Ben"])
    assert mapping == {"source": "question, raw", "output": "the=answer", "rating_1": "Ann, MD", "rating_2": "Ben"}
    for text in ("source", "source,output=a", "source=", "=a", ""):
        with pytest.raises(ValueError, match=f"--map {text.split(',')[0]}: write OURS=THEIRS"):
            parse_mapping([text])


def test_what_was_expected_is_shown(tmp_path):
    path = as_csv(tmp_path / "a.csv", [{"Prompt": "q", "reply": "a", "rating": 3}])
    with pytest.raises(DataError) as caught:
        data.read(path)
    message = str(caught.value)
    assert "has no column 'output'; it has the columns 'Prompt', 'reply', 'rating'." in message
    assert "'rating' looks like 'score': --map output=reply,source=Prompt,score=rating" in message
    example = [json.loads(line) for line in message.splitlines() if line.startswith('  {"source": ')]
    assert len(data.read(example)) == 2  # the lines that it shows are themselves valid
    assert data.read(path, mapping={"output": "reply", "source": "Prompt", "score": "rating"})[0].score == 3.0


def test_a_cell_holds_what_its_column_says(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,source,output,score,verdict,code\n1,q,12,4,1,007\n2,q,3,nan,,12\n\n3,q,5,N/A,0,x\n")
    items = data.read(path)
    assert [e.output for e in items] == ["12", "3", "5"]  # a text although every cell is a number
    assert [e.verdict for e in items] == [1, None, 0]
    assert [e.code for e in items] == ["007", "12", "x"]
    assert [e.score for e in items] == pytest.approx([4, math.nan, math.nan], nan_ok=True)
    path.write_text("source,output\n" + "x" * 200_000 + ",o\n")
    assert len(data.read(path)[0].source) == 200_000
    path.write_text("source,output,better\ns,o,2\n")
    assert data.read(path)[0].better == 2  # which means nothing beside one output


@pytest.mark.parametrize(("ending", "text"), [
    ("csv", "source;output;score, in points;judge\nq;a, b;2;2,9\n"),  # a comma in the name of a column
    ("csv", '"sep=;"\r\nsource;output;judge\r\nq;a, b;2,9\r\n'),  # as Excel names it
    ("csv", "source\toutput\tjudge\nq\ta, b\t2.9\n"),
    ("tsv", "source;output;judge\nq;a, b;2,9\n"),
    ("tsv", "source\toutput\tjudge\tmean, by people; rounded, twice\nq\ta, b\t2.9\t3\n"),
    ("csv", 'source,output,judge,,\nq,"a, b",2.9,,\n'),  # columns without a name
    ("csv", ',source,output,judge\n0,q,"a, b",2.9\n'),
    ("csv", ',source,output,judge\n,,,\n,,,\n0,q,"a, b",2.9\n'),  # blank rows
    ("csv", '"Round 2, by Anna",,\n,,\nsource,output,judge\nq,"a, b",2.9\n'),  # a note above the header
    ("csv", ',,By models\nsource,output,judge\nq,"a, b",2.9\n'),  # names of groups of columns
])  # fmt: skip
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


def test_notes_above_a_header_are_left_out_and_nothing_else_is(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Round 2;;\r\n;;\r\nsource;output;judge\r\nq;a;2,9\r\nr;b;3\r\n", encoding="utf-16", newline="")
    items = data.read(path)
    assert [(e.id, e.judge) for e in items] == [("4", 2.9), ("5", 3)]
    assert items.left_out == {"note above the header": (f"{path}:1", f"{path}:2")}
    for text in ("output,,\na,3,4\nb,5,6\n", "output,\na,\nb,\n", "output\na\nb\n", ",output\na,a\nb,b\n"):
        path.write_text(text)
        assert [e.output for e in data.read(path)] == ["a", "b"]
        assert not data.read(path).left_out
    for header in ("output,,", "the output,,"):  # a name over columns without one is no note
        path.write_text(f"{header}\nIt is so.,Why is it?,y\nIt is not.,What is not?,z\n")
        items = data.read(path, mapping={"output": "the output"} if " " in header else None)
        assert ([item.output for item in items], items.left_out) == (["It is so.", "It is not."], {})


@pytest.mark.parametrize(
    ("last", "left"), [("9,10,9", 4), ("2.2,,2.2", 4), ("2.2,2,2.2", 0), ("9,9,", 0), ("2.5,2.5,2.2", 0), (",,9", 0)]
)
def test_a_last_row_of_totals_is_no_item(tmp_path, last, left):
    rows = f"a,1,3,2\nb,3,3,3\nc,1,1,1\nd,4,3,3\ntotal,{last}\n"
    (path := tmp_path / "a.csv").write_text(f"output,rating_1,rating_2,judge\n{rows}")
    assert len(items := data.read(path, numbers=["judge"])) == left or 5
    assert items.left_out == ({"totals of the rows above": (f"{path}:6",)} if left else {})


@pytest.mark.parametrize("names", [("model_1", "model_2", "winner"), ("system_a", "system_b", "human_choice")])
def test_a_winner_named_by_its_writer_is_an_output(names):
    said = [("gpt", "llama", "llama"), ("claude", "gpt", "claude"), ("gpt", "claude", "tie")]
    rows = [{"output_1": "x", "output_2": "y"} | dict(zip(names, cells, strict=True)) for cells in said]
    assert [item.better for item in data.read(rows, mapping={"better": names[2]})] == [1, 0, -1]
    rows[0][names[1]] = "gpt"  # both are one's
    with pytest.raises(DataError, match="'better' is 'llama'"):
        data.read(rows, mapping={"better": names[2]})


def test_a_decimal_comma_is_read_where_semicolons_separate(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("source;output;rating_1;judge\nq;2,5;4,5;2,9\nr;1;3;\n")
    first, second = data.read(path)
    assert (first.output, second.output) == ("2,5", "1")  # a text although every cell is a number
    assert (first.judge, second.judge) == (2.9, None)
    assert (first.score, second.score) == (4.5, 3)
    path.write_text("source;output;judge\nq;a;2.9\nr;b;3\n")
    assert [e.judge for e in data.read(path)] == [2.9, 3]


def test_peoples_scores_are_no_judges_scores(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("source,output,score\nq,a,4\nq,b,3\n")
    with pytest.raises(DataError, match=r"a\.csv: the column 'score' holds people's .*: --map judge_score=score and"):
        data.read(path, numbers=["score"])
    items = data.read(path, mapping={"judge_score": "score"}, numbers=["judge_score"])
    assert [(e.judge_score, "score" in e) for e in items] == [(4, False), (3, False)]
    path.write_text("source,output,score,scores.wit\nq,a,4,1\nq,b,3,2\n")  # what people said stands in scores
    assert [e.score for e in data.read(path, numbers=["score"])] == [4, 3]


@pytest.mark.parametrize(("fields", "score", "single"), [
    ({"ratings": [4, None, 5]}, 4.5, [4, math.nan, 5]),
    ({"ratings": [4, None, 5], "score": 4}, 4, [4, math.nan, 5]),
    ({"rating_1": 4, "rating_2": None, "rating_3": 5}, 4.5, [4, math.nan, 5]),
    ({"rating_10": 5, "rating_2": 4}, 4.5, [4, 5]),
    ({"rating_1": None, "rating_2": None}, math.nan, [math.nan, math.nan]),
    ({"ratings": "[4, null, 5]"}, 4.5, [4, math.nan, 5]),
    ({"scores": {"wit": 3}, "ratings": {"wit": [2, 4]}}, 3, [2, 4]),
    ({"scores": '{"wit": 3}'}, 3, []),
    ({"scores.wit": 3, "ratings.wit": "[2, 4]", "scores.tact": None}, 3, [2, 4]),
])  # fmt: skip
def test_scores_and_ratings(tmp_path, fields, score, single):
    cells = {k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in fields.items()}
    table = as_csv(tmp_path / "a.csv", [{"source": "s", "output": "o", **cells}])
    for given in ([{"source": "s", "output": "o", **fields}], table):
        (item,) = data.read(given)
        assert human_score(item, "wit") == pytest.approx(score, nan_ok=True)
        assert single_ratings(item, "wit") == pytest.approx(single, nan_ok=True)


def test_empty_outputs_are_left_out_and_a_source_may_be_empty_or_missing(tmp_path):
    with pytest.raises(DataError, match="list, row 1 is 4; give dicts"):
        data.read(pandas.Series([4]))
    frame = pandas.DataFrame([{"q": "s", "answer": None, "b": "x"}, {"q": None, "answer": "o", "b": None}])
    for given in (frame, as_csv(tmp_path / "a.csv", frame)):
        items = data.read(given, mapping={"source": "q", "output": "answer"})
        assert [e.output for e in items] == ["o"]
        assert "source" not in items[0]
        assert list(items.left_out) == ["empty output"]
        pairs = data.read(given, mapping={"source": "q", "output_1": "answer", "output_2": "b"})
        assert [e.candidates for e in pairs] == [["", "x"], ["o", ""]]
    items = data.read([{"output": "a", "score": 3}, {"output": "a", "score": 4}])
    assert [e.id for e in items] == ["1", "2"]
    assert list(data.by_input(items)) == ["1", "2"]  # each its own input
    train, test = data.split(items, test_fraction=0.5, seed=0, by="input")
    assert len(train) == len(test) == 1


def test_pairs(tmp_path):
    given = [("q", ["a", "b"], 1, 0), ("r", ["c", "d"], None, None), ("t", ["", " "], 0, 1), ("u", ["c", ""], 0, 1)]
    rows = [dict(zip(("source", "outputs", "better", "winner"), one, strict=True)) for one in given]
    rows = [row | {"systems": ["x", "y"]} for row in rows]
    flat = [
        {name: row[name] for name in ("source", "better", "winner")}
        | {f"{name}_{k}": row[f"{name}s"][k - 1] for name in ("output", "system") for k in (1, 2)}
        for row in rows
    ]
    pandas.DataFrame(rows).to_parquet(tmp_path / "lists.parquet")
    for given in (rows, as_jsonl(tmp_path / "a.jsonl", rows), as_csv(tmp_path / "a.csv", flat), pandas.DataFrame(flat)):
        first, second, half = items = data.read(given)
        assert half.candidates == ["c", ""]
        assert (first.candidates, first.better, first.preference) == (["a", "b"], 1, "B")
        assert (second.better, second.winner, "preference" in second) == (None, None, False)
        assert first.systems == ["x", "y"]
        assert "outputs" not in first
        assert set(first.inputs().keys()) == {"source", "candidates"}
        assert {reason: len(places) for reason, places in items.left_out.items()} == {"empty output": 1}
    assert data.read(tmp_path / "lists.parquet")[0].candidates == ["a", "b"]


def pair_rows(*values, name="better"):
    return [{"source": "q", "output_1": "a", "output_2": "b", name: value} for value in values]


@pytest.mark.parametrize(("values", "labels", "choices"), [
    (["A", "b", "tie", "Tie", None], (), [0, 1, -1, -1, None]),
    ([0, 1, -1, None], (), [0, 1, -1, None]),
    ([1, 2, "tie", None], (1, 2, "tie"), [0, 1, -1, None]),
    ([1, 2, "A", "B"], ("1", "2"), [0, 1, 0, 1]),  # a letter means the same beside other codes
    ([True, False, None], ("true", "false"), [0, 1, None]),
    (["A", "tie (inconsistent)", "Tie (both good)", "B"], (), [0, -1, -1, 1]),
    ([1, "tie (inconsistent)", 2, "tie"], (1, 2), [0, -1, 1, -1]),
    (["B", "A"], ("B", "A"), [0, 1]),
    ([1, 0], (1, 0), [0, 1]),  # what is named is never guessed
])  # fmt: skip
def test_choices_in_the_codes_of_a_file(tmp_path, values, labels, choices):
    rows = pair_rows(*values)
    for given in (rows, as_csv(tmp_path / "a.csv", rows), pandas.DataFrame(rows, dtype=object)):
        items = data.read(given, choices={"better": labels})
        assert [e.better for e in items] == choices


def test_choices_in_any_field_name_their_place(tmp_path):
    path = as_csv(tmp_path / "a.csv", pair_rows("A", "tie", "", "B", name="verdict"))
    assert [e.verdict for e in data.read(path, choices={"verdict": ()})] == [0, -1, None, 1]
    assert [e.verdict for e in data.read(path)] == ["A", "tie", None, "B"]  # another column stays as it is
    for labels in (("1",), (1, "1.0"), (1, 2, 3, 4), ("a", "")):
        with pytest.raises(ValueError, match="do not tell the outputs apart"):
            data.read(path, choices={"verdict": labels})


SO = {"source": "s", "output": "o"}
TABLES = [
    "source,output\ns,o\ns,o,p\n",
    "source,output,source\ns,o,p\n",
    'source,output\n"s,o\n',
    "source,output,score\ns,o,fine\n",
    "source;output;score\nq;a;2,5\nr;b;good\n",
    'source,output,ratings\ns,o,"[3, x]"\n',
    "source;output;judge\nq;a;1.000\nr;b;2,5\n",  # of thousands: not 1
    "source,output,rating_1,rating_2\nq,a,4 stars,3\n",
    "id,source,output\n7,q,a\n7,q,b\n",
    "message,agent_text\nq,a\n",
    "source,Output 1,Output 2\nq,a,b\n",
    "prompt,reply_a,reply_b,human\nq,a,b,A\n",
    "source,output_1,output_2,better\ns,o,p,2\n",
]
CELLS = ["2.9/5", "4 stars", "2,9", "True", "no", "FAIL", "4_5", "fine", "good", "inf"]  # Python reads 45 in 4_5
MAPPED = "ticket,question,answer,b,anna,ben,judge\n7,q,a,b,4,-,3\n7,q,b,c,5,1,3\n"
MAPPINGS = ["output=anser", "sorce=question,output=answer", "output=answer,rating_1=anna,rating_2=anna"]
MAPPINGS += ["source=answer,output=answer", "output=answer,rating_1=ben", "output=answer,rating_1=judge"]
MAPPINGS += ["output=answer,id=ticket", "output_1=answer,output_2=b,better=anna"]
CODED = "source,output_1,output_2,verdict\n" + "".join(f"s,o,p,{choice}\n" for choice in (1, 2, "C", "B"))
CODES = ["", "x,y", "1,2", "1,2,C"]  # for a B without a second output, letters are codes
LARGE = (1e308, -1e31, 10**40)
LINES = [
    *({**SO, "ratings": ratings} for ratings in ({"wit": 3}, {"wit": ["x"]}, [])),
    {**SO, "ratings": [3], "scores": {"wit": 3}},
    *({**SO, "scores": scores} for scores in ({"wit": "x"}, {"wit": 10**400}, {"wit": True, "tact": 2}, [3])),
    *({**SO, "id": name} for name in (1.5, "1")),
    {"source": "s"},
    {**SO, "output": None},
    *({**SO, "source": source} for source in (" ", 3)),
    *({"source": "q", "outputs": outputs} for outputs in (["a"], ["a", 3])),
    *({"source": "q", "outputs": ["a", "b"], **more} for more in ({"systems": ["x"]}, {"better": "C"})),
    *(SO | more for x in LARGE for more in ({"score": x}, {"ratings": {"wit": [3, x]}}, {"judge": x})),
    *({**SO, "output": "a\ud83d b"}, {**SO, "id": "\ud83d"}, [1]),
]
JUDGED, FIRST = {"numbers": ["judge"]}, json.dumps({"id": "1", **SO})
REFUSED = {
    **{text: ("a.csv", text, JUDGED) for text in TABLES},
    **{f"cell {cell}": ("a.csv", f'source,output,judge\nq,"two\nlines",1\nr,b,"{cell}"\n', JUDGED) for cell in CELLS},
    **{f"map {given}": ("a.csv", MAPPED, {"mapping": parse_mapping([given]), **JUDGED}) for given in MAPPINGS},
    **{f"codes {code}": ("a.csv", CODED, {"choices": {"verdict": [*filter(None, code.split(","))]}}) for code in CODES},
    **{
        f"line {k}": ("a.jsonl", json.dumps({"id": "1", **SO}) + "\n" + json.dumps(line), JUDGED)
        for k, line in enumerate(LINES)
    },
    "latin-1": ("a.csv", "source,output\nq,a\nr,Größe\n".encode("latin-1"), {}),
    "cut": ("a.csv", "source,output\nq,Größe\n".encode("utf-16")[:-1], {}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_named_by_its_place_with_a_remedy(tmp_path, case, snapshot):
    name, content, options = REFUSED[case]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as raised:
        data.read(tmp_path / name, **options)
    assert str(raised.value).replace(f"{tmp_path}/", "") == snapshot


NO_JSON = ["{", '{"id": 1, "score": 4, "score": 2}', '{"n": ' + "[" * 100_000 + "]" * 100_000 + "}"]
NO_JSON += ['{"scores": {"wit": NaN}}', '{"source": "s", "output": "o", "scores": {"wit": 1e999}}']
NO_JSON += ['{"source": "s", "output": "o", "scores": {"wit": 1%s}}' % ("0" * 9999)]


@pytest.mark.parametrize("line", NO_JSON, ids=["open", "twice", "deep", "NaN", "too large", "too long"])
def test_a_line_that_is_no_json_is_named(tmp_path, line):
    (tmp_path / "items.jsonl").write_text(f"{FIRST}\n{line}")
    with pytest.raises(DataError, match=r"items\.jsonl:2:? .*(is not valid JSON|'wit' is inf)"):
        data.read(tmp_path / "items.jsonl")


@pytest.mark.parametrize(("source", "options", "error"), [
    *((name, {}, ValueError) for name in ("items.txt", "a.xlsx", "nothing:a", "folder")),
    ("jsonl:folder", {}, DataError),
    ("none.csv", {}, FileNotFoundError),
    ([{"output": "a"}, "x"], {}, DataError),
    ([{"q": "s", "answer": 5}], {"mapping": {"output": "answer"}}, DataError),
    *((name, {}, DataError) for name in ("none.parquet", "object.json", "torn.jsonl.gz")),
], ids=lambda given: given if isinstance(given, str) else "")  # fmt: skip
def test_a_source_that_is_no_table_is_refused(tmp_path, monkeypatch, source, options, error, snapshot):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "none.parquet").write_bytes(b"none")
    (tmp_path / "object.json").write_text('{"items": [], "n": 0}')
    (tmp_path / "torn.jsonl.gz").write_bytes(gzip.compress(json.dumps(SO).encode())[:-9])
    with pytest.raises(error) as raised:
        data.read(source, **options)
    assert str(raised.value).partition(" (")[0] == snapshot


def test_specifications_of_data(tmp_path):
    assert data.parse_spec(r"jsonl:C:\a.txt") == ("jsonl", r"C:\a.txt")
    (tmp_path / "empty.jsonl.gz").write_bytes(b"")
    assert data.read(tmp_path / "empty.jsonl.gz") == []


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


def test_a_data_set_that_the_hub_cannot_be_asked_about_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(pytest.importorskip("datasets").config, "HF_DATASETS_CACHE", tmp_path)
    nowhere = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", nowhere)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    for name in ("no-such/data", "no such/data", "a/b/c"):
        with pytest.raises(DataError, match=f"hf:{name}:test cannot be loaded .*; check name and network"):
            data.read(f"hf:{name}:test")


@pytest.mark.parametrize(("library", "source", "match"), [
    ("pyarrow", "a.parquet", r"pip install 'evalbias\[parquet\]'"), ("datasets", "hf:x/y", r"'evalbias\[hf\]'")
])  # fmt: skip
def test_a_missing_library_is_named(tmp_path, monkeypatch, library, source, match):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(ImportError, match=match):
        data.read(source)


def test_items_and_records_of_refine_loops_are_tables_too(tmp_path):
    path = as_csv(tmp_path / "a.csv", [{"text": "x", "lang": "English"}, {"text": "y", "lang": "English"}])
    items, _ = loop_items(path, mapping={"source": "text", "target_language": "lang"})
    assert [(e.source, e.target_language) for e in items] == [("x", "English"), ("y", "English")]
    path = as_csv(tmp_path / "b.csv", [{"i": 0, "round": r, "own": r + 0.5} for r in (0, 1)])
    loop = recorded_loop(path, mapping={"iteration": "round"})
    assert loop.name == "b"
    assert loop.scores("own").tolist() == [[0.5], [1.5]]


def test_users_own_items(tmp_path):
    lines = [
        {**SO, "scores": {"wit": 3, "tact": None}, "ratings": {"wit": [1, None, 5]}, "base": "b", "self": "me"},
        {"source": "s", "output": "  "},
        {"id": 7, "source": "s", "output": "p", "ratings": {"wit": [1, 2]}},
    ]
    file = tmp_path / "items.jsonl"
    windows = "\r\n\r\n".join(map(json.dumps, lines))  # blank lines between, as editors on Windows save it
    file.write_bytes(b"\xef\xbb\xbf" + windows.encode())
    items = data.read(f"jsonl:{file}")
    assert [type(items), type(items[0])] == [data.Dataset, dspy.Example]
    assert [e.id for e in items] == ["1", "7"]
    assert items[0].scores == pytest.approx({"wit": 3.0, "tact": math.nan}, nan_ok=True)
    assert items[0].ratings["wit"] == pytest.approx([1, math.nan, 5], nan_ok=True)
    assert items[1].scores == {"wit": 1.5}
    assert (items[0].get("base"), items[0].get("self")) == ("b", "me")  # names that dspy.Example defines itself
    assert (items.name, items.path, items.left_out) == ("jsonl", file, {"empty output": (f"{file}:3",)})
    assert items.summary() == f"jsonl: 2 items; 1 left out (empty output: {file}:3)"


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
    file = tmp_path_factory.mktemp("items") / f"items{suffix}"
    file.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    loaded = data.read(str(file))
    nulls = [{k: None if v != v else v for k, v in e.scores.items()} for e in loaded]
    assert [{**e.toDict(), "scores": s} for e, s in zip(loaded, nulls, strict=True)] == items


WORDS = [("Yes", "no"), ("PASS", "Fail"), ("true", "False"), (True, False), (1, 0), ("C", "I"), ("Good", "bad")]
WORDS += [("thumbs up", "Thumbs_Down"), ("\u2705", "\u274c"), ("\u2714\ufe0f", "\u2718"), ("\U0001f44d", "\U0001f44e")]


def sources(folder, rows):
    frame = pandas.DataFrame(rows, dtype=object)
    return rows, frame, as_jsonl(folder / "rows.jsonl", rows), as_csv(folder / "rows.csv", frame)


@pytest.mark.parametrize(("passes", "fails"), WORDS)
def test_words_for_pass_and_fail_are_read_as_they_stand(tmp_path, passes, fails):
    rows = [
        {"output": "a", "mine": passes, "rating_1": fails, "rating_2": passes},
        {"output": "b", "mine": fails, "rating_1": None, "rating_2": fails},
        {"output": "c", "mine": None, "rating_1": passes, "rating_2": passes},
    ]
    for source in sources(tmp_path, rows):
        items = data.read(source, numbers=["mine"])
        assert [item.mine for item in items] == [1, 0, None]
        assert [item.score for item in items] == [0.5, 0, 1]
        assert str([item.ratings for item in items]) == "[[0.0, 1.0], [nan, 0.0], [1.0, 1.0]]"
    scored = [{"output": "a", "score": passes}, {"output": "b", "score": fails}]
    assert [item.score for item in data.read(scored)] == [1, 0]


def test_numbers_out_of_one_whole_are_read_and_others_refused_by_their_place(tmp_path):
    rows = [
        {"output": "a", "mine": "7/10", "rating_1": "4 out of 5", "rating_2": "3/5", "by": "1/2"},
        {"output": "b", "mine": "9 / 10", "rating_1": "4,5/5", "rating_2": None, "by": "1/3"},
        {"output": "c", "mine": "10/10", "rating_1": "5/5", "rating_2": "3/5", "by": "1/4"},
    ]
    for source in sources(tmp_path, rows):
        items = data.read(source, numbers=["mine"])
        assert [item.mine for item in items] == [7, 9, 10]
        assert str([item.ratings for item in items]) == "[[4.0, 3.0], [4.5, nan], [5.0, 3.0]]"
        assert [item.by for item in items] == ["1/2", "1/3", "1/4"]  # another column stays as it is
    for name, cell, match in (
        ("rating_1", "6/5", "row 3: 'rating_1' is '6/5' among 4 out of 5 and 4,5/5"),
        ("rating_1", "3", "row 3: 'rating_1' is '3' among 4 out of 5"),
        ("mine", "3/5", "row 1: 'mine' is '7/10': give a number, 7 alone"),
    ):
        with pytest.raises(DataError, match=match):
            data.read([*rows[:2], {**rows[2], "rating_2": None, name: cell}], numbers=["mine"])


def test_words_in_lists_and_by_criterion_are_read():
    rows = [
        {"output": "a", "scores": {"tone": "pass"}, "ratings": {"tone": ["pass", None, "FAIL"]}},
        {"output": "b", "scores": {"tone": None}, "ratings": {"tone": ["fail", "fail", "fail"]}},
    ]
    given = json.dumps(rows)
    items = data.read(rows)
    assert [str(item.ratings["tone"]) for item in items] == ["[1.0, nan, 0.0]", "[0.0, 0.0, 0.0]"]
    assert str([item.scores["tone"] for item in items]) == "[1.0, nan]"
    assert json.dumps(rows) == given  # what a user gave stays as it was


@pytest.mark.parametrize(("scores", "match"), [(("yes", 4, 5), "1: .*'yes'"), (("yes", "no", "fail"), "3: .*'fail'")])
def test_a_word_among_other_values_is_refused_by_its_place(scores, match):
    with pytest.raises(DataError, match=f"row {match}"):
        data.read([{"output": "a", "score": score} for score in scores])


def test_each_column_holds_its_own_pair_and_the_first_cell_of_no_pair_is_named_by_its_own_column():
    rows = [{"mine": 1, "label_1": "pass", "label_2": "no"}, {"mine": 0, "label_1": "fail", "label_2": "yes"}]
    assert [item.ratings for item in data.read(rows, numbers=["mine"])] == [[1, 0], [0, 1]]
    with pytest.raises(DataError, match=r"row 2: 'rating_2' is 4 .*'rating_2' is your column 'label_2'"):
        data.read([{**rows[0], "label_2": 1}, {**rows[1], "label_2": 4}], numbers=["mine"])


@pytest.mark.parametrize(("one", "two", "expected"), [(4, 5, [4, 5]), ("yes", "no", [1, 0])])
def test_samples_in_columns_or_lists_need_no_texts_and_may_be_words(tmp_path, one, two, expected):
    for row in ({"mine_1": one, "mine_2": two}, {"mine": json.dumps([one, two]), "output": "Four."}):
        for source in sources(tmp_path, [row]):
            assert data.read(source, samples="mine")[0].mine == expected


def test_a_file_of_verdicts_and_labels_needs_no_texts_and_no_mapping(tmp_path):
    both = itertools.product(["pass", "fail"], ["yes", "no"])
    rows = [{"verdict": verdict, "label": label} for verdict, label in both for _ in range(9)]
    for source in sources(tmp_path, rows):
        audited = evalbias.audit(source, scores_field="verdict")
        assert audited["pass_or_fail"]["tpr"].value == 0.5
        assert "output" in audited.not_measured["verbosity"]
    several = [{"mine": 1, "label_1": "pass", "label_2": "fail"}, {"mine": 0, "label_1": "pass", "label_2": "pass"}]
    assert [item.ratings for item in data.read(several, numbers=["mine"])] == [[1, 0], [1, 1]]
    beside = [{**row, "output": "Four."} for row in several]
    with pytest.raises(DataError, match=r"row 3: 'score' is 'maybe' among yes and no.*'score' is your column 'label'"):
        data.read([{"mine": 1, "output": "a", "label": one} for one in ("yes", "no", "maybe")], numbers=["mine"])
    assert [item.ratings for item in data.read(beside, numbers=["mine"])] == [[1, 0], [1, 1]]
    # beside texts or people's scores, a label may be anything
    assert data.read([{"output": "a", "mine": 1, "label": "spam"}], numbers=["mine"])[0].label == "spam"
    assert data.read([{"mine": 1, "score": 0, "label": "spam"}], numbers=["mine"])[0].label == "spam"


LABELED = {"verdict": 1, "label": 1}


test_texts_are_still_asked_for_where_they_are_read_or_seem_to_be_there = refusals(
    lambda rows, options: data.read(rows, **options),
    ([LABELED], {}, "'output'"),
    ([{**LABELED, "answer": "Four."}], {"numbers": ["verdict"]}, "'answer' looks like 'output'"),
    ([{**LABELED, "answer_a": "Four.", "answer_b": "Five."}], {"numbers": ["verdict"]}, "'answer_a' .* 'output_1'"),
    ([LABELED], {"numbers": ["verdcit"]}, "'verdcit'.*'verdict'"),
    ([LABELED], {"choices": {"verdict": ()}}, "'output_1'"),
    ([{"verdict": 1, "output": "Four."}, {"verdict": 1}], {"numbers": ["verdict"]}, "'output' is missing"),
    error=DataError,
)


def test_choices_of_several_people(tmp_path):
    rows = [
        {"output_1": "a", "output_2": "b", "better_1": "A", "better_2": "tie", "better_10": "a"},
        {"output_1": "c", "output_2": "d", "better_1": "B", "better_2": None, "better_10": "A"},
        {"output_1": "e", "output_2": "f", "better_1": "B", "better_2": "b", "better_10": "A"},
        {"output_1": "g", "output_2": "h", "better_1": None, "better_2": None, "better_10": None},
    ]
    for source in sources(tmp_path, rows):
        items = data.read(source)
        expected = ["[1.0, 0.0, 1.0]", "[-1.0, nan, 1.0]", "[-1.0, -1.0, 1.0]", "[nan, nan, nan]"]
        assert [str(item.ratings) for item in items] == expected
        assert [item.better for item in items] == [0, -1, 1, None]
        assert [item.get("preference") for item in items] == ["A", None, "B", None]
    alpaca = {"output_1": "a", "output_2": "b", "better": 1, "preference": 1.75}  # of a judge, as AlpacaEval names it
    choices = dict.fromkeys(("better", "preference"), (1, 2, 1.5))
    told = data.read([{**alpaca, "preference": share} for share in (1.75, 1.25, 1, 2)], choices=choices)
    assert [(item.better, item.preference) for item in told] == [(0, 0.75), (0, 0.25), (0, 0), (0, 1)]
    coded = data.read([{**rows[0], "better_1": 1, "better_2": 3, "better_10": 2}], choices={"better": (1, 2, 3)})
    assert (coded[0].ratings, coded[0].better) == ([1, 0, -1], -1)
    judged = [{**row, "mine": "A"} for row in rows[:3]]
    assert evalbias.audit(judged, winner_field="mine").judged.ratings.shape == (3, 3)
    with pytest.raises(DataError, match=r"row 1: 'better_2' is 'maybe': give 0 or 'A'"):
        data.read([{**rows[0], "better_2": "maybe"}])
    (_, absent) = data.read([rows[0], {name: one for name, one in rows[1].items() if name != "better_1"}])
    assert str(absent.ratings) == "[nan, nan, 1.0]"
    rated = data.read([{"output": "a", "rating_1": 1, "rating_2": 2}, {"output": "b", "rating_2": 4}])
    assert str([item.ratings for item in rated]) == "[[1.0, 2.0], [nan, 4.0]]"
    drawn = data.read([{"output": "a", "mine_1": 1, "mine_2": 2}, {"output": "b", "mine_2": 4}], samples="mine")
    assert [item.mine for item in drawn] == [[1, 2], [None, 4]]
    with pytest.raises(DataError, match="both 'better_1' and ratings say what people prefer"):
        data.read([{**rows[0], "rating_1": 1}])
