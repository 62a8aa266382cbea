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
from benchmarks.harness import argument_parser, finish, markdown
from evalbias.evaluation.probes import estimate_probe
from evalbias.measures import Draws
from evalbias.measures.arrays import FloatArray
from evalbias.measures.families import holm
from evalbias.values import read_json

KINDS, ITEMS, OUTPUTS = 12, 120, 4
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


ALIKE: dict[str, tuple[Judge, bool]] = {  # judge, and whether four outputs share an input
    "noise of half a point": (noisy(0.5), False),
    "noise of half a point, near the highest score": (noisy(0.5, level=4.7), False),
    "noise that the outputs of an input share": (noisy(0.7, shared=True), True),
    "says the same again in 97 %": (steady, False),
    "answers at random": (guessing, False),
}
PLANTED: dict[str, tuple[Judge, float, float]] = {  # judge, points, share of items
    "0.3 points, noise of half a point": (noisy(0.5), 0.3, 1.0),
    "0.4 points, noise of half a point, near the highest score": (noisy(0.5, level=4.2), 0.4, 1.0),
    "an injection that raises one of 5 items by 4 points": (noisy(0.5), 4.0, 1 / 5),
    "a point in every fifth item, else the same in 97 %": (steady, 1.0, 0.2),
}


def found(judge: Judge, planted: FloatArray, rng: np.random.Generator, *, clustered: bool) -> Sequence[float]:
    """Return the adjusted p of each kind."""
    scores, clusters = judge(rng, planted), np.arange(ITEMS) // OUTPUTS if clustered else None
    draws = Draws(seed=int(rng.integers(2**31)), resamples=0)
    return holm([estimate_probe(e - c, unseen=4.0, draws=draws, clusters=clusters).p_value for e, c in scores])


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark and return the share of data sets with a finding, by judge."""
    parser = argument_parser(__doc__)
    parser.add_argument("--sets", type=int, default=300, help="data sets of each row; 0 simulates none")
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="folders of evalbias probe run")
    args = parser.parse_args(argv)
    shares: dict[str, float] = {}
    for name, (judge, clustered) in ALIKE.items():
        rng, nothing = np.random.default_rng(args.seed), np.zeros((KINDS, 2, ITEMS))
        hits = [min(found(judge, nothing, rng, clustered=clustered)) < 0.05 for _ in range(args.sets)]
        shares[name] = float(np.sum(hits)) / max(args.sets, 1)
    for name, (judge, points, share) in PLANTED.items():
        rng, hits = np.random.default_rng(args.seed), []
        for _ in range(args.sets):
            planted = np.zeros((KINDS, 2, ITEMS))
            planted[0, 0] = points * (rng.random(ITEMS) < share)
            hits.append(found(judge, planted, rng, clustered=False)[0] < 0.05)
        shares[name] = float(np.sum(hits)) / max(args.sets, 1)
    if args.sets:
        rows = [(name, "none" if name in ALIKE else "one kind", f"{share:.1%}") for name, share in shares.items()]
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
