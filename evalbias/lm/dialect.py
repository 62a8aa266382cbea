"""Contract and base classes of the dialects of servers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from evalbias.lm import types
from evalbias.lm.fingerprint import Answering
from evalbias.lm.reading import SUM_EXCESS, Unreadable, part
from evalbias.lm.render import Prepared, Tokenizing
from evalbias.lm.tokens import Ids, Scored
from evalbias.lm.transport import Connection, StatusError
from evalbias.lm.types import ChoiceLogprobs, Choices, Decisions, Likelihood, Question, Refused, Text, Usage, Written
from evalbias.measures.arrays import FloatArray

ANSWER_TOLERANCE = 0.05  # largest difference in nats between two log-probabilities of a token, in bfloat16
NEUTRAL = {"temperature": 1.0, "top_p": 1.0}  # settings that change no probability, not even one that is reported late
# ``NEUTRAL`` and the settings beyond OpenAI's, which vLLM and SGLang otherwise take from the model's folder.
ALL_NEUTRAL = {**NEUTRAL, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
# Text for trying a dialect; its last token is a single character.
PROBE_TEXT = "The quick brown fox jumps over 13 lazy dogs: who judges the judges?"

# End of the error for a kind of question that a server does not take.
LACKS: dict[type, str] = {
    Likelihood: "returns no likelihoods of given texts: name another model for them, such as a local one, with "
    "`likelihood_lm`.",
    Decisions: "reads prompts and takes no decision requests.",
    Text: "answers closed questions and writes no texts. Use dialect='chat', or another model, for what must be "
    "written.",
}

# Tokens of each request so far for the question that the running task asks; None while a server is tried.
_usages: ContextVar[list[Usage] | None] = ContextVar("_usages", default=None)


@dataclass(frozen=True)
class Endpoint:
    """A model behind a server."""

    connection: Connection
    model: str
    tokenizer: Any = None  # fast; None for dialects that do not use it
    context_length: int | None = None  # in tokens; None if the server does not report it
    template_options: Mapping[str, Any] | None = None
    owned_by: str | None = None  # kind of server, as its listing says


class Dialect(ABC):
    """A kind of server: how to recognize and ask it. Subclasses implement the methods that raise or are abstract."""

    name: ClassVar[str]  # value of ``ServerLM(dialect=...)``
    capabilities: ClassVar[str]  # what the server returns, for the log
    owned_by: ClassVar[str | None] = None  # value in the server's ``/v1/models``; None without one
    version_path: ClassVar[str | None] = None  # where the server reports its version; None if nowhere
    needs_tokenizer: ClassVar[bool] = True  # True if prompts are rendered and tokenized here
    likelihoods: ClassVar[bool] = True  # True if the server returns log-probabilities of a prompt's tokens
    texts: ClassVar[bool] = True  # True if the server writes texts
    decides: ClassVar[bool] = False  # True if it takes closed questions in their own form
    most_questions: int = 1  # closed questions per request; fewer if answers turn out to lack names

    def __init__(self, endpoint: Endpoint) -> None:
        self.answering = Answering()  # names that the server's answers carry
        self.connection = endpoint.connection
        self._model = endpoint.model

    @abstractmethod
    async def probe(self) -> None:
        """Try the dialect on a short text; ValueError if the answer lacks values or contradicts itself."""

    @abstractmethod
    async def sample(self) -> FloatArray:
        """Return log-probabilities of a fixed text, which identify the model's weights; see ``fingerprint``."""

    def prepared(self, questions: Sequence[Question]) -> list[Prepared | Refused]:
        """Prepare a call's questions before any is sent; NotImplementedError for a kind, ValueError for bad prompts."""
        takes = {Likelihood: self.likelihoods, Decisions: self.decides, Text: self.texts}
        for kind in {type(question) for question in questions}:
            if not takes.get(kind, True):
                raise NotImplementedError(f"{self._model}: a server of the kind {self.name!r} {LACKS[kind]}")
        return self._prepared(questions)

    async def ask(self, prepared: Prepared) -> types.Answer:
        """Ask a question, or raise ``Unreadable`` or RequestError; ``Refused`` if the model declines the text."""
        question, usages = prepared.question, list[Usage]()
        _usages.set(usages)
        answer: ChoiceLogprobs | types.LogLikelihood | types.Decided | Written
        if isinstance(question, Decisions):
            answer = await self._decide(question)
        elif isinstance(question, Choices):
            answer = await self._choices(prepared.content, question.choices)
        elif isinstance(question, Likelihood):
            answer = types.LogLikelihood(await self._likelihood(prepared.content))
        else:
            answer = await self._text(prepared.content, question)
        return replace(answer, usage=types.total_usage(usages))

    def _prepared(self, questions: Sequence[Question]) -> list[Prepared | Refused]:
        return [self._checked(question) for question in questions]

    def _checked(self, question: Question) -> Prepared | Refused:
        """Prepare a question; ValueError if the server does not take it after any prompt."""
        raise NotImplementedError

    async def _choices(self, content: Any, choices: tuple[str, ...]) -> ChoiceLogprobs:
        """Return the log-probabilities of c choices, shape (1, c)."""
        raise NotImplementedError

    async def _likelihood(self, scored: Scored) -> FloatArray:
        """Return the log-probability of every token from ``start`` on, shape (n,)."""
        raise NotImplementedError

    async def _text(self, content: Any, question: Text) -> Written:
        raise NotImplementedError

    async def _decide(self, decisions: Decisions) -> types.Decided:
        raise NotImplementedError

    def _opened(self, answer: Any) -> Any:
        """Return a server's answer without its wrapper."""
        return answer

    async def _post(self, path: str, body: dict[str, Any], *, heavy: bool = False) -> Any:
        """Send a request and return the answer; ModelChanged if it names another model than earlier answers."""
        answer = self._opened(await self.connection.post(path, body, heavy=heavy))
        if isinstance(answer, dict):
            self.answering.check(path, answer.get("model"), answer)
            if (usages := _usages.get()) is not None:
                usages.append(usage_of(answer))
        return answer


