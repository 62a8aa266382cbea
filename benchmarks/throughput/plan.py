"""Estimate the throughput on GPUs that are not at hand: python -m benchmarks.throughput --plan [SHAPE] [--write].

Everything that does not depend on the GPU is counted: the workloads' packs, the query-key pairs that attention
computes, operations, bytes and launches of a layer of the model's shape. The time is a roofline: each part takes as
long as its arithmetic or its memory traffic, whichever is longer, and a pack no less than its launches. The rates are
assumptions; nothing here has run on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.likelihood_bias.table import markdown
from benchmarks.throughput.methods import sequences
from benchmarks.throughput.shapes import Shape, layer_cost
from benchmarks.throughput.workloads import WORKLOADS, Workload, model
from evalbias import LocalLM
from evalbias.lm.attention import Tiles
from evalbias.lm.score import SMALLEST_PACK, Row, gpu_pack_tokens, rows_of, shared_lengths
from evalbias.lm.tree import Pack, packs


@dataclass(frozen=True)
class GPU:
    """Published rates of a GPU: dense bfloat16 and float32 operations per second, and bytes per second of memory."""

    name: str
    flops: float
    float32_flops: float
    bandwidth: float


GPUS = (GPU("H100 SXM", 989.4e12, 66.9e12, 3.35e12), GPU("H200 SXM", 989.4e12, 66.9e12, 4.8e12))
MATMUL, FLASH, FLEX, MASKED, FLOAT32, MEMORY = 0.7, 0.6, 0.45, 0.25, 0.7, 0.8
"""Assumed shares of the published rates that are reached: by matrix products, by attention in a flash kernel, in
FlexAttention and under a dense mask, by float32 products, and by memory traffic."""
LAUNCH = 4e-6
"""Assumed seconds from one kernel's launch to the next."""
BYTES = 2
"""Size of a bfloat16 number."""

DENSE, TREE = "dense mask", "tree attention"


@dataclass(frozen=True)
class PackCount:
    """What attention of one head computes for a pack.

    Attributes:
        tokens: Number n of the pack's tokens.
        context: Number c of the tokens before it.
        prefix: Number of the context's first tokens that the whole pack attends to.
        reads: Number of tokens whose logits are needed.
        dense: Pairs under a dense (n, c + n) mask.
        far: Pairs of the pack with the prefix.
        near: Pairs of the tiles that are not skipped.
        visible: Pairs that attend to each other, the least there are to compute.
    """

    tokens: int
    context: int
    prefix: int
    reads: int
    dense: int
    far: int
    near: int
    visible: int


def counted(rows: Sequence[Row], size: int) -> list[PackCount]:
    """Count the packs of at most ``size`` tokens in which rows run from a cold start."""
    ids, reads = [row.ids for row in rows], [list(row.reads) for row in rows]
    return [_count(pack) for pack in packs(ids, shared_lengths(rows), reads, size, known={}, kept={})]


def _count(pack: Pack) -> PackCount:
    n, c, p = len(pack.ids), len(pack.source), pack.prefix_length
    positions = np.concatenate([np.arange(p, c), pack.positions])
    tiles = Tiles(pack.ends[p:], positions, np.zeros(n, dtype=np.int64))
    places = len({place for place, _, _ in pack.reads})
    return PackCount(n, c, p, places, n * (c + n), n * p, tiles.pairs, int((pack.positions + 1).sum()))


@dataclass(frozen=True)
class Estimate:
    """Work of a path on all packs, and the seconds that a roofline gives."""

    flops: float
    bytes: float
    launches: int
    seconds: float


def estimate(shape: Shape, gpu: GPU, counts: Sequence[PackCount], path: str) -> Estimate:
    """Return the work and the time of all packs on a GPU."""
    parts = [_pack(shape, gpu, count, path) for count in counts]
    return Estimate(*(sum(values) for values in zip(*parts, strict=True)))  # type: ignore[arg-type]


