"""Logits after the decoder: the model's own whatever its family, and in float32 whatever its weights."""

import numpy as np
import pytest
import torch
from lm.test_families import KINDS, VOCABULARY, build

from evalbias.lm import score
from evalbias.lm.local import drawn_token, generate
from evalbias.lm.score import Head, Scorer
from evalbias.lm.tokens import Scored
from evalbias.lm.types import Text


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
    answers = Scorer(model, context=64, batch_tokens=4096)(
        [
            Scored((*ids, token), len(ids))
            for ids, row in zip(prompts, top.indices.tolist(), strict=True)
            for token in row
        ]
    )
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
