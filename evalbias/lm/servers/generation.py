"""DSPy's generation requests and responses in OpenAI's protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dspy import lm15

from evalbias.lm.servers.answers import logprob_of, part
from evalbias.lm.servers.errors import Unreadable

MAX_TOKENS = 256
"""Token limit of a request that sets none; the same as ``LocalLM``'s."""


def sampling(config: lm15.Config, limit: str) -> dict[str, Any]:
    """Return a request's sampling settings; the server's defaults apply to those that the request leaves out.

    Args:
        config: Settings of the DSPy request.
        limit: Name under which the server takes the token limit.
    """
    values = {name: getattr(config, name) for name in ("temperature", "top_p", "top_k", "seed")}
    settings = {name: value for name, value in values.items() if value is not None}
    if config.stop:
        settings["stop"] = list(config.stop)
    return {limit: config.max_tokens or MAX_TOKENS, **settings}


def token_logprob(text: str, value: Any, alternatives: Iterable[tuple[str, Any]]) -> lm15.TokenLogprob:
    """Return a generated token with its log-probability and those of the (text, log-probability) alternatives."""
    top = tuple(lm15.TopLogprob(token=other, logprob=logprob_of(v)) for other, v in alternatives)
    return lm15.TokenLogprob(token=part(text, kind=str), logprob=logprob_of(value), top=top)


def response(model: str, answer: Any, text: str, logprobs: tuple[lm15.TokenLogprob, ...] | None) -> lm15.Response:
    """Return a server's answer as DSPy's response."""
    usage = {} if answer.get("usage") is None else part(answer, "usage", kind=dict)
    return lm15.Response(
        id=None,
        model=model,
        message=lm15.Message.assistant(text),
        finish_reason="length" if part(answer, "choices", 0, kind=dict).get("finish_reason") == "length" else "stop",
        usage=lm15.Usage(
            input_tokens=_count(usage, "prompt_tokens"),
            output_tokens=_count(usage, "completion_tokens"),
            total_tokens=None,
        ),
        logprobs=logprobs,
    )


def _count(usage: dict[str, Any], name: str) -> int | None:
    """Return a number of tokens; None if the server does not report it."""
    if usage.get(name) is None:
        return None
    count: int = part(usage, name, kind=int)
    if count < 0:
        raise Unreadable(f"{name} is {count}")
    return count
