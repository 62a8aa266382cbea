"""The trie of a call: every distinct token runs once, and an answer depends only on its own row."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lm.test_families import VOCABULARY, build

from evalbias.lm.score import Scorer
from evalbias.lm.tokens import Scored
from evalbias.lm.tree import PrefixStore, Rows, chained, token_count

FAMILIES = ("Llama", "Qwen2", "GPT2", "GPTNeoX")


@pytest.fixture(scope="module")
def models():
    return {family: build(family, {}) for family in FAMILIES}


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
    distinct = {s.ids[:k] for s in sequences for k in range(1, len(s.ids))}
    assert packed.tokens_run == packed.tokens_distinct == len(distinct)
    order = rng.permutation(n)
    permuted = packed([sequences[i] for i in order])
    np.testing.assert_allclose(flat([permuted[i] for i in np.argsort(order)]), flat(expected), atol=1e-5)
    one = int(rng.integers(n))
    np.testing.assert_allclose(packed([sequences[one]])[0], expected[one], atol=1e-5)


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
    warm, cold = make_scorer(models["Llama"], prefix_bytes=1 << 20), make_scorer(models["Llama"])
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
    warm, cold = make_scorer(models["Qwen2"], prefix_bytes=1 << 20), make_scorer(models["Qwen2"])
    warm(prompts(rng, 3, prefix=prefix))
    inside = [Scored((*prefix, 5, 6), 80), Scored((*prefix, 7), 121 - 1)]
    np.testing.assert_allclose(flat(warm(inside)), flat(cold(inside)), atol=1e-5)


def layers_from(start, stop):
    """Return keys and values that encode their tokens' places, 32 bytes per token."""
    values = torch.arange(start, stop, dtype=torch.float32)[None, None, :, None].expand(1, 1, -1, 4).contiguous()
    return [(values, values + 0.5)]


def put(store, ids):
    store.put(ids, layers_from(0, len(ids)), np.arange(len(ids)))


def looked_up(rows):
    """Return rows of a call that reads what follows each of some sorted prompts and one more token."""
    return Rows([Scored((*row.tolist(), 9999, 0), len(row) + 1) for row in rows])


def held(store, rows):
    """Return row -> length of its stored prefix, after checking the keys and values."""
    prefixes = {row: chained(*parts) for row, (_, parts) in store.lookup(looked_up(rows)).items()}
    for ((keys, values),) in prefixes.values():
        assert keys[0, 0, :, 0].tolist() == list(range(keys.shape[2]))
        assert torch.equal(values, keys + 0.5)
    return {row: token_count(prefix) for row, prefix in prefixes.items()}


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
    assert nothing.worthwhile(looked_up(rows)) == {}


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
    cold = make_scorer(models["Llama"], prefix_bytes=1 << 24)
    expected = flat(cold(call))
    token = cold.prefixes.bytes // (100 + 6 * 80)
    small = make_scorer(models["Llama"], prefix_bytes=token * (100 + 2 * 80))
    for spent in (cold.tokens_run, cold.tokens_run - 100 - 2 * 80):  # less the article and two continuations of it
        before = small.tokens_run
        np.testing.assert_allclose(flat(small(call)), expected, atol=1e-5)
        assert small.tokens_run - before == spent


@pytest.mark.parametrize("prefix_bytes", [0, 1 << 24])
def test_out_of_memory_drops_stored_prefixes_before_it_halves_the_batch(models, prefix_bytes):
    """A stand-in for a GPU that holds no more than the prefixes of one call."""
    rng = np.random.default_rng(4)
    calls = [prompts(rng, 3, prefix=tuple(rng.integers(1, VOCABULARY, 100).tolist())) for _ in range(3)]
    tight, cold = make_scorer(models["Llama"], pack=64, prefix_bytes=prefix_bytes), make_scorer(models["Llama"])
    run, limit, refused = tight._run, 1 << 17, []

    def refuse(pack, before):
        if len(pack.ids) > 64 or tight.prefixes.bytes > limit:
            refused.append(pack)
            raise torch.OutOfMemoryError("no memory")
        return run(pack, before)

    tight._run = refuse
    for call in calls:
        np.testing.assert_allclose(flat(tight(call)), flat(cold(call)), atol=1e-5)
    assert bool(refused) == bool(prefix_bytes)
    assert tight.batch_tokens == 4096
    limit = -1
    with pytest.raises(torch.OutOfMemoryError):
        tight(calls[0])
    assert tight.batch_tokens == 1
