"""``ServerLM``: a model behind an OpenAI-compatible server as a ``dspy.LM`` with token probabilities."""

from __future__ import annotations

import hashlib
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from evalbias.lm.chat_template import ChatTemplate, template_of
from evalbias.lm.decisions import DecidingLM
from evalbias.lm.engine_base import AsyncEngine
from evalbias.lm.fingerprint import Answering
from evalbias.lm.loading import load_tokenizer
from evalbias.lm.sampled_answers import Sampling
from evalbias.lm.saved import SavedLM
from evalbias.lm.servers.connection import Connection, key_for
from evalbias.lm.servers.dialects import DIALECTS
from evalbias.lm.servers.dialects.base import Dialect, Endpoint
from evalbias.lm.servers.engine import ServerEngine
from evalbias.lm.servers.errors import RequestError, describe_error
from evalbias.lm.servers.fleet import Fleet, Replica
from evalbias.lm.servers.probe import Served, check_alike, find_dialect, read_listing, together
from evalbias.lm.servers.transport import Pool
from evalbias.lm.top_logprobs import TOLERANCE
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, Prompt
from evalbias.measures.arrays import FloatArray
from evalbias.runs.visible import get_logger

Answer = TypeVar("Answer")


class ServerLM(DecidingLM, SavedLM):
    """A model behind a server: vLLM, SGLang, llama.cpp, any server that echoes log-probabilities, or OpenAI.

    The server's dialect is found out once, when the object is made; ``capabilities``, ``provenance`` and the log name
    it. With the model's tokenizer, prompts are rendered and tokenized here exactly as by ``LocalLM``, so both return
    the same numbers. Without a tokenizer only the first token of a chat answer has probabilities
    (``dialect="chat"``), or the server answers closed questions with probabilities and words them itself
    (``"systemone"``, ``"decisions"``). DSPy's decision outputs (``Noul``, ``Choice``, ``Score``) are answered with
    measured probabilities; see ``DecidingLM``.

    Several servers of the same model share a call: prompts that begin alike go to the same one, whose cache then holds
    their prefix, and if one fails the others answer in its place; see ``evalbias.lm.servers.routing`` and ``fleet``.

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
