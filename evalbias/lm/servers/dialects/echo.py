"""Servers that echo a prompt with its log-probabilities, as OpenAI's old completions did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evalbias.lm.control_tokens import ControlTokenInText
from evalbias.lm.servers.answers import NEUTRAL, check_agreement, logprob_of, part
from evalbias.lm.servers.dialects.base import Endpoint
from evalbias.lm.servers.dialects.tokenized import TokenizedDialect
from evalbias.lm.servers.errors import Unreadable
from evalbias.lm.text import Joined
from evalbias.lm.tokens import Ids, Scored
from evalbias.measures.arrays import FloatArray


class Echo(TokenizedDialect):
    """A server that returns the log-probabilities of a text's own tokens (``echo``), such as llama-cpp-python's.

    The server tokenizes the text itself. Its number of tokens is checked with every answer; a difference is an error.
    The server reads control tokens wherever a text spells them, so other texts than the chat template's may not.
    """

    name = "echo"
    reads_texts = True
    owned_by = "me"  # llama-cpp-python

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._vocabulary = len(endpoint.tokenizer)
        ids, text = self._probe_text.ids, self._probe_text.text
        plain = endpoint.tokenizer(text, add_special_tokens=False)["input_ids"]
        starts = len(ids) > len(plain) and ids[0] == endpoint.tokenizer.bos_token_id
        self._start = str(endpoint.tokenizer.bos_token) if starts else ""

    def prompt(self, text: str, ids: Ids) -> str | list[int]:
        """Return the text without a start token from the chat template: the server adds one itself."""
        return text.removeprefix(self._start)

    def check_plain(self, text: Joined) -> None:
        """Refuse a text that spells a control token; see ``TokenizedDialect``."""
        for start, stop in self._tokenizer.spans(text.text):
            if (start, stop) not in text.controls:
                raise ControlTokenInText(
                    {
                        0: f"contains {text.text[start:stop]!r}, which the server would read as a control token: "
                        "change the text, or use vLLM, SGLang or llama.cpp's own server, which take tokens."
                    }
                )

    async def sample(self) -> FloatArray:
        """Return the log-probabilities of the text on which the dialect is tried, from its third token on."""
        return await self.sequence(Scored(self._probe_text.ids, 2, self._probe_text.text))

    async def check(self, scored: Scored) -> None:
        """Compare the token as the next one after the text with the token within it; see ``TokenizedDialect``.

        llama-cpp-python shifts all log-probabilities by one position if a model has no start token.
        """
        (within,) = await self.sequence(scored)
        shorter, last = scored.text[:-1], scored.text[-1]
        choice, _ = await self._complete(shorter, len(scored.ids) - 1, {"logprobs": self._vocabulary})
        check_agreement(logprob_of(part(choice, "logprobs", "top_logprobs", 0, last)), within)

    async def choices(self, row: Sequence[Scored]) -> FloatArray:
        """Send one request per choice."""
        return np.array([float((await self.sequence(scored)).sum()) for scored in row])

    async def sequence(self, scored: Scored) -> FloatArray:
        """Return the log-probability of every token from ``start`` on."""
        count = len(scored.ids) - scored.start
        choice, generated = await self._complete(scored.text, len(scored.ids), {"logprobs": 1, "echo": True})
        values = part(choice, "logprobs", "token_logprobs", kind=list)
        values = values[: len(values) - generated]
        if len(values) < count:
            raise Unreadable(f"{len(values)} token_logprobs for {count} tokens")
        return np.array([logprob_of(value) for value in values[len(values) - count :]])

    async def _complete(self, text: str, count: int, body: dict[str, Any]) -> tuple[Any, int]:
        """Send a text of ``count`` tokens; return the answer and the number of tokens generated after the text."""
        request = {"model": self._model, "prompt": self.prompt(text, ()), "max_tokens": 1, **NEUTRAL, **body}
        answer = await self._post("/v1/completions", request)
        theirs = part(answer, "usage", "prompt_tokens", kind=int)
        if theirs != count:
            raise Unreadable(
                f"the server splits a text into {theirs} tokens, the tokenizer into {count}: give the tokenizer of the "
                "model that is served"
            )
        return part(answer, "choices", 0), part(answer, "usage", "completion_tokens", kind=int)
