"""Data sets as lists of DSPy examples, and a synthetic data set whose true quality is known."""

from evalbias.data.items import DataError, by_input, count_pairs, hold_pairs, human_score, is_rated, pairs, split
from evalbias.data.reading import Dataset, join, parse_spec, read

__all__ = [
    "DataError",
    "Dataset",
    "by_input",
    "count_pairs",
    "hold_pairs",
    "human_score",
    "is_rated",
    "join",
    "pairs",
    "parse_spec",
    "read",
    "split",
]
