"""DSPy's requests and responses, as our engines read and write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from dspy import lm15

from evalbias.lm.dspy_compat import non_judgment_properties, request_judgments
from evalbias.lm.judgment import LOGPROBS
from evalbias.lm.tokens import PromptTooLong
from evalbias.lm.types import ChoiceLogprobs, Message, PromptRefused

Ask = Callable[[Sequence[Message], tuple[str, ...]], ChoiceLogprobs]


def judgments(request: lm15.Request) -> dict[str, Any]:
    """Return the judgments that a request asks for, by name; empty if it asks for a text."""
    by_name: dict[str, Any] = request_judgments(request)
    return by_name


def refuse(request: lm15.Request, engine: str) -> None:
    """Refuse a request with a feature that our engines lack, so that nothing is ignored silently.

    Args:
        request: Request from DSPy.
        engine: Name of the engine, for the message.

    Raises:
        lm15.UnsupportedFeatureError: The request uses an unsupported feature; the message names it.
    """
    config, requested = request.config, judgments(request)
    schema = (config.response_format or {}).get("schema")
    features = {
        "tools": bool(request.tools),
        "config.extensions": bool(config.extensions),
        "config.frequency_penalty": config.frequency_penalty is not None,
        "config.presence_penalty": config.presence_penalty is not None,
        "config.reasoning": config.reasoning is not None,
        "config.response_format": config.response_format is not None and not requested,
        "several judgments in a request": len(requested) > 1,
        "text fields beside a judgment": bool(requested) and bool(non_judgment_properties(schema, requested)),
    }
    for feature, used in features.items():
        if used:
            raise lm15.UnsupportedFeatureError(
                f"{engine} does not support {feature}: leave it out, or make a separate request for it."
            )


@contextmanager
def refusals_for_dspy() -> Iterator[None]:
    """Turn the refusal of a prompt into the error that DSPy defines for it.

    Raises:
        lm15.ContextLengthError: The prompt is too long; DSPy raises ``dspy.ContextWindowExceededError``.
        lm15.InvalidRequestError: The prompt is refused for another reason; DSPy raises ``LMInvalidRequestError``.
    """
    try:
        yield
    except PromptRefused as error:
        kind = lm15.ContextLengthError if isinstance(error, PromptTooLong) else lm15.InvalidRequestError
        raise kind(f"The prompt {error.refused[0]}") from error


def messages_of(request: lm15.Request, engine: str) -> list[Message]:
    """Return a request's system text and turns as messages.

    Raises:
        lm15.UnsupportedFeatureError: A message has parts other than text.
    """
    system = request.system
    if system is not None and not isinstance(system, str):
        system = "".join(part.text for part in system)
    done: list[Message] = [{"role": "system", "content": system}] if system else []
    for message in request.messages:
        if message.text is None:
            raise lm15.UnsupportedFeatureError(f"{engine} reads text only: leave out images and other parts.")
        done.append({"role": message.role, "content": message.text})
    return done


def measured(request: lm15.Request, messages: list[Message], ask: Ask) -> lm15.Response:
    """Answer a request for judgments; the response also holds the log-probabilities before renormalizing.

    Args:
        request: Request for judgments.
        messages: Messages of the request.
        ask: Function that returns the log-probabilities of choices after messages.

    Raises:
        lm15.UnsupportedFeatureError: All choices have probability 0, or the model does not report their probabilities.
    """
    value, shares, logprobs = {}, {}, {}
    for name, judgment in judgments(request).items():
        answer = ask(messages, tuple(judgment.keys))
        row = answer.probabilities[0]  # (c,)
        if np.isnan(row).any():
            raise lm15.UnsupportedFeatureError(
                f"{request.model} gives {list(judgment.keys)} no probability, or does not report it: use other choices."
            )
        best = judgment.keys[int(row.argmax())]
        value[name] = _value(judgment.kind, best)
        shares[name] = dict(zip(judgment.keys, row.tolist(), strict=True))
        if not answer.renormalized:
            logprobs[name] = dict(zip(judgment.keys, answer.logprobs[0].tolist(), strict=True))
    part = lm15.DataPart(value=value, probabilities=shares, method="candidate_sequence_likelihood")
    return lm15.Response(
        id=None,
        model=request.model,
        message=lm15.Message.assistant([part]),
        finish_reason="stop",
        usage=lm15.Usage(input_tokens=None, output_tokens=0, total_tokens=None),
        provider_data={LOGPROBS: logprobs} if logprobs else {},
    )


def _value(kind: str, key: str) -> Any:
    """Return a judgment's key as the value of its schema type."""
    return int(key) if kind == "ordered" else key == "true" if kind == "boolean" else key
