"""Joint tokenization of contexts and continuations.

Context and continuation are tokenized as one text. A token that contains any character of the continuation belongs to
it; the context consists of the tokens before. A token that a tokenizer merges across the boundary is therefore never
split, and never counted as context. Control tokens are read only where a chat template wrote them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evalbias.lm.control_tokens import PromptTokenizer, Reader
from evalbias.lm.refusals import each
from evalbias.lm.shared_tokenization import Encoded, alike, encode, following
from evalbias.lm.text import Joined, Rendered
from evalbias.lm.types import PromptRefused

Ids = tuple[int, ...]

AT_ONCE = 32
"""Number of prompts that are tokenized together: what is only needed on the way is freed before the next ones."""


class PromptTooLong(PromptRefused):
    """A prompt is longer than the model's context; prompts are never truncated."""


@dataclass(frozen=True)
class Scored:
    """A token sequence whose tokens from ``start`` on are scored, 1 <= start < len(ids).

    Attributes:
        ids: Tokens.
        start: Index of the first scored token.
        text: Text of the tokens.
    """

    ids: Ids
    start: int
    text: str = ""


def check_lengths(sequences: Sequence[Scored], context: int, *, whose: str, generated: int = 0) -> None:
    """Check that every sequence, and the tokens generated after it, fits into a context of so many tokens.

    Args:
        sequences: Sequences of one call.
        context: Context length in tokens.
        whose: Owner of the context, for the message: "model" or "server".
        generated: Number of tokens that are generated after each sequence.

    Raises:
        PromptTooLong: Sequences are too long; the exception holds the numbers of all, and both lengths.
    """

    def check(scored: Scored) -> None:
        check_length(len(scored.ids), context, whose=whose, generated=generated)

    each(check, sequences)


def check_length(tokens: int, context: int, *, whose: str, generated: int = 0) -> None:
    """Check that one prompt of so many tokens fits; see ``check_lengths``."""
    if tokens + generated > context:
        free = f", of which {generated} must stay free for the answer" if generated else ""
        raise PromptTooLong(
            {
                0: f"has {tokens} tokens, but the {whose}'s context is {context}{free}: shorten it or use fewer "
                "demonstrations. Prompts are never truncated."
            }
        )


def joint(tokenizer: PromptTokenizer, pairs: Sequence[tuple[Rendered, str]]) -> list[Scored]:
    """Tokenize (prompt, continuation) pairs jointly.

    Args:
        tokenizer: Tokenizer of the model.
        pairs: Prompts with non-empty continuations.

    Raises:
        ValueError: A continuation is empty, or nothing precedes it; the message gives its number.
    """
    for number, (_, continuation) in enumerate(pairs):
        if not continuation:
            raise ValueError(f"Continuation {number} is empty: give a text to score.")
    reader = _reader(tokenizer, [prompt for prompt, _ in pairs], [text for _, text in pairs])
    return [row[0] for row in _rows(reader, ([prompt.before(text)] for prompt, text in pairs))]


def _scored(encoded: Encoded, joined: Joined, number: int) -> Scored:
    """Return the sequence, scored from the first token with a character of the continuation on."""
    ends, stop = encoded.ends, len(encoded.ends)
    while stop and ends[stop - 1] <= joined.context:  # a closing special token does not belong to the continuation
        stop -= 1
    if not stop:
        dropped = joined.text[joined.context :]
        raise ValueError(f"Continuation {number} has no tokens: the tokenizer drops {dropped!r}.")
    start = stop
    while start and ends[start - 1] > joined.context:
        start -= 1
    if start == 0:
        raise ValueError(
            f"Nothing precedes continuation {number}, so its first token has no probability: "
            "give a context, or a tokenizer that adds a start token."
        )
    return Scored(tuple(encoded.ids[:stop]), start, joined.text)


