"""The trie of a call: every distinct token runs once, and an answer depends only on its own row."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lm.models import build
from transformers import MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

from evalbias import LocalLM
from evalbias.lm import score as scorer
from evalbias.lm.score import Scorer
from evalbias.lm.tokens import Scored
from evalbias.lm.tree import Context, PrefixStore, packs, shared

VOCABULARY = 40
FAMILIES = ("llama", "qwen2", "gpt2", "gpt-neox")


class Words:
    """The part of a tokenizer that ``build`` uses."""

    eos_token_id = 0

    def __len__(self):
        return VOCABULARY


@pytest.fixture(scope="module")
def models():
    return {family: build(family, Words()) for family in FAMILIES}


def make_scorer(model, *, share=True, pack=16, prefix_bytes=0):
    made = Scorer(model, context=256, batch_tokens=4096, share=share, prefix_bytes=prefix_bytes)
    made._pack_tokens = pack
    return made


def random_trie(rng, n, *, depth=5):
    """Return sequences that share prefixes of many lengths."""
    trunks = [()]
    for _ in range(max(1, n // 3)):
        trunk = trunks[rng.integers(len(trunks))]
        if len(trunk) < 12 * depth:
            trunks.append((*trunk, *rng.integers(1, VOCABULARY, rng.integers(1, 13)).tolist()))
    done = []
    for _ in range(n):
        trunk = trunks[rng.integers(len(trunks))]
        ids = (*trunk, *rng.integers(1, VOCABULARY, rng.integers(2, 9)).tolist())
        done.append(Scored(ids, int(rng.integers(1, len(ids)))))
    return done


def flat(logprobs):
    return np.concatenate(logprobs)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 40), st.sampled_from(FAMILIES))
def test_packed_alone_and_permuted_answers_agree(models, seed, n, pack, family):
    rng = np.random.default_rng(seed)
    sequences = random_trie(rng, n)
    packed = make_scorer(models[family], pack=pack)
    expected = packed(sequences)
    plain = make_scorer(models[family], share=False)
    np.testing.assert_allclose(flat(expected), flat(plain(sequences)), atol=1e-5)
    order = rng.permutation(n)
    permuted = packed([sequences[i] for i in order])
    np.testing.assert_allclose(flat([permuted[i] for i in np.argsort(order)]), flat(expected), atol=1e-5)
    one = int(rng.integers(n))
    np.testing.assert_allclose(packed([sequences[one]])[0], expected[one], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_two_thousand_prompts(models, family):
    sequences = random_trie(np.random.default_rng(7), 2000, depth=10)
    packed = make_scorer(models[family], pack=64, prefix_bytes=1 << 20)
    logprobs = flat(packed(sequences))
    np.testing.assert_allclose(logprobs, flat(make_scorer(models[family], share=False)(sequences)), atol=1e-5)
    assert (
        packed.tokens_run == packed.tokens_distinct == len({s.ids[:k] for s in sequences for k in range(1, len(s.ids))})
    )
    np.testing.assert_allclose(flat(packed(sequences[::-1])[::-1]), logprobs, atol=1e-5)


def test_sliding_windows_and_tied_embeddings():
    """Rows run in packs, those beyond the window too."""
    size = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    torch.manual_seed(0)
    mistral = MistralForCausalLM(MistralConfig(**size, **heads, sliding_window=24, tie_word_embeddings=True)).eval()
    qwen = Qwen2Config(**size, **heads, use_sliding_window=True, sliding_window=24, max_window_layers=1)
    for model in (mistral, Qwen2ForCausalLM(qwen).eval()):
        rng = np.random.default_rng(1)
        for depth in (1, 5):
            sequences = random_trie(rng, 60, depth=depth)
            packed = make_scorer(model)
            logprobs = flat(packed(sequences))
            alone = flat([make_scorer(model, share=False)([s])[0] for s in sequences])
            np.testing.assert_allclose(logprobs, alone, atol=1e-5)
            assert packed.tokens_run == packed.tokens_distinct
        whole = torch.tensor([sequences[0].ids])
        with torch.inference_mode():
            logits = model(whole).logits[0].log_softmax(-1)
        expected = [logits[p - 1, whole[0, p]].item() for p in range(sequences[0].start, whole.shape[1])]
        np.testing.assert_allclose(logprobs[: len(expected)], expected, atol=1e-5)


class Deaf(torch.nn.Module):
    """A model that ignores a given mask of four dimensions."""

    def __init__(self, inner, *, takes_attention):
        super().__init__()
        self.inner, self.config, self.device, self.dtype = inner, inner.config, inner.device, inner.dtype
        self.base_model, self.takes_attention = self, takes_attention

    def parameters(self, recurse=True):
        return self.inner.base_model.parameters()

    def set_attn_implementation(self, name):
        if self.takes_attention:
            self.inner.set_attn_implementation(name)

    def get_input_embeddings(self):
        return self.inner.get_input_embeddings()

    def get_output_embeddings(self):
        return self.inner.get_output_embeddings()

    def forward(self, attention_mask=None, **rest):
        given = attention_mask is not None and attention_mask.ndim == 4
        return self.inner.base_model(attention_mask=None if given else attention_mask, **rest)


@pytest.mark.parametrize("takes_attention", [False, True])
def test_a_model_that_ignores_a_given_mask_shares_in_tree_attention_only(caplog, takes_attention):
    """Tree attention knows the masks itself, so that a model need not hand them on."""
    model = build("llama", Words())
    deaf = Scorer(Deaf(model, takes_attention=takes_attention), context=256, batch_tokens=4096)
    assert deaf.share == takes_attention
    assert ("without sharing prefixes" in caplog.text) != takes_attention
    sequences = random_trie(np.random.default_rng(3), 20)
    np.testing.assert_allclose(flat(deaf(sequences)), flat(make_scorer(model, share=False)(sequences)), atol=1e-5)


def prompts(rng, count, *, prefix):
    """Return prompts with one prefix, each with the same two answers."""
    done = []
    for _ in range(count):
        ids = (*prefix, *rng.integers(1, VOCABULARY, 10).tolist())
        done += [Scored((*ids, answer), len(ids)) for answer in (1, 2)]
    return done


def test_the_next_call_starts_warm(models):
    rng = np.random.default_rng(0)
    prefixes = [tuple(rng.integers(1, VOCABULARY, 100).tolist()) for _ in range(3)]
    warm, cold = make_scorer(models["llama"], prefix_bytes=1 << 20), make_scorer(models["llama"])
    calls = [
        prompts(rng, 4, prefix=prefixes[0]),
        prompts(rng, 1, prefix=prefixes[1]),
        [s for b in prefixes for s in prompts(rng, 2, prefix=b)],
        [s for b in prefixes[::-1] for s in prompts(rng, 1, prefix=b)],
    ]
    spent = []
    for call in calls:
        before = warm.tokens_run
        np.testing.assert_allclose(flat(warm(call)), flat(cold(call)), atol=1e-5)
        spent.append(warm.tokens_run - before)
    assert spent == [140, 110, 100 + 60, 30]  # the third prefix is new in the third call
    warm.prefixes.clear()
    before = warm.tokens_run
    warm(calls[3])
    assert warm.tokens_run - before == 330


def test_tokens_whose_logits_are_needed_are_run_even_if_stored(models):
    rng = np.random.default_rng(2)
    prefix = tuple(rng.integers(1, VOCABULARY, 120).tolist())
    warm, cold = make_scorer(models["qwen2"], prefix_bytes=1 << 20), make_scorer(models["qwen2"])
    warm(prompts(rng, 3, prefix=prefix))
    inside = [Scored((*prefix, 5, 6), 80), Scored((*prefix, 7), 121 - 1)]
    np.testing.assert_allclose(flat(warm(inside)), flat(cold(inside)), atol=1e-5)


def layers_from(start, stop):
    """Return keys and values that encode their tokens' places, 32 bytes per token."""
    values = torch.arange(start, stop, dtype=torch.float32)[None, None, :, None].expand(1, 1, -1, 4).contiguous()
    return [(values, values + 0.5)]


