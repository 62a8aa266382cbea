"""Prompts as text: through the model's chat template where it has one, as plain text where it has none."""

from __future__ import annotations

from typing import Any

from evalbias.lm.text import Rendered, as_text
from evalbias.lm.types import Prompt

_MARK = "\u2603answer\u2603"  # stands in for an answer, to see what the template writes behind one


class Renderer:
    """Renders the prompts of one model.

    Attributes:
        is_chat: Whether messages go through a chat template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.is_chat = bool(tokenizer.chat_template)

    def __call__(self, prompt: Prompt) -> Rendered:
        """The prompt's text up to where an answer begins.

        Raises:
            ValueError: No messages, an unknown role, or a template that refuses the messages.
        """
        if isinstance(prompt, str) or not self.is_chat:
            return as_text(prompt)
        as_text(prompt)  # the same refusals for every model
        messages = [dict(m) for m in prompt]
        unfinished = messages[-1]["role"] == "assistant"
        text = self._template(messages, add_generation_prompt=not unfinished, continue_final_message=unfinished)
        return Rendered(text, follow=self._follow(messages), special=False)

    def _follow(self, messages: list[dict[str, str]]) -> str:
        """What the template writes behind an answer."""
        asked = messages[:-1] if messages[-1]["role"] == "assistant" else messages
        closed = self._template([*asked, {"role": "assistant", "content": _MARK}])
        return closed.rpartition(_MARK)[2] or "\n"

    def _template(self, messages: list[dict[str, str]], **options: bool) -> str:
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, **options))
