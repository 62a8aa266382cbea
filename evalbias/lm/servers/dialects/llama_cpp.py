"""llama.cpp's own server, ``llama-server``."""

from __future__ import annotations

from collections.abc import Sequence

from evalbias.lm.servers.answers import logprob_of, part
from evalbias.lm.servers.dialects.base import Endpoint
from evalbias.lm.servers.dialects.tokenized import NextTokenDialect
from evalbias.lm.servers.errors import Unreadable
from evalbias.lm.tokens import Ids

ALL_TOKENS = 1 << 20
"""A number of tokens that no vocabulary exceeds."""


class LlamaCpp(NextTokenDialect):
    """llama.cpp's ``llama-server``: the ``n_probs`` most probable next tokens, with ``n_probs`` raised as needed.

    The server withholds its answer while the token it generated is only part of a character. A logit bias therefore
    makes it generate a token of whole characters; the reported probabilities are those before the bias.
    """

    name = "llama.cpp"
    owned_by = "llamacpp"
    likelihoods = False

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._whole_token = self._probe_text.ids[1]

    async def next_tokens(self, ids: Ids, tokens: Sequence[int]) -> dict[int, float]:
        """Return the log-probability of each of the ``tokens`` after a prompt."""
        count, previous = 64, 0
        while True:
            logprobs = await self._most_probable(ids, count)
            if set(tokens) <= logprobs.keys():
                return {token: logprobs[token] for token in tokens}
            if len(logprobs) <= previous:
                raise Unreadable(f"only the {previous} most probable tokens are returned, not all of {list(tokens)}")
            count, previous = min(count * 16, ALL_TOKENS), len(logprobs)

    async def _most_probable(self, ids: Ids, count: int) -> dict[int, float]:
        settings = {"n_predict": 1, "temperature": 0.0, "logit_bias": [[self._whole_token, 1e4]]}
        request = {"prompt": list(ids), "n_probs": count, "cache_prompt": True, **settings}
        answer = await self._post("/completion", request)
        top = part(answer, "completion_probabilities", 0, "top_logprobs", kind=list)
        return {part(entry, "id", kind=int): logprob_of(part(entry, "logprob")) for entry in top}
