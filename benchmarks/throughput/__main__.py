"""Judge probabilities a second, beside other ways to ask for them, in one run with interleaved repeats.

The model has random weights; the texts are read from EVALBIAS_DATA (default ../shared/data). All ways answer the same
prompts, one after the other, again and again, each from a cold start, and their answers are compared. The table has
medians, their ratios, tokens run over distinct tokens, the arithmetic of the distinct tokens in relation to what a
matrix product reaches in the same run, and the memory of each way at its highest. vLLM takes part where
``make test-servers`` set it up, lm-evaluation-harness where it is installed; both are named as missing otherwise.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.likelihood_bias.table import markdown
from benchmarks.results import write_section
from benchmarks.servers import SERVERS, vllm
from benchmarks.throughput.memory import forget_peak, peak
from benchmarks.throughput.ways import HARNESS, OURS, SLOW, TITLES, VLLM, WAYS, Served, Way, applies, sequences
from benchmarks.throughput.workloads import WORKLOADS, Workload, model
from evalbias import LocalLM
from evalbias.lm.trie import shared

HEADINGS = ["prompts", "way", "seconds (range)", "prompts/s", "to ours", "run / distinct", "to floor"]
HEADINGS += ["GFLOP/s of GEMM's", "peak memory"]
ROWS = {"cpu": 1024, "cuda": 16_384}
"""Of a matrix product: about a pack's tokens."""
ALIKE = {torch.float32: 2e-3, torch.bfloat16: 0.2, torch.float16: 0.05}
"""Nats by which the ways' answers may differ; in 16 bits they do: see ``precision``."""


@dataclass
class Measured:
    """What was measured of a workload.

    Attributes:
        seconds: Of every way, repeat by repeat.
        memory: Of every way, the highest in bytes.
        rates: GFLOP/s of a matrix product before every repeat.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)


def gemm(model: Any) -> float:
    """GFLOP/s of a matrix product of the model's own shape, device and precision."""
    hidden, kind = model.config.hidden_size, {"device": model.device, "dtype": model.dtype}
    a, b = torch.randn(ROWS[model.device.type], hidden, **kind), torch.randn(hidden, 4 * hidden, **kind)
    started, rounds = time.perf_counter(), 0
    while time.perf_counter() - started < 0.5:
        product = a @ b
        float(product[0, 0])  # a GPU answers when it is done
        rounds += 1
    return rounds * 2 * a.shape[0] * hidden * 4 * hidden / (time.perf_counter() - started) / 1e9


def timed(lm: LocalLM, work: Workload, ways: Mapping[str, Way], repeats: int) -> Measured:
    """Every way on the workload, interleaved; answers must agree."""
    found, model = Measured(), lm.engine.loaded.model
    for _ in range(repeats):
        found.rates.append(gemm(model))
        answers = {}
        for name, way in ways.items():
            forget_peak(way, model.device)
            started = time.perf_counter()
            answers[name] = way(lm, work)
            found.seconds.setdefault(name, []).append(time.perf_counter() - started)
            found.memory[name] = max(found.memory.get(name, 0), peak(way, model.device))
        for told in answers.values():
            np.testing.assert_allclose(told, answers[OURS], atol=ALIKE[model.dtype], rtol=1e-3)
    return found


def arithmetic(lm: LocalLM, work: Workload) -> tuple[float, float]:
    """GFLOP that the distinct tokens take: of the weights and the logits that are read, and of attention."""
    model, scored = lm.engine.loaded.model, [s for row in sequences(lm, work) for s in row]
    weights = sum(p.numel() for p in model.base_model.layers.parameters())
    head = model.get_output_embeddings().weight.numel()
    read = {s.ids[:at] for s in scored for at in range(s.start, len(s.ids))}
    ids = [np.array(row) for row in sorted({s.ids[:-1] for s in scored})]
    distinct, pairs = 0, 0
    for row, length in zip(ids, shared(ids), strict=True):
        distinct += len(row) - length
        pairs += (len(row) * (len(row) + 1) - length * (length + 1)) // 2  # a token sees itself and what it follows
    config = model.config
    attention = 4 * pairs * config.hidden_size * config.num_hidden_layers
    return 2 * (weights * distinct + head * len(read)) / 1e9, attention / 1e9


