"""Cached model: asks every question once, counts it, and keeps its answer in memory or in a file.

Judges and optimizers ask ``CachedLM``, which asks a ``LocalLM`` or ``ServerLM``, or any ``dspy.LM`` by
``contract.AnyLM``. Each line of the file is an answer under a key over the model and the question.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from evalbias.lm import types
from evalbias.lm.contract import AnyLM, Sampling, answer_sampled
from evalbias.lm.dspy_seam import is_provider
from evalbias.lm.fingerprint import cache_folder, code_hash, keeps
from evalbias.lm.types import Answers, Choices, Likelihood, MeasuringLM, Question, Refused, chunk_of
from evalbias.runs import Journal
from evalbias.values import digest, get_logger, model_settings, to_json

INTERVAL = 1.0  # time in seconds between flushes to the disk, and reports of progress, while answers of a server arrive


class CachedLM(MeasuringLM):
    """A model whose answers are cached, so that no question is asked twice.

    With a file, questions go to the model in chunks, so that a kill costs only a few seconds of work. A server's
    answers are written one by one as they arrive. A local model's chunk is written as a whole before the next chunk is
    asked, and its answers do not depend on earlier chunks. So a resumed run asks the same chunks as an uninterrupted
    run, and gets the same numbers to the last digit. All runs share the likelihoods of a model whose files are on this
    machine; those measured in other chunks may differ in last digits (1e-5 nats in float32).

    Args:
        lm: Model to ask, as for ``measuring``.
        file: JSONL file of the answers; None keeps them in memory.
        sampling: Estimate the probabilities of choices from repeated answers; None measures them.
        chunk: Number of questions in a call of the model, by default ``chunk_of(lm)``; all questions if there is
            neither a file nor ``progress``.
        before: Function that is called with the unanswered questions of a call, before the model is asked.
        between: Function that is called after every answered chunk; it may raise to end the run.
        progress: Function that is called with a number of answers: first the cached answers, then the new answers,
            after every chunk, and every second while answers of a server arrive; also from other threads.
    """

    def __init__(
        self,
        lm: Any,
        file: str | os.PathLike[str] | None = None,
        *,
        sampling: Sampling | None = None,
        chunk: int | None = None,
        before: Callable[[Sequence[Question]], None] = lambda _: None,
        between: Callable[[], None] = lambda: None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        lm = named_lm(lm)
        self._lm, self._identity = as_measuring(lm), model_identity(lm)
        self.model = self._lm.model
        self.decides = self._lm.decides and sampling is None
        self._draws, self.sampling = sampling, sampling or getattr(self._lm, "sampling", None)
        self._key = json.dumps(self._identity, sort_keys=True)
        self._before, self._between, self._progress = before, between, progress or (lambda _: None)
        self._journal = None if file is None else Journal(file)
        self._store = Store() if self._lm.is_local and keeps() else None
        records = [] if self._journal is None else self._journal.read("key")
        self._kept: dict[str, Any] = {record["key"]: record for record in records}  # records until their first use
        self._whole = file is None and chunk is None and progress is None
        self.chunk = chunk or chunk_of(self._lm)
        self._keeping = threading.RLock()
        self._reported, self._unreported = -math.inf, 0  # time of the last report of progress, and answers since
        self.questions: Counter[type] = Counter()  # kind -> questions answered so far, cached answers included
        self.distinct: Counter[type] = Counter()  # kind -> different questions among these, cached or not
        self.asked: Counter[type] = Counter()  # kind -> questions that the model itself answered
        self.tokens = 0.0  # read and written for these; NaN where the model does not report them
        self._counted: set[str] = set()
        self.replayed = 0  # number of cached answers used

    def provenance(self) -> dict[str, Any]:
        return self._identity

    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        if self._draws is not None and any(isinstance(question, Choices) for question in questions):
            answer_sampled(self.answer, self._draws, questions, answers)
            for place, question in enumerate(questions):
                if isinstance(question, Choices):
                    self._count(self._key_of(question), question, answers[place])
            return
        # 1. Equal questions have the same key. Cached questions are answered before anything is asked.
        keys = [*map(self._key_of, questions)]
        if self._store is not None:
            likelihoods = {key: q for key, q in zip(keys, questions, strict=True) if isinstance(q, Likelihood)}
            for key, record in self._store.read(likelihoods.keys() - self._kept.keys()).items():
                with suppress(KeyError, TypeError, ValueError):  # a record that is no likelihood is measured anew
                    shared = likelihoods[key].load(record)
                    if shared.tokens and not np.isnan(shared.per_token).any():
                        self._kept[key] = shared
        places: dict[str, list[int]] = defaultdict(list)  # key -> places of the questions to ask
        for place, (key, question) in enumerate(zip(keys, questions, strict=True)):
            if key in self._kept:
                answers[place] = answer = self._read(key, question)
                self._count(key, question, answer)
            else:
                places[key].append(place)
        todo = {key: questions[its[0]] for key, its in places.items()}
        self.replayed += len(questions) - len(todo)
        self._progress(len(questions) - len(todo))
        if todo:
            self._before(list(todo.values()))
        # 2. The others are asked in chunks; answers are kept however the call ends.
        left, start = list(todo), 0
        if self._lm.is_local:
            left.sort(key=lambda key: repr(vars(todo[key])))  # prompts that begin alike are in the same chunk
        while start < len(left):
            end = len(left) if self._whole else start + self.chunk
            while end < len(left) and isinstance(last := todo[left[end - 1]], types.Decision):
                if getattr(todo[left[end]], "prompt", None) != last.prompt:
                    break
                end += 1  # decisions about the same state form one request
            part = left[start:end]
            arriving = _Arriving(self._keeping)
            if self._lm.answers_alone:
                arriving.keep = partial(self._keep, part, todo, streamed=True)
            try:
                self._lm.answer([todo[key] for key in part], arriving)
            except BaseException as error:
                if self._lm.is_local and not isinstance(error, Exception):
                    arriving.clear()  # a run that was stopped asks the chunk again as a whole
                raise
            finally:
                arriving.close()
                self._keep(part, todo, arriving)
                # 3. Every answer goes to each question with its key.
                for number, answer in arriving.items():
                    for place in places[part[number]]:
                        answers[place] = answer if place == places[part[number]][0] else unpaid(answer)
                        self._count(part[number], questions[place], answer)
            self._between()
            start += len(part)

    def _key_of(self, question: Question) -> str:
        return digest([self._key, type(question).__name__, *vars(question).values()], 64)

    def _count(self, key: str, question: Question, answer: Any) -> None:
        """Count an answer, here and, where it is estimated from texts, by the model that wrote these."""
        if self._draws is not None and isinstance(question, Choices) and isinstance(self._lm, CachedLM):
            self._lm._count(key, question, answer)
        if not isinstance(answer, Refused):
            self.questions[type(question)] += 1
            self.distinct[type(question)] += key not in self._counted
            self._counted.add(key)

    def _keep(
        self, part: Sequence[str], todo: Mapping[str, Question], answers: Mapping[int, Any], *, streamed: bool = False
    ) -> None:
        """Write the answers to a part's keys, and report progress.

        A server may take a refused question later. A local model's refusal is kept, because it has its place in the
        chunk, without which a resumed run would ask other chunks.
        """
        with self._keeping:
            refused = {part[number]: answer for number, answer in answers.items() if isinstance(answer, Refused)}
            answered = {part[number]: answer for number, answer in answers.items() if part[number] not in refused}
            new = {key: answer for key, answer in answered.items() if key not in self._kept}
            due = not streamed or time.monotonic() - self._reported >= INTERVAL
            records = {key: todo[key].dump(answer) for key, answer in new.items()}
            if not self._lm.answers_alone:
                records |= {key: {"refused": vars(answer)} for key, answer in refused.items()}
            if self._journal is not None:
                self._journal.append([{"key": key, **record} for key, record in records.items()], flush=due)
            likelihoods = {key: records[key] for key in new if isinstance(todo[key], Likelihood)}
            if self._store is not None and likelihoods:
                self._store.write(likelihoods)
            self._kept |= new | ({} if self._lm.answers_alone else refused)
            self.asked.update(type(todo[key]) for key in new)
            usages = [answer.usage for answer in new.values() if answer.usage is not None]
            counts = [count for usage in usages for count in (usage.prompt, usage.completion)]
            self.tokens += sum(math.nan if count is None else count for count in counts)
            self._unreported += len(new)
            if due and self._unreported:
                self._reported = time.monotonic()
                self._progress(self._unreported)
                self._unreported = 0

    def _read(self, key: str, question: Question) -> Any:
        """Return a cached answer; a record of the file is parsed at its first use."""
        if isinstance(record := self._kept[key], dict):
            try:
                refused = record.get("refused")
                self._kept[key] = Refused(**refused) if refused is not None else question.load(record)
            except (KeyError, TypeError, ValueError) as error:
                path = self._journal.path if self._journal is not None else None
                raise ValueError(f"{path}: the answer {key} is damaged ({error!r}): delete its line.") from error
        return unpaid(self._kept[key])


@contextmanager
def progress_bar(total: int, visible: bool | None) -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar on stderr, by default in a terminal or notebook; yields a function to advance it, or None."""
    if not total or not (sys.stderr.isatty() or "ipykernel" in sys.modules if visible is None else visible):
        yield None
        return
    from tqdm import tqdm

    ncols, nrows = shutil.get_terminal_size()  # defaults if the terminal reports no size
    with tqdm(total=total, desc="judging", unit=" answers", file=sys.stderr, ncols=ncols, nrows=nrows) as bar:
        yield bar.update
        bar.total = bar.n  # the bar ends full, whatever total was expected


