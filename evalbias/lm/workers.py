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
from evalbias.lm.types import CHUNK, Answers, MeasuringLM, Question, Unanswered

PART = 64  # largest number of questions in a part
RETRIES = 2  # how often a part goes to another worker after one died of it: the part itself may be what kills them


class Worker:
    """A copy of the model, made by ``opening``.

    Errors that a user can correct are returned, because the libraries that start workers print raised ones with the
    stack traces of two processes.
    """

    def __init__(self, opening: Callable[[], Any]) -> None:
        self._identity: dict[str, Any] = {}
        try:
            lm = opening()
            self._lm, self._identity = as_measuring(lm), model_identity(lm)
        except (ValueError, OSError, ImportError) as error:
            self._problem = str(error)

    def answer(self, questions: Sequence[Question]) -> tuple[dict[str, Any], dict[int, Any], str | None]:
        """Return what decides the model's numbers, a part's answers by place, and the error if some are missing.

        The first is empty if the model could not be opened.
        """
        answers: dict[int, Any] = {}
        if not self._identity:
            return {}, answers, self._problem
        try:
            self._lm.answer(questions, answers)
        except (ValueError, OSError, FloatingPointError) as error:
            return self._identity, answers, str(error)
        return self._identity, answers, None


class WorkersLM(MeasuringLM):
    """A model of which Ray actors hold copies, each made by ``opening``; it answers whole calls, but is no ``dspy.LM``.

    Every actor gets a part at once, and begins as soon as it has opened the model. An actor that dies is replaced, and
    its part goes to another. ``actors`` is their number; None takes as many as the cluster has room for.

    Raises:
        ValueError: The model cannot be opened, the actors' models differ, or the cluster is too small.
    """

    def __init__(self, opening: Callable[[], Any], actors: int | None) -> None:
        self._ray = started_ray()
        resources = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        size, needs = allotted([(int(own.get("GPU", 0)), int(own.get("CPU", 0))) for own in resources], actors)
        self._actor, self._opening = self._ray.remote(Worker).options(**needs), opening
        self._identity: dict[str, Any] = {}
        self._idle = [self._actor.remote(opening) for _ in range(size)]
        starting = {actor.answer.remote([]): actor for actor in self._idle}
        for _ in range(RETRIES + 1):
            (done,), _ = self._ray.wait(list(starting), num_returns=1)
            answers, error = self._result(done)
            if answers is not None:
                break
            self._idle.remove(starting.pop(done))
            self._idle.append(self._actor.remote(opening))
            starting[self._idle[-1].answer.remote([])] = self._idle[-1]
        if error is not None:
            raise ValueError(f"The model cannot be opened: {error}")
        self.model = str(self._identity["model"])
        self.chunk = max(CHUNK, 8 * PART * size)  # workers idle at the end of a call

    def provenance(self) -> dict[str, Any]:
        return dict(self._identity)

    @usage_reported
    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        """Answer questions in parts, in any order; ``Unanswered`` names the items of the first part that failed."""
        waiting = deque(range(0, len(questions), PART))  # first questions of parts
        busy: dict[Any, tuple[int, Any]] = {}  # reference to answers -> the part's first question, actor
        deaths, failed = Counter[int](), dict[int, str]()  # by a part's first question: deaths of workers, error
        try:
            while waiting or busy:
                while waiting and self._idle:
                    start, actor = waiting.popleft(), self._idle.pop()
                    busy[actor.answer.remote(questions[start : start + PART])] = start, actor
                (done,), _ = self._ray.wait(list(busy), num_returns=1)
                start, actor = busy[done]
                answered, error = self._result(done)
                del busy[done]
                self._idle.append(actor if answered is not None else self._actor.remote(self._opening))
                answers.update({start + place: answer for place, answer in (answered or {}).items()})
                if answered is None:
                    deaths[start] += 1
                if answered is None and deaths[start] <= RETRIES:
                    waiting.appendleft(start)
                elif error is not None:
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
        """Return a part's answers, None if the actor died, and the error if some are missing.

        ValueError: the actor could not open the model, or has another one than the first.
        """
        try:
            identity, answers, error = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as failure:  # in the model's code, which the actor survives
            return {}, f"{type(failure.cause).__name__}: {failure.cause}"
        except self._ray.exceptions.RayError as death:
            return None, f"{RETRIES + 1} workers died, perhaps of too little memory: {death}"
        if not identity:
            raise ValueError(error)
        self._identity = self._identity or identity
        if identity != self._identity:
            raise ValueError(
                f"Workers have different models, {self._identity} and {identity}: give every machine the same files "
                "and packages."
            )
        return answers, error


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
