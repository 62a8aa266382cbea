"""Turn text into tokens: joint tokenization, and protection from control tokens in texts."""

from __future__ import annotations

import itertools
import json
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer

from evalbias.lm.files import readable

# Prompts as text, and joined with an answer.


Span = tuple[int, int]  # first character of a part of a text, and the character after it


@dataclass(frozen=True)
class Joined:
    """A text with marked parts, such as a prompt and the text after it."""

    text: str
    context: int = 0  # number of characters before the text after the prompt
    special: bool = False  # True if the tokenizer adds its special tokens
    controls: tuple[Span, ...] = ()  # where a chat template wrote control tokens, in order; the rest is plain text


FOLLOW = Joined("\n")  # text that follows an answer without a chat template


@dataclass(frozen=True)
class Rendered:
    """A prompt as text."""

    text: str
    lead: str = ""  # text between the prompt and an answer that is scored, not generated
    special: bool = True  # True if the tokenizer adds its special tokens; False after a chat template, which wrote them
    controls: tuple[Span, ...] = ()  # where the chat template wrote control tokens, in order
    # Returns what would follow the answer: needed only where choices are prefixes of each other.
    closing: Callable[[], Joined] = field(default=lambda: FOLLOW, compare=False, repr=False)

    @cached_property
    def follow(self) -> Joined:
        return self.closing()

    def before(self, answer: str, *, closed: bool = False) -> Joined:
        """Join the prompt and an answer, possibly closed with the text that would follow it."""
        context = self.text + self.lead
        text, controls = context + answer, self.controls
        if closed:
            controls += tuple((len(text) + start, len(text) + stop) for start, stop in self.follow.controls)
            text += self.follow.text
        return Joined(text, len(context), self.special, controls)

    def alone(self) -> Joined:
        """Return the prompt without an answer, for a model to continue."""
        return Joined(self.text, len(self.text), self.special, self.controls)


# Control tokens, such as the end of a turn: only a chat template may write them, and every other text is plain text.
#
# Judged texts, sources and demonstrations may spell a control token (``<|im_end|>``, ``</s>``). If a tokenizer turned
# these characters into the token, a judged text could close its own turn and write the judge's answer. Prompts are
# therefore tokenized by copies of the tokenizer that know control tokens under other names: private-use characters that
# occur in none of the texts. A control token that the template wrote is replaced by its other name, so the
# tokens of a text that spells no control token are those of the tokenizer itself.


PRIVATE = range(0x102000, 0x10FFFE)  # private use area B of Unicode, without the code points that icon fonts use most
_PRIVATE = re.compile(f"[{chr(PRIVATE[0])}-{chr(PRIVATE[-1])}]")
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_MARKED = re.compile(r"<[|\uff5c].+[|\uff5c]>")


def unused_characters(texts: Iterable[str], count: int) -> str:
    """Return a row of private-use characters that occur in none of the texts; ValueError if they use too many."""
    used = {ord(c) for text in texts if not text.isascii() for c in _PRIVATE.findall(text)}
    for first in range(PRIVATE.start, PRIVATE.stop - count, max(count, 1)):
        if used.isdisjoint(range(first, first + count)):
            return "".join(map(chr, range(first, first + count)))
    raise ValueError(f"The texts of the call use {len(used)} private-use characters from U+102000 on: remove some.")


@dataclass(frozen=True)
class Reader:
    """A copy of a tokenizer that knows control tokens under other names only."""

    backend: Tokenizer  # its token ids are the tokenizer's
    names: dict[str, str]  # control token -> its name in the copy, which has the same length
    # characters at a text's end that may be tokenized differently when it continues: an added token may begin there
    margin: int

    def coded(self, text: Joined) -> str:
        """Return a text with the template's control tokens replaced by their other names."""
        pieces, end = [], 0
        for start, stop in text.controls:
            pieces += [text.text[end:start], self.names[text.text[start:stop]]]
            end = stop
        return "".join([*pieces, text.text[end:]])


