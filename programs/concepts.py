"""Feedback on missing concepts: exact, or by a model."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import dspy

from evalbias.data.items import item_name
from evalbias.measures.mqm import LONGEST
from evalbias.programs.feedback import Feedback, required_field
from evalbias.programs.writing import PlainPredict

# Find the concepts that a text covers: as substrings, as the self-bias paper counts them, or by their lemmas.


Matching = Literal["substring", "lemma"]
MATCHINGS: tuple[Matching, ...] = ("substring", "lemma")


def covered_concepts(concepts: Sequence[str], text: str, *, matching: Matching = "substring") -> list[str]:
    """Return the concepts that an English text covers, ignoring case.

    ``"substring"`` counts a concept that occurs anywhere, in any language, also inside a word: "thrown" covers "throw",
    and "catch" covers "cat" (Xu et al. 2024, section 4.1). ``"lemma"``, which needs simplemma, counts a concept whose
    words occur one after the other in any inflection: "caught" covers "catch", and "catch" does not cover "cat".
    """
    if matching not in MATCHINGS:
        raise ValueError(f"matching={matching!r} is unknown: choose one of {MATCHINGS}.")
    if matching == "substring":
        lowered = text.lower()
        return [concept for concept in concepts if concept.lower() in lowered]
    try:
        from simplemma import lemmatize
    except ImportError as error:
        raise ImportError("matching='lemma' needs simplemma: pip install 'evalbias[lemma]'.") from error
    words = _lemmas(text, lemmatize)
    return [concept for concept in concepts if _contains(words, _lemmas(concept, lemmatize))]


def coverage(concepts: Sequence[str], text: str, *, matching: Matching = "substring") -> float:
    """Return the fraction of the concepts that the text covers, in [0, 1]; NaN without concepts."""
    return len(covered_concepts(concepts, text, matching=matching)) / len(concepts) if concepts else float("nan")


def _lemmas(text: str, lemmatize: Callable[..., Any]) -> list[str]:
    """Return the lemmas of the words; a sign that is neither part of a word nor white space stands for itself."""
    return [str(lemmatize(word, lang="en")).lower() for word in re.findall(r"\w+|[^\w\s]", text.lower())]


def _contains(words: Sequence[str], phrase: Sequence[str]) -> bool:
    return any(list(words[n : n + len(phrase)]) == list(phrase) for n in range(len(words) - len(phrase) + 1))


# Read which concepts an answer names as missing: "all covered", a list in any layout, or a short sentence.
# Nothing is missing only where the answer says so and nothing else. An answer that names a concept among words that are
# not understood, contradicts itself, or names no concept is unreadable.


# Parts of sentences.
_NOUN = r"(?:concepts?|words?|keywords?|items?)"
_OF_THEM = (
    r"(?: of)?(?: (?:the|them|these|those|given|specified|required|listed|provided|input|two|three|four|five|\d+))*"
)
_ALL = rf"(?:(?:all|every one|each){_OF_THEM}(?: {_NOUN})?|every (?:\w+ )?{_NOUN}|everything)"
_BE = r"(?:is|are|was|were|has been|have been)"
_COVERED = r"(?:covered|included|present|mentioned|contained|used|there)"
_TEXT = r"(?:the|this) (?:\w+ )?(?:sentence|text|output|draft)"

# Answers that nothing is missing.
_ALL_ARE_COVERED = rf"{_ALL} (?:{_BE} )?(?:all )?{_COVERED}(?: (?:in|by) {_TEXT})?"
_COVERS_ALL = rf"(?:(?:{_TEXT}|it) )?(?:covers|includes|contains|mentions|uses) {_ALL}"
_NONE_IS_MISSING = (
    rf"(?:there {_BE} )?(?:none|nothing|no(?: missing)? {_NOUN})"
    rf"(?:(?: of (?:them|(?:the|these|those) {_NOUN}))? (?:{_BE} )?missing)?"
)
_SAID = rf"(?:(?:yes|no)[,.] )?(?:{_ALL_ARE_COVERED}|{_COVERS_ALL}|{_NONE_IS_MISSING})|no|n/a|nil"
_EMPTY_LIST = r"\s*(?:\[\s*\]|\(\s*\))\s*"
_NOTHING = re.compile(rf"\W*(?:{_SAID})\W*|{_EMPTY_LIST}", re.IGNORECASE)

# Words around a list of missing concepts.
_YES_OR_NO = re.compile(r"^(?:yes|no)[,.] ", re.IGNORECASE)
_LABEL = re.compile(
    r"^(?![^:]*\b(?:no|not|nothing|none)\b)(?=([^,\n:\[]*?\bmissing\b))\1[^,\n:\[]*(?::|\bare\b|\bis\b)", re.IGNORECASE
)  # the first "missing" alone is tried: the lookahead never goes back
_LEAVES_OUT = re.compile(
    rf"^(?:{_TEXT}|it) (?:(?:does not|doesn't|fails to) (?:cover|include|contain|mention|use)|lacks|omits|misses"
    r"|leaves out|is missing):? ",
    re.IGNORECASE,
)
_THE_CONCEPTS = re.compile(rf"^(?:the (?:following )?{_NOUN}:? |{_NOUN} (?=[\"'\u2018\u201c]))", re.IGNORECASE)
_IS_MISSING = re.compile(
    rf"(?<![\s:(\u2013-])[\s:(\u2013-]*(?:\b{_BE} )?(?:missing|not {_COVERED})(?: (?:in|from|by) {_TEXT})?\W*$",
    re.IGNORECASE,
)

# The layout of a list.
_MARKUP = re.compile(r"\*\*|__|```\w*")
_BREAK = re.compile(r"(?:^|\s)\(?\d{1,2}[.)]\s+|[,;|/&\n\u2022、，；]|\band\b|[.!]\s|。", re.MULTILINE | re.IGNORECASE)
_AROUND = " \t.!:*-+\u2013\u2022'\"`\u2018\u2019\u201c\u201d()[]{}。「」『』（）"
_MARK = 0xE000  # the first of the private characters that stand for concepts


def read_missing(text: str, concepts: Sequence[str]) -> list[str] | None:
    r"""Read the missing concepts from a written answer, in the order of ``concepts``; None if it is unreadable.

    The answer may say that all are covered, or be a Python list, or concepts in bullets, numbers, or a row, also in a
    sentence such as "The text does not mention dog." or after a label such as "Missing:". Entries without a concept are
    ignored. An entry with a concept among other words makes the answer unreadable, as does an entry that says that all
    are covered, and more than ``LONGEST`` characters. A Python list that names other words only says that something is
    missing too, and is returned as it is.

    Examples:
        >>> read_missing("1. dog\n2. cat", ["dog", "park"]), read_missing("all covered", ["dog", "park"])
        (['dog'], [])
        >>> read_missing("犬、「公園」。", ["犬", "公園", "投げる"])
        ['犬', '公園']
        >>> print(read_missing("All covered except dog.", ["dog", "park"]))
        None
    """
    if len(text) > LONGEST:
        return None
    answer = _MARKUP.sub("", re.sub("[\ue000-\uf8ff]", "", text)).strip()
    listed = _without_sentence(answer)
    if _NOTHING.fullmatch(answer) or _NOTHING.fullmatch(listed):
        return []
    words = _python_list(listed)
    if words is not None and len(words) == 1 and _NOTHING.fullmatch(words[0]):
        return []
    # A concept may hold "and" or a comma, so concepts become marks before the list is cut; longer ones come first.
    marks = {concept.lower(): chr(_MARK + n) for n, concept in enumerate(dict.fromkeys(concepts))}
    pattern = "|".join(re.escape(concept) for concept in sorted(marks, key=len, reverse=True)) or "(?!)"
    entries = []
    for part in [listed] if words is None else words:
        marked = re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", lambda m: marks[m.group().lower()], part, flags=re.IGNORECASE)
        entries += [_IS_MISSING.sub("", entry).strip(_AROUND) for entry in _BREAK.split(marked)]
    named = {entry for entry in entries if entry in marks.values()}
    rest = [entry for entry in entries if entry not in named]
    if any(_NOTHING.fullmatch(entry) or any(mark in entry for mark in marks.values()) for entry in rest):
        return None
    return [concept for concept in concepts if marks[concept.lower()] in named] or words or None


def _without_sentence(answer: str) -> str:
    """Return an answer without the words before and after its list."""
    for words in (_YES_OR_NO, _LABEL, _LEAVES_OUT, _THE_CONCEPTS, _IS_MISSING):
        answer = words.sub("", answer, count=1).strip()
    return answer


def _python_list(text: str) -> list[str] | None:
    """Return the words of a Python list, without empty ones; None if the text is something else."""
    try:
        words = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two: lists nested too deep
        return None
    return [str(word) for word in words if str(word).strip()] if isinstance(words, list | tuple | set) else None


# Feedback for constrained generation: the missing concepts, listed by the model or found in the text.


NOTHING_MISSING = "all of them are there"


class FindMissing(dspy.Signature):  # type: ignore[misc]
    """Say which of the concepts the text leaves out. A concept is there if exactly its letters stand in the text.

    Write them with commas between; write none where every concept stands in the text.
    """

    concepts: list[str] = dspy.InputField()
    text: str = dspy.InputField()
    missing: str = dspy.OutputField()


class ConceptsFeedback(dspy.Module):  # type: ignore[misc]
    """Self-feedback that lists missing concepts (Xu et al. 2024, section 4.1): score 1 if none is missing, else 0."""

    name = "own list of missing concepts"
    low, high = 0.0, 1.0

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.find = PlainPredict(FindMissing, **{"temperature": 0.0, "max_tokens": 200, **config})

    def forward(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Ask the model which of the example's ``concepts`` the output lacks."""
        concepts = required_concepts(self.name, example)
        answer = self.find(concepts=concepts, text=output).missing
        missing = read_missing(answer, concepts)
        if missing is None:
            return Feedback(float("nan"), answer, status="empty" if not answer.strip() else "unreadable")
        return _feedback(missing)


