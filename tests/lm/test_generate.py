"""Generation: a sample is drawn from the distribution that a sort defines, and from the model's own logits."""

import itertools

import numpy as np
import pytest
import torch
from lm.test_families import KINDS, VOCABULARY, build

from evalbias.lm import score
from evalbias.lm.local import _nucleus, drawn_token, generate
from evalbias.lm.score import Head, Scorer
from evalbias.lm.tokens import Scored
from evalbias.lm.types import Text


def drawn(logits, n=4_000, temperature=1.0, top_p=1.0, top_k=None):
    generator = torch.Generator().manual_seed(0)
    options = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "generator": generator}
    tokens = [drawn_token(logits, **options) for _ in range(n)]
    return [tokens.count(i) / n for i in range(len(logits))]


SHARES = torch.tensor([0.15, 0.5, 0.05, 0.3])

DRAWN = [({}, [0.15, 0.5, 0.05, 0.3]), ({"top_k": 9}, [0.15, 0.5, 0.05, 0.3])]
DRAWN += [({"temperature": 0.5}, [0.0225 / 0.365, 0.25 / 0.365, 0.0025 / 0.365, 0.09 / 0.365])]  # squares
DRAWN += [(greedy, [0, 1, 0, 0]) for greedy in ({"temperature": 0.0}, {"temperature": 1e-30}, {"top_p": 0.5})]
DRAWN += [({"top_p": 0.7}, [0, 0.5 / 0.8, 0, 0.3 / 0.8]), ({"top_p": 1e-9}, [0, 1, 0, 0])]  # .5 + .3 reach .7
DRAWN += [({"top_k": 3}, [0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95])]
DRAWN += [({"top_k": 3, "top_p": 0.84}, [0, 0.5 / 0.8, 0, 0.3 / 0.8])]  # of .95: .8 are 84.2 %


@pytest.mark.parametrize(("options", "expected"), DRAWN)
def test_shares_of_the_draws(options, expected):
    n = 50 if 1 in expected else 4_000  # where all draws are alike, few say so
    assert drawn(SHARES.log(), n, **options) == pytest.approx(expected, abs=0.03)


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


# The logits after the decoder: the model's own whatever its family, and in float32 whatever its weights.


@pytest.mark.parametrize("kind", ["gemma2, capped scores and logits", "granite, scaled logits", "llama"])
def test_sampled_tokens_have_the_models_own_probabilities(kind):
    name, options, _ = KINDS[kind]
    model, prompt = build(name, options), [5, 6, 7, 8]

    class Tokenizer:
        @staticmethod
        def decode(ids, **_):
            return " ".join(map(str, ids))

    settings = {"max_tokens": 24, "temperature": 1.0, "seed": 3}
    texts = generate(model, Tokenizer, [prompt] * 2, [Text("", top_k=k, **settings) for k in (None, 2)], context=64)
    for text, k in zip(texts, (None, 2), strict=True):
        drawn = [*map(int, text.text.split())]
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *drawn]])).logits[0, 3:-1]
        draw = torch.Generator().manual_seed(3)
        assert drawn == [drawn_token(row, temperature=1.0, top_p=None, top_k=k, generator=draw) for row in logits]


def test_answers_of_a_16_bit_model_do_not_tie():
    """Two percent of likely answers tie if their logits are rounded to bfloat16, and hardly any in float32."""
    model = build("Llama", {"vocab_size": 2_000}).bfloat16()
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 2_000, 12).tolist() for _ in range(60)]
    with torch.no_grad():
        model.lm_head.weight.mul_(5)
        rounded = torch.stack([model(torch.tensor([ids])).logits[0, -1] for ids in prompts]).float()  # (n, V)
    top = rounded.topk(10, dim=1)
    assert 20 < float(top.values.mean()) < 30
    rows = zip(prompts, top.indices.tolist(), strict=True)
    asked = [Scored((*ids, token), len(ids)) for ids, row in rows for token in row]
    answers = Scorer(model, context=64, batch_tokens=4096)(asked)
    assert tied(top.values.numpy()) > 0.015
    assert tied(np.concatenate(answers).reshape(60, 10)) < 0.001


def tied(values):
    """Return the share of pairs of answers to one prompt, (n, c), that have exactly the same value."""
    first, second = np.triu_indices(values.shape[1], 1)
    return float((values[:, first] == values[:, second]).mean())


def test_large_output_layers_are_converted_in_parts(monkeypatch):
    model = build("Llama", {}).bfloat16()
    hidden = torch.randn(5, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = hidden.double() @ model.lm_head.weight.double().T
    monkeypatch.setattr(score, "CONVERTED", 64 * 10)  # 10 tokens of the vocabulary at a time
    logits = Head(model)(hidden)
    assert logits.shape == (5, VOCABULARY)
    np.testing.assert_allclose(logits.detach(), expected.detach(), atol=1e-4)
