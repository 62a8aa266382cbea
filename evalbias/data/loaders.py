"""Data sets by name."""

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
        path: A file or folder in the form its owners publish; see each loader.

    Raises:
        ValueError: An unknown name, or (``DataError``) a malformed file or a checkout that lacks one.
        FileNotFoundError: There is nothing at ``path``.
    """
    if name not in LOADERS:
        raise ValueError(f"There is no data set {name!r}: choose one of {sorted(LOADERS)}.")
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist: check the path, and the name before it, one of {[*LOADERS]}.")
    return LOADERS[name](Path(path))


def parse_spec(spec: str) -> tuple[str, str]:
    """(name, path) of ``name:path``, or of a plain ``.jsonl`` file.

    Raises:
        ValueError: It is neither.
    """
    name, colon, path = spec.partition(":")
    if colon and name in LOADERS and path:
        return name, path
    if spec.endswith((".jsonl", ".jsonl.gz")):
        return "jsonl", spec
    raise ValueError(f"{spec!r} names no data: write NAME:PATH with one of {sorted(LOADERS)}, or a .jsonl file.")


def load_spec(spec: str) -> Dataset:
    """``load`` what ``parse_spec`` reads."""
    return load(*parse_spec(spec))
