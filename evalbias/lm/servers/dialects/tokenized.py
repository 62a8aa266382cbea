"""Base classes of dialects whose prompts are rendered and tokenized here, exactly as by ``LocalLM``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from dspy import lm15

from evalbias.lm.chat import Renderer
from evalbias.lm.control_tokens import PromptTokenizer
from evalbias.lm.refusals import each
from evalbias.lm.servers.answers import check_agreement, part
from evalbias.lm.servers.call import Job
from evalbias.lm.servers.dialects.base import Dialect, Endpoint
from evalbias.lm.servers.errors import StatusError, Unreadable
from evalbias.lm.servers.generation import response, sampling, token_logprob
from evalbias.lm.text import Joined, Rendered
from evalbias.lm.tokens import Ids, Scored, check_known, check_length, check_lengths, choice_sequences, joint, key_of
from evalbias.lm.top_logprobs import ROUNDING
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, Prompt
from evalbias.measures.arrays import FloatArray

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
