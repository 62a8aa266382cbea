"""``evalbias judge``: score the items of a file, also of one larger than memory."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from evalbias.cli.models import identity, open_lm, sampling_of
from evalbias.cli.options import ModelOptions
from evalbias.cli.terminal import Resumable
from evalbias.data import DataError
from evalbias.data.files import file_chunks
from evalbias.data.items import read_chunks
from evalbias.lm.cache import JournaledLM
from evalbias.lm.contract import measuring
from evalbias.lm.types import CHUNK, chunk_of
from evalbias.measures.arrays import FloatArray
from evalbias.programs import PointwiseJudge
from evalbias.programs.judges import Refused
from evalbias.runs import Journal, RunFolder
from evalbias.values import json_object, number

# The records that ``evalbias judge`` writes, one per item.


BEGINNING = 80
"""Largest number of characters of a text in the records."""
NAMED = 100
"""Largest number of items that are named as refused."""


def rows_of(items: Sequence[Any], predictions: Sequence[Any]) -> list[dict[str, Any]]:
    """Return one record per item: its id, how its texts begin, score, most probable label, coverage and distribution.

    A distribution that is an estimate stands with the number of answers that it comes from (``samples``), an item that
    the model could not be asked about with the reason (``undefined``). A score that is corrected for likelihood
    stands with the uncorrected one (``raw_score``) and LS in nats (``likelihood``).
    """
    fields = ("score", "mode", "coverage", "distribution")
    optional = ("samples", "undefined", "raw_score", "likelihood")
    return [
        {
            "id": e.get("id", i),
            "source_begins": beginning(e.source),
            "output_begins": beginning(e.output),
            **{name: p[name] for name in fields},
            **{name: p[name] for name in optional if p.get(name) is not None},
        }
        for i, (e, p) in enumerate(zip(items, predictions, strict=True))
    ]


def beginning(text: str) -> str:
    """Return the beginning of a text in one line, so that a reader knows it again.

    Examples:
        >>> beginning("Dear  Madam or Sir, " + 20 * "very ")[-26:]
        'very very very very ver...'
    """
    line = " ".join(text.split())
    return line if len(line) <= BEGINNING else line[: BEGINNING - 3] + "..."


def scores_of(file: Path) -> FloatArray:
    """Return (n,) the scores of a file, which is read line by line; NaN where undefined."""
    return np.fromiter((number(row["score"]) for row in _rows(file)), dtype=np.float64)


def summary(file: Path) -> tuple[dict[str, Any], Any]:
    """Return count and mean of a file's scores, and every item's coverage; the file is read line by line.

    ``refused`` holds the ids of the items that the model could not be asked about, the first hundred of them;
    ``unanswered`` is the number of those that it was asked about, and that have no score.
    """
    scores, coverage = array("d"), array("d")
    refused: list[str] = []
    reasons = 0
    for row in _rows(file):
        scores.append(number(row["score"]))
        coverage.append(number(row["coverage"]))
        if "undefined" in row:
            reasons += 1
            if len(refused) < NAMED:
                refused.append(row["id"])
    values = np.array(scores)
    defined = values[~np.isnan(values)]
    brief = {
        "n": len(defined),
        "undefined": len(values) - len(defined),
        "mean": float(defined.mean()) if len(defined) else None,
        "refused": refused,
        "unanswered": len(values) - len(defined) - reasons,
    }
    return brief, np.array(coverage)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as lines:
        for n, line in enumerate(lines, start=1):
            row = json_object(line, f"{file}:{n}", "delete its folder to start over")
            if not {"id", "score", "coverage"} <= row.keys():
                raise ValueError(f"{file}:{n} is no record of a judged item: delete its folder to start over.")
            yield row


# Judge a corpus that is larger than the memory: a JSONL file, read and judged one call of the model at a time.
#
# Scores are written in the order of the file after each call. Answers of the call that is under way are journaled, as
# far as they are there when it is interrupted or fails. A stopped run continues after the last call whose scores are
# written. Ids are compared within a call only, because remembering all of them would grow with the corpus.


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
        self.chunks, sha256 = file_chunks(data, CHUNK)
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
            items = read_chunks(self._data, part, self._mapping)
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
