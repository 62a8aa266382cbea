"""Control tokens, such as the end of a turn: only a chat template may write them, and every other text is plain text.

Judged texts, sources and demonstrations may spell a control token (``<|im_end|>``, ``</s>``). If a tokenizer turned
these characters into the token, a judged text could close its own turn and write the judge's answer. Prompts are
therefore tokenized by copies of the tokenizer that know control tokens under other names: private-use characters that
occur in none of the texts. The places where the template wrote a control token are replaced by its other name, so the
tokens of a text that spells no control token are those of the tokenizer itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer

from evalbias.lm.checks import readable
from evalbias.lm.text import Joined, Span
from evalbias.lm.types import PromptRefused

PRIVATE = range(0x102000, 0x10FFFE)
"""Code points of Unicode's supplementary private use area B, without those that icon fonts use most."""

_PRIVATE = re.compile(f"[{chr(PRIVATE[0])}-{chr(PRIVATE[-1])}]")
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_MARKED = re.compile(r"<[|\uff5c].+[|\uff5c]>")


def unused_characters(texts: Iterable[str], count: int) -> str:
    """Return private-use characters that occur in none of the texts, in a row.

    Raises:
        ValueError: The texts use characters all over the area.
    """
    used = {ord(c) for text in texts if not text.isascii() for c in _PRIVATE.findall(text)}
    for first in range(PRIVATE.start, PRIVATE.stop - count, max(count, 1)):
        if used.isdisjoint(range(first, first + count)):
            return "".join(map(chr, range(first, first + count)))
    raise ValueError(f"The texts of the call use {len(used)} private-use characters from U+102000 on: remove some.")


class ControlTokenInText(PromptRefused):
    """A text spells a control token, which the server would read as one."""


@dataclass(frozen=True)
class Reader:
    """A copy of a tokenizer that knows control tokens under other names only.

    Attributes:
        backend: The copy; its token ids are the tokenizer's.
        names: Control token -> its name in the copy, which has the same length.
        margin: Number of characters before the end of a text within which a text that goes on may be tokenized
            differently, because the end spells the beginning of an added token.
    """

    backend: Tokenizer
    names: dict[str, str]
    margin: int

    def coded(self, text: Joined) -> str:
        """Return a text with the other names of the control tokens that the template wrote."""
        pieces, end = [], 0
        for start, stop in text.controls:
            pieces += [text.text[end:start], self.names[text.text[start:stop]]]
            end = stop
        return "".join([*pieces, text.text[end:]])


class PromptTokenizer:
    """A tokenizer that reads control tokens only where a chat template wrote them.

    Control tokens are the tokenizer's special tokens, added tokens in the form ``<|...|>``, and added tokens with a
    punctuation mark that the chat template contains (``<think>``). Other added tokens, such as runs of blanks, single
    characters and bytes, are text.

    Args:
        tokenizer: Fast Hugging Face tokenizer.

    Attributes:
        tokenizer: The tokenizer.
        controls: Control token -> its id.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
        template = tokenizer.get_chat_template() if tokenizer.chat_template else ""
        special = {str(token) for token in tokenizer.all_special_tokens}
        chosen = {id_: token for id_, token in added.items() if _is_control(token, special, template)}
        self.controls = {token.content: id_ for id_, token in chosen.items()}
        self._texts = [token for id_, token in added.items() if id_ not in chosen]
        self._pattern = _pattern(chosen.values())
        self._usual: Reader | None = None

    @property
    def edges(self) -> list[str]:
        """First and last characters of the control tokens."""
        return sorted({character for token in self.controls for character in (token.strip()[0], token.strip()[-1])})

    def spans(self, text: str) -> tuple[Span, ...]:
        """Return where a text spells control tokens: first character and the character after each."""
        return tuple(match.span() for match in self._pattern.finditer(text)) if self._pattern else ()

    def reader(self, texts: Iterable[str]) -> Reader:
        """Return a copy of the tokenizer whose names of control tokens occur in none of the texts."""
        characters = unused_characters(texts, len(self.controls))
        if self._usual is None:
            self._usual = self._copy(unused_characters([], len(self.controls)))
        names = dict(zip(self.controls, characters, strict=True))
        usual = all(name[0] == names[token] for token, name in self._usual.names.items())
        return self._usual if usual else self._copy(characters)

    def encode(self, text: Joined) -> Encoding:
        """Return the tokens of a text, as ``ids`` and ``offsets``."""
        reader = self.reader([text.text])
        return reader.backend.encode(reader.coded(text), add_special_tokens=text.special)

    def _copy(self, characters: str) -> Reader:
        names = {token: c * len(token) for token, c in zip(self.controls, characters, strict=True)}
        state = json.loads(self.tokenizer.backend_tokenizer.to_str())
        state["truncation"] = state["padding"] = None
        for token in state["added_tokens"]:
            if token["content"] in names:
                token |= {"content": names[token["content"]], "single_word": False, "normalized": False}
        _rename(state["model"], names)
        with readable(
            f"The tokenizer of {self.tokenizer.name_or_path} cannot be copied", "fetch its tokenizer.json again"
        ):
            backend = Tokenizer.from_str(json.dumps(state))
        ids = {names.get(token, token): id_ for token, id_ in self.tokenizer.get_added_vocab().items()}
        if any(backend.token_to_id(token) != id_ for token, id_ in ids.items()):
            raise ValueError("A copy of the tokenizer gives its added tokens other ids: save the tokenizer anew.")
        # Four characters of a text become at most one by normalization.
        width = 1 if state["normalizer"] is None else 4
        margin = max((len(t.content) * (width if t.normalized else 1) for t in self._texts), default=0)
        if any(token.lstrip for token in self.tokenizer.backend_tokenizer.get_added_tokens_decoder().values()):
            margin = max(margin, 1)
        return Reader(backend, names, margin)


def _is_control(token: AddedToken, special: Collection[str], template: str) -> bool:
    content = token.content
    if len(content.strip()) < 2 or _BYTE.fullmatch(content):  # a character that a tokenizer uses as its end, a byte
        return False
    named = content in template and re.search(r"[^\w\s]", content) is not None
    return bool(token.special or content in special or named or _MARKED.fullmatch(content))


def _pattern(tokens: Collection[AddedToken]) -> re.Pattern[str] | None:
    """Return a pattern that finds the leftmost and there the longest token, as tokenizers do."""
    ordered = sorted(tokens, key=lambda token: len(token.content), reverse=True)
    words = {True: r"(?<!\w){}(?!\w)", False: "{}"}
    branches = [words[token.single_word].format(re.escape(token.content)) for token in ordered]
    return re.compile("|".join(branches)) if branches else None


def _rename(model: dict[str, Any], names: dict[str, str]) -> None:
    """Rename control tokens in a tokenizer's model, so that no plain text can become one of them."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(piece, piece): id_ for piece, id_ in vocabulary.items()}
    else:  # pieces with their scores
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocabulary]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if not _makes(merge, names)]


def _makes(merge: str | Sequence[str], names: dict[str, str]) -> bool:
    """Return whether a merge has to do with a control token."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left in names or right in names or left + right in names
