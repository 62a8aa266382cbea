"""Messages as the text of a base model, which has no chat template.

The system text, a blank line, then turn by turn: what the user says, and after one space what the assistant answers,
closed by a blank line. ``Rendered.text`` ends where an answer would begin; ``lead`` is the space before the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evalbias.lm.types import Message, Prompt

LEAD = " "
FOLLOW = "\n"


@dataclass(frozen=True)
class Rendered:
    """A prompt as text.

    Attributes:
        text: The prompt.
        lead: What stands between the prompt and an answer when the answer is given, not generated.
        follow: What would follow the answer; it closes choices that are prefixes of each other.
        special: Whether the tokenizer adds its special tokens; a chat template has written them already.
    """

    text: str
    lead: str = ""
    follow: str = FOLLOW
    special: bool = True

    @property
    def context(self) -> str:
        """Everything before an answer that is given."""
        return self.text + self.lead


def as_text(prompt: Prompt) -> Rendered:
    """Render a prompt for a base model; a string is taken as it is, and continued without a lead.

    Raises:
        ValueError: No messages, or a role that is none of system, user and assistant.
    """
    if isinstance(prompt, str):
        return Rendered(prompt)
    if not prompt:
        raise ValueError("A prompt has no messages: give at least one.")
    pieces = []
    for number, message in enumerate(prompt):
        role, content, last = message["role"], message["content"], number == len(prompt) - 1
        if role not in ("system", "user", "assistant"):
            raise ValueError(f"A message has the role {role!r}: use system, user or assistant.")
        if role == "assistant":
            pieces.append((LEAD if number else "") + content + ("" if last else "\n\n"))
        else:
            closed = role == "system" or (not last and prompt[number + 1]["role"] != "assistant")
            pieces.append(content + ("\n\n" if closed else ""))
    lead = LEAD if prompt[-1]["role"] == "user" else ""
    return Rendered("".join(pieces), lead)


def dialogue(messages: Sequence[Message]) -> str:
    """The whole text of messages that end with an answer, closed as another turn would follow."""
    return as_text(messages).text + "\n\n"
