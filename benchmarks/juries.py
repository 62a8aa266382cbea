"""What are juries of judges worth? Panels of known independence, and recorded panels of real judges.

usage: python -m benchmarks.juries [--sets 2000] [--parts PART ...] [--seed 0] [--write]

Simulated judges follow quality at correlations of .4 to .8, and share the part ``rho`` of the variance of their errors;
outputs of one input share a part of quality and errors. Real panels are those of ``EVALBIAS_DATA/judges``.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import argument_parser, finish, lines, markdown, normal, percents, simulated
from evalbias.evaluation.judged import HUMAN_SCORES, RATINGS, Judged
from evalbias.evaluation.juries import MEAN, JuryReport, jury_worth, panel_of
from evalbias.evaluation.words import p_text
from evalbias.measures.arrays import SLACK, FloatArray
from evalbias.measures.families import holm
from evalbias.measures.juries import Panel, inverse_error_weights, validity
from evalbias.measures.resample import Interval
from evalbias.optimizers.juries import LearnedJury, learn_jury
from evalbias.options import JuryOptions

DEAR = 30.0  # cost of an answer of GPT-4, where another costs 1
PANELS = [
    (40, 3, 0.3, 1),
    (120, 3, 0.5, 1),
    (200, 5, 0.0, 1),
    (200, 5, 0.3, 4),
    (600, 9, 0.2, 6),
    (1000, 5, 0.0, 1),
    (1000, 16, 0.3, 10),
]
"""Items, judges, correlation of errors, and outputs of an input."""
BUILT = [(120, 5, 0.3, 1), (400, 5, 0.3, 1), (400, 5, 0.3, 8), (400, 5, 0.0, 1), (400, 5, 0.0, 8), (1000, 5, 0.3, 4)]
EQUAL = (0.6, 0.6)
PROMISED = [
    (60, 9, 0.8, 1, EQUAL),
    (150, 5, 0.3, 1, EQUAL),
    (150, 5, 0.9, 1, EQUAL),
    (160, 5, 0.3, 4, EQUAL),
    (300, 5, 0.5, 1, (0.5, 0.7)),
    (150, 5, 0.3, 1, (0.4, 0.8)),
]
SUMMEVAL = {
    "gpt-4-0314": "GPT-4",
    "gpt-3.5-turbo-0301": "GPT-3.5",
    "gpt-3.5-turbo-0301, multiple choice": "GPT-3.5, multiple choice",
    "llama-2-13b-chat": "Llama-2 13B",
    "llama-2-7b-chat": "Llama-2 7B",
}
COBBLER = """alpaca baize gpt-3.5-turbo cohere falcon gpt-4 text-davinci-003 koala llama llamav2 mpt openassist
redpajama vicuna wizardlm"""  # without dolly, which gives one score to the outputs of all inputs but one
TRIVIAQA = "GPT-4 Llama-70B Llama3-8B Llama-13B Llama-7B Mistral-7B Gemma-2B EM Contains"
WROTE = {"GPT-4": "gpt-4t", "Mistral-7B": "mistral-7b-chat"}
WROTE |= {f"Llama-{size}": f"llama2-{size.lower()}-chat" for size in ("70B", "13B", "7B")}
"""Judge of TriviaQA -> its name as the writer of answers."""


def drawn(
    rng: np.random.Generator,
    n: int,
    judges: int,
    rho: float,
    *,
    raters: int = 2,
    outputs: int = 1,
    follow: tuple[float, float] = (0.4, 0.8),
) -> tuple[FloatArray, FloatArray, float]:
    """Draw scores (n, judges), which ``follow`` quality so well, and ratings (n, raters); also the number of votes."""
    quality, shared, own = (normal(rng, n, outputs, *shape) for shape in ((), (), (judges,)))
    validities = np.linspace(*follow, judges)[:, None]
    spreads = np.sqrt(1 - validities**2)
    scores = validities * quality + spreads * (np.sqrt(rho) * shared + np.sqrt(1 - rho) * own)
    left = (1 - rho) * (spreads**2).sum() + rho * spreads.sum() ** 2
    return scores.T, quality[:, None] + 0.9 * rng.normal(size=(n, raters)), judges * float((spreads**2).sum()) / left


def covered(n: int, judges: int, rho: float, outputs: int = 1, *, sets: int, seed: int) -> dict[str, dict[str, float]]:
    """Return what becomes of the number of votes, and of the best judge's correlation with quality, .8."""
    inputs = (np.arange(n) // outputs).tolist()

    def once(number: int) -> dict[str, tuple[Interval, float]]:
        scores, ratings, truth = drawn(np.random.default_rng([seed, number]), n, judges, rho, outputs=outputs)
        panel, best = Panel(scores, ratings, clusters=inputs), partial(validity, weights=np.eye(judges)[-1])
        return {"votes": (panel.votes(), truth), "validity": (panel.estimate(best), 0.8)}

    return simulated(once, sets)


def members_of(scores: FloatArray, ratings: FloatArray, outputs: int = 1) -> list[Judged]:
    """Return simulated judges of the same items, rated (n, r), each with its name."""
    ids, people = tuple(map(str, range(len(scores)))), {RATINGS: ratings, HUMAN_SCORES: ratings.mean(axis=1)}
    inputs = tuple(str(k // outputs) for k in range(len(scores)))
    named = ((f"judge {k}", column) for k, column in enumerate(scores.T))
    return [Judged(ids, "quality", column, people, inputs=inputs, judge=name) for name, column in named]


def kept(n: int, judges: int, rho: float, outputs: int = 1, *, sets: int, seed: int) -> dict[str, float]:
    """Return how often a jury is learned from n items, by how much it is better on new ones, and how often it is worse.

    It and the judge that agrees best with people on the n items are compared by their correlation with people on 20,000
    new items; worse is one that is lower. ``lost`` is what the fitted weights lack to the best ones there.
    """
    gains, losses, chosen = list[float](), list[float](), 0
    for number in range(sets):
        scores, ratings, _ = drawn(np.random.default_rng([seed, number]), n, judges, rho, outputs=outputs)
        best = int(np.argmax(np.corrcoef(scores.T, ratings.mean(axis=1))[-1, :-1]))
        rule = learn_jury(members_of(scores, ratings, outputs)).rule
        chosen += len(rule.members) > 1
        weights = inverse_error_weights(Panel(scores, ratings, clusters=(np.arange(n) // outputs).tolist()))
        scores, ratings, _ = drawn(np.random.default_rng([seed, number, 1]), 20_000, judges, rho, raters=8)
        ideal = inverse_error_weights(Panel(scores, ratings))
        columns = [rule(scores), scores[:, best], scores @ weights, scores @ ideal]
        jury_of, alone, fitted, most = np.corrcoef(columns, ratings.mean(axis=1))[-1, :-1]
        gains.append(float(jury_of - alone))
        losses.append(float(most - fitted))
    worse = float((np.array(gains) < -SLACK).mean())
    return {"chosen": chosen / sets, "gain": float(np.mean(gains)), "worse": worse, "lost": float(np.mean(losses))}


def promised(
    n: int, judges: int, rho: float, outputs: int, follow: tuple[float, float], *, sets: int, seed: int
) -> tuple[float, dict[str, float]]:
    """Return by how much what is chosen seems better on its items than it is on new ones, and what becomes of that.

    The second is the agreement with people that is promised on new items, less the true one.
    """
    new, people, _ = drawn(np.random.default_rng([seed, sets]), 50_000, judges, rho, follow=follow)
    seems = []

    def once(number: int) -> dict[str, tuple[Interval, float]]:
        rng = np.random.default_rng([seed, number])
        scores, ratings, _ = drawn(rng, n, judges, rho, outputs=outputs, follow=follow)
        found = learn_jury(members_of(scores, ratings, outputs))
        true = float(np.corrcoef(found.rule(new), people.mean(axis=1))[0, 1])
        seems.append(found.agreement[1] - true)
        e = found.expected
        return {"expected": (replace(e, value=e.value - true, low=e.low - true, high=e.high - true), 0.0)}

    told = simulated(once, sets)["expected"]
    return float(np.mean(seems)), told


def both(rows: list[dict[str, Any]], **options: Any) -> tuple[JuryReport, LearnedJury]:
    """Return what a recorded panel is worth, and the jury that is learned from it."""
    judged = panel_of(JuryOptions(rows, **options))
    how: dict[str, Any] = {name: options.get(name) for name in ("costs", "reliability")}
    return jury_worth(judged, **how), learn_jury(judged, **how)


def real() -> Iterator[tuple[str, JuryReport, LearnedJury]]:
    """Yield the recorded panels, each with its name."""
    summaries = lines("judges/summeval_scores.jsonl.gz")
    for criterion in summaries[0]["ratings"]:
        rows = [
            {name: summary[name] for name in ("id", "input_id", "output", "system")}
            | {"ratings": summary["ratings"][criterion]}
            | {ours: summary["judges"][theirs][criterion] for theirs, ours in SUMMEVAL.items()}
            for summary in summaries
        ]
        yield f"SummEval, {criterion}", *both(rows, judges=[*SUMMEVAL.values()], costs={"GPT-4": DEAR})
    pairs: dict[str, dict[str, Any]] = {pair["id"]: pair for pair in lines("judges/judgebench.jsonl.gz")}
    judges = list[str]()
    for verdict in lines("judges/judgebench_verdicts.jsonl.gz"):
        if verdict["id"] in pairs and "haiku" not in verdict["judge"]:  # who judged other pairs
            judge = verdict["judge"].rpartition("_")[2]
            pairs[verdict["id"]] |= {judge: verdict["winner"], f"{judge}, swapped": verdict["winner_swapped"]}
            judges += [] if judge in judges else [judge]
    rows = [pair for pair in pairs.values() if judges[0] in pair]
    yield "JudgeBench", *both(rows, judges=judges, swapped_field="{judge}, swapped", reliability=1.0)
    writers = ["gpt-4", "claude-1", "gpt-3.5", "bard", "vicuna-13b"]
    yield "PRD", *both(lines("judges/prd_verdicts.jsonl.gz"), judges=writers, swapped_field="{judge}/swapped")
    yield "CoBBLEr", *both(lines("judges/cobbler_scores.jsonl.gz"), judges=COBBLER.split())
    writers_of = {name: judge for judge, name in WROTE.items()}
    answers = [
        {**answer, "score": answer["human"], "system": writers_of.get(answer["system"], answer["system"])}
        for answer in lines("judges/triviaqa_verdicts.jsonl.gz")
    ]
    yield "TriviaQA", *both(answers, judges=TRIVIAQA.split(), reliability=1.0, costs={"GPT-4": DEAR})


def row_of(name: str, found: JuryReport) -> Sequence[object]:
    """Return the row of a real panel."""
    votes = found.votes
    return (
        name,
        len(found.judges),
        votes.n,
        f"{votes.value:.1f} ({votes.low:.1f} to {votes.high:.1f})",
        f"{found.errors.correlation.value:+.2f} / {found.errors.seeming:+.2f}",
        f"{found.best} {found.validities[found.best].value:+.2f}",
        f"{found.validities[MEAN].value:+.2f}",
        f"{found.gain.value:+.2f} ({found.gain.low:+.2f} to {found.gain.high:+.2f})",
    )


def votes_table(args: argparse.Namespace) -> str:
    """Return what becomes of the votes of simulated panels, and of the best judge's correlation with quality."""
    rows = []
    for n, judges, rho, outputs in PANELS:
        votes, best = covered(n, judges, rho, outputs, sets=args.sets, seed=args.seed).values()
        figures = f"{votes['truth']:.2f}", f"{votes['median']:.2f}", *percents(votes["covered"], best["covered"])
        rows.append((n, n // outputs, judges, f"{rho:g}", args.sets, *figures))
    names = ("items", "inputs", "judges", "rho", "sets", "votes", "median", "covered", "best judge's validity covered")
    return markdown(names, rows)


def built_table(args: argparse.Namespace) -> str:
    """Return how learned juries do on new items."""
    rows = []
    for n, judges, rho, outputs in BUILT:
        found = kept(n, judges, rho, outputs, sets=args.sets // 20, seed=args.seed)
        figures = *percents(found["chosen"], found["worse"]), f"{found['gain']:+.3f}", f"{found['lost']:.3f}"
        rows.append((n, n // outputs, judges, f"{rho:g}", args.sets // 20, *figures))
    names = ("items", "inputs", "judges", "rho", "sets", "a jury is chosen", "worse than the best", "mean gain")
    return markdown((*names, "weights lose"), rows)


def promised_table(args: argparse.Namespace) -> str:
    """Return what is promised of the chosen jury or judge on new items, less what is true."""
    rows = []
    for n, judges, rho, outputs, follow in PROMISED:
        seems, told = promised(n, judges, rho, outputs, follow, sets=args.sets // 10, seed=args.seed)
        figures = f"{seems:+.3f}", f"{told['mean']:+.3f}", *percents(told["covered"])
        rows.append((n, n // outputs, judges, " to ".join(map(str, follow)), f"{rho:g}", args.sets // 10, *figures))
    names = ("items", "inputs", "judges", "follow quality", "rho", "sets", "on its items", "promised", "covered")
    return markdown(names, rows)


@functools.cache
def recorded() -> list[tuple[str, JuryReport, LearnedJury]]:
    """Return the recorded panels."""
    return [*real()]


def worth_table(args: argparse.Namespace) -> str:
    """Return what recorded panels are worth."""
    names = ("panel", "judges", "items", "votes", "errors / seem", "best judge", "mean", "mean less best")
    return markdown(names, [row_of(name, found) for name, found, _ in recorded()])


def learned_table(args: argparse.Namespace) -> str:
    """Return the juries that are learned from them."""
    rows = []
    for name, _, found in recorded():
        first = ", ".join(found.judges[place] for place in found.rule.first)
        pearson, costs = (f"{before:.2f} -> {after:.2f}" for before, after in (found.agreement, found.costs))
        rows.append((name, found.chosen, pearson, first, costs if first else ""))
    return markdown(("panel", "jury", "Pearson, best alone -> jury", "asked first", "cost of an item"), rows)


def own_table(args: argparse.Namespace) -> str:
    """Return what each judge that wrote outputs gives its own more than the other judges give them."""
    rows = []
    for name, found, _ in recorded():
        adjusted = holm([e.p_value for e in found.own.values()])
        for (judge, e), p in zip(found.own.items(), adjusted, strict=True):
            if not math.isnan(p):
                rows.append((name, judge, f"{e.value:+.2f} ({e.low:+.2f} to {e.high:+.2f})", p_text(p)))
    return markdown(("panel", "judge", "own (95 %)", "p by Holm"), rows)


PARTS = {
    "panels": votes_table,
    "built": built_table,
    "promised": promised_table,
    "recorded": worth_table,
    "learned": learned_table,
    "own": own_table,
}
"""Section of the page -> what makes its table."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its tables."""
    parser = argument_parser(__doc__)
    parser.add_argument("--sets", type=int, default=2000, help="data sets of each simulated panel")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    args = parser.parse_args(argv)
    for part in args.parts:
        finish(args, "juries", PARTS[part](args), section=part)


if __name__ == "__main__":
    main()
