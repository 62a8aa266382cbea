"""Reader for the JSON files that a program's ``save`` writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

READERS = {
    "pointwise judge": "load_judge and 'evalbias judge' read it",
    "pairwise judge": "load_pairwise_judge, 'evalbias rank' and 'measure preference' read it",
    "ranker": "load_ranker reads it",
    "refine loop": "its own load and 'evalbias refine --program' read it",
}
"""Kind of program -> what reads its files."""


class Saved(Protocol):
    """Program that is constructed from a saved state."""

    kind: ClassVar[str]

    @classmethod
    def from_state(cls: type[AnyProgram], state: dict[str, Any]) -> AnyProgram:
        """Construct the program whose ``dump_state`` is given."""


AnyProgram = TypeVar("AnyProgram", bound=Saved)


def load_program(path: str | os.PathLike[str], program: type[AnyProgram]) -> AnyProgram:
    """Load a program from the JSON file that its ``save`` wrote.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file does not hold such a program, or a field of it is malformed; the message names both.
    """
    state = read_state(path, program.kind)
    try:
        return program.from_state(state)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_state(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read the state of a program from a JSON file.

    Args:
        path: File that the program's ``save`` wrote.
        kind: Kind of program, as its class names it.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file does not hold a program of this kind.
    """
    try:
        state = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # bytes that are not UTF-8; lists in lists
        raise ValueError(f"{path} is not a saved {kind}: it is not JSON ({error}).") from error
    settings = state.get("settings") if isinstance(state, dict) else None
    saved = settings.get("kind") if isinstance(settings, dict) else None
    if not isinstance(saved, str):
        raise ValueError(
            f"{path} is not a saved {kind}: load a program that contains one by its own load, or save the {kind} to "
            "a file of its own."
        )
    if saved != kind:
        raise ValueError(
            f"{path} is not a saved {kind} but a {saved:.40}: {READERS.get(saved, 'its own load reads it')}."
        )
    return {name: value for name, value in state.items() if name != "metadata"}
