"""Tokenization of many texts with a common prefix, which is tokenized once.

Tokenizers split a text into words (pre-tokens) and tokenize each word by itself. A text that shares a prefix with an
already tokenized one is therefore tokenized only from a word inside that prefix on. The last ``UNCERTAIN`` words of the
prefix are tokenized again, because a tokenizer may look ahead, and so are all words within the length of the longest
added token that a text may spell: the prefix may end inside one. One word before them is tokenized and discarded,
because a tokenizer may mark a text's first word. Texts are tokenized whole if the tokenizer has no words.

Tokens are kept in lists: joining two short lists takes a tenth of the time that numpy needs for each call.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalbias.lm.control_tokens import Reader

UNCERTAIN = 2
"""Number of words at the end of a common prefix that may be tokenized differently in each text."""


@dataclass(frozen=True)
class Encoded:
    """A tokenized text.

    Attributes:
        text: The text.
        ids: n tokens.
        ends: n offsets of the character after each token; 0 for special tokens.
        words: First character of each of w words, ascending; empty if the text cannot be split.
        tokens: First token of each of w words.
    """

    text: str
    ids: list[int]
    ends: list[int]
    words: list[int]
    tokens: list[int]


@dataclass(frozen=True)
class Ending:
    """The tokens of a text from one on; those before are the first tokens of another text.

    Attributes:
        before: Number of the tokens before.
        ids: n tokens.
        ends: n offsets in the text of the character after each token.
    """

    before: int
    ids: list[int]
    ends: list[int]


def encode(reader: Reader, texts: Sequence[str], *, special: bool, known: Encoded | None = None) -> list[Encoded]:
    """Tokenize texts; the prefix that a text shares with the first one is not tokenized again.

    Args:
        reader: Copy of the tokenizer.
        texts: Texts in any order.
        special: Whether the tokenizer adds its special tokens.
        known: Another text, with which the first one may share a prefix.
    """
    if not texts:
        return []
    first, *rest = texts
    whole = _whole(reader, [first], special) if known is None else following(reader, [first], [known], special=special)
    return whole + following(reader, rest, whole * len(rest), special=special)


def following(reader: Reader, texts: Sequence[str], known: Sequence[Encoded], *, special: bool) -> list[Encoded]:
    """Tokenize texts, each of which shares a prefix with its counterpart in ``known``."""
    shared = [alike(text, other.text) for text, other in zip(texts, known, strict=True)]
    cuts = [_cut(other, length, reader.margin) for other, length in zip(known, shared, strict=True)]
    whole = [number for number, cut in enumerate(cuts) if cut is None]
    part = [(number, cut) for number, cut in enumerate(cuts) if cut is not None]
    tails = _whole(reader, [texts[number][known[number].words[cut - 1] :] for number, cut in part], False)
    done: dict[int, Encoded] = {}
    for (number, cut), tail in zip(part, tails, strict=True):
        joined = _joined(texts[number], known[number], cut, tail)
        if joined is None:
            whole.append(number)
        else:
            done[number] = joined
    done |= zip(whole, _whole(reader, [texts[number] for number in whole], special), strict=True)
    return [done[number] for number in range(len(texts))]


def endings(
    reader: Reader,
    known: Sequence[Encoded],
    contexts: Sequence[int],
    answers: Sequence[Sequence[str]],
    *,
    special: bool,
) -> list[list[Ending]]:
    """Tokenize further answers after contexts, each of which was tokenized with one answer.

    Only a context's last words are tokenized again. Where contexts end alike, as the prompts of a call often do, equal
    answers after them are tokenized once.

    Args:
        reader: Copy of the tokenizer.
        known: n contexts with an answer.
        contexts: n lengths of the contexts in characters.
        answers: Further answers after each context.
        special: Whether the tokenizer adds its special tokens.
    """
    cuts = [_cut(text, context, reader.margin) for text, context in zip(known, contexts, strict=True)]
    tails = [
        [] if cut is None else [text.text[text.words[cut - 1] : context] + answer for answer in some]
        for text, context, some, cut in zip(known, contexts, answers, cuts, strict=True)
    ]
    encoded = iter(_whole(reader, list(itertools.chain(*tails)), False))
    by_text: list[list[Ending | None]] = [
        [None if cut is None else _ending(text, cut, next(encoded)) for _ in some]
        for text, some, cut in zip(known, answers, cuts, strict=True)
    ]
    left = [(row, place) for row, some in enumerate(by_text) for place, ending in enumerate(some) if ending is None]
    texts = [known[row].text[: contexts[row]] + answers[row][place] for row, place in left]
    wholes = following(reader, texts, [known[row] for row, _ in left], special=special)
    rest = {at: Ending(0, whole.ids, whole.ends) for at, whole in zip(left, wholes, strict=True)}
    return [[ending or rest[row, place] for place, ending in enumerate(some)] for row, some in enumerate(by_text)]


def _cut(known: Encoded, shared: int, margin: int) -> int | None:
    """Return the first word to tokenize again in a text that shares so many characters; None if that saves no work.

    An added token that the shared prefix ends in begins at most ``margin`` characters before, or at the blanks before
    those, which some added tokens take.
    """
    if len(known.words) <= UNCERTAIN + 1:
        return None
    if margin:
        shared = len(known.text[: max(0, shared - margin)].rstrip())
    within = bisect_right(known.words, shared)  # words that begin in the shared prefix
    cut = within - 1 - UNCERTAIN
    return cut if cut >= 2 else None


def alike(a: Any, b: Any) -> int:
    """Return the length of the common prefix of two sequences, by bisection.

    Example:
        >>> alike("the cat", "the car")
        6
    """
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _joined(text: str, known: Encoded, cut: int, tail: Encoded) -> Encoded | None:
    """Join the known tokens before a word and the tail's from that word on; None if the tail lacks the word."""
    word = _word(known, cut, tail)
    if word is None:
        return None
    offset, before, start = known.words[cut - 1], known.tokens[cut], tail.tokens[word]
    return Encoded(
        text,
        known.ids[:before] + tail.ids[start:],
        known.ends[:before] + [end + offset for end in tail.ends[start:]],
        known.words[:cut] + [character + offset for character in tail.words[word:]],
        known.tokens[:cut] + [token + before - start for token in tail.tokens[word:]],
    )


