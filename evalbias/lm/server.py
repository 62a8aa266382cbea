"""``ServerLM``: a model behind one or several servers as a DSPy engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from dspy import lm15

from evalbias.lm.calls import Fleet, Replica
from evalbias.lm.contract import Sampling
from evalbias.lm.decisions import DecidingLM
from evalbias.lm.dialect import Dialect, Endpoint, Job, WrongTokenizer
from evalbias.lm.dialects import DIALECTS
from evalbias.lm.dspy_seam import (
    AsyncEngine,
    Engine,
    judgments,
    measured,
    messages_of,
    refusals_for_dspy,
    refuse,
    validate_request,
)
from evalbias.lm.errors import NotJSON, RequestError, StatusError, describe_error, is_denied, is_missing
from evalbias.lm.fingerprint import Answering, same_sample
from evalbias.lm.heap import HEAP
from evalbias.lm.load import load_tokenizer
from evalbias.lm.reading import TOLERANCE
from evalbias.lm.render import ChatTemplate, check_pairs, check_prompts, template_of
from evalbias.lm.saved import SavedLM
from evalbias.lm.transport import Connection, Pool, key_for
from evalbias.lm.types import (
    ARRIVED,
    HARMLESS,
    ChoiceLogprobs,
    LogLikelihood,
    NoProbabilities,
    Prompt,
    each,
    harmless,
    stacked,
)
from evalbias.measures.arrays import FloatArray
from evalbias.values import get_logger

# A model behind a server as a DSPy engine: measured judgments, generation, and token probabilities.


Item = TypeVar("Item")
Answer = TypeVar("Answer")

NAME = "ServerLM"


class ServerEngine(Engine):
    """The engine of ``ServerLM``.

    Args:
        fleet: Servers of the model, at least one; all speak the same dialect.
        model: Name under which the servers serve the model.
    """

    def __init__(self, fleet: Fleet, model: str) -> None:
        self.fleet = fleet
        self._model = model

    @property
    def dialect(self) -> Dialect:
        """Dialect that makes the jobs: the first server's. Any of the servers can run them."""
        return self.fleet.replicas[0].dialect

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability of every choice after every prompt; see ``MeasuringLM``."""
        check_prompts(prompts)
        choices = tuple(choices)

        def jobs(prompts: Sequence[Prompt]) -> list[Job[ChoiceLogprobs]]:
            return self.dialect.choice_jobs(prompts, choices)

        rows = self._all(jobs, prompts, harmless)
        return stacked(rows, choices)

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability of each continuation after its context; see ``MeasuringLM``."""
        check_pairs(pairs)
        return self._all(self.dialect.likelihood_jobs, pairs, lambda pair: (harmless(pair[0]), HARMLESS))

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """Generate a text after every prompt, decoded greedily."""
        return self._texts(prompts, [lm15.Config(temperature=0.0, max_tokens=max_tokens)] * len(prompts))

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sample a text after every prompt, each with its own seed."""
        config = lm15.Config(temperature=sampling.temperature, max_tokens=sampling.max_tokens)
        return self._texts(prompts, [replace(config, seed=seed) for seed in seeds])

    def _texts(self, prompts: Sequence[Prompt], configs: Sequence[lm15.Config]) -> list[str]:
        def job(question: tuple[Prompt, lm15.Config]) -> Job[str]:
            whole = self.dialect.generation_job(*question)
            return Job(partial(_text, whole), whole.key)

        questions = list(zip(prompts, configs, strict=True))
        return self._all(partial(each, job), questions, lambda question: (harmless(question[0]), question[1]))

    def _all(
        self,
        jobs: Callable[[Sequence[Item]], list[Job[Answer]]],
        items: Sequence[Item],
        control: Callable[[Item], Item],
    ) -> list[Answer]:
        """Run the jobs of all items.

        Args:
            jobs: Function from items to one job each.
            items: Items of the call.
            control: Function from an item to the same one about a harmless text.
        """
        with HEAP.frozen():  # while prompts are tokenized
            return self.fleet.all(
                jobs(items), lambda i: jobs([control(items[i])])[0], name=self._model, arrived=ARRIVED.get()
            )

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer one request; see ``dspy.clients.engines.Engine``."""
        job, messages = self._job(request)
        with refusals_for_dspy():
            (answer,) = self.fleet.all([job(messages)], lambda _: job(harmless(messages)), name=self._model)
        return _response(request, answer)

    async def complete_async(self, request: lm15.Request) -> lm15.Response:
        """Answer one request without a thread of its own; see ``AsyncEngine``."""
        job, messages = self._job(request)
        with refusals_for_dspy():
            answer = await self.fleet.one(job(messages), lambda _: job(harmless(messages)), name=self._model)
        return _response(request, answer)

    def _job(self, request: lm15.Request) -> tuple[Callable[[Prompt], Job[Any]], Prompt]:
        """Return what answers a request: a function that makes the job for a prompt, and the request's prompt.

        The job returns a judgment's log-probabilities or a generated text.
        """
        validate_request(request)
        refuse(request, NAME)
        messages, asked = messages_of(request, NAME), judgments(request)
        if not asked:
            return lambda prompt: self.dialect.generation_job(prompt, request.config), messages
        (judgment,) = asked.values()  # ``refuse`` lets one through
        return lambda prompt: self.dialect.choice_jobs([prompt], tuple(judgment.keys))[0], messages


