"""Read answers: choices in a text or among the most probable first tokens, and values in JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from evalbias.lm.types import ChoiceLogprobs
from evalbias.measures.arrays import FloatArray
from evalbias.values import WORD_CHARACTER, half_width

# The choice in a written answer, read strictly: an unclear answer names no choice.


_MARKS = " \t*_`'\"().:;,!#。、「」『』"  # characters that may stand around an answer
_AFTER_NAMES = "is|are|were|wins|beats|and|or|over|than"  # words that follow the name of a choice, but no article
_WAVES = "\u301c\uff5e"  # characters between the ends of a range in Japanese

_DOUBT = re.compile(
    r"\b(?:not|no|never|neither|nor|cannot|unable|unsure|worse|worst|weaker|inferior|lower|below|less|except)\b|n't\b"
    "|ない|ません|なく|劣|悪|低い|以下|未満|不明|以外",
    re.IGNORECASE,
)
"""Words that may turn an answer into its opposite."""
_COUNTED = re.compile(r"\s+(?!(?:out|of|because|since|as|for|points?|stars?|marks?|is|on|due|and|but|with)\b)[a-z]")
"""What follows a number that counts something, and is no answer."""
_TOTAL = re.compile(r"[\s*_]*(?:points?\s*)?(?:/|(?:out )?of\b)\s*(\w+)", re.IGNORECASE)
"""What follows a number that is a share of a total, as in "4/10" and "4 out of 10"."""


def named_choice(text: str, choices: Sequence[str], *, finished: bool = True) -> str | None:
    r"""Return the choice that a written answer names; None if it names no choice or several.

    A first or last line that holds a choice alone counts, such as "Score: 4" after the reasons; else what these lines
    name, else the whole text; of a JSON object, its only value that is a choice. A choice must stand as a word of its
    own, in any case if it has several letters. A text that denies, compares downward, counts, abstains or is of another
    scale ("A is worse", "3 facts", "4/10" of 1 to 5) names no choice, nor do a model's thoughts before its answer
    (``<think>...</think>``). One that is not ``finished``, but cut off, counts where it begins with the choice: a
    conclusion may be missing. English and Japanese are read.

    Examples:
        >>> named_choice("**B** is better.", ["A", "B"]), named_choice("4 out of 5", ["4", "5"])
        ('B', '4')
        >>> named_choice("答えはＢです。", ["A", "B"]), named_choice("5点満点中4点", ["4", "5"])
        ('B', '4')
        >>> named_choice("It states 3 facts.\nScore: 4", ["3", "4"]), named_choice("A and B are equal", ["A", "B"])
        ('4', None)
    """
    own, text = {half_width(choice): choice for choice in choices}, half_width(text.rpartition("</think>")[2])
    if "<think>" in text:  # thoughts cut off by the token limit contain no answer
        return None
    if (values := _values_of_object(text)) is not None:
        chosen = {choice for name, choice in own.items() if name.casefold() in values}
        return chosen.pop() if len(chosen) == 1 else None
    lines = text.strip().splitlines() or [""]
    if not finished:
        first, begins = _named(lines[0].strip(_MARKS), own)[0] or None, lines[0].strip(_MARKS).casefold()
        return first if first and begins.startswith(half_width(first).casefold()) else None
    ends, whole = [_named(line.strip(_MARKS), own) for line in (lines[0], lines[-1])], _named(text, own)
    alone = {choice for choice, is_alone in ends if is_alone}
    named = alone or {choice for choice, _ in ends if choice is not None} or {whole[0]}
    return (named.pop() or None) if len(named) == 1 else None


def _values_of_object(text: str) -> set[str] | None:
    """Return the values of the JSON object in a text, as texts in lower case; None without one, empty if cut off."""
    if (begin := re.search(r'\{\s*"', text)) is None:
        return None
    try:
        values = json.loads(text[begin.start() : text.rfind("}") + 1]).values()
    except (ValueError, RecursionError):
        return set()
    return {f"{value:g}" if isinstance(value, float) else str(value).casefold() for value in values}


def _named(text: str, own: Mapping[str, str]) -> tuple[str | None, bool]:
    """Return the only choice in a text, "" in doubt and None for none or several; and whether it holds nothing else.

    ``own`` is a choice as it is written -> choice.
    """
    if text in own:
        return own[text], True
    matches, by_name = [*_pattern(tuple(own)).finditer(text)], {name.casefold(): name for name in own}
    names = {by_name[match[0].casefold()] for match in matches}
    if len(names) != 1:
        return None, False
    (match, *_), name = matches, names.pop()
    total = _TOTAL.match(text, match.end()) if match[0].isdecimal() else None
    if _doubtful(text, match) or (total and total[1] != max(filter(str.isdecimal, own), key=int)):
        return "", False
    before, after = text[: match.start()], text[match.end() :].rstrip(_MARKS)
    is_labeled = re.fullmatch(rf"[^:]{{1,40}}:[{_MARKS}]*", before) is not None
    return own[name], is_labeled and re.fullmatch(r"(\s*/\s*\d+)?", after) is not None


def _doubtful(text: str, match: re.Match[str]) -> bool:
    """Return whether a text that names a choice may mean another, or none: "A is worse", "2 below the best", "3 facts".

    An answer that begins with the choice and a punctuation mark is clear, whatever follows.
    """
    begins = re.match(rf"{re.escape(match[0])}\s*[.,:;)!。]", text.strip(" *_`'\"("))
    counts = match[0].isdecimal() and _COUNTED.match(text, match.end())
    return bool(counts or (_DOUBT.search(text) and not begins))


@cache
def _pattern(choices: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of a choice that stands as a name; the longest match wins."""
    # "A" may be the article, as in "A better text is B": no lowercase word may follow, except _AFTER_NAMES. The end of
    # a scale is not an answer, as the 5 in "4/5" and "4 of 5", nor are those of a range, as in "4-5".
    words = sorted(choices, key=len, reverse=True)
    names = "|".join(re.escape(c) if len(c) == 1 else f"(?i:{re.escape(c)})" for c in words)
    number = all(re.fullmatch(r"-?\d+", c) for c in choices)
    of_numbers = rf"(?!\.\d)(?!\s*[-\u2013\u2014{_WAVES}]\s*\d)(?!点満点|段階|\s*%)"
    after = of_numbers if number else rf"(?!/)(?!\s+(?!(?:{_AFTER_NAMES})\b)[a-z])"
    before = rf"(?<!{WORD_CHARACTER})(?<![./{_WAVES}-])(?<!\bof ){'(?<!/ )' if number else ''}"
    return re.compile(rf"{before}({names})(?!{WORD_CHARACTER}){after}")


