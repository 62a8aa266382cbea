"""Judge probabilities a second, beside other ways to ask for them, in one run with interleaved repeats.

usage: python -m benchmarks.throughput [--sizes 64 256] [--repeats 5] [--hidden 512 --layers 8] [--write]

The model has random weights; the texts are read from EVALBIAS_DATA (default ../shared/data). All ways answer the same
prompts in the same process, one after the other, again and again; the table has medians, their ratios, tokens run over
distinct tokens, and the arithmetic of the distinct tokens in relation to what a matrix product reaches in the same run.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.likelihood_bias.table import markdown
from benchmarks.results import write_section
from benchmarks.throughput.ways import WAYS, applies, sequences
from benchmarks.throughput.workloads import WORKLOADS, Workload, model
from evalbias import LocalLM


def gemm(hidden: int) -> float:
    """GFLOP/s of a float32 matrix product of the model's own shape."""
    a, b = torch.randn(1024, hidden), torch.randn(hidden, 4 * hidden)
    started, rounds = time.perf_counter(), 0
    while time.perf_counter() - started < 0.5:
        a @ b
        rounds += 1
    return rounds * 2 * a.shape[0] * hidden * 4 * hidden / (time.perf_counter() - started) / 1e9


def timed(lm: LocalLM, work: Workload, repeats: int, hidden: int) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds of every way, interleaved, and the matrix product's rate before each round; answers must agree."""
    seconds: dict[str, list[float]] = {way: [] for way in WAYS if applies(way, work)}
    rates = []
    for _ in range(repeats):
        rates.append(gemm(hidden))
        answers = {}
        for way in seconds:
            started = time.perf_counter()
            answers[way] = WAYS[way](lm, work)
            seconds[way].append(time.perf_counter() - started)
        for found in answers.values():
            np.testing.assert_allclose(found, answers["evalbias"], atol=2e-3, rtol=1e-3)
    return seconds, rates


def rows(lm: LocalLM, work: Workload, repeats: int, hidden: int) -> list[list[str]]:
    """The table's rows of one workload."""
    WAYS["evalbias"](lm, work)  # warm
    before = lm.tokens_run, lm.tokens_distinct
    WAYS["evalbias"](lm, work)
    run, distinct = lm.tokens_run - before[0], lm.tokens_distinct - before[1]
    seconds, rates = timed(lm, work, repeats, hidden)
    medians = {way: statistics.median(values) for way, values in seconds.items()}
    weights = sum(p.numel() for p in lm.engine.loaded.model.base_model.layers.parameters())
    head = lm.engine.loaded.model.get_output_embeddings().weight.numel()
    read = {s.ids[:at] for row in sequences(lm, work) for s in row for at in range(s.start, len(s.ids))}
    floor = 2 * (weights * distinct + head * len(read)) / statistics.median(rates) / 1e9
    done = []
    for way, median in medians.items():
        own = way == "evalbias"
        done.append(
            [
                work.name,
                str(len(work.prompts)),
                way,
                f"{median:.2f} ({min(seconds[way]):.2f} to {max(seconds[way]):.2f})",
                f"{len(work.prompts) / median:.1f}",
                f"{median / medians['evalbias']:.2f}x",
                f"{run / distinct:.3f}" if own else "",
                f"{median / floor:.2f}" if own else "",
            ]
        )
    return done


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=[*WORKLOADS], default=[*WORKLOADS])
    parser.add_argument("--sizes", nargs="+", type=int, default=[64])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    folder = Path(os.environ.get("EVALBIAS_DATA", "../shared/data"))
    with tempfile.TemporaryDirectory() as place:
        options = {"hidden": args.hidden, "layers": args.layers, "vocabulary": args.vocabulary}
        path = model(folder, **options, save_to=Path(place))
        lm = LocalLM(str(path), device="cpu", dtype="float32")
        found = []
        for name in args.workloads:
            for size in args.sizes:
                found += rows(lm, WORKLOADS[name](folder, size), args.repeats, args.hidden)
                print(*found[-3:], sep="\n", flush=True)
        weights = sum(p.numel() for p in lm.engine.loaded.model.parameters())
    headings = ["workload", "prompts", "way", "seconds (range)", "prompts/s", "to ours", "run / distinct", "to floor"]
    text = "\n\n".join(
        [
            "## Throughput on a CPU",
            f"A Llama of random weights, {weights:,} parameters, float32, {torch.get_num_threads()} threads; medians "
            f"of {args.repeats} interleaved repeats, each from a cold start. The floor is the arithmetic of the "
            "distinct tokens' weights, and of the logits that are read, at a matrix product's rate in the same run; "
            "attention comes on top. Peak memory of the process: "
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB.",
            markdown(headings, found),
        ]
    )
    print(text)
    if args.write:
        write_section("throughput cpu", text)


if __name__ == "__main__":
    main()
