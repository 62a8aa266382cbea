"""Data sets as lists of DSPy examples, and a synthetic data set with a known true quality."""

from evalbias.data.items import DataError as DataError
from evalbias.data.items import by_input as by_input
from evalbias.data.items import count_pairs as count_pairs
from evalbias.data.items import hold_pairs as hold_pairs
from evalbias.data.items import human_score as human_score
from evalbias.data.items import is_rated as is_rated
from evalbias.data.items import pairs as pairs
from evalbias.data.items import split as split
from evalbias.data.reading import Dataset as Dataset
from evalbias.data.reading import parse_spec as parse_spec
from evalbias.data.reading import read as read
