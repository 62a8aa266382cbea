"""Stores of answers: in memory and in the journal of a run."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from evalbias.lm.contract import Sampling, drawn, written
from evalbias.lm.types import (
    ARRIVED,
    ChoiceLogprobs,
    Interrupted,
    LogLikelihood,
    MeasuringLM,
    Prompt,
    PromptRefused,
    Unanswered,
    WrappedLM,
    check_refused,
    chunk_of,
    remembered,
    settled,
    stacked,
)
from evalbias.runs import Journal
from evalbias.values import digest, number

# A measuring LM that counts what it is asked.


class CountingLM(WrappedLM):
    """A measuring LM that counts; every other attribute is the wrapped model's.

    Attributes:
        judgments: Prompts whose choices were measured so far.
        likelihoods: Texts whose likelihood was measured so far.
        texts: Texts that the model wrote so far.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        super().__init__(lm)
        self.judgments = 0
        self.likelihoods = 0
        self.texts = 0

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability of every choice after every prompt; see ``MeasuringLM``."""
        with self._counted("judgments", len(prompts)):
            return self._lm.choice_logprobs(prompts, choices)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Log-probability of each continuation after its context; see ``MeasuringLM``."""
        with self._counted("likelihoods", len(pairs)):
            return self._lm.loglikelihood(pairs)

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """Greedily decoded text after every prompt; see ``evalbias.lm.contract.written``."""
        with self._counted("texts", len(prompts)):
            return written(self._lm, prompts, max_tokens=max_tokens)

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sampled text after every prompt; see ``evalbias.lm.contract.drawn``."""
        with self._counted("texts", len(prompts)):
            return drawn(self._lm, prompts, seeds, sampling)

    @contextmanager
    def _counted(self, kind: str, items: int) -> Iterator[None]:
        """Count the items of a call; of a call that the model refused, those that it answered."""
        try:
            yield
        except PromptRefused as error:
            setattr(self, kind, getattr(self, kind) + len(error.answered))
            raise
        setattr(self, kind, getattr(self, kind) + items)


# A measuring LM that journals every answer and never asks twice: what makes a run resumable.
#
# Prompts without an answer go to the model in chunks. Each answer of a server is written as it comes: a kill costs none
# that had arrived. Of a local model, each chunk is written before the next one is asked. A chunk that a kill tore is
# asked again as the same chunk, because the last digits of an answer may depend on the rest of the batch. A slow model
# gets smaller chunks, so that a kill costs a few seconds of work.
#
# A local model keeps the prefixes of its prompts from chunk to chunk, so that a whole search reads each text once. A
# resumed run begins without them, and the last digits of its answers may differ (1e-5 nats in float32). With
# ``exact_resume`` every chunk begins without them: a resumed run then gives exactly the same numbers as one that was
# not stopped, and prefixes that several chunks share are read in each.
#
# Prompts that the model refuses have no answer to journal. A resumed run asks about them again, and the chunks of a
# local model shift by as many, so the last digits may differ here too.


Answer = TypeVar("Answer")

SECONDS = 10.0
"""Longest time that a chunk is meant to take."""

FIRST = 16
"""Number of prompts in the first chunk of a model that may be slow."""

QUICK = 50_000_000
"""Number of parameters up to which a local model is taken to answer a whole chunk in time."""

FACTOR = 4
"""Factor between the sizes of chunks."""

INTERVAL = 1.0
"""Time in seconds between flushes to the disk, and reports of progress, while answers of a server arrive."""

NEXT = "next"
"""Key under which a chunk's last record holds the size of the next chunk, so that a resumed run asks for the same."""


