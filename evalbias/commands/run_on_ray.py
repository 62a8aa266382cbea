"""Judging a corpus on a Ray cluster: chunks of a JSONL file, judged by actors, written in their order as they come.

The file and the judge must be there on every machine under the same path. What is in memory does not grow with the
corpus: actors read their chunks themselves, and scores go to the file at once. A stopped run goes on where its last
whole chunk ended; an actor that dies costs the chunks it was working on, which another one judges. Ids are compared
within a chunk only: what is remembered would grow with the corpus.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from evalbias.commands.models import identity, open_lm
from evalbias.commands.options import Models
from evalbias.commands.score_rows import rows_of
from evalbias.data import DataError
from evalbias.data.chunks import Chunk, chunks, load_chunk
from evalbias.lm.contract import measuring
from evalbias.lm.types import CHUNK
from evalbias.programs import PointwiseJudge, load_judge
from evalbias.runs.folder import RunFolder
from evalbias.runs.journal import Journal
from evalbias.runs.values import to_json

BLOCKS = 4096
"""Parts into which the chunks are cut at most; a part is what an actor is given, and what its death costs."""


FIELDS = tuple(field.name for field in fields(Chunk))


class Worker:
    """An actor: a judge and its model.

    Args:
        judge: The judge's file.
        data: The corpus.
        lm: The model by name.
        models: How it is opened.
    """

    def __init__(self, judge: str, data: str, lm: str, models: Models) -> None:
        self._data = Path(data)
        self._failed: str | None = None
        try:
            self._judge = load_judge(judge)
            self._lm = open_lm(lm, **models)
            self._measuring = measuring(self._lm)
        except (ValueError, OSError) as error:  # told with the first chunk, in words; Ray would tell a page of calls
            self._failed = str(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Judge chunks; one JSON text each: its rows, or what is wrong with it."""
        found = zip(*(batch[name] for name in FIELDS), strict=True)
        return {"told": [json.dumps(self._told(Chunk(*map(int, numbers)))) for numbers in found]}

    def _told(self, chunk: Chunk) -> dict[str, Any]:
        if self._failed is not None:
            return {"error": self._failed}
        forget = getattr(self._lm, "forget", None)
        if forget is not None:
            forget()  # a chunk's last digits must not depend on which chunks its actor had before
        try:
            items = load_chunk(self._data, chunk)
            found = self._judge.batch(items, lm=self._measuring, chunk=CHUNK)
        except (ValueError, OSError, FloatingPointError) as error:
            return {"error": str(error)}
        left_out = {reason: len(where) for reason, where in items.left_out.items()}
        return {"line": chunk.line, "lm": identity(self._lm), "left_out": left_out, "rows": rows_of(items, found)}


class Spread:
    """A corpus's run folder.

    Args:
        judge: The judge's file.
        data: The corpus.
        lm: The model by name.
        models: How it is opened.
        out: The run's folder.

    Raises:
        DataError: The corpus is no plain ``.jsonl`` file.
        ValueError: The folder holds another run.
    """

    def __init__(self, judge: Path, data: Path, lm: str, models: Models, out: Path | None) -> None:
        folder = Path(lm).is_dir()  # actors run elsewhere: a path must not depend on where
        named = str(Path(lm).resolve()) if folder else lm
        self._arguments = {"judge": str(judge.resolve()), "data": str(data.resolve()), "lm": named, "models": models}
        self.program: PointwiseJudge = load_judge(judge)
        self.chunks, sha256 = chunks(data, CHUNK)
        settings = {
            "command": "judge",
            "data": str(data),
            "data_sha256": sha256,
            "judge": hashlib.sha256(judge.read_bytes()).hexdigest(),
            "lm": {"name": lm, "dtype": models["dtype"]},
        }
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]
        self.folder = RunFolder(out or Path("runs") / f"judge-{digest}", settings)
        self.scores = self.folder.path / "scores.jsonl"
        self._log = self.folder.path / "chunks.jsonl"

    @property
    def items(self) -> int:
        """How many there are, blank lines included."""
        return sum(chunk.lines for chunk in self.chunks)

    def run(self, actors: int | None, progress: Callable[[int], None]) -> dict[str, Any]:
        """Judge what is not judged yet.

        Args:
            actors: How many; None takes one a GPU, or one for two cores where there is none.
            progress: Called with the number of items done.

        Returns:
            How many items were left out for what reason, and which model judged.

        Raises:
            DataError: There is no item.
            ValueError: An item or a model that a worker cannot use; the chunks before it are written.
        """
        done = self._written()
        progress(sum(record["items"] for record in done))
        todo = self.chunks[len(done) :]
        if todo:
            with self.scores.open("ab") as scores, self._log.open("a", encoding="utf-8") as log:
                for told in judged(todo, self._arguments, actors):
                    if "error" in told:
                        raise ValueError(told["error"])
                    rows = told.pop("rows")
                    if done and told["lm"] != done[0]["lm"]:
                        raise ValueError(
                            f"A worker has the model {told['lm']}, the scores so far are by {done[0]['lm']}: give "
                            "every machine the same model, or choose another --out."
                        )
                    scores.write("".join(json.dumps(to_json(row)) + "\n" for row in rows).encode())
                    scores.flush()
                    os.fsync(scores.fileno())
                    done.append({**told, "items": len(rows), "bytes": scores.tell()})
                    log.write(json.dumps(done[-1]) + "\n")
                    log.flush()
                    progress(len(rows))
        left_out: dict[str, int] = {}
        for record in done:
            for reason, count in record["left_out"].items():
                left_out[reason] = left_out.get(reason, 0) + count
        if not left_out and not any(record["items"] for record in done):
            raise DataError(f"{self._arguments['data']} holds no items: there is nothing to judge.")
        return {"left_out": left_out, "lm": done[0]["lm"] if done else None}

    def _written(self) -> list[dict[str, Any]]:
        """The records of the chunks whose scores are there; what else the files hold is cut off."""
        told = Journal(self._log).read()
        size = self.scores.stat().st_size if self.scores.exists() else 0
        done = [record for record in told if record["bytes"] <= size]
        if len(done) < len(told):
            self._log.write_text("".join(json.dumps(record) + "\n" for record in done), encoding="utf-8")
        with self.scores.open("ab") as file:
            file.truncate(done[-1]["bytes"] if done else 0)
        return done


def judged(todo: list[Chunk], arguments: dict[str, Any], actors: int | None) -> Iterator[dict[str, Any]]:
    """What the actors tell of every chunk, in order.

    Raises:
        ValueError: Ray is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ValueError("--workers ray needs Ray: pip install 'evalbias[ray]'.") from error
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    has = ray.cluster_resources()
    gpus = int(has.get("GPU", 0))
    size = actors or gpus or max(1, int(has.get("CPU", 1)) // 2)
    needs = {"num_gpus": 1} if gpus else {"num_cpus": max(1, int(has.get("CPU", 1)) // size)}
    rows = ray.data.from_items([asdict(chunk) for chunk in todo], override_num_blocks=min(len(todo), BLOCKS))
    found = rows.map_batches(
        Worker,
        fn_constructor_kwargs=arguments,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=size),
        **needs,
    )
    for row in found.iter_rows():
        yield json.loads(row["told"])
