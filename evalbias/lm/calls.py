"""One call of a server's model: items in flight, their answers, refusals and failures."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from evalbias.lm.dialect import Job
from evalbias.lm.errors import Declined, StatusError, describe_error, is_fatal, is_transient
from evalbias.lm.heap import HEAP
from evalbias.lm.routing import route
from evalbias.lm.transport import Connection, Pool, pause
from evalbias.lm.types import STATUSES, Interrupted, PromptRefused, RequestRefused, Unanswered
from evalbias.values import get_logger

if TYPE_CHECKING:
    from evalbias.lm.dialect import Dialect


# One call of a server: the jobs that answer its items, and what became of each item.


Answer = TypeVar("Answer")


class Call(Generic[Answer]):
    """The answers, refusals and failures of one call.

    The first item that the server refuses decides for the whole call whether refusals are about the items or about the
    settings: its request is sent once more with a harmless text (see ``evalbias.lm.types``).

    Args:
        control: Function from an item's number to the same job about a harmless text.
        arrived: Function that is called with an item's number and its answer.

    Attributes:
        answered: Index of an item -> its answer.
        refused: Index of an item that the server refuses -> its error.
        failed: Index of an item without an answer -> its error.
        settings_refused: Whether the server refuses the harmless text too.
    """

    def __init__(
        self, control: Callable[[int], Job[Answer]], arrived: Callable[[int, Answer], None] | None = None
    ) -> None:
        self.arrived = arrived
        self.answered: dict[int, Answer] = {}
        self.refused: dict[int, Exception] = {}
        self.failed: dict[int, Exception] = {}
        self.settings_refused = False
        self._control = control
        self._trial: asyncio.Task[Answer] | None = None

    async def explain(self, number: int, error: Exception, dialect: Any) -> None:
        """Note why the server of a dialect did not answer an item."""
        if isinstance(error, Declined):
            self.refused[number] = error
            return
        if not (isinstance(error, StatusError) and error.status in STATUSES):
            self.failed[number] = error
            return
        if self._trial is None:
            self._trial = asyncio.create_task(self._tried(number, dialect))
        try:
            await self._trial
        except Exception as second:  # whatever an answer raises; see ``Fleet``
            if isinstance(second, StatusError) and second.status in STATUSES:
                self.settings_refused = True
                second = error
            self.failed[number] = second
        else:
            self.refused[number] = error

    async def _tried(self, number: int, dialect: Any) -> Answer:
        return await self._control(number).run(dialect)

    def result(self, name: str, items: int, *, note: str = "") -> list[Answer]:
        """Return the answers to all items.

        Args:
            name: Name of the model, for error messages.
            items: Number of items.
            note: What else to say where items have no answer.

        Raises:
            PromptRefused: The server refuses items.
            Unanswered: An item has no answer.
            RequestRefused: The server refuses the settings.
        """
        if self.failed:
            number, error = min(self.failed.items())
            text = (
                f"{name} did not answer item {number} of {items} ({len(self.answered)} answered, {len(self.failed)} "
                f"failed): {describe_error(error)}{note}"
            )
            if self.settings_refused:
                text = f"{text.rstrip('.')}. A harmless text with the same settings is refused too: change them."
                raise RequestRefused(text, self.answered) from error
            raise Unanswered(text, self.answered) from error
        if self.refused:
            reasons = {i: describe_error(error).rstrip(".") for i, error in sorted(self.refused.items())}
            raise PromptRefused({i: f"is refused by {name}: {why}." for i, why in reasons.items()}, self.answered)
        return [self.answered[number] for number in range(items)]


# Calls of one model behind one or several servers: several requests in flight, and no answer lost.
#
# Each server has a queue of the prompts that begin alike; see ``routing``. A server whose queue is empty takes half of
# what another one cannot begin yet. A server that answers nothing for ``SPARE_PATIENCE`` seconds, or that refuses every
# request, is left out for ``REST`` seconds: others answer what it was asked. The last server is asked for as long as
# ``ServerLM``'s ``patience``. If it has answered nothing in that time, the whole call is given up.


REST = 30.0
"""Time in seconds after which a server that failed is asked again."""


@dataclass(eq=False)
class Replica:
    """One server of the model.

    Attributes:
        connection: Connection to it.
        dialect: Its dialect, which was tried on this server.
        asked: Number of items that it is or will be asked about, over all calls.
        failed: Why it is left out; None if it is asked.
        failed_at: Monotonic time since which it is left out.
    """

    connection: Connection
    dialect: Dialect
    asked: int = 0
    failed: str | None = None
    failed_at: float = 0.0


class Fleet:
    """The servers of one model.

    Args:
        replicas: At least one server.
        pool: Pool of their connections.
        patience: Time in seconds for which an item is asked about.
    """

    def __init__(self, replicas: Sequence[Replica], pool: Pool, *, patience: float) -> None:
        self.replicas = tuple(replicas)
        self.pool = pool
        self._patience = patience
        self._note_spares()

    def all(
        self,
        jobs: Sequence[Job[Answer]],
        control: Callable[[int], Job[Answer]],
        *,
        name: str,
        arrived: Callable[[int, Answer], None] | None = None,
    ) -> list[Answer]:
        """Run every job, as many at a time as the servers take, and return the answers in the order of the jobs.

        Args:
            jobs: One job per item.
            control: Function from an item's number to the same job about a harmless text; see ``Call``.
            name: Name of the model, for error messages.
            arrived: Function that is called with an item's number and its answer as it comes, on the event loop.

        Raises:
            PromptRefused: The server refuses items; the others are answered.
            Unanswered: An item has no answer. The other items were sent all the same, unless the error was fatal.
            RequestRefused: The server refuses the settings, and so every item.
            Interrupted: The user interrupted the call.
        """
        call = Call(control, arrived)
        try:
            with HEAP.frozen() if len(jobs) > 1 else nullcontext():  # the jobs too
                return self.pool.run(self._all(jobs, call, name))
        except KeyboardInterrupt as error:
            raise Interrupted(dict(call.answered)) from error

    async def one(self, job: Job[Answer], control: Callable[[int], Job[Answer]], *, name: str) -> Answer:
        """Run one job from a coroutine on any event loop; see ``all``."""
        (answer,) = await asyncio.wrap_future(self.pool.transport.submit(self._all([job], Call(control), name)))
        return answer

    async def _all(self, jobs: Sequence[Job[Answer]], call: Call[Answer], name: str) -> list[Answer]:
        self._revive()
        living = self._living()
        plan = route([job.key for job in jobs], [r.connection.base_url for r in living], [r.asked for r in living])
        queues = _Queues(self.replicas)
        for replica, numbers in zip(living, plan, strict=True):
            queues.add(replica, numbers, workers=min(len(jobs), self.pool.in_flight))
        workers = [
            asyncio.create_task(self._work(replica, jobs, queues, call))
            for replica in living
            for _ in range(queues.workers[replica])
        ]
        try:
            await asyncio.gather(*workers)
        finally:  # after an unexpected error or an interrupt no worker goes on
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            queues.clear()
        gone = "; ".join(f"{r.connection.base_url}: {r.failed}" for r in self.replicas if r.failed)
        return call.result(name, len(jobs), note=f" The other servers failed before ({gone})." if gone else "")

    async def _work(self, replica: Replica, jobs: Sequence[Job[Answer]], queues: _Queues, call: Call[Answer]) -> None:
        while (number := queues.take(replica)) is not None:
            replica = await self._ask(number, jobs[number], replica, queues, call)
            if call.arrived is not None and number in call.answered:
                call.arrived(number, call.answered[number])
        queues.workers[replica] -= 1

    async def _ask(
        self, number: int, job: Job[Answer], replica: Replica, queues: _Queues, call: Call[Answer]
    ) -> Replica:
        """Ask about an item, at another server if this one fails; return the server for which the worker goes on."""
        try:
            first = time.monotonic()
            for moves in itertools.count():
                started = time.monotonic()
                try:
                    call.answered[number] = await job.run(replica.dialect)
                    return replica
                except Exception as failure:  # whatever an answer raises costs this item alone
                    error = failure
                    clear_frames(failure.__traceback__)  # which hold the answer: it may be large
                other = self._other(replica, error, started, queues)
                # The first move costs no pause; later ones come when every server is overloaded.
                wait = pause(error, moves) if moves else 0.0
                if other is None or time.monotonic() + wait - first >= self._patience:
                    break
                queues.move(replica, other)
                replica = other
                await asyncio.sleep(wait)
            await call.explain(number, error, replica.dialect)
            if (self._living() == [replica] and _is_dead(replica, error, started)) or call.settings_refused:
                queues.clear()  # the remaining jobs are not started
            return replica
        finally:
            replica.asked -= 1

    def _other(self, replica: Replica, error: Exception, started: float, queues: _Queues) -> Replica | None:
        """Return the server to ask instead of one that failed; None if the error is the item's, or no other is left."""
        if not (is_transient(error) or is_fatal(error)):
            return None
        others = [other for other in self._living() if other is not replica]
        if not others:
            return None
        if replica.failed is None and _is_dead(replica, error, started):
            replica.failed, replica.failed_at = describe_error(error), time.monotonic()
            self._note_spares()
            get_logger(__name__).warning(
                "%s: %s Its requests go to the other servers (%d).",
                replica.connection.base_url,
                replica.failed,
                len(others),
            )
        return min(others, key=lambda r: queues.workers[r])

    def _living(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.failed is None]

    def _revive(self) -> None:
        """Ask servers again that rested long enough."""
        for replica in self.replicas:
            if replica.failed is not None and time.monotonic() - replica.failed_at >= REST:
                replica.failed = None
        self._note_spares()

    def _note_spares(self) -> None:
        several = len(self._living()) > 1
        for replica in self.replicas:
            replica.connection.spare = several