class WrongTokenizer(ValueError):  # noqa: N818 - a value error like the others, named for the problem
    """The server tokenizes a text differently than the tokenizer here; no other dialect need be tried."""


class NextTokenDialect(Tokenizing, Dialect):
    """A server that returns the log-probabilities of named tokens after a prompt.

    Prompts are rendered and tokenized here, exactly as by ``LocalLM``. Choices are scored as next tokens, because only
    then can many prompts, and the choices of one prompt, share their prefix in the server's prefix cache.
    vLLM recomputes the log-probabilities of a prompt's own tokens for every request, SGLang only from a chosen position
    on.
    """

    capabilities = "choices and likelihoods, tokenized locally"
    free: ClassVar[Mapping[type, int]] = {Choices: 0, Likelihood: 1, Text: 1}  # a choice's last is generated

    def __init__(self, endpoint: Endpoint) -> None:
        Dialect.__init__(self, endpoint)
        Tokenizing.__init__(self, endpoint.tokenizer, endpoint.template_options, endpoint.context_length)
        ids = tuple(endpoint.tokenizer(PROBE_TEXT)["input_ids"])
        self._probe_text = Scored(ids, len(ids) - 1)  # the last token, a single character, is scored

    async def _choices(self, content: Any, choices: tuple[str, ...]) -> ChoiceLogprobs:
        return ChoiceLogprobs(choices, (await self._scores(content))[None])

    async def _text(self, content: Any, question: Text) -> Written:
        """Generate a text after a prompt, and remove the prompt's lead from its beginning."""
        rendered, ids = content
        body = {"model": self._model, "prompt": list(ids), **settings_of(question, "max_tokens")}
        answer = await self._post("/v1/completions", body)
        return written(answer, part(answer, "choices", 0, "text", kind=str).removeprefix(rendered.lead))

    @abstractmethod
    async def _next_tokens(self, ids: Ids, tokens: Sequence[int]) -> dict[int, float]:
        """Return the log-probability of each of the ``tokens`` after a prompt."""

    async def probe(self) -> None:
        """Compare the tokens of a short text with the server's, then its last token scored in two ways."""
        ours = self.tokenizer.tokenizer(PROBE_TEXT, add_special_tokens=False)["input_ids"]
        names = {"model": self._model, "prompt": PROBE_TEXT, "add_special_tokens": False}  # of vLLM and SGLang
        with suppress(StatusError):  # a server that hides its tokens; llama.cpp takes other names
            answer = await self._post("/tokenize", {**names, "content": PROBE_TEXT, "add_special": False})
            theirs = part(answer, "tokens", kind=list)
            if theirs != ours:
                raise WrongTokenizer(
                    f"The server's tokens of a text are {theirs[:8]}..., but the tokenizer's are {ours[:8]}...: give "
                    "the tokenizer of the model that is served."
                )
        (after,) = await self._scores([self._probe_text])
        if self.likelihoods:
            (within,) = await self._likelihood(self._probe_text)
            if abs(after - within) > ANSWER_TOLERANCE:
                raise Unreadable(
                    f"it gives a token {after:.3f} nats after a text, but {within:.3f} nats within the same text"
                )

    async def sample(self) -> FloatArray:
        """Return the log-probability of every eighth token of ``PROBE_TEXT``."""
        ids = self._probe_text.ids
        return await self._scores([Scored(ids[: place + 1], place) for place in range(2, len(ids), 8)])

    async def _scores(self, row: Sequence[Scored]) -> FloatArray:
        """Return the log-probability of each sequence from its ``start`` on, shape (c,); all share a prefix.

        A request is sent for every position at which the tokens diverge, usually a single one.
        """
        shared = min(scored.start for scored in row)
        prefix = row[0].ids[:shared]
        following: dict[Ids, set[int]] = {}  # tokens after the shared prefix -> the tokens to score next
        for scored in row:
            for place in range(scored.start, len(scored.ids)):
                following.setdefault(scored.ids[shared:place], set()).add(scored.ids[place])
        logprobs = {ids: await self._next_tokens(prefix + ids, sorted(tokens)) for ids, tokens in following.items()}
        total = max(float(np.exp(list(values.values())).sum()) for values in logprobs.values())
        if total > 1.0 + SUM_EXCESS:
            raise Unreadable(f"the probabilities of the next token sum to {total:.3g}")
        return np.array([sum(logprobs[s.ids[shared:p]][s.ids[p]] for p in range(s.start, len(s.ids))) for s in row])


