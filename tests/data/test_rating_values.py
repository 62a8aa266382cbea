"""Values that stand for no rating are asked about, and words in an order are ratings; no command scores a failure."""

import json
import random

import numpy as np
import pytest
from commands import as_jsonl, evalbias

import evalbias as package
from evalbias.data import DataError, read, world
from evalbias.data.columns import recognised_columns
from evalbias.data.rating_values import NO_CODES, failure_codes, legible
from evalbias.data.reading import table_of

SCALE = [1] * 10 + [2] * 35 + [3] * 50 + [4] * 30 + [5] * 15  # ratings from 1 to 5
TENS = [20, 30, 40, 50, 60, 70, 80, 90, 100] * 12
CASES = {
    # the judge alone: values that are apart
    "999 on 1 to 5": (SCALE + [999] * 2, [], [999]),
    "99 and 98": ([*SCALE, 98, 99, 99], [], [98, 99]),
    "-1 on 1 to 5": (SCALE + [-1] * 2, [], [-1]),
    "-1 of a share": ([0.25, 0.5, 1] * 20 + [-1] * 2, [], [-1]),
    "-99 and 99": ([*SCALE, -99, -99, 99, 99], [], [-99, 99]),
    "-1 on 0 to 4": ([k - 1 for k in SCALE] + [-1] * 3, [], [-1]),
    "0 far below 60 to 100": ([60, 70, 80, 90, 95] * 12 + [0] * 5, [], [0]),
    "once": ([*SCALE, 999], [], []),
    "0 on 0 to 100": (TENS + [0] * 9, [], []),
    "0, 1 and 2": ([0, 1, 2] * 20, [], []),
    "0 to 4, mostly 0": ([0] * 60 + [1, 2, 3, 4] * 10, [], []),
    "0 on 0 to 10": ([*range(11)] * 9, [], []),
    "pass and fail": ([0] * 20 + [1] * 20, [], []),
    "-1, 0 and 1": ([-1, 0, 1] * 20, [], []),
    "-2 to 2": ([-2, -1, 0, 1, 2] * 20, [], []),
    "5 far above 1 and 2": ([1, 2] * 20 + [5] * 4, [], []),
    "7 on 1 to 7": ([1, 2, 3] * 20 + [7] * 4, [], []),
    "points off": ([0, -1, -1, -5, -25] * 20, [], []),
    "numbers of any size": ([*np.random.default_rng(0).normal(size=200)], [], []),
    # beside people: values outside a scale that both use from end to end
    "0 where people use 1 to 5": (SCALE + [0] * 19, [SCALE, SCALE], [0]),
    "9 where people use 1 to 5": (SCALE + [9] * 13, [SCALE, SCALE], [9]),
    "-1 beside pass and fail": ([0, 1] * 40 + [-1] * 9, [[0, 1] * 40], [-1]),
    "0 on 0 to 4, of both": ([k - 1 for k in SCALE], [[k - 1 for k in SCALE]], []),
    "0, 1 and 2 beside 1 to 5": ([0, 1, 2] * 20, [SCALE], []),
    "0 to 100 beside 1 to 5": (TENS + [0] * 9, [SCALE], []),
    "0 where people lack 1": (SCALE + [0] * 9, [[2] * 30 + [3] * 50 + [4] * 30 + [5] * 15], []),
    "0 in two cells": (SCALE + [0] * 2, [SCALE, SCALE], []),
}
N, FAILED = 160, 19
PAIR = {"source": "q", "output_1": "a", "output_2": "b"}


@pytest.mark.parametrize("case", CASES)
def test_values_that_may_stand_for_no_rating(case):
    judge, people, codes = CASES[case]
    columns = {"judge": judge} | {f"rating_{k}": values for k, values in enumerate(people)}
    party = {name: "people" if name.startswith("rating") else name for name in columns}
    found = failure_codes({name: np.array(values, dtype=float) for name, values in columns.items()}, party)
    assert found == ({"judge": codes} if codes else {})


def test_one_raters_code_is_told_from_a_rating_that_few_give():
    coded = {"a": [*SCALE, *[9] * 6], "b": SCALE, "c": SCALE}
    columns = {name: np.array(values, dtype=float) for name, values in coded.items()}
    assert failure_codes(columns, dict.fromkeys(columns, "people")) == {"a": [9]}
    rng = np.random.default_rng(0)
    for _ in range(20):  # 40 raters of 12 items each, who give 0 in 1 of 100
        table = rng.choice(6, size=(40, 12), p=[0.01, 0.09, 0.2, 0.3, 0.25, 0.15]).astype(float)
        sparse = {f"{k}": row for k, row in enumerate(table)} | {"judge": table.ravel()}
        assert failure_codes(sparse, {name: "judge" if name == "judge" else "people" for name in sparse}) == {}


