"""Data sets as lists of DSPy examples, and a synthetic data set whose true quality is known."""

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.joining import join
from evalbias.data.loaders import load, parse_spec, read
from evalbias.data.pairing import by_input, count_pairs, hold_pairs, pairs
from evalbias.data.ratings import human_score, is_rated
from evalbias.data.splitting import split

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
