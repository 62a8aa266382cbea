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

from evalbias.lm import attention as tree_attention
from evalbias.lm import score as readout
from evalbias.lm.attention import TILE, CPUAttention, GPUAttention, LayerMask, Tiles
from evalbias.lm.score import Scorer
from evalbias.lm.tree import packs, shared

QWEN3 = ("Qwen3", {"head_dim": 16})
MODELS = {
    "llama": KINDS["llama"][:2],
    "qwen3": QWEN3,
    "mistral, window": WINDOWED["mistral"],
    "gemma3, windows": WINDOWED["gemma3"],
    "gpt-oss, sinks and windows": WINDOWED["gpt-oss"],
    "llama4, chunks": WINDOWED["llama4, chunks"],
}
CAPPED = {"gemma2, capped scores": WINDOWED["gemma2"]}


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Run the GPU's kernel on the CPU, without compiling it."""
    monkeypatch.setitem(tree_attention.KERNELS, "cpu", GPUAttention)
    monkeypatch.setattr(GPUAttention, "usable", lambda _: True)
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def some_packs(rng, size, tile):
    """Yield (prefix length, tiles) of the packs of a random trie."""
    trunk = rng.integers(0, 3, 40)
    rows = {(*trunk[: rng.integers(15, 40)], *rng.integers(0, 3, rng.integers(2, 30))) for _ in range(12)}
    rows = [np.array(row) for row in sorted(rows)]
    for pack in packs(rows, shared(rows), [[len(row) - 1] for row in rows], size, known={}, kept={}):
        p = pack.prefix_length
        positions = np.concatenate([np.arange(p, len(pack.source)), pack.positions])
        yield p, Tiles(pack.ends[p:], positions, np.zeros_like(pack.positions), tile)


@pytest.mark.parametrize("kernel", [CPUAttention, GPUAttention])
@pytest.mark.parametrize("sinks", [False, True])
def test_both_parts_are_one_softmax(kernel, sinks, monkeypatch):
    """Against the definition in float64, with three query heads for each of two key heads."""
    monkeypatch.setitem(tree_attention.KERNELS, "cpu", kernel)
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    seen = 0
    for p, tiles in some_packs(rng, 70, 128 if kernel is GPUAttention else 16):
        n, m = len(tiles.reach), tiles.before
        query = torch.randn(1, 6, n, 16, generator=generator)
        keys, values = torch.randn(2, 1, 2, p + m + n, 16, generator=generator)
        sink = torch.randn(6, generator=generator) if sinks else None
        mask = LayerMask(p, True, tiles, torch.empty(0))
        prefix = [(keys[:, :, :p], values[:, :, :p])] if p else []
        out = tree_attention.attend(
            SimpleNamespace(layer_idx=0),
            query,
            keys[:, :, p:],
            values[:, :, p:],
            tree_attention.Cascade(prefix, [mask]),
            scaling=0.3,
            s_aux=sink,
        )
        place = torch.arange(-m, n)
        rows = place[m:, None]
        near = (place <= rows) & (rows < torch.from_numpy(tiles.ends))
        visible = torch.cat([torch.ones(n, p, dtype=torch.bool), near], dim=1)  # (n, p + m + n)
        repeated, weighed = (x.double().repeat_interleave(3, dim=1) for x in (keys, values))
        scores = (0.3 * query.double() @ repeated.transpose(-1, -2)).masked_fill(~visible, -torch.inf)
        if sinks:
            scores = torch.cat([scores, sink.double().reshape(1, 6, 1, 1).expand(1, 6, n, 1)], dim=-1)
        expected = scores.softmax(-1)[..., : p + m + n] @ weighed
        torch.testing.assert_close(out.transpose(1, 2).double(), expected, atol=2e-6, rtol=0)
        seen += p > 0
    assert seen >= 2


def test_masks_are_kept_once_for_all_heads():
    """With 12 query heads on one key head, masks by head would take 12 times the memory."""
    (_, tiles), *_ = some_packs(np.random.default_rng(0), 4096, 16)
    kernel = CPUAttention(LayerMask(0, False, tiles, torch.empty(0)))
    key = torch.zeros(1, 1, len(tiles.ends), 8)
    kernel.near(torch.zeros(1, 12, len(tiles.reach), 8), key, key, None, None)
    sizes = [block.mask.numel() for block in kernel._blocks]
    assert len(sizes) > 1
    assert sum(sizes) <= len(tiles.reach) * len(tiles.ends)


@pytest.mark.parametrize("kind", MODELS)
def test_the_cpus_kernel_gives_the_models_own_answers(kind):
    check(*MODELS[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS | CAPPED)
def test_the_gpus_kernel_gives_the_models_own_answers(kind, on_a_gpu):
    check(*(MODELS | CAPPED)[kind])


def check(name, options):
    model, sequences = build(name, options), texts()
    expected = plain(model, sequences)
    for pack, padded in ((4096, False), (50, False), (4096, True)):
        made = Scorer(model, context=512, batch_tokens=pack, prefix_bytes=1 << 24)
        made._padded_packs = padded
        assert model.config._attn_implementation in tree_attention.NAMES.values()
        for _ in range(2):  # without, then with stored prefixes
            np.testing.assert_allclose(np.concatenate(made(sequences)), expected, atol=5e-6)
        assert not padded or made.tokens_run % TILE == 0


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
    monkeypatch.setitem(tree_attention.KERNELS, "meta", CPUAttention)
    monkeypatch.setattr(readout, "_collect", lambda pending, _: collected.append(pending))
    model.to("meta")
    made._readout = readout.Readout(model)
    with Transfers() as transfers:
        for _ in range(2):  # without, then with stored prefixes
            made(sequences)
    assert transfers.waits == []
    short, padded = collected[0], collected[1]
    assert sum(len(targets) for _, targets in short) == sum(len(s.ids) - s.start for s in sequences)
    assert {values.device.type for values, _ in short} == {"meta"}
    assert len(short) > 3  # packs, none of which was waited for
    assert padded == []


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


def test_a_gpus_kernel_is_for_16_bits(monkeypatch):
    monkeypatch.setitem(tree_attention.KERNELS, "cpu", GPUAttention)
    for dtype, wanted in ((torch.bfloat16, True), (torch.float16, True), (torch.float32, False)):
        assert tree_attention.install(build(*QWEN3).to(dtype)) is wanted


def test_a_gpu_without_tree_attention_is_warned_about(monkeypatch, caplog):
    """Here because there is no GPU; on one, for want of a C compiler, for example."""
    model = build(*QWEN3).bfloat16()
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    Scorer(model, context=512, batch_tokens=4096)
    (record,) = [record for record in caplog.records if "dense mask, which is slower" in record.message]
    assert record.levelname == "WARNING"


@pytest.mark.parametrize("heads", [(32, 8), (28, 4), (9, 3)])
def test_shapes_of_the_flash_kernel_on_a_gpu(heads):
    """PyTorch's own rule for the kernel's shapes, on tensors without data: no number is tried."""
    with FakeTensorMode():
        query = torch.empty(1, heads[0], 300, 128, dtype=torch.bfloat16, device="cuda")
        keys = torch.empty(1, heads[1], 1200, 128, dtype=torch.bfloat16, device="cuda")
        out, lse = GPUAttention.far(query, keys, keys, 0.1, None)
    assert (out.shape, lse.shape) == (query.shape, query.shape[:3])
    assert (out.dtype, lse.dtype, lse.device.type) == (torch.bfloat16, torch.float32, "cuda")
