"""Wording of prompts by language, which judges fill in with a criterion, demonstrations and an item.

A message is ``{"role": "system" | "user" | "assistant", "content": str}``. The language model turns messages into
tokens, with its chat template or as plain text for a base model.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evalbias.programs.criterion import Criterion
from evalbias.values import read_json

Message = dict[str, str]
Fields = Mapping[str, Any]  # an item or a demonstration: field -> text, number, or list of candidates
Inputs = Mapping[str, Any]  # what a judge's predictor takes: name of an input -> text, or list of ``candidates``
ENGLISH = "en"


@dataclass(frozen=True, kw_only=True)
class ScoringWords:
    """Sentences of a judge that scores."""

    scoring: str  # first line of the instruction
    scale: str  # line that names the answers, from {low} (worst) to {high} (best)
    falling: str  # the same from the highest to the lowest
    score: str  # what precedes a score, of {name} with a capital
    no: str  # answers to a question of yes or no
    yes: str


@dataclass(frozen=True, kw_only=True)
class ComparingWords:
    """Sentences of a judge that compares."""

    candidate: str  # label of a candidate, of the output's {label} and {letter}
    question: str  # an {instruction} that follows the candidates
    comparison: str  # instruction without the line that names the answers
    tie: str  # answer that there is no difference
    better: str  # what precedes the name of the better candidate


@dataclass(frozen=True, kw_only=True)
class Language(ScoringWords, ComparingWords):
    """Sentences and labels of the prompts in one language: of either kind of judge, and those of both.

    ``{name}``, ``{definition}`` and ``{output}`` in braces are the criterion's words; comments name other fields.
    """

    source_label: str  # default of a criterion, as the next two
    output_label: str
    task: str
    text: str  # a labeled text, of {label} and {text}
    answers: str  # line that names the {answers}
    either: str  # the answers, of {others} and {last}
    comma: str  # between the answers
    reasons: str  # request to think before the answer
    conclusion: str  # request to answer after that
    reword: str  # request to a model that rewords an instruction


_WORDS = read_json(Path(__file__).with_name("languages.json"), "install evalbias again")
LANGUAGES = {code: Language(**words) for code, words in _WORDS.items()}
"""Languages of a judge by their ISO 639-1 codes, from languages.json; languages that are added here can be used too."""


def known_language(name: str, value: object) -> None:
    """Raise ``ValueError`` for a language that a judge does not have."""
    if not isinstance(value, str) or value not in LANGUAGES:
        raise ValueError(
            f"{name}={value!r:.80} is unknown: choose one of {(*LANGUAGES,)}, or add its Language to "
            "evalbias.programs.prompts.LANGUAGES."
        )


def in_language(criterion: Criterion, language: str) -> Criterion:
    """Return a criterion whose default labels and task, and answers yes and no, are replaced by those of a language."""
    phrases, names = LANGUAGES[language], ("source_label", "output_label", "task")
    replaced: dict[str, Any] = {n: getattr(phrases, n) for n in names if getattr(criterion, n) == getattr(Criterion, n)}
    if criterion.scale == (0, 1) and not criterion.answers:
        replaced["answers"] = (phrases.no, phrases.yes)
    return replace(criterion, **replaced)


def heading(criterion: Criterion) -> str:
    """Return the criterion's name at the beginning of a line."""
    title = criterion.title
    return title.capitalize() if _is_english(criterion) else title[:1].upper() + title[1:]


_ENGLISH = re.compile(r"\b(?:the|is|are|does|do|how|of|it|to|can|what|without|every)\b", re.IGNORECASE)
_GERMAN = re.compile(
    r"\b(?:d(?:er|ie|as|en|em|es)|eine?n?|ist|sind|w[ei]rd|wie|und|oder|nicht|kann|hat)\b", re.IGNORECASE
)


def _is_english(criterion: Criterion) -> bool:
    """Return whether a criterion is in English: it has English words, or is in ASCII and does not look German."""
    definition = criterion.definition
    is_plain = f"{criterion.name}{definition}{criterion.output_label}".isascii()
    return bool(_ENGLISH.search(definition)) or (is_plain and not _GERMAN.search(definition))


def filled(sentence: str, criterion: Criterion, **words: str) -> str:
    """Return a sentence with the fields in braces replaced by a criterion's words, or by other ``words``.

    The labels of a criterion in English are in lower case.

    Examples:
        >>> filled("Read the {output}.", Criterion("politeness", "is the reply polite?", output_label="Reply"))
        'Read the reply.'
        >>> filled("{output}:", Criterion("Höflichkeit", "Ist die Antwort höflich?", output_label="Antwort"))
        'Antwort:'
    """
    is_english, labels = _is_english(criterion), (criterion.output_label, criterion.source_label)
    output, source = (label.lower() if is_english else label for label in labels)
    own = {"name": criterion.title, "definition": criterion.definition, "output": output, "source": source}
    return sentence.format(**{**own, **words})


def demonstration(text: str, label: str) -> list[Message]:
    """Return the messages of a demonstration: an item's text and its answer."""
    return [{"role": "user", "content": text}, {"role": "assistant", "content": label}]


# Prompt of a judge that compares.

LETTERS = string.ascii_uppercase  # names of the candidates in a comparison, by position

TIE = LANGUAGES[ENGLISH].tie  # label of a tie in data and in traces; a prompt has the label of its language


def comparison_labels(count: int, *, ties: bool, language: str = ENGLISH) -> tuple[str, ...]:
    """Return the answers of a comparison: A, B, ... by position, then possibly "Tie"."""
    return tuple(LETTERS[:count]) + ((LANGUAGES[language].tie,) if ties else ())


ANSWERS = "{answers}"  # stands for the answers in the instruction of a comparison


def with_answers(instruction: str, labels: Sequence[str], language: str = ENGLISH) -> str:
    """Return an instruction with the answers in place of ``{answers}``, or in a line at its end if it lacks this field.

    Examples:
        >>> with_answers("Which is better, {answers}?", ("A", "B", "Tie"))
        'Which is better, A, B or Tie?'
    """
    phrases = LANGUAGES[language]
    whole = instruction if ANSWERS in instruction else f"{instruction}\n{phrases.answers}"
    return whole.replace(ANSWERS, phrases.either.format(others=phrases.comma.join(labels[:-1]), last=labels[-1]))


def likelihood_messages(criterion: Criterion, source: str) -> list[Message]:
    """Render the context of LS, ``log P(output | source, task)`` (Ohi et al. 2024, eq 1); the source may be empty."""
    content = f"{criterion.output_label}:"
    if source:
        content = f"{criterion.source_label}: {source}\n{content}"
    return [{"role": "system", "content": criterion.task}, {"role": "user", "content": content}]
