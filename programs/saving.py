"""Reader for the JSON files that a program's ``save`` writes."""

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
"""Kind of program and its readers, by the state key of the program."""


def read_state(path: str | os.PathLike[str], key: str, kind: str) -> dict[str, Any]:
    """Read the state of a program from a JSON file.

    Args:
        path: File that the program's ``save`` wrote.
        key: State key under which this kind of program keeps its options.
        kind: Kind of program, for error messages.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file does not hold a program of this kind.
    """
    try:
        state = json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not a saved {kind}: it is not JSON ({error}).") from error
    other = next((k for k in KINDS if isinstance(state, dict) and k in state and k != key), None)
    if other is not None:
        raise ValueError(f"{path} is not a saved {kind} but {KINDS[other]}.")
    if not isinstance(state, dict) or key not in state:
        raise ValueError(f"{path} is not a saved {kind}: write one with the program's save({str(path)!r}).")
    return {k: v for k, v in state.items() if k != "metadata"}
