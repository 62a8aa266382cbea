"""Generation: a sample is drawn from the distribution that a sort defines."""

import itertools

import pytest
import torch

from evalbias.lm.local import _nucleus, drawn_token


def drawn(logits, n=4_000, temperature=1.0, top_p=1.0, top_k=None):
    generator = torch.Generator().manual_seed(0)
    options = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "generator": generator}
    tokens = [drawn_token(logits, **options) for _ in range(n)]
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


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 1e4])
@pytest.mark.parametrize("size", [1, 2, 30, 50_000])
def test_the_nucleus_is_that_of_a_sort(spread, size):
    """By definition these are the most probable tokens that reach ``top_p``; rounded logits have many equal ones."""
    noise = spread * torch.randn(size, generator=torch.Generator().manual_seed(1))
    for logits, top_p in itertools.product((noise, noise.round()), (1e-6, 0.1, 0.5, 0.9, 0.99, 0.9999999)):
        shares = (logits - logits.max()).softmax(-1)
        ordered = shares.double().sort(descending=True, stable=True).values
        before = ordered.cumsum(0) - ordered
        nucleus = _nucleus(shares, top_p)
        assert len(set(nucleus.tolist())) == len(nucleus)
        if not bool(((before - top_p).abs() < 1e-9).any()):  # else a sum equals top_p up to rounding: either will do
            count = max(1, int((before < top_p).sum()))
            assert sorted(shares[nucleus].tolist(), reverse=True) == ordered[:count].tolist()


def test_a_token_without_probability_is_never_drawn():
    logits = torch.tensor([0.0, -1e30, 0.0, -1e30])
    shares = drawn(logits, 500)
    assert (shares[1], shares[3]) == (0, 0)
