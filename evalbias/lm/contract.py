"""Measured answers from any DSPy model: asked through DSPy's contract, or estimated from samples."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import dspy
import numpy as np
from dspy import lm15
from dspy.utils.exceptions import ContextWindowExceededError, LMError, LMInvalidRequestError, LMUnsupportedFeatureError

from evalbias.lm.dspy_seam import (
    ERRORS,
    chat_request,
    first_token_request,
    is_measured,
    judgment_request,
    own_refusal,
    read_first_token,
    read_judgment,
    reason_of,
    trial_after,
    without_truncation_warning,
)
from evalbias.lm.errors import KEY_REMEDY
from evalbias.lm.fingerprint import DIGITS, SAMPLE_QUESTION, Answering, sample_of
from evalbias.lm.reading import TOP, named_choice
from evalbias.lm.types import (
    ARRIVED,
    ChoiceLogprobs,
    Interrupted,
    LogLikelihood,
    MeasuringLM,
    Message,
    ModelChanged,
    NoProbabilities,
    Prompt,
    PromptRefused,
    RequestRefused,
    Unanswered,
    WrappedLM,
    as_messages,
    harmless,
    settled,
    stacked,
)
from evalbias.measures.arrays import FloatArray
from evalbias.values import digest

# Conversations with a ``dspy.LM``: the requests of one answer, held one after another or many at the same time.
#
# A *conversation* is a generator that yields the calls to make at the same time and gets their responses, or the error
# of one of them. ``hold`` and ``ahold`` make the calls, so that each conversation is written once for both.


Item = TypeVar("Item")
Answer = TypeVar("Answer")

IN_FLIGHT = 16
"""Number of simultaneous requests to a model behind DSPy's own engines."""


@dataclass(frozen=True)
class Call:
    """One call of a model: the request, and DSPy's own options (``cache``, ``rollout_id``)."""

    request: lm15.Request
    options: dict[str, Any]


Conversation = Generator[list[Call], list[lm15.Response], Answer]


def tried(
    make: Callable[[Sequence[Message]], Conversation[Answer]], messages: Sequence[Message]
) -> Conversation[Answer]:
    """Hold a conversation; if it is refused, find out by a harmless text whether the messages are to blame.

    Args:
        make: Function from messages to the conversation about them.
        messages: Messages of the prompt.

    Raises:
        PromptRefused: The model refuses the messages.
        RequestRefused: The model refuses the harmless text too.
    """
    try:
        return (yield from make(messages))
    except ERRORS as error:
        if reason_of(error) is None:
            raise
        refusal = error
    yield from explained(make(as_messages(harmless(messages))), refusal)
    raise PromptRefused({0: str(reason_of(refusal))}, names={0: "The prompt"}) from refusal


def explained(control: Conversation[Any], refusal: Exception) -> Conversation[None]:
    """Return if the prompt is to blame for a refusal: the same conversation about a harmless text is answered.

    A refusal by one of our own engines is known to be about the prompt.

    Raises:
        NoProbabilities: The model reports no probabilities for the harmless text either.
        RequestRefused: The model refuses the harmless text too.
    """
    if own_refusal(refusal) is None:
        with trial_after(refusal):
            yield from control


def hold(lm: Any, conversation: Conversation[Answer]) -> Answer:
    """Make a conversation's calls, several at the same time, and return its answer.

    Raises:
        LMError: A call failed.
    """

    def respond(call: Call) -> lm15.Response:
        with without_truncation_warning():
            return lm(call.request, **call.options)

    try:
        calls = next(conversation)
        while True:
            try:
                responses = [respond(calls[0])] if len(calls) == 1 else concurrently(respond, calls)
            except (LMError, lm15.LM15Error) as error:
                calls = conversation.throw(error)
            else:
                calls = conversation.send(responses)
    except StopIteration as end:
        answer: Answer = end.value
        return answer


async def ahold(lm: Any, conversation: Conversation[Answer]) -> Answer:
    """Make a conversation's calls asynchronously; see ``hold``."""
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def respond(call: Call) -> lm15.Response:
        async with slots:
            with without_truncation_warning():
                return await lm.acall(call.request, **call.options)

    try:
        calls = next(conversation)
        while True:
            try:
                responses = await asyncio.gather(*map(respond, calls))
            except (LMError, lm15.LM15Error) as error:
                calls = conversation.throw(error)
            else:
                calls = conversation.send(responses)
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def concurrently(
    ask: Callable[[Item], Answer],
    items: Sequence[Item],
    explain: Callable[[Item, Exception], None] | None = None,
) -> list[Answer]:
    """Ask for every item in DSPy's context, several at the same time; after an error or an interrupt no more are sent.

    Args:
        ask: Function from an item to its answer.
        items: Items of the call.
        explain: Function that is called with the first item that may be refused and its error, and raises an error if
            other items would be refused too; see ``explained``. None treats a refusal as any other error.

    Raises:
        PromptRefused: Items are refused; the others are answered.
        Unanswered: There was a connection error; the exception holds the other items' answers.
        Interrupted: The user interrupted the call; requests in flight are not waited for.
        Exception: The first other error.
    """
    pool = ThreadPoolExecutor(IN_FLIGHT)
    futures: list[Future[Answer]] = []
    error, refused = None, {}
    try:
        for item in items:  # starting threads takes a while on a busy machine, in which the user may interrupt too
            futures.append(pool.submit(copy_context().run, ask, item))
        try:
            refused = _refused(futures, items, explain)
        except Exception as first:
            error = first
        pool.shutdown(cancel_futures=True)
    except KeyboardInterrupt as interrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise Interrupted(_answers(futures)) from interrupt
    if isinstance(error, ConnectionError):
        kind = RequestRefused if isinstance(error, RequestRefused) else Unanswered
        raise kind(str(error), _answers(futures)) from error
    if error is not None:
        raise error
    if refused:
        raise PromptRefused(refused, _answers(futures))
    return [future.result() for future in futures]


