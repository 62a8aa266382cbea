"""Measure what racing saves in an instruction search, and whether it finds the same winner.

usage: python -m benchmarks.racing [--lm MODEL] [--searches N] [--pairs N ...] [--outputs N] [--out DIR]
           [--write]

A judge answers every pair of a pool once under each of the grammar's wordings. With a model this takes some minutes;
its answers are kept in ``--out``, where a stopped run goes on. Without ``--lm`` the judge is a formula: the synthetic
world's quality, the leaning that it plants in every wording, and noise. Every search then runs twice on these answers,
with racing and without; its seed draws the pairs, the wordings and the order of the race.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import dspy
import numpy as np
from scipy.special import expit

from benchmarks.embedded_judge.tokenizer import comparison_wordings
from benchmarks.harness import argument_parser, finish, judge_of, keeping_answers, markdown
from evalbias import data
from evalbias.cli.models import open_lm
from evalbias.data import world
from evalbias.evaluation.answers import instruction_place_for
from evalbias.lm.cache import model_identity
from evalbias.lm.types import MeasuringLM
from evalbias.measures import estimate_share
from evalbias.measures.arrays import FloatArray
from evalbias.optimizers import ZEPO
from evalbias.optimizers.objectives import probabilities
from evalbias.optimizers.proposers import GrammarParaphraser
from evalbias.optimizers.zepo import DROP_LEVEL, ZEPOReport, race_rounds
from evalbias.programs import SYNTHETIC, PairwiseJudge
from evalbias.programs.prompts import ENGLISH, LANGUAGES

DOCUMENTS = 20
"""Documents of the pool."""
POOL_SEED = 3_200_001
NOISE = 0.5
"""Standard deviation, in nats, of the formula's answers to a pair from wording to wording."""

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
    seconds: float  # processor time of the search with racing, without the judge


def compared(ask: Ask, pool: Sequence[dspy.Example], pairs: int, seed: int) -> Compared:
    """Search twice on the same pairs."""
    drawn, judge = random.Random(seed).sample(list(pool), pairs), PairwiseJudge(SYNTHETIC)
    known = {_texts(pair): place for place, pair in enumerate(pool)}

    def looked_up(_: Any, texts: Sequence[str], examples: Sequence[dspy.Example], *__: Any, **___: Any) -> FloatArray:
        places = [known[_texts(pair)] for pair in examples]
        return np.stack([ask(text)[places] for text in texts])

    found, seconds = list[ZEPOReport](), 0.0
    for racing in (False, True):
        started = time.process_time()
        search = ZEPO(GrammarParaphraser(world.PARTS), select=False, racing=racing, seed=seed)
        with mock.patch("evalbias.optimizers.zepo.probabilities", looked_up):  # asked once for each wording
            found.append(search.compile(judge, trainset=drawn, lm=NoModel()).report)
        seconds = time.process_time() - started
    exact, raced = found
    values = [one.tried[one.best].objective for one in found]
    return Compared(exact.chosen == raced.chosen, values[0] - values[1], exact.judgments, raced.judgments, seconds)


def row(pairs: int, searches: Sequence[Compared]) -> list[str]:
    """Return one row of the table."""
    same = np.array([s.same for s in searches], dtype=np.float64)
    interval = estimate_share(same)
    asked, raced = sum(s.exact for s in searches), sum(s.raced for s in searches)
    lost = [s.lost for s in searches]
    return [
        str(pairs),
        ", ".join(map(str, race_rounds(pairs))),
        f"{same.mean():.0%} [{interval.low:.0%}, {interval.high:.0%}]",
        f"{np.mean(lost):.4f}, {max(lost):.3f}",
        f"{asked / len(searches):.0f}",
        f"{raced / len(searches):.0f}",
        f"{1 - raced / asked:.0%}",
        f"{np.median([s.seconds for s in searches]):.1f}",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__, out="zepo-racing")
    parser.add_argument("--lm", help="default: a formula")
    parser.add_argument("--searches", type=int, default=50)
    parser.add_argument("--pairs", type=int, nargs="+", default=[100, 200, 400])
    parser.add_argument("--outputs", type=int, default=5, help="outputs of each of the pool's 20 documents")
    args = parser.parse_args(arguments)
    pool = data.pairs(world.documents(DOCUMENTS, args.outputs, seed=POOL_SEED), seed=0)
    judge, title = PairwiseJudge(SYNTHETIC, instruction_place=instruction_place_for(args.lm)), "a formula"
    if args.lm is None:
        ask, made = formula(pool), f"the synthetic world's formula, with noise of {NOISE} nats"
    else:
        lm: Any = open_lm(args.lm)
        title, made, kept = args.lm, judge_of(model_identity(lm)), keeping_answers(lm, args.out / "answers.jsonl")
        ask = lambda text: probabilities(judge, [text], pool, kept)[0]  # noqa: E731
    ask = functools.cache(ask)
    rows = [row(n, [compared(ask, pool, n, seed) for seed in range(args.searches)]) for n in args.pairs]
    headings = ["pairs", "rounds up to", "same winner", "fairness lost", "judgments, exact", "with racing", "saved"]
    text = "\n\n".join(
        [
            f"## Racing in the fairness search: {title}",
            f"Judge: {made}. {args.searches} searches of 5 epochs of 5 wordings of the grammar, "
            f"seeds 0 to {args.searches - 1}, each without racing and with it, on pairs drawn from {len(pool)} of the "
            f"synthetic world; an epoch's best wording may be dropped with probability {DROP_LEVEL:g}. Fairness lost: "
            "mean and largest difference of the two winners. CPU s: of a search with racing, without the judge.",
            markdown([*headings, "CPU s"], rows),
        ]
    )
    finish(args, "racing", text, section=title)


if __name__ == "__main__":
    main()
