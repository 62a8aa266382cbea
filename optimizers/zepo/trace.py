"""The record of a search: every instruction with its numbers and descent, in memory and in a log folder.

The log grows during the search: ``proposals.jsonl``, so that a resumed search does not ask the proposer again, and
``instructions.jsonl``. Judgments are logged by the model's journal (``evalbias.lm.journal``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evalbias.optimizers.compile_report import CompileReport
from evalbias.optimizers.zepo.proposers import Proposal
from evalbias.runs.folder import check_settings
from evalbias.runs.journal import Journal
from evalbias.runs.lock import lock_folder


@dataclass(frozen=True)
class Tried:
    """One tested instruction.

    Attributes:
        number: Number in the search, from 0.
        epoch: Epoch in which it was proposed; 0 for the first instruction.
        parent: Number of the instruction it was made from; None for the first.
        instruction: The wording.
        objective: Value of the objective; NaN where undefined.
        decision_rates: (c,) rate at which each position, or label, was the most probable answer.
        examples: Number of examples it was judged on; fewer where racing dropped it.
        undefined: Examples without a defined answer.
        accepted: Whether it became the incumbent.
        behind: Number of the instruction that it was behind when racing dropped it; None if it was not dropped.
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
    behind: int | None = None


@dataclass(frozen=True, kw_only=True)
class ZEPOReport(CompileReport):
    """Report of ``ZEPO``.

    Attributes:
        objective: Name of the objective.
        tried: Every instruction, in the order tested.
        history: The incumbent's objective at the start and after every epoch.
        judgments: Prompts that the search judged.
        saved: Prompts that it need not judge because racing dropped wordings.
        rounds: Number of examples judged by the end of each round of a race; only all of them without racing.
        rejected: (reason, text) of every wording that was turned down.
        stopped: Reason for which the search ended.
        best: Number of the instruction that was taken.
    """

    objective: str
    tried: tuple[Tried, ...]
    history: tuple[float, ...]
    judgments: int
    saved: int
    rounds: tuple[int, ...]
    rejected: tuple[tuple[str, str], ...]
    stopped: str
    best: int


class SearchLog:
    """The log folder of a search.

    Args:
        folder: Folder; made if missing. None keeps no log.
        settings: Everything that decides the proposals; another search's folder is refused.
    """

    def __init__(self, folder: Path | None, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._settings = settings
        self._proposals: dict[str, Proposal] = {}
        self._journals: dict[str, Journal] = {}

    @contextmanager
    def open(self) -> Iterator[None]:
        """Lock the folder and read what an earlier search of the same settings proposed.

        Raises:
            FolderInUse: Another process works in the folder.
            ValueError: The folder holds another search, or files of no search.
        """
        if self._folder is None:
            yield
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with lock_folder(self._folder):
            check_settings(self._folder / "search.json", self._settings)
            self._journals = {n: Journal(self._folder / f"{n}.jsonl") for n in ("proposals", "instructions")}
            for record in self._journals["proposals"].read("key", "instructions", "rejected"):
                rejected = tuple((reason, text) for reason, text in record["rejected"])
                calls = record.get("calls", 0)
                self._proposals[record["key"]] = Proposal(tuple(record["instructions"]), rejected, calls)
            self._journals["instructions"].path.unlink(missing_ok=True)  # written anew from what was judged
            yield

    def proposal(self, key: str, propose: Callable[[], Proposal]) -> Proposal:
        """Return the logged proposal under a key, or propose and log it."""
        if key not in self._proposals:
            self._proposals[key] = propose()
            self._write("proposals", {"key": key, **asdict(self._proposals[key])})
        return self._proposals[key]

    def tried(self, record: Tried) -> None:
        """Log an instruction and its numbers."""
        self._write("instructions", asdict(record))

    def _write(self, name: str, record: dict[str, Any]) -> None:
        if self._folder is not None:
            self._journals[name].append([record])