# Probabilities of choices from an answer's most probable first tokens: many models report nothing else.


TOP = 20  # number of most probable tokens that OpenAI's protocol returns at most
TOP_TOLERANCE = 1e-3  # largest probability, as a share of the reported choices', at which unreported ones count as 0
SUM_EXCESS = 0.05  # largest excess over 1 of the sum of reported probabilities, which servers round
MINUS_INFINITY = -9999.0  # stand-in for minus infinity in vLLM's answers, because JSON has no infinities


def logprob_of(value: Any) -> float:
    """Return a reported log-probability as a float in [-inf, 0]; ValueError for NaN and more than rounding above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= 1e-3:  # NaN is not
        raise ValueError(f"{value!r:.80} is not a log-probability")
    return -math.inf if value <= MINUS_INFINITY else min(float(value), 0.0)


def first_tokens(reported: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """Return the most probable first tokens of an answer, text -> log-probability in nats.

    Probabilities of tokens that are written alike are added, such as a digit with and without the mark of a word's
    beginning. ValueError: a value is not a log-probability, or the probabilities sum to more than 1 beyond rounding.
    """
    logprobs: dict[str, list[float]] = {}
    for text, value in reported:
        logprobs.setdefault(text, []).append(logprob_of(value))
    top = {text: float(np.logaddexp.reduce(values)) for text, values in logprobs.items()}
    total = float(np.exp(list(top.values())).sum())
    if total > 1.0 + SUM_EXCESS:
        raise ValueError(f"the probabilities of the first token sum to {total:.3g}")
    return {text: min(value, 0.0) for text, value in top.items()}


def first_token_row(top: Mapping[str, float], choices: Sequence[str]) -> FloatArray:
    """Return the (c,) log-probabilities in nats of the choices as the first token of an answer.

    Unreported choices count as 0 if together they have at most ``TOP_TOLERANCE`` times the probability of the reported
    choices. Otherwise, and if a reported token is a prefix of an unreported choice, the row is undefined: NaN.
    """
    row = np.array([top.get(choice, -math.inf) for choice in choices])  # (c,)
    unreported = [choice for choice in choices if choice not in top]
    if not unreported:
        return row
    if any(choice.startswith(token) for choice in unreported for token in top if token):
        return np.full(len(choices), np.nan)
    # Each is at most as probable as the least probable reported token; together they have at most the rest of 1.
    shares = np.exp(list(top.values()))
    bound = min(max(0.0, 1.0 - float(shares.sum())), len(unreported) * float(shares.min()))
    reported = float(np.exp(row).sum())
    return row if reported > 0 and bound <= TOP_TOLERANCE * reported else np.full(len(choices), np.nan)


# Values in a server's JSON: read strictly, so that a missing log-probability never becomes a number.


class Unreadable(ValueError):  # noqa: N818 - a value error like the others, named for the problem
    """A server's answer lacks the requested values, or has them in another form."""


