"""What examples say of each other: people's scores, pairs of outputs, and splits by input."""

import math

import dspy
import hypothesis
import pytest
from hypothesis import strategies as st
from refusals import refusals

from evalbias import data
from evalbias.data import human_score, is_rated, split
from evalbias.data.items import input_keys, single_ratings

BOTH = {"score": 4, "scores": {"quality": 2}}
LONG = "An answer that is long enough to tell."


def item(name, source, key=None):
    return dspy.Example(id=name, source=source, output=name, **({} if key is None else {"input_id": key}))


def test_one_order_of_every_pair():
    items = [item(f"o{k}", "s") for k in range(4)]
    both, one = data.pairs(items, seed=0), data.pairs(items, ordered=False, seed=0)
    assert len(both) == 12
    assert len({frozenset(p.ids) for p in one}) == len(one) == 6
    assert len({tuple(p.ids) for p in both}) == 12
    firsts = [data.pairs(items, ordered=False, seed=s)[0].ids for s in range(20)]
    assert len({tuple(f) for f in firsts}) > 6  # both the order within a pair and its position are drawn
    assert data.count_pairs(items) == 12


def given_pair(name, source, *candidates, **more):
    return dspy.Example(id=name, source=source, candidates=list(candidates), **more).with_inputs("source", "candidates")


def test_pairs_come_as_they_are_and_in_the_other_order():
    people = {"better": 0, "preference": "A", "systems": ["x", "y"], "ratings": {"wit": [2.0, -1.0]}}
    given = [given_pair("p", "s", "long", "short", **people), given_pair("q", "s", "a", "b", better=None)]
    same = given_pair("r", "t", "alike", "alike")  # nothing to compare
    one = data.pairs([*given, same], ordered=False, seed=0)
    assert {p.id: p.toDict() for p in one} == {p.id: p.toDict() for p in given}
    both = {p.id: p for p in data.pairs([*given, same], seed=0)}
    assert both.keys() == {"p", "q", "p swapped", "q swapped"}
    swapped = both["p swapped"]
    assert (swapped.candidates, swapped.better, swapped.preference) == (["short", "long"], 1, "B")
    assert (swapped.systems, swapped.ratings) == (["y", "x"], {"wit": [-2.0, 1.0]})
    assert swapped.inputs().keys() == ["source", "candidates"]
    assert both["q swapped"].better is None
    assert data.count_pairs([*given, same]) == 4
    assert len(data.pairs(given, limit=3, seed=0)) == 3
    assert {p.id for p in data.pairs(given, criterion="wit", seed=0)} == {"p", "p swapped"}
    assert given[0].candidates == ["long", "short"]
    with pytest.raises(ValueError, match="1 of 2 examples are pairs and the others single outputs"):
        data.pairs([given[0], item("o", "s")], seed=0)


test_an_input_has_one_source_and_a_source_one_input = refusals(
    lambda source, key: data.by_input([item("a", "s", "1"), item("b", source, key)]),
    ("t", "1", "'a' and 'b'.*'1'"),
    ("s", "2", "'1'"),
    ("s", None, "'1'"),
)


def test_pairs_are_ordered_seeded_and_of_one_input():
    items = [dspy.Example(id=str(i), source=f"s{i % 3}", output=f"o{i // 3}") for i in range(9)]
    items.append(dspy.Example(id="twice", source="s0", output="o0"))
    items.append(dspy.Example(id="alone", source="s9", output="o0"))
    pairs = data.pairs(items, seed=0)
    assert len(pairs) == data.count_pairs(items) == 3 * 6  # a repeated output counts once
    assert len({(p.source, *p.candidates) for p in pairs}) == 18
    assert all(a != b for a, b in (p.candidates for p in pairs))
    assert not any({"twice", "alone"} & {*p.ids} for p in pairs)
    few = data.pairs(items, inputs=2, limit=5, seed=1)
    assert len(few) == 5
    assert [p.ids for p in few] == [p.ids for p in data.pairs(items, inputs=2, limit=5, seed=1)]
    assert len({p.input_id for p in few}) <= 2
    with pytest.raises(ValueError, match="3 inputs have two different outputs"):
        data.pairs(items, inputs=4, seed=0)


