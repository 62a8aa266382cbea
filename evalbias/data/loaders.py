"""Read data: files, data in memory, the Hugging Face hub, and known data sets by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalbias.data.choices import check_labels
from evalbias.data.dataset import Dataset
from evalbias.data.evalbiasbench import load_evalbiasbench
from evalbias.data.formats import FORMATS, format_of
from evalbias.data.items import items_of
from evalbias.data.llmbar import load_llmbar
from evalbias.data.newsroom import load_newsroom
from evalbias.data.pandalm import load_pandalm
from evalbias.data.summeval import load_summeval
from evalbias.data.tables import HUB, Table, file_table, hub_table, memory_table
from evalbias.data.tmu_gfm import load_tmu_gfm
from evalbias.data.topicalchat import load_topicalchat
from evalbias.data.webnlg import load_webnlg

LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "webnlg2020": load_webnlg,
    "tmu-gfm": load_tmu_gfm,
    "newsroom": load_newsroom,
    "summeval": load_summeval,
    "topicalchat": load_topicalchat,
    "llmbar": load_llmbar,
    "evalbiasbench": load_evalbiasbench,
    "pandalm": load_pandalm,
}
"""Known data sets, whose columns and criteria need not be named."""
GROUPS = {"evalbiasbench": "bias"}
"""Known data set -> field whose values name the groups of items that it was made to tell apart."""


def read(
    source: Any,
    *,
    mapping: Mapping[str, str] | None = None,
    choices: Mapping[str, Sequence[object]] | None = None,
    numbers: Sequence[str] = (),
) -> Dataset:
    """Read items to judge, or pairs to compare, with what people and other judges said about them.

    Fields of an item: ``id`` (by default the number of its line or row), ``source`` (the input; judges recorded by
    others may lack it), ``output``, people's ``score`` on the criterion that is judged or ``scores`` (criterion ->
    number), single ``ratings`` (list, or criterion -> list), ``system`` (the writer) and ``input_id``. A pair has two
    ``outputs`` instead, which become ``candidates``, ``systems``, and ``better``: 0 or 1 (also A or B), the one that
    people prefer.
    Tables spell lists as ``rating_1, rating_2, ...``, ``output_1, output_2`` and ``system_1, system_2``. All other
    columns stay under their names. Empty cells are undefined: None, or NaN for scores. Items with an empty output, and
    pairs of two, are left out; see ``Dataset.left_out``.

    Args:
        source: A ``.jsonl``, ``.json``, ``.csv``, ``.tsv`` or ``.parquet`` file (also ``.gz``); ``NAME:PATH`` of a
            known data set, see ``load``; ``hf:NAME`` or ``hf:NAME:SPLIT`` of the Hugging Face hub; a pandas data frame;
            or dicts or ``dspy.Example``.
        mapping: Our field -> the source's column, such as ``{"source": "question", "output": "answer"}``.
        choices: Field of recorded choices between two outputs, after the mapping -> codes of the first output, the
            second and a tie, such as ``{"better": (1, 2, "tie")}``; no codes where 0 or ``"A"`` is the first, 1 or
            ``"B"`` the second, and -1 or ``"tie"`` neither. The items have 0, 1, -1 or None.
        numbers: Fields of recorded numbers, such as a judge's scores. The items have a number or None.

    Returns:
        List of ``dspy.Example``.

    Raises:
        DataError: A row is not a valid item, or a column is missing; the message names the place and the likely column.
        ValueError: The source is unknown, a mapping or codes are given for a known data set, or the codes of a field do
            not tell the outputs apart.
        FileNotFoundError: The file does not exist.
        ImportError: A library that reads the source is not installed.

    Examples:
        >>> (item,) = read([{"question": "What is 2 + 2?", "output": "4", "score": 5}], mapping={"source": "question"})
        >>> item.source, item.score
        ('What is 2 + 2?', 5.0)
    """
    for labels in (choices or {}).values():
        check_labels(labels)
    if isinstance(source, str | os.PathLike):
        name, path = parse_spec(os.fspath(source))
        if name in LOADERS:
            if mapping:
                raise ValueError(f"The columns of {name} are known: give {name}:{path} without a mapping (--map).")
            if any((choices or {}).values()):
                raise ValueError(f"The choices of {name} are known: give {name}:{path} without labels (--labels).")
            return load(name, path)
    return items_of(read_table(source, mapping=mapping), choices=choices, numbers=numbers)


def read_table(source: Any, *, mapping: Mapping[str, str] | None = None) -> Table:
    """Read the rows of a source that is no known data set, under our column names; arguments and errors as in ``read``.

    The rows need no output.
    """
    if not isinstance(source, str | os.PathLike):
        return memory_table(source, mapping)
    name, path = parse_spec(os.fspath(source))
    if name == HUB:
        return hub_table(path, mapping)
    if name in LOADERS:
        raise ValueError(f"{source}: {name} holds outputs to judge; give a file with the fields that are needed here.")
    _check_exists(path)
    return file_table(name, Path(path), mapping)


def load(name: str, path: str | os.PathLike[str]) -> Dataset:
    """Read a known data set, or a file whose format is named.

    Args:
        name: ``webnlg2020``, ``tmu-gfm``, ``newsroom``, ``summeval`` or ``topicalchat``; of pairs,
            ``llmbar``, ``evalbiasbench`` or ``pandalm``; or a format: ``jsonl``,
            ``json``, ``csv``, ``tsv`` or ``parquet``.
        path: File or folder as published by the authors of the data set; each loader describes its form.

    Raises:
        ValueError: The name is unknown, or (``DataError``) a file is malformed or missing from a folder.
        FileNotFoundError: ``path`` does not exist.
    """
    if name not in LOADERS and name not in FORMATS:
        raise ValueError(f"The data set {name!r} is unknown; choose one of {sorted([*LOADERS, *FORMATS])}.")
    _check_exists(path)
    return LOADERS[name](Path(path)) if name in LOADERS else items_of(file_table(name, Path(path)))


def parse_spec(spec: str) -> tuple[str, str]:
    """Split ``NAME:PATH`` into name and path; the name of a path alone is its format, from the ending.

    Raises:
        ValueError: The text has neither form.

    Examples:
        >>> parse_spec("tmu-gfm:ratings.csv"), parse_spec("outputs.csv.gz"), parse_spec("hf:owner/name:test")
        (('tmu-gfm', 'ratings.csv'), ('csv', 'outputs.csv.gz'), ('hf', 'owner/name:test'))
    """
    name, colon, path = spec.partition(":")
    if colon and (name in LOADERS or name in FORMATS or name == HUB) and path:
        return name, path
    if (ending := format_of(spec)) is not None:
        return ending, spec
    what = "is a folder, not a file of data" if Path(spec).is_dir() else "names no data"
    raise ValueError(
        f"{spec!r} {what}; give a file that ends in {', '.join('.' + name for name in FORMATS)} (also .gz), NAME:PATH "
        f"with a NAME of {', '.join(sorted(LOADERS))}, or hf:NAME. Save a spreadsheet as CSV (in UTF-8)."
    )


def _check_exists(path: str | os.PathLike[str]) -> None:
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; check the path.")
