"""What a kind of server is asked so that it tells the probabilities of given tokens.

Choices are asked as the next token after their context wherever a server tells named tokens: only then do the requests
of many prompts, and of one prompt's choices, find each other's beginnings in the server's prefix cache. What a server
says of a prompt's own tokens it computes anew for every request (vLLM), or from a place on that is named (SGLang).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import openai

from evalbias.lm.servers.connection import Connection, Unreadable
from evalbias.lm.tokens import Ids, Scored
from evalbias.lm.types import FloatArray

LEAST = -9999.0
"""What vLLM writes for minus infinity, which JSON does not have."""

AGREE = 0.05
"""Nats by which a server's two ways to tell the same probability may differ, in bfloat16."""

NEUTRAL = {"temperature": 1.0, "top_p": 1.0}
"""A server that tells probabilities after sampling's own changes must make none."""


class Dialect(Protocol):
    """One kind of server.

    Attributes:
        name: As ``ServerLM(dialect=...)`` takes it.
        likelihoods: Whether it tells the probabilities of given texts.
    """

    name: str
    likelihoods: bool

    def prompt(self, text: str, ids: Ids) -> str | list[int]:
        """A prompt as the server takes it: its tokens, or the text of which the server makes the same tokens."""
        ...

    async def tokens(self, text: str) -> list[int] | None:
        """The tokens that the server makes of a text, without special ones; None where it does not tell."""
        ...

    async def choices(self, row: Sequence[Scored]) -> FloatArray:
        """Log-probabilities of token sequences that begin alike, each from its ``start`` on, summed."""
        ...

    async def sequence(self, scored: Scored) -> FloatArray:
        """Log-probability of every token from ``start`` on."""
        ...

    async def sample(self, scored: Scored) -> FloatArray:
        """Log-probabilities of some of a text's tokens, by which a model is known again."""
        ...

    async def check(self, scored: Scored, vocabulary: int) -> None:
        """Ask for the last token of a text in two ways and compare.

        Args:
            scored: A text whose last token is scored, and is made of its last character alone.
            vocabulary: Its size.

        Raises:
            Unreadable: The answers differ, or lack what was asked for.
        """
        ...


class NextTokens:
    """A server that tells the probabilities of named tokens after a prompt."""

    likelihoods = True

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._model = model

    def prompt(self, text: str, ids: Ids) -> str | list[int]:
        """The tokens."""
        return list(ids)

    async def tokens(self, text: str) -> list[int] | None:
        """The tokens that the server makes of a text, without special ones; None where it does not tell."""
        names = {"model": self._model, "prompt": text, "add_special_tokens": False}  # vLLM's and SGLang's
        try:
            found = await self._connection.post("/tokenize", {**names, "content": text, "add_special": False})
        except openai.APIStatusError:
            return None
        return list(part(found, "tokens"))

    async def sample(self, scored: Scored) -> FloatArray:
        """Log-probabilities of some of a text's tokens, by which a model is known again."""
        return await self.choices([Scored(scored.ids[: place + 1], place) for place in range(2, len(scored.ids), 8)])

    async def check(self, scored: Scored, vocabulary: int) -> None:
        """Compare the token after the text with the token within it; see ``Dialect``."""
        (after,) = await self.choices([scored])
        if self.likelihoods:
            (within,) = await self.sequence(scored)
            agreed(after, within)

    async def choices(self, row: Sequence[Scored]) -> FloatArray:
        """One request for every place at which the choices' tokens part, most often one."""
        wanted: dict[Ids, set[int]] = {}
        for scored in row:
            for place in range(scored.start, len(scored.ids)):
                wanted.setdefault(scored.ids[:place], set()).add(scored.ids[place])
        told = {ids: await self.next_tokens(ids, sorted(tokens)) for ids, tokens in wanted.items()}
        return np.array([sum(told[s.ids[:p]][s.ids[p]] for p in range(s.start, len(s.ids))) for s in row])

    async def next_tokens(self, ids: Ids, wanted: Sequence[int]) -> dict[int, float]:
        """Log-probability of each wanted token after a prompt."""
        raise NotImplementedError

    async def sequence(self, scored: Scored) -> FloatArray:
        """Log-probability of every token from ``start`` on, where ``likelihoods`` says so."""
        raise NotImplementedError


