"""Does an audit tell a judge that likes long text from one that does not? Ours and seven peers on the same draws.

usage: python -m benchmarks.audit.length [--draws 100] [--tools NAME ...] [--out DIR] [--seed 0] [--write]

What each tool flags is saved in ``--out`` draw by draw and not asked again. The peers are installed into
``.servers/peers`` on first use. judge-audit-mcp and judgekit compute in Python and see a fifth of the draws at
least.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.audit.judges import likert
from benchmarks.audit.ours import findings
from benchmarks.audit.peers import VERSIONS, Flags, ask, kept
from benchmarks.harness import argument_parser, finish, markdown
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, RATINGS, Judged

ITEMS = 300
POINTS = 0.8
"""Points on the scale of 1 to 5 for one standard deviation of quality, and for one of a rating's error."""
BIAS = 0.2
"""Standard deviations of the score for one of log length, at equal quality."""
LENIENCY = {"scores": 1.5, "verdicts": 1.0}
"""Points that a lenient judge gives above the raters: half of its scores are 5, or it passes 81 of 100."""
JUDGES = {"unbiased": (0.0, False), "unbiased and lenient": (0.0, True), "biased": (BIAS, False)}
"""Judge -> weight of the log length, and whether it is lenient."""
CORRELATIONS = (0.3, 0.5)
"""Correlations of log length and quality."""


@dataclass(frozen=True)
class World:
    """The form of the judgments, and the number of raters.

    Attributes:
        kind: ``"scores"`` of 1 to 5, ``"pairs"`` compared in both orders, or ``"verdicts"`` of 0 or 1.
        raters: Number of raters, who score as the judge does, or score both outputs of a pair.
        judges: Names of the judges in it.
        tools: Tools that audit such a judge, in the order of the table.
    """

    kind: str
    raters: int
    judges: tuple[str, ...]
    tools: tuple[str, ...]


OURS = ("evalbias", "evalbias --only verbosity")
OF_SCORES = ("truescore", "judgekit", "judge-audit", "judge-audit-mcp", "metajudge")
WORLDS = {
    "scores, two raters": World("scores", 2, (*JUDGES,), (*OURS, *OF_SCORES)),
    "scores, one rater": World("scores", 1, ("unbiased", "biased"), (*OURS, *OF_SCORES)),
    "pairs, two raters": World("pairs", 2, ("unbiased", "biased"), (*OURS, "judgekit", "evalaudit")),
    "pass or fail, two raters": World(
        "verdicts", 2, (*JUDGES,), (*OURS, *(tool for tool in OF_SCORES if tool != "judgekit"), "judgekeeper")
    ),
}
SLOW, BLIND = ("judge-audit-mcp", "judgekit"), ("judgekeeper",)
"""Peers that see a fifth of the draws; peers without a check of length."""

TEXT = f"""\
## A bias of length, ours and seven peers

{ITEMS} items, whose log length correlates with quality at .3 (left of /) and .5 (right); raters whose scores of 1 to 5
correlate at .46. The unbiased judge is drawn as one more rater. The lenient one is as unbiased and gives more: half of
its scores are 5, or it passes 81 of 100. The biased one gives {BIAS} standard deviations of its score for one of log
length at equal quality (`benchmarks/audit/length.py`). Cells: the percentage of draws in which the tool flags the judge
for length, and in brackets for anything else. An unbiased judge should be flagged in about 5 at most."""


def latent(weight: float, correlation: float, quality: Any, length: Any, rng: Generator) -> Any:
    """Return scores of unit variance; without a weight, they are those of one more rater.

    Their correlation with quality is sqrt(.5) at equal length, as a rater's is.
    """
    on_quality = np.sqrt(0.5)
    rest = 1 - on_quality**2 - weight**2 - 2 * on_quality * weight * correlation
    return on_quality * quality + weight * length + np.sqrt(rest) * rng.normal(size=quality.shape)


