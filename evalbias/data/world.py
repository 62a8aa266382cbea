"""A synthetic world in which the truth is known: people, sentences about them, and raters with a taste.

Every item is a person's three facts (the source) and three sentences about them (the output). A sentence belongs to
one of three classes, equally often: it states the fact, it says that the fact is unknown (an omission), or it states
the fact in broken order (a disfluency). A stated fact is sometimes a wrong one. Each class has four phrasings, from
common to rare, and the draw of the phrasing is independent of the class: how likely a text is says nothing about how
good it is. Raters differ in one number, their taste: how far a common phrasing lifts their score.

The human score of an item is the mean of several fair raters. A judge that takes a demonstration's label for the score
of one rater, most of whom are fond of common phrasing, is told too little by eight random demonstrations to give up
its liking; demonstrations that contradict the liking plainly tell it enough.

Everything is drawn from ``random.Random(seed)``; the same seed gives the same items in any process.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from dataclasses import dataclass

import dspy

NAME = "quality"
DEFINITION = "does the text say the data well?"
TASK = "Say the data."
SOURCE_LABEL = "Data"
OUTPUT_LABEL = "Text"
SCALE = (1, 5)

VALUES = {
    "born": ("paris", "oslo", "rome", "lima", "cairo", "quito"),
    "job": ("pilot", "baker", "nurse", "actor", "miner", "tailor"),
    "food": ("rice", "soup", "bread", "pasta", "curry", "salad"),
}
STATED = {
    "born": ("born in {} .", "comes from {} .", "calls {} home .", "first saw {} ."),
    "job": ("works as {} .", "is a {} .", "lives as {} .", "earns as {} ."),
    "food": ("likes eating {} .", "enjoys much {} .", "adores any {} .", "craves only {} ."),
}
UNKNOWN = {
    "born": ("birthplace is {} .", "origin is {} .", "homeland stays {} .", "cradle remains {} ."),
    "job": ("work is {} .", "trade is {} .", "calling stays {} .", "living remains {} ."),
    "food": ("taste is {} .", "diet is {} .", "dish stays {} .", "plate remains {} ."),
}
BROKEN = {
    "born": ("in born {} .", "from comes {} .", "home calls {} .", "saw first {} ."),
    "job": ("as works {} .", "a is {} .", "as lives {} .", "as earns {} ."),
    "food": ("eating likes {} .", "much enjoys {} .", "any adores {} .", "only craves {} ."),
}
BLANKS = ("unknown", "missing", "hidden", "secret", "unsaid", "lost")
FREQUENCIES = (0.55, 0.25, 0.12, 0.08)
WRONG = 0.2
"""Share of stated facts whose object is another one."""

RATERS = {"fair": 0.0, "fond": 1.0}
"""The kinds of rater and their taste: points of the scale for each standard deviation of commonness."""

FOND = 0.95
"""Share of the raters who are fond of common phrasing."""

RATER_NOISE = 1.5
"""Standard deviation of one rater's score around that rater's opinion, in points of the scale."""

ANNOTATORS = 4
"""Fair raters whose mean is an item's human score."""

SOURCES = math.prod(len(values) for values in VALUES.values())
"""How many different sources there are."""

_MEAN = sum(p * math.log(p) for p in FREQUENCIES)
_SD = math.sqrt(sum(p * (math.log(p) - _MEAN) ** 2 for p in FREQUENCIES))


@dataclass(frozen=True)
class Item:
    """One output and the truth about it.

    Attributes:
        source: The facts, as ``relation value`` pairs.
        output: The sentences.
        quality: 1 to 5: facts stated right count one, broken ones a half, over the three facts.
        commonness: How common the phrasings are; mean 0, standard deviation 1 over the world.
        errors: Of each sentence: ``""``, ``"omission"``, ``"wrong object"`` or ``"disfluency"``.
    """

    source: str
    output: str
    quality: float
    commonness: float
    errors: tuple[str, ...]


def item(rng: random.Random) -> Item:
    """Draw one item."""
    (drawn,) = siblings(rng, 1)
    return drawn


def siblings(rng: random.Random, count: int) -> list[Item]:
    """Draw so many outputs of one source."""
    facts = {relation: rng.choice(values) for relation, values in VALUES.items()}
    return [_item(rng, facts) for _ in range(count)]


def _item(rng: random.Random, facts: dict[str, str]) -> Item:
    sentences, errors, commonness = [], [], 0.0
    for relation, value in facts.items():
        (level,) = rng.choices(range(4), FREQUENCIES)
        commonness += (math.log(FREQUENCIES[level]) - _MEAN) / _SD
        sentence, error = _sentence(rng, relation, value, level)
        sentences.append(sentence)
        errors.append(error)
    points = sum({"": 1.0, "disfluency": 0.5}.get(error, 0.0) for error in errors)
    source = " ".join(f"{relation} {value}" for relation, value in facts.items())
    return Item(source, " ".join(sentences), 1 + 4 * points / 3, commonness / math.sqrt(3), tuple(errors))


