"""Measure the throughput of judge probabilities against other methods, in one run with interleaved repeats.

The model has random weights; the texts are read from EVALBIAS_DATA (default ../shared/data). All methods answer the
same prompts in turns, each time from a cold start, and their answers must agree. The table has the median times, their
ratios, processed over distinct tokens, the arithmetic of the distinct tokens relative to the rate of a matrix product
in the same run, and the peak memory of each method. vLLM takes part if ``make test-servers`` has set it up,
lm-evaluation-harness if it is installed; otherwise the report names them as missing. ``--plan`` measures nothing: it
counts the work and estimates the throughput on GPUs (``plan.py``).
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
from benchmarks.throughput.memory import peak, reset_peak
from benchmarks.throughput.methods import (
    HARNESS,
    METHODS,
    OURS,
    SLOW,
    TITLES,
    VLLM,
    Method,
    ServerMethod,
    applies,
    sequences,
)
from benchmarks.throughput.plan import report
from benchmarks.throughput.shapes import SHAPES
from benchmarks.throughput.workloads import WORKLOADS, Workload, model
from evalbias import LocalLM
from evalbias.lm.tree import shared

HEADINGS = ["prompts", "method", "seconds (range)", "prompts/s", "time / evalbias", "processed / distinct tokens"]
HEADINGS += ["time / floor", "GFLOP/s of matrix product", "peak memory"]
ROWS = {"cpu": 1024, "cuda": 16_384}
"""Device -> rows of the timed matrix product: about as many as a batch has tokens."""
TOLERANCES = {torch.float32: 2e-3, torch.bfloat16: 0.2, torch.float16: 0.05}
"""Dtype -> largest difference in nats between the methods' answers; for 16 bits see ``precision``."""


@dataclass
class Timings:
    """Measurements of one workload.

    Attributes:
        seconds: Method -> time of every repeat.
        memory: Method -> peak memory in bytes.
        rates: GFLOP/s of a matrix product before every repeat.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)


def gemm(model: Any) -> float:
    """Measure the GFLOP/s of a matrix product with the model's shape, device and precision."""
    hidden, kind = model.config.hidden_size, {"device": model.device, "dtype": model.dtype}
    a, b = torch.randn(ROWS[model.device.type], hidden, **kind), torch.randn(hidden, 4 * hidden, **kind)
    started, rounds = time.perf_counter(), 0
    while time.perf_counter() - started < 0.5:
        product = a @ b
        float(product[0, 0])  # waits for a GPU to finish
        rounds += 1
    return rounds * 2 * a.shape[0] * hidden * 4 * hidden / (time.perf_counter() - started) / 1e9


def timed(lm: LocalLM, work: Workload, methods: Mapping[str, Method], repeats: int) -> Timings:
    """Time every method on the workload, interleaved; their answers must agree."""
    timings, model = Timings(), lm.engine.loaded.model
    for _ in range(repeats):
        timings.rates.append(gemm(model))
        answers = {}
        for name, method in methods.items():
            reset_peak(method, model.device)
            started = time.perf_counter()
            answers[name] = method(lm, work)
            timings.seconds.setdefault(name, []).append(time.perf_counter() - started)
            timings.memory[name] = max(timings.memory.get(name, 0), peak(method, model.device))
        for values in answers.values():
            np.testing.assert_allclose(values, answers[OURS], atol=TOLERANCES[model.dtype], rtol=1e-3)
    return timings


def arithmetic(lm: LocalLM, work: Workload) -> tuple[float, float]:
    """Return the GFLOP of the distinct tokens: of the weights with the logits that are read, and of attention."""
    model, scored = lm.engine.loaded.model, [s for row in sequences(lm, work) for s in row]
    weights = sum(p.numel() for p in model.base_model.layers.parameters())
    head = model.get_output_embeddings().weight.numel()
    read = {s.ids[:at] for s in scored for at in range(s.start, len(s.ids))}
    ids = [np.array(row) for row in sorted({s.ids[:-1] for s in scored})]
    distinct, pairs = 0, 0
    for row, length in zip(ids, shared(ids), strict=True):
        distinct += len(row) - length
        pairs += (len(row) * (len(row) + 1) - length * (length + 1)) // 2  # a token attends to itself and all before it
    config = model.config
    attention = 4 * pairs * config.hidden_size * config.num_hidden_layers
    return 2 * (weights * distinct + head * len(read)) / 1e9, attention / 1e9


