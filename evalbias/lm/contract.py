"""Any ``dspy.LM`` as a ``MeasuringLM`` with choices but no likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import dspy
import numpy as np
from dspy import lm15
from dspy.utils.exceptions import LMError

from evalbias.lm.asking import measured, text_after, texts_of
from evalbias.lm.conversation import Conversation, concurrently, explained, hold
from evalbias.lm.fingerprint import DIGITS, SAMPLE_QUESTION, Answering, sample_of
from evalbias.lm.refusals import harmless, settled
from evalbias.lm.refused_requests import reason_of
from evalbias.lm.sampled_answers import Sampling, estimate
from evalbias.lm.servers.errors import KEY_REMEDY
from evalbias.lm.types import (
    ARRIVED,
    ChoiceLogprobs,
    Interrupted,
    LogLikelihood,
    MeasuringLM,
    ModelChanged,
    NoProbabilities,
    Prompt,
    PromptRefused,
    RequestRefused,
    Unanswered,
    as_messages,
    stacked,
)
from evalbias.lm.wrapped import WrappedLM
from evalbias.measures.arrays import FloatArray

Item = TypeVar("Item")
Answer = TypeVar("Answer")


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
        PromptRefused: The model refuses prompts; the exception holds the answers of the others.
        RequestRefused: The model refuses the settings, and so every prompt.
        Unanswered: A prompt has no answer after DSPy's retries; the exception holds the answers of the others.
    """
    if hasattr(lm, "written"):
        texts: list[str] = lm.written(prompts, max_tokens=max_tokens)
        return texts
    config = lm15.Config(temperature=0.0, max_tokens=max_tokens)
    return _held(lm, lambda prompt: text_after(lm, config, {}, as_messages(prompt)), prompts, harmless)