def rows(lm: LocalLM, work: Workload, ways: Mapping[str, Way], repeats: int) -> list[list[str]]:
    """The table's rows of one workload."""
    ways[OURS](lm, work)  # warm
    before = lm.tokens_run, lm.tokens_distinct
    ways[OURS](lm, work)
    run, distinct = lm.tokens_run - before[0], lm.tokens_distinct - before[1]
    found = timed(lm, work, ways, repeats)
    medians = {name: statistics.median(values) for name, values in found.seconds.items()}
    gflop, attention = arithmetic(lm, work)
    rate = statistics.median(found.rates)
    done = []
    for name, median in medians.items():
        seconds, own = found.seconds[name], name == OURS
        done.append(
            [
                str(len(work.prompts)),
                TITLES[name],
                f"{median:.2f} ({min(seconds):.2f} to {max(seconds):.2f})",
                f"{len(work.prompts) / median:.1f}",
                f"{median / medians[OURS]:.2f}x",
                f"{run / distinct:.3f}" if own else "",
                f"{median * rate / gflop:.2f} ({median * rate / (gflop + attention):.2f})" if own else "",
                f"{(gflop + attention) / median:.0f} of {rate:.0f}" if own else "",
                f"{found.memory[name] / 2**20:.0f} MB",
            ]
        )
    return done


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=[*WORKLOADS], default=[*WORKLOADS])
    parser.add_argument("--sizes", nargs="+", type=int, default=[16, 64, 256])
    parser.add_argument("--most-of-slow", type=int, default=64, help="Prompts that the ways without sharing are given.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--ways", nargs="+", choices=[*TITLES], help="Beside ours; by default all there are.")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    folder = Path(os.environ.get("EVALBIAS_DATA", "../shared/data"))
    missing = []
    with ExitStack() as open_until_done:
        place = Path(open_until_done.enter_context(tempfile.TemporaryDirectory()))
        options = {"hidden": args.hidden, "layers": args.layers, "vocabulary": args.vocabulary}
        path = model(folder, **options, save_to=place)
        lm = LocalLM(str(path), device=args.device, dtype=args.dtype)
        ways: dict[str, Way] = {n: way for n, way in WAYS.items() if n == OURS or args.ways is None or n in args.ways}
        if HARNESS in ways and find_spec("lm_eval") is None:
            missing.append(f"{TITLES[HARNESS]} (pip install 'evalbias[bench]')")
            del ways[HARNESS]
        if args.device == "cpu" and (args.ways is None or VLLM in args.ways):  # the server is vLLM's for CPUs
            if (SERVERS / "vllm/.installed").exists():
                ways[VLLM] = Served(*open_until_done.enter_context(vllm(path, length=4096, space=4)))
            else:
                missing.append(f"{TITLES[VLLM]} (make test-servers)")
        for name in args.workloads:
            found = []
            for size in args.sizes:
                work = WORKLOADS[name](folder, size)
                asked = {
                    n: w for n, w in ways.items() if applies(n, work) and (size <= args.most_of_slow or n not in SLOW)
                }
                found += rows(lm, work, asked, args.repeats)
                print(*found[-len(asked) :], sep="\n", file=sys.stderr, flush=True)
            text = section(lm, work.name, found, args.repeats, missing)
            print(text, flush=True)
            if args.write:
                write_section(f"throughput {args.device} {name}", text)


def section(lm: LocalLM, name: str, found: list[list[str]], repeats: int, missing: list[str]) -> str:
    """A workload's part of RESULTS.md."""
    model = lm.engine.loaded.model
    weights, dtype = sum(p.numel() for p in model.parameters()), str(model.dtype).removeprefix("torch.")
    where = f"{torch.get_num_threads()} threads"
    if model.device.type == "cuda":
        where = torch.cuda.get_device_name(model.device)
    return "\n\n".join(
        [
            f"## Throughput on {'a CPU' if model.device.type == 'cpu' else where}: {name}",
            f"A Llama of random weights, {weights:,} parameters, {dtype}, {where}; medians "
            f"of {repeats} interleaved repeats, each from a cold start. The floor is the arithmetic of the "
            "distinct tokens' weights, and of the logits that are read, at a matrix product's rate in the same run; in "
            "brackets with attention, which these prompts cannot do without. GFLOP/s count both, beside the matrix "
            "product's. Memory is that of the way's own processes, or of the GPU; vLLM's holds 4 GiB for its cache."
            + (f" Missing: {', '.join(missing)}." if missing else ""),
            markdown(HEADINGS, found),
        ]
    )


if __name__ == "__main__":
    main()
