"""Refine loops over many items: every step kept as it comes, a stopped run goes on, a broken item does not stop it."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import dspy
import numpy as np

from evalbias.evaluation.external_scores import CachedScorer
from evalbias.lm.types import FloatArray
from evalbias.programs.feedback.source import FeedbackSource
from evalbias.programs.refine_step import Step, count_usage
from evalbias.runs.fingerprint import describe, digest
from evalbias.runs.journal import Journal

STEPS = "steps.jsonl"
IDENTITY = "loop.json"


class LoopProgram(Protocol):
    """``SelfRefine``, ``BestOfK``, or any DSPy module whose predictions have ``steps`` and ``stopped``.

    Attributes:
        feedback: Where the steps' scores come from.
    """

    feedback: FeedbackSource

    def __call__(self, **example: Any) -> Any:
        """Run the loop on one item."""
        ...


@dataclass(frozen=True)
class Loop:
    """What one item went through.

    Attributes:
        id: The item's.
        steps: From the first output on; empty where the item failed.
        stopped: Why the loop ended.
        error: What went wrong; empty if nothing did.
        calls: Requests to models, also of an item that failed.
    """

    id: str
    steps: tuple[Step, ...]
    stopped: str = ""
    error: str = ""
    calls: int = 0

    def at(self, iteration: int) -> Step | None:
        """The step whose output the loop would give after so many refinements; None where the item failed."""
        accepted = [step for step in self.steps if step.accepted and step.iteration <= iteration]
        return accepted[-1] if accepted else None


@dataclass(frozen=True)
class LoopRun:
    """Loops over n items.

    Attributes:
        loops: One an item, in the items' order.
        feedback: The source's name.
        low: Its lowest score.
        high: Its highest.
    """

    loops: tuple[Loop, ...]
    feedback: str
    low: float
    high: float

    @property
    def iterations(self) -> int:
        """The most refinements that an item went through."""
        return max((loop.steps[-1].iteration for loop in self.loops if loop.steps), default=0)

    @property
    def failed(self) -> dict[str, str]:
        """Item -> what went wrong."""
        return {loop.id: loop.error for loop in self.loops if loop.error}

    def own(self) -> FloatArray:
        """(t + 1, n) the loop's own score after each number of refinements; NaN where undefined or failed."""
        return self._each(lambda loop, step: step.score)

    def tokens(self) -> FloatArray:
        """(t + 1,) mean tokens spent on an item up to each number of refinements."""
        return self._spent(lambda step: step.tokens)

    def calls(self) -> FloatArray:
        """(t + 1,) mean requests to models for an item up to each number of refinements."""
        return self._spent(lambda step: step.calls)

    def worth(self, examples: Sequence[Mapping[str, Any]], worth: CachedScorer | FeedbackSource) -> FloatArray:
        """(t + 1, n) what the outputs after each number of refinements are worth; NaN where undefined or failed.

        Args:
            examples: The items of the run, in its order.
            worth: Asked once for every different output; what it raises is in its ``failed``.
        """
        score = worth if isinstance(worth, CachedScorer) else CachedScorer(worth)
        by_id = {str(e["id"]): e for e in examples}
        return self._each(lambda loop, step: score(by_id[loop.id], step.output))

    def _spent(self, cost: Callable[[Step], int]) -> FloatArray:
        spent = [
            [sum(cost(s) for s in loop.steps if s.iteration <= k) for loop in self.loops if loop.steps]
            for k in range(self.iterations + 1)
        ]
        return np.array([np.mean(row) if row else math.nan for row in spent])

    def _each(self, value: Callable[[Loop, Step], float]) -> FloatArray:
        rows = []
        for k in range(self.iterations + 1):
            steps = [(loop, loop.at(k)) for loop in self.loops]
            rows.append([math.nan if step is None else value(loop, step) for loop, step in steps])
        return np.array(rows, dtype=np.float64).reshape(self.iterations + 1, len(self.loops))