def drawn(lm: Any, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
    """Sample a text after every prompt, each with its own seed.

    Args:
        lm: A ``dspy.LM``, or a model with its own ``drawn`` method (``JournaledLM``).
        prompts: n prompts, of which several are in flight at the same time.
        seeds: n seeds, for models that take one.
        sampling: Temperature and token limit.

    Raises:
        PromptRefused: The model refuses prompts; the exception holds the answers of the others.
        RequestRefused: The model refuses the settings, and so every prompt.
        Unanswered: A prompt has no answer after DSPy's retries; the exception holds the answers of the others.
    """
    if hasattr(lm, "drawn"):
        texts: list[str] = lm.drawn(prompts, seeds, sampling)
        return texts
    config = lm15.Config(temperature=sampling.temperature, max_tokens=sampling.max_tokens)

    def text(question: tuple[Prompt, int]) -> Conversation[str]:
        prompt, seed = question
        (drawn,) = yield from texts_of(lm, as_messages(prompt), config, [seed], {})
        return drawn

    questions = list(zip(prompts, seeds, strict=True))
    return _held(lm, text, questions, lambda question: (harmless(question[0]), question[1]))


def _held(
    lm: Any, make: Callable[[Item], Conversation[Answer]], items: Sequence[Item], control: Callable[[Item], Item]
) -> list[Answer]:
    """Hold a conversation about every item, several at the same time.

    Args:
        lm: A ``dspy.LM``.
        make: Function from an item to the conversation about it.
        items: Items of the call.
        control: Function from an item to the same one about a harmless text.
    """
    arrived = ARRIVED.get()

    def answer(numbered: tuple[int, Item]) -> Answer:
        number, item = numbered
        with _named_errors(lm):
            found = hold(lm, make(item))
        if arrived is not None:
            arrived(number, found)
        return found

    def explain(numbered: tuple[int, Item], error: Exception) -> None:
        with _named_errors(lm):
            hold(lm, explained(make(control(numbered[1])), error))

    return concurrently(answer, list(enumerate(items)), explain)


@contextmanager
def _named_errors(lm: Any) -> Iterator[None]:
    """Name the model in DSPy's errors; a local model's own error is raised itself, and so is a refused prompt."""
    try:
        yield
    except LMError as error:
        if reason_of(error) is not None:
            raise
        if isinstance(cause := error.__cause__, ValueError):
            raise cause from cause.__cause__  # from ``error`` would be a circle, which ``own_refusal`` follows forever
        denied = error.status in (401, 403) and lm.kwargs.get("api_base")
        remedy = KEY_REMEDY if denied else "Check that the server runs, and its address."
        raise ConnectionError(f"{lm.model} did not answer: {error} {remedy}") from error
    except ModelChanged as error:  # a connection error: the other answers of the call are kept
        raise ConnectionError(f"{lm.model}: {error}.") from error


class ContractLM:
    """Measured choices from a server: one request per prompt, several in flight.

    Texts are sent as they are. The provider applies its own template and tokenizer, so a text that spells a control
    token (``<|im_end|>``) may end its own turn, as it does at the chat endpoints of vLLM, SGLang and llama.cpp;
    ``ServerLM`` protects from it.

    Attributes:
        answering: Names that the answers carry.
    """

    tells_answers = True
    """See ``evalbias.lm.types.ARRIVED``."""

    def __init__(self, lm: Any) -> None:
        self._lm = _Named(lm)
        self.answering = [self._lm.answering]

    def samples(self) -> list[FloatArray]:
        """Return the sample of the answers to a fixed question; none if the model does not report probabilities."""
        try:
            (row,) = np.exp(self.choice_logprobs([SAMPLE_QUESTION], DIGITS).logprobs)
        except (NoProbabilities, PromptRefused, RequestRefused):
            return []
        return [] if np.isnan(row).any() else [sample_of(row)]

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
            PromptRefused: The model refuses prompts; the exception holds the answers of the others.
            RequestRefused: The model refuses the settings, and so every prompt.
            Unanswered: A prompt has no answer after DSPy's retries; the exception holds the answers of the others.
        """

        def judgment(prompt: Prompt) -> Conversation[ChoiceLogprobs]:
            return measured(self._lm, choices, {}, as_messages(prompt))

        rows = _held(self._lm, judgment, prompts, harmless)
        return stacked(rows, choices)

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


class _Named(WrappedLM):
    """A ``dspy.LM`` whose answers must all carry the same model's name."""

    def __init__(self, lm: Any) -> None:
        super().__init__(lm)
        self.answering = Answering()

    def __call__(self, request: lm15.Request, **options: Any) -> lm15.Response:
        ask: Any = self._lm
        response: lm15.Response = ask(request, **options)
        self.answering.check("answer", response.model, response.provider_data or {})
        return response


class SampledLM(WrappedLM):
    """Choices estimated from repeated answers; every other attribute is the wrapped model's.

    Args:
        lm: Model to ask.
        sampling: How often and how it is asked.
    """

    def __init__(self, lm: Any, sampling: Sampling) -> None:
        super().__init__(lm)
        self.sampling = sampling

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the logarithms of the choices' shares of the answers; see ``estimate``."""
        k = self.sampling.samples
        seeds = [seed for prompt in prompts for seed in self.sampling.seeds(prompt)]
        questions = list(zip([prompt for prompt in prompts for _ in range(k)], seeds, strict=True))

        def estimates(texts: Mapping[int, str]) -> dict[int, ChoiceLogprobs]:
            """Return the estimates for the prompts to which all k answers are there."""
            numbers = {i: range(i * k, i * k + k) for i in range(len(prompts))}
            rows = {i: [texts[n] for n in its] for i, its in numbers.items() if all(n in texts for n in its)}
            return dict(zip(rows, estimate(list(rows.values()), choices, k).rows(), strict=True))

        try:
            texts, refused = settled(self._drawn, questions)
        except (Unanswered, Interrupted) as error:
            error.answered = estimates(error.answered)
            raise
        reasons = {number // k: reason for number, reason in reversed(refused.items())}
        answers = estimates(texts)
        if reasons:
            raise PromptRefused(reasons, answers)
        return stacked(list(answers.values()), choices) if answers else estimate([], choices, k)

    def _drawn(self, questions: Sequence[tuple[Prompt, int]]) -> list[str]:
        prompts, seeds = zip(*questions, strict=True)
        return drawn(self._lm, prompts, seeds, self.sampling)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context, which is measured; see ``MeasuringLM``."""
        return measuring(self._lm).loglikelihood(pairs)

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """Generate a text after every prompt; see ``written``."""
        return written(self._lm, prompts, max_tokens=max_tokens)

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sample a text after every prompt; see ``drawn``."""
        return drawn(self._lm, prompts, seeds, sampling)