def put(store, ids):
    store.put(ids, Context(layers_from(0, len(ids)), []), np.arange(len(ids)))


def held(store, rows):
    """Return row -> length of its stored prefix, after checking the keys and values."""
    prefixes = store.lookup(rows, shared(rows), [len(row) for row in rows])
    for prefix in prefixes.values():
        ((keys, values),) = prefix.layers()
        assert keys[0, 0, :, 0].tolist() == list(range(prefix.length))
        assert torch.equal(values, keys + 0.5)
    return {row: prefix.length for row, prefix in prefixes.items()}


def test_the_store_keeps_its_budget():
    store = PrefixStore(32 * 250)
    rows = [np.arange(k, k + 100) for k in (0, 1000, 2000)]
    for row in rows[:2]:
        put(store, row)
    assert held(store, rows) == {0: 100, 1: 100}
    assert held(store, rows[:1]) == {0: 100}  # the first was used last
    put(store, rows[2])
    assert held(store, rows) == {0: 100, 2: 100}
    put(store, np.arange(5000, 5300))  # more than the whole budget
    assert held(store, rows) == {0: 100, 2: 100}
    put(store, rows[1])  # no room: the others were used by this call
    assert held(store, rows) == {0: 100, 2: 100}
    assert store.bytes == 32 * 200
    store.clear()
    assert held(store, rows) == {}
    nothing = PrefixStore(0)
    put(nothing, rows[0])
    assert held(nothing, rows) == {}
    assert nothing.worthwhile(rows, shared(rows), [99] * 3) == {}


