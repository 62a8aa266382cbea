"""Judge a corpus that is larger than the memory: a JSONL file, read and judged one call of the model at a time.

Scores are written in the order of the file after each call. Answers of the call that is under way are journaled, as far
as they are there when it is interrupted or fails. A stopped run continues after the last call whose scores are
written. Ids are compared within a call only, because remembering all of them would grow with the corpus.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evalbias.commands.model_options import ModelOptions
from evalbias.commands.models import identity, open_lm, sampling_of
from evalbias.commands.score_rows import rows_of
from evalbias.commands.terminal import Resumable
from evalbias.data import DataError
from evalbias.data.chunks import chunks, load_chunks
from evalbias.lm.contract import measuring
from evalbias.lm.journal import JournaledLM
from evalbias.lm.types import CHUNK, chunk_of
from evalbias.programs import PointwiseJudge
from evalbias.programs.refused import Refused
from evalbias.runs.folder import RunFolder
from evalbias.runs.journal import Journal


class Corpus(Resumable):
    """A corpus and the folder of its run; use it in a ``with``, which releases the folder.

    Args:
        program: Judge to score with.
        saved: What identifies the file of a saved judge, for run.json; empty for a new judge.
        data: File of the corpus.
        lm: Name of the model.
        models: Options that decide how it is opened.
        out: Run folder; by default one under runs/.
        refused: See ``PointwiseJudge.batch``.
        seed: Seed of the answers from which probabilities are estimated.
        mapping: Our field -> the corpus's.

    Raises:
        DataError: The corpus is not a plain ``.jsonl`` file.
        ValueError: The model cannot be opened, or the folder holds another run.
    """

    def __init__(
        self,
        program: PointwiseJudge,
        saved: Mapping[str, Any],
        data: Path,
        lm: str,
        models: ModelOptions,
        out: Path | None,
        *,
        refused: Refused = "undefined",
        seed: int = 0,
        mapping: Mapping[str, str] | None = None,
    ) -> None:
        self.chunks, sha256 = chunks(data, CHUNK)
        self._program, self._data, self._mapping, self._refused = program, data, dict(mapping or {}), refused
        opened, sampling = open_lm(lm, models), sampling_of(models, seed=seed)
        settings = {
            "command": "judge",
            "data": str(data),
            "data_sha256": sha256,
            **({"map": self._mapping} if self._mapping else {}),
            "criteria": [asdict(program.criterion)],
            **saved,
            "lm": identity(opened),
        }
        if sampling is not None:
            settings["sampling"] = asdict(sampling)
        self.folder = RunFolder(out, settings)
        self.scores = self.folder.path / "scores.jsonl"
        self._log = Journal(self.folder.path / "chunks.jsonl")
        try:
            self._answers = JournaledLM(
                measuring(opened),
                self.folder.path / "answers.jsonl",
                model=json.dumps(settings["lm"], sort_keys=True),
                chunk=chunk_of(opened),
                exact_resume=models.exact_resume,
            )
        except BaseException:
            self.folder.close()
            raise
        self._lm = measuring(self._answers, sampling)

    def close(self) -> None:
        """Release the run's folder."""
        self.folder.close()

    @property
    def items(self) -> int:
        """Number of lines, blank ones included."""
        return sum(chunk.lines for chunk in self.chunks)

    def run(self, progress: Callable[[int], None]) -> dict[str, Any]:
        """Judge the items that are not judged yet.

        Args:
            progress: Called with the number of items done.

        Returns:
            Number of items left out for each reason.

        Raises:
            DataError: There are no items, a line is not a valid item, or the file has changed meanwhile; scores of
                earlier calls are written.
        """
        done = self._written()
        progress(sum(record["items"] for record in done))
        size = chunk_of(self._lm) // CHUNK
        for first in range(sum(record["chunks"] for record in done), len(self.chunks), size):
            part = self.chunks[first : first + size]
            items = load_chunks(self._data, part, self._mapping)
            rows = rows_of(items, self._program.batch(items, lm=self._lm, refused=self._refused))
            Journal(self.scores).append_lines(rows)
            left_out = {reason: len(places) for reason, places in items.left_out.items()}
            place = {"line": part[0].line, "chunks": len(part), "bytes": self.scores.stat().st_size}
            done.append({**place, "items": len(rows), "left_out": left_out})
            self._log.append(done[-1:])
            self._answers.clear()
            progress(len(rows))
        counts: Counter[str] = Counter()
        for record in done:
            counts.update(record["left_out"])
        if not counts and not any(record["items"] for record in done):
            raise DataError(f"{self._data} holds no items: there is nothing to judge.")
        return {"left_out": dict(counts)}

    def _written(self) -> list[dict[str, Any]]:
        """Return the records of the calls whose scores are written; cut off whatever else the files hold."""
        records = self._log.read("line", "chunks", "items", "left_out", "bytes")
        size = self.scores.stat().st_size if self.scores.exists() else 0
        done: list[dict[str, Any]] = []
        todo = self.chunks
        for record in records:
            if not todo or record["line"] != todo[0].line or record["bytes"] > size:
                break  # a record out of order: what follows cannot be trusted
            done.append(record)
            todo = todo[record["chunks"] :]
        if len(done) < len(records):
            self._log.rewrite(done)
        with self.scores.open("ab") as file:
            file.truncate(done[-1]["bytes"] if done else 0)
        return done