def choice_sequences(
    tokenizer: PromptTokenizer, prompts: Sequence[Rendered], choices: Sequence[str]
) -> list[list[Scored]]:
    """Return the token sequences of all choices after every prompt, scored from their common prefix on.

    If one choice's tokens are a prefix of another's ("1" and "10"), each choice is closed with the text that follows
    an answer, so that the choices exclude each other.

    Raises:
        ValueError: There are no choices, one is empty or repeated, or two have the same tokens after a prompt.
    """
    check_choices(choices)
    reader = _reader(tokenizer, prompts, choices)
    rows = _rows(reader, ([prompt.before(choice) for choice in choices] for prompt in prompts))
    unclear = [i for i, row in enumerate(rows) if _prefixes(row)]  # decided per prompt, whatever the batch
    closed = _rows(reader, ([prompts[i].before(choice, closed=True) for choice in choices] for i in unclear))
    for number, row in zip(unclear, closed, strict=True):
        if _prefixes(row):
            raise ValueError(f"After prompt {number} the choices {list(choices)} have the same tokens: change them.")
        rows[number] = row
    return [_aligned(row) for row in rows]


def check_choices(choices: Sequence[str]) -> None:
    """Check that the choices are distinct, non-empty texts.

    Raises:
        ValueError: There are no choices, or one is empty or repeated.
    """
    if not choices:
        raise ValueError("There are no choices: give at least one.")
    if len(set(choices)) < len(choices):
        raise ValueError(f"The choices {list(choices)} repeat: give each once.")
    if not all(choices):
        raise ValueError(f"One of the choices {list(choices)} is empty: give a text for each.")


def _reader(tokenizer: PromptTokenizer, prompts: Sequence[Rendered], answers: Iterable[str]) -> Reader:
    """Return the reader of all prompts of a call and of the answers after them."""
    around = {text for prompt in prompts for text in (prompt.lead, prompt.follow)}
    return tokenizer.reader(itertools.chain((prompt.text for prompt in prompts), answers, around))


def _rows(reader: Reader, rows: Iterable[Sequence[Joined]]) -> list[list[Scored]]:
    """Tokenize rows of texts, ``AT_ONCE`` rows at a time."""
    done: list[list[Scored]] = []
    remaining = iter(rows)
    while some := list(itertools.islice(remaining, AT_ONCE)):
        done += _tokenized(reader, some, len(done))
    return done


def _tokenized(reader: Reader, rows: Sequence[Sequence[Joined]], before: int) -> list[list[Scored]]:
    """Tokenize rows of texts, with ``before`` rows before them; a row's other texts share the tokens of its first."""
    done: dict[int, list[Scored]] = {}
    for special in (True, False):  # a chat template has written its special tokens already
        indices = [i for i, row in enumerate(rows) if row[0].special is special]
        first = encode(reader, [reader.coded(rows[i][0]) for i in indices], special=special)
        others = [(reader.coded(x), encoded) for i, encoded in zip(indices, first, strict=True) for x in rows[i][1:]]
        rest = iter(following(reader, *map(list, zip(*others, strict=True)), special=special) if others else ())
        for i, encoded in zip(indices, first, strict=True):
            texts = [encoded, *(next(rest) for _ in rows[i][1:])]
            done[i] = [_scored(x, joined, before + i) for x, joined in zip(texts, rows[i], strict=True)]
    return [done[i] for i in range(len(rows))]


def _prefixes(row: Sequence[Scored]) -> bool:
    """Return whether one sequence is a prefix of another."""
    shared = common_prefix([s.ids for s in row])
    ordered = sorted(s.ids[shared:] for s in row)  # a prefix sorts right before a sequence that it begins
    return any(b[: len(a)] == a for a, b in itertools.pairwise(ordered))


def _aligned(row: Sequence[Scored]) -> list[Scored]:
    shared = min(min(s.start for s in row), common_prefix([s.ids for s in row]))
    return [Scored(s.ids, max(1, shared), s.text) for s in row]


def common_prefix(sequences: Sequence[Ids]) -> int:
    """Return the length of the prefix that all sequences share.

    Example:
        >>> common_prefix([(1, 2, 3), (1, 2), (1, 2, 4)])
        2
    """
    return alike(min(sequences), max(sequences))
