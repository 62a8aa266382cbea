"""Do rates of judges by pass or fail cover the truth, and how often is a judge certified that only reaches the limit?

usage: python -m benchmarks.certificates [--sets 200] [--resamples 200] [--seed 0] [--write]

The judge passes .80 of what deserves it, which is the limit, and fails .95 of what does not. Annotators pass and fail
with the given accuracy. Errors are independent, but in the last rows, where the judge copies an annotator in a share of
the items. ``drawn`` gives other tools the same data.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.harness import argument_parser, as_text, finish, markdown
from evalbias.measures import Draws, estimate_dependence, estimate_rate
from evalbias.measures.arrays import FloatArray

LIMIT = 0.8
JUDGE, PREVALENCE = (LIMIT, 0.95), 0.6
NUMBERS = {"tpr": JUDGE[0], "tnr": JUDGE[1], "prevalence": PREVALENCE}
SIZES, ACCURACIES, RATERS, COPIED = (200, 500), (0.85, 0.9, 0.95), (2, 3), (0.2, 0.4)


def drawn(
    rng: np.random.Generator, n: int, rates: Sequence[tuple[float, float]], *, copied: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Draw n items: verdicts (n,) of the judge and (n, r) of annotators, by their true positive and negative rates.

    ``copied`` is the share of items on which the judge says what the first annotator says.
    """
    deserving = (rng.random(n) < PREVALENCE)[:, None]
    tpr, tnr = np.transpose(rates)
    verdicts = (rng.random((n, len(rates))) < np.where(deserving, tpr, 1 - tnr)).astype(np.float64)
    return np.where(rng.random(n) < copied, verdicts[:, 1], verdicts[:, 0]), verdicts[:, 1:]


def simulated(
    n: int, accuracy: float, raters: int, *, sets: int, draws: Draws, copied: float = 0.0
) -> dict[str, float]:
    """Return shares of data sets: coverage by number, false certificates, and errors that are called dependent."""
    rng, rates = np.random.default_rng(draws.seed), [JUDGE, *[(accuracy, accuracy)] * raters]
    kept: dict[str, list[float]] = {name: [] for name in (*NUMBERS, "certified", "dependent")}
    for _ in range(sets):
        judge, people = drawn(rng, n, rates, copied=copied)
        for name, truth in NUMBERS.items():
            found = estimate_rate(judge, people, of=name, draws=draws)  # type: ignore[arg-type]
            kept[name].append(found.low <= truth <= found.high)
            if name == "tpr":
                kept["certified"].append(found.low > LIMIT)
        if raters > 2:
            kept["dependent"].append(estimate_dependence(judge, people, draws=draws).p_value < 0.05)
    return {name: float(np.mean(values)) if values else float("nan") for name, values in kept.items()}


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark and return its rows."""
    parser = argument_parser(__doc__)
    parser.add_argument("--sets", type=int, default=200, help="data sets of each row")
    parser.add_argument("--resamples", type=int, default=200, help="resamples of an interval")
    args = parser.parse_args(argv)
    draws = Draws(seed=args.seed, resamples=args.resamples)
    settings = [(*setting, 0.0) for setting in itertools.product(SIZES, ACCURACIES, RATERS)]
    settings += [(500, 0.9, 3, copied) for copied in COPIED]
    rows = {setting: simulated(*setting[:3], sets=args.sets, draws=draws, copied=setting[3]) for setting in settings}
    headings = ("items", "accuracy", "annotators", "copied", *(f"{name} held" for name in NUMBERS))
    table = markdown(
        (*headings, "TPR certified", "called dependent"),
        [
            (*setting[:3], f"{setting[3]:.0%}", *(as_text(value, ".1%") for value in found.values()))
            for setting, found in rows.items()
        ],
    )
    title = f"## Coverage and false certificates at a true TPR of {LIMIT:g}"
    settings_words = f"{args.sets} data sets a row, {args.resamples} resamples, seed {args.seed}."
    finish(args, "certificates", f"{title}\n\n{settings_words}\n\n{table}")
    return {"rows": rows}


if __name__ == "__main__":
    main()
