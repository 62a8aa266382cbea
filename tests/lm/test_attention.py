"""Tree attention in both kernels: the definition's numbers, the models' own answers, and no wait for the device."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lm.test_families import KINDS, build, plain, texts
from lm.test_windows import WINDOWED
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import flex_attention as flex
from torch.utils._python_dispatch import TorchDispatchMode

from evalbias.lm import score
from evalbias.lm.attention import (
    TILE,
    LayerMask,
    Tiles,
    attend,
    flash_kernel,
    flex_kernel,
    kernels_of,
    plain_kernel,
    tree_attention,
)
from evalbias.lm.head import Head
from evalbias.lm.score import Scorer
from evalbias.lm.tokens import Scored
from evalbias.lm.tree import Rows, packs

QWEN3 = ("Qwen3", {"head_dim": 16})
MODELS = {
    "llama": KINDS["llama"][:2],
    "qwen3": QWEN3,
    "mistral, window": WINDOWED["mistral, tied embeddings"],
    "gemma3, windows": WINDOWED["gemma3"],
    "gpt-oss, sinks and windows": WINDOWED["gpt-oss"],
    "llama4, chunks": WINDOWED["llama4, chunks"],
}
CAPPED = {"gemma2, capped scores": WINDOWED["gemma2"]}


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Run the GPU's kernel on the CPU, without compiling it."""
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def some_packs(rng, size, tile):
    """Yield (prefix length, tiles) of the packs of a random trie."""
    trunk = rng.integers(0, 3, 40)
    texts = {(*trunk[: rng.integers(15, 40)], *rng.integers(0, 3, rng.integers(2, 30))) for _ in range(12)}
    for pack in packs(Rows.of([Scored((*text, 0), len(text)) for text in texts]), size, known={}, kept={}):
        p = pack.prefix_length
        positions = np.concatenate([np.arange(p, len(pack.source)), pack.positions])
        yield p, Tiles(pack.ends[p:], positions, np.zeros_like(pack.positions), tile)


@pytest.mark.parametrize("kernel", [flash_kernel, plain_kernel, flex_kernel])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_both_parts_are_one_softmax(kernel, sinks, softcap):
    """Against the definition in float64, with three query heads for each of two key heads."""
    if kernel is flash_kernel and softcap:
        pytest.skip("caps no scores")
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    seen = 0
    for p, tiles in some_packs(rng, 70, 128 if kernel is flex_kernel else 16):
        n, m = len(tiles.reach), tiles.before
        query = torch.randn(1, 6, n, 16, generator=generator)
        keys, values = torch.randn(2, 1, 2, p + m + n, 16, generator=generator)
        sink = torch.randn(6, generator=generator) if sinks else None
        mask = LayerMask(p, p > 0, tiles)
        prefix = [(keys[:, :, :p], values[:, :, :p])] if p else []
        with tree_attention([], kernel, prefix, [mask]):
            given = query, keys[:, :, p:], values[:, :, p:], None
            out, _ = attend(SimpleNamespace(layer_idx=0), *given, scaling=0.3, softcap=softcap, s_aux=sink)
        place = torch.arange(-m, n)
        rows = place[m:, None]
        near = (place <= rows) & (rows < torch.from_numpy(tiles.ends))
        visible = torch.cat([torch.ones(n, p, dtype=torch.bool), near], dim=1)  # (n, p + m + n)
        repeated, weighed = (x.double().repeat_interleave(3, dim=1) for x in (keys, values))
        scores = 0.3 * query.double() @ repeated.transpose(-1, -2)
        scores = (softcap * torch.tanh(scores / softcap) if softcap else scores).masked_fill(~visible, -torch.inf)
        if sinks:
            scores = torch.cat([scores, sink.double().reshape(1, 6, 1, 1).expand(1, 6, n, 1)], dim=-1)
        expected = scores.softmax(-1)[..., : p + m + n] @ weighed
        torch.testing.assert_close(out.transpose(1, 2).double(), expected, atol=2e-6, rtol=0)
        seen += p > 0
    assert seen >= 2


def test_masks_are_kept_once_for_all_heads():
    """With 12 query heads on one key head, masks by head would take 12 times the memory."""
    (_, tiles), *_ = some_packs(np.random.default_rng(0), 4096, 16)
    mask = LayerMask(0, False, tiles)
    key = torch.zeros(1, 1, len(tiles.ends), 8)
    flash_kernel(torch.zeros(1, 12, len(tiles.reach), 8), key, key, mask, None, None)
    (blocks,) = mask._made.values()
    assert len(blocks) > 1
    assert sum(hidden.numel() for _, _, hidden in blocks) <= len(tiles.reach) * len(tiles.ends)


