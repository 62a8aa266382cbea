"""The interface of a server dialect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dspy import lm15

from evalbias.lm.fingerprint import Answering
from evalbias.lm.servers.call import Job
from evalbias.lm.servers.connection import Connection
from evalbias.lm.top_logprobs import TOLERANCE
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, Prompt
from evalbias.measures.arrays import FloatArray


@dataclass(frozen=True)
class Endpoint:
    """One model behind one server.

    Attributes:
        connection: Connection to the server.
        model: Name under which the server serves the model.
        tokenizer: Fast tokenizer of the model; None for dialects that do not use it.
        context_length: Longest sequence in tokens; None if the server does not report it.
        tolerance: Largest probability share of unreported choices; see ``ServerLM``.
        template_options: Options of the tokenizer's chat template; see ``ServerLM``.
    """

    connection: Connection
    model: str
    tokenizer: Any = None
    context_length: int | None = None
    tolerance: float = TOLERANCE
    template_options: Mapping[str, Any] | None = None


class Dialect(ABC):
    """One kind of server: how it is recognized, and how it is asked for probabilities and texts.

    The ``*_jobs`` methods check all items of a call before anything is sent, and return one job per item.

    Args:
        endpoint: Model and server.

    Attributes:
        name: Value of ``ServerLM(dialect=...)`` that selects the dialect.
        owned_by: Value of ``owned_by`` in the server's ``/v1/models``; None if it does not identify the dialect.
        version_path: Path at which the server reports its version; None if it has none.
        needs_tokenizer: Whether the dialect renders and tokenizes prompts itself.
        likelihoods: Whether the server returns the log-probabilities of given texts.
        answering: Names that the server's answers carry.
    """

    name: ClassVar[str]
    owned_by: ClassVar[str | None] = None
    version_path: ClassVar[str | None] = None
    needs_tokenizer: ClassVar[bool] = True
    likelihoods: ClassVar[bool] = True

    def __init__(self, endpoint: Endpoint) -> None:
        self.answering = Answering()
        self._connection = endpoint.connection
        self._model = endpoint.model

    @classmethod
    @abstractmethod
    async def probe(cls, endpoint: Endpoint) -> Dialect:
        """Try the dialect on a short text and return it ready for use.

        Raises:
            WrongTokenizer: The server tokenizes the text differently; no other dialect need be tried.
            ValueError: The server's answer lacks the requested values, or contradicts itself.
            StatusError: The server refuses the request.
            NoAnswer: The server did not answer in time.
        """

    @property
    def capabilities(self) -> str:
        """Description of what the server returns, for the log."""
        return f"choices{' and' if self.likelihoods else ', no'} likelihoods, tokenized locally"

    @abstractmethod
    async def sample(self) -> FloatArray:
        """Return log-probabilities of a fixed text, which tell the model's weights from others; see ``fingerprint``."""

    async def _post(self, path: str, body: dict[str, Any], *, heavy: bool = False) -> Any:
        """Send a request and return the answer; see ``Connection.post``.

        Raises:
            ModelChanged: The answer names another model than earlier ones.
        """
        answer = await self._connection.post(path, body, heavy=heavy)
        if isinstance(answer, dict):
            self.answering.check(path, answer.get("model"), answer)
        return answer

    @abstractmethod
    def choice_jobs(self, prompts: Sequence[Prompt], choices: tuple[str, ...]) -> list[Job[ChoiceLogprobs]]:
        """Return one job per prompt: the log-probabilities of the choices after it, shape (1, c).

        Raises:
            ValueError: A prompt or the choices cannot be used.
        """

    def likelihood_jobs(self, pairs: Sequence[tuple[Prompt, str]]) -> list[Job[LogLikelihood]]:
        """Return one job per (context, continuation): the log-probabilities of the continuation's tokens.

        Raises:
            NotImplementedError: The server does not return likelihoods.
            ValueError: A pair cannot be used.
        """
        raise NotImplementedError(
            f"{self._model}: a server of the kind {self.name!r} returns no likelihoods of given texts. Name another "
            "model for them: likelihood_lm=LocalLM(...), or --likelihood-lm on the command line."
        )

    @abstractmethod
    def generation_job(self, prompt: Prompt, config: lm15.Config) -> Job[lm15.Response]:
        """Return the job that generates a text after a prompt.

        Raises:
            NotImplementedError: The server generates no texts.
            ValueError: The prompt cannot be used.
        """
