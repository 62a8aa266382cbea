"""One model in several processes: Ray actors, each with a copy, which answer the parts of a call side by side.

Workers keep their prefix caches from part to part, so the last digits of an answer depend on which parts its worker had
before, unless ``forget`` was called.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from evalbias.lm.cache import as_measuring, model_identity
from evalbias.lm.dspy_seam import usage_reported
from evalbias.lm.types import Answers, MeasuringLM, Question, Unanswered

PART = 64  # largest number of questions in a part
RETRIES = 2  # how often a part goes to another worker after one died of it: the part itself may be what kills them


class Worker:
    """A copy of the model, made by ``opening``.

    Errors that a user can correct are returned, because the libraries that start workers print raised ones with the
    stack traces of two processes.
    """

    def __init__(self, opening: Callable[[], Any]) -> None:
        self._opened: tuple[dict[str, Any], str | None]
        try:
            lm = opening()
            self._lm, self._opened = as_measuring(lm), (model_identity(lm), None)
        except (ValueError, OSError, ImportError) as error:
            self._opened = {}, str(error)

    def opened(self) -> tuple[dict[str, Any], str | None]:
        """Return everything that decides the model's numbers, and the error if it could not be opened."""
        return self._opened

    def answer(self, questions: Sequence[Question], afresh: bool) -> tuple[dict[int, Any], str | None]:
        """Return a part's answers by place, and the error if some are missing; ``afresh`` forgets prefixes first."""
        if afresh:
            self._lm.forget()
        answers: dict[int, Any] = {}
        try:
            self._lm.answer(questions, answers)
        except (ValueError, OSError, FloatingPointError) as error:
            return answers, str(error)
        return answers, None


class WorkersLM(MeasuringLM):
    """A model of which Ray actors hold copies, each made by ``opening``; it answers whole calls, but is no ``dspy.LM``.

    Work begins with whichever actor has opened the model first. An actor that dies is replaced, and its part goes to
    another; one that dies while it opens the model is replaced too, ``RETRIES`` times in all. ``actors`` is their
    number; None takes as many as the cluster has room for.

    Raises:
        ValueError: The model cannot be opened, the actors' models differ, or the cluster is too small.
    """

    def __init__(self, opening: Callable[[], Any], actors: int | None) -> None:
        self._ray = started_ray()
        resources = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        size, needs = allotted([(int(own.get("GPU", 0)), int(own.get("CPU", 0))) for own in resources], actors)
        self._actor, self._opening = self._ray.remote(Worker).options(**needs), opening
        self._starting: dict[Any, Any] = {}  # reference to ``opened`` -> actor
        self._idle: list[Any] = []
        self._identity: dict[str, Any] = {}
        self._restarts = RETRIES
        self._afresh = False
        for _ in range(size):
            self._add()
        while not self._identity:
            self._ready(self._first(self._starting))
        self.model, self.in_flight = str(self._identity["model"]), PART * size

    def provenance(self) -> dict[str, Any]:
        """Return the settings that decide the numbers of the workers' model."""
        return dict(self._identity)

    def forget(self) -> None:
        """Let the workers clear their prefix caches before each part of the next call."""
        self._afresh = True

    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        """Answer questions in parts, in any order; ``Unanswered`` names the items of the first part that failed."""
        with usage_reported(self.model, answers):
            self._answer(questions, answers)

    def _answer(self, questions: Sequence[Question], answers: Answers) -> None:
        waiting = deque(range(0, len(questions), PART))  # first questions of parts
        afresh, self._afresh = self._afresh, False
        busy: dict[Any, tuple[int, Any]] = {}  # reference to answers -> the part's first question, actor
        deaths, failed = Counter[int](), dict[int, str]()  # by a part's first question: deaths of workers, error
        try:
            while waiting or busy:
                while waiting and self._idle:
                    start, actor = waiting.popleft(), self._idle.pop()
                    busy[actor.answer.remote(questions[start : start + PART], afresh)] = start, actor
                done = self._first({**busy, **self._starting})
                if done in self._starting:
                    self._ready(done)
                    continue
                start, actor = busy[done]
                found, error = self._result(done)
                del busy[done]
                if found is not None:
                    self._idle.append(actor)
                    answers.update({start + place: answer for place, answer in found.items()})
                else:
                    self._add()
                    deaths[start] += 1
                    if deaths[start] <= RETRIES:
                        waiting.appendleft(start)
                        continue
                if error is not None:
                    failed[start] = error
        except ValueError as problem:  # of a replacement, which opens no model or another one
            raise Unanswered(str(problem)) from problem
        finally:
            self._idle += [actor for _, actor in busy.values()]  # of a call that ends early
        if failed:
            start = min(failed)
            last = min(start + PART, len(questions)) - 1
            more = f" ({len(failed) - 1} more parts of the call failed.)" if len(failed) > 1 else ""
            raise Unanswered(f"{self.model}: items {start} to {last} of a call: {failed[start]}{more}")

    def _result(self, reference: Any) -> tuple[dict[int, Any] | None, str | None]:
        """Return a part's answers, None if the actor died, and the error if some are missing."""
        try:
            found, error = self._ray.get(reference)
            return found, error
        except self._ray.exceptions.RayTaskError as failure:  # in the model's code, which the actor survives
            return {}, f"{type(failure.cause).__name__}: {failure.cause}"
        except self._ray.exceptions.RayError as death:
            return None, f"{RETRIES + 1} workers died, perhaps of too little memory: {death}"

    def _add(self) -> None:
        actor = self._actor.remote(self._opening)
        self._starting[actor.opened.remote()] = actor

    def _first(self, references: dict[Any, Any]) -> Any:
        (done,), _ = self._ray.wait(list(references), num_returns=1)
        return done

    def _ready(self, reference: Any) -> None:
        """Give work to an actor that has opened the model; another model than the first one's is refused."""
        actor = self._starting.pop(reference)
        try:
            identity, error = self._ray.get(reference)
        except self._ray.exceptions.RayError as death:
            if not self._restarts:
                raise ValueError(
                    f"{RETRIES + 1} workers died while they opened the model, perhaps of too little memory: {death}"
                ) from death
            self._restarts -= 1
            self._add()
            return
        if error is not None:
            raise ValueError(error)
        self._identity = self._identity or identity
        if identity != self._identity:
            raise ValueError(
                f"Workers have different models, {self._identity} and {identity}: give every machine the same files "
                "and packages."
            )
        self._idle.append(actor)


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
