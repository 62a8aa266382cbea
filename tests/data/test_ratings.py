"""One rule for human scores: by criterion, or the one label that DSPy's data sets have."""

import math

import dspy
import pytest

from evalbias import data
from evalbias.data import human_score, is_rated
from evalbias.data.pairing import single_ratings

BOTH = {"score": 4, "scores": {"quality": 2}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"scores": {"quality": 3}}, 3),
        ({"score": 4}, 4),
        ({"score": "4.5"}, 4.5),
        ({"score": 4, "scores": None}, 4),
        (BOTH, 2),
        ({"score": None}, math.nan),
        ({"scores": {"quality": None}, "score": 4}, math.nan),
    ],
)
def test_scores_by_criterion_come_before_the_one_score(fields, expected):
    example = dspy.Example(id="7", **fields)
    assert is_rated(example, "quality")
    assert human_score(example, "quality") == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "'7' has no score on 'wit', neither in 'scores' nor as 'score': name another criterion"),
        (BOTH, r"only on \['quality'\]; its 'score' is not used, because 'scores' says what was rated"),
        ({"score": 4, "scores": {}}, r"only on \[\]; its 'score' is not used"),
    ],
)
def test_a_score_never_stands_for_another_criterion(fields, told):
    example = dspy.Example(id="7", **fields)
    assert not is_rated(example, "wit")
    assert math.isnan(human_score(example, "wit", required=False))
    with pytest.raises(ValueError, match=told):
        human_score(example, "wit")


def test_what_is_no_number_is_refused_by_its_item():
    for score in ("good", True, [1]):
        with pytest.raises(ValueError, match=r"item '7' on 'wit' is .*: give a number"):
            human_score(dspy.Example(id="7", score=score), "wit")
    with pytest.raises(ValueError, match=r"item '7' on 'wit' is 1e\+308: give a number of at most 1e\+30"):
        human_score(dspy.Example(id="7", score=1e308), "wit")
    with pytest.raises(ValueError, match="'7' has scores=3: give criterion -> number, or one number as score="):
        human_score(dspy.Example(id="7", scores=3), "wit")


def test_an_item_without_an_id_is_named_by_its_text():
    with pytest.raises(ValueError, match=r"The item 'What is 2 [+] 2[?]' has no score on 'quality'"):
        human_score(dspy.Example(source="What is 2 + 2?", output="4"), "quality")
    with pytest.raises(ValueError, match=r"The item 'a \| b' has no score on 'quality'"):
        human_score(dspy.Example(source="s", candidates=["x", "y"], ids=["a", "b"]), "quality")


def test_pairs_are_labeled_by_the_one_score():
    rated = [dspy.Example(id=str(k), source="s", output=f"o{k}", score=k) for k in (1, 2)]
    assert {(*p.ids, p.preference) for p in data.pairs(rated, criterion="quality", seed=0)} == {
        ("1", "2", "B"),
        ("2", "1", "A"),
    }


def test_single_ratings_of_an_example():
    example = dspy.Example(id="7", ratings={"wit": [3, None, "4.5"]})
    assert single_ratings(example, "wit") == pytest.approx([3, math.nan, 4.5], nan_ok=True)
    assert single_ratings(example, "tact") == []
    assert single_ratings(dspy.Example(), "wit") == []
    assert single_ratings(dspy.Example(score=4, ratings=[3, 5]), "wit") == [3, 5]  # of the criterion that is judged
    for given in ({"wit": ["good"]}, {"wit": 3}, {"wit": "345"}, {"wit": [3, 1e308]}, 3):
        with pytest.raises(ValueError, match=r"'7' has ratings=.*: give criterion -> list of numbers"):
            single_ratings(dspy.Example(id="7", ratings=given), "wit")


def test_a_pair_has_the_difference_of_each_raters_ratings():
    rated = [
        dspy.Example(id="1", source="s", output="a", ratings={"wit": [1, 5, None], "tact": [1]}),
        dspy.Example(id="2", source="s", output="b", ratings={"wit": [2, 2, 3], "tact": [1, 2]}),
    ]
    differences = {tuple(p.ids): p.ratings for p in data.pairs(rated, seed=0)}
    assert set(differences[("1", "2")]) == {"wit"}
    assert differences[("1", "2")]["wit"] == pytest.approx([-1, 3, math.nan], nan_ok=True)
    assert differences[("2", "1")]["wit"] == pytest.approx([1, -3, math.nan], nan_ok=True)
    plain = [dspy.Example(id=str(k), source="s", output=f"o{k}") for k in range(2)]
    assert all("ratings" not in pair for pair in data.pairs(plain, seed=0))
