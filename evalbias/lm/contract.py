"""Any ``dspy.LM`` that answers measured judgments, as a ``MeasuringLM`` with choices but no likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import dspy
import numpy as np
from dspy import lm15
from dspy.utils.exceptions import LMError

from evalbias.lm.judgment import chat_request, judgment_request, read_judgment
from evalbias.lm.types import ChoiceLogprobs, Interrupted, LogLikelihood, MeasuringLM, Message, Prompt, Unanswered

Answer = TypeVar("Answer")


def measuring(lm: Any) -> MeasuringLM:
    """Return the model itself if it measures, else the model behind DSPy's judgment contract.

    Raises:
        TypeError: ``lm`` is not a language model.
    """
    if isinstance(lm, MeasuringLM):
        return lm
    if not callable(lm) or not hasattr(lm, "model"):
        raise TypeError(f"{lm!r} is not a language model: configure one with dspy.configure(lm=...) or pass lm=.")
    return ContractLM(lm)


def resolve_lm(lm: Any, predict: Any) -> Any:
    """Return ``lm`` if given, else the predictor's own model, else the one that DSPy is configured with."""
    return lm or predict.lm or dspy.settings.lm


IN_FLIGHT = 16
"""Number of simultaneous requests to a server."""


def written(lm: Any, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
    """Generate a text after every prompt, decoded greedily: the answers of direct scoring.

    Args:
        lm: A ``dspy.LM``, or a model with its own ``written`` method (``JournaledLM``).
        prompts: Prompts, of which several are in flight at the same time.
        max_tokens: Token limit of each answer.

    Raises:
        Unanswered: A prompt has no answer after DSPy's retries; the exception holds the answers of the others.
    """
    if hasattr(lm, "written"):
        texts: list[str] = lm.written(prompts, max_tokens=max_tokens)
        return texts
    config = lm15.Config(temperature=0.0, max_tokens=max_tokens)

    def ask(prompt: Prompt) -> str:
        return _respond(lm, chat_request(str(lm.model), _messages(prompt), config)).text or ""

    return _all(ask, prompts)


def _all(ask: Callable[[Prompt], Answer], prompts: Sequence[Prompt]) -> list[Answer]:
    """Ask for every prompt, several at the same time; after an error or an interrupt no further prompt is sent.

    Raises:
        Unanswered: A prompt has no answer; the exception holds the answers of the others.
        Interrupted: The user interrupted the call; requests in flight are not waited for.
        ValueError: A local model refuses a prompt.
    """
    pool = ThreadPoolExecutor(IN_FLIGHT)
    futures = [pool.submit(ask, prompt) for prompt in prompts]
    try:
        error = next((f.exception() for f in futures if f.exception() is not None), None)  # waits for those before it
        pool.shutdown(cancel_futures=True)
    except KeyboardInterrupt as interrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise Interrupted(_answers(futures)) from interrupt
    if isinstance(error, ConnectionError):
        raise Unanswered(str(error), _answers(futures)) from error
    if error is not None:
        raise error
    return [future.result() for future in futures]


def _answers(futures: Sequence[Future[Answer]]) -> dict[int, Answer]:
    """Return the answers that have arrived, by the index of their prompt."""
    ended = {i: f for i, f in enumerate(futures) if f.done() and not f.cancelled()}
    return {i: f.result() for i, f in ended.items() if f.exception() is None}


def _messages(prompt: Prompt) -> Sequence[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def _respond(lm: Any, request: lm15.Request) -> lm15.Response:
    try:
        return lm(request)
    except LMError as error:
        if isinstance(error.__cause__, ValueError):  # a local model's own error, such as a prompt too long
            raise error.__cause__ from error
        raise ConnectionError(
            f"{lm.model} did not answer: {error} Check that the server runs, and its address."
        ) from error


class ContractLM:
    """Measured choices from a server: one request per prompt, several in flight."""

    def __init__(self, lm: Any) -> None:
        self._lm = lm

    @property
    def model(self) -> str:
        """Model string of the wrapped LM."""
        return str(self._lm.model)

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability of every choice after every prompt; see ``MeasuringLM``.

        Raises:
            Unanswered: A prompt has no answer after DSPy's retries; the exception holds the answers of the others.
        """

        def ask(prompt: Prompt) -> ChoiceLogprobs:
            request = judgment_request(self.model, _messages(prompt), choices)
            return read_judgment(_respond(self._lm, request), choices)

        rows = _all(ask, prompts)
        logprobs = np.concatenate([r.logprobs for r in rows]) if rows else np.empty((0, len(choices)))  # (n, c)
        return ChoiceLogprobs(tuple(choices), logprobs, renormalized=any(r.renormalized for r in rows))

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """Generate a text after every prompt; see ``written``."""
        return written(self._lm, prompts, max_tokens=max_tokens)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Refuse: the contract has no likelihoods.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            f"{self.model} returns no likelihoods of given texts: name a local model for them with "
            "likelihood_lm=LocalLM(...), or --likelihood-lm on the command line."
        )
