"""Joint tokenization of contexts and continuations.

Context and continuation are tokenized as one text. A token that contains any character of the continuation belongs to
it; the context consists of the tokens before. A token that a tokenizer merges across the boundary is therefore never
split, and never counted as context. Control tokens are read only where a chat template wrote them.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from evalbias.lm.control_tokens import PromptTokenizer, Reader
from evalbias.lm.refusals import each
from evalbias.lm.shared_tokenization import Encoded, alike, encode, endings
from evalbias.lm.text import Joined, Rendered
from evalbias.lm.types import PromptRefused

Ids = tuple[int, ...]

AT_ONCE = 32
"""Number of prompts that are tokenized together: what is only needed on the way is freed before the next ones."""


class PromptTooLong(PromptRefused):
    """A prompt is longer than the model's context; prompts are never truncated."""


class TextUnknown(PromptRefused):
    """A text holds words that the model's vocabulary lacks: its probability would be that of any such words."""


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


def check_known(tokenizer: PromptTokenizer, sequences: Sequence[Scored]) -> None:
    """Check that no scored token stands for an unknown word, as none of a byte-level tokenizer does.

    Raises:
        TextUnknown: Texts have such tokens; the exception holds the numbers of all, and how many they are.
    """
    unknown = tokenizer.tokenizer.unk_token_id

    def check(scored: Scored) -> None:
        ids = scored.ids[scored.start :]
        if unknown in ids:
            raise TextUnknown(
                {
                    0: f"has words that the model does not know ({ids.count(unknown)} of its {len(ids)} tokens), so "
                    "it has no likelihood: name a model whose vocabulary has them."
                }
            )

    each(check, sequences)


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
    texts = [prompt.before(continuation) for prompt, continuation in pairs]
    done = {
        number: _scored(encoded, texts[number], number)
        for _, numbers, batch in _batches(reader, texts)
        for number, encoded in zip(numbers, batch, strict=True)
    }
    return [done[number] for number in range(len(texts))]


def _scored(encoded: Encoded, joined: Joined, number: int) -> Scored:
    """Return the sequence, scored from the first token with a character of the continuation on."""
    start, stop = _continued(encoded.ends, joined.context)
    _check_continued(start, stop, joined.text[joined.context :], number)
    return Scored(tuple(encoded.ids[:stop]), start, joined.text)


def _continued(ends: Sequence[int], context: int) -> tuple[int, int]:
    """Return the first token with a character after the context, and the number after the last one."""
    stop = len(ends)
    while stop and ends[stop - 1] <= context:  # a closing special token does not belong to the continuation
        stop -= 1
    start = stop
    while start and ends[start - 1] > context:
        start -= 1
    return start, stop


def _check_continued(start: int, stop: int, text: str, number: int) -> None:
    if not stop:
        raise ValueError(f"Continuation {number} has no tokens: the tokenizer drops {text!r:.80}.")
    if start == 0:
        raise ValueError(
            f"Nothing precedes continuation {number}, so its first token has no probability: "
            "give a context, or a tokenizer that adds a start token."
        )


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
    rows = _rows(reader, prompts, choices, closed=False)
    unclear = [i for i, row in enumerate(rows) if row.has_prefixes()]  # decided per prompt, whatever the batch
    closing = [prompts[i] for i in unclear]
    reader = _reader(tokenizer, closing, [*choices, *dict.fromkeys(prompt.follow for prompt in closing)])
    closed = _rows(reader, closing, choices, closed=True)
    for number, row in zip(unclear, closed, strict=True):
        if row.has_prefixes():
            raise ValueError(f"After prompt {number} the choices {list(choices)} have the same tokens: change them.")
        rows[number] = row
    return [row.aligned() for row in rows]


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
    leads = {prompt.lead for prompt in prompts}
    return tokenizer.reader(itertools.chain((prompt.text for prompt in prompts), answers, leads))


@dataclass(frozen=True)
class _Row:
    """The choices after one prompt.

    Attributes:
        sequences: Their token sequences.
        known: Number of first tokens that all are known to share.
    """

    sequences: list[Scored]
    known: int

    def has_prefixes(self) -> bool:
        """Return whether one sequence is a prefix of another."""
        shared = self._shared()
        ordered = sorted(s.ids[shared:] for s in self.sequences)  # a prefix sorts right before what it begins
        return any(b[: len(a)] == a for a, b in itertools.pairwise(ordered))

    def aligned(self) -> list[Scored]:
        """Return the sequences, scored from the first token in which they differ on, or from an earlier start."""
        start = max(1, min(self._shared(), *(s.start for s in self.sequences)))
        return [Scored(s.ids, start, s.text) for s in self.sequences]

    def _shared(self) -> int:
        return self.known + common_prefix([s.ids[self.known :] for s in self.sequences])


def _rows(reader: Reader, prompts: Sequence[Rendered], choices: Sequence[str], *, closed: bool) -> list[_Row]:
    """Tokenize all choices after every prompt, possibly closed with the text that would follow them."""
    texts = [prompt.before(choices[0], closed=closed) for prompt in prompts]
    done: dict[int, _Row] = {}
    for special, numbers, batch in _batches(reader, texts):
        contexts = [texts[i].context for i in numbers]
        follows = [_follow(reader, prompts[i]) if closed else ("", "") for i in numbers]
        answers = [[choice + coded for choice in choices[1:]] for _, coded in follows]
        found = endings(reader, batch, contexts, answers, special=special)
        for i, encoded, rest, (follow, _) in zip(numbers, batch, found, follows, strict=True):
            first = _scored(encoded, texts[i], i)
            sequences, context = [first], texts[i].text[: texts[i].context]
            for choice, ending in zip(choices[1:], rest, strict=True):
                start, stop = _continued(ending.ends, len(context))
                text = context + choice + follow
                ids = first.ids[: ending.before] + tuple(ending.ids[:stop])
                _check_continued(ending.before + start, stop, choice + follow, i)
                sequences.append(Scored(ids, ending.before + start, text))
            done[i] = _Row(sequences, min((ending.before for ending in rest), default=0))
    return [done[i] for i in range(len(prompts))]


def _follow(reader: Reader, prompt: Rendered) -> tuple[str, str]:
    """Return the text that would follow an answer, and the same with the other names of control tokens."""
    return prompt.follow, reader.coded(Joined(prompt.follow, 0, False, prompt.follow_controls))


def _batches(reader: Reader, texts: Sequence[Joined]) -> Iterator[tuple[bool, list[int], list[Encoded]]]:
    """Tokenize texts; yield whether special tokens are added, the texts' numbers, and their tokens."""
    for special in (True, False):  # a chat template has written its special tokens already
        numbers = [number for number, text in enumerate(texts) if text.special is special]
        first = None
        for start in range(0, len(numbers), AT_ONCE):
            some = numbers[start : start + AT_ONCE]
            batch = encode(reader, [reader.coded(texts[number]) for number in some], special=special, known=first)
            first = batch[0]
            yield special, some, batch


def common_prefix(sequences: Sequence[Ids]) -> int:
    """Return the length of the prefix that all sequences share.

    Example:
        >>> common_prefix([(1, 2, 3), (1, 2), (1, 2, 4)])
        2
    """
    return alike(min(sequences), max(sequences))


def key_of(ids: Sequence[int]) -> bytes:
    r"""Return tokens as bytes that sort and share prefixes as the tokens do.

    Example:
        >>> key_of([1, 300])
        b'\x00\x00\x00\x01\x00\x00\x01,'
    """
    return struct.pack(f">{len(ids)}I", *ids)
