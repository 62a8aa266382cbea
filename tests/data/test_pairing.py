"""Pairs of outputs, and inputs that cannot be paired."""

import dspy
import pytest

from evalbias import data


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
    assert [data.count_pairs([*given, same], ordered=ordered) for ordered in (True, False)] == [4, 2]
    assert len(data.pairs(given, limit=3, seed=0)) == 3
    assert {p.id for p in data.pairs(given, criterion="wit", seed=0)} == {"p", "p swapped"}
    assert given[0].candidates == ["long", "short"]
    with pytest.raises(ValueError, match="1 of 2 examples are pairs and the others single outputs"):
        data.pairs([given[0], item("o", "s")], seed=0)


def test_a_pair_keeps_who_wrote_its_outputs():
    named = [item(f"o{k}", "s") for k in range(2)]
    assert "systems" not in data.pairs(named, seed=0)[0]
    for k, example in enumerate(named):
        example["system"] = f"writer of o{k}"
    for pair in data.pairs(named, seed=0):
        assert pair.systems == [f"writer of {name}" for name in pair.ids]


def test_an_input_has_one_source_and_a_source_one_input():
    with pytest.raises(ValueError, match="'a' and 'b' have the same input_id '1' but different sources"):
        data.by_input([item("a", "s", "1"), item("b", "t", "1")])
    with pytest.raises(ValueError, match="another item with the same source has '1'"):
        data.by_input([item("a", "s", "1"), item("b", "s", "2")])
    with pytest.raises(ValueError, match="give all items of a source the same input_id"):
        data.by_input([item("a", "s", "1"), item("b", "s")])


@pytest.mark.parametrize("dataset", ["newsroom", "summeval", "topicalchat"])
def test_the_published_data_sets_satisfy_this(dataset, data_dir):
    file = {"newsroom": "upstream/newsroom.json", "summeval": "summeval.jsonl.gz"}.get(
        dataset, "upstream/topical_chat.json"
    )
    items = data.read(f"{dataset}:{data_dir / file}")
    assert len(data.by_input(items)) in (60, 70)
    for ordered in (True, False):
        assert data.count_pairs(items, ordered=ordered) == len(data.pairs(items, ordered=ordered, seed=0))


def test_the_pairs_of_five_responses_to_each_dialogue_are_the_papers_1200():
    items = [item(f"{d}-{k}", f"s{d}") for d in range(60) for k in range(5)]
    assert data.count_pairs(items) == len(data.pairs(items, seed=0)) == 1200