class ExactConcepts:
    """External oracle: score 1 if the text covers every concept, else 0.

    What covers a concept: a ``"substring"``, as in the paper, or its ``"lemma"``, as in ``covered_concepts``.
    """

    low, high = 0.0, 1.0

    def __init__(self, *, matching: Matching = "substring") -> None:
        covered_concepts([], "", matching=matching)
        self.matching = matching
        self.name = "exact match of concepts" if matching == "substring" else f"match of concepts by {matching}"

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Search the output for the example's ``concepts``."""
        concepts = required_concepts(self.name, example)
        covered = covered_concepts(concepts, output, matching=self.matching)
        return _feedback([c for c in concepts if c not in covered])


def required_concepts(source: str, example: Mapping[str, Any]) -> list[str]:
    """Return the example's ``concepts``; ``ValueError``, naming ``source``, if they are missing or no list of texts."""
    concepts = required_field(source, example, "concepts")
    if isinstance(concepts, str) or not all(isinstance(c, str) and c.strip() for c in concepts):
        raise ValueError(f"The item {item_name(example)!r} has the concepts {concepts!r:.60}: give a list of words.")
    return list(concepts)


def _feedback(missing: Sequence[str]) -> Feedback:
    return Feedback(float(not missing), f"missing: {', '.join(missing)}" if missing else NOTHING_MISSING)