class _Queues:
    """The items of a call that each server is to be asked about, and the workers that ask."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._waiting: dict[Replica, deque[int]] = {replica: deque() for replica in replicas}
        self.workers = dict.fromkeys(replicas, 0)

    def add(self, replica: Replica, numbers: Sequence[int], *, workers: int) -> None:
        """Queue items for a server that has so many workers."""
        self._waiting[replica].extend(numbers)
        replica.asked += len(numbers)
        self.workers[replica] = workers

    def take(self, replica: Replica) -> int | None:
        """Return the next item for a server, of another one's queue if its own is empty; None if there is none.

        Half of what exceeds the other server's workers is taken, from the end: it begins alike. The queue of a server
        without workers is emptied in this way, so that no item is forgotten.
        """
        own = self._waiting[replica]
        if not own:
            longest = max(self._waiting, key=self._excess)
            taken = [self._waiting[longest].pop() for _ in range((self._excess(longest) + 1) // 2)]
            own.extend(reversed(taken))
            longest.asked -= len(taken)
            replica.asked += len(taken)
        return own.popleft() if own else None

    def _excess(self, replica: Replica) -> int:
        return len(self._waiting[replica]) - self.workers[replica]

    def move(self, replica: Replica, other: Replica) -> None:
        """Let a worker go on for another server, with the item that it has."""
        self.workers[replica] -= 1
        self.workers[other] += 1
        replica.asked -= 1
        other.asked += 1

    def clear(self) -> None:
        """Forget all items that no server was asked about."""
        for replica, queue in self._waiting.items():
            replica.asked -= len(queue)
            queue.clear()


def _is_dead(replica: Replica, error: Exception, started: float) -> bool:
    """Return whether a server refuses everything, or has answered nothing since a request to it began."""
    return is_fatal(error) or (is_transient(error) and replica.connection.last_answer < started)
