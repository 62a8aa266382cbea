"""Closed questions: what the dialects of decision endpoints share.

A decision endpoint takes a text and a question with options, and returns the probability of every option. The server
words the question itself: it writes a letter before each option and reads the probabilities of the letters. The
numbers are therefore those of another prompt than the one that a token endpoint scores.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from dspy import lm15

from evalbias.lm.fingerprint import DIGITS, SAMPLE_QUESTION, sample_of
from evalbias.lm.refusals import HARMLESS, each
from evalbias.lm.servers.call import Job
from evalbias.lm.servers.dialects.base import Dialect, Endpoint
from evalbias.lm.servers.dialects.chat import check_plain
from evalbias.lm.servers.errors import Unreadable
from evalbias.lm.text import as_text
from evalbias.lm.tokens import check_choices
from evalbias.lm.types import ChoiceLogprobs, Prompt
from evalbias.measures.arrays import FloatArray

QUESTION = "Which answer follows?"
"""The question about a prompt that ends where the answer is missing."""

NAME = "answer"
"""Name of the question in a request."""

ROUNDING = 0.02
"""Largest difference between 1 and the sum of the reported probabilities."""


class QuestionDialect(Dialect):
    """A server that answers closed questions with probabilities, and generates nothing.

    A subclass writes ``ask``.
    """

    needs_tokenizer = False
    likelihoods = False

    @classmethod
    async def probe(cls, endpoint: Endpoint) -> QuestionDialect:
        """Ask one short question; see ``Dialect``."""
        dialect = cls(endpoint)
        await dialect.ask(HARMLESS, ("1", "2"))
        return dialect

    @abstractmethod
    async def ask(self, text: str, choices: tuple[str, ...]) -> ChoiceLogprobs:
        """Return the log-probabilities of the choices as answers to a text, shape (1, c).

        Raises:
            Unreadable: The answer lacks the probabilities, or they contradict themselves.
            Declined: The model declines to answer about this text.
            StatusError: The server refuses the request.
        """

    async def sample(self) -> FloatArray:
        """Return the sample of the answers to a fixed question; see ``Dialect``."""
        return sample_of(np.exp((await self.ask(SAMPLE_QUESTION, DIGITS)).logprobs[0]))

    @property
    def capabilities(self) -> str:
        """Description of what the server returns, for the log."""
        return "choices as options of a closed question that the server words, no likelihoods, no texts"

    def choice_jobs(self, prompts: Sequence[Prompt], choices: tuple[str, ...]) -> list[Job[ChoiceLogprobs]]:
        """Return one job per prompt; see ``Dialect``.

        Raises:
            ValueError: There are no choices, or one is empty or repeated.
            ControlTokenInText: A prompt contains a control token, which the server may read as such.
        """
        check_choices(choices)

        async def answer(text: str, at: QuestionDialect) -> ChoiceLogprobs:
            return await at.ask(text, choices)

        texts = each(_text, prompts)
        return [Job(partial(answer, text), text.encode("utf-8", "surrogatepass")) for text in texts]

    def generation_job(self, prompt: Prompt, config: lm15.Config) -> Job[lm15.Response]:
        """Refuse: decision endpoints write no texts.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            f"{self._model}: a server of the kind {self.name!r} answers closed questions and writes no texts. Use "
            "dialect='chat', or another model, for what must be written."
        )


def answer_of(choices: tuple[str, ...], shares: Mapping[Any, Any], coverage: Any = None) -> ChoiceLogprobs:
    """Return reported probabilities as log-probabilities.

    Args:
        choices: (c,) texts of the choices.
        shares: Probability of every choice, among the choices.
        coverage: Probability that any of the choices is the answer; None if the server does not report it.

    Raises:
        Unreadable: A choice has no probability, a value is not a probability, or they do not sum to 1.
    """
    if set(shares) != set(choices):
        raise Unreadable(f"it has probabilities of {list(shares)}, not of {list(choices)}")
    row = np.array([_probability(shares[choice]) for choice in choices])  # (c,)
    if abs(row.sum() - 1.0) > ROUNDING:
        raise Unreadable(f"the probabilities of the options sum to {row.sum():.3f}, not to 1")
    with np.errstate(divide="ignore"):  # a probability of 0 is a log-probability of -inf
        logprobs = np.log(row) + (0.0 if coverage is None else np.log(_probability(coverage)))
    return ChoiceLogprobs(choices, logprobs[None], renormalized=coverage is None)


def _probability(value: Any) -> float:
    """Return a reported probability as a float in [0, 1].

    Raises:
        Unreadable: The value is not a number, or outside of the range by more than rounding.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e-6 <= value <= 1.0 + 1e-3:
        raise Unreadable(f"{value!r:.80} is not a probability")
    return min(max(float(value), 0.0), 1.0)


def _text(prompt: Prompt) -> str:
    """Return a prompt as one text: instructions, demonstrations with their answers, and the item.

    Raises:
        ControlTokenInText: The prompt contains a control token, which the server may read as such.
    """
    text = as_text(prompt).text.rstrip()
    check_plain(text)
    return text