def _response(request: lm15.Request, answer: Any) -> lm15.Response:
    if isinstance(answer, lm15.Response):
        return answer
    return measured(request, messages_of(request, NAME), lambda *_: answer)


async def _text(job: Job[lm15.Response], dialect: Dialect) -> str:
    return (await job.run(dialect)).text or ""


# Find out, once, which model a server serves and which dialect it speaks, and whether several servers agree.


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


# ``ServerLM``: a model behind an OpenAI-compatible server as a ``dspy.LM`` with token probabilities.


class ServerLM(DecidingLM, SavedLM):
    """A model behind a server: vLLM, SGLang, llama.cpp, any server that echoes log-probabilities, or OpenAI.

    The server's dialect is found out once, when the object is made; ``capabilities``, ``provenance`` and the log name
    it. With the model's tokenizer, prompts are rendered and tokenized here exactly as by ``LocalLM``, so both return
    the same numbers. Without a tokenizer only the first token of a chat answer has probabilities
    (``dialect="chat"``), or the server answers closed questions with probabilities and words them itself
    (``"systemone"``, ``"decisions"``). DSPy's decision outputs (``Noul``, ``Choice``, ``Score``) are answered with
    measured probabilities; see ``DecidingLM``.

    Several servers of the same model share a call: prompts that begin alike go to the same one, whose cache then holds
    their prefix, and if one fails the others answer in its place; see ``evalbias.lm.routing`` and ``fleet``.

    Args:
        model: Name under which the server serves the model.
        base_url: Address of the server, ending in ``/v1``, or addresses of several servers of the same model.
        tokenizer: Folder or Hugging Face name of the model's tokenizer. None uses the name that the server lists.
        dialect: ``"vllm"``, ``"sglang"``, ``"llama.cpp"``, ``"echo"``, ``"chat"``, ``"systemone"`` or
            ``"decisions"``; ``"auto"`` finds out.
        api_key: Key for the server. None reads ``EVALBIAS_API_KEY``, and ``OPENAI_API_KEY`` for OpenAI's own address.
            Over plain http it is sent to this machine only. It is never written to a file.
        in_flight: Number of simultaneous requests to each server.
        timeout: Time limit of one attempt in seconds.
        patience: Time in seconds for which a failing request is retried with backoff; at most 10 for the first one.
        tolerance: For chats, which report only the 20 most probable tokens: the largest probability share, in [0, 1],
            that unreported choices may have and count as 0. Above it the row is NaN.
        template_options: Values of the chat template's variables, as for ``LocalLM``; not for ``dialect="chat"`` and
            decision endpoints, whose server renders the messages.
        **kwargs: Options of ``dspy.LM``: ``temperature``, ``max_tokens`` and others.

    Attributes:
        in_flight: Number of simultaneous requests to all servers together.

    Raises:
        ConnectionError: The server does not answer, answers with a web page, or rejects the key.
        ValueError: The server does not serve the model, has another tokenizer, or returns no probabilities; the
            dialect is unknown, or the chat template lacks an option. Or several servers differ in dialect or weights.
    """

    draws_by_seed = True
    """A request's seed is passed on; a server repeats a draw as far as its batches give the same numbers."""
    tells_answers = True
    """See ``evalbias.lm.types.ARRIVED``."""

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
        tolerance: float = TOLERANCE,
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
            "tolerance": tolerance,
            "template_options": template_options,
        }
        self._served_name = model
        self.in_flight = in_flight * len(addresses)
        only = _checked(dialect)
        pool = Pool(api_key=key_for(addresses, api_key), in_flight=in_flight, timeout=timeout)
        connections = [Connection(address, pool, patience=patience) for address in addresses]
        listings = [_run(pool, connection, model, read_listing(connection, model)) for connection in connections]
        self._served = together(listings)
        loaded = _tokenizer(model, tokenizer, only, self._served)
        template = template_of(loaded, template_options)
        dialects: list[Dialect] = []
        for connection, served in zip(connections, listings, strict=True):
            endpoint = Endpoint(connection, model, loaded, self._served.context_length, tolerance, template_options)
            dialects.append(_run(pool, connection, model, find_dialect(endpoint, served, only=only)))
        self._tokenizer_digest = None if loaded is None else _digest(loaded, template)
        replicas = [Replica(*pair) for pair in zip(connections, dialects, strict=True)]
        engine = ServerEngine(Fleet(replicas, pool, patience=patience), model)
        if len(replicas) > 1:
            check_alike(connections, dialects, [_run(pool, r.connection, model, r.dialect.sample()) for r in replicas])
        # DSPy's cache would know the model by a name that any server may give to any weights.
        kwargs.setdefault("cache", False)
        super().__init__(f"server/{model}", engine=engine, async_engine=AsyncEngine(engine), **kwargs)
        get_logger(__name__).info("%s: %s", model, self.capabilities)

    @property
    def capabilities(self) -> str:
        """Description of what the server returns, such as ``"vllm 0.29: choices and likelihoods, ..."``."""
        dialect = self._engine.dialect
        count = len(self._engine.fleet.replicas)
        servers = f" on {count} servers" if count > 1 else ""
        return f"{dialect.name} {self._served.version or ''}".strip() + f"{servers}: {dialect.capabilities}"

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Return the log-probability in nats of each continuation after its context; see ``MeasuringLM``.

        Raises:
            NotImplementedError: The server returns no likelihoods.
            ValueError: A continuation is empty, or nothing precedes it.
            PromptTooLong: A text is longer than the model's context.
            TextUnknown: A continuation has words that the model's vocabulary lacks.
            PromptRefused: The server refuses items; the exception holds the answers of the others.
            RequestRefused: The server refuses the settings, and so every item.
            Unanswered: An item has no answer; the exception holds the answers of the others.
        """
        return self._engine.loglikelihood(pairs)

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Return the log-probability in nats of every choice after every prompt; see ``MeasuringLM``.

        Raises:
            ValueError: There are no choices, one is empty or repeated, or the server cannot take a prompt.
            PromptTooLong: A prompt is longer than the model's context.
            PromptRefused: The server refuses items; the exception holds the answers of the others.
            RequestRefused: The server refuses the settings, and so every item.
            Unanswered: An item has no answer; the exception holds the answers of the others.
        """
        return self._engine.choice_logprobs(prompts, choices)

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """Generate a text after every prompt, decoded greedily.

        Raises:
            PromptRefused: The server refuses items; the exception holds the answers of the others.
            RequestRefused: The server refuses the settings, and so every item.
            Unanswered: An item has no answer; the exception holds the answers of the others.
        """
        return self._engine.written(prompts, max_tokens=max_tokens)

    def drawn(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[str]:
        """Sample a text after every prompt, each with its own seed.

        Raises:
            PromptRefused: The server refuses items; the exception holds the answers of the others.
            RequestRefused: The server refuses the settings, and so every item.
            Unanswered: An item has no answer; the exception holds the answers of the others.
        """
        return self._engine.drawn(prompts, seeds, sampling)

    def samples(self) -> list[FloatArray]:
        """Return log-probabilities of a fixed text from each server, which reveal other weights under the same name.

        Of several servers, those that fail are left out.

        Raises:
            ConnectionError: No server answers.
            ModelChanged: An answer names another model than earlier ones.
        """
        fleet, samples = self._engine.fleet, []
        for replica in fleet.replicas:
            try:
                samples.append(_run(fleet.pool, replica.connection, self._served_name, replica.dialect.sample()))
            except ConnectionError as error:
                failure = error
        if not samples:
            raise failure
        return samples

    @property
    def answering(self) -> list[Answering]:
        """Names that each server's answers carry; none where a file's name may stand for them, and its weights tell."""
        dialects = [replica.dialect for replica in self._engine.fleet.replicas]
        return [dialect.answering for dialect in dialects if not dialect.needs_tokenizer]

    def provenance(self) -> dict[str, str]:
        """Return the settings that decide the numbers: the served model, the server and its version, the tokenizer."""
        settings = {
            "model": self.model,
            "root": self._served.root,
            "server": self._engine.dialect.name,
            "version": self._served.version,
            "tokenizer": self._tokenizer_digest,
        }
        return {name: value for name, value in settings.items() if value is not None}

    def saved_arguments(self) -> dict[str, Any]:
        """Return the arguments of ``ServerLM`` without the key; see ``SavedLM``."""
        return {**self._arguments, "model": self._served_name}

    @property
    def _engine(self) -> ServerEngine:
        engine: ServerEngine = self.engine
        return engine


def _run(pool: Pool, connection: Connection, model: str, job: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a first request to a server.

    Raises:
        ConnectionError: It has no usable answer; the message names the address.
    """
    try:
        return pool.run(job)
    except RequestError as error:
        raise ConnectionError(
            f"{model} at {connection.base_url} gives no usable answer: {describe_error(error)}"
        ) from error


def _checked(dialect: str) -> str | None:
    """Return the name of the only dialect to try, or None for all of them.

    Raises:
        ValueError: The dialect is unknown.
    """
    names = [known.name for known in DIALECTS]
    if dialect not in ("auto", *names):
        raise ValueError(f"dialect={dialect!r} is unknown: use 'auto' or one of {names}.")
    return None if dialect == "auto" else dialect


def _tokenizer(model: str, name: str | None, only: str | None, served: Served) -> Any:
    """Load the named tokenizer, or that of the model as the server lists it; None where no tokenizer is used.

    Raises:
        ValueError: No tokenizer can be loaded, but the dialect needs one.
    """
    if any(dialect.name == only and not dialect.needs_tokenizer for dialect in DIALECTS):
        return None
    if name is None and only is None and served.owner is None:
        return None  # OpenAI, and other servers that answer chats only
    reasons = []
    for candidate in [name] if name is not None else dict.fromkeys([served.root, model]):
        if candidate is None:
            continue
        try:
            return load_tokenizer(candidate, trust_remote_code=False)  # the server names it
        except (OSError, ValueError) as error:
            reasons.append(f"{candidate}: {str(error).splitlines()[0]}")
    raise ValueError(
        f"No tokenizer can be loaded for {model} ({'; '.join(reasons)}). Give the folder or the Hugging Face name of "
        "the model that is served: tokenizer=..., or --tokenizer on the command line."
    )


def _digest(tokenizer: Any, template: ChatTemplate | None) -> str:
    content = f"{tokenizer.backend_tokenizer.to_str()} {template and template.key}"
    return hashlib.sha256(content.encode()).hexdigest()[:12]