def run_loops(
    program: LoopProgram,
    examples: Sequence[dspy.Example],
    *,
    lm: Any = None,
    log_dir: Path | None = None,
    num_threads: int = 1,
    progress: Callable[[int], None] | None = None,
) -> LoopRun:
    """Run a loop on every item.

    Args:
        program: A refine loop, best of k, or another that tells its steps.
        examples: With ``id`` and the program's inputs; what else they hold (a reference) is for the feedback.
        lm: In place of the modules' own or DSPy's model.
        log_dir: Where ``steps.jsonl`` grows; items that stand there are not run again.
        num_threads: Items at a time.
        progress: Called with 1 after every item.

    An item whose generator, feedback or refiner raises is reported in ``failed`` and the rest goes on; it is not kept
    in the log, so that a later run tries it again.

    Raises:
        ValueError: Examples without an id, or with the same one, or a log of another program.
    """
    ids = [str(e.get("id")) for e in examples]
    if None in (e.get("id") for e in examples) or len(set(ids)) < len(ids):
        raise ValueError("Every item needs an id of its own: a stopped run goes on by them.")
    if log_dir is not None:
        _own(log_dir, program, lm)
    file = None if log_dir is None else log_dir / STEPS
    done = {} if file is None else _read(file)
    lock = threading.Lock()

    def run(example: dspy.Example) -> Loop:
        item = digest(dict(example.items()))
        loop = done.get(item) or _run(program, example, lm)
        with lock:
            if file is not None and item not in done and not loop.error:
                _append(file, loop, item)
            if progress is not None:
                progress(1)
        return loop

    pool = ThreadPoolExecutor(num_threads)
    try:
        futures = [pool.submit(copy_context().run, run, example) for example in examples]
        loops = tuple(future.result() for future in futures)
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C or a full disk no further item is begun
    source = program.feedback
    return LoopRun(loops, source.name, source.low, source.high)


def _run(program: LoopProgram, example: dspy.Example, lm: Any) -> Loop:
    name = str(example.id)
    with count_usage() as spent:
        try:
            with dspy.context(**({} if lm is None else {"lm": lm})):
                found = program(**dict(example.items()))
        except Exception as error:  # any module of the user's may raise anything; the item is reported by its id
            return Loop(name, (), error=f"{type(error).__name__}: {error}", calls=spent.calls)
    return Loop(name, tuple(found.steps), found.stopped, calls=spent.calls)


def _own(folder: Path, program: LoopProgram, lm: Any) -> None:
    """Refuse the log of a program that would have written something else."""
    file = folder / IDENTITY
    with dspy.context(**({} if lm is None else {"lm": lm})):
        told = {"program": digest(describe(program))}
    if file.exists() and json.loads(file.read_text(encoding="utf-8")) != told:
        raise ValueError(f"{folder} is the log of another loop ({file.name} differs): choose another log_dir.")
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".part")
        draft.write_text(json.dumps(told), encoding="utf-8")
        draft.replace(file)


def _append(file: Path, loop: Loop, item: str) -> None:
    """One line an item, so that a kill leaves whole items."""
    file.parent.mkdir(parents=True, exist_ok=True)
    steps = [{**asdict(s), "score": None if s.score != s.score else s.score} for s in loop.steps]
    with file.open("a", encoding="utf-8") as out:
        record = {"id": loop.id, "item": item, "stopped": loop.stopped, "calls": loop.calls, "steps": steps}
        out.write(json.dumps(record) + "\n")
        out.flush()


def _read(file: Path) -> dict[str, Loop]:
    """The items of a log, by the digest of what they hold: another item of the same id is run."""
    found = {}
    for record in Journal(file).read():
        steps = (Step(**{**s, "score": math.nan if s["score"] is None else s["score"]}) for s in record["steps"])
        found[record["item"]] = Loop(record["id"], tuple(steps), record["stopped"], calls=record["calls"])
    return found
