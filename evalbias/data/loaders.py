"""Load data sets by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from evalbias.data.dataset import Dataset
from evalbias.data.jsonl import load_jsonl
from evalbias.data.newsroom import load_newsroom
from evalbias.data.summeval import load_summeval
from evalbias.data.tmu_gfm import load_tmu_gfm
from evalbias.data.topicalchat import load_topicalchat
from evalbias.data.webnlg import load_webnlg

LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "webnlg2020": load_webnlg,
    "tmu-gfm": load_tmu_gfm,
    "newsroom": load_newsroom,
    "summeval": load_summeval,
    "topicalchat": load_topicalchat,
    "jsonl": load_jsonl,
}


def load(name: str, path: str | os.PathLike[str]) -> Dataset:
    """Read a data set.

    Args:
        name: ``webnlg2020``, ``tmu-gfm``, ``newsroom``, ``summeval``, ``topicalchat`` or ``jsonl``.
        path: File or folder as published by the authors of the data set; each loader describes its form.

    Raises:
        ValueError: The name is unknown, or (``DataError``) a file is malformed or missing from a folder.
        FileNotFoundError: ``path`` does not exist.
    """
    if name not in LOADERS:
        raise ValueError(f"The data set {name!r} is unknown; choose one of {sorted(LOADERS)}.")
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; check the path, and the name before it, one of {[*LOADERS]}.")
    return LOADERS[name](Path(path))


def parse_spec(spec: str) -> tuple[str, str]:
    """Split ``NAME:PATH`` into name and path; a ``.jsonl`` or ``.jsonl.gz`` path alone has the name ``jsonl``.

    Raises:
        ValueError: The text has neither form.

    Examples:
        >>> parse_spec("tmu-gfm:ratings.csv"), parse_spec("outputs.jsonl")
        (('tmu-gfm', 'ratings.csv'), ('jsonl', 'outputs.jsonl'))
    """
    name, colon, path = spec.partition(":")
    if colon and name in LOADERS and path:
        return name, path
    if spec.endswith((".jsonl", ".jsonl.gz")):
        return "jsonl", spec
    raise ValueError(f"{spec!r} names no data; write NAME:PATH with one of {sorted(LOADERS)}, or a .jsonl file.")


def load_spec(spec: str) -> Dataset:
    """Read the data set that ``NAME:PATH`` or a ``.jsonl`` path names; errors as in ``parse_spec`` and ``load``."""
    return load(*parse_spec(spec))
