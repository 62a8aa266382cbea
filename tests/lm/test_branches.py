"""Models that cannot run packs: a shared trunk runs once, and its state is repeated for what follows."""

import numpy as np
import pytest
import torch
from lm.test_families import KINDS, LINEAR, build, plain

from evalbias.lm.score import Scorer
from evalbias.lm.tokens import Scored
from evalbias.lm.tree import run, shared, trunks

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


def test_the_trunks_of_an_example():
    """Rows share 100 tokens, two of them 70 more; one row stands apart."""
    rows = [np.arange(100), np.arange(0, 170), np.arange(0, 180), np.append(np.arange(100), 999), np.array([5000])]
    rows[2][170:] += 1000
    lengths = [0, 100, 170, 100, 0]
    assert shared(rows) == lengths
    root, first, second = trunks(rows, lengths)
    assert (root.start, root.stop, root.leaves) == (0, 0, [4])
    assert (list(first.rows), first.start, first.stop, first.leaves) == ([0, 1, 2, 3], 0, 100, [0, 3])
    assert (list(second.rows), second.start, second.stop, second.leaves) == ([1, 2], 100, 170, [1, 2])
    assert (second.parent, first.last, second.last) == (1, 2, 2)


def test_every_token_runs_in_its_place():
    """A stand-in model returns each token's sum with all tokens before it."""

    class Sums:
        def __call__(self, input_ids, use_cache, past_key_values=None):
            before = torch.zeros(len(input_ids), 1) if past_key_values is None else past_key_values.sums
            hidden = input_ids.cumsum(1) + before
            cache = Cache(hidden[:, -1:])
            return type("Outputs", (), {"last_hidden_state": hidden[..., None], "past_key_values": cache})

    class Cache:
        def __init__(self, sums):
            self.sums = sums

        def reorder_cache(self, places):
            self.sums = self.sums[places]

    rng = np.random.default_rng(2)
    paths = [()]
    for _ in range(60):
        parent = paths[rng.integers(len(paths))]
        paths.append((*parent, *rng.integers(0, 9, rng.integers(1, 40)).tolist()))
    rows = [np.array(path) for path in sorted(set(paths)) if path]
    seen = set()
    for stretch in run(Sums(), rows, shared(rows), 300, torch.device("cpu")):
        assert (
            stretch.hidden.shape[0] == 1 or stretch.hidden.shape[0] * (stretch.start + stretch.hidden.shape[1]) <= 300
        )
        for sums, group in zip(stretch.hidden[..., 0], stretch.rows, strict=True):
            for row in group:
                stop = min(len(rows[row]), stretch.start + len(sums))
                expected = rows[row].cumsum()[stretch.start : stop]
                assert sums[: stop - stretch.start].tolist() == expected.tolist()
                places = {(row, position) for position in range(stretch.start, stop)}
                assert not places & seen
                seen |= places
    assert seen == {(row, position) for row, ids in enumerate(rows) for position in range(len(ids))}
