"""Any ``dspy.LM`` that answers measured judgments, as a ``MeasuringLM`` (choices only: it cannot tell likelihoods)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import dspy
import numpy as np
from dspy import lm15
from dspy.utils.exceptions import LMError

from evalbias.lm.judgment import chat_request, judgment_request, read_judgment
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, MeasuringLM, Message, Prompt, Unanswered

Told = TypeVar("Told")


def measuring(lm: Any) -> MeasuringLM:
    """The model itself when it measures, else the model behind DSPy's judgment contract.

    Raises:
        TypeError: No language model at all.
    """
    if isinstance(lm, MeasuringLM):
        return lm
    if not callable(lm) or not hasattr(lm, "model"):
        raise TypeError(f"{lm!r} is no language model: configure one with dspy.configure(lm=...) or pass lm=.")
    return ContractLM(lm)


def resolve_lm(lm: Any, predict: Any) -> Any:
    """The model to ask: ``lm`` if given, else the predictor's own, else the one that DSPy is configured with."""
    return lm or predict.lm or dspy.settings.lm


IN_FLIGHT = 16
"""Requests that wait for a server at the same time."""


def written(lm: Any, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
    """What a model writes after every prompt, decoded greedily: the answers of direct scoring.

    Args:
        lm: A ``dspy.LM``, or a model with a ``written`` of its own (``JournaledLM``).
        prompts: Several are in flight at the same time.
        max_tokens: Of every answer.

    Raises:
        Unanswered: A request that the model did not answer, after DSPy's retries; the answers there are, are kept.
    """
    if hasattr(lm, "written"):
        found: list[str] = lm.written(prompts, max_tokens=max_tokens)
        return found
    config = lm15.Config(temperature=0.0, max_tokens=max_tokens)

    def ask(prompt: Prompt) -> str:
        return _answer(lm, chat_request(str(lm.model), _messages(prompt), config)).text or ""

    return _all(ask, prompts)


def _all(ask: Callable[[Prompt], Told], prompts: Sequence[Prompt]) -> list[Told]:
    """Ask for every prompt, several at the same time.

    Raises:
        Unanswered: A prompt has no answer; what was answered is kept, the others are asked no more.
        ValueError: A prompt that a local model refuses.
    """
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        futures = [pool.submit(ask, prompt) for prompt in prompts]
        failed = next((f.exception() for f in futures if f.exception() is not None), None)  # waits for all before it
        if failed is not None:
            pool.shutdown(cancel_futures=True)
            answered = {i: f.result() for i, f in enumerate(futures) if not f.cancelled() and f.exception() is None}
            if isinstance(failed, ConnectionError):
                raise Unanswered(str(failed), answered) from failed
            raise failed
        return [future.result() for future in futures]


def _messages(prompt: Prompt) -> Sequence[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def _answer(lm: Any, request: lm15.Request) -> lm15.Response:
    try:
        return lm(request)
    except LMError as error:
        if isinstance(error.__cause__, ValueError):  # a local model's own refusal, such as of a prompt too long
            raise error.__cause__ from error
        raise ConnectionError(
            f"{lm.model} did not answer: {error} Check that the server runs, and its address."
        ) from error


class ContractLM:
    """Measured choices from a server, one request a prompt, several in flight."""

    def __init__(self, lm: Any) -> None:
        self._lm = lm

    @property
    def model(self) -> str:
        """The model string of the wrapped LM."""
        return str(self._lm.model)

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability of every choice after every prompt; see ``MeasuringLM``.

        Raises:
            Unanswered: A request that the model did not answer, after DSPy's retries; the answers there are, are kept.
        """

        def ask(prompt: Prompt) -> ChoiceLogprobs:
            request = judgment_request(self.model, _messages(prompt), choices)
            return read_judgment(_answer(self._lm, request), choices)

        rows = _all(ask, prompts)
        logprobs = np.concatenate([r.logprobs for r in rows]) if rows else np.empty((0, len(choices)))
        return ChoiceLogprobs(tuple(choices), logprobs, renormalized=any(r.renormalized for r in rows))

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """What the model writes; see ``written``."""
        return written(self._lm, prompts, max_tokens=max_tokens)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Refused: the contract has no likelihoods."""
        raise NotImplementedError(
            f"{self.model} tells no likelihoods of given texts: name a local model for them "
            "(likelihood_lm=LocalLM(...), or --likelihood-lm on the command line)."
        )
