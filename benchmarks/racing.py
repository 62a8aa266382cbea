"""Measure what racing saves in an instruction search, and whether it finds the same winner.

usage: python -m benchmarks.racing [--searches N] [--pairs N ...] [--write]

A judge answers every pair of a pool once under each of the grammar's wordings. It is a formula: the synthetic world's
quality, the leaning that it plants in every wording, and noise. Every search then runs twice on these answers, with
racing and without; its seed draws the pairs, the wordings and the order of the race.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import dspy
import numpy as np
from scipy.special import expit

from benchmarks.embedded_judge.tokenizer import comparison_wordings
from benchmarks.harness import argument_parser, finish, markdown
from evalbias import data
from evalbias.data import world
from evalbias.data.items import input_key
from evalbias.evaluation.judged import Judged
from evalbias.lm.types import MeasuringLM
from evalbias.measures import estimate_share
from evalbias.measures.arrays import FloatArray
from evalbias.optimizers import ZEPO
from evalbias.optimizers.base import rounds
from evalbias.optimizers.proposers import GrammarParaphraser
from evalbias.optimizers.zepo import DROP_LEVEL, FEWEST, ZEPOReport
from evalbias.programs import SYNTHETIC, PairwiseJudge
from evalbias.programs.prompts import ENGLISH, LANGUAGES

DOCUMENTS, OUTPUTS, POOL_SEED = 20, 5, 3_200_001
NOISE = 0.5  # standard deviation, in nats, of the formula's answers to a pair from wording to wording

Ask = Callable[[str], FloatArray]
"""Wording -> (n, 2) probabilities of both positions for every pair of the pool."""


def _texts(pair: dspy.Example) -> tuple[str, ...]:
    return (pair.source, *pair.candidates)


class NoModel(MeasuringLM):
    """Stands for the model that gave the answers, and is never asked."""

    model = "answered"


def formula(pool: Sequence[dspy.Example]) -> Ask:
    """Return a judge of the synthetic world that leans as its wordings were made to."""
    quality = np.array([[world.true_quality(pair.source, text) for text in pair.candidates] for pair in pool])
    leanings = comparison_wordings()
    places = {text: place for place, text in enumerate(leanings)}

    def ask(text: str) -> FloatArray:
        text = text.removesuffix(f"\n{LANGUAGES[ENGLISH].answers}")
        noise = np.random.default_rng([POOL_SEED, places[text]]).normal(0, NOISE, len(pool))
        odds = world.GAIN * (quality[:, 0] - quality[:, 1]) + leanings[text] + noise
        return np.stack([expit(odds), expit(-odds)], axis=1)

    return ask


@dataclass(frozen=True)
class Compared:
    """One search, without racing and with it."""

    same: bool  # whether both chose the same wording
    lost: float  # objective of the exact search's choice less that of racing's
    exact: int  # judgments of the exact search
    raced: int  # judgments of the search with racing


def compared(ask: Ask, pool: Sequence[dspy.Example], pairs: int, seed: int) -> Compared:
    """Search twice on the same pairs."""
    drawn, judge = random.Random(seed).sample(list(pool), pairs), PairwiseJudge(SYNTHETIC)
    place_of = {_texts(pair): place for place, pair in enumerate(pool)}

    def looked_up(_: Any, texts: Sequence[str], examples: Sequence[dspy.Example], __: Any) -> list[Judged]:
        places = [place_of[_texts(pair)] for pair in examples]
        ids, inputs = tuple(map(str, places)), [input_key(pair) for pair in examples]
        return [Judged(ids, SYNTHETIC.name, ask(text)[places, None], inputs=inputs) for text in texts]

    found = list[ZEPOReport]()
    for racing in (False, True):
        search = ZEPO(GrammarParaphraser(world.PARTS), select=False, racing=racing, seed=seed)
        with mock.patch("evalbias.optimizers.zepo.answers_under", looked_up):  # asked once for each wording
            found.append(search.compile(judge, trainset=drawn, lm=NoModel()).report)
    exact, raced = found
    values = [search.tried[search.best].objective for search in found]
    return Compared(exact.chosen == raced.chosen, values[0] - values[1], exact.judgments, raced.judgments)


def row(pairs: int, searches: Sequence[Compared]) -> list[str]:
    """Return one row of the table."""
    same = np.array([s.same for s in searches], dtype=np.float64)
    interval = estimate_share(same)
    asked, raced = sum(s.exact for s in searches), sum(s.raced for s in searches)
    lost = [s.lost for s in searches]
    return [
        str(pairs),
        ", ".join(map(str, rounds(pairs, FEWEST))),
        f"{same.mean():.0%} [{interval.low:.0%}, {interval.high:.0%}]",
        f"{np.mean(lost):.4f}, {max(lost):.3f}",
        f"{asked / len(searches):.0f}",
        f"{raced / len(searches):.0f}",
        f"{1 - raced / asked:.0%}",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__, out="zepo-racing")
    parser.add_argument("--searches", type=int, default=50)
    parser.add_argument("--pairs", type=int, nargs="+", default=[100, 200, 400])
    args = parser.parse_args(arguments)
    pool = data.pairs(world.documents(DOCUMENTS, OUTPUTS, seed=POOL_SEED), seed=0)
    ask = functools.cache(formula(pool))
    rows = [row(n, [compared(ask, pool, n, seed) for seed in range(args.searches)]) for n in args.pairs]
    headings = ["pairs", "rounds up to", "same winner", "fairness lost", "judgments, exact", "with racing", "saved"]
    about = (
        f"Judge: the synthetic world's formula, with noise of {NOISE} nats. {args.searches} searches of 5 epochs of 5 "
        f"wordings of the grammar, seeds 0 to {args.searches - 1}, each without racing and with it, on pairs drawn "
        f"from {len(pool)}; an epoch's best wording may be dropped with probability {DROP_LEVEL:g}. Fairness lost: the "
        "two winners' mean and largest difference."
    )
    text = f"## Racing in the fairness search: a formula\n\n{about}\n\n{markdown(headings, rows)}"
    finish(args, "racing", text, section="a formula")


if __name__ == "__main__":
    main()
