"""Verdicts as people write them: words for pass and fail, files without texts, several people's choices of pairs."""

import itertools
import json

import pandas
import pytest
from commands import as_jsonl

import evalbias
from evalbias import data
from evalbias.data import DataError

WORDS = [
    ("Yes", "no"),
    ("PASS", "Fail"),
    ("true", "False"),
    (True, False),
    (1, 0),
    ("C", "I"),
    ("thumbs up", "Thumbs_Down"),
    ("Good", "bad"),
    ("\u2705", "\u274c"),
    ("\u2714\ufe0f", "\u2718"),
    ("\U0001f44d", "\U0001f44e"),
]


def sources(folder, rows):
    yield rows
    yield pandas.DataFrame(rows, dtype=object)
    yield as_jsonl(folder / "rows.jsonl", rows)
    pandas.DataFrame(rows, dtype=object).to_csv(folder / "rows.csv", index=False)
    yield folder / "rows.csv"


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


JUDGED = {"verdict": 1, "label": 1}


@pytest.mark.parametrize(
    ("rows", "options", "match"),
    [
        ([JUDGED], {}, "'output'"),
        ([{**JUDGED, "answer": "Four."}], {"numbers": ["verdict"]}, "'answer' looks like 'output'"),
        ([{**JUDGED, "answer_a": "Four.", "answer_b": "Five."}], {"numbers": ["verdict"]}, "'answer_a' .* 'output_1'"),
        ([JUDGED], {"numbers": ["verdcit"]}, "'verdcit'.*'verdict'"),
        ([JUDGED], {"choices": {"verdict": ()}}, "'output_1'"),
        ([{"verdict": 1, "output": "Four."}, {"verdict": 1}], {"numbers": ["verdict"]}, "'output' is missing"),
    ],
)
def test_texts_are_still_asked_for_where_they_are_read_or_seem_to_be_there(rows, options, match):
    with pytest.raises(DataError, match=match):
        data.read(rows, **options)


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
