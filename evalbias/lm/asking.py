"""One judgment of any ``dspy.LM``, measured or estimated, in as many requests as the model needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dspy import lm15
from dspy.utils.exceptions import (
    ContextWindowExceededError,
    LMInvalidRequestError,
    LMUnsupportedFeatureError,
)

from evalbias.lm.conversation import Call, Conversation, ahold, hold, tried
from evalbias.lm.judgment import (
    chat_request,
    first_token_request,
    is_measured,
    judgment_request,
    read_first_token,
    read_judgment,
)
from evalbias.lm.sampled_answers import Sampling, estimate
from evalbias.lm.top_logprobs import TOP
from evalbias.lm.types import (
    ChoiceLogprobs,
    MeasuringLM,
    Message,
    NoProbabilities,
)

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