class PromptTokenizer:
    """A fast Hugging Face tokenizer that reads control tokens only where a chat template wrote them.

    Control tokens are the tokenizer's special tokens, added tokens in the form ``<|...|>``, and added tokens with a
    punctuation mark that the chat template contains (``<think>``). Other added tokens, such as runs of spaces, single
    characters and bytes, are text.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
        template = tokenizer.get_chat_template() if tokenizer.chat_template else ""
        special = {str(token) for token in tokenizer.all_special_tokens}
        chosen = {id_: token for id_, token in added.items() if _is_control(token, special, template)}
        self.controls = {token.content: id_ for id_, token in chosen.items()}  # control token -> its id
        self._texts = [token for id_, token in added.items() if id_ not in chosen]
        # match the leftmost, then the longest token, as tokenizers do
        ordered = sorted(chosen.values(), key=lambda token: len(token.content), reverse=True)
        words = {True: r"(?<!\w){}(?!\w)", False: "{}"}
        self._pattern = re.compile("|".join(words[t.single_word].format(re.escape(t.content)) for t in ordered))
        self._usual: Reader | None = None

    def substitutes(self, texts: Iterable[str]) -> tuple[list[tuple[str, str]], str]:
        """Return an unused character for each first or last character of a control token, and a further one."""
        edges = sorted({edge for token in self.controls for edge in (token.strip()[0], token.strip()[-1])})
        *hidden, mark = list(unused_characters(texts, len(edges) + 1))
        return list(zip(edges, hidden, strict=True)), mark

    def spans(self, text: str) -> tuple[Span, ...]:
        """Return the spans in which a text spells control tokens."""
        return tuple(match.span() for match in self._pattern.finditer(text)) if self.controls else ()

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
    if len(content.strip()) < 2 or _BYTE.fullmatch(content):  # a single character used as an end token, or a byte
        return False
    named = content in template and re.search(r"[^\w\s]", content) is not None
    return bool(token.special or content in special or named or _MARKED.fullmatch(content))


def _rename(model: dict[str, Any], names: dict[str, str]) -> None:
    """Rename control tokens in a tokenizer's model, so that no plain text can turn into a control token."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(piece, piece): id_ for piece, id_ in vocabulary.items()}
    else:  # pieces with their scores
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocabulary]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        model["merges"] = [(a, b) for a, b in pairs if a not in names and b not in names and a + b not in names]


# Texts with a common prefix, which is tokenized once.
#
# Tokenizers split a text into words (pre-tokens) and tokenize each word by itself. A text that shares a prefix with an
# tokenized text is therefore tokenized only from a word inside that prefix on. The last ``UNCERTAIN`` words of
# the prefix are tokenized again, because a tokenizer may look ahead, and so are all words within the length of the
# longest added token that a text may spell: the prefix may end inside it. The word before them is tokenized and
# discarded, because a tokenizer may mark a text's first word. Texts are tokenized whole if the tokenizer has no words.
#
# Tokens are kept in lists: joining two short lists takes a tenth of the time that numpy needs for each call.


UNCERTAIN = 2  # number of words at the end of a common prefix that may be tokenized differently in each text
AT_ONCE = 32  # prompts that are tokenized together; their intermediate data is freed before the next batch


@dataclass(frozen=True)
class Encoded:
    """A tokenized text."""

    text: str
    special: bool  # True if the tokenizer added its special tokens
    ids: list[int]  # n tokens
    ends: list[int]  # n offsets of the character after each token; 0 for special tokens
    words: list[int]  # first character of each of w words, ascending; empty if the text cannot be split
    tokens: list[int]  # first token of each of w words


def continued(
    reader: Reader, prefixes: Sequence[Encoded], upto: Sequence[int], ends: Sequence[Sequence[str]]
) -> list[list[Encoded]]:
    """Tokenize texts: the first ``upto[i]`` characters of ``prefixes[i]``, followed by each of ``ends[i]``.

    Only the last words of a prefix are tokenized again. If prefixes end alike, as the prompts of a call often do, equal
    ends after them are tokenized once.
    """
    # 1. Tokenize each text from the word before the cut on.
    cuts = [_cut(text, length, reader.margin) for text, length in zip(prefixes, upto, strict=True)]
    texts = [
        (text, cut, text.text[:length] + end)
        for text, length, cut, some in zip(prefixes, upto, cuts, ends, strict=True)
        for end in some
    ]
    begun = [whole[text.words[cut - 1] :] for text, cut, whole in texts if cut is not None]
    parts = iter(_whole(reader, begun, special=False))
    done = [None if cut is None else _joined(text, cut, next(parts), whole) for text, cut, whole in texts]
    # 2. Texts without such a word are tokenized whole.
    left = [whole for tokens, (_, _, whole) in zip(done, texts, strict=True) if tokens is None]
    special = bool(prefixes) and prefixes[0].special  # the same for all texts of a call
    wholes = iter(_whole(reader, left, special=special))
    encoded = iter([tokens or next(wholes) for tokens in done])
    return [[next(encoded) for _ in some] for some in ends]