def draw(world: World, judge: str, correlation: float, rng: Generator) -> tuple[Judged, dict[str, Any]]:
    """Draw items, people's ratings of them and the judge's answers: for ours, and as numbers for the peers."""
    (weight, lenient), pairwise = JUDGES[judge], world.kind == "pairs"
    shape = (ITEMS, 2) if pairwise else (ITEMS,)
    quality = rng.normal(size=shape)
    length = correlation * quality + np.sqrt(1 - correlation**2) * rng.normal(size=shape)
    seen = partial(latent, weight, correlation, quality, length, rng)
    people = [latent(0.0, correlation, quality, length, rng) for _ in range(world.raters)]
    scale = (0.0, 1.0) if world.kind == "verdicts" else (1.0, 5.0)
    ratings = np.stack([answered(world.kind, rater, 0.0) for rater in people], axis=1)  # (n, raters) or (n, raters, 2)
    characters = np.round(400 * np.exp(0.5 * length))
    ids = tuple(f"{i:04d}" for i in range(ITEMS))
    mean = ratings.mean(axis=1)
    numbers: dict[str, Any] = {
        "pairwise": pairwise,
        "ids": ids,
        "lengths": characters.astype(int).tolist(),
        "people": mean.tolist(),
        "ratings": ratings.tolist(),
        "scale": scale,
        "own": None,
        "writers": [None] * ITEMS,
    }
    covariates = {LENGTHS: characters}
    if pairwise:
        odds = np.stack([seen() @ [1, -1], seen() @ [-1, 1]], axis=1)  # (n, orders), for the output shown first
        wins = (odds > 0).astype(float)
        answers = np.stack([wins, 1 - wins], axis=2)
        judged = Judged(ids, "quality", answers, covariates | {RATINGS: ratings @ [1, -1]})
        return judged, {**numbers, "odds": odds.tolist(), "probabilities": False}
    scores = answered(world.kind, seen(), LENIENCY[world.kind] if lenient else 0.0)
    covariates |= {RATINGS: ratings, HUMAN_SCORES: mean}
    return Judged(ids, "quality", scores, covariates, scale=scale), {**numbers, "scores": scores.tolist()}


def answered(kind: str, seen: Any, leniency: float) -> Any:
    """Return the scores of 1 to 5, or the verdicts, of what was seen."""
    points = 3 + leniency + POINTS * np.sqrt(2) * seen
    return (points > 3).astype(float) if kind == "verdicts" else likert(points)


def flags_of(tool: str, world: str, judge: str, correlation: float, args: Any) -> Flags:
    """Return what a tool calls a problem, draw by draw."""
    place = [[*WORLDS].index(world), [*JUDGES].index(judge), round(10 * correlation)]

    def flags(missing: range) -> Iterable[set[str]]:
        rngs = (np.random.default_rng([args.seed, *place, index]) for index in missing)
        drawn = (draw(WORLDS[world], judge, correlation, rng) for rng in rngs)
        if tool not in OURS:
            return ask(tool, (numbers for _, numbers in drawn))
        only = None if tool == OURS[0] else "verbosity"
        return (
            {finding.bias for finding in findings(judged, seed=index, only=only) if finding.status == "biased"}
            for (judged, _), index in zip(drawn, missing, strict=True)
        )

    name = re.sub(r"[^a-z]+", "-", f"{tool} {world} {judge}")
    return kept(args.out / f"{name}-{correlation}-{args.seed}.jsonl", args.draws // (5 if tool in SLOW else 1), flags)


def cell(tool: str, flags: Sequence[Flags]) -> str:
    """Say in how many of 100 draws a tool flags the length, and anything else.

    Examples:
        >>> cell("ours", [[frozenset({"verbosity", "position"}), frozenset()], [frozenset()]])
        '50 / 0 (other: 50 / 0)'
    """
    if not all(flags):
        return "not run"
    length = "-" if tool in BLIND else shares([{"verbosity"} <= found for found in drawn] for drawn in flags)
    other = [[bool(found - {"verbosity"}) for found in drawn] for drawn in flags]
    return length + (f" (other: {shares(other)})" if any(map(any, other)) else "")


def shares(columns: Iterable[Sequence[bool]]) -> str:
    """Return percentages beside each other."""
    return " / ".join(f"{100 * sum(column) / len(column):.0f}" for column in columns)


def table(name: str, found: Mapping[tuple[str, str, str], Sequence[Flags]]) -> str:
    """Return the table of a world: a row a tool, a column a judge; by (world, tool, judge), flags by correlation."""
    world = WORLDS[name]
    rows = [
        [
            f"{tool} {VERSIONS[tool]}" if tool in VERSIONS else tool,
            *(cell(tool, found[name, tool, judge]) for judge in world.judges),
            "-".join(map(str, sorted({len(drawn) for judge in world.judges for drawn in found[name, tool, judge]}))),
        ]
        for tool in world.tools
        if (name, tool, world.judges[0]) in found
    ]
    return markdown(["tool", *world.judges, "draws"], rows)


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__, out="audit-length")
    parser.add_argument("--draws", type=int, default=100)
    tools = list(dict.fromkeys(tool for world in WORLDS.values() for tool in world.tools))
    parser.add_argument("--tools", nargs="+", choices=tools, default=tools)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    flags: dict[tuple[str, str, str], Sequence[Flags]] = {}
    for tool in args.tools:
        for name, world in WORLDS.items():
            for judge in world.judges if tool in world.tools else ():
                flags[name, tool, judge] = [flags_of(tool, name, judge, rho, args) for rho in CORRELATIONS]
                print(f"{tool}, {name}, {judge}: done", file=sys.stderr)
    parts = [f"### {name.capitalize()}\n\n{table(name, flags)}" for name in WORLDS]
    finish(args, "audit", "\n\n".join([TEXT, *parts]), section="length")


if __name__ == "__main__":
    main()
