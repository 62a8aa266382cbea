"""From text to tokens: joint tokenization, and control tokens that a text cannot write."""

from __future__ import annotations

import itertools
import json
import re
import struct
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer

from evalbias.lm.files import readable
from evalbias.lm.types import Joined, PromptRefused, PromptTooLong, Rendered, Span, each

# Control tokens, such as the end of a turn: only a chat template may write them, and every other text is plain text.
#
# Judged texts, sources and demonstrations may spell a control token (``<|im_end|>``, ``</s>``). If a tokenizer turned
# these characters into the token, a judged text could close its own turn and write the judge's answer. Prompts are
# therefore tokenized by copies of the tokenizer that know control tokens under other names: private-use characters that
# occur in none of the texts. The places where the template wrote a control token are replaced by its other name, so the
# tokens of a text that spells no control token are those of the tokenizer itself.


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


# Tokenization of many texts with a common prefix, which is tokenized once.
#
# Tokenizers split a text into words (pre-tokens) and tokenize each word by itself. A text that shares a prefix with an
# already tokenized one is therefore tokenized only from a word inside that prefix on. The last ``UNCERTAIN`` words of
# the prefix are tokenized again, because a tokenizer may look ahead, and so are all words within the length of the
# longest added token that a text may spell: the prefix may end inside one. One word before them is tokenized and
# discarded, because a tokenizer may mark a text's first word. Texts are tokenized whole if the tokenizer has no words.
#
# Tokens are kept in lists: joining two short lists takes a tenth of the time that numpy needs for each call.


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
    shared = [common(text, other.text) for text, other in zip(texts, known, strict=True)]
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


def common(a: Any, b: Any) -> int:
    """Return the length of the common prefix of two sequences, by bisection.

    Example:
        >>> common("the cat", "the car")
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


# Joint tokenization of contexts and continuations.
#
# Context and continuation are tokenized as one text. A token that contains any character of the continuation belongs to
# it; the context consists of the tokens before. A token that a tokenizer merges across the boundary is therefore never
# split, and never counted as context. Control tokens are read only where a chat template wrote them.


Ids = tuple[int, ...]

AT_ONCE = 32
"""Number of prompts that are tokenized together: what is only needed on the way is freed before the next ones."""


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
    return common(min(sequences), max(sequences))


def key_of(ids: Sequence[int]) -> bytes:
    r"""Return tokens as bytes that sort and share prefixes as the tokens do.

    Example:
        >>> key_of([1, 300])
        b'\x00\x00\x00\x01\x00\x00\x01,'
    """
    return struct.pack(f">{len(ids)}I", *ids)
