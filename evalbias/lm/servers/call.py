"""One call of a server: the jobs that answer its items, and what became of each item."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from evalbias.lm.refusals import STATUSES
from evalbias.lm.servers.errors import Declined, StatusError, describe_error
from evalbias.lm.types import PromptRefused, RequestRefused, Unanswered

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Job(Generic[Answer]):
    """The requests that answer one item of a call.

    Attributes:
        run: Coroutine function that sends the requests to the server of the given dialect and returns the item's
            answer.
        key: The item's prompt as the server sees it, as bytes: from tokens by ``key_of``, or a text. Jobs start in the
            order of their keys: prompts with a common prefix then follow one another, and the server finds the prefix
            in its cache. Of several servers, prompts with a common prefix go to the same one; see ``routing``.
    """

    run: Callable[[Any], Awaitable[Answer]]
    key: bytes = b""


class Call(Generic[Answer]):
    """The answers, refusals and failures of one call.

    The first item that the server refuses decides for the whole call whether refusals are about the items or about the
    settings: its request is sent once more with a harmless text (see ``evalbias.lm.refusals``).

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