@pytest.mark.parametrize(("fields", "expected"), [
    ({"scores": {"quality": 3}}, 3),
    ({"score": 4}, 4),
    ({"score": "4.5"}, 4.5),
    ({"score": 4, "scores": None}, 4),
    (BOTH, 2),
    ({"score": None}, math.nan),
    ({"scores": {"quality": None}, "score": 4}, math.nan),
])  # fmt: skip
def test_scores_by_criterion_come_before_the_one_score(fields, expected):
    example = dspy.Example(id="7", **fields)
    assert is_rated(example, "quality")
    assert human_score(example, "quality") == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(("fields", "match"), [
    ({"id": "7"}, "'7' has no score on 'wit'"),
    ({"id": "7", **BOTH}, r"only on \['quality'\]; its 'score'"),
    ({"id": "7", "score": 4, "scores": {}}, r"only on \[\]; its 'score'"),
    ({"source": "What is 2 + 2?", "output": "4"}, r"The item 'What is 2 [+] 2[?]' has no score on 'wit'"),
    ({"source": "s", "candidates": ["x", "y"], "ids": ["a", "b"]}, r"The item 'a \| b' has no score on 'wit'"),
])  # fmt: skip
def test_a_score_never_stands_for_another_criterion(fields, match):
    example = dspy.Example(**fields)
    assert not is_rated(example, "wit")
    assert math.isnan(human_score(example, "wit", required=False))
    with pytest.raises(ValueError, match=match):
        human_score(example, "wit")


@pytest.mark.parametrize("fields", [{"scores": 3}, *({"score": score} for score in ("good", True, [1], 1e308))])
def test_what_is_no_number_is_refused_by_its_item(fields):
    with pytest.raises(ValueError, match="'7'"):
        human_score(dspy.Example(id="7", **fields), "wit")


def test_single_ratings_of_an_example():
    example = dspy.Example(id="7", ratings={"wit": [3, "4.5"]})
    assert single_ratings(example, "wit") == [3, 4.5]
    assert single_ratings(example, "tact") == []
    assert single_ratings(dspy.Example(), "wit") == []
    assert single_ratings(dspy.Example(score=4, ratings=[3, 5]), "wit") == [3, 5]  # of the criterion that is judged
    for given in ({"wit": ["good"]}, {"wit": 3}, {"wit": "345"}, {"wit": [3, 1e308]}, 3):
        with pytest.raises(ValueError, match="'7' has ratings="):
            single_ratings(dspy.Example(id="7", ratings=given), "wit")


def test_a_pair_has_the_difference_of_each_raters_ratings():
    rated = [item("1", "s").copy(ratings={"wit": [1, 5, None], "tact": [1]})]
    rated += [item("2", "s").copy(ratings={"wit": [2, 2, 3], "tact": [1, 2]})]
    differences = {tuple(p.ids): p.ratings for p in data.pairs(rated, seed=0)}
    assert set(differences[("1", "2")]) == {"wit"}
    assert differences[("1", "2")]["wit"] == pytest.approx([-1, 3, math.nan], nan_ok=True)
    assert differences[("2", "1")]["wit"] == pytest.approx([1, -3, math.nan], nan_ok=True)
    named = [one.copy(system=f"writer of {one.id}") for one in rated]
    assert {tuple(p.ids): p.systems[0] for p in data.pairs(named, seed=0)}[("2", "1")] == "writer of 2"
    assert "systems" not in data.pairs(rated, seed=0)[0]
    assert all("ratings" not in pair for pair in data.pairs([item("1", "s"), item("2", "s")], seed=0))
    rated = [item("1", "s").copy(score=1, ratings=[3, 5]), item("2", "s").copy(score=2, ratings=[4, 1])]
    both = data.pairs(rated, criterion="quality", seed=0)
    told = [(*p.ids, p.preference, *single_ratings(p, "quality")) for p in both]
    assert sorted(told) == [("1", "2", "B", -1, 4), ("2", "1", "A", 1, -4)]


def numbered(n, inputs=None):
    return [dspy.Example(id=f"i{k:04d}", source=f"s{k % (inputs or n)}", output="o") for k in range(n)]


