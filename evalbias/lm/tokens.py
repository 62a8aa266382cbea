"""Where a continuation begins, in tokens.

Context and continuation are tokenized as one text. A token that holds any character of the continuation belongs to it;
the context is the tokens wholly before. A token that a tokenizer would merge across the boundary is therefore never
split, and never counted as context.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evalbias.lm.shared_tokenization import Encoded, alike, encode, following
from evalbias.lm.text import Rendered

Ids = tuple[int, ...]


class PromptTooLong(ValueError):  # noqa: N818 - a value error like the others, named for what it says
    """A prompt is longer than the model's context; it is never cut."""


@dataclass(frozen=True)
class Scored:
    """A token sequence of which the tokens from ``start`` on are scored, 1 <= start < len(ids).

    Attributes:
        ids: The tokens.
        start: The first that is scored.
        text: What they were made of.
    """

    ids: Ids
    start: int
    text: str = ""


def check_lengths(asked: Sequence[Scored], context: int, *, whose: str) -> None:
    """Refuse what is longer than a context in tokens.

    Raises:
        PromptTooLong: With both lengths, and whose context it is.
    """
    for number, scored in enumerate(asked):
        if len(scored.ids) > context:
            raise PromptTooLong(
                f"Text {number} of the call has {len(scored.ids)} tokens, the {whose}'s context {context}: shorten it "
                "or show fewer demonstrations; it is never cut."
            )


def joint(tokenizer: Any, pairs: Sequence[tuple[Rendered, str]]) -> list[Scored]:
    """Tokenize (prompt, continuation) pairs jointly.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        pairs: No continuation may be empty.

    Raises:
        ValueError: An empty continuation, or one that nothing precedes; the item is named.
    """
    for number, (_, continuation) in enumerate(pairs):
        if not continuation:
            raise ValueError(f"Continuation {number} is empty: there is nothing to score.")
    return [row[0] for row in _rows(tokenizer, [[pair] for pair in pairs])]


def _scored(found: Encoded, context: int, number: int, continuation: str) -> Scored:
    """The sequence from the first token on that holds a character behind the context."""
    own = np.flatnonzero(found.ends > context)
    if not len(own):
        raise ValueError(f"Continuation {number} has no token: the tokenizer drops {continuation!r}.")
    if own[0] == 0:
        raise ValueError(
            f"Nothing precedes continuation {number}, so its first token has no probability: "
            "give a context, or a tokenizer that adds a start token."
        )
    return Scored(
        tuple(found.ids[: own[-1] + 1].tolist()), int(own[0]), found.text
    )  # a closing special token is no part of it


def choice_sequences(tokenizer: Any, prompts: Sequence[Rendered], choices: Sequence[str]) -> list[list[Scored]]:
    """The token sequences of all choices after every prompt, all starting at their common context.

    Where one choice's tokens begin another's ("1" and "10"), each is closed with the text that follows an answer, so
    that they exclude each other.
    """
    check_choices(choices)
    rows = _rows(tokenizer, [[(p, choice) for choice in choices] for p in prompts])
    unclear = [i for i, row in enumerate(rows) if _prefixes(row)]  # each prompt for itself, whatever it is batched with
    closed = _rows(tokenizer, [[(prompts[i], choice + prompts[i].follow) for choice in choices] for i in unclear])
    for number, row in zip(unclear, closed, strict=True):
        if _prefixes(row):
            raise ValueError(f"After prompt {number} the choices {list(choices)} have the same tokens: change them.")
        rows[number] = row
    return [_aligned(row) for row in rows]


def check_choices(choices: Sequence[str]) -> None:
    """Refuse choices that no probabilities can be told of.

    Raises:
        ValueError: There are none, or one is empty or repeated.
    """
    if not choices:
        raise ValueError("There are no choices: give at least one.")
    if len(set(choices)) < len(choices):
        raise ValueError(f"The choices {list(choices)} repeat: give each once.")
    if not all(choices):
        raise ValueError(f"A choice of {list(choices)} is empty: give a text to every one.")


def _rows(tokenizer: Any, rows: Sequence[Sequence[tuple[Rendered, str]]]) -> list[list[Scored]]:
    """Rows of (prompt, continuation): each is tokenized with its first continuation, the others follow that one."""
    done: dict[int, list[Scored]] = {}
    for special in (True, False):  # a chat template has written its special tokens already
        where = [i for i, row in enumerate(rows) if row[0][0].special is special]
        first = encode(tokenizer, [_text(*rows[i][0]) for i in where], special=special)
        others = [(_text(*pair), found) for i, found in zip(where, first, strict=True) for pair in rows[i][1:]]
        rest = iter(following(tokenizer, *map(list, zip(*others, strict=True)), special=special) if others else ())
        for i, found in zip(where, first, strict=True):
            texts = [found, *(next(rest) for _ in rows[i][1:])]
            context = len(rows[i][0][0].context)
            done[i] = [_scored(x, context, i, choice) for x, (_, choice) in zip(texts, rows[i], strict=True)]
    return [done[i] for i in range(len(rows))]


def _text(prompt: Rendered, continuation: str) -> str:
    return prompt.context + continuation


def _prefixes(row: Sequence[Scored]) -> bool:
    ordered = sorted(s.ids for s in row)  # a prefix stands right before what it begins
    return any(b[: len(a)] == a for a, b in itertools.pairwise(ordered))


def _aligned(row: Sequence[Scored]) -> list[Scored]:
    shared = min(min(s.start for s in row), common_prefix([s.ids for s in row]))
    return [Scored(s.ids, max(1, shared), s.text) for s in row]


def common_prefix(sequences: Sequence[Ids]) -> int:
    """Number of tokens that all sequences begin with."""
    return alike(min(sequences), max(sequences))