class JournaledLM:
    """Wraps a measuring LM; answers come from the journal where it has them.

    Args:
        lm: Model to ask.
        path: JSONL file, one answer a line, with a key over the model, the prompt and the choices.
        model: Identity of the model's numbers (name, revision, dtype); part of every key.
        progress: Called with the number of answers, for replayed answers, after every chunk, and every second while
            answers of a server arrive, then from other threads.
        before: Called with the questions of a call that have no answer yet, before the model is asked.
        between: Called after every chunk that the model answered; it may raise to end the run.
        chunk: Prompts in one call of the model, written together: what a kill costs. By default at most
            ``chunk_of(lm)``, and fewer where these would take longer than ``SECONDS``.
        exact_resume: Whether the last digits of an answer must not depend on earlier chunks, which a resumed run skips.

    Attributes:
        model: Name of the model.
        asked: Number of answers that the model gave through this object.
        replayed: Number of answers that came from the journal.

    Raises:
        ValueError: A line of the file is not a recorded answer.
    """

    def __init__(
        self,
        lm: MeasuringLM,
        path: str | os.PathLike[str],
        *,
        model: str,
        progress: Callable[[int], None] | None = None,
        before: Callable[[Sequence[Any]], None] | None = None,
        between: Callable[[], None] | None = None,
        chunk: int | None = None,
        exact_resume: bool = False,
    ) -> None:
        self._lm = lm
        self._journal = Journal(path)
        self._model = model
        self._progress = progress or (lambda _: None)
        self._before = before or (lambda _: None)
        self._between = between or (lambda: None)
        self._exact = exact_resume
        self.in_flight = getattr(lm, "in_flight", 0)  # of the wrapped model, for ``chunk_of``
        self.model = getattr(lm, "model", model)
        records = self._journal.read("key")
        self._answers = {record["key"]: record for record in records}
        self._most = chunk or chunk_of(lm)
        self._least = chunk or max(1, self.in_flight)
        kept = next((r[NEXT] for r in reversed(records) if NEXT in r), self._first(lm))
        self._chunk = max(self._least, min(self._most, kept))
        self._keeping = threading.RLock()
        self._told, self._untold = -math.inf, 0  # time of the last report of progress, and answers since
        self.asked = 0
        self.replayed = 0

    def clear(self) -> None:
        """Delete the journal, once everything that was made of its answers is written elsewhere."""
        self._answers.clear()
        self._journal.path.unlink(missing_ok=True)

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability of every choice after every prompt; see ``MeasuringLM``."""
        choices = tuple(choices)

        def ask(part: list[Prompt]) -> list[ChoiceLogprobs]:
            return self._lm.choice_logprobs(part, choices).rows()

        def record(answer: ChoiceLogprobs) -> dict[str, Any]:
            return {"logprobs": answer.logprobs[0], "renormalized": answer.renormalized}

        def read(record: dict[str, Any]) -> ChoiceLogprobs:
            row = np.array([number(value) for value in record["logprobs"]]).reshape(1, len(choices))
            return ChoiceLogprobs(choices, row, renormalized=record["renormalized"])

        rows = self._answer([(prompt, [prompt, choices]) for prompt in prompts], ask, record, read)
        return stacked(rows, choices)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Log-probability of each continuation after its context; see ``MeasuringLM``."""

        def record(answer: LogLikelihood) -> dict[str, Any]:
            return {"per_token": answer.per_token}

        def read(record: dict[str, Any]) -> LogLikelihood:
            return LogLikelihood(np.array([number(value) for value in record["per_token"]]))

        return self._answer([(pair, list(pair)) for pair in pairs], self._lm.loglikelihood, record, read)

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """Greedily decoded text after every prompt; see ``evalbias.lm.contract.written``."""

        def ask(part: list[Prompt]) -> list[str]:
            return written(self._lm, part, max_tokens=max_tokens)

        questions = [(prompt, [prompt, "written", max_tokens]) for prompt in prompts]
        return self._texts(questions, ask)

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sampled text after every prompt; see ``evalbias.lm.contract.drawn``."""

        def ask(part: list[tuple[Prompt, int]]) -> list[str]:
            some, their_seeds = zip(*part, strict=True)
            return drawn(self._lm, some, their_seeds, sampling)

        how = ["drawn", sampling.temperature, sampling.max_tokens]
        pairs = list(zip(prompts, seeds, strict=True))
        return self._texts([(pair, [*pair, *how]) for pair in pairs], ask)

    def _texts(self, questions: list[tuple[Any, list[Any]]], ask: Callable[[list[Any]], Sequence[str]]) -> list[str]:
        def record(text: str) -> dict[str, Any]:
            return {"written": text}

        return self._answer(questions, ask, record, lambda record: str(record["written"]))

    def _answer(
        self,
        items: list[tuple[Any, list[Any]]],
        ask: Callable[[list[Any]], Sequence[Answer]],
        record: Callable[[Answer], dict[str, Any]],
        read: Callable[[dict[str, Any]], Answer],
    ) -> list[Answer]:
        def kept(key: str) -> Answer:
            try:
                return read(self._answers[key])
            except (KeyError, TypeError, ValueError) as error:
                path = self._journal.path
                raise ValueError(f"{path}: the answer {key} is damaged ({error!r}): delete its line.") from error

        keys = [digest([self._model, question], 64) for _, question in items]
        new = {key: item for key, (item, _) in zip(keys, items, strict=True) if key not in self._answers}
        self.replayed += len(items) - len(new)
        self._progress(len(items) - len(new))
        todo = list(new.items())
        if todo:
            self._before([item for _, item in todo])
        tells = getattr(type(self._lm), "tells_answers", False)  # of the model itself, not of one that it wraps

        def asked(part: list[tuple[str, Any]]) -> Sequence[Answer]:
            over = threading.Event()

            def arrived(number: int, answer: Answer) -> None:
                with self._keeping:
                    if not over.is_set():  # after an interrupt another process may work in the folder
                        self._keep({part[number][0]: answer}, record, streamed=True)

            token = ARRIVED.set(arrived if tells else None)
            try:
                return ask([item for _, item in part])
            finally:
                ARRIVED.reset(token)
                with self._keeping:
                    over.set()

        refused: dict[str, str] = {}
        start = 0
        while start < len(todo):
            part = todo[start : start + self._chunk]
            forget = getattr(self._lm, "forget", None)
            if forget is not None and self._exact:
                forget()
            began = time.monotonic()
            try:
                answers, reasons = settled(asked, part)
            except (Unanswered, Interrupted) as error:  # a server's answers do not depend on the batch: keep them
                self._keep({part[i][0]: answer for i, answer in error.answered.items()}, record)
                error.answered = {number: kept(key) for number, key in enumerate(keys) if key in self._answers}
                raise
            self._chunk = self._next(time.monotonic() - began, len(part))
            self._keep({part[i][0]: answer for i, answer in answers.items()}, record)
            self._between()
            refused |= {part[i][0]: reason for i, reason in reasons.items()}
            start += len(part)
        check_refused(keys, refused, kept)
        return [kept(key) for key in keys]

    def _first(self, lm: Any) -> int:
        quick = 0 < getattr(lm, "parameters", 0) <= QUICK
        return self._most if quick else min(self._most, max(FIRST, self._least))

    def _next(self, seconds: float, prompts: int) -> int:
        """Return the size of the next chunk, given how long this one took."""
        expected = self._chunk * seconds / prompts
        if expected > SECONDS:
            return max(self._least, self._chunk // FACTOR)
        return min(self._most, self._chunk * FACTOR) if expected * FACTOR <= SECONDS else self._chunk

    def _keep(
        self, answers: Mapping[str, Answer], record: Callable[[Answer], dict[str, Any]], *, streamed: bool = False
    ) -> None:
        with self._keeping:
            new = [{"key": key, **record(answer)} for key, answer in answers.items() if key not in self._answers]
            if new and not streamed:
                new[-1][NEXT] = self._chunk
            due = not streamed or time.monotonic() - self._told >= INTERVAL
            self._journal.append(new, flush=due)
            self._answers.update({kept["key"]: kept for kept in new})
            self.asked += len(new)
            self._untold += len(new)
            if due and self._untold:
                self._told = time.monotonic()
                self._progress(self._untold)
                self._untold = 0


# In-memory caches of a measuring LM's answers; every other attribute is the cached model's.


class LikelihoodMemo(WrappedLM):
    """A measuring LM that caches every likelihood in memory.

    Args:
        lm: Model to ask.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        super().__init__(lm)
        self._likelihoods: dict[str, LogLikelihood] = {}

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context; see ``MeasuringLM``."""
        keys = [repr(pair) for pair in pairs]
        return remembered(self._lm.loglikelihood, pairs, keys, self._likelihoods)

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability of every choice after every prompt, uncached; see ``MeasuringLM``."""
        return self._lm.choice_logprobs(prompts, choices)


