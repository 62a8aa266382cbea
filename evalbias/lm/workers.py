"""One model in several processes: Ray actors, each with a copy, which answer the parts of a call side by side.

Workers keep their prefix caches from part to part, so the last digits of an answer depend on which parts its worker had
before, unless ``forget`` was called.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalbias.lm.contract import as_measuring
from evalbias.lm.dspy_seam import usage_reported
from evalbias.lm.types import Answers, MeasuringLM, Question, Unanswered

PART = 64
"""Largest number of questions in a part."""


@dataclass(frozen=True)
class Outcome:
    """What became of a part."""

    answers: Mapping[int, Any] = field(default_factory=dict)  # place of a question in the part -> its answer
    error: str | None = None  # why the remaining questions have no answer


@dataclass(frozen=True)
class About:
    """Model of a worker."""

    name: str = ""
    identity: Mapping[str, Any] = field(default_factory=dict)  # everything that decides its numbers
    error: str | None = None  # why the worker could not open it


class Worker:
    """A copy of the model, made by ``opening``; ``identity`` returns everything that decides its numbers.

    Errors that a user can correct are returned, because the libraries that start workers print raised ones with the
    stack traces of two processes.
    """

    def __init__(self, opening: Callable[[], Any], identity: Callable[[Any], dict[str, Any]]) -> None:
        try:
            lm = opening()
            self._lm, self._about = as_measuring(lm), About(str(lm.model), identity(lm))
        except (ValueError, OSError, ImportError) as error:
            self._about = About(error=str(error))

    def about(self) -> About:
        """Return which model this is."""
        return self._about

    def answer(self, questions: Sequence[Question], afresh: bool) -> Outcome:
        """Ask the opened model the questions of a part; ``afresh`` clears its prefix cache first."""
        if afresh:
            self._lm.forget()
        answers: dict[int, Any] = {}
        try:
            self._lm.answer(questions, answers)
        except (ValueError, OSError, FloatingPointError) as error:
            return Outcome(answers, error=str(error))
        return Outcome(answers)


class WorkersLM(MeasuringLM):
    """A model whose calls the workers of a ``RayPool`` carry out; it answers whole calls, but is no ``dspy.LM``."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        about = pool.about()
        self.model, self._identity = about.name, about.identity
        self.in_flight = PART * pool.size
        self._afresh = False

    def provenance(self) -> dict[str, Any]:
        """Return the settings that decide the numbers of the workers' model."""
        return dict(self._identity)

    def forget(self) -> None:
        """Let the workers clear their prefix caches before each part of the next call."""
        self._afresh = True

    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        """Answer questions in parts."""
        parts = {start: questions[start : start + PART] for start in range(0, len(questions), PART)}
        afresh, self._afresh = self._afresh, False
        failed: dict[int, str] = {}  # first question of a part -> error
        try:
            with usage_reported(self.model, answers):
                for start, outcome in self._pool.answers(parts, afresh):
                    for place, answer in outcome.answers.items():
                        answers[start + place] = answer
                    if outcome.error is not None:
                        failed[start] = outcome.error
        except ValueError as error:
            raise Unanswered(str(error)) from error
        if failed:
            start = min(failed)
            last = min(start + PART, len(questions)) - 1
            more = f" ({len(failed) - 1} more parts of the call failed.)" if len(failed) > 1 else ""
            raise Unanswered(f"{self.model}: items {start} to {last} of a call: {failed[start]}{more}")


RETRIES = 2
"""How often a part goes to another worker after one died of it: the part itself may be what kills them."""


