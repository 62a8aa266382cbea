"""Workers of a distributed model on a Ray cluster: one actor each, which opens the model itself."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from evalbias.lm.worker import About, Outcome, Part, Worker

RETRIES = 2
"""How often a part goes to another worker after one died of it: the part itself may be what kills them."""


def started_ray() -> Any:
    """Return the module ``ray``, connected to the user's cluster or else to a new one on this machine.

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
    return ray


def share(gpus: int, cpus: int, actors: int | None) -> tuple[int, dict[str, int]]:
    """Return the number of actors and what each of them needs.

    Args:
        gpus: GPUs of the cluster.
        cpus: CPU cores of the cluster.
        actors: Number of actors; None takes one a GPU, or one for two cores where there is none.

    Raises:
        ValueError: The cluster has too few GPUs or cores for so many.
    """
    size, most = actors or gpus or max(1, cpus // 2), gpus or cpus
    if size > most:
        has = f"{gpus} GPUs" if gpus else f"{cpus} CPU cores and no GPU"
        raise ValueError(f"--workers ray:{size}: the cluster has {has}; ask for at most {most} workers.")
    return size, {"num_gpus": 1} if gpus else {"num_cpus": cpus // size}


class RayPool:
    """Actors with copies of the same model; see ``WorkerPool``.

    An actor gets its first part when it has opened the model, so work begins with whichever is ready first. One that
    dies is replaced, and its part goes to another. An actor that dies while it opens the model is replaced too, but
    only ``RETRIES`` times in all.

    Args:
        opening: Function that opens the model. It is pickled, so it must not hold the model itself.
        identity: Function from the model to everything that decides its numbers; it is pickled.
        actors: Number of actors; see ``share``.

    Raises:
        ValueError: Ray is not installed, or the cluster is too small.
    """

    def __init__(
        self, opening: Callable[[], Any], identity: Callable[[Any], dict[str, Any]], actors: int | None
    ) -> None:
        self._ray = started_ray()
        resources = self._ray.cluster_resources()
        self.size, needs = share(int(resources.get("GPU", 0)), int(resources.get("CPU", 1)), actors)
        self._actor = self._ray.remote(Worker).options(**needs)
        self._arguments = opening, identity
        self._starting: dict[Any, Any] = {}  # reference to ``about`` -> actor
        self._idle: list[Any] = []
        self._about: About | None = None
        self._restarts = RETRIES
        for _ in range(self.size):
            self._add()

    def about(self) -> About:
        """Return the model of the first worker that has opened it; see ``WorkerPool``."""
        while self._about is None:
            self._ready(self._first(self._starting))
        return self._about

    def answers(self, parts: Sequence[Part]) -> Iterator[tuple[int, Outcome]]:
        """Yield the number of each part with its outcome; see ``WorkerPool``."""
        waiting, deaths = deque(range(len(parts))), Counter[int]()
        busy: dict[Any, tuple[int, Any]] = {}  # reference to an outcome -> number of the part, actor
        try:
            while waiting or busy:
                while waiting and self._idle:
                    number, actor = waiting.popleft(), self._idle.pop()
                    busy[actor.answer.remote(parts[number])] = number, actor
                done = self._first({**busy, **self._starting})
                if done in self._starting:
                    self._ready(done)
                    continue
                number, actor = busy.pop(done)
                try:
                    outcome = self._outcome(done)
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
        """Start an actor."""
        actor = self._actor.remote(*self._arguments)
        self._starting[actor.about.remote()] = actor

    def _outcome(self, reference: Any) -> Outcome:
        """Return the outcome of a part; an error in the model's code, which the actor survives, is one."""
        try:
            outcome: Outcome = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            return Outcome(error=f"{type(error.cause).__name__}: {error.cause}")
        return outcome

    def _first(self, references: dict[Any, Any]) -> Any:
        """Return the reference whose result is there first."""
        (done,), _ = self._ray.wait(list(references), num_returns=1)
        return done

    def _ready(self, reference: Any) -> None:
        """Give work to an actor that has opened the model.

        Raises:
            ValueError: It could not open the model or has another one than the first, or too many died meanwhile.
        """
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
