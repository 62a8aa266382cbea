"""The trie of a call: every distinct token runs once, and an answer depends only on its own row."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lm.test_families import VOCABULARY, build

from evalbias.lm.score import Scorer
from evalbias.lm.tokens import Scored
from evalbias.lm.tree import PrefixStore, Rows, shared_blocks

FAMILIES = ("Llama", "Qwen2", "GPT2", "GPTNeoX")


@pytest.fixture(scope="module")
def models():
    return {family: build(family, {}) for family in FAMILIES}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Share blocks of 32 tokens, and try the packs of a model once for all of its scorers."""
    monkeypatch.setattr("evalbias.lm.tree.BLOCK", 32)
    monkeypatch.setattr(Scorer, "_tried", tried_once)


def tried_once(scorer, found={}, tried=Scorer._tried):  # noqa: B006 -- the models live as long as this module
    key = id(scorer.model), scorer._kernel
    return found[key] if key in found else found.setdefault(key, tried(scorer))


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
    calls = [prompts(rng, 4, prefix=prefixes[0]), prompts(rng, 1, prefix=prefixes[1])]
    calls += [[s for b in prefixes for s in prompts(rng, 2, prefix=b)], prompts(rng, 1, prefix=prefixes[1])]
    spent = []
    for call in calls:
        before = warm.tokens_run
        np.testing.assert_allclose(flat(warm(call)), flat(cold(call)), atol=1e-5)
        spent.append(warm.tokens_run - before)
    whole = 3 * 32  # of the 100 tokens of a prefix
    assert spent == [100 + 40, 110, 3 * (100 + 20) - 2 * whole, 110 - whole]  # the third prefix is new
    warm.prefixes.clear()
    before = warm.tokens_run
    warm(calls[3])
    assert warm.tokens_run - before == 110


IN_CALLS = [("Llama", 1 << 20), ("Llama", 1 << 12)]
IN_CALLS += [pytest.param(family, 1 << 20, marks=pytest.mark.slow) for family in FAMILIES[1:]]


@pytest.mark.parametrize(("family", "prefix_bytes"), IN_CALLS)
def test_an_answer_depends_on_its_call_only_to_the_last_digit(models, family, prefix_bytes):
    rng = np.random.default_rng(5)
    trunk = tuple(rng.integers(1, VOCABULARY, 70).tolist())
    inputs = [(*trunk, *rng.integers(1, VOCABULARY, 45).tolist()) for _ in range(4)]
    calls = [prompts(rng, 1 + n % 3, prefix=inputs[n % 4]) + prompts(rng, n % 2, prefix=trunk) for n in range(10)]
    calls.append([Scored((*inputs[0], 5, 6), 80)])  # whose logits are needed inside of a block that is kept
    warm = make_scorer(models[family], prefix_bytes=prefix_bytes)
    for call in calls:
        answers = flat(warm(call))
        for start in (make_scorer(models[family], prefix_bytes=1 << 20), warm):  # afresh, and again
            assert (flat(start(call)) == answers).all()
        np.testing.assert_allclose(answers, flat(make_scorer(models[family])(call)), atol=1e-5)
    assert warm.prefixes.bytes <= prefix_bytes


def test_whole_blocks_are_shared_with_the_rows_after_and_end_where_logits_are_needed():
    def found(*texts):
        return shared_blocks(Rows([Scored((*ids, 0), start) for ids, start in texts]))

    trunk = tuple(range(1, 101))
    assert found((trunk, 100)) == {0: 96}  # of a single prompt, all that is whole
    assert found((trunk, 64)) == {}  # its logits are needed after 63 tokens
    assert found(((*trunk, 200), 101), ((*trunk, 201), 101)) == {0: 96}
    assert found(((*trunk, 200), 101), ((*trunk, 201), 70)) == {0: 64}
    assert found((trunk[:60], 60), ((*trunk[:60], 200), 61)) == {}  # 60 tokens: too few are saved
    longer = (*trunk, *range(300, 400))
    deeper = [((*longer, end), 201) for end in (500, 501)]
    assert found(((*trunk, 200), 101), *deeper, ((*trunk, 600), 101)) == {0: 96, 1: 192}
    assert found(((*trunk, 200), 101), deeper[0], ((*trunk, 600), 101)) == {0: 96}  # nobody shares the longer prefix


def layers_of(place, tokens=32):
    """Return keys and values of 32 bytes a token."""
    values = torch.full((1, 1, tokens, 4), float(place))
    return [(values, values + 0.5)]


def test_the_store_keeps_its_budget_and_what_a_call_has_used():
    store, prefixes = PrefixStore(2 * 32 * 32), [np.arange(k, k + 32) for k in range(4)]

    def kept():
        return [n for n, prefix in enumerate(prefixes) if prefix.tobytes() in store._blocks]

    for place in (0, 1):
        store.put(prefixes[place], layers_of(place))
    store.put(prefixes[2], layers_of(2))  # no room: the others were put by this call
    store.put(prefixes[3], layers_of(3, tokens=99))  # more than the whole budget
    assert (kept(), store.bytes) == ([0, 1], 2 * 32 * 32)
    store.begin()
    assert store.get(prefixes[0])[0][0].unique().tolist() == [0.0]
    store.put(prefixes[2], layers_of(2))
    assert (kept(), store.get(prefixes[1])) == ([0, 2], None)
    store.clear()
    assert (kept(), store.bytes) == ([], 0)


def test_a_call_beyond_the_budget_leaves_prefixes_for_the_next_one(models):
    rng = np.random.default_rng(3)
    prefixes = [(k, *rng.integers(1, VOCABULARY, 95).tolist()) for k in range(1, 7)]
    call = [s for prefix in prefixes for s in prompts(rng, 2, prefix=prefix)]
    cold = make_scorer(models["Llama"], prefix_bytes=1 << 24)
    expected = flat(cold(call))
    small = make_scorer(models["Llama"], prefix_bytes=cold.prefixes.bytes // 3)
    for spent in (cold.tokens_run, cold.tokens_run - 2 * 96):  # less two of the six
        before = small.tokens_run
        assert (flat(small(call)) == expected).all()
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
