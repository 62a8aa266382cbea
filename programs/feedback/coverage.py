"""Find the concepts that a text covers: as substrings, as the self-bias paper counts them, or by their lemmas."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

Matching = Literal["substring", "lemma"]
MATCHINGS: tuple[Matching, ...] = ("substring", "lemma")


def covered_concepts(concepts: Sequence[str], text: str, *, matching: Matching = "substring") -> list[str]:
    """Return the concepts that the text covers, ignoring case.

    Args:
        concepts: Words or phrases.
        text: English text; only ``"lemma"`` depends on the language.
        matching: ``"substring"`` counts a concept that occurs anywhere, also inside a word: "thrown" covers "throw",
            and "catch" covers "cat" (Xu et al. 2024, section 4.2). ``"lemma"`` counts a concept whose words occur one
            after the other in any inflection: "caught" covers "catch", and "catch" does not cover "cat".

    Raises:
        ValueError: ``matching`` is unknown.
        ImportError: ``"lemma"`` is chosen and simplemma is not installed.
    """
    if matching == "lemma":
        lemmatize = lemmatizer()
        words = _lemmas(text, lemmatize)
        return [concept for concept in concepts if _contains(words, _lemmas(concept, lemmatize))]
    if matching != "substring":
        raise ValueError(f"matching={matching!r} is unknown: choose one of {MATCHINGS}.")
    lowered = text.lower()
    return [concept for concept in concepts if concept.lower() in lowered]


def coverage(concepts: Sequence[str], text: str, *, matching: Matching = "substring") -> float:
    """Return the fraction of the concepts that the text covers, in [0, 1]; NaN without concepts."""
    return len(covered_concepts(concepts, text, matching=matching)) / len(concepts) if concepts else float("nan")


def lemmatizer() -> Callable[..., Any]:
    """Return simplemma's function from a word and its language to the word's lemma.

    Raises:
        ImportError: simplemma is not installed.
    """
    try:
        from simplemma import lemmatize
    except ImportError as error:
        raise ImportError("matching='lemma' needs simplemma: pip install 'evalbias[lemma]'.") from error
    return lemmatize  # type: ignore[no-any-return, unused-ignore]


def _lemmas(text: str, lemmatize: Callable[..., Any]) -> list[str]:
    """Return the lemmas of the words; a sign that is neither part of a word nor white space stands for itself."""
    return [str(lemmatize(word, lang="en")).lower() for word in re.findall(r"\w+|[^\w\s]", text.lower())]


def _contains(words: Sequence[str], phrase: Sequence[str]) -> bool:
    return any(list(words[n : n + len(phrase)]) == list(phrase) for n in range(len(words) - len(phrase) + 1))
