"""Synthetic world with a known truth: facts, wordings, errors and raters; world.json has its words."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import dspy

from evalbias.values import read_json

_TABLES = read_json(Path(__file__).with_name("world.json"), "install evalbias again")

# Wordings of a comparison: a phrase from every part. Each phrase moves the judge towards the first position by a fixed
# number of nats (away from it if negative), and a wording by the sum of its phrases, so the fairest wording is known.

PARTS: Sequence[Mapping[str, float]] = _TABLES["parts"]
GENERAL: Sequence[Sequence[str]] = _TABLES["general"]
"""Phrases for any criterion, all of which keep its definition. Their effect on a judge is unknown."""

GAIN = 1.5  # nats by which a point of quality moves the pairwise judge


def wordings(*, source: str, output: str, name: str, definition: str) -> dict[str, float]:
    """List every wording with its bias towards the first position, in nats."""
    fields = {"source": source, "output": output, "name": name, "definition": definition}
    biases = {}
    for phrases in itertools.product(*(part.items() for part in PARTS)):
        text = " ".join(phrase for phrase, _ in phrases).format(**fields)
        biases[text] = sum(bias for _, bias in phrases)
    return biases


# Every item is a person's three facts (the source) and three sentences about them (the output). A sentence belongs to
# one of three equally frequent classes: it states the fact (sometimes wrongly), it says that the fact is not known (an
# omission), or it states the fact in the wrong word order (a disfluency). Each class has four phrasings, from common to
# rare, drawn independently of the class and worded so that neither the likelihood of a text nor its length says
# anything about its quality. Raters differ in their taste: how much a common phrasing raises their score. The human
# score of an item is the mean of several fair raters. The judge reads the label of a demonstration as the score of a
# single rater, and most raters like common phrasing: eight random demonstrations are too little evidence of a fair
# rater, demonstrations that clearly contradict the preference for common phrasing are enough.


@dataclass(frozen=True)
class Edition:
    """The world in a language: its criterion, and the words of sources and outputs."""

    name: str  # name of the criterion
    definition: str
    task: str
    source_label: str
    output_label: str
    source: str  # wording of a source
    values: Mapping[str, Sequence[str]]  # relation -> its possible values
    stated: Mapping[str, Sequence[str]]  # relation -> phrasings, from common to rare; {an} is a job's article
    unknown: Mapping[str, Sequence[str]]  # the same for a sentence that calls the fact unknown
    broken: Mapping[str, Sequence[str]]  # the phrasings of ``stated`` in the wrong word order
    blanks: Sequence[str]  # words for unknown
    space: str  # between sentences


EDITIONS = {language: Edition(**words) for language, words in _TABLES["editions"].items()}
"""Language -> edition. The same seed draws items of the same facts, classes, phrasings and scores in every edition."""

ENGLISH, JAPANESE = EDITIONS["en"], EDITIONS["ja"]
NAME, DEFINITION, TASK = ENGLISH.name, ENGLISH.definition, ENGLISH.task
SOURCE_LABEL, OUTPUT_LABEL, SOURCE = ENGLISH.source_label, ENGLISH.output_label, ENGLISH.source
VALUES, BLANKS = ENGLISH.values, ENGLISH.blanks
STATED, UNKNOWN, BROKEN = ENGLISH.stated, ENGLISH.unknown, ENGLISH.broken
SCALE = (1, 5)

FREQUENCIES = (0.55, 0.25, 0.12, 0.08)
WRONG = 0.2  # share of stated facts whose value is wrong

RATER_NOISE = 1.5  # standard deviation of a rater's scores around the rater's opinion, in points of the scale
ANNOTATORS = 4  # number of fair raters whose mean is the human score of an item
SOURCES = math.prod(len(values) for values in VALUES.values())  # number of different sources

_MEAN = sum(p * math.log(p) for p in FREQUENCIES)
_SD = math.sqrt(sum(p * (math.log(p) - _MEAN) ** 2 for p in FREQUENCIES))


@dataclass(frozen=True)
class Item:
    """Output with its true quality, commonness and errors."""

    source: str  # facts as a record (SOURCE)
    output: str  # three sentences about the facts
    quality: float  # 1 to 5, linear in the facts stated: a correct sentence counts 1, a disfluent one 1/2, any other 0
    commonness: float  # how common the phrasings are: mean 0 and standard deviation 1 over the world
    errors: tuple[str, ...]  # error of each sentence: "", "omission", "wrong object" or "disfluency"


def item(rng: random.Random) -> Item:
    """Draw an item."""
    return siblings(rng, 1)[0]


def siblings(rng: random.Random, count: int, edition: Edition = ENGLISH) -> list[Item]:
    """Draw ``count`` outputs of the same source."""
    facts = {relation: rng.choice(values) for relation, values in edition.values.items()}
    return [_item(rng, facts, edition) for _ in range(count)]


def _item(rng: random.Random, facts: dict[str, str], edition: Edition) -> Item:
    sentences, errors, points, commonness = [], [], 0.0, 0.0
    for relation, value in facts.items():
        (level,) = rng.choices(range(4), FREQUENCIES)
        commonness += (math.log(FREQUENCIES[level]) - _MEAN) / _SD
        kind = rng.randrange(3)
        if kind == 1:
            phrasing, value = edition.unknown[relation][level], rng.choice(edition.blanks)
            error, counts = "omission", 0.0
        elif kind == 2:
            phrasing, error, counts = edition.broken[relation][level], "disfluency", 0.5
        elif rng.random() < WRONG:
            value = rng.choice([v for v in edition.values[relation] if v != value])
            phrasing, error, counts = edition.stated[relation][level], "wrong object", 0.0
        else:
            phrasing, error, counts = edition.stated[relation][level], "", 1.0
        sentences.append(phrasing.format(value, an="an" if value[0] in "aeiou" else "a"))
        errors.append(error)
        points += counts
    output, quality = edition.space.join(sentences), 1 + 4 * points / 3
    return Item(edition.source.format(**facts), output, quality, commonness / math.sqrt(3), tuple(errors))


def facts(source: str) -> dict[str, str]:
    """Read the value of each relation from a source; refuses a text of another form than ``SOURCE``.

    Examples:
        >>> facts("Place of birth: Oslo; job: miner; favorite food: rice")
        {'born': 'Oslo', 'job': 'miner', 'food': 'rice'}
    """
    match = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>\\w+)", SOURCE), source)
    if match is None:
        raise ValueError(f"{source!r} is no source of the synthetic world: write it as {SOURCE!r}.")
    return match.groupdict()


def true_quality(source: str, output: str) -> float:
    """Score any English text as a description of the facts, from 1 to 5, in the same way as ``Item.quality``.

    Only the first sentence about a fact counts: 1 if it states the correct value in one of the world's phrasings, 1/2
    if in the wrong word order, 0 otherwise, and without a sentence.
    """
    sentences, points = _parse(output), 0.0
    for relation, value in facts(source).items():
        form, stated, _ = sentences.get(relation, ("", "", 0))
        points += {"stated": 1.0, "broken": 0.5}.get(form, 0.0) if stated == value else 0.0
    return 1 + 4 * points / len(VALUES)


_PATTERNS = [
    (re.compile(re.escape(phrasing).replace(r"\{an\}", "an?").replace(r"\{\}", r"(\w+)")), relation, form, level)
    for form, phrasings in (("stated", STATED), ("broken", BROKEN), ("unknown", UNKNOWN))
    for relation, four in phrasings.items()
    for level, phrasing in enumerate(four)
]


def _parse(output: str) -> dict[str, tuple[str, str, int]]:
    """Map each relation to (form, value, phrasing level) of the first sentence about it."""
    parsed: dict[str, tuple[str, str, int]] = {}
    for sentence in re.findall(r"[^.]+\.", output):
        for pattern, relation, form, level in _PATTERNS:
            if match := pattern.fullmatch(" ".join(sentence.split())):
                parsed.setdefault(relation, (form, match[1], level))
    return parsed


def rating(rng: random.Random, drawn: Item, *, taste: float = 0.0, raters: int = 1) -> float:
    """Draw the mean score of ``raters`` raters, in [1, 5]: quality plus taste times commonness plus noise."""
    return _on_scale(_opinion(rng, drawn, taste=taste, raters=raters))


def _opinion(rng: random.Random, drawn: Item, *, taste: float, raters: int) -> float:
    return drawn.quality + taste * drawn.commonness + rng.gauss(0.0, RATER_NOISE / math.sqrt(raters))


def _on_scale(opinion: float) -> float:
    return min(float(SCALE[1]), max(float(SCALE[0]), opinion))


def examples(n: int, *, seed: int, language: str = "en") -> list[dspy.Example]:
    """Draw n items with ``id``, ``scores``, ``ratings``, and the true ``quality`` and ``commonness``.

    The score is the mean of ``ANNOTATORS`` fair raters, in [1, 5]; the single ``ratings`` are not cut off at its ends.
    """
    rng, edition = random.Random(seed), EDITIONS[language]
    return [_example(rng, siblings(rng, 1, edition)[0], f"world-{seed}-{number}", edition) for number in range(n)]


def documents(n: int, outputs: int, *, seed: int, language: str = "en") -> list[dspy.Example]:
    """Draw n of ``SOURCES`` different sources with ``outputs`` outputs each, and ``input_id``, for pairwise judges."""
    if n > SOURCES:
        raise ValueError(f"{n} documents cannot be drawn: the world has {SOURCES} sources. Ask for fewer.")
    rng, seen, edition = random.Random(seed), set[str](), EDITIONS[language]
    drawn_examples = []
    for number in range(n):
        group = siblings(rng, outputs, edition)
        while group[0].source in seen:
            group = siblings(rng, outputs, edition)
        seen.add(group[0].source)
        for place, drawn in enumerate(group):
            name = f"world-{seed}-{number}-{place}"
            drawn_examples.append(_example(rng, drawn, name, edition, input_id=f"{seed}-{number}"))
    return drawn_examples


def _example(rng: random.Random, drawn: Item, name: str, edition: Edition, **more: str) -> dspy.Example:
    mean = _opinion(rng, drawn, taste=0.0, raters=ANNOTATORS)
    own = random.Random(f"ratings of {name}")  # single ratings with this mean, from the item's own generator
    noise = [own.gauss(0.0, RATER_NOISE) for _ in range(ANNOTATORS)]
    example = dspy.Example(
        id=name,
        **more,
        source=drawn.source,
        output=drawn.output,
        scores={edition.name: _on_scale(mean)},
        ratings={edition.name: [mean + error - sum(noise) / ANNOTATORS for error in noise]},
        quality=drawn.quality,
        commonness=drawn.commonness,
    )
    return example.with_inputs("source", "output")
