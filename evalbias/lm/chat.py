"""Prompts as text: through the model's chat template where it has one, as plain text where it has none."""

from __future__ import annotations

from typing import Any

from jinja2 import TemplateError

from evalbias.lm.text import FOLLOW, Rendered, as_text
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
        """The first token of what the template writes behind an answer: what a model writes itself to end one."""
        asked = messages[:-1] if messages[-1]["role"] == "assistant" else messages
        closed = self._template([*asked, {"role": "assistant", "content": _MARK}])
        behind = closed.rpartition(_MARK)[2]
        offsets = self._tokenizer(behind, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return behind[: offsets[0][1]] if offsets else FOLLOW

    def _template(self, messages: list[dict[str, str]], **options: bool) -> str:
        try:
            return str(self._tokenizer.apply_chat_template(messages, tokenize=False, **options))
        except TemplateError as error:
            roles = [message["role"] for message in messages]
            raise ValueError(f"The model's chat template refuses messages of the roles {roles}: {error}.") from error
