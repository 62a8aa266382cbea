"""vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evalbias.lm.servers.answers import ALL_NEUTRAL, logprob_of, part
from evalbias.lm.servers.dialects.tokenized import NextTokenDialect
from evalbias.lm.servers.errors import Unreadable
from evalbias.lm.tokens import Ids, Scored
from evalbias.measures.arrays import FloatArray

MOST_TOKENS = 128
"""Number of named tokens that vLLM scores in one request."""


class VLLM(NextTokenDialect):
    """vLLM 0.29 and later: ``logprob_token_ids`` for choices and ``prompt_logprobs`` for likelihoods."""

    name = "vllm"
    owned_by = "vllm"
    version_path = "/version"

    async def next_tokens(self, ids: Ids, tokens: Sequence[int]) -> dict[int, float]:
        """Return the log-probability of each of the ``tokens`` after a prompt."""
        logprobs: dict[int, float] = {}
        for start in range(0, len(tokens), MOST_TOKENS):
            batch = tokens[start : start + MOST_TOKENS]
            body = {"logprobs": 0, "logprob_token_ids": list(batch), "return_tokens_as_token_ids": True}
            top = part(await self._complete(ids, body), "logprobs", "top_logprobs", 0)
            logprobs |= {token: logprob_of(part(top, f"token_id:{token}")) for token in batch}
        return logprobs

    async def sequence(self, scored: Scored) -> FloatArray:
        """Return the log-probability of every token from ``start`` on; vLLM uses no cached prefix for it."""
        choice = await self._complete(scored.ids, {"prompt_logprobs": 0}, heavy=True)
        entries = part(choice, "prompt_logprobs", kind=list)
        if len(entries) != len(scored.ids):
            raise Unreadable(f"{len(entries)} prompt_logprobs for {len(scored.ids)} tokens")
        places = range(scored.start, len(scored.ids))
        return np.array([logprob_of(part(entries[p], str(scored.ids[p]), "logprob")) for p in places])

    async def _complete(self, ids: Ids, body: dict[str, Any], *, heavy: bool = False) -> Any:
        request = {"model": self._model, "prompt": ids, "max_tokens": 1, **ALL_NEUTRAL, **body}
        return part(await self._post("/v1/completions", request, heavy=heavy), "choices", 0)
