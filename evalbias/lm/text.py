"""Messages as the text of a base model, which has no chat template.

The text is the system message, a blank line, then the turns: the user's text, a space, and the assistant's answer,
closed by a blank line. ``Rendered.text`` ends where an answer would begin; ``lead`` is the space before the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from evalbias.lm.types import Message, Prompt

LEAD = " "
FOLLOW = "\n"

Span = tuple[int, int]
"""First character of a part of a text, and the character after it."""


Closing = tuple[str, tuple[Span, ...]]
"""Text that would follow an answer, and where a chat template wrote control tokens in it, in order."""


def plain_closing() -> Closing:
    """Return what follows an answer where there is no chat template."""
    return FOLLOW, ()


@dataclass(frozen=True)
class Joined:
    """A prompt and the text after it, as one text.

    Attributes:
        text: The text.
        context: Number of characters before the text after the prompt.
        special: Whether the tokenizer adds its special tokens.
        controls: Where a chat template wrote control tokens, in order; the rest is plain text, whatever it spells.
    """

    text: str
    context: int
    special: bool
    controls: tuple[Span, ...]


@dataclass(frozen=True)
class Rendered:
    """A prompt as text.

    Attributes:
        text: Text of the prompt.
        lead: Text between the prompt and an answer that is given rather than generated.
        special: Whether the tokenizer adds its special tokens; a chat template has written them already.
        controls: Where the chat template wrote control tokens in ``text``, in order.
        closing: Function that returns what would follow the answer. Few prompts need it: those whose choices are
            prefixes of each other, which it closes.
    """

    text: str
    lead: str = ""
    special: bool = True
    controls: tuple[Span, ...] = ()
    closing: Callable[[], Closing] = field(default=plain_closing, compare=False, repr=False)

    @property
    def follow(self) -> str:
        """Text that would follow the answer."""
        return self._closed[0]

    @property
    def follow_controls(self) -> tuple[Span, ...]:
        """Where the chat template wrote control tokens in ``follow``, in order."""
        return self._closed[1]

    @cached_property
    def _closed(self) -> Closing:
        return self.closing()

    def before(self, answer: str, *, closed: bool = False) -> Joined:
        """Join the prompt and an answer that is given, possibly closed with the text that would follow it."""
        context = self.text + self.lead
        text, controls = context + answer, self.controls
        if closed:
            controls += tuple((len(text) + start, len(text) + stop) for start, stop in self.follow_controls)
            text += self.follow
        return Joined(text, len(context), self.special, controls)

    def alone(self) -> Joined:
        """Return the prompt without an answer, as a model continues it."""
        return Joined(self.text, len(self.text), self.special, self.controls)


def as_text(prompt: Prompt) -> Rendered:
    r"""Render a prompt for a base model; a string is used unchanged and without a lead.

    Raises:
        ValueError: There are no messages, or one lacks a role of system, user or assistant, or a text.

    Example:
        >>> as_text([{"role": "system", "content": "Judge."}, {"role": "user", "content": "Score:"}]).text
        'Judge.\n\nScore:'
    """
    if isinstance(prompt, str):
        return Rendered(prompt)
    if isinstance(prompt, Mapping):
        raise ValueError(f"A prompt is the message {dict(prompt)!r:.80}: give a text or a list of messages.")
    if not prompt:
        raise ValueError("A prompt has no messages: give at least one.")
    pieces = []
    for number, message in enumerate(prompt):
        role, content, last = message.get("role"), message.get("content"), number == len(prompt) - 1
        if not isinstance(content, str):
            raise ValueError(f"Message {number} of a prompt has the content {content!r:.80}: give a text.")
        if role not in ("system", "user", "assistant"):
            raise ValueError(f"Message {number} of a prompt has the role {role!r:.80}: use system, user or assistant.")
        if role == "assistant":
            pieces.append((LEAD if number else "") + content + ("" if last else "\n\n"))
        else:
            closed = role == "system" or (not last and prompt[number + 1]["role"] != "assistant")
            pieces.append(content + ("\n\n" if closed else ""))
    lead = LEAD if prompt[-1]["role"] == "user" else ""
    return Rendered("".join(pieces), lead)


def check_prompts(prompts: Sequence[Prompt]) -> None:
    """Refuse a single text in place of prompts: each of its characters would be one.

    Raises:
        ValueError: It is a text.
    """
    if isinstance(prompts, str):
        raise ValueError(f"The prompts are the text {prompts!r:.80}: give a list of prompts.")


def check_pairs(pairs: Sequence[tuple[Prompt, str]]) -> None:
    """Check that texts to score are given as pairs.

    Raises:
        ValueError: One is not a context with a continuation; the message gives its number.
    """
    for number, pair in enumerate(pairs):
        if isinstance(pair, str) or len(pair) != 2 or not isinstance(pair[1], str):
            raise ValueError(f"Text {number} of the call is {pair!r:.80}: give a pair (context, continuation).")


def dialogue(messages: Sequence[Message]) -> str:
    """Return messages that end with an answer as text, closed as if another turn followed."""
    return as_text(messages).text + "\n\n"
