"""DSPy's requests and responses, as our engines read and write them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
from dspy import lm15

from evalbias.lm.dspy_compat import non_judgment_properties, request_judgments
from evalbias.lm.judgment import LOGPROBS
from evalbias.lm.types import ChoiceLogprobs, Message

Ask = Callable[[Sequence[Message], tuple[str, ...]], ChoiceLogprobs]


class AsyncEngine:
    """An engine of ours, awaited: each request waits in a thread, where it is gathered with the others."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __deepcopy__(self, memo: dict[int, Any]) -> AsyncEngine:
        """Copies of a program share the model."""
        return self

    async def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer one request."""
        return await asyncio.to_thread(self._engine.complete, request)

    async def stream(self, request: lm15.Request) -> AsyncIterator[Any]:
        """The whole answer as one stream of events."""
        for event in lm15.response_to_events(await self.complete(request)):
            yield event

    async def aclose(self) -> None:
        """Nothing to close: it goes with the engine."""


def judgments(request: lm15.Request) -> dict[str, Any]:
    """The judgments that a request asks for by name; empty where it asks for a text."""
    found: dict[str, Any] = request_judgments(request)
    return found


def refuse(request: lm15.Request, engine: str) -> None:
    """Refuse what our engines cannot do; nothing is dropped.

    Args:
        request: Of DSPy.
        engine: Who refuses.

    Raises:
        lm15.UnsupportedFeatureError: The feature is named.
    """
    config, asked = request.config, judgments(request)
    schema = (config.response_format or {}).get("schema")
    given = {
        "tools": bool(request.tools),
        "config.extensions": bool(config.extensions),
        "config.frequency_penalty": config.frequency_penalty is not None,
        "config.presence_penalty": config.presence_penalty is not None,
        "config.reasoning": config.reasoning is not None,
        "config.response_format": config.response_format is not None and not asked,
        "several judgments in a request": len(asked) > 1,
        "text fields beside a judgment": bool(asked) and bool(non_judgment_properties(schema, asked)),
    }
    for feature, present in given.items():
        if present:
            raise lm15.UnsupportedFeatureError(
                f"{engine} does not support {feature}: leave it out, or ask for it alone."
            )


def messages_of(request: lm15.Request, engine: str) -> list[Message]:
    """A request's system text and turns as messages.

    Raises:
        lm15.UnsupportedFeatureError: A part that is no text.
    """
    system = request.system
    if system is not None and not isinstance(system, str):
        system = "".join(part.text for part in system)
    done: list[Message] = [{"role": "system", "content": system}] if system else []
    for message in request.messages:
        if message.text is None:
            raise lm15.UnsupportedFeatureError(f"{engine} reads text only: leave images and other parts out.")
        done.append({"role": message.role, "content": message.text})
    return done


def measured(request: lm15.Request, messages: list[Message], ask: Ask) -> lm15.Response:
    """The answer to a request for judgments, with the log-probabilities before renormalizing beside it.

    Raises:
        lm15.UnsupportedFeatureError: No choice has any probability, or what they have is not told.
    """
    value, shares, logprobs = {}, {}, {}
    for name, judgment in judgments(request).items():
        found = ask(messages, tuple(judgment.keys))
        row = found.probabilities[0]
        if np.isnan(row).any():
            raise lm15.UnsupportedFeatureError(
                f"{request.model} gives {list(judgment.keys)} no probability, or does not tell it."
            )
        best = judgment.keys[int(row.argmax())]
        value[name] = _value(judgment.kind, best)
        shares[name] = dict(zip(judgment.keys, row.tolist(), strict=True))
        logprobs[name] = dict(zip(judgment.keys, found.logprobs[0].tolist(), strict=True))
    part = lm15.DataPart(value=value, probabilities=shares, method="candidate_sequence_likelihood")
    return lm15.Response(
        id=None,
        model=request.model,
        message=lm15.Message.assistant([part]),
        finish_reason="stop",
        usage=lm15.Usage(input_tokens=None, output_tokens=0, total_tokens=None),
        provider_data={LOGPROBS: logprobs},
    )


def _value(kind: str, key: str) -> Any:
    """A judgment's key as the schema's value."""
    return int(key) if kind == "ordered" else key == "true" if kind == "boolean" else key