class ChoiceMemo(WrappedLM):
    """A measuring LM that caches the log-probabilities of every prompt's choices, and every sampled text, in memory.

    Args:
        lm: Model to ask.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        super().__init__(lm)
        self._rows: dict[str, ChoiceLogprobs] = {}  # key -> answer to one prompt
        self._texts: dict[str, str] = {}

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability of every choice after every prompt; see ``MeasuringLM``."""
        choices = tuple(choices)
        keys = [hashlib.sha256(repr((prompt, choices)).encode()).hexdigest() for prompt in prompts]
        rows = remembered(lambda some: self._lm.choice_logprobs(some, choices).rows(), prompts, keys, self._rows)
        return stacked(rows, choices)

    @property
    def sampling(self) -> Sampling | None:
        """Settings by which the model is sampled; None if it measures."""
        return getattr(self._lm, "sampling", None)

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sample a text after every prompt, each with its own seed; see ``evalbias.lm.contract.drawn``."""
        questions = list(zip(prompts, seeds, strict=True))
        keys = [hashlib.sha256(repr((question, sampling)).encode()).hexdigest() for question in questions]

        def ask(some: list[tuple[Prompt, int]]) -> list[str]:
            some_prompts, their_seeds = zip(*some, strict=True)
            return drawn(self._lm, some_prompts, their_seeds, sampling)

        return remembered(ask, questions, keys, self._texts)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context, uncached; see ``MeasuringLM``."""
        return self._lm.loglikelihood(pairs)
