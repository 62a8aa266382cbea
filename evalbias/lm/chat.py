"""Prompts as text: through the model's chat template if it has one, else as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from evalbias.lm.chat_template import ChatTemplate, template_of
from evalbias.lm.control_tokens import PromptTokenizer, unused_characters
from evalbias.lm.text import FOLLOW, Closing, Joined, Rendered, as_text
from evalbias.lm.types import Message, Prompt


class Renderer:
    """Renders the prompts of one model.

    The contents of messages are hidden from the template while it renders: characters that begin or end a control
    token are replaced by unused ones. Control tokens in the rendered text are then the template's own.

    Args:
        tokenizer: Tokenizer of the model.
        options: Options of the chat template; see ``ChatTemplate``.

    Raises:
        ValueError: The chat template lacks an option, or there is no chat template but there are options.
    """

    def __init__(self, tokenizer: PromptTokenizer, options: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._template = template_of(tokenizer.tokenizer, options)
        self._shows_answers = False  # whether the template is known to write the assistant's messages

    def __call__(self, prompt: Prompt) -> Rendered:
        """Return the prompt's text up to the beginning of an answer.

        The text of an unfinished last assistant message is kept as it is, blanks included.

        Raises:
            ValueError: There are no messages, a role is unknown, or the template rejects the messages.
        """
        plain = as_text(prompt)  # the same checks for every model
        if isinstance(prompt, str) or self._template is None:
            return plain
        edges = self._tokenizer.edges
        *hidden, mark = list(unused_characters((message["content"] for message in prompt), len(edges) + 1))
        hide, show = list(zip(edges, hidden, strict=True)), list(zip(hidden, edges, strict=True))
        messages: list[Message] = [{"role": m["role"], "content": _replaced(m["content"], hide)} for m in prompt]
        if messages[-1]["role"] == "assistant":
            beginning = messages.pop()["content"]
            before, _ = _around_answer(self._template, messages, mark)
        else:
            beginning, before = "", self._template(messages, answer=True)
        rendered = Rendered(
            _replaced(before + beginning, show),
            special=False,
            controls=self._tokenizer.spans(before),
            closing=partial(self._closing, self._template, messages, mark),
        )
        if not self._shows_answers:
            self._shows_answers = bool(rendered.follow)
        return rendered

    def _closing(self, template: ChatTemplate, messages: Sequence[Message], mark: str) -> Closing:
        """Return what a template writes after an answer to the messages: the first token of it."""
        _, after = _around_answer(template, messages, mark)
        follow = self._first_token(after)
        return follow or FOLLOW, self._tokenizer.spans(follow)

    def _first_token(self, text: str) -> str:
        """Return the text of the first token: models end answers with it; empty if there is none."""
        offsets = self._tokenizer.encode(Joined(text, 0, False, self._tokenizer.spans(text))).offsets
        return text[: offsets[0][1]] if offsets else ""


def _around_answer(template: ChatTemplate, messages: Sequence[Message], mark: str) -> tuple[str, str]:
    """Return the text that a template writes before an answer to the messages, and after it."""
    closed = template([*messages, {"role": "assistant", "content": mark}], answer=False)
    before, found, after = closed.rpartition(mark)
    if not found:
        raise ValueError("The model's chat template leaves out the assistant's messages: use another template.")
    return before, after


def _replaced(text: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Return a text with characters replaced; much faster than ``str.translate``."""
    for old, new in pairs:
        text = text.replace(old, new)
    return text
