import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbias.data import split


def items(n, inputs=None):
    return [dspy.Example(id=f"i{k:04d}", source=f"s{k % (inputs or n)}", output="o") for k in range(n)]


@given(n=st.integers(5, 60), seed=st.integers(0, 5), by=st.sampled_from(["instance", "input"]))
def test_a_split_is_a_partition_whatever_the_order(n, seed, by):
    found = items(n, inputs=max(5, n // 3))
    train, test = split(found, seed=seed, by=by)
    assert sorted(e.id for e in train + test) == [e.id for e in found]
    again = split(found[::-1], seed=seed, by=by)
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
        ({"test_fraction": 0.01}, "one side would be empty"),
    ],
)
def test_what_cannot_be_split(options, match):
    with pytest.raises(ValueError, match=match):
        split(items(10), seed=0, **options)
    with pytest.raises(ValueError, match="same id"):
        split(items(10) * 2, seed=0)