def replies(code, *, rater=None, n=N):
    """Make rated replies whose judge failed on the 19 longest, which has recorded the code there."""
    rng = random.Random(1)
    rows = []
    for k, example in enumerate(world.examples(n, seed=1)):
        quality = rng.randrange(1, 6)
        said = [min(max(quality + rng.choice((-1, 0, 0, 1)), 1), 5) for _ in range(4)]
        row = {"source": f"{example.source} {k}", "output": example.output + " and so on" * rng.randrange(9)}
        rows.append(row | dict(zip(("rating_1", "rating_2", "mine", "theirs"), said, strict=True)))
    rows.sort(key=lambda row: len(row["output"]))
    for row in rows[-FAILED:]:
        row["mine"] = code
    if rater is not None:
        for row in rows[::8]:
            row["rating_2"] = rater
    return rows


FILE = ["--data", "items.jsonl"]
TWO = ["--before", "items.jsonl", "--after", "items.jsonl", "--scores-field", "mine"]
COMMANDS = {"audit": [*FILE], "audit of one": [*FILE, "--scores-field", "mine"]}
COMMANDS |= {"correct": [*FILE, "--scores-field", "mine"], "drift": TWO, "compare": TWO}
COMMANDS |= {"jury": [*FILE, "--judges", "mine,theirs"], "probe read": [*FILE, "--scores-field", "mine"]}
CODED = {"0": 0, "-1": -1, "999": 999, "error": "error", "skip": "Skip"}


