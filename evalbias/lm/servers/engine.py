"""A model behind a server as a DSPy engine: measured judgments, generation, and the probabilities themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from dspy import lm15

from evalbias.lm.chat import Renderer
from evalbias.lm.dspy_compat import validate_request
from evalbias.lm.requests import judgments, measured, messages_of, refuse
from evalbias.lm.servers.chat import Chat
from evalbias.lm.servers.connection import Answer, Connection
from evalbias.lm.servers.dialects import Dialect
from evalbias.lm.servers.generation import written_in_chat, written_on
from evalbias.lm.tokens import Scored, check_choices, check_lengths, choice_sequences, joint
from evalbias.lm.types import ChoiceLogprobs, LogLikelihood, Message, Prompt

NAME = "ServerLM"


class ServerEngine:
    """See ``ServerLM``, which is what users make.

    Args:
        connection: To the server.
        model: As it is served.
        way: How its probabilities are asked for.
        tokenizer: Of the model; None for chats.
        context_length: In tokens; None where the server does not tell.
    """

    def __init__(
        self, connection: Connection, model: str, way: Dialect | Chat, tokenizer: Any, context_length: int | None
    ) -> None:
        self.connection = connection
        self.way = way
        self._model = model
        self._tokenizer = tokenizer
        self._render = None if tokenizer is None else Renderer(tokenizer)
        self._context = context_length

    def __deepcopy__(self, memo: dict[int, Any]) -> ServerEngine:
        """Copies of a program share the connection."""
        return self

    def choice_logprobs(self, prompts: Sequence[Prompt], choices: Sequence[str]) -> ChoiceLogprobs:
        """See ``MeasuringLM``."""
        choices = tuple(choices)
        way = self.way
        if isinstance(way, Chat):
            check_choices(choices)
            rows = self._all([partial(_in_chat, way, _asked(p), choices) for p in prompts])
        else:
            found = choice_sequences(self._tokenizer, self._rendered(prompts), choices)
            self._check([max(row, key=lambda s: len(s.ids)) for row in found])
            rows = self._all([partial(_chosen, way, row, choices) for row in found], [row[0] for row in found])
        empty = np.empty((0, len(choices)))
        return ChoiceLogprobs(choices, np.concatenate([empty, *(row.logprobs for row in rows)]))

    def loglikelihood(self, pairs: Sequence[tuple[Prompt, str]]) -> list[LogLikelihood]:
        """See ``MeasuringLM``."""
        way = self.way
        if isinstance(way, Chat) or not way.likelihoods:
            raise NotImplementedError(
                f"{self._model} behind a server of the kind {way.name!r} tells no likelihoods of given texts: name "
                "another model for them (likelihood_lm=LocalLM(...), or --likelihood-lm on the command line)."
            )
        rendered = self._rendered([prompt for prompt, _ in pairs])
        asked = joint(self._tokenizer, [(r, text) for r, (_, text) in zip(rendered, pairs, strict=True)])
        self._check(asked)
        return self._all([partial(_likelihood, way, scored) for scored in asked], asked)

    def written(self, prompts: Sequence[Prompt], *, max_tokens: int) -> list[str]:
        """What the model writes after every prompt, decoded greedily."""
        config = lm15.Config(temperature=0.0, max_tokens=max_tokens)
        return self._all([partial(_text, self._writing(prompt, config)) for prompt in prompts])

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer one request; see ``dspy.clients.engines.base.Engine``."""
        validate_request(request)
        refuse(request, NAME)
        messages = messages_of(request, NAME)
        if judgments(request):
            return measured(request, messages, lambda asked, choices: self.choice_logprobs([asked], choices))
        (found,) = self._all([self._writing(messages, request.config)])
        return found

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """The whole answer as one stream of events."""
        return iter(lm15.response_to_events(self.complete(request)))

    def close(self) -> None:
        """The connection goes with the object."""

    def _writing(self, asked: Prompt, config: lm15.Config) -> Callable[[], Awaitable[lm15.Response]]:
        """The job that has a text written."""
        if isinstance(self.way, Chat):
            return partial(written_in_chat, self.connection, self.way, self._model, _asked(asked), config)
        (rendered,) = self._rendered([asked])
        ids = tuple(self._tokenizer(rendered.text, add_special_tokens=rendered.special)["input_ids"])
        prompt = self.way.prompt(rendered.text, ids)
        return partial(written_on, self.connection, self._model, prompt, rendered.lead, config)

    def _rendered(self, prompts: Sequence[Prompt]) -> list[Any]:
        assert self._render is not None  # a dialect has a tokenizer
        return [self._render(prompt) for prompt in prompts]

    def _check(self, asked: Sequence[Scored]) -> None:
        if self._context is not None:
            check_lengths(asked, self._context, whose="server")

    def _all(
        self, jobs: Sequence[Callable[[], Awaitable[Answer]]], asked: Sequence[Scored] | None = None
    ) -> list[Answer]:
        """Run jobs, those whose texts begin alike one after another: the server finds them in its prefix cache."""
        order = range(len(jobs)) if asked is None else sorted(range(len(jobs)), key=lambda i: asked[i].ids)
        return self.connection.all(jobs, order, name=self._model)


async def _chosen(dialect: Dialect, row: Sequence[Scored], choices: tuple[str, ...]) -> ChoiceLogprobs:
    return ChoiceLogprobs(choices, (await dialect.choices(row))[None])


async def _in_chat(chat: Chat, messages: Sequence[Message], choices: tuple[str, ...]) -> ChoiceLogprobs:
    return ChoiceLogprobs(choices, (await chat.choices(messages, choices))[None])


async def _likelihood(dialect: Dialect, scored: Scored) -> LogLikelihood:
    return LogLikelihood(await dialect.sequence(scored))


async def _text(job: Callable[[], Awaitable[lm15.Response]]) -> str:
    return (await job()).text or ""


def _asked(prompt: Prompt) -> Sequence[Message]:
    """A prompt as a chat's messages.

    Raises:
        ValueError: It ends in an unfinished answer, which no chat goes on with.
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if not messages or messages[-1]["role"] == "assistant":
        raise ValueError("A chat server answers messages that end with the user's: it continues no answer.")
    return messages
