"""Turn questions into tokens: chat templates, plain texts, and refusals of prompts that a model cannot take."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import FrameType
from typing import Any, ClassVar

from jinja2 import Template, TemplateError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEnvironment
from transformers.utils.chat_template_utils import _compile_jinja_template

from evalbias.lm.files import readable
from evalbias.lm.tokens import FOLLOW, Ids, Joined, PromptTokenizer, Rendered, Scored, choice_sequences, joint, key_of
from evalbias.lm.types import Likelihood, Message, Prompt, Question, Refused, Text, as_messages, by_kind

# A tokenizer's chat template, with fixed options and a fixed date: the same messages give the same text on any day.
#
# A template is a program that comes with the model's files. Jinja's sandbox keeps it from everything but its messages.
# Here it is also kept from running on and on: its steps are counted while it runs, and its numbers are limited.


DATE = datetime(2024, 7, 26)  # "today" for templates: the default date in Llama 3's
THINKING = "enable_thinking"  # option for a model's thinking; off by default, because judges answer at once
STEPS = 10_000_000  # most lines of Python for a prompt, seconds; long templates take dozens per message
LARGEST = 1_000_000  # largest whole number in a product, quotient or power, which cannot be interrupted
_PROBE = "\u2603system\u2603"  # a text that no template contains
_TODAY = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")


class ChatTemplate:
    """A tokenizer's chat template, which turns messages into text; ``options`` are values of its variables.

    ValueError: it is damaged, does not end, lacks an option's name, or writes today's date in a computed format.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._name = name = tokenizer.name_or_path or "the tokenizer"
        # 1. The source, with ``DATE`` for today's date.
        source = tokenizer.get_chat_template()
        if not isinstance(source, str):
            raise ValueError(
                f"The chat template of {name} is {source!r:.80} in place of a text: fetch its tokenizer_config.json "
                "again."
            )
        self._source = source = _TODAY.sub(lambda call: json.dumps(DATE.strftime(call[2])), source)
        if "strftime_now(" in source:
            raise ValueError(
                "The model's chat template writes today's date in a format that it computes, so a prompt would change "
                "from day to day: replace strftime_now(...) in the template by a date."
            )
        # 2. The template in transformers' sandbox, with ``LARGEST``.
        environment = _compile_jinja_template("").environment.overlay()
        environment.intercepted_binops = frozenset(("*", "/", "//", "%", "**"))
        environment.call_binop = _small
        with readable(f"The chat template of {name} cannot be read", "use another model"):
            self._template: Template = environment.from_string(source)
        # 3. The values of its variables.
        values = dict(options or {})
        reserved = {"messages", *inspect.signature(tokenizer.apply_chat_template).parameters}
        for option in values:
            if option in reserved or re.search(rf"\b{re.escape(option)}\b", source) is None:
                raise ValueError(
                    f"The model's chat template has no option {option!r}: template_options may set the variables that "
                    "the template reads, such as 'enable_thinking' or 'date_string' where it has them."
                )
        self._options = {THINKING: False, **values} if THINKING in source else values
        self.key = f"{source} {json.dumps(self._options, sort_keys=True)}"
        self._folds = self._lacks_system_role()

    def __call__(self, messages: Sequence[Message], *, answer: bool) -> str:
        """Return the text of messages, with ``answer`` up to the start of an answer; ValueError if they are rejected.

        A system message is put before the first user message, after a blank line, if the template has no system role.
        """
        try:
            return self._render(_folded(messages) if self._folds else messages, answer=answer)
        except TemplateError as error:
            roles = [message["role"] for message in messages]
            raise ValueError(
                f"The model's chat template rejects messages with the roles {roles}: {error}. Use other roles, or "
                "another model."
            ) from error

    def _lacks_system_role(self) -> bool:
        """Return whether the template rejects or drops a system message."""
        chat = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "question"}]
        try:
            return _PROBE not in self._render(chat, answer=True)
        except TemplateError:
            return True

    def _render(self, messages: Sequence[Message], *, answer: bool) -> str:
        """Return what ``apply_chat_template`` of the tokenizer returns, within the limits."""
        variables = {**self._tokenizer.special_tokens_map, **self._options, "add_generation_prompt": answer}
        chat = [dict(message) for message in messages]
        try:
            with _counted(self._name):
                return self._template.render(messages=chat, tools=None, documents=None, **variables)
        except (TemplateError, _EndlessError, MemoryError):
            raise
        except Exception as error:  # the template is foreign code, which may raise anything
            raise TemplateError(f"{type(error).__name__}: {error}") from error


