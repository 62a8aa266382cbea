"""Columns inside cells: entries of objects and of lists of objects, one place a rater, and numbers times -1."""

import json

import pytest

from evalbias.data import DataError, read

RATINGS = "ratings"
CASES = {  # row's columns besides its output, mapping, judge's field -> ratings and judge's number
    "an entry of an object": (
        {"ratings": {"anna": 3, "ben": 2}, "scores": {"gpt-4": 4, "claude": 1}},
        {"rating_1": "ratings.anna", "rating_2": "ratings.ben"}, "scores.gpt-4", [3, 2], 4),
    "an entry at any depth, with dots in names": (
        {"responses": {"v1.0": {"anna": 3}}, "judged": {"a": {"b": 2}}},
        {"ratings": "responses.v1.0.anna"}, "judged.a.b", [3], 2),
    "an entry of each object in a list": (
        {"annotations": [{"annotator": "x", "rating": 5}, {"annotator": "y", "rating": 1}], "j": 1},
        {"ratings": "annotations.rating"}, "j", [5, 1], 1),
    "a column as pandas writes it": (
        {"scores.gpt-4": 4, "scores.claude": 1, "anna": 3}, {"score": "anna"}, "scores.gpt-4", None, 4),
    "an entry beside the output, which Weave keeps in one object": (
        {"output": {"output": "This.", "scores": {"judge": 4}}, "anna": 3},
        {"output": "output.output", "score": "anna"}, "output.scores.judge", None, 4),
    "several columns in a list": (
        {"anna": 3, "ben": 2, "j": 1}, {"ratings": ["anna", "ben"]}, "j", [3, 2], 1),
    "one rater": ({"human": 3, "j": 1}, {"ratings": "human"}, "j", [3], 1),
    "ranks": ({"anna": 3, "llm": "1"}, {"rating_1": "-anna", "j": "-llm"}, "j", [-3], -1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("as_text", [False, True])
def test_a_mapping_names_what_stands_in_cells(name, as_text):
    columns, mapping, judge, ratings, number = CASES[name]
    row = {"output": "This.", **columns}
    if as_text:  # as a spreadsheet holds objects
        row = {n: json.dumps(cell) if isinstance(cell, dict | list) else cell for n, cell in row.items()}
    (item,) = read([row], mapping=mapping, numbers=[judge])
    assert item.get("ratings") == ratings
    assert item[judge] == number
    assert item.get("score", 3) is not None
    assert "scores" not in item  # the other judge's are not people's


ANSWERS = [  # value, user and status of each answer, in the order of a record
    [(3, "anna", "submitted"), (1, "carl", "discarded"), (4, "ben", "submitted")],
    [(5, "ben", "submitted"), (2, "anna", "submitted")],
    [(1, "carl", "draft"), (2, "ben", "submitted")],
]


@pytest.mark.parametrize("nested", [False, True])
def test_each_rater_keeps_his_place_and_what_was_not_submitted_does_not_count(nested):
    rows = []
    for answers in ANSWERS:
        values, users, status = ([*some] for some in zip(*answers, strict=True))
        lists = {"r.responses": values, "r.responses.users": users, "r.responses.status": status}
        objects = {"r": [{"value": v, "user_id": u, "status": s} for v, u, s in answers]}
        rows.append({"output": "This.", **(objects if nested else lists)})
    items = read(rows, mapping={"ratings": "r.value" if nested else "r.responses"})
    given = [[None if one != one else one for one in item.ratings] for item in items]
    assert given == [[3, None, 4], [2, None, 5], [None, None, 2]]  # anna, carl, ben


def test_a_path_to_nothing_is_no_column():
    with pytest.raises(DataError, match=r"no column 'scores\.gpt' for 'score'"):
        read([{"output": "This.", "scores": {"claude": 1}}], mapping={"score": "scores.gpt"})