@hypothesis.given(n=st.integers(5, 60), seed=st.integers(0, 5), by=st.sampled_from(["instance", "input"]))
def test_a_split_is_a_partition_in_any_order(n, seed, by):
    examples = numbered(n, inputs=max(5, n // 3))
    train, test = split(examples, seed=seed, by=by)
    assert sorted(e.id for e in train + test) == [e.id for e in examples]
    again = split(examples[::-1], seed=seed, by=by)
    assert [[e.id for e in side] for side in again] == [[e.id for e in side] for side in (train, test)]
    if by == "input":
        assert not {e.source for e in train} & {e.source for e in test}


test_impossible_splits_are_refused = refusals(
    lambda examples, options: split(examples, seed=0, **options),
    (numbered(10), {"by": "topic"}, "by='topic' is unknown"),
    (numbered(10), {"test_fraction": 1.0}, "between 0 and 1"),
    (numbered(10), {"test_fraction": 0.01}, "one set would be empty"),
    ([], {}, "one set would be empty"),
    (numbered(1), {"by": "input"}, "one set would be empty"),
    (numbered(10) * 2, {}, "same id"),
    ([*numbered(3), dspy.Example(source="s", output="o")], {}, "index 3 has no id"),
)


@hypothesis.given(n=st.integers(2, 300), percent=st.integers(1, 99))
@hypothesis.example(n=50, percent=57)  # 0.57 * 50 is a little below 28.5 in floats
def test_the_size_of_the_test_set_is_rounded_half_up(n, percent):
    size = (2 * n * percent + 100) // 200  # n * percent / 100, rounded half up
    if size in (0, n):
        with pytest.raises(ValueError, match="one set would be empty"):
            split(numbered(n), seed=0, test_fraction=percent / 100)
    else:
        assert len(split(numbered(n), seed=0, test_fraction=percent / 100)[1]) == size


def test_an_input_id_is_not_mistaken_for_a_source():
    examples = [dspy.Example(id=k, source=str(k % 5), output="o") for k in range(10)]
    examples[:5] = [example.copy(input_id=example.id) for example in examples[:5]]  # the first id is 0
    sides = [{e.id for e in split(examples, seed=seed, by="input")[1]} for seed in range(40)]
    assert any(k in side and k + 5 not in side for side in sides for k in range(5))
    same = [dspy.Example(id=k, source=f"s{k}", output="o", input_id=k // 4) for k in range(40)]
    for seed in range(10):
        train, test = ({e.input_id for e in side} for side in split(same, seed=seed, by="input"))
        assert not train & test
        assert len(test) == 2


def test_a_split_never_changes_and_its_halves_share_no_text():
    train, test = split(numbered(10), seed=0)
    assert [e.id for e in test] == ["i0007", "i0008"]
    assert [e.id for e in train] == [f"i{k:04d}" for k in (0, 1, 2, 3, 4, 5, 6, 9)]
    items = [dspy.Example(id=f"{k}", output=f"{LONG} Of thing {k % 20}.") for k in range(60)]
    train, test = split(items, seed=0, by="input")
    assert {e.output for e in train}.isdisjoint(e.output for e in test)
    assert len(test) == 12


@pytest.mark.parametrize(("fields", "keys"), [
    ([{"output": LONG}, {"output": "Another one, as long as it."}, {"output": LONG}], "aba"),
    ([{"output": "4"}, {"output": "4"}], "ab"),  # a coincidence
    ([{"outputs": [LONG, "x"]}, {"outputs": ["x", LONG]}, {"outputs": [LONG, "y"]}], "aac"),  # in both orders
    ([{"output": LONG, "source": "p"}, {"output": LONG, "source": "q"}], "pq"),
    ([{"output": LONG, "source": "p"}, {"output": f"{LONG} ", "source": "p\n"}], "pp"),  # and other blanks
    ([{"output": f"if x:\n {LONG}\n{end}"} for end in ("y", " y", "y ")], "aba"),  # code
    ([{"output": LONG, "input_id": "1"}, {"output": f" {LONG}", "input_id": "2"}], "11"),
    ([{"output": LONG, "source": "p", "input_id": k} for k in "12"], "11"),
    ([{"output": LONG, "input_id": k, "score": 3} for k in "12"], "11"),
    ([{"output": LONG, "input_id": k, "score": int(k)} for k in "12"], "12"),  # two inputs with one answer
    ([{"output": LONG, "source": "Go on.", "input_id": k, "score": int(k)} for k in "12"], "12"),
    ([{"output": f"{k} {LONG}", "source": "p", "input_id": k} for k in "1212"], "1212"),
    ([{"output": f"{k}{LONG}", "source": f"s{k}", "input_id": i} for k, i in ("01", "12", "02", "13")], "1111"),
])  # fmt: skip
def test_equal_texts_are_one_input_whatever_their_ids(fields, keys):
    examples = [dspy.Example(id="abcd"[k], **one) for k, one in enumerate(fields)]
    assert input_keys(examples) == [*keys]