@pytest.mark.parametrize(
    ("command", "code"), [*(("audit", code) for code in CODED), *((command, "0") for command in [*COMMANDS][1:])]
)
def test_commands_ask_whether_a_failure_is_a_score(tmp_path, command, code):
    names = {"mine": "judge_score"} if command == "audit" else {}
    rows = [{names.get(name, name): value for name, value in row.items()} for row in replies(CODED[code])]
    as_jsonl(tmp_path / "items.jsonl", rows)
    done = evalbias(*command.removesuffix(" of one").split(), *COMMANDS[command], cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stdout
    assert f"--missing {CODED[code]}" in done.stderr
    assert f"{FAILED} of {N}" in done.stderr
    assert f"'{names.get('mine', 'mine')}' is {CODED[code]!r}" in done.stderr
    assert ("--keep" in done.stderr) == isinstance(CODED[code], int)


@pytest.mark.parametrize("command", ["optimize", "judge"])
def test_a_code_among_peoples_ratings_is_asked_about_before_a_judge_is(tmp_path, command):
    as_jsonl(tmp_path / "items.jsonl", [row | {"mine": 3} for row in replies(3, rater=99)])
    made = ["--lm", "embedded", "--criterion", f"{world.NAME}: {world.DEFINITION}"]
    done = evalbias(command, *FILE, *made, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "'rating_2' is 99 in 20 of 160 cells (rows 1, 9, 17, ...), and 1 to 5 in all others" in done.stderr
    assert "--missing 99" in done.stderr
    assert "--keep 99" in done.stderr


@pytest.mark.parametrize("code", CODED)
def test_what_is_missing_is_counted_and_tested_and_no_score(tmp_path, code):
    rows, right = replies(CODED[code]), replies(None)
    coded, plain = ((rows, {"missing": [CODED[code]]}), (right, {}))
    audits = [package.audit(some, scores_field="mine", **how) for some, how in (coded, plain)]
    for audit in audits:
        assert (audit.missing.missing, audit.missing.n) == (FAILED, N)
        assert audit.missing.dependence["length"].p_adjusted < 1e-6
        assert {f.bias: f.status for f in audit.findings if f.status != "not measured"} == {"verbosity": "no sign"}
    assert audits[0]["agreement"]["spearman"].value == audits[1]["agreement"]["spearman"].value
    as_jsonl(tmp_path / "items.jsonl", rows)
    done = evalbias("audit", *FILE, "--scores-field", "mine", "--missing", CODED[code], cwd=tmp_path)
    assert f"counted as missing: {str(CODED[code]).lower()} in 19 of 'mine'" in done.stderr


def test_a_cell_that_says_there_is_none_is_none_beside_words_too(tmp_path):
    values = ("1", "5", "error", "N/A", "3", "nan")
    (tmp_path / "t.csv").write_text("output,llm\n" + "".join(f"Text {k}.,{v}\n" for k, v in enumerate(values)))
    answers = package.audit(tmp_path / "t.csv", scores_field="llm", missing=["error"]).judged.answers
    assert np.array_equal(answers, [1, 5, np.nan, np.nan, 3, np.nan], equal_nan=True)


def test_what_is_kept_is_a_score_and_the_ends_of_a_stated_scale_are():
    rows = replies(0)
    kept, on_scale = (package.audit(rows, scores_field="mine", **how) for how in ({"keep": [0]}, {"scale": (0, 5)}))
    for audit in (kept, on_scale):
        assert audit.judged.answers.min() == 0
        assert audit.missing is None
    with pytest.raises(ValueError, match="'0' is empty, or named twice in `missing`, `keep` and `levels`"):
        package.audit(rows, scores_field="mine", keep=[0], missing=[0.0])


def test_failures_of_a_new_judge_alone_are_no_drift(tmp_path):
    rows = [{name: row[name] for name in ("source", "output", "mine", "theirs")} for row in replies(0)]
    before = [{"source": row["source"], "output": row["output"], "mine": row["theirs"]} for row in rows]
    with pytest.raises(DataError, match="the score after is 0 in 19 of 160 cells"):
        package.drift(before, rows, scores_field="mine")
    assert package.drift(before, rows, scores_field="mine", missing=[0])["drift"].value == pytest.approx(0, abs=0.2)


def test_words_in_an_order_are_ratings_from_the_worst_to_the_best():
    words = ("Strongly disagree", "Disagree", "Neutral", "Agree", "Strongly agree")
    for levels, numbers in ((words, (1, 2, 3, 4, 5)), (words[:2], (0, 1)), (("none", "some", "full"), (1, 2, 3))):
        rows = [{"output": "a b", "score": w.upper(), "mine": w, "ratings": {"wit": [w, None]}} for w in levels]
        items = read(rows, numbers=["mine"], levels=[word.lower() for word in levels])
        assert [item.mine for item in items] == [*numbers]
        assert [item.ratings["wit"][0] for item in items] == [*numbers]
    grades = ({"human": "CBA"[k % 3], "llm_grade": "BAA"[k % 3]} for k in range(30))
    rows = [{"question": f"Q {k}?", "answer": f"It is {k}."} | given for k, given in enumerate(grades)]
    judged = package.audit(rows, levels=["F", "D", "C", "B", "A"]).judged
    assert judged.answers[:3].tolist() == [4, 5, 5]
    assert judged.ratings[:3, 0].tolist() == [3, 4, 5]


NO_RATINGS = [([3, "4", None, "error"], {}), (["A", "B", "C"], {}), (["C", "C", "B"], {})]
NO_RATINGS += [(["pass", "fail", "unsure", "pass"], {})]
NO_RATINGS += [(["fail", "partial", "ok"], {"levels": ["fail", "partial", "pass"]})]
NO_RATINGS += [([{"tone": 3}, {"tone": "n.a."}], {}), (["A", "B"], {"levels": "AB"}), ([3, 4], {"missing": 0})]
NO_RATINGS += [(["A", "B"], {"levels": ["A"]})]


@pytest.mark.parametrize(("given", "how"), NO_RATINGS)
def test_what_is_no_rating_is_named_with_its_number_and_a_remedy(given, how, snapshot):
    name = "scores" if isinstance(given[0], dict) else "score"
    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the snapshot is the whole message
        read([{"output": "a", name: value} for value in given], **how)
    assert str(raised.value) == snapshot


def test_numbers_that_are_written_as_texts_are_numbers(tmp_path):
    rows = [{"output": "a", "rating_1": "3", "rating_2": "4.5", "mine": "2"}, {"output": "b", "ratings": ["1", None]}]
    items = read(as_jsonl(tmp_path / "a.jsonl", rows), numbers=["mine"])
    assert [item.ratings for item in items] == [pytest.approx([3, 4.5]), pytest.approx([1, np.nan], nan_ok=True)]
    assert json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])["rating_1"] == "3"


@pytest.mark.parametrize(("content", "expected"), [
    ('output;rating_1;rating_2;mine\na;"2,5";3;ja\nb;1;4;Nein\n', [(2.5, 3, 1), (1, 4, 0)]),
    ("output,rating_1,rating_2,mine\ra,2,3,oui\rb,1,4,non\r", [(2, 3, 1), (1, 4, 0)]),
    ('output,ratings,mine\na,"[2, None]",1\nb,"[nan, np.float64(4.0)]",0\n', [(2, None, 1), (None, 4, 0)]),
    ("output,rating_1,rating_2,mine\na,\u22122,+1,TRUE\nb,1,\u22121,0\nc,2,0,false\n",
     [(-2, 1, 1), (1, -1, 0), (2, 0, 0)]),
    ('output,ratings,mine\na,"(2, 3)",1\n', DataError),
    ("output,ratings,mine\na,\"{'a': 1, 'a': 2}\",1\n", DataError),
    ("output,ratings,mine\na,\"[__import__('os').getcwd()]\",1\n", DataError),
])  # fmt: skip
def test_tables_of_spreadsheets_and_of_pandas_are_read_as_they_are(tmp_path, content, expected):
    (file := tmp_path / "a.csv").write_text(content, newline="")
    if expected is DataError:
        with pytest.raises(DataError, match=r"a\.csv:2: 'ratings'"):
            read(file, numbers=["mine"])
        return
    items = read(file, numbers=["mine"])
    found = [(*(None if one != one else one for one in item.ratings), item.mine) for item in items]
    assert found == expected


