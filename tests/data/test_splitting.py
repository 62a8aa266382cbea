import dspy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evalbias import data
from evalbias.data import split


def items(n, inputs=None):
    return [dspy.Example(id=f"i{k:04d}", source=f"s{k % (inputs or n)}", output="o") for k in range(n)]


@given(n=st.integers(5, 60), seed=st.integers(0, 5), by=st.sampled_from(["instance", "input"]))
def test_a_split_is_a_partition_in_any_order(n, seed, by):
    examples = items(n, inputs=max(5, n // 3))
    train, test = split(examples, seed=seed, by=by)
    assert sorted(e.id for e in train + test) == [e.id for e in examples]
    again = split(examples[::-1], seed=seed, by=by)
    assert [[e.id for e in side] for side in again] == [[e.id for e in side] for side in (train, test)]
    if by == "input":
        assert not {e.source for e in train} & {e.source for e in test}


def test_sizes_and_seeds():
    train, test = split(items(2846), seed=0)
    assert (len(train), len(test)) == (2277, 569)
    assert {e.id for e in test} != {e.id for e in split(items(2846), seed=1)[1]}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"by": "topic"}, "by='topic' is unknown"),
        ({"test_fraction": 1.0}, "between 0 and 1"),
        ({"test_fraction": 0.01}, "one set would be empty"),
    ],
)
def test_impossible_splits_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        split(items(10), seed=0, **options)
    with pytest.raises(ValueError, match="same id"):
        split(items(10) * 2, seed=0)


@given(n=st.integers(2, 300), percent=st.integers(1, 99))
@example(n=50, percent=57)  # 0.57 * 50 is a little below 28.5 in floats
def test_the_size_of_the_test_set_is_rounded_half_up(n, percent):
    size = (2 * n * percent + 100) // 200  # n * percent / 100, rounded half up
    if size in (0, n):
        with pytest.raises(ValueError, match="one set would be empty"):
            split(items(n), seed=0, test_fraction=percent / 100)
    else:
        assert len(split(items(n), seed=0, test_fraction=percent / 100)[1]) == size


@given(seed=st.integers(0, 30))
def test_no_input_is_on_both_sides(seed):
    examples = [dspy.Example(id=k, source="same", output="o", input_id=k // 4) for k in range(40)]  # the first id is 0
    train, test = split(examples, seed=seed, by="input")
    assert not {e.input_id for e in train} & {e.input_id for e in test}
    assert len({e.input_id for e in test}) == 2


def test_an_input_id_is_not_mistaken_for_a_source():
    examples = [
        dspy.Example(id=k, source=str(k % 5), output="o", **({"input_id": k} if k < 5 else {})) for k in range(10)
    ]
    sides = [{e.id for e in split(examples, seed=seed, by="input")[1]} for seed in range(40)]
    assert any(k in side and k + 5 not in side for side in sides for k in range(5))


def test_a_split_never_changes():
    train, test = split(items(10), seed=0)
    assert [e.id for e in test] == ["i0007", "i0008"]
    assert [e.id for e in train] == [f"i{k:04d}" for k in (0, 1, 2, 3, 4, 5, 6, 9)]


@pytest.mark.parametrize("examples", [[], items(1)])
@pytest.mark.parametrize("by", ["instance", "input"])
def test_too_few_items_are_refused(examples, by):
    with pytest.raises(ValueError, match="one set would be empty"):
        split(examples, seed=0, by=by)


def test_examples_without_an_id_are_refused():
    with pytest.raises(ValueError, match="index 3 has no id"):
        split([*items(3), dspy.Example(source="s", output="o")], seed=0)


def test_the_shared_data_by_input(data_dir):
    examples = data.read(f"webnlg2020:{data_dir / 'webnlg2020_en.jsonl.gz'}")
    assert [len(side) for side in split(examples, seed=0)] == [2277, 569]
    train, test = split(examples, seed=0, by="input")
    assert len({e.input_id for e in test}) == 36  # of 178
    assert not {e.source for e in train} & {e.source for e in test}
