"""Finding out, once, what a server can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import openai

from evalbias.lm.servers.chat import Chat
from evalbias.lm.servers.connection import Connection, told
from evalbias.lm.servers.dialects import VLLM, Dialect, Echo, LlamaCpp, SGLang
from evalbias.lm.tokens import Scored

OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp", "me": "echo"}
"""What each kind of server writes as the owner of its models."""

TEXT = "The quick brown fox jumps over 13 lazy dogs: who judges the judges?"


@dataclass(frozen=True)
class Served:
    """A model as a server lists it.

    Attributes:
        listed: Whether it is; some servers list nothing.
        owner: Which kind of server lists it; None where it is not told.
        root: The model's own name or folder; None where it is not told.
        context_length: In tokens; None where it is not told.
        version: Of the server; None where it is not told.
    """

    listed: bool = False
    owner: str | None = None
    root: str | None = None
    context_length: int | None = None
    version: str | None = None


async def served(connection: Connection, model: str) -> Served:
    """What the server tells of the model.

    Raises:
        ValueError: It lists other models only.
        openai.OpenAIError: There was no answer for too long, or the key was refused.
    """
    listed = await connection.get("/v1/models")
    entries = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(entries, list) or not entries:
        return Served()
    known = {str(entry["id"]): entry for entry in entries if isinstance(entry, dict) and "id" in entry}
    if model not in known:
        names = sorted(known)
        raise ValueError(f"The server has no model {model!r}, but {', '.join(names[:10])}{' ...' * (len(names) > 10)}.")
    found = known[model]
    version = await connection.get("/version") if found.get("owned_by") == "vllm" else None
    return Served(
        listed=True,
        owner=OWNERS.get(str(found.get("owned_by"))),
        root=found.get("root"),
        context_length=found.get("max_model_len"),
        version=version.get("version") if isinstance(version, dict) else None,
    )


async def dialect_of(connection: Connection, model: str, tokenizer: Any, *, only: str | None, found: Served) -> Dialect:
    """The first way to ask that the server understands, tried on one short text.

    Args:
        connection: To the server.
        model: As it is served.
        tokenizer: Of the model.
        only: The only way that is tried; None tries all.
        found: The model as it is listed: its owner's way is tried first.

    Raises:
        ValueError: It understands none, tells what cannot be, or has another tokenizer; what it said is told.
        openai.OpenAIError: There was no answer for too long.
    """
    dialects: list[Dialect] = [
        VLLM(connection, model),
        SGLang(connection, model),
        LlamaCpp(connection, model, whole=tokenizer(TEXT)["input_ids"][1]),
        Echo(connection, model, start=_start(tokenizer)),
    ]
    said: dict[str, Exception] = {}
    for dialect in sorted(dialects, key=lambda d: d.name != found.owner):
        if only not in (None, dialect.name):
            continue
        try:
            await _same_tokens(dialect, tokenizer)
            await dialect.check(probe_text(tokenizer), len(tokenizer))
        except WrongTokenizer:
            raise
        except (openai.APIStatusError, ValueError) as error:
            said[dialect.name] = error
        else:
            return dialect
    _check_address(connection, found, *said.values())
    tried = "; ".join(f"as {name}: {told(error)}" for name, error in said.items())
    raise ValueError(
        f"{model} at {connection.base_url} tells no probabilities of given tokens. Tried {tried} "
        "Use vLLM 0.29 or later, SGLang, llama.cpp, or dialect='chat' for the first token's top_logprobs alone."
    )


def _check_address(connection: Connection, found: Served, *errors: Exception) -> None:
    """Refuse an address at which nothing is served.

    Raises:
        ValueError: All that was asked for is not there.
    """
    if not found.listed and all(isinstance(e, openai.APIStatusError) and e.status_code == 404 for e in errors):
        raise ValueError(
            f"Nothing is served at {connection.base_url}: give the address up to /v1, as http://HOST:PORT/v1."
        )


class WrongTokenizer(ValueError):  # noqa: N818 - a value error like the others, named for what it says
    """The server makes other tokens of a text than the tokenizer."""


async def _same_tokens(dialect: Dialect, tokenizer: Any) -> None:
    plain = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    theirs = await dialect.tokens(TEXT)
    if theirs is not None and theirs != plain:
        raise WrongTokenizer(
            f"The server makes the tokens {theirs[:8]}... of a text of which the tokenizer makes {plain[:8]}...: "
            "give the tokenizer of the model that is served."
        )


def probe_text(tokenizer: Any) -> Scored:
    """A short text whose last token is scored."""
    ids = tuple(tokenizer(TEXT)["input_ids"])
    return Scored(ids, len(ids) - 1, TEXT)


def _start(tokenizer: Any) -> str:
    """The text of the token that the tokenizer puts in front of every text; empty where it puts none."""
    plain = len(tokenizer(TEXT, add_special_tokens=False)["input_ids"])
    ids = tokenizer(TEXT)["input_ids"]
    return str(tokenizer.bos_token) if len(ids) > plain and ids[0] == tokenizer.bos_token_id else ""


async def chat_of(connection: Connection, model: str, tolerance: float, found: Served) -> Chat:
    """The server as one that answers chats.

    Raises:
        ValueError: It tells no ``top_logprobs``; what it said is told.
    """
    chat = Chat(connection, model, tolerance=tolerance)
    try:
        await chat.probe()
    except (openai.APIStatusError, ValueError) as error:
        _check_address(connection, found, error)
        raise ValueError(
            f"{model} at {connection.base_url} tells no probabilities in chats ({told(error)}). For a model behind "
            "vLLM, SGLang or llama.cpp give its tokenizer: tokenizer=FOLDER, or --tokenizer."
        ) from error
    return chat
