"""A measuring LM that writes every answer to a file as it comes and never asks twice: what makes a run resumable.

Prompts not answered yet go to the model in chunks, and a chunk is written before the next is asked. After a kill the
last chunk may be torn; it is dropped when the file is opened and asked again as the same chunk, because the last
digits of an answer may depend on what else is in a batch. A resumed run therefore gives the very same numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evalbias.lm.contract import written
from evalbias.lm.types import ChoiceLogprobs, Interrupted, LogLikelihood, MeasuringLM, Prompt, Unanswered, chunk_of


class JournaledLM:
    """Wraps a measuring LM; answers come from the file where it has them.

    Args:
        lm: The model that is asked.
        path: The JSONL file; made if missing. One answer a line, with a key over the model, the prompt and the choices.
        model: What identifies the model's numbers (name, revision, dtype); part of every key.
        progress: Called with the number of answers, after every chunk and for what the file had.
        chunk: Prompts in one call of the model, all written together: what a kill costs. None takes ``chunk_of``.

    Attributes:
        asked: How many answers the model gave through this object.
        replayed: How many came from the file.

    Raises:
        ValueError: A line in the middle of the file is no answer.
    """

    def __init__(
        self,
        lm: MeasuringLM,
        path: str | os.PathLike[str],
        *,
        model: str,
        progress: Callable[[int], None] | None = None,
        chunk: int | None = None,
    ) -> None:
        self._lm = lm
        self._path = Path(path)
        self._model = model
        self._progress = progress or (lambda _: None)
        self._chunk = chunk or chunk_of(lm)
        self.in_flight = getattr(lm, "in_flight", 0)  # of what is wrapped, for ``chunk_of``
        self._seen = _read(self._path)
        self.asked = 0
        self.replayed = 0

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability of every choice after every prompt; see ``MeasuringLM``."""
        choices = tuple(choices)

        def ask(part: list[Prompt]) -> list[ChoiceLogprobs]:
            found = self._lm.choice_logprobs(part, choices)
            return [replace(found, logprobs=found.logprobs[i : i + 1]) for i in range(len(part))]

        def record(answer: ChoiceLogprobs) -> dict[str, Any]:
            return {"logprobs": [_plain(v) for v in answer.logprobs[0].tolist()], "renormalized": answer.renormalized}

        records = self._answer([(p, [p, choices]) for p in prompts], ask, record)
        rows = [[_number(v) for v in r["logprobs"]] for r in records]
        logprobs = np.array(rows, dtype=np.float64).reshape(len(prompts), len(choices))
        return ChoiceLogprobs(choices, logprobs, renormalized=any(r["renormalized"] for r in records))

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Log-probability of each continuation after its context; see ``MeasuringLM``."""

        def record(answer: LogLikelihood) -> dict[str, Any]:
            return {"per_token": [_plain(v) for v in answer.per_token.tolist()]}

        records = self._answer([(pair, list(pair)) for pair in pairs], self._lm.loglikelihood, record)
        return [LogLikelihood(np.array([_number(v) for v in r["per_token"]])) for r in records]

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """What the model writes after every prompt, decoded greedily; see ``evalbias.lm.contract.written``."""

        def ask(part: list[Prompt]) -> list[str]:
            return written(self._lm, part, max_tokens=max_tokens)

        def record(text: str) -> dict[str, Any]:
            return {"written": text}

        return [r["written"] for r in self._answer([(p, [p, "written", max_tokens]) for p in prompts], ask, record)]

    def _answer(
        self,
        items: list[tuple[Any, list[Any]]],
        ask: Callable[[list[Any]], Sequence[Any]],
        record: Callable[[Any], dict[str, Any]],
    ) -> list[dict[str, Any]]:
        keys = [self._key(question) for _, question in items]
        unseen = {k: item for k, (item, _) in zip(keys, items, strict=True) if k not in self._seen}
        self._note(replayed=len(items) - len(unseen))
        todo = list(unseen.items())
        for start in range(0, len(todo), self._chunk):
            part = todo[start : start + self._chunk]
            forget = getattr(self._lm, "forget", None)
            if forget is not None:
                forget()  # what a chunk is told must not depend on the chunks before, which a resumed run skips
            try:
                answered = dict(enumerate(ask([item for _, item in part])))
            except (
                Unanswered,
                Interrupted,
            ) as error:  # a server's answers do not depend on what else was asked: keep them
                self._keep({part[i][0]: record(answer) for i, answer in error.answered.items()})
                raise
            self._keep({part[i][0]: record(answer) for i, answer in answered.items()})
        return [self._seen[k] for k in keys]

    def _keep(self, records: dict[str, dict[str, Any]]) -> None:
        if records:
            self._write([{"key": key, "chunk": len(records), **told} for key, told in records.items()])
            self._note(asked=len(records))

    def _note(self, *, asked: int = 0, replayed: int = 0) -> None:
        self.asked += asked
        self.replayed += replayed
        self._progress(asked + replayed)

    def _key(self, question: list[Any]) -> str:
        told = json.dumps([self._model, question], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(told.encode()).hexdigest()

    def _write(self, records: list[dict[str, Any]]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(r) + "\n" for r in records))
            file.flush()
            os.fsync(file.fileno())
        self._seen.update((r["key"], r) for r in records)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Every answer of whole chunks; a torn last chunk is cut off the file."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return {}
    seen: dict[str, dict[str, Any]] = {}
    whole = 0  # bytes up to the end of the last whole chunk
    open_chunk: list[dict[str, Any]] = []
    data = path.read_bytes()
    end = 0
    for number, line in enumerate(data.splitlines(keepends=True), start=1):
        end += len(line)
        if not line.endswith(b"\n"):
            break
        open_chunk.append(_record(path, number, line))
        if len(open_chunk) == open_chunk[0]["chunk"]:
            seen.update((r["key"], r) for r in open_chunk)
            open_chunk, whole = [], end
    if whole < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
    return seen


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{number} is no recorded answer ({error}): delete the file to start over.") from error
    if not isinstance(record, dict) or not {"key", "chunk"} <= record.keys():
        raise ValueError(f"{path}:{number} is no recorded answer: delete the file to start over.")
    return record


def _plain(value: float) -> float | None:
    return None if value == -np.inf else value  # JSON has no infinities


def _number(value: float | None) -> float:
    return -np.inf if value is None else value