def _cut(encoded: Encoded, shared: int, margin: int) -> int | None:
    """Return the first word to tokenize again in a text with this shared prefix; None if reuse saves no work."""
    if len(encoded.words) <= UNCERTAIN + 1:
        return None
    # An added token that the shared prefix ends in begins at most ``margin`` characters before, or at the spaces before
    # those, which some added tokens take.
    if margin:
        shared = len(encoded.text[: max(0, shared - margin)].rstrip())
    within = bisect_right(encoded.words, shared)  # words that begin in the shared prefix
    cut = within - 1 - UNCERTAIN
    return cut if cut >= 2 else None


def _joined(encoded: Encoded, cut: int, part: Encoded, text: str) -> Encoded | None:
    """Return a text's tokens: earlier tokens before word ``cut``, then those of ``part``, from a word before."""
    offset, first = encoded.words[cut - 1], encoded.tokens[cut]
    if encoded.words[cut] - offset not in part.words:
        return None
    word = part.words.index(encoded.words[cut] - offset)
    start = part.tokens[word]
    return Encoded(
        text,
        encoded.special,
        encoded.ids[:first] + part.ids[start:],
        encoded.ends[:first] + [end + offset for end in part.ends[start:]],
        encoded.words[:cut] + [character + offset for character in part.words[word:]],
        encoded.tokens[:cut] + [token + first - start for token in part.tokens[word:]],
    )


def _whole(reader: Reader, texts: Sequence[str], *, special: bool) -> list[Encoded]:
    """Tokenize each text by itself; equal texts, such as the same answer after many prompts, only once."""
    if not texts:
        return []
    unique = list(dict.fromkeys(texts))
    encodings = reader.backend.encode_batch(unique, add_special_tokens=special)
    done = {text: _encoded(text, special, encoding) for text, encoding in zip(unique, encodings, strict=True)}
    return [done[text] for text in texts]


def _encoded(text: str, special: bool, encoding: Encoding) -> Encoded:
    offsets = encoding.offsets
    words = [-1 if word is None else word for word in encoding.word_ids]
    tokens = [n for n, (a, b) in enumerate(itertools.pairwise([-1, *words])) if b != a and b >= 0]
    starts = [offsets[n][0] for n in tokens]
    if any(a >= b for a, b in itertools.pairwise(starts)):  # the words are not in text order
        starts, tokens = [], []
    return Encoded(text, special, encoding.ids, [end for _, end in offsets], starts, tokens)


def encode(reader: Reader, texts: Sequence[str], *, special: bool, earlier: Encoded | None = None) -> list[Encoded]:
    """Tokenize texts; prefixes shared with the first text, and by it with ``earlier``, are tokenized only once."""

    def after(prefix: Encoded, texts: Sequence[str]) -> list[Encoded]:
        shared = [common(text, prefix.text) for text in texts]
        ends = [[text[length:]] for text, length in zip(texts, shared, strict=True)]
        return [encoded for (encoded,) in continued(reader, [prefix] * len(texts), shared, ends)]

    (first,) = _whole(reader, texts[:1], special=special) if earlier is None else after(earlier, texts[:1])
    return [first, *after(first, texts[1:])]


def _batches(reader: Reader, texts: Sequence[Joined]) -> Iterator[tuple[list[int], list[Encoded]]]:
    """Tokenize texts in batches with equal use of special tokens; yield (indices, tokens) of each batch."""
    for special in (True, False):  # a chat template has written its special tokens already
        numbers = [number for number, text in enumerate(texts) if text.special is special]
        first: Encoded | None = None
        for start in range(0, len(numbers), AT_ONCE):
            some = numbers[start : start + AT_ONCE]
            batch = encode(reader, [reader.coded(texts[number]) for number in some], special=special, earlier=first)
            first = batch[0]
            yield some, batch


# Joint tokenization: context and continuation are tokenized as one text. A token that contains any character of the
# continuation belongs to it: a token merged across the boundary is never split, nor counted as context.


Ids = tuple[int, ...]


@dataclass(frozen=True)
class Scored:
    """A token sequence whose tokens from ``start`` on are scored, 1 <= start < len(ids)."""

    ids: Ids
    start: int


def joint(tokenizer: PromptTokenizer, pairs: Sequence[tuple[Rendered, str]]) -> list[Scored]:
    """Tokenize (prompt, continuation) pairs; ValueError names a continuation that is empty or follows nothing."""
    for number, (_, continuation) in enumerate(pairs):
        if not continuation:
            raise ValueError(f"Continuation {number} is empty: give a text to score.")
    rows = _rows(tokenizer, [prompt for prompt, _ in pairs], [[continuation] for _, continuation in pairs])
    return [scored for (scored,) in rows]