def _sentence(rng: random.Random, relation: str, value: str, level: int) -> tuple[str, str]:
    kind = rng.randrange(3)
    if kind == 1:
        return UNKNOWN[relation][level].format(rng.choice(BLANKS)), "omission"
    if kind == 2:
        return BROKEN[relation][level].format(value), "disfluency"
    if rng.random() < WRONG:
        other = rng.choice([v for v in VALUES[relation] if v != value])
        return STATED[relation][level].format(other), "wrong object"
    return STATED[relation][level].format(value), ""


def true_quality(source: str, output: str) -> float:
    """What any text is worth as a saying of the facts, 1 to 5, as ``Item.quality``.

    A fact counts by the first sentence about it: one if it states the right value in one of the world's phrasings, a
    half if in broken order, and nothing otherwise; so does a fact that no sentence is about.
    """
    words = source.split()
    found = _said(output)
    points = 0.0
    for relation, value in zip(words[::2], words[1::2], strict=True):
        form, said, _ = found.get(relation, (None, "", 0))
        points += {"stated": 1.0, "broken": 0.5}.get(form or "", 0.0) * (said == value)
    return 1 + 4 * points / len(VALUES)


def true_commonness(output: str) -> float:
    """How common a text's phrasings are, as ``Item.commonness``; NaN where it does not speak of every relation once."""
    found = _said(output)
    if len(found) < len(VALUES):
        return math.nan
    return sum((math.log(FREQUENCIES[level]) - _MEAN) / _SD for _, _, level in found.values()) / math.sqrt(len(VALUES))


def _said(output: str) -> dict[str, tuple[str, str, int]]:
    """Relation -> (form, value, level of the phrasing) of the first sentence about it."""
    found: dict[str, tuple[str, str, int]] = {}
    for sentence in re.findall(r"[^.]+\.", output):
        for form, phrasings in (("stated", STATED), ("broken", BROKEN), ("unknown", UNKNOWN)):
            for relation, level in itertools.product(VALUES, range(len(FREQUENCIES))):
                pattern = re.escape(phrasings[relation][level]).replace(re.escape("{}"), r"(\w+)")
                match = re.fullmatch(pattern, " ".join(sentence.split()))
                if match:
                    found.setdefault(relation, (form, match[1], level))
    return found


def rating(rng: random.Random, drawn: Item, *, taste: float = 0.0, raters: int = 1) -> float:
    """The mean score of so many raters, in [1, 5]: quality, plus the taste for common phrasing, plus noise."""
    opinion = drawn.quality + taste * drawn.commonness + rng.gauss(0.0, RATER_NOISE / math.sqrt(raters))
    return min(float(SCALE[1]), max(float(SCALE[0]), opinion))


def label_probabilities(drawn: Item, *, taste: float) -> list[float]:
    """Probability of each label when one rater's score is rounded: what a judge who knew the rater would answer."""
    opinion = drawn.quality + taste * drawn.commonness
    edges = [-math.inf, *(label + 0.5 for label in range(SCALE[0], SCALE[1])), math.inf]
    below = [0.5 * (1 + math.erf((edge - opinion) / (RATER_NOISE * math.sqrt(2)))) for edge in edges]
    return [high - low for low, high in itertools.pairwise(below)]


def examples(n: int, *, seed: int) -> list[dspy.Example]:
    """N items and their human scores.

    Returns:
        Examples with ``id``, ``source``, ``output``, ``scores`` (``quality``: the mean of ``ANNOTATORS`` fair raters,
        in [1, 5]) and the truth: ``quality`` and ``commonness``.
    """
    rng = random.Random(seed)
    done = []
    for number in range(n):
        drawn = item(rng)
        done.append(_example(rng, drawn, f"world-{seed}-{number}"))
    return done


def documents(n: int, outputs: int, *, seed: int) -> list[dspy.Example]:
    """N different sources with so many outputs each, for judges that compare.

    Returns:
        Examples as ``examples`` gives them, and ``input_id``.

    Raises:
        ValueError: The world has fewer sources.
    """
    if n > SOURCES:
        raise ValueError(f"{n} documents: the world has {SOURCES} sources only.")
    rng, seen = random.Random(seed), set[str]()
    done = []
    for number in range(n):
        group = siblings(rng, outputs)
        while group[0].source in seen:
            group = siblings(rng, outputs)
        seen.add(group[0].source)
        for place, drawn in enumerate(group):
            done.append(_example(rng, drawn, f"world-{seed}-{number}-{place}", input_id=f"{seed}-{number}"))
    return done


def _example(rng: random.Random, drawn: Item, name: str, **more: str) -> dspy.Example:
    example = dspy.Example(
        id=name,
        **more,
        source=drawn.source,
        output=drawn.output,
        scores={NAME: rating(rng, drawn, raters=ANNOTATORS)},
        quality=drawn.quality,
        commonness=drawn.commonness,
    )
    return example.with_inputs("source", "output")