class Withheld(Unreadable):
    """An answer with status 200 but no probabilities, for example because a model or filter declines the text."""


def part(answer: Any, *path: Any, kind: type = object) -> Any:
    """Return the value at a path of names and indices; Unreadable if it is missing, null or of another type."""
    name = ".".join(map(str, path)) or "an entry"
    for step in path:
        try:
            answer = answer[step]
        except (KeyError, IndexError, TypeError):
            raise Unreadable(f"{name} is missing") from None
    if answer is None:
        raise Unreadable(f"{name} is null")
    if not isinstance(answer, kind) or (kind is int and isinstance(answer, bool)):
        raise Unreadable(f"{name} is a {type(answer).__name__}, but must be a {kind.__name__}")
    return answer


# Probabilities of options in a server's report.


SHARES_ROUNDING = 0.02  # largest difference between 1 and the sum of the reported probabilities


def answer_of(choices: tuple[str, ...], shares: Mapping[Any, Any], mass: Any = None) -> ChoiceLogprobs:
    """Return reported shares of c options as log-probabilities, or raise ``Unreadable``; the coverage is ``mass``."""
    if set(shares) != set(choices):
        raise Unreadable(f"it has probabilities of {list(shares)}, not of {list(choices)}")
    row = np.array([probability(shares[choice]) for choice in choices])  # (c,)
    if abs(row.sum() - 1.0) > SHARES_ROUNDING:
        raise Unreadable(f"the probabilities of the options sum to {row.sum():.3f}, not to 1")
    with np.errstate(divide="ignore"):  # a probability of 0 is a log-probability of -inf
        logprobs = np.log(row) + (0.0 if mass is None else np.log(probability(mass)))
    return ChoiceLogprobs(choices, logprobs[None], renormalized=mass is None)


def probability(value: Any) -> float:
    """Return a reported probability as a float in [0, 1], within rounding."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e-6 <= value <= 1.0 + 1e-3:
        raise Unreadable(f"{value!r:.80} is not a probability")
    return min(max(float(value), 0.0), 1.0)
