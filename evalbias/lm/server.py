"""``ServerLM``: a model behind a server, or several, as a ``dspy.LM`` with token probabilities."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dspy import lm15

from evalbias.lm import transport, types
from evalbias.lm.calls import Call, harmless
from evalbias.lm.decisions import DecidingLM, by_state
from evalbias.lm.dialect import Dialect, Endpoint, WrongTokenizer
from evalbias.lm.dialects import DIALECTS
from evalbias.lm.dspy_seam import AsyncEngine, Engine, question_of, response_of, usage_reported
from evalbias.lm.fingerprint import Answering, same_sample
from evalbias.lm.load import load_tokenizer
from evalbias.lm.reading import Withheld
from evalbias.lm.render import Prepared, template_of
from evalbias.lm.saved import SavedLM
from evalbias.lm.types import CHUNK, STATUSES, Answers, MeasuringLM, ModelChanged, Question, Refused, Unanswered
from evalbias.measures.arrays import FloatArray
from evalbias.values import get_logger

Result = TypeVar("Result")


class ServerLM(DecidingLM, SavedLM, MeasuringLM):
    """A model behind a server: vLLM, SGLang, llama.cpp, or OpenAI.

    With the model's tokenizer, prompts are rendered and tokenized here exactly as by ``LocalLM``, so both return the
    same numbers. Without it, only the first token of a chat answer has probabilities (``dialect="chat"``), or the
    server words closed questions itself and answers with probabilities (``"systemone"``, ``"decisions"``). DSPy's
    decision outputs (``Noul``, ``Choice``, ``Score``) get measured probabilities; see ``DecidingLM``.

    Several servers of one model share a call: each answers a contiguous share of the sorted prompts, so that prompts
    that begin alike mostly meet in one server's cache. A server that fails leaves only its own share unanswered.

    Args:
        model: Name under which the server serves the model.
        base_url: Address of the server, ending in ``/v1``, or addresses of several servers of the same model.
        tokenizer: Folder or Hugging Face name of the model's tokenizer. None uses the name that the server lists.
        dialect: ``"vllm"``, ``"sglang"``, ``"llama.cpp"``, ``"chat"``, ``"systemone"`` or ``"decisions"``;
            ``"auto"`` determines it once, when the object is made, and ``capabilities`` names it.
        api_key: None reads ``EVALBIAS_API_KEY``, and at OpenAI's, TypeSafe's and Cloudflare's own addresses their
            ``OPENAI_API_KEY``, ``TYPESAFE_API_KEY`` and ``CLOUDFLARE_API_TOKEN`` in its place. Over plain http the key
            is sent to this machine only. It is never written to a file.
        in_flight: Number of simultaneous requests to each server; the attribute counts all servers together.
        timeout: Time limit in seconds of a single attempt.
        patience: Time in seconds for which a failing request is retried with backoff; at most 10 for the first request.
        template_options: Values of the chat template's variables, as for ``LocalLM``, where prompts are rendered here.
        **kwargs: Options of ``dspy.LM``: ``temperature``, ``max_tokens`` and others.

    Raises:
        ConnectionError: The server does not answer, answers with a web page, or rejects the key.
        ValueError: The server does not serve the model, has another tokenizer, or returns no probabilities; the
            dialect is unknown, or the chat template lacks an option. Or several servers differ in dialect or weights.
    """

    engine: ServerEngine
    draws_by_seed = True  # a server repeats a draw as far as its batches give the same numbers
    answers_alone = True

    def __init__(
        self,
        model: str,
        *,
        base_url: str | Sequence[str],
        tokenizer: str | None = None,
        dialect: str = "auto",
        api_key: str | None = None,
        in_flight: int = 64,
        timeout: float = 120.0,
        patience: float = 300.0,
        template_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        addresses = [base_url] if isinstance(base_url, str) else list(dict.fromkeys(base_url))
        if not addresses:
            raise ValueError("base_url is empty: give the address of at least one server.")
        self._arguments = {
            "base_url": addresses[0] if len(addresses) == 1 else addresses,
            "tokenizer": tokenizer,
            "dialect": dialect,
            "in_flight": in_flight,
            "timeout": timeout,
            "patience": patience,
            "template_options": template_options,
        }
        self._served_name = model
        self.in_flight = in_flight * len(addresses)
        self.chunk = max(CHUNK, 8 * self.in_flight)  # a server with many in flight idles at the end of a call
        kinds = [kind for kind in DIALECTS if dialect in ("auto", kind.name)]
        if not kinds:
            names = [kind.name for kind in DIALECTS]
            raise ValueError(f"dialect={dialect!r} is unknown: use 'auto' or one of {names}.")
        key = transport.key_for(addresses, api_key)
        pool = transport.Pool(api_key=key, in_flight=in_flight, timeout=timeout, patience=patience)
        # 1. Each server lists the model; the shortest context length applies to all.
        connections = [transport.Connection(address, pool) for address in addresses]
        listings = [_run(pool, connection, model, read_listing(connection, model)) for connection in connections]
        contexts = [served.context_length for served in listings if served.context_length is not None]
        versions = sorted({served.version for served in listings if served.version is not None})
        self._root, self._version = listings[0].root, ", ".join(versions)
        # 2. The dialect of each server is determined by trying.
        loaded = _tokenizer(model, tokenizer, kinds, listings[0])
        template = template_of(loaded, template_options)
        tokens = None if loaded is None else f"{loaded.backend_tokenizer.to_str()} {template and template.key}"
        self._tokenizer_digest = tokens and hashlib.sha256(tokens.encode()).hexdigest()[:12]
        dialects: list[Dialect] = []
        for connection, served in zip(connections, listings, strict=True):
            context = min(contexts, default=None)
            endpoint = Endpoint(connection, model, loaded, context, template_options, served.owned_by)
            dialects.append(_run(pool, connection, model, find_dialect(endpoint, served, kinds)))
        if len(dialects) > 1:
            check_alike(dialects, [_run(pool, dialect.connection, model, dialect.sample()) for dialect in dialects])
        engine = ServerEngine(dialects, pool, model)
        # DSPy's cache would know the model by a name that any server may give to any weights.
        kwargs.setdefault("cache", False)
        super().__init__(f"server/{model}", engine=engine, async_engine=AsyncEngine(engine), **kwargs)
        get_logger(__name__).info("%s: %s", model, self.capabilities)

    @property
    def decides(self) -> bool:  # type: ignore[override]
        """True if the server takes closed questions in their own form."""
        return bool(self.engine.dialects[0].decides)

    @property
    def capabilities(self) -> str:
        """Description of what the server returns, such as ``"vllm 0.29: choices and likelihoods, ..."``."""
        dialect, *others = self.engine.dialects
        servers = f" on {1 + len(others)} servers" if others else ""
        return f"{dialect.name} {self._version}".strip() + f"{servers}: {dialect.capabilities}"

    @usage_reported
    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        self.engine.answer(questions, answers)

    def samples(self) -> list[FloatArray]:
        """Return log-probabilities of a fixed text from each server, which reveal other weights under the same name.

        Servers that fail are left out; ConnectionError if none answers, ModelChanged if an answer names another model.
        """
        engine, samples = self.engine, []
        for dialect in engine.dialects:
            try:
                samples.append(_run(engine.pool, dialect.connection, self._served_name, dialect.sample()))
            except ConnectionError as error:
                failure = error
        if not samples:
            raise failure
        return samples

    @property
    def answering(self) -> list[Answering]:
        """Names in each server's answers; empty if a file's name may replace them: then the weights identify it."""
        return [dialect.answering for dialect in self.engine.dialects if not dialect.needs_tokenizer]

    def provenance(self) -> dict[str, str]:
        names = [name for server in self.answering for name in server.models]
        settings = {
            "model": self.model,
            "root": self._root,
            "server": self.engine.dialects[0].name,
            "version": self._version,
            "tokenizer": self._tokenizer_digest,
            "answered_by": ", ".join(sorted({*names})) if self.decides else "",
        }
        return {name: value for name, value in settings.items() if value}

    def saved_arguments(self) -> dict[str, Any]:
        return {**self._arguments, "model": self._served_name}


class ServerEngine(Engine):
    """The engine of ``ServerLM``, with the same tested dialect for each of the model's servers, at least one."""

    def __init__(self, dialects: Sequence[Dialect], pool: transport.Pool, model: str) -> None:
        self.dialects, self.pool, self._model = tuple(dialects), pool, model

    def answer(self, questions: Sequence[Question], answers: Answers) -> None:
        self.pool.run(self._begun(questions, answers))

    def _begun(self, questions: Sequence[Question], answers: Answers) -> Coroutine[Any, Any, None]:
        """Prepare the questions in this thread; return the coroutine that asks them on the event loop."""
        # 1. Questions that the model cannot take are answered before anything is sent.
        most = min(dialect.most_questions for dialect in self.dialects)
        questions, answers = by_state(questions, answers, most)
        prepared = dict(enumerate(self.dialects[0].prepared(questions)))
        for place, refused in prepared.items():
            if isinstance(refused, Refused):
                answers[place] = refused
        todo = {place: entry for place, entry in prepared.items() if isinstance(entry, Prepared)}
        # 2. Each server gets a contiguous share of the sorted questions: common prefixes stay together.
        order, servers = sorted(todo, key=lambda place: todo[place].key), len(self.dialects)
        share = {place: number * servers // len(order) for number, place in enumerate(order)}
        began: dict[int, float] = {}

        async def ask(place: int) -> Any:
            began[place] = time.monotonic()
            return await self.dialects[share[place]].ask(todo[place])

        async def control(place: int) -> Any:
            (trial,) = self.dialects[0].prepared([harmless(questions[place])])
            return trial if isinstance(trial, Refused) else await self.dialects[share[place]].ask(trial)

        def fatal(place: int, error: Exception) -> bool:
            """Return whether the server refuses everything, or has given no answer since the request began."""
            if not isinstance(error, transport.RequestError):
                return isinstance(error, ModelChanged)
            silent = self.dialects[share[place]].connection.last_answer < began[place]
            return error.denied or error.missing or (error.transient and silent)

        call = Call(ask, answers, control=control, refusal=self._refusal, fatal=fatal)

        # 3. All servers are asked at the same time.
        async def run() -> None:
            shares = [[place for place in order if share[place] == server] for server in range(servers)]
            try:
                await asyncio.gather(*(call.run(some, at_once=self.pool.in_flight) for some in shares if some))
            finally:
                call.over = True  # if an answer cannot be kept, no server is asked further
            if not call.failed:
                return
            place = min(call.failed)
            error = call.failed[place]
            text = (
                f"{self._model} did not answer item {place} of {len(questions)} ({len(answers)} answered, "
                f"{len(call.failed)} failed): {transport.describe_error(error)}"
            )
            if call.settings_refused:
                text = f"{text.rstrip('.')}. A harmless text with the same settings is refused too: change them."
                raise types.RequestRefused(text) from error
            raise Unanswered(text) from error

        return run()

    def _refusal(self, error: Exception) -> Refused | None:
        if isinstance(error, Withheld) or (isinstance(error, transport.StatusError) and error.status in STATUSES):
            return Refused(f"is refused by {self._model}: {transport.describe_error(error).rstrip('.')}.")
        return None

    def complete(self, request: lm15.Request) -> lm15.Response:
        answers: dict[int, Any] = {}
        self.answer([question_of(request, "ServerLM")], answers)
        return response_of(request, answers[0])


# Find out, once, which model a server serves and which dialect it speaks, and whether several servers agree.


@dataclass(frozen=True)
class Served:
    """A model in a server's listing; None for anything that the server does not report."""

    listed: bool = False  # False for servers without a listing
    owner: type[Dialect] | None = None  # dialect recognized by ``owned_by``
    owned_by: str | None = None  # kind of server in its own word
    root: str | None = None  # the model's original name or folder
    context_length: int | None = None  # longest sequence in tokens
    version: str | None = None  # of the server


async def read_listing(connection: transport.Connection, model: str) -> Served:
    """Read what the server lists about a model; ValueError if it lists only other models."""
    listing = await connection.get("/v1/models")
    listing = listing if isinstance(listing, dict) else {}
    entries = listing.get("data", listing.get("models"))  # "models" for decision models
    if not isinstance(entries, list) or not entries:
        return Served()
    named = [entry for entry in entries if isinstance(entry, dict)]
    models = {str(entry.get("id", entry.get("name"))): entry for entry in named if entry.keys() & {"id", "name"}}
    if model not in models and "data" not in listing:
        return Served()  # the listing has aliases of releases, and releases can be asked too
    if model not in models:
        names = sorted(models)
        raise ValueError(
            f"The server at {connection.base_url} does not serve {model!r}, only "
            f"{', '.join(names[:10]):.500}{' ...' if len(names) > 10 else ''}."
        )
    entry = models[model]
    owner = next((d for d in DIALECTS if d.owned_by is not None and d.owned_by == entry.get("owned_by")), None)
    version = await connection.get(owner.version_path) if owner and owner.version_path else None
    return Served(
        listed=True,
        owner=owner,
        owned_by=_typed(entry, "owned_by", str),
        root=_typed(entry, "root", str),
        context_length=_typed(entry, "max_model_len", int),
        version=_typed(version, "version", str),
    )


def check_alike(dialects: Sequence[Dialect], samples: Sequence[FloatArray]) -> None:
    """Raise ValueError if servers speak different dialects, or their samples (``Dialect.sample``) differ."""
    first = dialects[0]
    for dialect, sample in zip(dialects, samples, strict=True):
        if dialect.name != first.name:
            difference = f"is a {dialect.name} server, {first.connection.base_url} a {first.name} server"
        elif not same_sample(sample, samples[0]):
            difference = f"gives a text other probabilities than {first.connection.base_url}"
        else:
            continue
        raise ValueError(f"{dialect.connection.base_url} {difference}: give the addresses of servers of one model.")


async def find_dialect(endpoint: Endpoint, served: Served, kinds: Sequence[type[Dialect]] = DIALECTS) -> Dialect:
    """Return the first dialect that the server speaks, tried on a short text; only its own if the listing names it.

    Without a tokenizer, only dialects without a tokenizer are tried. Raises NoProbabilities if none works,
    ValueError if no model is served, the server contradicts itself, or has another tokenizer, and RequestError.
    """
    errors: dict[str, Exception] = {}
    listed = served.owner if served.owner in kinds and endpoint.tokenizer is not None else None
    for kind in (listed,) if listed else kinds:
        if kind.needs_tokenizer is (endpoint.tokenizer is None):
            continue
        try:
            dialect = kind(endpoint)
            await dialect.probe()
            return dialect
        except WrongTokenizer:
            raise
        except (transport.StatusError, transport.NotJSON, ValueError) as error:
            errors[kind.name] = error
    url = endpoint.connection.base_url
    for failure in errors.values():
        page = isinstance(failure, transport.NotJSON) and not served.listed
        if page or (isinstance(failure, transport.RequestError) and failure.denied):
            raise failure
    if not served.listed and all(isinstance(e, transport.RequestError) and e.missing for e in errors.values()):
        raise ValueError(f"No model is served at {url}: give the address up to /v1, as http://HOST:PORT/v1.")
    attempts = "; ".join(f"as {name}: {transport.describe_error(error).rstrip('.')}" for name, error in errors.items())
    remedy = (
        "For a model behind vLLM, SGLang or llama.cpp give the folder of its tokenizer (`tokenizer`)"
        if endpoint.tokenizer is None
        else "Use vLLM 0.29 or later, SGLang or llama.cpp, dialect='chat' for the top_logprobs of first tokens, or "
        "dialect='systemone' or 'decisions' for a server that answers closed questions"
    )
    raise types.NoProbabilities(f"{endpoint.model} at {url}", f"tried {attempts}. {remedy}")


def _typed(values: Any, name: str, kind: type) -> Any:
    """Return an optional value of a server; None if it is missing or of another type."""
    value = values.get(name) if isinstance(values, dict) else None
    return value if isinstance(value, kind) else None


def _run(
    pool: transport.Pool, connection: transport.Connection, model: str, job: Coroutine[Any, Any, Result]
) -> Result:
    """Run a first request to a server; ConnectionError names the address if there is no usable answer."""
    try:
        return pool.run(job)
    except transport.RequestError as error:
        raise ConnectionError(
            f"{model} at {connection.base_url} gives no usable answer: {transport.describe_error(error)}"
        ) from error


def _tokenizer(model: str, name: str | None, kinds: Sequence[type[Dialect]], served: Served) -> Any:
    """Load the named tokenizer, or that of the model in the server's listing; None if no tokenizer is used."""
    if not any(kind.needs_tokenizer for kind in kinds):
        if name is not None:
            raise ValueError(
                f"A server of the kind {kinds[0].name!r} tokenizes prompts itself, so tokenizer={name!r} would have no "
                "effect: leave it out."
            )
        return None
    if name is None and len(kinds) > 1 and served.owner is None:
        return None  # OpenAI and other servers that only answer chats
    reasons = []
    for candidate in [name] if name is not None else dict.fromkeys([served.root, model]):
        if candidate is None:
            continue
        try:
            return load_tokenizer(candidate, trust_remote_code=False)  # the server names it
        except (OSError, ValueError) as error:
            reasons.append(f"{candidate}: {next(iter(str(error).splitlines()), type(error).__name__)}")
    raise ValueError(
        f"No tokenizer can be loaded for {model} ({'; '.join(reasons)}). Give the folder or the Hugging Face name of "
        "the model that is served (`tokenizer`)."
    )
