"""The most probable first tokens of an answer, as servers report them."""

import math

import numpy as np
import pytest

from evalbias.lm.reading import first_token_row, first_tokens


def test_tokens_that_are_written_alike_are_added():
    reported = [("3", 0.5), ("3", 0.25), ("2", 0.125), ("2", 0.0)]  # as with the mark of a word's beginning
    top = first_tokens((text, math.log(p) if p else -9999.0) for text, p in reported)
    assert first_token_row(top, ["2", "3"]) == pytest.approx([math.log(0.125), math.log(0.75)])


def test_probabilities_that_sum_to_more_than_one_are_none():
    rounded = first_tokens([("1", -0.001), ("2", -6.0)])
    assert max(rounded.values()) <= 0.0
    with pytest.raises(ValueError, match=r"the probabilities of the first token sum to 1\.98"):
        first_tokens([("1", -0.01), ("2", -0.01)])


@pytest.mark.parametrize(
    ("top", "choices", "row"),
    [
        ({"2": 0.9, "x": 0.0999, "y": 1e-5}, ["2", "3"], [0.9, 0.0]),
        ({"2": 0.9, "x": 0.05, "y": 0.04}, ["2", "3"], None),
        ({"1": 0.9, "2": 0.1}, ["1", "2", "10"], None),  # "10" may begin with "1"
        ({"1": 0.9, "2": 0.05, "10": 0.05}, ["1", "2", "10"], [0.9, 0.05, 0.05]),
        ({"x": 0.9, "y": 1e-9}, ["1", "2", "10"], None),  # no choice is reported
    ],
)
def test_unreported_choices_count_as_zero_only_if_negligible(top, choices, row):
    found = np.exp(first_token_row({token: math.log(p) for token, p in top.items()}, choices))
    np.testing.assert_allclose(found, [math.nan] * len(choices) if row is None else row)
