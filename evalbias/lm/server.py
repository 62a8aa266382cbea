"""``ServerLM``: a model behind an OpenAI-compatible server as a ``dspy.LM`` that tells its probabilities."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from typing import Any, Literal

import dspy
import openai

from evalbias.lm.loading import load_tokenizer
from evalbias.lm.requests import AsyncEngine
from evalbias.lm.servers.chat import Chat
from evalbias.lm.servers.connection import Connection, told
from evalbias.lm.servers.dialects import Dialect
from evalbias.lm.servers.engine import ServerEngine
from evalbias.lm.servers.probe import Served, chat_of, dialect_of, probe_text, served
from evalbias.lm.types import ChoiceLogprobs, FloatArray, LogLikelihood, Prompt

Kind = Literal["auto", "vllm", "sglang", "llama.cpp", "echo", "chat"]


class ServerLM(dspy.LM):  # type: ignore[misc]
    """A model behind a server: vLLM, SGLang, llama.cpp, whoever echoes texts with log-probabilities, or OpenAI's chat.

    What the server can do is tried once, when the object is made, and said by ``provenance`` and in the log. With the
    model's tokenizer prompts are rendered and tokenized here, exactly as ``LocalLM`` does it, so that both tell the
    same numbers. Without one only the first token of a chat's answer is told (``dialect="chat"``).

    Args:
        model: As it is served.
        base_url: The server's address, which ends in ``/v1``.
        tokenizer: The model's folder or Hugging Face name. None asks the server for it, and the served name.
        dialect: How probabilities are asked for; ``"auto"`` finds out.
        api_key: None takes ``OPENAI_API_KEY`` from the environment. It is never written.
        in_flight: Requests at the same time.
        timeout: Seconds that one attempt may take.
        patience: Seconds for which a request that fails is retried, with backoff; at first at most 10.
        tolerance: Of chats, which tell the 20 most probable tokens: the share that choices not among them may have at
            most and be taken as 0; above it a row is NaN. In [0, 1].
        **kwargs: As ``dspy.LM``: ``temperature``, ``max_tokens`` and others.

    Attributes:
        in_flight: Requests at the same time.
        sample: Log-probabilities of some tokens of a fixed text, which tell other weights under the same name; None for
            chats.

    Raises:
        ConnectionError: The server does not answer, or refuses the key.
        ValueError: It has no such model, has another tokenizer, or tells no probabilities.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        tokenizer: str | None = None,
        dialect: Kind = "auto",
        api_key: str | None = None,
        in_flight: int = 64,
        timeout: float = 120.0,
        patience: float = 300.0,
        tolerance: float = 1e-3,
        **kwargs: Any,
    ) -> None:
        self._arguments = {
            "base_url": base_url,
            "tokenizer": tokenizer,
            "dialect": dialect,
            "in_flight": in_flight,
            "timeout": timeout,
            "patience": patience,
            "tolerance": tolerance,
        }
        self._served_name = model
        self.in_flight = in_flight
        key = api_key or os.environ.get("OPENAI_API_KEY") or "none"
        connection = Connection(base_url, api_key=key, in_flight=in_flight, timeout=timeout, patience=patience)
        try:
            self._served = connection.run(served(connection, model))
            loaded = None if dialect == "chat" else _tokenizer(model, tokenizer, dialect, self._served)
            way: Dialect | Chat
            self.sample: FloatArray | None
            if loaded is None:
                way = connection.run(chat_of(connection, model, tolerance, self._served))
                self.sample = None
            else:
                only = None if dialect == "auto" else dialect
                way = connection.run(dialect_of(connection, model, loaded, only=only, found=self._served))
                self.sample = connection.run(way.sample(probe_text(loaded)))
        except openai.OpenAIError as error:
            raise ConnectionError(f"{model} at {connection.base_url} does not answer: {told(error)}") from error
        self._vocabulary = None if loaded is None else _digest(loaded)
        engine = ServerEngine(connection, model, way, loaded, self._served.context_length)
        # DSPy's cache would know the model by a name that any server may give to any weights.
        kwargs.setdefault("cache", False)
        super().__init__(f"server/{model}", engine=engine, async_engine=AsyncEngine(engine), **kwargs)
        logging.getLogger(__name__).info("%s: %s", model, self.told)

    @property
    def told(self) -> str:
        """What the server can do, in words."""
        kind = self._engine.way.name
        if kind == "chat":
            return "chat: choices of one token among the 20 most probable, no likelihoods"
        likelihoods = "and likelihoods" if self._engine.way.likelihoods else "no likelihoods"
        return f"{kind} {self._served.version or ''}".strip() + f": choices {likelihoods}, by tokens of our own"

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """Log-probability in nats of each continuation after its context; see ``MeasuringLM``.

        Raises:
            NotImplementedError: The server tells none.
            ValueError: An empty continuation, or one that nothing precedes.
            PromptTooLong: A text longer than the model's context.
            Unanswered: The server did not answer them all; what it did answer is kept in it.
        """
        return self._engine.loglikelihood(pairs)

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """Log-probability in nats of every choice after every prompt; see ``MeasuringLM``.

        Raises:
            ValueError: No choices, an empty or repeated one, or a prompt that the server cannot be asked.
            PromptTooLong: A prompt longer than the model's context.
            Unanswered: The server did not answer them all; what it did answer is kept in it.
        """
        return self._engine.choice_logprobs(prompts, choices)

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """What the model writes after every prompt, decoded greedily.

        Raises:
            Unanswered: The server did not answer them all; what it did answer is kept in it.
        """
        return self._engine.written(prompts, max_tokens=max_tokens)

    def provenance(self) -> dict[str, str]:
        """Which numbers these are: the model as served, the kind and version of the server, and the tokenizer."""
        found = {
            "model": self.model,
            "root": self._served.root,
            "server": self._engine.way.name,
            "version": self._served.version,
            "tokenizer": self._vocabulary,
        }
        return {name: value for name, value in found.items() if value is not None}

    def dump_state(self) -> dict[str, Any]:
        """What ``ServerLM(**state)`` asks the same server with, as a saved program keeps it: no key."""
        own: dict[str, Any] = dspy.BaseLM.dump_state(self)
        return {**own, **self._arguments, "model": self._served_name}

    @property
    def _engine(self) -> ServerEngine:
        engine: ServerEngine = self.engine
        return engine


def _tokenizer(model: str, given: str | None, dialect: Kind, found: Served) -> Any:
    """The tokenizer that is named, or that of the model as the server names it; None where a chat must do.

    Raises:
        ValueError: There is none, and the server needs one.
    """
    if given is None and dialect == "auto" and found.owner is None:
        return None  # OpenAI, and whoever serves chats alone
    reasons = []
    for name in [given] if given is not None else dict.fromkeys([found.root, model]):
        if name is None:
            continue
        try:
            return load_tokenizer(name)
        except (OSError, ValueError) as error:
            reasons.append(f"{name}: {str(error).splitlines()[0]}")
    raise ValueError(
        f"No tokenizer for {model} ({'; '.join(reasons)}). Give the folder or the Hugging Face name of the model that "
        "is served: tokenizer=..., or --tokenizer on the command line."
    )


def _digest(tokenizer: Any) -> str:
    told = f"{tokenizer.backend_tokenizer.to_str()} {tokenizer.chat_template}"
    return hashlib.sha256(told.encode()).hexdigest()[:12]
