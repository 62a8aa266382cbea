"""Find out, once, which model a server serves and which dialect it speaks, and whether several servers agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalbias.lm.fingerprint import same_sample
from evalbias.lm.servers.connection import Connection
from evalbias.lm.servers.dialects import DIALECTS
from evalbias.lm.servers.dialects.base import Dialect, Endpoint
from evalbias.lm.servers.dialects.tokenized import WrongTokenizer
from evalbias.lm.servers.errors import NotJSON, StatusError, describe_error, is_denied, is_missing
from evalbias.lm.types import NoProbabilities
from evalbias.measures.arrays import FloatArray


@dataclass(frozen=True)
class Served:
    """A model as a server lists it.

    Attributes:
        listed: Whether the model is listed; some servers list nothing.
        owner: Dialect of the server according to ``owned_by``; None if it does not say.
        root: The model's original name or folder; None if it is not given.
        context_length: Longest sequence in tokens; None if it is not given.
        version: Version of the server; None if it is not given.
    """

    listed: bool = False
    owner: type[Dialect] | None = None
    root: str | None = None
    context_length: int | None = None
    version: str | None = None


async def read_listing(connection: Connection, model: str) -> Served:
    """Read what the server lists about a model.

    Raises:
        ValueError: The server lists other models only.
        RequestError: The server did not answer in time, or rejected the key.
    """
    listing = await connection.get("/v1/models")
    entries = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(entries, list) or not entries:
        return Served()
    models = {str(entry["id"]): entry for entry in entries if isinstance(entry, dict) and "id" in entry}
    if model not in models:
        names = sorted(models)
        raise ValueError(
            f"The server at {connection.base_url} does not serve {model!r}, only "
            f"{', '.join(names[:10]):.500}{' ...' * (len(names) > 10)}."
        )
    entry = models[model]
    owner = next((d for d in DIALECTS if d.owned_by is not None and d.owned_by == entry.get("owned_by")), None)
    version = await connection.get(owner.version_path) if owner and owner.version_path else None
    return Served(
        listed=True,
        owner=owner,
        root=_typed(entry, "root", str),
        context_length=_typed(entry, "max_model_len", int),
        version=_typed(version, "version", str),
    )


def together(listings: Sequence[Served]) -> Served:
    """Return several servers' listings of one model as one: the shortest context, and every version."""
    contexts = [served.context_length for served in listings if served.context_length is not None]
    versions = sorted({served.version for served in listings if served.version is not None})
    return replace(
        listings[0], context_length=min(contexts, default=None), version=", ".join(versions) if versions else None
    )


def check_alike(connections: Sequence[Connection], dialects: Sequence[Dialect], samples: Sequence[FloatArray]) -> None:
    """Check that several servers serve the same model.

    Args:
        connections: Connection to each server.
        dialects: Dialect of each server.
        samples: Log-probabilities of a fixed text from each server; see ``Dialect.sample``.

    Raises:
        ValueError: Two servers speak different dialects, or give a text other probabilities.
    """
    for connection, dialect, sample in zip(connections, dialects, samples, strict=True):
        if dialect.name != dialects[0].name:
            difference = f"is a {dialect.name} server, {connections[0].base_url} a {dialects[0].name} server"
        elif not same_sample(sample, samples[0]):
            difference = f"gives a text other probabilities than {connections[0].base_url}"
        else:
            continue
        raise ValueError(f"{connection.base_url} {difference}: give the addresses of servers of one model.")


async def find_dialect(endpoint: Endpoint, served: Served, *, only: str | None) -> Dialect:
    """Return the first dialect that the server speaks, tried on one short text.

    Without a tokenizer only dialects that need none are tried.

    Args:
        endpoint: Model and server.
        served: The model's listing; the dialect that it names is tried first.
        only: Name of the only dialect to try; None tries all.

    Raises:
        NoProbabilities: The server speaks none of the dialects.
        ValueError: No model is served at the address, the server contradicts itself, or it has another tokenizer.
        RequestError: The server did not answer in time, or denies access.
    """
    dialects = [
        dialect
        for dialect in sorted(DIALECTS, key=lambda d: d is not served.owner)
        if dialect.needs_tokenizer is (endpoint.tokenizer is not None) and only in (None, dialect.name)
    ]
    errors: dict[str, Exception] = {}
    for dialect in dialects:
        try:
            return await dialect.probe(endpoint)
        except WrongTokenizer:
            raise
        except (StatusError, NotJSON, ValueError) as error:
            errors[dialect.name] = error
    for failure in errors.values():
        if is_denied(failure):
            raise failure
    url = endpoint.connection.base_url
    page = next((error for error in errors.values() if isinstance(error, NotJSON)), None)
    if page is not None and not served.listed:
        raise page
    if not served.listed and all(map(is_missing, errors.values())):
        raise ValueError(f"No model is served at {url}: give the address up to /v1, as http://HOST:PORT/v1.")
    attempts = "; ".join(f"as {name}: {describe_error(error).rstrip('.')}" for name, error in errors.items())
    remedy = (
        "For a model behind vLLM, SGLang or llama.cpp give its tokenizer: tokenizer=FOLDER, or --tokenizer"
        if endpoint.tokenizer is None
        else "Use vLLM 0.29 or later, SGLang or llama.cpp, dialect='chat' for the top_logprobs of first tokens, or "
        "dialect='systemone' or 'decisions' for a server that answers closed questions"
    )
    raise NoProbabilities(f"{endpoint.model} at {url}", f"tried {attempts}. {remedy}")


def _typed(values: Any, name: str, kind: type) -> Any:
    """Return a value that a server need not give; None if it is missing or of another type."""
    value = values.get(name) if isinstance(values, dict) else None
    return value if isinstance(value, kind) else None
