"""OpenAI's chat protocol: the most probable tokens that an answer may begin with, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import openai

from evalbias.lm.servers.connection import Connection, Unreadable
from evalbias.lm.servers.dialects import NEUTRAL, logprob_of, part
from evalbias.lm.types import FloatArray, Message

TOP = 20
"""Tokens told at most, by OpenAI's rules."""


class Chat:
    """A server of which only chat answers and their ``top_logprobs`` are to be had.

    Args:
        connection: To the server.
        model: As it is served.
        tolerance: See ``ServerLM``.
    """

    name = "chat"
    likelihoods = False

    def __init__(self, connection: Connection, model: str, *, tolerance: float) -> None:
        self._connection = connection
        self._model = model
        self._tolerance = tolerance
        self.limit = "max_completion_tokens"  # older servers know max_tokens alone: see ``probe``

    async def probe(self) -> None:
        """Ask once, in the newer and in the older form.

        Raises:
            Unreadable: The server tells no ``top_logprobs``.
        """
        message = [{"role": "user", "content": "Answer with one digit."}]
        try:
            await self._top(message)
        except (openai.BadRequestError, openai.UnprocessableEntityError):
            self.limit = "max_tokens"
            await self._top(message)

    async def choices(self, messages: Sequence[Message], choices: Sequence[str]) -> FloatArray:
        """(c,) log-probability that an answer begins with each choice, as one token.

        A choice that is not among the tokens told has at most the probability of the least of them, and all such
        choices together at most what the tokens told leave over. Where that is no more than ``tolerance`` of what the
        told choices have, it counts as 0. Otherwise, and where a told token is the beginning of a choice that is not
        told, the row is undefined: NaN.
        """
        told = await self._top([dict(message) for message in messages])
        row = np.array([told.get(choice, -math.inf) for choice in choices])
        untold = [choice for choice in choices if choice not in told]
        if not untold:
            return row
        if any(choice.startswith(token) for choice in untold for token in told if token):
            return np.full(len(choices), np.nan)
        shares = np.exp(list(told.values()))
        rest = min(max(0.0, 1.0 - float(shares.sum())), len(untold) * float(shares.min()))
        known = float(np.exp(row).sum())
        return row if known > 0 and rest <= self._tolerance * known else np.full(len(choices), np.nan)

    async def _top(self, messages: Sequence[Message]) -> dict[str, float]:
        body = {"model": self._model, "messages": messages, "logprobs": True, "top_logprobs": TOP, self.limit: 1}
        answer = await self._connection.post("/v1/chat/completions", {**body, **NEUTRAL})
        top: list[Any] = part(answer, "choices", 0, "logprobs", "content", 0, "top_logprobs")
        told = {part(entry, "token"): logprob_of(part(entry, "logprob")) for entry in top}
        if len(told) < 2:
            raise Unreadable(f"top_logprobs tells {len(told)} tokens")
        return told
