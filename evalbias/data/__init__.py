"""Data sets as DSPy examples, and the synthetic world."""

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.load import load, load_spec, parse_spec
from evalbias.data.split import split

__all__ = ["DataError", "Dataset", "load", "load_spec", "parse_spec", "split"]
