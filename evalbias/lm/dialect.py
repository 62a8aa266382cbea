"""What a server dialect is: jobs for prompts, and what servers that take tokens have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from dspy import lm15

from evalbias.lm import reading as top_logprobs
from evalbias.lm.errors import StatusError, Unreadable
from evalbias.lm.fingerprint import Answering
from evalbias.lm.reading import ROUNDING, TOLERANCE
from evalbias.lm.render import Renderer
from evalbias.lm.tokens import (
    Ids,
    PromptTokenizer,
    Scored,
    check_known,
    check_length,
    check_lengths,
    choice_sequences,
    joint,
    key_of,
)
from evalbias.lm.transport import Connection
from evalbias.lm.types import (
    ChoiceLogprobs,
    Joined,
    LogLikelihood,
    Prompt,
    Rendered,
    each,
)
from evalbias.measures.arrays import FloatArray

# Values in a server's JSON: read strictly, so that a missing log-probability never becomes a number.


ANSWER_TOLERANCE = 0.05
"""Largest difference in nats between two log-probabilities of one token from one server, in bfloat16."""

NEUTRAL = {"temperature": 1.0, "top_p": 1.0}
"""Sampling settings that leave the probabilities unchanged, for servers that report them after sampling's changes."""

ALL_NEUTRAL = {**NEUTRAL, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""``NEUTRAL`` and the settings beyond OpenAI's, which vLLM and SGLang otherwise take from the model's folder."""


def part(answer: Any, *path: Any, kind: type = object) -> Any:
    """Return the value at a path of a server's answer.

    Args:
        answer: The answer, or a part of it.
        *path: Names and indices that lead to the value.
        kind: Type of the value.

    Raises:
        Unreadable: The value is missing, null or of another type.
    """
    name = ".".join(map(str, path)) or "an entry"
    for step in path:
        try:
            answer = answer[step]
        except (KeyError, IndexError, TypeError):
            raise Unreadable(f"{name} is missing") from None
    if answer is None:
        raise Unreadable(f"{name} is null")
    if not isinstance(answer, kind) or (kind is int and isinstance(answer, bool)):
        raise Unreadable(f"{name} is a {type(answer).__name__}, but must be a {kind.__name__}")
    return answer


def logprob_of(value: Any) -> float:
    """Return a log-probability as a float in [-inf, 0].

    Raises:
        Unreadable: The value is NaN, positive by more than rounding, or not a number.
    """
    try:
        return top_logprobs.logprob_of(value)
    except ValueError as error:
        raise Unreadable(str(error)) from None


def check_agreement(after: float, within: float) -> None:
    """Compare two log-probabilities of one token: generated after a text, and read as the text's last token.

    Raises:
        Unreadable: They differ by more than ``ANSWER_TOLERANCE``.
    """
    if abs(after - within) > ANSWER_TOLERANCE:
        raise Unreadable(f"it gives a token {after:.3f} nats after a text, but {within:.3f} nats within the same text")


Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Job(Generic[Answer]):
    """The requests that answer one item of a call.

    Attributes:
        run: Coroutine function that sends the requests to the server of the given dialect and returns the item's
            answer.
        key: The item's prompt as the server sees it, as bytes: from tokens by ``key_of``, or a text. Jobs start in the
            order of their keys: prompts with a common prefix then follow one another, and the server finds the prefix
            in its cache. Of several servers, prompts with a common prefix go to the same one; see ``routing``.
    """

    run: Callable[[Any], Awaitable[Answer]]
    key: bytes = b""


# The interface of a server dialect.


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


# DSPy's generation requests and responses in OpenAI's protocol.


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


# Base classes of dialects whose prompts are rendered and tokenized here, exactly as by ``LocalLM``.


TEXT = "The quick brown fox jumps over 13 lazy dogs: who judges the judges?"
"""Text on which a dialect is tried; its last token is one character."""


class WrongTokenizer(ValueError):  # noqa: N818 - a value error like the others, named for the problem
    """The server tokenizes a text differently from the given tokenizer."""


class TokenizedDialect(Dialect):
    """A server that scores token sequences, or texts whose tokens are known.

    Attributes:
        generated_after_choices: Number of tokens that the server must generate after the whole text of a choice.
        reads_texts: Whether the server tokenizes texts itself, and so reads control tokens in them.
    """

    generated_after_choices: ClassVar[int] = 1
    reads_texts: ClassVar[bool] = False

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._tokenizer = PromptTokenizer(endpoint.tokenizer)
        self._context_length = endpoint.context_length
        self._render = Renderer(self._tokenizer, endpoint.template_options)
        ids = tuple(endpoint.tokenizer(TEXT)["input_ids"])
        self._probe_text = Scored(ids, len(ids) - 1, TEXT)  # the last token is scored

    @abstractmethod
    async def choices(self, row: Sequence[Scored]) -> FloatArray:
        """Return the log-probability of each sequence from its ``start`` on, shape (c,); all share a prefix."""

    async def sequence(self, scored: Scored) -> FloatArray:
        """Return the log-probability of every token from ``start`` on, shape (n,); needed if ``likelihoods`` is set."""
        raise NotImplementedError

    @abstractmethod
    async def check(self, scored: Scored) -> None:
        """Score the last token of a text in two ways and compare.

        Args:
            scored: A text whose last token is scored and is its last character.

        Raises:
            Unreadable: The two values differ, or one is missing.
        """

    async def tokens(self, text: str) -> list[int] | None:
        """Return the server's tokens of a text, without special tokens; None if the server does not reveal them."""
        return None

    def check_plain(self, text: Joined) -> None:
        """Check that the server reads no plain text as a control token; one that takes tokens does not.

        Raises:
            ControlTokenInText: The server would.
        """

    def prompt(self, text: str, ids: Ids) -> str | list[int]:
        """Return a prompt as the server takes it: its tokens, or a text that the server tokenizes identically."""
        return list(ids)

    @classmethod
    async def probe(cls, endpoint: Endpoint) -> TokenizedDialect:
        """Compare the tokens of a short text with the server's, then two ways to score it; see ``Dialect``."""
        dialect = cls(endpoint)
        ours = endpoint.tokenizer(TEXT, add_special_tokens=False)["input_ids"]
        theirs = await dialect.tokens(TEXT)
        if theirs is not None and theirs != ours:
            raise WrongTokenizer(
                f"The server's tokens of a text are {theirs[:8]}..., but the tokenizer's are {ours[:8]}...: give the "
                "tokenizer of the model that is served."
            )
        await dialect.check(dialect._probe_text)
        return dialect

    def choice_jobs(self, prompts: Sequence[Prompt], choices: tuple[str, ...]) -> list[Job[ChoiceLogprobs]]:
        """Return one job per prompt; see ``Dialect``.

        Raises:
            ValueError: There are no choices, or one is empty or repeated; or the server would misread a text.
            PromptTooLong: A prompt is longer than the model's context.
        """
        rendered = [self._render(prompt) for prompt in prompts]
        if self.reads_texts:

            def check(prompt: Rendered) -> None:
                for choice in choices:
                    self.check_plain(prompt.before(choice))

            each(check, rendered)
        rows = choice_sequences(self._tokenizer, rendered, choices)
        self._check_lengths([max(row, key=lambda s: len(s.ids)) for row in rows], self.generated_after_choices)

        async def answer(row: Sequence[Scored], at: TokenizedDialect) -> ChoiceLogprobs:
            return ChoiceLogprobs(choices, (await at.choices(row))[None])

        return [Job(partial(answer, row), key_of(row[0].ids)) for row in rows]

    def likelihood_jobs(self, pairs: Sequence[tuple[Prompt, str]]) -> list[Job[LogLikelihood]]:
        """Return one job per pair; see ``Dialect``.

        Raises:
            NotImplementedError: The server does not return likelihoods.
            ValueError: A continuation is empty, or nothing precedes it; or the server would misread a text.
            PromptTooLong: A text is longer than the model's context.
            TextUnknown: A continuation has words that the model's vocabulary lacks.
        """
        if not self.likelihoods:
            return super().likelihood_jobs(pairs)
        rendered = [(self._render(context), text) for context, text in pairs]
        each(lambda pair: self.check_plain(pair[0].before(pair[1])), rendered)
        sequences = joint(self._tokenizer, rendered)
        check_known(self._tokenizer, sequences)
        self._check_lengths(sequences, 1)

        async def answer(scored: Scored, at: TokenizedDialect) -> LogLikelihood:
            return LogLikelihood(await at.sequence(scored))

        return [Job(partial(answer, scored), key_of(scored.ids)) for scored in sequences]

    def generation_job(self, prompt: Prompt, config: lm15.Config) -> Job[lm15.Response]:
        """Return the job that generates a text after a prompt; see ``Dialect``.

        Raises:
            PromptTooLong: The prompt leaves no room for a token in the model's context.
        """
        rendered = self._render(prompt)
        self.check_plain(rendered.alone())
        ids = tuple(self._tokenizer.encode(rendered.alone()).ids)
        if self._context_length is not None:
            check_length(len(ids), self._context_length, whose="server", generated=1)
        sent = self.prompt(rendered.text, ids)
        return Job(lambda at: at.generate(sent, rendered.lead, config), key_of(ids))

    async def generate(self, prompt: str | list[int], lead: str, config: lm15.Config) -> lm15.Response:
        """Generate a text after a prompt, without the ``lead`` that it may begin with."""
        body = {"model": self._model, "prompt": prompt, **sampling(config, "max_tokens")}
        if config.logprobs is not None:
            body["logprobs"] = config.logprobs
        answer = await self._post("/v1/completions", body)
        choice = part(answer, "choices", 0, kind=dict)
        logprobs = None
        if config.logprobs is not None:
            names = part(choice, "logprobs", "tokens", kind=list)
            values = part(choice, "logprobs", "token_logprobs", kind=list)
            tops = part(choice, "logprobs", kind=dict).get("top_logprobs") or [None] * len(names)
            logprobs = tuple(
                token_logprob(token, value, part(top or {}, kind=dict).items())
                for token, value, top in zip(names, values, part(tops, kind=list), strict=True)
            )
        return response(self._model, answer, part(choice, "text", kind=str).removeprefix(lead), logprobs)

    def _check_lengths(self, sequences: Sequence[Scored], generated: int) -> None:
        if self._context_length is not None:
            check_lengths(sequences, self._context_length, whose="server", generated=generated)


class NextTokenDialect(TokenizedDialect):
    """A server that returns the log-probabilities of named tokens after a prompt.

    Choices are scored as next tokens, because only then can many prompts, and the choices of one prompt, share their
    prefix in the server's prefix cache. Log-probabilities of a prompt's own tokens are recomputed for every request by
    vLLM, and from a given position on by SGLang.
    """

    generated_after_choices = 0  # a choice's last token is the one that the server generates

    @abstractmethod
    async def next_tokens(self, ids: Ids, tokens: Sequence[int]) -> dict[int, float]:
        """Return the log-probability of each of the ``tokens`` after a prompt."""

    async def tokens(self, text: str) -> list[int] | None:
        """Return the server's tokens of a text, without special tokens; None if the server does not reveal them."""
        names = {"model": self._model, "prompt": text, "add_special_tokens": False}  # of vLLM and SGLang
        try:  # llama.cpp takes the other two names
            answer = await self._post("/tokenize", {**names, "content": text, "add_special": False})
        except StatusError:
            return None
        return list(part(answer, "tokens", kind=list))

    async def sample(self) -> FloatArray:
        """Return the log-probability of every eighth token of ``TEXT``."""
        ids = self._probe_text.ids
        return await self.choices([Scored(ids[: place + 1], place) for place in range(2, len(ids), 8)])

    async def check(self, scored: Scored) -> None:
        """Compare the token as the next one after the text with the token within it; see ``TokenizedDialect``."""
        (after,) = await self.choices([scored])
        if self.likelihoods:
            (within,) = await self.sequence(scored)
            check_agreement(after, within)

    async def choices(self, row: Sequence[Scored]) -> FloatArray:
        """Send one request for every position at which the choices' tokens diverge, most often one.

        Raises:
            Unreadable: The probabilities of a position sum to more than 1.
        """
        shared = min(scored.start for scored in row)
        prefix = row[0].ids[:shared]
        following: dict[Ids, set[int]] = {}  # tokens after the shared prefix -> the tokens to score next
        for scored in row:
            for place in range(scored.start, len(scored.ids)):
                following.setdefault(scored.ids[shared:place], set()).add(scored.ids[place])
        logprobs = {ids: await self.next_tokens(prefix + ids, sorted(tokens)) for ids, tokens in following.items()}
        total = max(float(np.exp(list(values.values())).sum()) for values in logprobs.values())
        if total > 1.0 + ROUNDING:
            raise Unreadable(f"the probabilities of the next token sum to {total:.3g}")
        return np.array([sum(logprobs[s.ids[shared:p]][s.ids[p]] for p in range(s.start, len(s.ids))) for s in row])