def check(kernel, name, options, monkeypatch):
    monkeypatch.setattr(score, "kernels_of", lambda *_: [kernel])
    model, sequences = build(name, options), texts()
    expected, own = plain(model, sequences), model.config._attn_implementation
    for pack in (4096, 50):
        made = Scorer(model, context=512, batch_tokens=pack, prefix_bytes=1 << 24)
        assert made.share
        for _ in range(2):  # without, then with stored prefixes
            np.testing.assert_allclose(np.concatenate(made(sequences)), expected, atol=5e-6)
        assert kernel is not flex_kernel or made.tokens_run % TILE == 0
    assert model.config._attn_implementation == own


@pytest.mark.parametrize("kind", MODELS)
def test_the_cpus_kernel_gives_the_models_own_answers(kind, monkeypatch):
    check(flash_kernel, *MODELS[kind], monkeypatch)


@pytest.mark.parametrize("kind", ["qwen3", *CAPPED])
def test_plain_attention_gives_the_models_own_answers(kind, monkeypatch):
    check(plain_kernel, *(MODELS | CAPPED)[kind], monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS | CAPPED)
def test_the_gpus_kernel_gives_the_models_own_answers(kind, monkeypatch):
    check(flex_kernel, *(MODELS | CAPPED)[kind], monkeypatch)


class Transfers(TorchDispatchMode):
    """Lists the operations that copy between devices and wait for it."""

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
    model, sequences = build("Qwen3", {"head_dim": 16}), texts()
    made = Scorer(model, context=512, batch_tokens=50, prefix_bytes=1 << 24)
    collected = []
    monkeypatch.setattr(score, "_collect", lambda pending, _: collected.append(pending))
    model.to("meta")
    made._head = Head(model)
    with Transfers() as transfers:
        for _ in range(2):  # without, then with stored prefixes
            made._read(made._packs(Rows.of(sequences)), np.zeros(0))
    assert transfers.waits == []
    for pending in collected:
        assert sum(len(targets) for _, targets in pending) == sum(len(s.ids) - s.start for s in sequences)
        assert {values.device.type for values, _ in pending} == {"meta"}
    assert len(collected[0]) > 3  # packs, none of which was waited for


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.item(),
        lambda x: bool(x > 0),
        lambda x: x.cpu(),
        lambda x: x[None].nonzero(),
        lambda x: x[None][x[None] > 0],
        lambda x: x.tolist(),
    ],
)
def test_what_waits_for_a_device_raises_on_meta(wait):
    with pytest.raises((RuntimeError, NotImplementedError)):
        wait(torch.empty((), device="meta"))


def test_a_blocking_copy_is_noticed():
    with Transfers() as transfers:
        torch.zeros(3).to("meta", non_blocking=True)
        assert transfers.waits == []
        torch.zeros(3).to("meta")
    assert transfers.waits == ["aten._to_copy.default"]


def test_kernels_to_try():
    assert kernels_of(torch.device("cpu"), torch.float32) == [flash_kernel, plain_kernel]
    assert kernels_of(torch.device("cuda"), torch.bfloat16) == [flex_kernel, plain_kernel]
    for device in ("cuda", "mps"):
        assert kernels_of(torch.device(device), torch.float32) == [plain_kernel]


def test_a_kernel_that_fails_is_told_of(monkeypatch, caplog):
    """On a GPU for want of a C compiler, for example."""

    def broken(*_):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(score, "kernels_of", lambda *_: [broken, plain_kernel])
    with caplog.at_level("INFO"):
        assert Scorer(build(*QWEN3), context=512, batch_tokens=4096).share
    assert "Packs run in plain attention, which is slower: else, RuntimeError: no compiler" in caplog.text


@pytest.mark.parametrize("heads", [(32, 8), (28, 4), (9, 3)])
def test_shapes_of_the_flash_kernel_on_a_gpu(heads):
    """PyTorch's own rule for the kernel's shapes, on tensors without data: no number is tried."""
    with FakeTensorMode():
        query = torch.empty(1, heads[0], 300, 128, dtype=torch.bfloat16, device="cuda")
        keys = torch.empty(1, heads[1], 1200, 128, dtype=torch.bfloat16, device="cuda")
        out, lse = flex_kernel(query, keys, keys, None, 0.1, None)
    assert (out.shape, lse.shape) == (query.shape, query.shape[:3])
    assert (out.dtype, lse.dtype, lse.device.type) == (torch.bfloat16, torch.float32, "cuda")
