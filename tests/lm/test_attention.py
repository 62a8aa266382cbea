"""Tree attention in every kernel: the definition's numbers, the models' own answers, and no wait for the device."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lm.test_families import build, texts
from torch.utils._python_dispatch import TorchDispatchMode

from evalbias.lm import attention, score
from evalbias.lm.attention import attend, fused_kernel, layer_masks, plain_kernel, tree_attention
from evalbias.lm.score import Head, Scorer
from evalbias.lm.tokens import Scored
from evalbias.lm.tree import Rows, packs

QWEN3 = ("Qwen3", {"head_dim": 16})


def masks_of(texts, size, width=None):
    """Yield the masks of packs under a window of a width; None for no window."""
    kind = "full_attention" if width is None else "sliding_attention"
    for pack in packs(Rows([Scored((*text, 0), len(text)) for text in texts]), size, {}):
        yield layer_masks(SimpleNamespace(sliding_window=width), [kind], pack)[kind]


def random_texts(seed):
    rng = np.random.default_rng(seed)
    trunk = rng.integers(0, 3, 40)
    return {(*trunk[: rng.integers(15, 40)], *rng.integers(0, 3, rng.integers(2, 30))) for _ in range(12)}


def visible(mask):
    """Return the (n, m + n) pairs by definition: at or before the query, in its branch, within its reach."""
    place = np.arange(-mask.before, len(mask.reach))
    rows = place[mask.before :, None]
    return (place <= rows) & (rows < mask.ends) & (mask.positions >= mask.reach[:, None])


def test_the_blocks_of_an_example(monkeypatch):
    monkeypatch.setattr(attention, "BLOCK", 2)
    (mask,) = masks_of([(1, 1, 2, 2, 2), (1, 1, 3, 3)], 8)
    blocks = [(queries, runs) for queries, runs, _ in mask.blocks(torch.zeros(0))]
    assert [queries for queries, _ in blocks] == [slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 7)]
    assert [runs for _, runs in blocks] == [[slice(0, n)] for n in (2, 4, 6)] + [[slice(0, 2), slice(5, 7)]]
    assert mask.runs(slice(6, 7)) == [slice(0, 2), slice(5, 7)]
    assert mask.runs(slice(2, 4)) == [slice(0, 4)]


@pytest.mark.parametrize("width", [None, 5, 40])
@pytest.mark.parametrize("seed", range(6))
def test_runs_are_those_of_the_dense_mask(seed, width):
    """No key of a pair is skipped, and without a window every key is of some pair."""
    for mask in masks_of(random_texts(seed), 60, width):
        pairs = visible(mask)
        n, keys = pairs.shape
        assert np.array_equal(mask.dense(slice(0, n), [slice(0, keys)], torch.zeros(0)).numpy() == 0, pairs)
        for start, stop in itertools.pairwise([*range(0, n, 8), n]):
            seen = np.zeros(keys, dtype=bool)
            for run in mask.runs(slice(start, stop)):
                seen[run] = True
            assert not pairs[start:stop, ~seen].any()
            assert width is not None or pairs[start:stop, seen].any(axis=0).all()


def test_masks_by_hand():
    """The example of ``layer_masks``: the text a b, then c, d and e after one, two and no tokens of it."""
    tree = ["x....", "xx...", "xxx..", "xx.x.", "x...x"]
    window = ["x....", "xx...", ".xx..", ".x.x.", "x...x"]
    for width, expected in ((None, tree), (2, window)):
        (mask,) = masks_of([(1, 2, 3), (1, 2, 4), (1, 5)], 8, width)
        visible = mask.dense(slice(0, 5), [slice(0, 5)], torch.zeros(0)) == 0
        assert ["".join(".x"[int(cell)] for cell in row) for row in visible] == expected


@pytest.mark.parametrize("kernel", [fused_kernel, plain_kernel])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_attention_is_that_of_the_definition(kernel, sinks, softcap, monkeypatch):
    """Against the definition in float64, with three query heads for each of two key heads."""
    if kernel is fused_kernel and softcap:
        pytest.skip("caps no scores")
    monkeypatch.setattr(attention, "BLOCK", 16)
    generator = torch.Generator().manual_seed(0)
    contexts = []
    for mask in masks_of(random_texts(0), 70):
        n, m = len(mask.reach), mask.before
        query = torch.randn(1, 6, n, 16, generator=generator)
        keys, values = torch.randn(2, 1, 2, m + n, 16, generator=generator)
        sink = torch.randn(6, generator=generator) if sinks else None
        with tree_attention([], kernel, [mask]):
            given = query, keys, values, None
            out, _ = attend(SimpleNamespace(layer_idx=0), *given, scaling=0.3, softcap=softcap, s_aux=sink)
        seen = torch.from_numpy(visible(mask))  # (n, m + n)
        repeated, weighed = (x.double().repeat_interleave(3, dim=1) for x in (keys, values))
        scores = 0.3 * query.double() @ repeated.transpose(-1, -2)
        scores = (softcap * torch.tanh(scores / softcap) if softcap else scores).masked_fill(~seen, -torch.inf)
        if sinks:
            scores = torch.cat([scores, sink.double().reshape(1, 6, 1, 1).expand(1, 6, n, 1)], dim=-1)
        expected = scores.softmax(-1)[..., : m + n] @ weighed
        torch.testing.assert_close(out.transpose(1, 2).double(), expected, atol=2e-6, rtol=0)
        contexts.append(m)
    assert sum(m > 0 for m in contexts) >= 2


def test_masks_are_kept_once_for_all_heads(monkeypatch):
    """With 12 query heads on one key head, masks by head would take 12 times the memory."""
    monkeypatch.setattr(attention, "BLOCK", 16)
    mask, *_ = masks_of(random_texts(0), 4096)
    key = torch.zeros(1, 1, len(mask.ends), 8)
    fused_kernel(torch.zeros(1, 12, len(mask.reach), 8), key, key, mask, None, None)
    (blocks,) = mask._made.values()
    assert len(blocks) > 1
    assert sum(hidden.numel() for _, _, hidden in blocks) <= len(mask.reach) * len(mask.ends)


class Transfers(TorchDispatchMode):  # lists the operations that copy between devices and wait for it
    def __init__(self):
        super().__init__()
        self.waits = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func is torch.ops.aten._to_copy.default:
            moved, quick = args[0].device != out.device, kwargs.get("non_blocking", False)
            self.waits += [str(func)] * (moved and not quick)
        if func is torch.ops.aten.copy_.default:
            quick = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
            self.waits += [str(func)] * (args[0].device != args[1].device and not quick)
        return out


def test_a_run_never_waits_for_the_device(monkeypatch):
    """On torch's meta device nothing can be read back: whatever would wait for a GPU raises there."""
    model, sequences = build(*QWEN3), texts()
    made = Scorer(model, context=512, batch_tokens=50, prefix_bytes=1 << 24)
    collected = []
    monkeypatch.setattr(score, "_collect", lambda pending, _: collected.append(pending))
    model.to("meta")
    made._head = Head(model)
    with Transfers() as transfers:
        for _ in range(2):  # without, then with stored prefixes
            made._read(made._packs(Rows(sequences)), np.zeros(0))
        assert transfers.waits == []
        torch.zeros(3).to("meta")  # a blocking copy is noticed
        assert transfers.waits == ["aten._to_copy.default"]
    for pending in collected:
        assert sum(len(targets) for _, targets in pending) == sum(len(s.ids) - s.start for s in sequences)
        assert {values.device.type for values, _ in pending} == {"meta"}
    assert len(collected[0]) > 3  # packs, none of which was waited for


def test_a_kernel_that_fails_is_told_of(monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("not aligned")

    monkeypatch.setattr(score, "KERNELS", [broken, plain_kernel])
    with caplog.at_level("WARNING"):
        assert Scorer(build(*QWEN3), context=512, batch_tokens=4096).share
    assert "Packs run in plain attention, which is slower: else, RuntimeError: not aligned" in caplog.text


@pytest.mark.parametrize("heads", [(32, 8), (28, 4), (9, 3)])
def test_shapes_of_the_fused_kernel_on_a_gpu(heads):
    """PyTorch's own rule for the kernel's shapes, on tensors without data: no number is tried."""
    mask = next(iter(masks_of(random_texts(0), 4096)))
    n, keys = len(mask.reach), len(mask.ends)
    query = torch.empty(1, heads[0], n, 128, dtype=torch.bfloat16, device="meta")
    keys = torch.empty(1, heads[1], keys, 128, dtype=torch.bfloat16, device="meta")
    out, lse = fused_kernel(query, keys, keys, mask, 0.1, None)
    assert (out.shape, lse.shape) == (query.shape, query.shape[:3])
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
