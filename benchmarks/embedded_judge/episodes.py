"""Training episodes: judge prompts and texts in the package's own wording, with what the ideal judge would answer."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass

from benchmarks.embedded_judge.ideal import PRIOR, answer, evidence, table
from benchmarks.embedded_judge.tokenizer import PATTERN, build, naming
from evalbias.data import world
from evalbias.lm.text import dialogue
from evalbias.programs.criteria import SYNTHETIC
from evalbias.programs.prompt import judge_messages, likelihood_messages

CONTEXT = 1024
KINDS = ("", "omission", "wrong object", "disfluency")
VALUES = tuple(value for values in world.VALUES.values() for value in values)
CERTAIN = 30.0
"""Log-odds of a rater who is named."""

CANDIDATES = 6
"""A pointed demonstration is the plainest of so many."""


@dataclass(frozen=True)
class Episode:
    """A judge prompt of n items, the last of them rated too.

    Attributes:
        ids: Its tokens.
        scores: (n,) positions of the score tokens.
        answers: (n, c) what the ideal judge answers there.
        stops: (3n,) positions of the full stops that end the sentences.
        kinds: (3n,) index in ``KINDS`` of each sentence's error.
        values: (v,) positions in the sentences of the values they state.
        stated: (v, 2) of each: index in ``VALUES`` of the source's value, and whether the sentence states that one.
        facts: (n, 4) of each item: quality, commonness, what its label adds to the log-odds of a fond rater, and the
            log-odds before it.
    """

    ids: list[int]
    scores: list[int]
    answers: list[list[float]]
    stops: list[int]
    kinds: list[int]
    values: list[int]
    stated: list[tuple[int, bool]]
    facts: list[list[float]]


class Episodes:
    """Draws episodes from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tokenizer = build(CONTEXT)
        self.ids: dict[str, int] = self.tokenizer.get_vocab()
        self._values = {self.ids[f" {value}"] for value in VALUES}
        self.labels = [self.ids[f" {label}"] for label in SYNTHETIC.labels]

    def encode(self, text: str) -> list[int]:
        """What the shipped tokenizer gives, only faster; ``evaluate`` checks that they are equal."""
        return [self.ids["<s>"], *(self.ids[word] for word in re.findall(PATTERN, text))]

    def judging(self, items: int, *, named: float, pointed: float) -> Episode:
        """An episode of so many rated items.

        Args:
            items: How many.
            named: Probability that the instruction names the rater.
            pointed: Probability that the items are chosen for contradicting a fond rater plainly.
        """
        rater = self.rng.choice(tuple(world.RATERS))
        instructions, odds = SYNTHETIC.instructions, PRIOR
        if self.rng.random() < named:
            instructions += naming(rater)
            odds = CERTAIN if rater == "fond" else -CERTAIN
        raters = self.rng.choice((1, world.ANNOTATORS))
        drawn = self._pointed if self.rng.random() < pointed else self._rated
        rated = [drawn(world.RATERS[rater], raters) for _ in range(items)]
        shown = [(item.source, item.output, str(label)) for item, label in rated]
        last = shown.pop()
        messages = judge_messages(SYNTHETIC, last[0], last[1], demos=shown, instructions=instructions)
        ids = self.encode(dialogue([*messages, {"role": "assistant", "content": last[2]}]))
        answers, facts = [], []
        for item, label in rated:
            known = table(item)
            answers.append(answer(known, odds))
            facts.append([item.quality, item.commonness, evidence(known, label), odds])
            odds += facts[-1][2]
        kinds = [KINDS.index(error) for item, _ in rated for error in item.errors]
        colon, title, stop = self.ids[":"], self.ids[SYNTHETIC.title.capitalize()], self.ids[" ."]
        scores = [p + 2 for p in range(len(ids) - 2) if ids[p] == title and ids[p + 1] == colon]
        stops = [p for p, token in enumerate(ids) if token == stop]
        values = [p for end in stops for p in range(end - 3, end) if ids[p] in self._values]
        stated = [
            (VALUES.index(value), error != "wrong object")
            for item, _ in rated
            for value, error in zip(item.source.split()[1::2], item.errors, strict=True)
            if error != "omission"
        ]
        return Episode(ids, scores, answers, stops, kinds, values, stated, facts)

    def generating(self) -> list[int]:
        """One text under the likelihood prompt. Its source is another item's: likelihood is about the phrasing."""
        drawn, other = world.item(self.rng), world.item(self.rng)
        messages = [*likelihood_messages(SYNTHETIC, other.source), {"role": "assistant", "content": drawn.output}]
        return [*self.encode(dialogue(messages)), self.ids["</s>"]]

    def _rated(self, taste: float, raters: int) -> tuple[world.Item, int]:
        item = world.item(self.rng)
        return item, math.floor(world.rating(self.rng, item, taste=taste, raters=raters) + 0.5)

    def _pointed(self, taste: float, raters: int) -> tuple[world.Item, int]:
        candidates = [self._rated(taste, raters) for _ in range(CANDIDATES)]
        return max(candidates, key=lambda c: abs(2 * c[0].commonness + c[0].quality - c[1]))
