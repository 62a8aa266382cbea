"""Are judges called moved by edits that do not move them, and is a planted bias found?

usage: python -m benchmarks.probes [--sets 300] [--seed 0] [--write] [--runs FOLDER ...]

Simulated judges score 120 items as they are, with each of 12 kinds of edits and with each placebo, from 1 to 5. Those
of the first rows treat edits and placebos alike, so any finding is a false alarm. In the others, one kind is planted.
``--runs`` adds what folders of ``evalbias probe run`` found of real judges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.audit.judges import likert
from benchmarks.harness import argument_parser, finish, markdown, simulated
from evalbias.evaluation.probes import estimate_probe
from evalbias.measures import Draws, Interval
from evalbias.measures.arrays import FloatArray
from evalbias.measures.families import holm
from evalbias.values import read_json

KINDS, ITEMS, OUTPUTS = 12, 120, 4
TRUTH = 2_000  # data sets from which a true effect is computed, as scores are rounded and end
Judge = Callable[[np.random.Generator, FloatArray], FloatArray]  # of (kinds, 2, items): what is planted, in points


def noisy(spread: float, *, level: float = 3.0, shared: bool = False) -> Judge:
    """Judge with noise of its own in every answer, around a level; ``shared`` by the outputs of an input."""

    def answer(rng: np.random.Generator, planted: FloatArray) -> FloatArray:
        noise = rng.normal(size=planted.shape)
        if shared:
            noise = noise[..., ::OUTPUTS].repeat(OUTPUTS, axis=-1)
        return likert(level + rng.normal(size=ITEMS) + planted + spread * noise)

    return answer


def guessing(rng: np.random.Generator, planted: FloatArray) -> FloatArray:
    """Judge that answers at random."""
    return rng.integers(1, 6, size=planted.shape).astype(np.float64)


def steady(rng: np.random.Generator, planted: FloatArray) -> FloatArray:
    """Judge that says the same again in 97 of 100 cases, and else a level more or less."""
    moved = np.where(rng.random(planted.shape) < 0.03, rng.choice([-1, 1], size=planted.shape), 0)
    return np.clip(likert(3 + rng.normal(size=ITEMS)) + moved + planted, 1, 5)


JUDGES: dict[str, tuple[Judge, bool, float, float]] = {
    "noise of half a point": (noisy(0.5), False, 0.0, 0.0),
    "noise of half a point, near the highest score": (noisy(0.5, level=4.7), False, 0.0, 0.0),
    "noise that the outputs of an input share": (noisy(0.7, shared=True), True, 0.0, 0.0),
    "says the same again in 97 %": (steady, False, 0.0, 0.0),
    "answers at random": (guessing, False, 0.0, 0.0),
    "0.3 points, noise of half a point": (noisy(0.5), False, 0.3, 1.0),
    "0.4 points, noise of half a point, near the highest score": (noisy(0.5, level=4.2), False, 0.4, 1.0),
    "an injection that raises one of 5 items by 4 points": (noisy(0.5), False, 4.0, 1 / 5),
    "a point in every fifth item, else the same in 97 %": (steady, False, 1.0, 0.2),
}
"""Name -> judge, whether four outputs share an input, and the points that the first kind brings in a share of items."""


def found(judge: Judge, bonus: FloatArray, rng: np.random.Generator, *, clustered: bool) -> Sequence[float]:
    """Return the adjusted p of each kind."""
    scores, clusters = judge(rng, bonus), np.arange(ITEMS) // OUTPUTS if clustered else None
    draws = Draws(seed=int(rng.integers(2**31)), resamples=0)
    return holm([estimate_probe(e - c, unseen=4.0, draws=draws, clusters=clusters).p_value for e, c in scores])


def planted(rng: np.random.Generator, points: float, share: float, *, kinds: int = KINDS) -> FloatArray:
    """Return (kinds, 2, items) what edits and placebos bring, of which the first edit brings points in some items."""
    bonus = np.zeros((kinds, 2, ITEMS))
    if points:
        bonus[0, 0] = points * (rng.random(ITEMS) < share)
    return bonus


def covered(name: str, *, sets: int, seed: int) -> dict[str, dict[str, float]]:
    """Return what becomes of the effect of the first kind, whose truth is the mean over other data sets."""
    judge, clustered, *bonus = JUDGES[name]
    clusters = np.arange(ITEMS) // OUTPUTS if clustered else None

    def difference(*numbers: int) -> FloatArray:
        rng = np.random.default_rng([seed, *numbers])
        edit, placebo = judge(rng, planted(rng, *bonus, kinds=1))[0]
        return np.asarray(edit - placebo)

    truth = float(np.mean([difference(number, 1) for number in range(TRUTH)]))

    def once(number: int) -> dict[str, tuple[Interval, float]]:
        draws = Draws(seed=number)
        return {"effect": (estimate_probe(difference(number), unseen=4.0, draws=draws, clusters=clusters), truth)}

    return simulated(once, sets)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark and return the share of data sets with a finding, by judge."""
    parser = argument_parser(__doc__)
    parser.add_argument("--sets", type=int, default=300, help="data sets of each row; 0 simulates none")
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="folders of evalbias probe run")
    args = parser.parse_args(argv)
    shares: dict[str, float] = {}
    for name, (judge, clustered, *bonus) in JUDGES.items():
        rng, hits = np.random.default_rng(args.seed), list[bool]()
        for _ in range(args.sets):
            p_values = found(judge, planted(rng, *bonus), rng, clustered=clustered)
            hits.append((p_values[0] if any(bonus) else min(p_values)) < 0.05)
        shares[name] = float(np.sum(hits)) / max(args.sets, 1)
    if args.sets:
        rows = [
            (name, "one kind" if any(JUDGES[name][2:]) else "none", f"{share:.1%}") for name, share in shares.items()
        ]
        text = markdown(("judge", "planted", "data sets with a finding"), rows)
        about = f"{ITEMS} items, {KINDS} kinds, {args.sets} data sets a row, seed {args.seed}."
        finish(args, "probes", f"## Judges with and without a planted bias\n\n{about}\n\n{text}", section="simulated")
    for run in args.runs:
        result, told = read_json(run / "result.json"), list[tuple[str, ...]]()
        for kind, e in result["kinds"].items():
            value, low, high = (f"{e['estimate'][one]:+.2f}" for one in ("value", "low", "high"))
            changes = (f"{e[one]['value']:+.2f}" for one in ("edit", "placebo"))
            told.append((kind, e["status"], value, f"{low} to {high}", *changes))
        table = markdown(("kind", "finding", "effect", "95 % interval", "edit", "placebo"), told)
        title = f"## {run.name.replace('-', ' ')}: {result['n']} items"
        finish(args, "probes", f"{title}\n\n{result['verdict']}\n\n{table}", section=run.name)
    return shares


if __name__ == "__main__":
    main()