def rows(lm: LocalLM, work: Workload, methods: Mapping[str, Method], repeats: int) -> list[list[str]]:
    """Return the table's rows of one workload, one per method."""
    methods[OURS](lm, work)  # warm-up
    before = lm.tokens_run, lm.tokens_distinct
    methods[OURS](lm, work)
    run, distinct = lm.tokens_run - before[0], lm.tokens_distinct - before[1]
    timings = timed(lm, work, methods, repeats)
    medians = {name: statistics.median(values) for name, values in timings.seconds.items()}
    gflop, attention = arithmetic(lm, work)
    rate = statistics.median(timings.rates)
    body = []
    for name, median in medians.items():
        seconds, own = timings.seconds[name], name == OURS
        body.append(
            [
                str(len(work.prompts)),
                TITLES[name],
                f"{median:.2f} ({min(seconds):.2f} to {max(seconds):.2f})",
                f"{len(work.prompts) / median:.1f}",
                f"{median / medians[OURS]:.2f}x",
                f"{run / distinct:.3f}" if own else "",
                f"{median * rate / gflop:.2f} ({median * rate / (gflop + attention):.2f})" if own else "",
                f"{(gflop + attention) / median:.0f} of {rate:.0f}" if own else "",
                f"{timings.memory[name] / 2**20:.0f} MB",
            ]
        )
    return body


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=[*WORKLOADS], default=[*WORKLOADS])
    parser.add_argument("--sizes", nargs="+", type=int, default=[16, 64, 256])
    parser.add_argument("--slow-limit", type=int, default=64, help="largest size for methods without shared prefixes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--methods", nargs="+", choices=[*METHODS, VLLM], help="methods besides evalbias; default: all")
    parser.add_argument("--plan", nargs="?", choices=[*SHAPES], const="Llama-3.1-8B", help="estimate GPUs instead")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    folder = Path(os.environ.get("EVALBIAS_DATA", "../shared/data"))
    if args.plan:
        text = report(folder, args.workloads, max(args.sizes), SHAPES[args.plan])
        print(text)
        if args.write:
            write_section(f"throughput plan {args.plan}", text, found="Counted and estimated")
        return
    missing = []
    with ExitStack() as open_until_done:
        place = Path(open_until_done.enter_context(tempfile.TemporaryDirectory()))
        options = {"hidden": args.hidden, "layers": args.layers, "vocabulary": args.vocabulary}
        path = model(folder, **options, save_to=place)
        lm = LocalLM(str(path), device=args.device, dtype=args.dtype)
        chosen = {*TITLES} if args.methods is None else {OURS, *args.methods}
        methods: dict[str, Method] = {name: method for name, method in METHODS.items() if name in chosen}
        if HARNESS in methods and find_spec("lm_eval") is None:
            missing.append(f"{TITLES[HARNESS]} (pip install 'evalbias[bench]')")
            del methods[HARNESS]
        if args.device == "cpu" and VLLM in chosen:  # the installed vLLM runs on CPUs
            if (SERVERS / "vllm/.installed").exists():
                methods[VLLM] = ServerMethod(*open_until_done.enter_context(vllm(path, length=4096, space=4)))
            else:
                missing.append(f"{TITLES[VLLM]} (make test-servers)")
        for name in args.workloads:
            body = []
            for size in args.sizes:
                work = WORKLOADS[name](folder, size)
                usable = {
                    key: method
                    for key, method in methods.items()
                    if applies(key, work) and (size <= args.slow_limit or key not in SLOW)
                }
                body += rows(lm, work, usable, args.repeats)
                print(*body[-len(usable) :], sep="\n", file=sys.stderr, flush=True)
            text = section(lm, work.name, body, args.repeats, missing)
            print(text, flush=True)
            if args.write:
                write_section(f"throughput {args.device} {name}", text)


def section(lm: LocalLM, name: str, body: list[list[str]], repeats: int, missing: list[str]) -> str:
    """Return a workload's section for RESULTS.md."""
    model = lm.engine.loaded.model
    weights, dtype = sum(p.numel() for p in model.parameters()), str(model.dtype).removeprefix("torch.")
    where = f"{torch.get_num_threads()} threads"
    if model.device.type == "cuda":
        where = torch.cuda.get_device_name(model.device)
    return "\n\n".join(
        [
            f"## Throughput on {'a CPU' if model.device.type == 'cpu' else where}: {name}",
            f"A Llama with random weights, {weights:,} parameters, {dtype}, {where}; medians of {repeats} interleaved "
            "repeats, each from a cold start. The floor is the time of the distinct tokens' arithmetic (weights, and "
            "the logits that are read) at the rate of a matrix product in the same run; in brackets, the floor "
            "includes attention. GFLOP/s include attention and stand next to the rate of the matrix product. Memory is "
            "the peak of the GPU, or of the method's own processes; vLLM's includes 4 GiB for its KV cache."
            + (f" Missing: {', '.join(missing)}." if missing else ""),
            markdown(HEADINGS, body),
        ]
    )


if __name__ == "__main__":
    main()