# Likelihoods shared by all runs.

WAIT = 1.0  # longest time in seconds to wait for another process that writes
LIMIT = 2**30  # bytes of all models' likelihoods; above it, the oldest quarter is deleted


class Store:
    """Likelihoods by model, question and version of this code, in an SQLite file that all runs share.

    A damaged record is measured anew. A file that is damaged or has other tables is renamed to ``kept.damaged``, and a
    new file begun. Nothing is kept in a folder that cannot be written, on a full disk, through a link, or if others use
    the file for longer than ``WAIT``. Records deleted above ``LIMIT`` remain in the memory of runs that read them, and
    in the file of the run that measured them.
    """

    def __init__(self) -> None:
        self._path, self._code = cache_folder() / "likelihoods" / "kept.sqlite", code_hash(Path(__file__).parent)
        self._wait = WAIT

    def read(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return key -> record for the keys in the file; a key stands for a model and a question."""
        records: dict[str, Any] = {}

        def look_up(store: sqlite3.Connection) -> None:
            for key in keys:
                for record, checked in store.execute("SELECT record, sum FROM kept WHERE key = ?", (self._code + key,)):
                    if isinstance(record, str) and digest([key, record], 16) == checked:
                        with suppress(ValueError, RecursionError):  # written by another program or person
                            records[key] = json.loads(record)

        self._open(look_up)
        return records

    def write(self, records: Mapping[str, Any]) -> None:
        texts = {key: json.dumps(to_json(record)) for key, record in records.items()}

        def insert(store: sqlite3.Connection) -> None:
            rows = [(self._code + key, text, digest([key, text], 16)) for key, text in texts.items()]
            store.execute(f"CREATE TABLE IF NOT EXISTS {_TABLE}")
            store.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)
            pages, free, size = (store.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in _PAGES)
            if (pages - free) * size > LIMIT:
                store.execute("DELETE FROM kept WHERE rowid <= (SELECT (3 * min(rowid) + max(rowid)) / 4 FROM kept)")

        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if not self._is_link():
                self._path.touch()
        self._open(insert)

    def _open(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Call ``work`` with the file, if it exists, in a transaction, which an error rolls back."""
        with suppress(OSError, sqlite3.Error):
            opened = self._path.stat()
            if self._is_link():
                return
            try:
                with closing(sqlite3.connect(self._path, timeout=self._wait)) as store, store:
                    tables = store.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
                    if tables not in ([], [(f"CREATE TABLE {_TABLE}",)]):
                        raise sqlite3.DatabaseError("its tables are others")
                    work(store)
                self._wait = WAIT
            except sqlite3.DatabaseError as error:  # exactly this class for a damaged file, or one that is no database
                if "locked" in str(error):
                    self._wait = 0.0  # wait only once for a process that stopped while writing
                if type(error) is sqlite3.DatabaseError and os.path.samestat(opened, self._path.stat()):
                    self._path.replace(aside := self._path.with_suffix(".damaged"))
                    get_logger(__name__).warning("%s is damaged (%s): it is now %s.", self._path, error, aside)

    def _is_link(self) -> bool:
        """Return whether a path that SQLite would write is a link, which may lead to any file."""
        files = (self._path.with_name(self._path.name + end) for end in ("", "-journal", "-wal", "-shm"))
        return any(place.is_symlink() for place in (self._path.parent, *files))


_TABLE = "kept (key TEXT PRIMARY KEY, record TEXT, sum TEXT)"
_PAGES = ("page_count", "freelist_count", "page_size")


def unpaid(answer: Any) -> Any:
    """Return an answer without its usage, because a cached answer costs no tokens."""
    return answer if isinstance(answer, Refused) or answer.usage is None else replace(answer, usage=None)


class _Arriving(dict[int, Any]):
    """Place -> answer of a chunk, set by any thread under the lock; ``keep`` receives each answer as it comes."""

    def __init__(self, lock: threading.RLock) -> None:
        super().__init__()
        self.keep: Callable[[dict[int, Any]], None] = lambda _: None
        self._lock, self._closed = lock, False

    def __setitem__(self, place: int, answer: Any) -> None:
        with self._lock:
            if not self._closed:  # after an interrupt another process may work in the folder
                super().__setitem__(place, answer)
                self.keep({place: answer})

    def close(self) -> None:
        with self._lock:
            self._closed = True


# Choice of the model.


def resolve_lm(lm: Any, predict: Any) -> Any:
    """Return ``lm`` unless it is None, else the predictor's model, else the model that DSPy is configured with."""
    return named_lm(lm or predict.lm or dspy.settings.lm)


def named_lm(lm: Any) -> Any:
    """Return ``dspy.LM(lm)`` for a name such as "openai/gpt-4o-mini"; return anything else unchanged.

    TypeError explains how to make a model that DSPy cannot make from its name alone.
    """
    if not isinstance(lm, str):
        return lm
    provider, slash, _ = lm.partition("/")
    if slash and is_provider(provider) and not Path(lm).exists():
        return dspy.LM(lm)
    own = "evalbias.embedded_judge_lm()" if lm == "embedded" else f"evalbias.LocalLM({lm!r:.80})"
    raise TypeError(
        f"lm={lm!r:.80} is a text whose provider DSPy does not know: give {own}"
        f"{'' if lm == 'embedded' else ' for a folder or a Hugging Face name'}, evalbias.ServerLM(NAME, base_url=URL) "
        f"for a server's model, or dspy.LM({lm!r:.80}, ...) for one that DSPy reaches otherwise."
    )


def as_measuring(lm: Any) -> MeasuringLM:
    """Return a model that answers questions unchanged, and wrap any other to be asked through DSPy."""
    lm = named_lm(lm)
    if isinstance(lm, MeasuringLM):
        return lm
    if not callable(lm) or not hasattr(lm, "model"):
        raise TypeError(f"{lm!r} is not a language model: configure one with dspy.configure(lm=...) or pass lm=.")
    return AnyLM(lm)


def measuring(lm: Any, sampling: Sampling | None = None) -> MeasuringLM:
    """Return a model that judges can ask: ``lm`` itself if it answers questions, else a wrapper that does.

    ``lm`` is a ``MeasuringLM`` or any ``dspy.LM``. With ``sampling``, probabilities are estimated even if the model
    measures them; a model that samples already keeps its own settings.
    """
    model = as_measuring(lm)
    if sampling is None or getattr(model, "sampling", None) is not None:
        return model
    return CachedLM(model, sampling=sampling)


def keeping_likelihoods(lm: Any) -> MeasuringLM:
    """Return a model as ``measuring`` does; all runs share the likelihoods of a model on this machine."""
    model = measuring(lm)
    return CachedLM(model) if model.is_local else model


ASKED = ("temperature", "top_p", "top_k", "n", "seed", "stop", "max_tokens", "max_completion_tokens")
"""Settings of a model that questions set themselves."""


def model_identity(lm: Any) -> dict[str, Any]:
    """Return the settings that decide a model's numbers, for run.json and the cache: never an address or a key."""
    if hasattr(lm, "provenance"):
        return dict(lm.provenance())
    own = model_settings(getattr(lm, "kwargs", None) or {})
    settings = {name: value for name, value in own.items() if value is not None and name not in ASKED}
    return {"model": str(getattr(lm, "model", type(lm).__name__)), **({"settings": settings} if settings else {})}
