"""Run refine loops over many items: every step is logged, a stopped run continues, a failed item does not stop it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import dspy
import numpy as np

from evalbias.evaluation.external_scores import CachedScorer
from evalbias.measures.arrays import FloatArray
from evalbias.programs.feedback.source import FeedbackSource
from evalbias.programs.refine_step import Step, count_usage
from evalbias.runs.fingerprint import describe, digest
from evalbias.runs.folder import check_settings
from evalbias.runs.journal import Journal
from evalbias.runs.lock import lock_folder
from evalbias.runs.values import number

STEPS = "steps.jsonl"
IDENTITY = "loop.json"


class LoopProgram(Protocol):
    """``SelfRefine``, ``BestOfK``, or any DSPy module whose predictions have ``steps`` and ``stopped``.

    Attributes:
        feedback: Source of the steps' scores.
    """

    feedback: FeedbackSource

    def __call__(self, **example: Any) -> Any:
        """Run the loop on one item."""
        ...


@dataclass(frozen=True)
class Loop:
    """The loop of one item.

    Attributes:
        id: Identifier of the item.
        steps: Every output from the first on; empty where the item failed.
        stopped: Reason for which the loop ended.
        error: Error that stopped the item; empty if none did.
        calls: Requests to models, also of a failed item.
    """

    id: str
    steps: tuple[Step, ...]
    stopped: str = ""
    error: str = ""
    calls: int = 0

    def at(self, iteration: int) -> Step | None:
        """Return the step whose output stands after so many refinements; None where the item failed."""
        accepted = [step for step in self.steps if step.accepted and step.iteration <= iteration]
        return accepted[-1] if accepted else None


@dataclass(frozen=True)
class LoopRun:
    """Loops over n items, with at most t refinements.

    Attributes:
        loops: One loop an item, in the items' order.
        feedback: Name of the feedback source.
        low: Its lowest score.
        high: Its highest score.
    """

    loops: tuple[Loop, ...]
    feedback: str
    low: float
    high: float

    @property
    def iterations(self) -> int:
        """Largest number of refinements of an item."""
        return max((loop.steps[-1].iteration for loop in self.loops if loop.steps), default=0)

    @property
    def failed(self) -> dict[str, str]:
        """Item -> error that stopped it."""
        return {loop.id: loop.error for loop in self.loops if loop.error}

    @property
    def ids(self) -> tuple[str, ...]:
        """Identifiers of the items."""
        return tuple(loop.id for loop in self.loops)

    @property
    def distinct(self) -> dict[str, int]:
        """Item -> number of different outputs among its steps; failed items are left out."""
        return {loop.id: len({step.output for step in loop.steps}) for loop in self.loops if loop.steps}

    def own(self) -> FloatArray:
        """Return (t + 1, n) the loop's own score after each number of refinements; NaN where undefined or failed."""
        return self._each(lambda loop, step: step.score)

    def quality(self, examples: Sequence[dspy.Example], scorer: CachedScorer | FeedbackSource) -> FloatArray:
        """Return (t + 1, n) external scores of the outputs after each number of refinements.

        Args:
            examples: Items of the run, in its order.
            scorer: Source of the scores; each distinct output is scored once, and its errors are in ``failed``.

        Returns:
            Scores in the source's points; NaN where undefined or failed.
        """
        score = scorer if isinstance(scorer, CachedScorer) else CachedScorer(scorer)
        by_id = {str(e["id"]): e for e in examples}
        return self._each(lambda loop, step: score(by_id[loop.id], step.output))

    def tokens(self) -> FloatArray:
        """Return (t + 1,) mean tokens spent on an item up to each number of refinements."""
        return self._spent(lambda step: step.tokens)

    def calls(self) -> FloatArray:
        """Return (t + 1,) mean requests to models for an item up to each number of refinements."""
        return self._spent(lambda step: step.calls)

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
        program: Refine loop, best of k, or another module that returns its steps.
        examples: Items with ``id`` and the program's inputs; other fields (a reference) go to the feedback.
        lm: Model for all modules. Defaults to their own, else DSPy's.
        log_dir: Folder whose ``steps.jsonl`` grows; items in it are not run again. Locked while the loops run.
        num_threads: Items at a time.
        progress: Called with 1 after every item.

    An item whose generator, feedback or refiner raises is reported in ``failed``, and the others continue. It is not
    logged, so that a later run tries it again.

    The loop's own scores and those of another source, ``own`` and ``quality``, tell its self-bias:
    ``measure_rounds(run.own(), run.quality(examples, source), ids=run.ids, seed=0)``.

    Raises:
        ValueError: Examples without an id or with equal ids, or a log of another program.
    """
    _check_ids(examples)
    log = None if log_dir is None else Journal(log_dir / STEPS)
    if log_dir is not None:
        log_dir.mkdir(parents=True, exist_ok=True)
    with nullcontext() if log_dir is None else lock_folder(log_dir):
        if log_dir is not None:
            _check_program(log_dir, program, lm)
        loops = _run_all(program, examples, lm, log, num_threads, progress or (lambda _: None))
    source = program.feedback
    return LoopRun(loops, source.name, source.low, source.high)


def _run_all(
    program: LoopProgram,
    examples: Sequence[dspy.Example],
    lm: Any,
    log: Journal | None,
    num_threads: int,
    progress: Callable[[int], None],
) -> tuple[Loop, ...]:
    logged = {} if log is None else _logged(log)
    lock = threading.Lock()

    def run(example: dspy.Example) -> Loop:
        item = digest(dict(example.items()), 64)
        known = logged.get(item) or logged.get(item[:16])  # older logs have the first 16 digits
        loop = known or _run(program, example, lm)
        with lock:
            if log is not None and not known and not loop.error:
                record = {"id": loop.id, "item": item, "stopped": loop.stopped, "calls": loop.calls}
                log.append([{**record, "steps": loop.steps}])
            progress(1)
        return loop

    pool = ThreadPoolExecutor(num_threads)
    try:
        futures = [pool.submit(copy_context().run, run, example) for example in examples]
        return tuple(future.result() for future in futures)
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C or a full disk no further item is begun


def _run(program: LoopProgram, example: dspy.Example, lm: Any) -> Loop:
    name = str(example.id)
    with count_usage() as spent:
        try:
            with dspy.context(**({} if lm is None else {"lm": lm})):
                prediction = program(**dict(example.items()))
        except Exception as error:  # a user's module may raise anything; the item is reported by its id
            return Loop(name, (), error=f"{type(error).__name__}: {error}", calls=spent.calls)
    return Loop(name, tuple(prediction.steps), prediction.stopped, calls=spent.calls)


def _check_ids(examples: Sequence[dspy.Example]) -> None:
    seen: set[str] = set()
    for place, example in enumerate(examples):
        name = example.get("id")
        if name is None or str(name) in seen:
            fault = f"Item {place} has no id" if name is None else f"Two items have the id {str(name)!r:.80}"
            raise ValueError(f"{fault}: give each item its own, because a stopped run is resumed by id.")
        seen.add(str(name))


def _check_program(folder: Path, program: LoopProgram, lm: Any) -> None:
    """Refuse the log of a program that would have written something else."""
    with dspy.context(**({} if lm is None else {"lm": lm})):
        check_settings(folder / IDENTITY, {"program": digest(describe(program))})


def _logged(log: Journal) -> dict[str, Loop]:
    """Return the logged loops by the digest of their whole item: a changed item of the same id is run again."""
    loops = {}
    for record in log.read("id", "item", "stopped", "calls", "steps"):
        steps = tuple(Step(**{**step, "score": number(step["score"])}) for step in record["steps"])
        loops[record["item"]] = Loop(record["id"], steps, record["stopped"], calls=record["calls"])
    return loops
