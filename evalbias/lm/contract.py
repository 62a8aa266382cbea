"""Any ``dspy.LM`` as a ``MeasuringLM`` with choices but no likelihoods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dspy
import numpy as np
from dspy import lm15
from dspy.utils.exceptions import LMError

from evalbias.lm.asking import ask, concurrently, hold, respond, texts_of
from evalbias.lm.judgment import chat_request
from evalbias.lm.sampled_answers import Sampling, estimate
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, MeasuringLM, Message, Prompt, stacked


def measuring(lm: Any, sampling: Sampling | None = None) -> MeasuringLM:
    """Return the model itself if it measures, else a view of it that does.

    Args:
        lm: A ``dspy.LM`` or a model that measures.
        sampling: Estimate the probabilities of choices from repeated answers, whether the model measures or not. A
            model that is asked repeatedly already keeps its own settings.

    Raises:
        TypeError: ``lm`` is not a language model.
    """
    if isinstance(getattr(lm, "sampling", None), Sampling):
        return lm  # type: ignore[no-any-return]
    if not isinstance(lm, MeasuringLM):
        if not callable(lm) or not hasattr(lm, "model"):
            raise TypeError(f"{lm!r} is not a language model: configure one with dspy.configure(lm=...) or pass lm=.")
        lm = ContractLM(lm)
    return lm if sampling is None else SampledLM(lm, sampling)


def resolve_lm(lm: Any, predict: Any) -> Any:
    """Return ``lm`` if given, else the predictor's own model, else the one that DSPy is configured with."""
    return lm or predict.lm or dspy.settings.lm


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

    def write(prompt: Prompt) -> str:
        with _named_errors(lm):
            return respond(lm, chat_request(str(lm.model), _messages(prompt), config)).text or ""

    return concurrently(write, prompts)


def drawn(lm: Any, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
    """Sample a text after every prompt, each with its own seed.

    Args:
        lm: A ``dspy.LM``, or a model with its own ``drawn`` method (``JournaledLM``).
        prompts: n prompts, of which several are in flight at the same time.
        seeds: n seeds, for models that take one.
        sampling: Temperature and token limit.

    Raises:
        Unanswered: A prompt has no answer after DSPy's retries; the exception holds the answers of the others.
    """
    if hasattr(lm, "drawn"):
        texts: list[str] = lm.drawn(prompts, seeds, sampling)
        return texts
    config = lm15.Config(temperature=sampling.temperature, max_tokens=sampling.max_tokens)

    def draw(question: tuple[Prompt, int]) -> str:
        prompt, seed = question
        with _named_errors(lm):
            (text,) = hold(lm, texts_of(lm, _messages(prompt), config, [seed], {}))
        return text

    return concurrently(draw, list(zip(prompts, seeds, strict=True)))


def _messages(prompt: Prompt) -> Sequence[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


@contextmanager
def _named_errors(lm: Any) -> Iterator[None]:
    """Name the model in DSPy's errors; a local model's own error, such as a prompt too long, is raised itself."""
    try:
        yield
    except LMError as error:
        if isinstance(error.__cause__, ValueError):
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

        A model that measures no judgments is asked for its most probable first tokens instead; see
        ``first_token_row``.

        Raises:
            NoProbabilities: The model reports no probabilities.
            Unanswered: A prompt has no answer after DSPy's retries; the exception holds the answers of the others.
        """

        def measure(prompt: Prompt) -> ChoiceLogprobs:
            with _named_errors(self._lm):
                return ask(self._lm, _messages(prompt), choices)

        rows = concurrently(measure, prompts)
        return stacked(rows) if rows else ChoiceLogprobs(tuple(choices), np.empty((0, len(choices))))

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """Generate a text after every prompt; see ``written``."""
        return written(self._lm, prompts, max_tokens=max_tokens)

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sample a text after every prompt; see ``drawn``."""
        return drawn(self._lm, prompts, seeds, sampling)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Refuse: the contract has no likelihoods.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            f"{self.model} returns no likelihoods of given texts: name a local model for them with "
            "likelihood_lm=LocalLM(...), or --likelihood-lm on the command line."
        )


class SampledLM:
    """Choices estimated from repeated answers; every other attribute is the wrapped model's.

    Args:
        lm: Model to ask.
        sampling: How often and how it is asked.
    """

    def __init__(self, lm: Any, sampling: Sampling) -> None:
        self._lm = lm
        self.sampling = sampling

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the logarithms of the choices' shares of the answers; see ``estimate``."""
        k = self.sampling.samples
        seeds = [seed for prompt in prompts for seed in self.sampling.seeds(prompt)]
        texts = drawn(self._lm, [prompt for prompt in prompts for _ in range(k)], seeds, self.sampling)
        return estimate([texts[i : i + k] for i in range(0, len(texts), k)], choices, k)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context, which is measured; see ``MeasuringLM``."""
        return measuring(self._lm).loglikelihood(pairs)

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """Generate a text after every prompt; see ``written``."""
        return written(self._lm, prompts, max_tokens=max_tokens)

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sample a text after every prompt; see ``drawn``."""
        return drawn(self._lm, prompts, seeds, sampling)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy is asked for these before it has the model
            raise AttributeError(name)
        return getattr(self._lm, name)
