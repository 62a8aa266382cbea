"""Compare the paired permutation test with ``scipy.stats.permutation_test``: time, ratio, peak memory.

usage: python -m benchmarks.permutation [--n 568] [--resamples 100000] [--scipy-resamples 4000] [--write]

Both test the difference of two judges in BiasScore, and in performance, on the same data. scipy takes the same time
for every resample, so it runs only some of them and its time is scaled up; ``--scipy-resamples 100000`` runs all. Each
test runs in its own process, which reports its peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
from scipy import stats

from benchmarks.harness import argument_parser, finish, markdown
from evalbias.measures import Draws, bias_score, estimate_bias_score, estimate_spearman
from evalbias.measures import unfairness_scores as us

STATISTICS = ("BiasScore", "performance")


def judged(n: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return (n,) likelihoods, human scores with ties, and the scores of two correlated judges."""
    rng = np.random.default_rng(seed)
    likelihoods, quality = rng.normal(-40, 12, n), rng.normal(3, 1, n)
    human = np.clip(np.round(2 * (quality + rng.normal(0, 0.7, n))) / 2, 1, 5)
    leaning = (likelihoods + 40) / 12
    before, after = (quality + slope * leaning + rng.normal(0, 0.4, n) for slope in (0.40, 0.33))
    return likelihoods, human, before, after


def evalbias_p_value(statistic: str, n: int, resamples: int) -> float:
    """Return the p-value that this package computes."""
    likelihoods, human, before, after = judged(n)
    draws = Draws(resamples=0, swaps=resamples)
    if statistic == "BiasScore":
        return estimate_bias_score(after, likelihoods, human, before=before, draws=draws).p_value
    return estimate_spearman(after, human, before=before, draws=draws).p_value


def scipy_p_value(statistic: str, n: int, resamples: int) -> float:
    """Return the p-value that scipy computes, with the statistic as a user would write it."""
    likelihoods, human, before, after = judged(n)

    def difference(a: np.ndarray, b: np.ndarray) -> float:
        if statistic == "performance":
            return float(np.corrcoef(a, ranks)[0, 1] - np.corrcoef(b, ranks)[0, 1])
        return bias_score(likelihoods, us(a, human)) - bias_score(likelihoods, us(b, human))

    ranks = stats.rankdata(human)
    units = stats.rankdata if statistic == "performance" else np.asarray
    test = stats.permutation_test(
        [stats.zscore(units(x)) for x in (before, after)],
        difference,
        permutation_type="samples",
        n_resamples=resamples,
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)


def run_in_process(package: str, statistic: str, n: int, resamples: int) -> dict[str, float]:
    """Return seconds, p-value and peak memory in MB of one test, run in its own process."""
    command = [sys.executable, "-m", "benchmarks.permutation", "--one", package, statistic]
    command += ["--n", str(n), "--resamples", str(resamples)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(finished.stdout)
    return figures


def run_one(package: str, statistic: str, n: int, resamples: int) -> dict[str, float]:
    """Run one test in this process; see ``run_in_process``."""
    started = time.perf_counter()
    p_value = {"evalbias": evalbias_p_value, "scipy": scipy_p_value}[package](statistic, n, resamples)
    seconds, peak = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "p_value": p_value, "peak_mb": peak / 1024}


def report(n: int, resamples: int, scipy_resamples: int) -> str:
    """Return the section."""
    body = []
    for statistic in STATISTICS:
        mine = run_in_process("evalbias", statistic, n, resamples)
        theirs = run_in_process("scipy", statistic, n, scipy_resamples)
        scaled = theirs["seconds"] * resamples / scipy_resamples
        run = "" if resamples == scipy_resamples else f" ({scipy_resamples} run)"
        seconds = [f"{mine['seconds']:.1f} s", f"{scaled:.0f} s{run}", f"{scaled / mine['seconds']:.0f}x"]
        p_values = f"{mine['p_value']:.4f} / {theirs['p_value']:.4f}"
        body.append([statistic, *seconds, p_values, f"{mine['peak_mb']:.0f} / {theirs['peak_mb']:.0f} MB"])
    head = ["statistic", "evalbias", "scipy", "ratio", "p-value, evalbias / scipy", "peak memory, evalbias / scipy"]
    settings = f"n = {n}, R = {resamples}, one thread."
    return f"## Paired permutation test\n\n{settings}\n\n{markdown(head, body)}"


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__)
    parser.add_argument("--n", type=int, default=568)
    parser.add_argument("--resamples", type=int, default=100_000)
    parser.add_argument("--scipy-resamples", type=int, default=4_000)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run_one(args.one[0], args.one[1], args.n, args.resamples)))
        return
    finish(args, "permutation", report(args.n, args.resamples, args.scipy_resamples))


if __name__ == "__main__":
    main()