def test_the_store_holds_a_common_prefix_once():
    trunk, store = np.arange(200), PrefixStore(32 * 500)
    branches = [np.concatenate([trunk, np.arange(k, k + 100)]) for k in (1000, 2000, 3000, 4000)]
    for branch in branches[:3]:
        put(store, branch)
    assert store.bytes == 32 * 500  # 200 tokens of the trunk, 100 of each branch
    put(store, trunk)
    assert store.bytes == 32 * 500
    assert held(store, [trunk]) == {0: 200}
    assert held(store, branches) == {0: 300, 1: 100 + 200, 2: 300}
    assert held(store, branches[1:3]) == {0: 300, 1: 300}
    put(store, branches[3])  # replaces the first branch, never the trunk, which has other children
    assert held(store, branches) == {0: 200, 1: 300, 2: 300, 3: 300}
    assert held(store, [trunk[:150]]) == {0: 150}


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_the_store_returns_only_what_was_put(seed):
    rng = np.random.default_rng(seed)
    store, before = PrefixStore(32 * 700), 0
    for _ in range(12):
        rows = sorted({tuple(np.repeat(rng.integers(0, 2, rng.integers(1, 5)), 80).tolist()) for _ in range(4)})
        rows = [np.array([*row, 9]) for row in rows]
        held(store, rows)
        for row in rows:
            put(store, row[: rng.integers(1, len(row) + 1)])
        tree, left = [store._root], 0
        while tree:
            node = tree.pop()
            left += sum(tensor.nbytes for pair in node.layers for tensor in pair)
            tree += node.children.values()
        assert left == store.bytes <= store.budget
        before = max(before, store.bytes)
    assert before > 32 * 200


def test_a_call_beyond_the_budget_leaves_prefixes_for_the_next_one(models):
    rng = np.random.default_rng(3)
    article = tuple(rng.integers(1, VOCABULARY, 100).tolist())
    prefixes = [(*article, k, *rng.integers(1, VOCABULARY, 79).tolist()) for k in range(1, 7)]
    call = [s for prefix in prefixes for s in prompts(rng, 2, prefix=prefix)]
    cold = make_scorer(models["llama"], prefix_bytes=1 << 24)
    expected = flat(cold(call))
    token = cold.prefixes.bytes // (100 + 6 * 80)
    small = make_scorer(models["llama"], prefix_bytes=token * (100 + 2 * 80))
    for spent in (cold.tokens_run, cold.tokens_run - 100 - 2 * 80):  # less the article and two continuations of it
        before = small.tokens_run
        np.testing.assert_allclose(flat(small(call)), expected, atol=1e-5)
        assert small.tokens_run - before == spent


def test_a_walk_by_hand():
    rows = [np.array(ids) for ids in ([1, 2, 3], [1, 2, 4, 5], [6])]
    walk = list(packs(rows, shared(rows), [[1, 2], [1, 3], [0]], 4, known={}, kept={0: 2}))
    first, second = walk
    assert first.ids.tolist() == [1, 2, 3, 4]
    assert first.positions.tolist() == [0, 1, 2, 2]
    assert first.ends.tolist() == [4, 4, 3, 4]
    assert set(first.reads) == {(1, 0, 1), (1, 1, 1), (2, 0, 2)}
    assert first.paths[0].tolist() == [0, 1]
    assert (second.ids.tolist(), second.source.tolist()) == ([5, 6], [0, 1, 3])
    assert second.ends.tolist() == [1, 1, 1, 1, 2]  # the last row attends to nothing of the path
    assert set(second.reads) == {(0, 1, 3), (1, 2, 0)}


def test_a_model_with_its_own_attention_gets_prefix_and_suffix_in_one(folders, lms, monkeypatch):
    monkeypatch.setattr(scorer, "install", lambda _: False)  # as on a GPU
    own = LocalLM(folders["qwen2"], device="cpu", dtype="float32", batch_tokens=32)
    assert own.engine.scorer.share
    prompts = [f"Judge the output on quality: is it good? {a} {b}" for a in ("the cat", "a mat") for b in "abcdef"]
    logprobs = [lm.choice_logprobs(prompts, ["1", "2", "10"]).logprobs for lm in (own, lms["qwen2"])]
    np.testing.assert_allclose(*logprobs, atol=1e-5)
