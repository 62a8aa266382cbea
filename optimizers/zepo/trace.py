"""What a search leaves: every instruction with its numbers and descent, in memory and as a log folder.

The log is written as the search goes: ``proposals.jsonl`` (so that a resumed search does not ask the proposer again)
and ``instructions.jsonl``. Judgments are the journal's business (``evalbias.lm.journal``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evalbias.optimizers.zepo.proposers import Proposal
from evalbias.runs.journal import Journal


@dataclass(frozen=True)
class Tried:
    """One instruction.

    Attributes:
        number: From 0, the instruction the search began with.
        epoch: In which it was proposed; 0 for the first.
        parent: Number of the instruction it was made from; None for the first.
        instruction: Its wording.
        objective: Its value; NaN where undefined.
        decision_rates: How often each position won.
        examples: How many it was tested on; fewer where it left early.
        undefined: Examples without a defined answer.
        accepted: Whether it became the incumbent.
    """

    number: int
    epoch: int
    parent: int | None
    instruction: str
    objective: float
    decision_rates: tuple[float, ...]
    examples: int
    undefined: int
    accepted: bool


@dataclass(frozen=True)
class ZEPOReport:
    """What the search found.

    Attributes:
        objective: The objective's name.
        tried: Every instruction, in the order tested.
        history: The incumbent's objective at the start and after every epoch.
        judgments: Prompts that were judged.
        rejected: (reason, text) of the wordings that were turned down.
        stopped: Why the search ended.
        best: Number of the instruction that was taken.
    """

    objective: str
    tried: tuple[Tried, ...]
    history: tuple[float, ...]
    judgments: int
    rejected: tuple[tuple[str, str], ...]
    stopped: str
    best: int


class Log:
    """The log folder.

    Args:
        folder: Made if missing; None keeps no log.
        settings: What decides the proposals; another search's folder is refused.

    Raises:
        ValueError: The folder holds another search.
    """

    def __init__(self, folder: Path | None, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._proposed: dict[str, Any] = {}
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        told = json.dumps(settings, sort_keys=True)
        file = folder / "search.json"
        if file.exists() and file.read_text(encoding="utf-8") != told:
            raise ValueError(f"{folder} holds another search ({file.name} differs): choose another log_dir.")
        file.write_text(told, encoding="utf-8")
        for line in Journal(folder / "proposals.jsonl").read():
            self._proposed[line["key"]] = line
        (folder / "instructions.jsonl").unlink(missing_ok=True)  # written anew from what was judged

    def proposal(self, key: str, propose: Callable[[], Proposal]) -> Proposal:
        """What was proposed under this key, by the log if it knows."""
        if key in self._proposed:
            told = self._proposed[key]
            return Proposal(tuple(told["instructions"]), tuple((why, text) for why, text in told["rejected"]))
        found = propose()
        self._write("proposals.jsonl", {"key": key, **asdict(found)})
        return found

    def tried(self, found: Tried) -> None:
        """Note an instruction and its numbers."""
        told = {**asdict(found), "decision_rates": [_number(rate) for rate in found.decision_rates]}
        plain = {**told, "objective": _number(found.objective)}
        self._write("instructions.jsonl", plain)

    def _write(self, name: str, record: dict[str, Any]) -> None:
        if self._folder is not None:
            with (self._folder / name).open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


def _number(value: float) -> float | None:
    return None if value != value else value
