"""Sampling of a token from logits by temperature, top-k and top-p, without sorting the vocabulary."""

from __future__ import annotations

import math

import torch

BINS, WIDTH = 4096, 32.0
"""Number of bins of the histogram in which the nucleus ends, and their range in nats below the peak."""

SORTED = 8192
"""Largest number of tokens that are sorted without a histogram."""

ROUNDING = 1e-5
"""Largest error of a sum of probabilities in float32."""


def sample(
    logits: torch.Tensor, *, temperature: float, top_p: float, top_k: int | None, generator: torch.Generator
) -> int:
    """Return the most probable token, or a sample.

    Args:
        logits: (V,) finite logits.
        temperature: Temperature of the sample; 0 takes the most probable token.
        top_p: Probability of the nucleus: the fewest most probable tokens that together reach it.
        top_k: Number of most probable tokens from which to sample; None for all. Applies before ``top_p``.
        generator: Source of the one random number that a sample needs.

    Example:
        >>> logits = torch.log(torch.tensor([0.2, 0.5, 0.3]))
        >>> draw = torch.Generator().manual_seed(0)
        >>> {sample(logits, temperature=1.0, top_p=0.6, top_k=None, generator=draw) for _ in range(99)}
        {1, 2}
    """
    if temperature <= 0:
        return int(logits.argmax())
    scaled, tokens = (logits - logits.max()) / temperature, None  # finite peak at the smallest temperatures
    if top_k is not None and top_k < len(scaled):
        scaled, tokens = scaled.topk(max(1, top_k))
    shares = scaled.softmax(-1)
    if top_p < 1:
        nucleus = _nucleus(scaled, shares, top_p)
        shares, tokens = shares[nucleus], nucleus if tokens is None else tokens[nucleus]
    index = _draw(shares.double(), generator)
    return index if tokens is None else int(tokens[index])


def _nucleus(logits: torch.Tensor, shares: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return the indices of the nucleus among (V,) logits, of which the largest is 0, with these probabilities.

    Tokens whose probability is below (1 - top_p) / V are outside the nucleus: together they have less than 1 - top_p,
    so the others reach ``top_p``. Of most distributions this leaves few tokens to sort.
    """
    spare = float(shares.sum()) - top_p - ROUNDING
    candidates = torch.nonzero(shares >= spare / len(shares))[:, 0]
    if len(candidates) > SORTED:
        return _nucleus_by_histogram(logits, shares.double(), top_p)
    return candidates[_first(shares[candidates].double(), 0.0, top_p)]


def _nucleus_by_histogram(logits: torch.Tensor, shares: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return the indices of a nucleus of many tokens; see ``_nucleus``.

    A histogram of the logits shows where the nucleus ends, so that only the tokens of one bin are sorted.
    """
    bins = (logits * (-BINS / WIDTH)).clamp_(max=BINS - 1).int()
    mass = torch.bincount(bins, weights=shares, minlength=BINS)
    sums = mass.cumsum(0)
    last = min(int(torch.searchsorted(sums, top_p)), BINS - 1)  # the bin in which the sum reaches top_p
    edge = torch.nonzero(bins == last)[:, 0]
    edge = edge[_first(shares[edge], float(sums[last] - mass[last]), top_p)]
    return torch.cat([torch.nonzero(bins < last)[:, 0], edge])


def _first(shares: torch.Tensor, before: float, top_p: float) -> torch.Tensor:
    """Return the indices of the largest shares, at least one, that reach ``top_p`` with the probability before them."""
    ordered, order = shares.sort(descending=True, stable=True)
    return order[: max(1, int((before + ordered.cumsum(0) - ordered < top_p).sum()))]


def _draw(shares: torch.Tensor, generator: torch.Generator) -> int:
    """Return an index with probability proportional to its share."""
    sums = shares.cumsum(0)
    whole = float(sums[-1])
    point = min(float(torch.rand((), dtype=torch.float64, generator=generator)) * whole, math.nextafter(whole, 0.0))
    return int(torch.searchsorted(sums, point, right=True))
