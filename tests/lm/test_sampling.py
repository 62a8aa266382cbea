"""A sample is drawn from the distribution that a sort of the whole vocabulary defines."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbias.lm.generate import _nucleus, sample


def drawn(logits, n=4_000, temperature=1.0, top_p=1.0, top_k=None):
    generator = torch.Generator().manual_seed(0)
    options = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "generator": generator}
    tokens = [sample(logits, **options) for _ in range(n)]
    return [tokens.count(i) / n for i in range(len(logits))]


SHARES = torch.tensor([0.15, 0.5, 0.05, 0.3])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.15, 0.5, 0.05, 0.3]),
        ({"temperature": 0.0}, [0, 1, 0, 0]),
        ({"temperature": 1e-30}, [0, 1, 0, 0]),
        ({"temperature": 0.5}, [0.0225 / 0.365, 0.25 / 0.365, 0.0025 / 0.365, 0.09 / 0.365]),  # squares
        ({"top_p": 0.7}, [0, 0.5 / 0.8, 0, 0.3 / 0.8]),  # .5 + .3 reach .7
        ({"top_p": 0.5}, [0, 1, 0, 0]),
        ({"top_p": 1e-9}, [0, 1, 0, 0]),
        ({"top_k": 3}, [0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95]),
        ({"top_k": 9}, [0.15, 0.5, 0.05, 0.3]),
        ({"top_k": 3, "top_p": 0.84}, [0, 0.5 / 0.8, 0, 0.3 / 0.8]),  # of .95: .8 are 84.2 %
    ],
)
def test_shares_of_the_draws(options, expected):
    assert drawn(SHARES.log(), **options) == pytest.approx(expected, abs=0.03)


@given(
    st.lists(st.sampled_from([-50.0, -3.0, -1.0, 0.0, 0.001, 2.0, 2.5, 9.0]), min_size=1, max_size=30),
    st.floats(0.01, 0.999),
)
@settings(max_examples=300)
def test_the_nucleus_is_that_of_a_sort(values, top_p):
    logits = torch.tensor(values)
    logits -= logits.max()
    shares = logits.softmax(-1)
    expected = by_definition(shares, top_p)
    if expected is None:
        return  # a sum that equals top_p up to rounding may fall on either side
    nucleus = _nucleus(shares, top_p)
    assert sorted(shares[nucleus].tolist()) == sorted(shares[expected].tolist())
    assert len(set(nucleus.tolist())) == len(nucleus)


def by_definition(shares, top_p):
    """Return the most probable tokens that reach ``top_p``, by a sort; None if a sum equals it up to rounding."""
    ordered, order = shares.double().sort(descending=True, stable=True)
    before = ordered.cumsum(0) - ordered
    if bool(((before - top_p).abs() < 1e-9).any()):
        return None
    return order[: max(1, int((before < top_p).sum()))]


def rows(size):
    """Return logits of one token, of a model, of a wide and a flat distribution, and of many equal tokens."""
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(size, generator=generator)
    few = torch.where(torch.arange(size) % 997 == 5, noise * 2 + 12, noise * 1.5)
    return [noise - 1e4 * (torch.arange(size) != 3), few, noise * 3, noise * 0.3, noise.round(), torch.zeros(size)]


@pytest.mark.parametrize("row", range(6))
def test_a_large_vocabulary_gives_the_nucleus_of_a_sort(row):
    logits = rows(50_000)[row]
    logits -= logits.max()
    shares, sizes = logits.softmax(-1), []
    for top_p in (1e-6, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999999):
        expected = by_definition(shares, top_p)
        if expected is None:
            continue
        nucleus = _nucleus(shares, top_p)
        assert sorted(shares[nucleus].tolist()) == sorted(shares[expected].tolist())
        assert len(set(nucleus.tolist())) == len(nucleus)
        sizes.append(len(nucleus))
    assert len(sizes) > 4


def test_a_token_without_probability_is_never_drawn():
    logits = torch.tensor([0.0, -1e30, 0.0, -1e30])
    shares = drawn(logits, 500)
    assert (shares[1], shares[3]) == (0, 0)