def template_of(tokenizer: Any | None, options: Mapping[str, Any] | None) -> ChatTemplate | None:
    """Return a tokenizer's chat template; None if it has no template, which is a ValueError with options."""
    if tokenizer is not None and tokenizer.chat_template:
        return ChatTemplate(tokenizer, options)
    if options:
        raise ValueError(
            f"No chat template is used here, so template_options={dict(options)} would have no effect: leave them out."
        )
    return None


class _EndlessError(ValueError):
    """A chat template takes more than ``STEPS`` steps, so it may never end."""


@contextmanager
def _counted(name: str) -> Iterator[None]:
    """Count the lines of Python that this thread runs, and raise a ValueError after ``STEPS`` lines."""
    # A clock could not interrupt a loop in a thread, and would make the outcome a matter of the machine's speed.
    left = STEPS

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise _EndlessError(f"The chat template of {name} takes more than {STEPS:,} steps: use another model.")
        return count

    before = sys.gettrace()  # a debugger's, or that of test coverage
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)


def _small(context: Any, operator: str, left: Any, right: Any) -> Any:
    if any(isinstance(value, int) and abs(value) > LARGEST for value in (left, right)):
        raise SecurityError(f"{operator} of a number above {LARGEST:,}")
    return SandboxedEnvironment.default_binop_table[operator](left, right)


