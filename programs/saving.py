"""Reading what a program's ``save`` wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

KINDS = {
    "evalbias": "a pointwise judge: load_judge and 'evalbias judge' read it",
    "evalbias_refine": "a refine loop: its own load and 'evalbias refine --program' read it",
    "evalbias_ranker": "a ranker: load_ranker reads it",
    "evalbias_pairwise": "a pairwise judge: load_pairwise_judge, 'evalbias rank' and 'measure preference' read it",
}
"""Key of a saved program -> what it is and who reads it."""


def read_state(path: str | os.PathLike[str], key: str, kind: str) -> dict[str, Any]:
    """The state of a program that keeps its own part under ``key``.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is no saved program of this kind.
    """
    try:
        state = json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no saved {kind}: {error}.") from error
    other = next((k for k in KINDS if isinstance(state, dict) and k in state and k != key), None)
    if other is not None:
        raise ValueError(f"{path} is no saved {kind}, but {KINDS[other]}.")
    if not isinstance(state, dict) or key not in state:
        raise ValueError(f"{path} is no saved {kind}: write one with its save({str(path)!r}).")
    return {k: v for k, v in state.items() if k != "metadata"}