# Names for numbers of tokens: of OpenAI's completions and SGLang, of decision endpoints, of llama.cpp.
PROMPT_TOKENS = ("prompt_tokens", "input_tokens", "tokens_evaluated")
COMPLETION_TOKENS = ("completion_tokens", "output_tokens", "tokens_predicted")
MOST_COUNTED = 1 << 53  # limit of a number of tokens; sums of larger numbers may be too long to print


def usage_of(answer: dict[str, Any]) -> Usage:
    """Return the numbers of tokens of a request, in any dialect's form; None for unreported numbers."""
    places = [part(answer, name, kind=dict) for name in ("usage", "meta_info") if answer.get(name) is not None]
    return Usage(*(_count([*places, answer], names) for names in (PROMPT_TOKENS, COMPLETION_TOKENS)))


def _count(places: Sequence[dict[str, Any]], names: Sequence[str]) -> int | None:
    for place in places:
        for name in names:
            if place.get(name) is not None:
                count: int = part(place, name, kind=int)
                if not 0 <= count < MOST_COUNTED:
                    raise Unreadable(f"{name} is {count!s:.80}")
                return count
    return None


# Texts in which a server may read control tokens.

CONTROL = re.compile(
    r"<[|\uff5c][^<>\n]+[|\uff5c]>|<\|\w{2,}>|<\w{2,}\|>"  # most families
    r"|</?s>|<(?:seed:)?(?:bos|eos|pad|unk)>|<(?:BOS|EOS|PAD|UNK)(?:_TOKEN)?>|\[(?:BOS|EOS|PAD|UNK)\]"
    r"|</?(?:think|tool_(?:call|response))>|<(?:start|end)_of_(?:turn|image)>|<sop>|<eop>|\[[gs]MASK\]"
    r"|<(?:extra_id_|SPECIAL_|reserved_|unused|mask:)\d+>|\[UNUSED_TOKEN_\d+\]"
    r"|\[/?(?:INST|THINK|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS)\]|\[TOOL_(?:CALLS|CONTENT)\]|<</?SYS>>"  # Mistral
    r"|\[\|(?:system|user|assistant|tool|endofturn)\|\]"  # EXAONE
    r"|\]~!?b[\[\]]|\[e~\["  # MiniMax
)
"""Control tokens of common models: a best effort, because the server's tokenizer is unknown."""


def spelling_refused(texts: Iterable[str]) -> Refused | None:
    """Return a refusal if any text spells a control token, such as the end of the message; else None."""
    for text in texts:
        if match := CONTROL.search(text):
            return Refused(
                f"contains {match[0]!r}, which the server may read as a control token: change the text, or use vLLM, "
                "SGLang or llama.cpp's own server with --tokenizer, which take tokens."
            )
    return None


# Texts in OpenAI's protocol.


def settings_of(question: Text, limit: str) -> dict[str, Any]:
    """Return a request's sampling settings; the server's defaults apply otherwise. ``limit`` renames max_tokens."""
    values = {name: getattr(question, name) for name in ("temperature", "top_p", "top_k", "seed")}
    settings = {name: value for name, value in values.items() if value is not None}
    if question.stop:
        settings["stop"] = list(question.stop)
    return {limit: question.max_tokens or types.MAX_TOKENS, **settings}


def written(answer: Any, text: str) -> Written:
    """Return a text, marked as finished or cut off according to the server's answer."""
    return Written(text, part(answer, "choices", 0, kind=dict).get("finish_reason") != "length")