def _folded(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with a leading system message put before the text of the first user message."""
    first, *following = messages
    if first["role"] != "system":
        return list(messages)
    if following and following[0]["role"] == "user":
        question, *following = following
        return [{"role": "user", "content": f"{first['content']}\n\n{question['content']}"}, *following]
    return [{"role": "user", "content": first["content"]}, *following]


# Messages as the text of a base model, which has no chat template: the system message, a blank line, then the turns:
# the user's text, a space, and the assistant's answer, closed by a blank line. ``Rendered.text`` ends where an answer
# would begin; ``lead`` is the space before the answer.


LEAD = " "


def as_text(prompt: Prompt) -> Rendered:
    """Render a prompt for a base model, or raise ValueError; a string is used unchanged and without a lead."""
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


# Prompts as text: through the model's chat template if it has one, else as plain text.


class Renderer:
    """Renders the prompts of a model; options that its chat template lacks are a ValueError.

    The contents of messages are hidden from the template while it renders: characters that begin or end a control token
    are replaced by unused characters. Control tokens in the rendered text are then the template's own.
    """

    def __init__(self, tokenizer: PromptTokenizer, options: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._template = template_of(tokenizer.tokenizer, options)
        self._shows_answers = False  # True once the template was seen to write the assistant's messages

    def __call__(self, prompt: Prompt) -> Rendered:
        """Return the prompt's text up to the answer, which the last message may begin; ValueError if it is rejected."""
        plain = as_text(prompt)  # the same checks for every model
        if isinstance(prompt, str) or self._template is None:
            return plain
        hide, mark = self._tokenizer.substitutes(message["content"] for message in prompt)
        show = [(hidden, edge) for edge, hidden in hide]
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
        self._shows_answers = self._shows_answers or bool(rendered.follow.text)
        return rendered

    def _closing(self, template: ChatTemplate, messages: Sequence[Message], mark: str) -> Joined:
        """Return the first token that a template writes after an answer to the messages: models end answers with it."""
        _, after = _around_answer(template, messages, mark)
        offsets = self._tokenizer.encode(Joined(after, controls=self._tokenizer.spans(after))).offsets
        follow = after[: offsets[0][1]] if offsets else ""
        return Joined(follow, controls=self._tokenizer.spans(follow)) if follow else FOLLOW


def _around_answer(template: ChatTemplate, messages: Sequence[Message], mark: str) -> tuple[str, str]:
    closed = template([*messages, {"role": "assistant", "content": mark}], answer=False)
    before, answer_mark, after = closed.rpartition(mark)
    if not answer_mark:
        raise ValueError("The model's chat template leaves out the assistant's messages: use another template.")
    return before, after


def _replaced(text: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Return a text with characters replaced; much faster than ``str.translate``."""
    for old, new in pairs:
        text = text.replace(old, new)
    return text


# Questions as tokens.


@dataclass(frozen=True)
class Prepared:
    """A question in the form that is sent; sorted by ``key``, questions with a common prefix are adjacent."""

    question: Any  # a ``Question``, or ``Decisions``
    content: Any  # sequences of the choices, a sequence, a rendered prompt with its tokens, or messages
    key: bytes  # the prompt in bytes


class Tokenizing:
    """Base of engines and dialects that tokenize here: a model on this machine, and servers that take tokens."""

    whose: ClassVar[str] = "server"  # "model" or "server", whose context limits a text
    free: ClassVar[Mapping[type, int]]  # kind of question -> number of tokens that its whole text must leave free

    def __init__(self, tokenizer: Any, options: Mapping[str, Any] | None, context_length: int | None) -> None:
        self.tokenizer = PromptTokenizer(tokenizer)
        self.render = Renderer(self.tokenizer, options)
        self._context_length = context_length  # in tokens; None if unknown

    def _prepared(self, questions: Sequence[Question]) -> list[Prepared | Refused]:
        """Prepare a call's questions; ValueError for a wrong form."""
        done: dict[int, Prepared | Refused] = {}
        for kind, places in by_kind(questions).items():
            some = [questions[place] for place in places]
            for place, question, (content, ids) in zip(places, some, self._tokenized(kind, some), strict=True):
                done[place] = (
                    (unknown_words(self.tokenizer, content) if kind is Likelihood else None)
                    or self._too_long(max(map(len, ids)), type(question))
                    or Prepared(question, content, key_of(ids[0]))
                )
        return [done[place] for place in range(len(questions))]

    def _tokenized(self, kind: Any, questions: Any) -> Iterator[tuple[Any, list[Ids]]]:
        """Yield the content of each question of a kind, and all its token sequences."""
        if kind is Text:
            for prompt in (self.render(as_messages(question.prompt)) for question in questions):  # as DSPy sends a text
                ids = tuple(self.tokenizer.encode(prompt.alone()).ids)
                yield (prompt, ids), [ids]
        elif kind is Likelihood:
            pairs = [(self.render(question.context), question.continuation) for question in questions]
            for scored in joint(self.tokenizer, pairs):
                yield scored, [scored.ids]
        else:
            prompts = [self.render(question.prompt) for question in questions]
            for row in choice_sequences(self.tokenizer, prompts, kind):
                yield row, [scored.ids for scored in row]

    def _too_long(self, tokens: int, kind: type) -> Refused | None:
        limit, free = self._context_length, self.free[kind]
        if limit is None or tokens + free <= limit:
            return None
        room = f", of which {free} must stay free for the answer" if free else ""
        return Refused(
            f"has {tokens} tokens, but the {self.whose}'s context is {limit}{room}: shorten it or use fewer "
            "demonstrations. Prompts are never truncated.",
            too_long=True,
        )


def unknown_words(tokenizer: PromptTokenizer, scored: Scored) -> Refused | None:
    """Return why a text has no likelihood: some scored tokens stand for words that the vocabulary lacks; else None.

    Its probability would be that of any such words. No token of a byte-level tokenizer stands for an unknown word.
    """
    ids, unknown = scored.ids[scored.start :], tokenizer.tokenizer.unk_token_id
    if unknown not in ids:
        return None
    return Refused(
        f"has words that the model does not know ({ids.count(unknown)} of its {len(ids)} tokens), so it has no "
        "likelihood: name a model whose vocabulary has them."
    )