def _scored(encoded: Encoded, text: Joined, number: int) -> Scored:
    """Return a text's tokens, scored from the first token after the context on."""
    ends = encoded.ends
    stop = len(ends)
    while stop and ends[stop - 1] <= text.context:  # a closing special token does not belong to the continuation
        stop -= 1
    start = stop
    while start and ends[start - 1] > text.context:
        start -= 1
    if not stop:
        dropped = text.text[text.context :]
        raise ValueError(f"Continuation {number} has no tokens: the tokenizer drops {dropped!r:.80}.")
    if not start:
        raise ValueError(
            f"Nothing precedes continuation {number}, so its first token has no probability: "
            "give a context, or a tokenizer that adds a start token."
        )
    return Scored(tuple(encoded.ids[:stop]), start)


def choice_sequences(
    tokenizer: PromptTokenizer, prompts: Sequence[Rendered], choices: Sequence[str]
) -> list[list[Scored]]:
    """Return the token sequences of all choices after every prompt, scored from their common prefix on.

    If a choice's tokens are a prefix of another's ("1" and "10"), each choice is closed with the text that follows
    an answer, so that the choices exclude each other. Two choices with equal tokens are a ValueError.
    """
    check_choices(choices)
    rows = [_aligned(row) for row in _rows(tokenizer, prompts, [choices] * len(prompts))]
    unclear = [i for i, row in enumerate(rows) if not row]  # decided per prompt, whatever the batch
    closed = _rows(tokenizer, [prompts[i] for i in unclear], [choices] * len(unclear), closed=True)
    for number, row in zip(unclear, closed, strict=True):
        rows[number] = _aligned(row)
        if not rows[number]:
            raise ValueError(f"After prompt {number} the choices {list(choices)} have the same tokens: change them.")
    return rows


def check_choices(choices: Sequence[str]) -> None:
    """Raise ValueError if there are no choices, or any choice is empty or repeated."""
    if not choices:
        raise ValueError("There are no choices: give at least one.")
    if len(set(choices)) < len(choices):
        raise ValueError(f"The choices {list(choices)} repeat: give each once.")
    if not all(choices):
        raise ValueError(f"One of the choices {list(choices)} is empty: give a text for each.")


def _rows(
    tokenizer: PromptTokenizer, prompts: Sequence[Rendered], answers: Sequence[Sequence[str]], *, closed: bool = False
) -> list[list[Scored]]:
    """Tokenize each prompt's answers, at least one, possibly closed with the text that would follow them."""
    pairs = zip(prompts, answers, strict=True)
    texts = [[prompt.before(answer, closed=closed) for answer in some] for prompt, some in pairs]
    firsts = [row[0] for row in texts]
    reader = tokenizer.reader([*(text.text for text in firsts), *set(itertools.chain.from_iterable(answers))])
    done: dict[int, list[Scored]] = {}
    for numbers, batch in _batches(reader, firsts):  # 1. each prompt with its first answer
        # 2. The others, after the same context.
        follows = [reader.coded(prompts[i].follow) if closed else "" for i in numbers]
        ends = [[answer + follow for answer in answers[i][1:]] for i, follow in zip(numbers, follows, strict=True)]
        more = continued(reader, batch, [firsts[i].context for i in numbers], ends)
        for i, first, others in zip(numbers, batch, more, strict=True):
            rows = zip([first, *others], texts[i], strict=True)
            done[i] = [_scored(encoded, text, i) for encoded, text in rows]
    return [done[i] for i in range(len(prompts))]


def _aligned(row: Sequence[Scored]) -> list[Scored]:
    """Return sequences, scored from the first token in which they differ on; empty if one is a prefix of another."""
    ids = sorted(scored.ids for scored in row)  # a prefix sorts right before a sequence that it begins
    if any(b[: len(a)] == a for a, b in itertools.pairwise(ids)):
        return []
    shared = common(ids[0], ids[-1])  # the prefix of the first and last is common to all
    start = max(1, min(shared, *(scored.start for scored in row)))
    return [replace(scored, start=start) for scored in row]


# Common beginnings.


def common(a: Any, b: Any) -> int:
    """Return the length of the common prefix of two sequences, by bisection."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def key_of(ids: Sequence[int]) -> bytes:
    """Return tokens as bytes that sort and share prefixes as the tokens do."""
    return struct.pack(f">{len(ids)}I", *ids)
