"""The dialects of servers, a class each. To add a dialect, write its class here and list it in ``DIALECTS``."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from evalbias.lm import dialect, types
from evalbias.lm.calls import HARMLESS
from evalbias.lm.decision_servers import DecisionsEndpoint, SystemOne
from evalbias.lm.dialect import ALL_NEUTRAL, NEUTRAL, Dialect, Endpoint, NextTokenDialect, settings_of, written
from evalbias.lm.fingerprint import SAMPLE_QUESTION, sample_of
from evalbias.lm.reading import TOP, Unreadable, Withheld, first_token_row, first_tokens, logprob_of, part
from evalbias.lm.render import Prepared
from evalbias.lm.tokens import Ids, Scored, check_choices
from evalbias.lm.transport import StatusError
from evalbias.lm.types import ChoiceLogprobs, Choices, Refused, as_messages
from evalbias.measures.arrays import FloatArray

# Servers that take tokens.

MOST_TOKENS = 128  # number of named tokens that vLLM scores in a request


class VLLM(NextTokenDialect):
    """vLLM 0.29 and later: ``logprob_token_ids`` for choices and ``prompt_logprobs`` for likelihoods."""

    name = "vllm"
    owned_by = "vllm"
    version_path = "/version"

    async def _next_tokens(self, ids: Ids, tokens: Sequence[int]) -> dict[int, float]:
        logprobs: dict[int, float] = {}
        for start in range(0, len(tokens), MOST_TOKENS):
            batch = tokens[start : start + MOST_TOKENS]
            body = {"logprobs": 0, "logprob_token_ids": list(batch), "return_tokens_as_token_ids": True}
            top = part(await self._complete(ids, body), "logprobs", "top_logprobs", 0)
            logprobs |= {token: logprob_of(part(top, f"token_id:{token}")) for token in batch}
        return logprobs

    async def _likelihood(self, scored: Scored) -> FloatArray:
        """Return the (n,) log-probabilities; vLLM does not use its prefix cache for them."""
        choice = await self._complete(scored.ids, {"prompt_logprobs": 0}, heavy=True)
        entries = part(choice, "prompt_logprobs", kind=list)
        if len(entries) != len(scored.ids):
            raise Unreadable(f"{len(entries)} prompt_logprobs for {len(scored.ids)} tokens")
        places = range(scored.start, len(scored.ids))
        return np.array([logprob_of(part(entries[p], str(scored.ids[p]), "logprob")) for p in places])

    async def _complete(self, ids: Ids, body: dict[str, Any], *, heavy: bool = False) -> Any:
        request = {"model": self._model, "prompt": ids, "max_tokens": 1, **ALL_NEUTRAL, **body}
        return part(await self._post("/v1/completions", request, heavy=heavy), "choices", 0)


class SGLang(NextTokenDialect):
    """SGLang's own ``/generate``: ``token_ids_logprob`` for choices, ``logprob_start_len`` for likelihoods.

    Both reuse the prefix cache, RadixAttention (Zheng et al. 2024, SGLang).
    """

    name = "sglang"
    owned_by = "sglang"

    async def _next_tokens(self, ids: Ids, tokens: Sequence[int]) -> dict[int, float]:
        meta = await self._generate(ids, {"token_ids_logprob": list(tokens)})
        entries = part(meta, "output_token_ids_logprobs", 0, kind=list)
        logprobs = {part(entry, 1, kind=int): logprob_of(part(entry, 0)) for entry in entries}
        return {token: part(logprobs, token) for token in tokens}

    async def _likelihood(self, scored: Scored) -> FloatArray:
        """Return the (n,) log-probabilities; SGLang may cache the tokens before ``start``."""
        meta = await self._generate(scored.ids, {"logprob_start_len": scored.start - 1}, heavy=True)
        entries = part(meta, "input_token_logprobs", kind=list)[1:]  # the first entry has no log-probability
        if [part(entry, 1) for entry in entries] != list(scored.ids[scored.start :]):
            raise Unreadable("input_token_logprobs belong to other tokens than those of the request")
        return np.array([logprob_of(part(entry, 0)) for entry in entries])

    async def _generate(self, ids: Ids, body: dict[str, Any], *, heavy: bool = False) -> Any:
        settings = {"max_new_tokens": 1, **ALL_NEUTRAL}
        request = {"input_ids": ids, "return_logprob": True, "sampling_params": settings, **body}
        return part(await self._post("/generate", request, heavy=heavy), "meta_info")


ALL_TOKENS = 1 << 20  # a number of tokens that no vocabulary exceeds


class LlamaCpp(NextTokenDialect):
    """llama.cpp's ``llama-server``: the ``n_probs`` most probable next tokens, with ``n_probs`` raised as needed.

    The server withholds its answer while its generated token is only part of a character. A logit bias therefore
    makes it generate a token of whole characters; the reported probabilities are those before the bias.
    """

    name = "llama.cpp"
    capabilities = "choices, no likelihoods, tokenized locally"
    owned_by = "llamacpp"
    likelihoods = False

    async def _next_tokens(self, ids: Ids, tokens: Sequence[int]) -> dict[int, float]:
        count, previous = 64, 0
        while True:
            logprobs = await self._most_probable(ids, count)
            if set(tokens) <= logprobs.keys():
                return {token: logprobs[token] for token in tokens}
            if len(logprobs) <= previous:
                raise Unreadable(f"only the {previous} most probable tokens are returned, not all of {list(tokens)}")
            count, previous = min(count * 16, ALL_TOKENS), len(logprobs)

    async def _most_probable(self, ids: Ids, count: int) -> dict[int, float]:
        whole_token = self._probe_text.ids[1]
        settings = {"n_predict": 1, "temperature": 0.0, "logit_bias": [[whole_token, 1e4]]}
        request = {"prompt": list(ids), "n_probs": count, "cache_prompt": True, **settings}
        answer = await self._post("/completion", request)
        top = part(answer, "completion_probabilities", 0, "top_logprobs", kind=list)
        return {part(entry, "id", kind=int): logprob_of(part(entry, "logprob")) for entry in top}


# Servers that take messages, and render and tokenize them.

BINS = 16  # number of values in a chat's sample, whose reported tokens differ between models


class Chat(Dialect):
    """A server that returns only chat answers with their ``top_logprobs``: OpenAI's chat protocol."""

    name = "chat"
    capabilities = f"choices of one token among the {TOP} most probable, no likelihoods"
    needs_tokenizer = False
    likelihoods = False

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._neutral: dict[str, float] = NEUTRAL  # ``probe`` determines this and the next
        self._limit = "max_completion_tokens"

    async def probe(self) -> None:
        """Send a request with all settings, and again with fewer and older settings if refused."""
        forms = list(itertools.product((ALL_NEUTRAL, NEUTRAL), ("max_completion_tokens", "max_tokens")))
        for self._neutral, self._limit in forms:
            try:
                await self._top([{"role": "user", "content": HARMLESS}])
                return
            except StatusError as error:
                if error.status not in (400, 422) or (self._neutral, self._limit) == forms[-1]:
                    raise

    async def sample(self) -> FloatArray:
        """Return the sample of an answer's first tokens, pooled into ``BINS`` values by a hash of their text."""
        probabilities = np.zeros(BINS)
        for token, logprob in (await self._top([{"role": "user", "content": SAMPLE_QUESTION}])).items():
            probabilities[zlib.crc32(token.encode("utf-8", "surrogatepass")) % BINS] += np.exp(logprob)
        return sample_of(probabilities)

    def _checked(self, question: Any) -> Prepared | Refused:
        if isinstance(question, Choices):
            check_choices(question.choices)
        messages = as_messages(question.prompt)
        if not messages or messages[-1]["role"] == "assistant":
            raise ValueError(
                "The prompt ends with an assistant message, which a chat server cannot continue: end it with "
                "a user message."
            )
        texts = [message["content"] for message in messages]
        key = "\0".join(texts).encode("utf-8", "surrogatepass")
        return dialect.spelling_refused(texts) or Prepared(question, messages, key)

    async def _choices(self, content: Sequence[types.Message], choices: tuple[str, ...]) -> ChoiceLogprobs:
        """Return the log-probability of each choice as the first token of an answer, by ``first_token_row``."""
        return ChoiceLogprobs(choices, first_token_row(await self._top(content), choices)[None])

    async def _text(self, content: Sequence[types.Message], question: types.Text) -> types.Written:
        body = {"model": self._model, "messages": [dict(m) for m in content], **settings_of(question, self._limit)}
        answer = await self._post("/v1/chat/completions", body)
        text = part(answer, "choices", 0, "message", kind=dict).get("content")
        return written(answer, "" if text is None else part(text, kind=str))  # null: the model refused

    async def _top(self, messages: Sequence[types.Message]) -> dict[str, float]:
        body = {"model": self._model, "messages": [dict(message) for message in messages], self._limit: 1}
        body |= {"logprobs": True, "top_logprobs": TOP, **self._neutral}
        answer = await self._post("/v1/chat/completions", body)
        choice = part(answer, "choices", 0, kind=dict) if part(answer, "choices", kind=list) else {}
        if not (choice.get("logprobs") or {}).get("content"):
            message = choice.get("message") or {}
            words = [message.get("refusal") or message.get("content"), choice.get("finish_reason")]
            held = ", ".join(f"{word!r:.80}" for word in words if word) or "it is empty"
            raise Withheld(f"no token probabilities stand in it ({held})")
        entries: list[Any] = part(choice, "logprobs", "content", 0, "top_logprobs", kind=list)
        if len(entries) < 2:
            raise Unreadable(f"top_logprobs has {len(entries)} tokens, at least 2 are needed")
        return first_tokens((part(entry, "token", kind=str), part(entry, "logprob")) for entry in entries)


DIALECTS: tuple[type[Dialect], ...] = (VLLM, SGLang, LlamaCpp, Chat, SystemOne, DecisionsEndpoint)
"""All dialects, in the order in which they are tried."""
