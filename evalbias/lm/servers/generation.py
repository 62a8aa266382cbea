"""Texts that a server's model writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dspy import lm15

from evalbias.lm.servers.chat import Chat
from evalbias.lm.servers.connection import Connection
from evalbias.lm.servers.dialects import logprob_of, part
from evalbias.lm.types import Message

MAX_TOKENS = 256
"""Of a text whose request does not say: as LocalLM."""


async def written_on(
    connection: Connection, model: str, prompt: str | list[int], lead: str, config: lm15.Config
) -> lm15.Response:
    """What follows a prompt; a lead in front of it is taken off."""
    body = {"model": model, "prompt": prompt, **_settings(config, "max_tokens")}
    if config.logprobs is not None:
        body["logprobs"] = config.logprobs
    answer = await connection.post("/v1/completions", body)
    choice = part(answer, "choices", 0)
    logprobs = None
    if config.logprobs is not None:
        found = part(choice, "logprobs")
        tops = found.get("top_logprobs") or [{}] * len(found["tokens"])
        logprobs = tuple(
            _token(token, value, (top or {}).items())
            for token, value, top in zip(found["tokens"], part(found, "token_logprobs"), tops, strict=True)
        )
    return _response(model, answer, part(choice, "text").removeprefix(lead), logprobs)


async def written_in_chat(
    connection: Connection, chat: Chat, model: str, messages: Sequence[Message], config: lm15.Config
) -> lm15.Response:
    """The answer to messages."""
    body = {"model": model, "messages": [dict(m) for m in messages], **_settings(config, chat.limit)}
    if config.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": config.logprobs}
    answer = await connection.post("/v1/chat/completions", body)
    choice = part(answer, "choices", 0)
    logprobs = None
    if config.logprobs is not None:
        logprobs = tuple(
            _token(entry["token"], entry["logprob"], [(t["token"], t["logprob"]) for t in entry["top_logprobs"]])
            for entry in part(choice, "logprobs", "content")
        )
    return _response(model, answer, part(choice, "message").get("content") or "", logprobs)


def _settings(config: lm15.Config, limit: str) -> dict[str, Any]:
    """What a request settles; the server's own defaults hold for the rest."""
    given = {name: getattr(config, name) for name in ("temperature", "top_p", "top_k", "seed")}
    told = {name: value for name, value in given.items() if value is not None}
    if config.stop:
        told["stop"] = list(config.stop)
    return {limit: config.max_tokens or MAX_TOKENS, **told}


def _token(text: str, value: Any, top: Any) -> lm15.TokenLogprob:
    others = tuple(lm15.TopLogprob(token=t, logprob=logprob_of(v)) for t, v in top)
    return lm15.TokenLogprob(token=text, logprob=logprob_of(value), top=others)


def _response(model: str, answer: Any, text: str, logprobs: Any) -> lm15.Response:
    usage = answer.get("usage") or {}
    asked, wrote = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return lm15.Response(
        id=None,
        model=model,
        message=lm15.Message.assistant(text),
        finish_reason="length" if part(answer, "choices", 0).get("finish_reason") == "length" else "stop",
        usage=lm15.Usage(input_tokens=asked, output_tokens=wrote, total_tokens=None),
        logprobs=logprobs,
    )
