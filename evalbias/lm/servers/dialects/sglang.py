"""SGLang."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evalbias.lm.servers.answers import ALL_NEUTRAL, logprob_of, part
from evalbias.lm.servers.dialects.tokenized import NextTokenDialect
from evalbias.lm.servers.errors import Unreadable
from evalbias.lm.tokens import Ids, Scored
from evalbias.measures.arrays import FloatArray


class SGLang(NextTokenDialect):
    """SGLang's own ``/generate``: ``token_ids_logprob`` for choices, ``logprob_start_len`` for likelihoods.

    Both reuse the prefix cache, RadixAttention (Zheng et al. 2024, "SGLang: Efficient Execution of Structured Language
    Model Programs").
    """

    name = "sglang"
    owned_by = "sglang"

    async def next_tokens(self, ids: Ids, tokens: Sequence[int]) -> dict[int, float]:
        """Return the log-probability of each of the ``tokens`` after a prompt."""
        meta = await self._generate(ids, {"token_ids_logprob": list(tokens)})
        entries = part(meta, "output_token_ids_logprobs", 0, kind=list)
        logprobs = {part(entry, 1, kind=int): logprob_of(part(entry, 0)) for entry in entries}
        return {token: part(logprobs, token) for token in tokens}

    async def sequence(self, scored: Scored) -> FloatArray:
        """Return the log-probability of every token from ``start`` on; the tokens before it may be cached."""
        meta = await self._generate(scored.ids, {"logprob_start_len": scored.start - 1}, heavy=True)
        entries = part(meta, "input_token_logprobs", kind=list)[1:]  # the first entry has no log-probability
        if [part(entry, 1) for entry in entries] != list(scored.ids[scored.start :]):
            raise Unreadable("input_token_logprobs belong to other tokens than those of the request")
        return np.array([logprob_of(part(entry, 0)) for entry in entries])

    async def _generate(self, ids: Ids, body: dict[str, Any], *, heavy: bool = False) -> Any:
        settings = {"max_new_tokens": 1, **ALL_NEUTRAL}
        request = {"input_ids": ids, "return_logprob": True, "sampling_params": settings, **body}
        return part(await self._post("/generate", request, heavy=heavy), "meta_info")
