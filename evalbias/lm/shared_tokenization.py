"""Texts as tokens, where many texts begin alike: what they share is tokenized once.

Tokenizers cut a text into words (their pre-tokens) and each word into tokens by itself. A text that begins like one
whose tokens are known is therefore tokenized from a word on that lies wholly within what they share. A word or two
before the point where they part are taken as doubtful, since a tokenizer may look ahead, and one more is tokenized
only to be thrown away, since a text's first word may be marked. Where a tokenizer knows no words, texts are tokenized
whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

DOUBTFUL = 2
"""Words before the point where two texts part that may be cut otherwise in each."""


@dataclass(frozen=True)
class Encoded:
    """A text's tokens.

    Attributes:
        text: The text.
        ids: (n,) the tokens.
        ends: (n,) the character behind each; 0 for special tokens.
        words: (w, 2) of each word: its first character and its first token. Empty where nothing may be cut.
    """

    text: str
    ids: Ints
    ends: Ints
    words: Ints


def encode(tokenizer: Any, texts: Sequence[str], *, special: bool) -> list[Encoded]:
    """Tokenize texts; the first one's beginning is not tokenized again in the others.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        texts: In any order.
        special: Whether the tokenizer adds its special tokens.
    """
    if not texts:
        return []
    first, *rest = texts
    whole = _whole(tokenizer, [first], special)
    return whole + following(tokenizer, rest, whole * len(rest), special=special)


def following(tokenizer: Any, texts: Sequence[str], known: Sequence[Encoded], *, special: bool) -> list[Encoded]:
    """Tokenize texts each of which begins like another one whose tokens are known."""
    cuts = [_cut(text, other) for text, other in zip(texts, known, strict=True)]
    whole = [number for number, cut in enumerate(cuts) if cut is None]
    part = [(number, cut) for number, cut in enumerate(cuts) if cut is not None]
    tails = _whole(tokenizer, [texts[number][known[number].words[cut - 1, 0] :] for number, cut in part], False)
    done: dict[int, Encoded] = {}
    for (number, cut), tail in zip(part, tails, strict=True):
        joined = _joined(texts[number], known[number], cut, tail)
        if joined is None:
            whole.append(number)
        else:
            done[number] = joined
    done |= zip(whole, _whole(tokenizer, [texts[number] for number in whole], special), strict=True)
    return [done[number] for number in range(len(texts))]


def _cut(text: str, other: Encoded) -> int | None:
    """The word from which on the text has tokens of its own; None where nothing is worth sharing."""
    if len(other.words) <= DOUBTFUL + 1:
        return None
    shared = alike(text, other.text)
    within = int(np.searchsorted(other.words[:, 0], shared, side="right"))  # words that begin within
    cut = within - 1 - DOUBTFUL
    return cut if cut >= 2 else None


def alike(a: Any, b: Any) -> int:
    """Characters or tokens that two sequences begin with alike."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _joined(text: str, known: Encoded, cut: int, tail: Encoded) -> Encoded | None:
    """The known tokens up to a word, and the tail's from there on; None where the tail has no such word."""
    from_tail, (begin, before) = known.words[cut - 1, 0], known.words[cut]
    at = np.flatnonzero(tail.words[:, 0] + from_tail == begin)
    if not len(at):
        return None
    start = tail.words[at[0], 1]
    words = tail.words[at[0] :] + np.array([from_tail, before - start])
    return Encoded(
        text,
        np.concatenate([known.ids[:before], tail.ids[start:]]),
        np.concatenate([known.ends[:before], tail.ends[start:] + from_tail]),
        np.concatenate([known.words[:cut], words]),
    )


def _whole(tokenizer: Any, texts: Sequence[str], special: bool) -> list[Encoded]:
    """Each text by itself; equal ones, as the ends of prompts with their answers mostly are, once."""
    if not texts:
        return []
    unique = list(dict.fromkeys(texts))
    found = tokenizer.backend_tokenizer.encode_batch(unique, add_special_tokens=special)
    done = {text: _encoded(text, encoding) for text, encoding in zip(unique, found, strict=True)}
    return [done[text] for text in texts]


def _encoded(text: str, encoding: Any) -> Encoded:
    ids = np.array(encoding.ids, dtype=np.int64)
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(len(ids), 2)
    words = [-1 if word is None else word for word in encoding.word_ids]
    starts = [n for n, (a, b) in enumerate(itertools.pairwise([-1, *words])) if b != a and b >= 0]
    return Encoded(text, ids, offsets[:, 1], _words(offsets, starts))


def _words(offsets: Ints, starts: Iterable[int]) -> Ints:
    """First character and first token of every word; none where their order is not the text's."""
    found = np.array([(offsets[n, 0], n) for n in starts], dtype=np.int64).reshape(-1, 2)
    ascending = bool((np.diff(found[:, 0]) > 0).all())
    return found if ascending else found[:0]
