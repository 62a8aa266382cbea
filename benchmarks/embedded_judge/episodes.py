"""Training episodes: judge prompts and texts in the package's own wording, with the ideal judge's answers."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.embedded_judge.english import reading
from benchmarks.embedded_judge.ideal import PRIOR, RATERS, answer, evidence, table
from benchmarks.embedded_judge.tokenizer import build, comparison_wordings, dialogue, naming, split
from evalbias.data import world
from evalbias.programs.criterion import SYNTHETIC
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.prompts import demonstration, likelihood_messages

SCORING, COMPARING = PointwiseJudge(SYNTHETIC), PairwiseJudge(SYNTHETIC, instruction_place="first")
CONTEXT = 1024
KINDS = ("", "omission", "wrong object", "disfluency")
VALUES = tuple(value for values in world.VALUES.values() for value in values)
CERTAIN = 30.0
"""Size of the log-odds where the prompt names the rater."""

CANDIDATES = 6
"""Number of items from which a pointed demonstration is picked."""


@dataclass(frozen=True)
class Sentences:
    """Sentences of the m texts in a prompt; each text has three."""

    stops: list[int]  # (3m,) positions of the full stops
    kinds: list[int]  # (3m,) index of each sentence's error in ``KINDS``
    values: list[int]  # (v,) positions of the stated values
    # (v, 2) for each stated value: index of the source's value in ``VALUES``, and whether they are the same
    stated: list[tuple[int, bool]]


@dataclass(frozen=True)
class Episode:
    """A judge prompt of n items, including the score of the last."""

    ids: list[int]  # tokens of the prompt
    sentences: Sentences  # sentences of the n texts
    scores: list[int]  # (n,) positions of the score tokens
    answers: list[list[float]]  # (n, c) the ideal judge's probabilities of the labels
    # (n, 4) for each item: quality, commonness, the log-odds of a fond rater that its label adds, and those before it
    facts: list[list[float]]


@dataclass(frozen=True)
class Comparisons:
    """A prompt of n comparisons of two texts."""

    ids: list[int]  # tokens of the prompt
    sentences: Sentences  # sentences of the 2n texts
    scores: list[int]  # (n,) positions of the answers
    answers: list[list[float]]  # (n, 2) the ideal judge's probabilities of the positions
    # (n, 3) for each comparison: the qualities of both texts, and the wording's push towards the first position in nats
    facts: list[list[float]]


class Episodes:
    """Generator of episodes, with one seed for all draws."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tokenizer = build(CONTEXT)
        self.ids: dict[str, int] = self.tokenizer.get_vocab()
        self._read = reading()
        self._values = {self.ids[word] for value in VALUES for word in split(f" {value}", self._read)}
        self._wordings = list(comparison_wordings().items())
        self.choices = [self.ids[" A"], self.ids[" B"]]
        self.labels = [self.ids[f" {label}"] for label in SYNTHETIC.labels]

    def encode(self, text: str) -> list[int]:
        """Encode like the shipped tokenizer, but faster; ``evaluate`` checks that both agree."""
        return [self.ids["<s>"], *(self.ids[word] for word in split(text, self._read))]

    def judging(self, items: int, *, named: float, pointed: float) -> Episode:
        """Draw an episode of so many rated items.

        ``named`` is the probability that the instruction names the rater, ``pointed`` that the items are chosen because
        they clearly contradict a fond rater.
        """
        rater = self.rng.choice(tuple(RATERS))
        instructions, odds = SCORING.predict.signature.instructions, PRIOR
        if self.rng.random() < named:
            instructions += naming(rater)
            odds = CERTAIN if rater == "fond" else -CERTAIN
        raters = self.rng.choice((1, world.ANNOTATORS))
        drawn = self._pointed if self.rng.random() < pointed else self._rated
        rated = [drawn(RATERS[rater], raters) for _ in range(items)]
        *before, (last, answered) = rated
        turns = [turn for item, label in before for turn in demonstration(SCORING.text(vars(item)), str(label))]
        messages = SCORING.prompt(instructions, turns, vars(last))
        ids = self.encode(dialogue([*messages, {"role": "assistant", "content": str(answered)}]))
        answers, facts = [], []
        for item, label in rated:
            rows = table(item)
            answers.append(answer(rows, odds))
            facts.append([item.quality, item.commonness, evidence(rows, label), odds])
            odds += facts[-1][2]
        scores = self._after(ids, SYNTHETIC.title.capitalize(), ":")
        return Episode(ids, self._sentences(ids, [item for item, _ in rated]), scores, answers, facts)

    def comparing(self, count: int) -> Comparisons:
        """Draw a prompt of comparisons under a random wording; the labels of its demonstrations are human ones."""
        wording, push = self.rng.choice(self._wordings)
        drawn = [world.siblings(self.rng, 2) for _ in range(count)]
        differences = [world.GAIN * (a.quality - b.quality) for a, b in drawn]
        labels = ["A" if self.rng.random() < _sigmoid(d) else "B" for d in differences]
        demos = [(pair[0].source, [t.output for t in pair], label) for pair, label in zip(drawn, labels, strict=True)]
        source, candidates, last = demos.pop()
        named = [({"source": demo, "candidates": texts}, label) for demo, texts, label in demos]
        before = [turn for inputs, label in named for turn in demonstration(COMPARING.text(inputs), label)]
        messages = COMPARING.prompt(wording, before, {"source": source, "candidates": candidates})
        ids = self.encode(dialogue([*messages, {"role": "assistant", "content": last}]))
        scores = self._after(ids, f" {SYNTHETIC.title}", ":", before="Better")
        answers = [[_sigmoid(d + push), _sigmoid(-d - push)] for d in differences]
        facts = [[a.quality, b.quality, push] for a, b in drawn]
        return Comparisons(ids, self._sentences(ids, [item for pair in drawn for item in pair]), scores, answers, facts)

    def _after(self, ids: list[int], word: str, mark: str, before: str | None = None) -> list[int]:
        """Return the positions of the tokens that follow a word and a mark; ``before`` must precede the word."""
        pattern = [self.ids[w] for w in ((before,) if before else ()) + (word, mark)]
        size = len(pattern)
        return [p + size for p in range(len(ids) - size) if ids[p : p + size] == pattern]

    def _sentences(self, ids: list[int], items: Sequence[world.Item]) -> Sentences:
        kinds = [KINDS.index(error) for item in items for error in item.errors]
        stop = self.ids[" ."]
        stops = [p for p, token in enumerate(ids) if token == stop]
        values = [p for end in stops for p in range(end - 3, end) if ids[p] in self._values]
        stated = [
            (VALUES.index(value), error != "wrong object")
            for item in items
            for value, error in zip(world.facts(item.source).values(), item.errors, strict=True)
            if error != "omission"
        ]
        return Sentences(stops, kinds, values, stated)

    def generating(self) -> list[int]:
        """Draw one text under the likelihood prompt, with another item's source: likelihood is about the phrasing."""
        drawn, other = world.item(self.rng), world.item(self.rng)
        messages = [*likelihood_messages(SYNTHETIC, other.source), {"role": "assistant", "content": drawn.output}]
        return [*self.encode(dialogue(messages)), self.ids["</s>"]]

    def _rated(self, taste: float, raters: int) -> tuple[world.Item, int]:
        item = world.item(self.rng)
        return item, math.floor(world.rating(self.rng, item, taste=taste, raters=raters) + 0.5)

    def _pointed(self, taste: float, raters: int) -> tuple[world.Item, int]:
        candidates = [self._rated(taste, raters) for _ in range(CANDIDATES)]
        return max(candidates, key=lambda c: abs(2 * c[0].commonness + c[0].quality - c[1]))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))