def _refused(
    futures: Sequence[Future[Answer]], items: Sequence[Item], explain: Callable[[Item, Exception], None] | None
) -> dict[int, str]:
    """Wait for all answers, and return why items are refused.

    Raises:
        Exception: The first error that is not about an item.
    """
    refused: dict[int, str] = {}
    for number, (item, future) in enumerate(zip(items, futures, strict=True)):
        error = future.exception()
        if error is None:
            continue
        reason = reason_of(error)
        if reason is None or explain is None or not isinstance(error, Exception):
            raise error
        if not refused:
            explain(item, error)
        refused[number] = reason
    return refused


def _answers(futures: Sequence[Future[Answer]]) -> dict[int, Answer]:
    """Return the answers that have arrived, by the index of their item."""
    ended = {i: f for i, f in enumerate(futures) if f.done() and not f.cancelled()}
    return {i: f.result() for i, f in ended.items() if f.exception() is None}


# Estimates of a model's probabilities from repeated answers, for models that report none.


MOST_SAMPLES, MOST_TOKENS = 10_000, 1_000_000
"""Limits of what a file of settings can make a judge ask for."""


@dataclass(frozen=True)
class Sampling:
    """Settings for asking a model the same question repeatedly, to estimate the probabilities of its answers.

    Args:
        samples: Number k of answers, at least 2. A share p of them has the standard error ``sqrt(p (1 - p) / k)``.
        temperature: Sampling temperature, greater than 0. 1 estimates the model's own probabilities; the model's
            defaults apply to other sampling settings, such as ``top_p``.
        max_tokens: Token limit of each answer; models that reason before they answer need a high one.
        seed: Seed of the answers. Models that take a seed give the same answers again.

    Raises:
        ValueError: A value is outside its range.
    """

    samples: int = 20
    temperature: float = 1.0
    max_tokens: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if not (2 <= self.samples <= MOST_SAMPLES and self.temperature > 0 and 1 <= self.max_tokens <= MOST_TOKENS):
            raise ValueError(
                f"{self} cannot be drawn: give 2 to {MOST_SAMPLES} samples, a temperature above 0, and a limit of 1 to "
                f"{MOST_TOKENS} tokens."
            )

    def seeds(self, prompt: Prompt, rollout_id: int | None = None) -> list[int]:
        """Return one seed for each answer to a prompt; different prompts and rollouts have different seeds."""
        key = digest([prompt, self.seed, rollout_id], 16)
        return [int(seed) for seed in np.random.default_rng(int(key, 16)).integers(2**31, size=self.samples)]


def estimate(rows: Sequence[Sequence[str]], choices: Sequence[str], samples: int) -> ChoiceLogprobs:
    """Estimate the probabilities of choices after n prompts as their shares of the answers.

    Args:
        rows: The k answers to each of n prompts.
        choices: Texts of the choices; see ``named_choice`` for how an answer is read.
        samples: Number k of answers to each prompt.

    Returns:
        Logarithms of the shares, shape (n, c), -inf where no answer names the choice. Answers that name no choice count
        in k, so that the coverage is the share of readable answers.

    Example:
        >>> answer = estimate([["A", "B.", "A", "Both."]], ["A", "B"], 4)
        >>> answer.coverage, answer.probabilities.round(3)
        (array([0.75]), array([[0.667, 0.333]]))
    """
    counts = [Counter(named_choice(text, choices) for text in row) for row in rows]
    shares = np.array([[count[choice] / samples for choice in choices] for count in counts]).reshape(-1, len(choices))
    with np.errstate(divide="ignore"):  # a choice that was never drawn
        return ChoiceLogprobs(tuple(choices), np.log(shares), samples=samples)


# One judgment of any ``dspy.LM``, measured or estimated, in as many requests as the model needs.


TOPS = (TOP, 5)
"""Numbers of first tokens to ask for, in turn: some providers refuse more than 5."""

PLAIN_TOKENS = 16
"""Token limit of an answer that shows whether a model takes a prompt at all; some refuse lower ones."""

