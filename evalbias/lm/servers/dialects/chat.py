"""OpenAI's chat protocol: the most probable first tokens of an answer, and nothing else."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from dspy import lm15

from evalbias.lm.control_tokens import ControlTokenInText
from evalbias.lm.fingerprint import SAMPLE_QUESTION, sample_of
from evalbias.lm.refusals import each
from evalbias.lm.servers.answers import ALL_NEUTRAL, NEUTRAL, part
from evalbias.lm.servers.call import Job
from evalbias.lm.servers.dialects.base import Dialect, Endpoint
from evalbias.lm.servers.errors import StatusError, Unreadable
from evalbias.lm.servers.generation import response, sampling, token_logprob
from evalbias.lm.tokens import check_choices
from evalbias.lm.top_logprobs import TOP, first_token_row, first_tokens
from evalbias.lm.types import ChoiceLogprobs, Message, Prompt, as_messages
from evalbias.measures.arrays import FloatArray

CONTROL = re.compile(
    r"<[|\uff5c][^<>\n]+[|\uff5c]>|<\|\w{2,}>|<\w{2,}\|>"  # most families
    r"|</?s>|<(?:seed:)?(?:bos|eos|pad|unk)>|<(?:BOS|EOS|PAD|UNK)(?:_TOKEN)?>|\[(?:BOS|EOS|PAD|UNK)\]"
    r"|</?(?:think|tool_(?:call|response))>|<(?:start|end)_of_(?:turn|image)>|<sop>|<eop>|\[[gs]MASK\]"
    r"|<(?:extra_id_|SPECIAL_|reserved_|unused|mask:)\d+>|\[UNUSED_TOKEN_\d+\]"
    r"|\[/?(?:INST|THINK|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS)\]|\[TOOL_(?:CALLS|CONTENT)\]|<</?SYS>>"  # Mistral
    r"|\[\|(?:system|user|assistant|tool|endofturn)\|\]"  # EXAONE
    r"|\]~!?b[\[\]]|\[e~\["  # MiniMax
)
"""Control tokens of common models: a best effort, because the tokenizer of a chat server is not known here."""

BINS = 16
"""Number of values in a chat's sample; its reported tokens are others from model to model."""


