"""Tests of calls that are refused: a row for each call, and one place that says how they are tested."""

import pytest


def refusals(call, *rows, error=ValueError):
    """Make a test of calls that fail; a row holds the arguments of one and, last, a pattern of what its error says."""

    @pytest.mark.parametrize("row", rows, ids=lambda row: str(row[-1]))
    def test(row):
        *arguments, match = row
        with pytest.raises(error, match=match):
            call(*arguments)

    return test