UNSUPPORTED = (LMUnsupportedFeatureError, lm15.UnsupportedFeatureError)
"""A model's refusal of a feature: through DSPy's execution, and from a subclass of ``dspy.BaseLM``."""

REFUSED = (*UNSUPPORTED, LMInvalidRequestError, lm15.InvalidRequestError)


def ask(
    lm: Any, messages: Sequence[Message], choices: Sequence[str], sampling: Sampling | None = None, **options: Any
) -> ChoiceLogprobs:
    """Return the log-probabilities of choices after messages, shape (1, c).

    Args:
        lm: Any ``dspy.LM``.
        messages: Messages of the prompt.
        choices: Texts of the choices.
        sampling: Estimate the probabilities from repeated answers; None measures them.
        **options: DSPy's own options of a call: ``cache`` and ``rollout_id``.

    Raises:
        NoProbabilities: The model reports no probabilities.
        PromptRefused: The model refuses the prompt, for example because it is too long.
        RequestRefused: The model refuses the settings, or does not exist.
    """
    return hold(lm, tried(partial(_judgment, lm, choices, sampling, options), messages))


async def aask(
    lm: Any, messages: Sequence[Message], choices: Sequence[str], sampling: Sampling | None = None, **options: Any
) -> ChoiceLogprobs:
    """Return the log-probabilities of choices after messages asynchronously; see ``ask``."""
    return await ahold(lm, tried(partial(_judgment, lm, choices, sampling, options), messages))


def write(lm: Any, messages: Sequence[Message], config: lm15.Config, **options: Any) -> str:
    """Generate a text after messages; arguments and errors are those of ``ask``."""
    return hold(lm, tried(partial(text_after, lm, config, options), messages))


async def awrite(lm: Any, messages: Sequence[Message], config: lm15.Config, **options: Any) -> str:
    """Generate a text after messages asynchronously; see ``write``."""
    return await ahold(lm, tried(partial(text_after, lm, config, options), messages))


def text_after(lm: Any, config: lm15.Config, options: dict[str, Any], messages: Sequence[Message]) -> Conversation[str]:
    """Ask for a text after messages."""
    (response,) = yield [Call(chat_request(str(lm.model), messages, config), options)]
    return response.text or ""


def _judgment(
    lm: Any, choices: Sequence[str], sampling: Sampling | None, options: dict[str, Any], messages: Sequence[Message]
) -> Conversation[ChoiceLogprobs]:
    if sampling is None:
        return measured(lm, choices, options, messages)
    return _sampled(lm, messages, choices, sampling, options)


def measured(
    lm: Any, choices: Sequence[str], options: dict[str, Any], messages: Sequence[Message]
) -> Conversation[ChoiceLogprobs]:
    """Ask for a measured judgment; a model that measures none is asked for its most probable first tokens."""
    model = str(lm.model)
    try:
        (response,) = yield [Call(judgment_request(model, messages, choices), options)]
        if is_measured(response) or isinstance(lm, MeasuringLM):
            return read_judgment(response, choices)
    except UNSUPPORTED:
        if isinstance(lm, MeasuringLM):  # its own refusal is about these choices
            raise
    for top in TOPS:
        try:
            (response,) = yield [Call(first_token_request(model, messages, top), options)]
        except (ContextWindowExceededError, lm15.ContextLengthError):
            raise
        except REFUSED as error:
            refusal = error
        else:
            return read_first_token(response, choices)
    try:  # a model that reports no log-probabilities answers without them
        yield [Call(chat_request(model, messages, lm15.Config(max_tokens=PLAIN_TOKENS)), options)]
    except REFUSED:
        raise refusal from refusal.__cause__
    raise NoProbabilities(model, f"it refuses to report them ({refusal})") from refusal


def _sampled(
    lm: Any, messages: Sequence[Message], choices: Sequence[str], sampling: Sampling, options: dict[str, Any]
) -> Conversation[ChoiceLogprobs]:
    """Ask for the same answer k times."""
    seeds = sampling.seeds(list(messages), options.get("rollout_id"))
    config = lm15.Config(temperature=sampling.temperature, max_tokens=sampling.max_tokens)
    texts = yield from texts_of(lm, messages, config, seeds, options)
    return estimate([texts], choices, sampling.samples)


def texts_of(
    lm: Any, messages: Sequence[Message], config: lm15.Config, seeds: Sequence[int], options: dict[str, Any]
) -> Conversation[list[str]]:
    """Ask for one text per seed. A model that takes no seed is asked without one, past DSPy's cache all the same."""
    request = chat_request(str(lm.model), messages, config)
    try:
        responses = yield [
            Call(replace(request, config=replace(config, seed=seed)), {**options, "rollout_id": seed}) for seed in seeds
        ]
    except UNSUPPORTED:
        responses = yield [Call(request, {**options, "rollout_id": seed}) for seed in seeds]
    return [response.text or "" for response in responses]


# Any ``dspy.LM`` as a ``MeasuringLM`` with choices but no likelihoods.


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