def started_ray() -> Any:
    """Return the module ``ray``, connected to the user's cluster or else to a new one on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ValueError("`workers` ray needs Ray: pip install 'evalbias[ray]'.") from error
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    return ray


def allotted(nodes: Sequence[tuple[int, int]], actors: int | None) -> tuple[int, dict[str, int]]:
    """Return the number of actors and what each of them needs, such that all have room, each on one machine.

    ``nodes`` are the GPUs and CPU cores of each machine. ``actors=None`` takes one a GPU, or one for two cores without.
    """
    gpus, cpus = (sum(column) for column in zip(*nodes, strict=True))
    size, most = actors or gpus or max(1, cpus // 2), gpus or cpus
    if size > most:
        has = f"{gpus} GPUs" if gpus else f"{cpus} CPU cores and no GPU"
        raise ValueError(f"`workers` ray:{size}: the cluster has {has}; ask for at most {most} workers.")
    if gpus:
        return size, {"num_gpus": 1}
    fitting = (cores for cores in range(cpus // size, 0, -1) if sum(own // cores for _, own in nodes) >= size)
    return size, {"num_cpus": next(fitting)}


class RayPool:
    """Actors with copies of the same model, of which ``opening`` and ``identity``, those of ``Worker``, are pickled.

    Work begins with whichever has opened the model first. An actor that dies is replaced, and its part goes to another;
    one that dies while it opens the model is replaced too, ``RETRIES`` times in all.
    """

    def __init__(
        self, opening: Callable[[], Any], identity: Callable[[Any], dict[str, Any]], actors: int | None
    ) -> None:
        self._ray = started_ray()
        resources = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        self.size, needs = allotted([(int(own.get("GPU", 0)), int(own.get("CPU", 0))) for own in resources], actors)
        self._actor = self._ray.remote(Worker).options(**needs)
        self._arguments = opening, identity
        self._starting: dict[Any, Any] = {}  # reference to ``about`` -> actor
        self._idle: list[Any] = []
        self._about: About | None = None
        self._restarts = RETRIES
        for _ in range(self.size):
            self._add()

    def about(self) -> About:
        """Return the model of the first worker that has opened it."""
        while self._about is None:
            self._ready(self._first(self._starting))
        return self._about

    def answers(self, parts: Mapping[int, Sequence[Question]], afresh: bool) -> Iterator[tuple[int, Outcome]]:
        """Yield the number of each part with its outcome, in any order."""
        waiting, deaths = deque(parts), Counter[int]()
        busy: dict[Any, tuple[int, Any]] = {}  # reference to an outcome -> number of the part, actor
        try:
            while waiting or busy:
                while waiting and self._idle:
                    number, actor = waiting.popleft(), self._idle.pop()
                    busy[actor.answer.remote(parts[number], afresh)] = number, actor
                done = self._first({**busy, **self._starting})
                if done in self._starting:
                    self._ready(done)
                    continue
                number, actor = busy.pop(done)
                try:
                    outcome: Outcome = self._ray.get(done)
                except self._ray.exceptions.RayTaskError as error:  # in the model's code, which the actor survives
                    outcome = Outcome(error=f"{type(error.cause).__name__}: {error.cause}")
                    self._idle.append(actor)
                except self._ray.exceptions.RayError as error:
                    self._add()
                    deaths[number] += 1
                    if deaths[number] <= RETRIES:
                        waiting.appendleft(number)
                        continue
                    outcome = Outcome(error=f"{RETRIES + 1} workers died, perhaps of too little memory: {error}")
                else:
                    self._idle.append(actor)
                yield number, outcome
        finally:
            self._idle += [actor for _, actor in busy.values()]  # of a call that ended early

    def _add(self) -> None:
        actor = self._actor.remote(*self._arguments)
        self._starting[actor.about.remote()] = actor

    def _first(self, references: dict[Any, Any]) -> Any:
        (done,), _ = self._ray.wait(list(references), num_returns=1)
        return done

    def _ready(self, reference: Any) -> None:
        """Give work to an actor that has opened the model; another model than the first one's is refused."""
        actor = self._starting.pop(reference)
        try:
            about: About = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            if not self._restarts:
                raise ValueError(
                    f"{RETRIES + 1} workers died while they opened the model, perhaps of too little memory: {error}"
                ) from error
            self._restarts -= 1
            self._add()
            return
        if about.error is not None:
            raise ValueError(about.error)
        if self._about is None:
            self._about = about
        if about != self._about:
            raise ValueError(
                f"Workers have different models, {self._about.identity} and {about.identity}: give every machine the "
                "same files and packages."
            )
        self._idle.append(actor)
