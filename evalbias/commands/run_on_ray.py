"""Judge a corpus on a Ray cluster: chunks of a JSONL file, judged by actors, written in their order as they come.

The file and the judge must be there on every machine under the same path. Memory does not grow with the corpus: actors
read their chunks themselves, and scores go to the file at once. A stopped run continues where its last whole chunk
ended; an actor that dies costs the chunks it was working on, which another one judges. Ids are compared within a chunk
only, because remembering all of them would grow with the corpus.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from evalbias.commands.models import identity, open_lm, sampling_of
from evalbias.commands.options import ModelOptions
from evalbias.commands.score_rows import rows_of
from evalbias.commands.terminal import Resumable
from evalbias.data import DataError
from evalbias.data.chunks import Chunk, chunks, load_chunk
from evalbias.lm.contract import measuring
from evalbias.lm.sampled_answers import Sampling
from evalbias.lm.types import CHUNK
from evalbias.programs import PointwiseJudge, load_judge
from evalbias.programs.refused import Refused
from evalbias.runs.fingerprint import file_digest
from evalbias.runs.folder import RunFolder
from evalbias.runs.journal import Journal
from evalbias.runs.values import to_json

BLOCKS = 4096
"""Largest number of parts into which the chunks are cut; one part is given to an actor, and lost when it dies."""

FIELDS = tuple(field.name for field in fields(Chunk))


class Worker:
    """An actor: a judge and its model.

    Args:
        judge: File of the judge.
        data: File of the corpus.
        lm: Name of the model.
        models: Options that decide how it is opened.
        sampling: How often it is asked to estimate probabilities; None measures them.
        refused: See ``PointwiseJudge.batch``.
        mapping: Our field -> the corpus's.
    """

    def __init__(
        self,
        judge: str,
        data: str,
        lm: str,
        models: ModelOptions,
        sampling: Sampling | None,
        refused: Refused,
        mapping: Mapping[str, str],
    ) -> None:
        self._data = Path(data)
        self._refused = refused
        self._mapping = mapping
        self._failed: str | None = None
        try:
            self._judge = load_judge(judge)
            self._lm = open_lm(lm, models)
            self._measuring = measuring(self._lm, sampling)
        except (ValueError, OSError) as error:  # returned with the first chunk: Ray would print a page of calls
            self._failed = str(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Judge chunks; returns one JSON text each, with its rows or its error."""
        numbers = zip(*(batch[name] for name in FIELDS), strict=True)
        return {"answer": [json.dumps(to_json(self._judged(Chunk(*map(int, one))))) for one in numbers]}

    def _judged(self, chunk: Chunk) -> dict[str, Any]:
        if self._failed is not None:
            return {"error": self._failed}
        forget = getattr(self._lm, "forget", None)
        if forget is not None:
            forget()  # a chunk's last digits must not depend on which chunks its actor had before
        try:
            items = load_chunk(self._data, chunk, self._mapping)
            predictions = self._judge.batch(items, lm=self._measuring, chunk=CHUNK, refused=self._refused)
        except (ValueError, OSError, FloatingPointError) as error:
            return {"error": str(error)}
        left_out = {reason: len(places) for reason, places in items.left_out.items()}
        rows = rows_of(items, predictions)
        return {"line": chunk.line, "lm": identity(self._lm), "left_out": left_out, "rows": rows}