class VLLM(NextTokens):
    """vLLM (0.29 and later): ``logprob_token_ids`` and ``prompt_logprobs``."""

    name = "vllm"
    most = 128
    """Tokens that it tells in one answer."""

    async def next_tokens(self, ids: Ids, wanted: Sequence[int]) -> dict[int, float]:
        """Log-probability of each wanted token after a prompt."""
        told: dict[int, float] = {}
        for start in range(0, len(wanted), self.most):
            some = wanted[start : start + self.most]
            body = {"logprobs": 0, "logprob_token_ids": list(some), "return_tokens_as_token_ids": True}
            top = part(await self._complete(ids, body), "logprobs", "top_logprobs", 0)
            told |= {token: logprob_of(part(top, f"token_id:{token}")) for token in some}
        return told

    async def sequence(self, scored: Scored) -> FloatArray:
        """Log-probability of every token from ``start`` on; the server uses no cached prefix for it."""
        found = await self._complete(scored.ids, {"prompt_logprobs": 0})
        told = part(found, "prompt_logprobs")
        if len(told) != len(scored.ids):
            raise Unreadable(f"{len(told)} prompt_logprobs for {len(scored.ids)} tokens")
        places = range(scored.start, len(scored.ids))
        return np.array([logprob_of(part(told[p], str(scored.ids[p]), "logprob")) for p in places])

    async def _complete(self, ids: Ids, body: dict[str, Any]) -> Any:
        asked = {"model": self._model, "prompt": list(ids), "max_tokens": 1, **NEUTRAL, **body}
        return part(await self._connection.post("/v1/completions", asked), "choices", 0)


class SGLang(NextTokens):
    """SGLang's own ``/generate``: ``token_ids_logprob``, and ``logprob_start_len`` behind the cached prefix."""

    name = "sglang"

    async def next_tokens(self, ids: Ids, wanted: Sequence[int]) -> dict[int, float]:
        """Log-probability of each wanted token after a prompt."""
        meta = await self._generate(ids, {"token_ids_logprob": list(wanted)})
        told = part(meta, "output_token_ids_logprobs", 0)
        found = {entry[1]: logprob_of(entry[0]) for entry in told}
        return {token: part(found, token) for token in wanted}

    async def sequence(self, scored: Scored) -> FloatArray:
        """Log-probability of every token from ``start`` on; what stands before it may come from the cache."""
        meta = await self._generate(scored.ids, {"logprob_start_len": scored.start - 1})
        told = part(meta, "input_token_logprobs")[1:]  # the first token told has no probability
        if [entry[1] for entry in told] != list(scored.ids[scored.start :]):
            raise Unreadable("input_token_logprobs are not of the tokens asked for")
        return np.array([logprob_of(entry[0]) for entry in told])

    async def _generate(self, ids: Ids, body: dict[str, Any]) -> Any:
        sampling = {"max_new_tokens": 1, **NEUTRAL}
        asked = {"input_ids": list(ids), "return_logprob": True, "sampling_params": sampling, **body}
        return part(await self._connection.post("/generate", asked), "meta_info")


class LlamaCpp(NextTokens):
    """llama.cpp's ``llama-server``: the most probable next tokens by ``n_probs``, as many as it takes.

    It keeps its answer back where the token that it draws is a part of a character, so it is made to draw another one;
    what it tells are the probabilities before that.

    Args:
        connection: To the server.
        model: As it is served.
        whole: A token that is whole characters.
    """

    name = "llama.cpp"
    likelihoods = False
    vocabulary = 1 << 20
    """Tokens that no vocabulary exceeds."""

    def __init__(self, connection: Connection, model: str, *, whole: int) -> None:
        super().__init__(connection, model)
        self._whole = whole

    async def next_tokens(self, ids: Ids, wanted: Sequence[int]) -> dict[int, float]:
        """Log-probability of each wanted token after a prompt; more is asked until all are told."""
        asked, told = 64, 0
        while True:
            found = await self._complete(ids, asked)
            if set(wanted) <= found.keys():
                return {token: found[token] for token in wanted}
            if len(found) <= told:
                raise Unreadable(f"only the {told} most probable tokens are told, and not all of {list(wanted)}")
            asked, told = min(asked * 16, self.vocabulary), len(found)

    async def _complete(self, ids: Ids, count: int) -> dict[int, float]:
        drawn = {"n_predict": 1, "temperature": 0.0, "logit_bias": [[self._whole, 1e4]]}
        asked = {"prompt": list(ids), "n_probs": count, "cache_prompt": True, **drawn}
        answer = await self._connection.post("/completion", asked)
        top = part(answer, "completion_probabilities", 0, "top_logprobs")
        return {entry["id"]: logprob_of(entry["logprob"]) for entry in top}


