"""How often do greedy and beam search miss the likeliest order of a merge, and how should partial merges be scored?

usage: python -m benchmarks.merge_search [--merges 2000] [--write]

Two sorted lists are merged by comparisons of known probabilities. The likeliest order is found by trying all orders
that keep both lists sorted; its likelihood is the product over all pairs between the lists. Besides evalbias's score of
a partial merge, two others are tried: the product over its own comparisons, and their geometric mean.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.likelihood_bias.table import markdown
from benchmarks.results import write_section
from evalbias.measures.arrays import FloatArray
from evalbias.programs.ranking import ComparedSource, Merge, PartialMerge

BEAM = 10
WORLDS: dict[str, Callable[[np.random.Generator], FloatArray]] = {
    "3 + 3, uniform": lambda rng: rng.uniform(size=(3, 3)),
    "4 + 4, uniform": lambda rng: rng.uniform(size=(4, 4)),
    "4 + 4, Bradley-Terry, noise .5": lambda rng: bradley_terry(rng, 4, noise=0.5),
    "4 + 4, Bradley-Terry, noise 1": lambda rng: bradley_terry(rng, 4, noise=1.0),
}


def bradley_terry(rng: np.random.Generator, size: int, *, noise: float) -> FloatArray:
    """Draw (size, size) win probabilities of the left list: log-odds are differences of qualities, plus noise."""
    left, right = -np.sort(-rng.normal(size=(2, size)))
    log_odds = left[:, None] - right + noise * rng.normal(size=(size, size))
    return np.asarray(1 / (1 + np.exp(-log_odds)))


class OwnComparisons(Merge):
    """A merge that scores a partial merge by its own comparisons only.

    Attributes:
        mean: Whether to average their log-probabilities instead of adding them up.
    """

    mean = False

    def _best(self, states: list[PartialMerge]) -> list[PartialMerge]:
        return sorted(states, key=lambda state: -self._loglikelihood(state))[: self._beam]

    def _loglikelihood(self, state: PartialMerge) -> float:
        left = right = 0
        logprobs = []
        for candidate in state.merged:
            p = self.source.probability(self.left[left], self.right[right])
            first = candidate == self.left[left]
            logprobs.append(np.log(p if first else 1 - p))
            left, right = left + first, right + (not first)
            if left == len(self.left) or right == len(self.right):
                break
        return float(np.mean(logprobs) if self.mean else np.sum(logprobs))


class MeanOfOwnComparisons(OwnComparisons):
    """A merge that scores a partial merge by the geometric mean of its own comparisons' probabilities."""

    mean = True


@dataclass(frozen=True)
class Method:
    """A search: how partial merges are scored, how many are kept, and below which gap both outcomes are followed."""

    merge: type[Merge]
    beam: int
    gap: float

    def run(self, probabilities: FloatArray) -> tuple[list[int], int]:
        """Merge two sorted lists; return the order and the number of comparisons."""
        m, n = probabilities.shape
        source = ComparedSource("", [str(k) for k in range(m + n)])
        merge = self.merge(source, range(m), range(m, m + n), self.beam, self.gap)
        while pairs := merge.advance():
            source.known.update({(a, b): float(probabilities[a, b - m]) for a, b in pairs})
        return merge.merged, len(source.known)


METHODS = {"greedy": Method(Merge, 1, 0.0)} | {
    f"beam, {score}, {threshold}": Method(merge, BEAM, gap)
    for score, merge in {
        "own comparisons": OwnComparisons,
        "mean of own comparisons": MeanOfOwnComparisons,
        "all comparisons so far (evalbias)": Merge,
    }.items()
    for threshold, gap in {"gap .2": 0.2, "no threshold": 1.0}.items()
}


def loglikelihood(order: list[int], probabilities: FloatArray) -> float:
    """Return the sum, over all pairs between the lists, of the log-probability that the one above is better."""
    m = len(probabilities)
    place = np.argsort(order)
    above = place[:m, None] < place[None, m:]
    return float(np.log(np.where(above, probabilities, 1 - probabilities)).sum())


def highest(probabilities: FloatArray) -> float:
    """Return the log-likelihood of the likeliest order that keeps both lists sorted."""
    m, n = probabilities.shape
    best = -np.inf
    for places in itertools.combinations(range(m + n), m):
        left, right = iter(range(m)), iter(range(m, m + n))
        order = [next(left) if k in places else next(right) for k in range(m + n)]
        best = max(best, loglikelihood(order, probabilities))
    return best


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--merges", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    drawn = {}
    for world, draw in WORLDS.items():
        rng = np.random.default_rng(args.seed)
        drawn[world] = [draw(rng) for _ in range(args.merges)]
    best = {world: [highest(p) for p in merges] for world, merges in drawn.items()}
    body = []
    for name, method in METHODS.items():
        cells = []
        for world, merges in drawn.items():
            results = [method.run(p) for p in merges]
            losses = [top - loglikelihood(r[0], p) for r, p, top in zip(results, merges, best[world], strict=True)]
            missed = np.mean([loss > 1e-9 for loss in losses])
            cells.append(f"{missed:.1%}, {np.mean(losses):.2f} nats, {np.mean([r[1] for r in results]):.1f}")
        body.append([name, *cells])
    text = (
        "## Searches of a merge\n\n"
        f"{args.merges} random merges of two sorted lists, seed {args.seed}; a beam keeps {BEAM} partial merges. Share "
        "of merges in which the search misses the likeliest order, mean log-likelihood lost, and mean number of "
        "comparisons. *Uniform*: every probability is drawn from [0, 1]. *Bradley-Terry*: log-odds are differences of "
        "normal qualities plus normal noise.\n\n" + markdown(["search", *WORLDS], body)
    )
    print(text)
    if args.write:
        write_section("merge_search", text)


if __name__ == "__main__":
    main()
