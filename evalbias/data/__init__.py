"""Data sets as lists of DSPy examples, and a synthetic data set whose true quality is known."""

from evalbias.data.cells import DataError
from evalbias.data.files import Dataset
from evalbias.data.pairing import by_input, count_pairs, hold_pairs, human_score, is_rated, pairs, split
from evalbias.data.sets import join, load, parse_spec, read

__all__ = [
    "DataError",
    "Dataset",
    "by_input",
    "count_pairs",
    "hold_pairs",
    "human_score",
    "is_rated",
    "join",
    "load",
    "pairs",
    "parse_spec",
    "read",
    "split",
]