class Echo:
    """Whoever echoes a text with its tokens' log-probabilities (``echo``), such as llama-cpp-python's server.

    The server makes its own tokens of the text. They are counted with every answer: where there are more or fewer than
    ours, nothing is told.
    """

    name = "echo"
    likelihoods = True

    def __init__(self, connection: Connection, model: str, *, start: str) -> None:
        self._connection = connection
        self._model = model
        self._start = start  # the text of the token that tokenizer and server put in front of every text

    def prompt(self, text: str, ids: Ids) -> str | list[int]:
        """The text, without a start token that a chat template wrote: the server would put a second one in front."""
        return text.removeprefix(self._start)

    async def tokens(self, text: str) -> list[int] | None:
        """None: they are counted with every answer."""
        return None

    async def sample(self, scored: Scored) -> FloatArray:
        """Log-probabilities of some of a text's tokens, by which a model is known again."""
        return await self.sequence(Scored(scored.ids, 2, scored.text))

    async def check(self, scored: Scored, vocabulary: int) -> None:
        """Compare the token after the text with the token within it; see ``Dialect``.

        llama-cpp-python tells of every token the probability of its successor's place where a model has no start token.
        """
        (within,) = await self.sequence(scored)
        shorter, last = scored.text[:-1], scored.text[-1]
        found, _ = await self._complete(shorter, len(scored.ids) - 1, {"logprobs": vocabulary})
        agreed(logprob_of(part(found, "logprobs", "top_logprobs", 0, last)), within)

    async def choices(self, row: Sequence[Scored]) -> FloatArray:
        """One request a choice."""
        return np.array([float((await self.sequence(scored)).sum()) for scored in row])

    async def sequence(self, scored: Scored) -> FloatArray:
        """Log-probability of every token from ``start`` on."""
        own = len(scored.ids) - scored.start
        found, wrote = await self._complete(scored.text, len(scored.ids), {"logprobs": 1, "echo": True})
        values = part(found, "logprobs", "token_logprobs")
        told = values[: len(values) - wrote]
        if len(told) < own:
            raise Unreadable(f"{len(told)} token_logprobs for {own} tokens")
        return np.array([logprob_of(value) for value in told[len(told) - own :]])

    async def _complete(self, text: str, count: int, body: dict[str, Any]) -> tuple[Any, int]:
        """The answer to a text of so many tokens, and how many tokens were written behind it."""
        asked = {"model": self._model, "prompt": self.prompt(text, ()), "max_tokens": 1, **NEUTRAL, **body}
        answer = await self._connection.post("/v1/completions", asked)
        theirs = part(answer, "usage", "prompt_tokens")
        if theirs != count:
            raise Unreadable(
                f"the server makes {theirs} tokens of a text and the tokenizer {count}: give the tokenizer of the "
                "model that is served"
            )
        return part(answer, "choices", 0), part(answer, "usage", "completion_tokens")


def agreed(after: float, within: float) -> None:
    """Refuse a server that contradicts itself.

    Raises:
        Unreadable: Two log-probabilities of the same token differ by more than ``AGREE``.
    """
    if abs(after - within) > AGREE:
        raise Unreadable(f"it tells {after:.3f} nats of a token after a text and {within:.3f} of the same within it")


def part(found: Any, *path: Any) -> Any:
    """What stands at a path of a server's answer.

    Raises:
        Unreadable: Nothing does.
    """
    for step in path:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            raise Unreadable(f"{'.'.join(map(str, path))} is missing") from None
    if found is None:
        raise Unreadable(f"{'.'.join(map(str, path))} is null")
    return found


def logprob_of(value: Any) -> float:
    """A log-probability as it is written.

    Raises:
        Unreadable: NaN, above 0 by more than rounding, or no number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value > 1e-3:
        raise Unreadable(f"{value!r} is no log-probability")
    return -math.inf if value <= LEAST else min(float(value), 0.0)