class Chat(Dialect):
    """A server that returns only chat answers with their ``top_logprobs``; it renders and tokenizes prompts itself."""

    name = "chat"
    needs_tokenizer = False
    likelihoods = False

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._tolerance = endpoint.tolerance
        self._neutral: dict[str, float] = NEUTRAL  # this and the next are found out by ``probe``
        self._limit = "max_completion_tokens"

    @classmethod
    async def probe(cls, endpoint: Endpoint) -> Chat:
        """Send one request in the fullest form, and again with fewer and older settings if refused; see ``Dialect``."""
        chat = cls(endpoint)
        messages = [{"role": "user", "content": "Answer with one digit."}]
        forms = list(itertools.product((ALL_NEUTRAL, NEUTRAL), ("max_completion_tokens", "max_tokens")))
        for form in forms:
            chat._neutral, chat._limit = form
            try:
                await chat._top(messages)
                break
            except StatusError as error:
                if error.status not in (400, 422) or form == forms[-1]:
                    raise
        return chat

    @property
    def capabilities(self) -> str:
        """Description of what the server returns, for the log."""
        return f"choices of one token among the {TOP} most probable, no likelihoods"

    async def sample(self) -> FloatArray:
        """Return the sample of the first tokens of an answer, which ``BINS`` hold by a hash of their text."""
        probabilities = np.zeros(BINS)
        for token, logprob in (await self._top([{"role": "user", "content": SAMPLE_QUESTION}])).items():
            probabilities[zlib.crc32(token.encode("utf-8", "surrogatepass")) % BINS] += np.exp(logprob)
        return sample_of(probabilities)

    def choice_jobs(self, prompts: Sequence[Prompt], choices: tuple[str, ...]) -> list[Job[ChoiceLogprobs]]:
        """Return one job per prompt; see ``Dialect``.

        Raises:
            ValueError: There are no choices, one is empty or repeated, or the server cannot take a prompt.
        """
        check_choices(choices)

        async def answer(messages: Sequence[Message], at: Chat) -> ChoiceLogprobs:
            return ChoiceLogprobs(choices, (await at.choices(messages, choices))[None])

        return [Job(partial(answer, messages), _key(messages)) for messages in each(_messages, prompts)]

    async def choices(self, messages: Sequence[Message], choices: Sequence[str]) -> FloatArray:
        """Return the log-probability that an answer begins with each choice as one token, shape (c,).

        See ``first_token_row`` for choices that are not among the reported tokens.
        """
        top = await self._top([dict(message) for message in messages])
        return first_token_row(top, choices, tolerance=self._tolerance)

    def generation_job(self, prompt: Prompt, config: lm15.Config) -> Job[lm15.Response]:
        """Return the job that generates an answer; see ``Dialect``.

        Raises:
            ValueError: The server cannot take the prompt.
        """
        messages = _messages(prompt)
        return Job(lambda at: at.generate(messages, config), _key(messages))

    async def generate(self, messages: Sequence[Message], config: lm15.Config) -> lm15.Response:
        """Generate the answer to messages."""
        body = {"model": self._model, "messages": [dict(m) for m in messages], **sampling(config, self._limit)}
        if config.logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": config.logprobs}
        answer = await self._post("/v1/chat/completions", body)
        choice = part(answer, "choices", 0)
        logprobs = None
        if config.logprobs is not None:
            logprobs = tuple(
                token_logprob(*_pair(entry), map(_pair, part(entry, "top_logprobs", kind=list)))
                for entry in part(choice, "logprobs", "content", kind=list)
            )
        content = part(choice, "message", kind=dict).get("content")
        text = "" if content is None else part(content, kind=str)  # null: the model refused
        return response(self._model, answer, text, logprobs)

    async def _top(self, messages: Sequence[Message]) -> dict[str, float]:
        """Return the most probable first tokens of an answer with their log-probabilities."""
        body = {"model": self._model, "messages": messages, "logprobs": True, "top_logprobs": TOP, self._limit: 1}
        answer = await self._post("/v1/chat/completions", {**body, **self._neutral})
        entries: list[Any] = part(answer, "choices", 0, "logprobs", "content", 0, "top_logprobs", kind=list)
        if len(entries) < 2:
            raise Unreadable(f"top_logprobs has {len(entries)} tokens, at least 2 are needed")
        return first_tokens(map(_pair, entries))


def _pair(entry: Any) -> tuple[str, Any]:
    return part(entry, "token", kind=str), part(entry, "logprob")


def _key(messages: Sequence[Message]) -> bytes:
    return "\0".join(message["content"] for message in messages).encode("utf-8", "surrogatepass")


def _messages(prompt: Prompt) -> Sequence[Message]:
    """Return a prompt as chat messages.

    Raises:
        ValueError: The prompt is empty or ends with an unfinished answer.
        ControlTokenInText: The prompt contains a control token, which the server may read as such.
    """
    messages = as_messages(prompt)
    if not messages or messages[-1]["role"] == "assistant":
        raise ValueError(
            "The prompt ends with an assistant message, which a chat server cannot continue: end it with "
            "a user message."
        )
    for message in messages:
        check_plain(message["content"])
    return messages


def check_plain(text: str) -> None:
    """Refuse a text that spells a control token, for servers that render and tokenize texts themselves.

    Raises:
        ControlTokenInText: The text contains a control token, which the server may read as such.
    """
    if found := CONTROL.search(text):
        raise ControlTokenInText(
            {
                0: f"contains {found[0]!r}, which a chat server may read as a control token, such as the end of "
                "the message: change the text, or use vLLM, SGLang or llama.cpp with --tokenizer, which take "
                "tokens."
            }
        )
