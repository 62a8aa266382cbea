"""Show where the engine's time goes on a CPU: matrix products, attention, other operators, Python.

usage: python -m benchmarks.throughput.breakdown [--workloads likelihood pointwise population] [--size 64] [--write]

torch's profiler adds up the time of the operators in one cold call of the model with random weights. The rate of the
matrix products and of attention, counted with the arithmetic that the distinct tokens need, stands relative to a plain
matrix product in the same run: what is missing to 100 % is out of reach for the engine unless it replaces torch's
kernels.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.likelihood_bias.table import markdown
from benchmarks.results import write_section
from benchmarks.throughput.__main__ import arithmetic, gemm
from benchmarks.throughput.methods import ours
from benchmarks.throughput.workloads import WORKLOADS, Workload, model
from evalbias import LocalLM
from evalbias.evaluation.words import count

PRODUCTS, ATTENTION, OTHERS = "matrix products", "attention", "other operators"
KINDS = {"aten::mm": PRODUCTS, "aten::addmm": PRODUCTS, "aten::bmm": PRODUCTS}
KINDS |= {"aten::_scaled_dot_product_flash_attention_for_cpu": ATTENTION}
HEADINGS = [
    "workload",
    "seconds",
    "matrix products",
    "their rate",
    "attention",
    "its rate",
    "other operators",
    "Python",
]


def seconds_by_kind(lm: LocalLM, work: Workload) -> tuple[float, Counter[str]]:
    """Return the seconds of one cold call, and of each kind of operator in it."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        started = time.perf_counter()
        ours(lm, work)
        whole = time.perf_counter() - started
    spent: Counter[str] = Counter()
    for event in profiled.key_averages():
        spent[KINDS.get(event.key, OTHERS)] += event.self_cpu_time_total / 1e6
    return whole, spent


def row(lm: LocalLM, work: Workload) -> list[str]:
    """Return a workload's row: shares of the time, and rates relative to a plain matrix product."""
    ours(lm, work)  # warm-up
    rate = gemm(lm.engine.loaded.model)
    whole, spent = seconds_by_kind(lm, work)
    needed = dict(zip((PRODUCTS, ATTENTION), arithmetic(lm, work), strict=True))
    cells = [work.name, f"{whole:.2f}"]
    for kind, gflop in needed.items():
        cells += [f"{spent[kind] / whole:.0%}", f"{gflop / spent[kind] / rate:.0%}"]
    return [*cells, f"{spent[OTHERS] / whole:.0%}", f"{1 - spent.total() / whole:.0%}"]


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    named = ("likelihood", "pointwise", "population")
    parser.add_argument("--workloads", nargs="+", choices=[*WORKLOADS], default=named)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    data = Path(os.environ.get("EVALBIAS_DATA", "../shared/data"))
    with tempfile.TemporaryDirectory() as place:
        folder = model(data, hidden=args.hidden, layers=args.layers, vocabulary=32_000, save_to=Path(place))
        lm = LocalLM(str(folder), device="cpu", dtype="float32")
        body = [row(lm, WORKLOADS[name](data, args.size)) for name in args.workloads]
    text = "\n\n".join(
        [
            "## Where the engine's time goes on a CPU",
            f"{args.size} prompts of each workload; a Llama with random weights, {args.layers} layers of width "
            f"{args.hidden}, float32, {count(torch.get_num_threads(), 'CPU thread')}; one cold call under torch's "
            "profiler. Rates count the arithmetic that the distinct tokens need, relative to a plain matrix product in "
            "the same run. Python includes the profiler's own time.",
            markdown(HEADINGS, body),
        ]
    )
    print(text)
    if args.write:
        write_section("breakdown", text)


if __name__ == "__main__":
    main()
