"""Models that cannot run packs: a shared trunk runs once, and its state is repeated for what follows."""

import numpy as np
import pytest
from lm.test_families import KINDS, LINEAR, build, plain

from evalbias.lm.score import Scorer
from evalbias.lm.tokens import Scored

BRANCHING = {
    "qwen3-next": ("Qwen3Next", LINEAR),
    "falcon-h1": KINDS["falcon-h1, scaled logits"][:2],
    "lfm2": KINDS["lfm2, convolutions"][:2],
    "bloom": KINDS["bloom, places by distance"][:2],
    "mpt": KINDS["mpt, places by distance"][:2],
    "falcon": KINDS["falcon, places by distance"][:2],
    "gpt-neo": KINDS["gpt-neo, a window of its own"][:2],
    "llama4": ("Llama4Text", {**KINDS["llama4, places by distance"][1], "attention_chunk_size": 32, "floor_scale": 40}),
}


def prompts(items=6, trunk=120, own=30):
    """Return prompts with one trunk and an article per three items, each with two answers of two tokens."""
    rng, done = np.random.default_rng(0), []
    demonstrations = rng.integers(3, 97, trunk).tolist()
    for item in range(items):
        if item % 3 == 0:
            article = rng.integers(3, 97, 60).tolist()
        prompt = [*demonstrations, *article, *rng.integers(3, 97, own + item).tolist()]
        done += [Scored((*prompt, answer, 5), len(prompt)) for answer in (7, 8)]
    return done


@pytest.mark.parametrize("kind", BRANCHING)
def test_a_trunk_runs_once(kind, caplog):
    model, sequences = build(*BRANCHING[kind]), prompts()
    made = Scorer(model, context=512, batch_tokens=4096)
    np.testing.assert_allclose(np.concatenate(made(sequences)), plain(model, sequences), atol=1e-4)
    assert made.tokens_run <= 1.7 * made.tokens_distinct  # the two answers to an item repeat its own 30 tokens
    alone = Scorer(model, context=512, batch_tokens=4096, share=False)
    alone(sequences)
    assert made.tokens_run < 0.4 * alone.tokens_run
    assert "repeats the state after a shared prefix" in caplog.text


def test_a_model_that_forgets_its_state_runs_by_itself(caplog):
    """transformers' Mamba begins a stretch of several tokens without the state before it."""
    model, sequences = build(*KINDS["mamba, no attention"][:2]), prompts()
    made = Scorer(model, context=512, batch_tokens=4096)
    np.testing.assert_allclose(np.concatenate(made(sequences)), plain(model, sequences), atol=1e-4)
    assert "from a repeated state, its answers differ by" in caplog.text


def test_reads_inside_a_trunk():
    """Likelihoods of whole texts, one of them the beginning of the others."""
    model = build(*BRANCHING["qwen3-next"])
    rng = np.random.default_rng(1)
    trunk = rng.integers(3, 97, 80).tolist()
    texts = [trunk, *([*trunk, *rng.integers(3, 97, n).tolist()] for n in (1, 9, 40))]
    sequences = [Scored(tuple(ids), 1) for ids in texts]
    made = Scorer(model, context=512, batch_tokens=64)
    np.testing.assert_allclose(np.concatenate(made(sequences)), plain(model, sequences), atol=1e-4)