@pytest.mark.parametrize(("given", "labels", "choices"), [
    ([0, 1, 2], ("0", "2", "1"), [0, -1, 1]),
    ([1, 1.5, 2.0], ("1", "2", "1.5"), [0, -1, 1]),
    ([1.75, 1.0, 2, 1.5], ("1", "2"), [0.75, 0, 1, 0.5]),  # AlpacaEval's 1 + P(second)
    ([1.75, 1.0, 2, 1.5, None], ("2", "1"), [0.25, 1, 0, 0.5, None]),
])  # fmt: skip
def test_numeric_choices_and_probabilities_of_the_second_output(given, labels, choices):
    items = read([PAIR | {"verdict": one} for one in given], choices={"verdict": labels})
    assert [item.verdict for item in items] == choices
    rows = [PAIR | {"better": int(labels[k % 2]), "verdict": one} for k, one in enumerate(given * 9)]
    answers = package.audit(rows, winner_field="verdict", labels=labels).judged.answers[: len(given)]
    wins = [np.nan if one is None else 0 if one == -1 else one for one in choices]
    np.testing.assert_array_equal(answers[:, 0, 1], wins)
    assert answers.shape[2] == 2 + (-1 in choices)


def test_a_failed_comparison_is_no_choice():
    rows = [PAIR | {"verdict": "error" if k % 5 == 0 else "AB"[k % 2]} for k in range(30)]
    with pytest.raises(DataError, match=r"`missing` error\. 6 of 30 cells are no choices: 'error' in 6\."):
        read(rows, choices={"verdict": ()})
    items = read(rows, choices={"verdict": ()}, missing=["Error"])
    assert [item.verdict for item in items[:5]] == [None, 1, 0, 1, 0]
    assert items.notes == ("counted as missing: error in 6 of 'verdict'",)


def test_responses_as_harnesses_log_them_are_texts():
    rows = [{"doc": {"question": f"q {k}?"}, "resps": [[f"a {k}"]], "human": k % 5} for k in range(20)]
    rows = [row | {"judge_score": k % 4} for k, row in enumerate(rows)]
    options = recognised_columns(table_of(rows)).options()
    assert options["mapping"] == {"source": "doc.question", "output": "resps", "score": "human"}
    items = read(rows, mapping=options["mapping"])
    assert [(item.source, item.output) for item in items[:2]] == [("q 0?", "a 0"), ("q 1?", "a 1")]


def test_cells_of_ratings_alone_are_read_and_ids_that_different_outputs_share_are_those_of_inputs():
    texts = [f"It is {k}." for k in range(2000)]
    assert legible("note", texts, NO_CODES) is texts  # no copy
    assert legible("human", ["3", 4, "error", None, "5", 999, 999, 5], NO_CODES) == [3, 4, None, None, 5, None, None, 5]
    rows = [{"id": f"doc {k // 4}", "summary": f"s {k}", "human": k % 5, "judge": k % 4} for k in range(40)]
    fields = recognised_columns(table_of(rows)).fields
    assert (fields["input_id"], fields["output"]) == ("id", "summary")


def test_an_input_under_another_name_is_not_left_in_silence(caplog):
    rows = [{"input": f"What is {k}?", "output": f"It is {k}.", "score": k % 5, "mine": k % 4} for k in range(40)]
    hint = "'input' is not read as the input: --map source=input (in Python, mapping={'source': 'input'})"
    assert read(rows, numbers=["mine"]).notes == (hint,)
    package.audit(rows, scores_field="mine")
    assert hint in caplog.text
    assert read(rows, numbers=["mine"], mapping={"source": "input"}).notes == ()


def test_blanks_at_the_ends_of_texts_part_no_anchors():
    rows = [{name: row[name] for name in ("source", "output", "theirs")} for row in replies(3)]
    padded = [row | {"source": row["source"] + " ", "output": f"\n{row['output']}\r\n"} for row in rows]
    found = package.drift(rows, padded, scores_field="theirs")
    assert (found["drift"].value, found["drift"].n) == (0, N)
