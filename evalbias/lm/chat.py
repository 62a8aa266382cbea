"""Prompts as text: through the model's chat template if it has one, else as plain text."""

from __future__ import annotations

from typing import Any

from jinja2 import TemplateError

from evalbias.lm.text import FOLLOW, Rendered, as_text
from evalbias.lm.types import Prompt

_MARK = "\u2603answer\u2603"  # placeholder for an answer, to find the text that the template writes after one


class Renderer:
    """Renders the prompts of one model.

    Attributes:
        is_chat: Whether messages go through a chat template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.is_chat = bool(tokenizer.chat_template)

    def __call__(self, prompt: Prompt) -> Rendered:
        """Return the prompt's text up to the beginning of an answer.

        Raises:
            ValueError: There are no messages, a role is unknown, or the template rejects the messages.
        """
        if isinstance(prompt, str) or not self.is_chat:
            return as_text(prompt)
        as_text(prompt)  # the same checks for every model
        messages = [dict(m) for m in prompt]
        unfinished = messages[-1]["role"] == "assistant"
        text = self._template(messages, add_generation_prompt=not unfinished, continue_final_message=unfinished)
        return Rendered(text, follow=self._follow(messages), special=False)

    def _follow(self, messages: list[dict[str, str]]) -> str:
        """Return the first token of the text that the template writes after an answer: models end answers with it."""
        question = messages[:-1] if messages[-1]["role"] == "assistant" else messages
        closed = self._template([*question, {"role": "assistant", "content": _MARK}])
        after = closed.rpartition(_MARK)[2]
        offsets = self._tokenizer(after, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return after[: offsets[0][1]] if offsets else FOLLOW

    def _template(self, messages: list[dict[str, str]], **options: bool) -> str:
        try:
            return str(self._tokenizer.apply_chat_template(messages, tokenize=False, **options))
        except TemplateError as error:
            roles = [message["role"] for message in messages]
            raise ValueError(
                f"The model's chat template rejects messages with the roles {roles}: {error}. Use other roles."
            ) from error