def _pack(shape: Shape, gpu: GPU, count: PackCount, path: str) -> tuple[float, float, int, float]:
    """Return the operations, bytes, launches and seconds of one pack."""
    n, layer, keys = count.tokens, layer_cost(shape), 2 * shape.groups * shape.head * BYTES  # bytes of a token's KV
    queries = n * shape.heads * shape.head * BYTES  # bytes of the queries, and of the outputs
    per_pair = 4 * shape.heads * shape.head
    if path == DENSE:  # prefix and pack concatenated, KV heads repeated, one kernel; every head reads the mask
        repeated = (count.context + n) * keys * shape.heads // shape.groups
        mask = shape.heads * n * (count.context + n) * BYTES
        attention = [
            (per_pair * count.dense, MASKED, 3 * (count.context + n) * keys + 2 * repeated + mask + 2 * queries)
        ]
        launches = 5
    else:  # far without a mask, near by tiles, and the merge by log-sum-exp
        suffix = count.context - count.prefix + n
        far = (per_pair * count.far, FLASH, count.prefix * keys + 2 * queries)
        near = (per_pair * count.near, FLEX, 3 * suffix * keys + 2 * queries)
        attention = [far, near, (0, FLASH, 3 * queries)] if count.prefix else [near]
        launches = 8 if count.prefix else 3
    weights = (2 * shape.layer_weights * n, MATMUL, layer.pack_bytes + n * layer.token_bytes)
    memory = MEMORY * gpu.bandwidth
    seconds = shape.layers * sum(max(f / (gpu.flops * share), b / memory) for f, share, b in [weights, *attention])
    head = 2 * count.reads * shape.vocabulary * shape.hidden
    head_bytes = shape.vocabulary * shape.hidden * (BYTES + 4 + 4)  # converted to float32, then multiplied
    if count.reads:
        seconds += max(head / (gpu.float32_flops * FLOAT32), head_bytes / memory)
    launches = shape.layers * (layer.launches + launches)
    flops = shape.layers * sum(f for f, _, _ in [weights, *attention]) + head
    traffic = shape.layers * sum(b for _, _, b in [weights, *attention]) + (head_bytes if count.reads else 0)
    return flops, traffic, launches, max(seconds, launches * LAUNCH)


HEADINGS = ["workload", "path", "packs of", "tokens", "pairs / visible", "TFLOP", "GB moved", "launches"]
HEADINGS += [f"prompts/s, {gpu.name} (estimate)" for gpu in GPUS]


def report(folder: Path, names: Sequence[str], size: int, shape: Shape) -> str:
    """Return the section of a model's shape for RESULTS.md."""
    body, ratios = [], {}
    with TemporaryDirectory() as place:
        lm = LocalLM(str(model(folder, hidden=64, layers=1, vocabulary=8192, save_to=Path(place))), device="cpu")
        for name in names:
            work = WORKLOADS[name](folder, size)
            lines, ratios[work.name] = _rows(shape, work, rows_of([s for row in sequences(lm, work) for s in row]))
            body += lines
    fewer = "; ".join(f"{name}: {ratio:.1f} times" for name, ratio in ratios.items())
    memory = " and ".join(f"{gpu.bandwidth / 1e12:.2f} TB/s ({gpu.name})" for gpu in GPUS)
    notes = [
        f"{size} prompts a workload, from a cold start, in bfloat16; tokens of a BPE with 8192 entries. *Dense mask* "
        "is the path without tree attention, at the pack size chosen for it.",
        "Counted: packs, tokens, pairs of a query and a key (computed ones over those that attend to each other), "
        "operations, launches, and the bytes of operations that read their inputs and write their outputs once.",
        f"Assumed: of {GPUS[0].flops / 1e12:.0f} TFLOP/s, matrix products reach {MATMUL:.0%}, flash attention "
        f"{FLASH:.0%}, FlexAttention {FLEX:.0%} and attention under a dense mask {MASKED:.0%}; of "
        f"{GPUS[0].float32_flops / 1e12:.0f} TFLOP/s in float32, the output layer reaches {FLOAT32:.0%}; of {memory}, "
        f"memory traffic reaches {MEMORY:.0%}; a launch takes {LAUNCH * 1e6:.0f} microseconds; the host's own work is "
        "hidden behind the GPU's. Compiling kernels, once per process, is left out.",
        f"Fewer pairs by tree attention: {fewer}.",
    ]
    return "\n\n".join(
        [
            f"## Plan for GPUs: {shape.name} (an estimate: nothing here ran on a GPU)",
            "\n".join(f"- {note}" for note in notes),
            markdown(HEADINGS, body),
        ]
    )


def _rows(shape: Shape, work: Workload, rows: Sequence[Row]) -> tuple[list[list[str]], float]:
    """Return a workload's rows of the table, and the ratio of the pairs that both paths compute."""
    dense = max(SMALLEST_PACK, int(shape.weights / (8 * shape.hidden * shape.layers)))
    body, pairs = [], []
    for path, size in ((DENSE, dense), (TREE, gpu_pack_tokens(shape.weights, shape.layers))):
        counts = counted(rows, size)
        pairs.append(sum(c.dense if path == DENSE else c.far + c.near for c in counts))
        estimates = [estimate(shape, gpu, counts, path) for gpu in GPUS]
        work_done = estimates[0]
        body.append(
            [work.name, path, f"{size:,}", f"{sum(c.tokens for c in counts):,}"]
            + [f"{pairs[-1] / sum(c.visible for c in counts):.2f}", f"{work_done.flops / 1e12:.0f}"]
            + [f"{work_done.bytes / 1e9:.0f}", f"{work_done.launches:,}"]
            + [f"{len(work.prompts) / e.seconds:.0f}" for e in estimates]
        )
    return body, pairs[0] / pairs[1]