class Corpus(Resumable):
    """A corpus and the folder of its run; use it in a ``with``, which releases the folder.

    Args:
        judge: File of the judge.
        data: File of the corpus.
        lm: Name of the model.
        models: Options that decide how it is opened.
        out: Run folder; by default one under runs/.
        refused: See ``PointwiseJudge.batch``.
        seed: Seed of the answers from which probabilities are estimated.
        mapping: Our field -> the corpus's.

    Raises:
        DataError: The corpus is not a plain ``.jsonl`` file.
        ValueError: The folder holds another run.
    """

    def __init__(
        self,
        judge: Path,
        data: Path,
        lm: str,
        models: ModelOptions,
        out: Path | None,
        refused: Refused = "undefined",
        seed: int = 0,
        mapping: Mapping[str, str] | None = None,
    ) -> None:
        sampling = sampling_of(models, seed=seed)
        resolved = str(Path(lm).resolve()) if Path(lm).exists() else lm  # actors run in another folder
        adapter = None if models.adapter is None else str(Path(models.adapter).resolve())
        self._arguments = {
            "judge": str(judge.resolve()),
            "data": str(data.resolve()),
            "lm": resolved,
            "models": replace(models, adapter=adapter),
            "sampling": sampling,
            "refused": refused,
            "mapping": dict(mapping or {}),
        }
        self.program: PointwiseJudge = load_judge(judge)
        self.chunks, sha256 = chunks(data, CHUNK)
        settings = {
            "command": "judge",
            "data": str(data),
            "data_sha256": sha256,
            **({"map": dict(mapping)} if mapping else {}),
            "judge": file_digest(judge),
            "lm": {
                "name": lm,
                "adapter": models.adapter,
                "dtype": models.dtype,
                "template_options": models.template_options,
            },
        }
        if sampling is not None:
            settings["sampling"] = asdict(sampling)
        self.folder = RunFolder(out, settings)
        self.scores = self.folder.path / "scores.jsonl"
        self._log = Journal(self.folder.path / "chunks.jsonl")

    def close(self) -> None:
        """Release the run's folder."""
        self.folder.close()

    @property
    def items(self) -> int:
        """Number of lines, blank ones included."""
        return sum(chunk.lines for chunk in self.chunks)

    def run(self, actors: int | None, progress: Callable[[int], None]) -> dict[str, Any]:
        """Judge the chunks that are not judged yet.

        Args:
            actors: Number of actors; None takes one a GPU, or one for two cores where there is none.
            progress: Called with the number of items done.

        Returns:
            Number of items left out for each reason, and the model that judged.

        Raises:
            DataError: There are no items.
            ValueError: An item or a model that a worker cannot use; the chunks before it are written.
        """
        done = self._written()
        progress(sum(record["items"] for record in done))
        todo = self.chunks[len(done) :]
        for chunk, answer in zip(todo, judge_chunks(todo, self._arguments, actors), strict=True):
            if "error" in answer:
                raise ValueError(answer["error"])
            if answer["line"] != chunk.line:
                raise RuntimeError(f"Ray returned the chunk at line {answer['line']} in place of line {chunk.line}.")
            rows = answer.pop("rows")
            if done and answer["lm"] != done[0]["lm"]:
                raise ValueError(
                    f"A worker has the model {answer['lm']}, the scores so far are by {done[0]['lm']}: give every "
                    "machine the same model, or choose another --out."
                )
            Journal(self.scores).append_lines(rows)
            done.append({**answer, "items": len(rows), "bytes": self.scores.stat().st_size})
            self._log.append([done[-1]])
            progress(len(rows))
        left_out: Counter[str] = Counter()
        for record in done:
            left_out.update(record["left_out"])
        if not left_out and not any(record["items"] for record in done):
            raise DataError(f"{self._arguments['data']} holds no items: there is nothing to judge.")
        return {"left_out": dict(left_out), "lm": done[0]["lm"] if done else None}

    def _written(self) -> list[dict[str, Any]]:
        """Return the records of the chunks whose scores are written; cut off whatever else the files hold."""
        records = self._log.read()
        size = self.scores.stat().st_size if self.scores.exists() else 0
        done = []
        for chunk, record in zip(self.chunks, records, strict=False):
            if record["line"] != chunk.line or record["bytes"] > size:
                break  # a record out of order: what follows cannot be trusted
            done.append(record)
        if len(done) < len(records):
            self._log.rewrite(done)
        with self.scores.open("ab") as file:
            file.truncate(done[-1]["bytes"] if done else 0)
        return done


def judge_chunks(todo: list[Chunk], arguments: dict[str, Any], actors: int | None) -> Iterator[dict[str, Any]]:
    """Yield the actors' answer to every chunk, in order.

    Raises:
        ValueError: Ray is not installed.
    """
    if not todo:
        return
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
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0))
    size = actors or gpus or max(1, int(resources.get("CPU", 1)) // 2)
    needs = {"num_gpus": 1} if gpus else {"num_cpus": max(1, int(resources.get("CPU", 1)) // size)}
    rows = ray.data.from_items([asdict(chunk) for chunk in todo], override_num_blocks=min(len(todo), BLOCKS))
    answers = rows.map_batches(
        Worker,
        fn_constructor_kwargs=arguments,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=size),
        **needs,
    )
    for row in answers.iter_rows():
        yield json.loads(row["answer"])