def _ending(known: Encoded, cut: int, tail: Encoded) -> Ending | None:
    """Return a tail's tokens from a word of the known text on; None if the tail lacks the word."""
    word = _word(known, cut, tail)
    if word is None:
        return None
    offset, start = known.words[cut - 1], tail.tokens[word]
    return Ending(known.tokens[cut], tail.ids[start:], [end + offset for end in tail.ends[start:]])


def _word(known: Encoded, cut: int, tail: Encoded) -> int | None:
    """Return the known text's word ``cut`` in a tail that begins one word earlier; None if it is no word there."""
    begin = known.words[cut] - known.words[cut - 1]
    return tail.words.index(begin) if begin in tail.words else None


def _whole(reader: Reader, texts: Sequence[str], special: bool) -> list[Encoded]:
    """Tokenize each text by itself; equal texts, such as the same answer after many prompts, only once."""
    if not texts:
        return []
    unique = list(dict.fromkeys(texts))
    encodings = reader.backend.encode_batch(unique, add_special_tokens=special)
    done = {text: _encoded(text, encoding) for text, encoding in zip(unique, encodings, strict=True)}
    return [done[text] for text in texts]


def _encoded(text: str, encoding: Any) -> Encoded:
    offsets = encoding.offsets
    words = [-1 if word is None else word for word in encoding.word_ids]
    tokens = [n for n, (a, b) in enumerate(itertools.pairwise([-1, *words])) if b != a and b >= 0]
    starts = [offsets[n][0] for n in tokens]
    if any(a >= b for a, b in itertools.pairwise(starts)):  # the words are not in the text's order
        starts, tokens = [], []
    return Encoded(text, encoding.ids, [end for _, end in offsets], starts, tokens)
