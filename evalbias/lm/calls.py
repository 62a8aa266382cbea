"""Ask many questions concurrently, store each answer as it comes, and distinguish refusals from failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from traceback import walk_tb
from typing import Any, TypeVar

from evalbias.lm import types
from evalbias.lm.dspy_seam import own_refusal
from evalbias.lm.types import Answers, Decisions, Likelihood, Prompt, Question, Refused

Result = TypeVar("Result")

HARMLESS = "Answer with one digit."  # text in place of the judged text


def harmless(question: Question | Decisions) -> Any:
    """Return a question about ``HARMLESS``; instructions and demonstrations stay."""
    if isinstance(question, Likelihood):
        return Likelihood(_harmless_prompt(question.context), HARMLESS)
    if isinstance(question, Decisions):
        return Decisions(tuple(replace(decision, prompt=HARMLESS) for decision in question.questions))
    return replace(question, prompt=_harmless_prompt(question.prompt))


def _harmless_prompt(prompt: Prompt) -> Prompt:
    if isinstance(prompt, str):
        return HARMLESS
    last = max((i for i, message in enumerate(prompt) if message["role"] == "user"), default=len(prompt) - 1)
    return [{**message, "content": HARMLESS} if i == last else message for i, message in enumerate(prompt)]


class Call:
    """A call of a model: many questions, several in flight.

    A server answers "400 Bad Request" to a prompt that is too long or against its policy, and also to a setting that it
    does not support; codes and wordings differ. At the first refusal of a call, the same question is therefore asked
    about a harmless text: if that is refused too, every item would be, and the call ends with an error.

    ``ask`` answers the question at a place, and ``control`` the same about a harmless text; ``refusal`` returns a
    refusal if the prompt may be to blame for an error, and ``fatal`` whether later questions would fail alike.
    """

    def __init__(
        self,
        ask: Callable[[int], Awaitable[Any]],
        answers: Answers,
        *,
        control: Callable[[int], Awaitable[Any]],
        refusal: Callable[[Exception], Refused | None],
        fatal: Callable[[int, Exception], bool] = lambda *_: True,
    ) -> None:
        self._ask, self._answers = ask, answers
        self._control, self._refusal, self._fatal = control, refusal, fatal
        self._deciding = asyncio.Lock()
        self._tried = False
        self._trial: Exception | None = None  # error of the harmless question
        self.failed: dict[int, Exception] = {}  # place of a question without an answer -> its error
        self.settings_refused = False  # the model refuses the harmless text too
        self.over = False  # True ends the call: no further question is asked

    async def run(self, places: Sequence[int], *, at_once: int) -> None:
        """Ask the questions at ``places`` in this order, until a fatal error."""
        if len(places) == 1:  # without a task, so that ``driven`` can run it
            await self._one(places[0])
            return
        waiting, fatal = iter(places), False

        async def work() -> None:
            nonlocal fatal
            for place in waiting:  # shared: each worker takes the next place
                if fatal or self.over:
                    return
                fatal = await self._one(place) or fatal

        workers = [asyncio.create_task(work()) for _ in range(min(at_once, len(places)))]
        try:
            await asyncio.gather(*workers)
        finally:  # after an interrupt no worker goes on
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _one(self, place: int) -> bool:
        """Ask one question; return whether its error is fatal."""
        try:
            answer = await self._ask(place)
        except Exception as failure:  # an error costs only its own question
            error = failure
            for frame, _ in walk_tb(failure.__traceback__):  # which hold the answer: it may be large
                if frame.f_code is not Call._one.__code__:  # another question raised the same error, and goes on here
                    with suppress(RuntimeError):
                        frame.clear()
        else:
            self._answers[place] = answer  # an error of keeping it ends the call
            return False
        if (refusal := own_refusal(error)) is not None:
            self._answers[place] = refusal
            return False
        refused = self._refusal(error)
        if refused is None:
            self.failed[place] = error
            return self._fatal(place, error)
        await self._decide(place)
        if self._trial is None:
            self._answers[place] = refused
            return False
        self.failed[place] = error if self.settings_refused else self._trial
        return self.settings_refused or self._fatal(place, self._trial)

    async def _decide(self, place: int) -> None:
        """Ask the harmless question, once for the whole call."""
        async with self._deciding:
            if self._tried:
                return
            try:
                await self._control(place)
            except Exception as second:
                self._trial = second
                unmeasured = isinstance(second, types.NoProbabilities)
                self.over = self.settings_refused = not unmeasured and self._refusal(second) is not None
            self._tried = True

    def check(self) -> None:
        """Raise the error of the first unanswered question, or ``RequestRefused`` if the settings are refused."""
        if not self.failed:
            return
        error = self.failed[min(self.failed)]
        refused = self._refusal(error)
        if self.settings_refused and refused is not None:
            raise types.RequestRefused(
                f"The request {refused.reason} A harmless text with the same settings is refused too: change the "
                "settings or the model."
            ) from error
        raise error


def driven(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise RuntimeError("A question was asked asynchronously in a thread.")
