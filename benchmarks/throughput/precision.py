"""Measure how much answers depend on the batch and on the precision: float32, bfloat16 and float16.

usage: python -m benchmarks.throughput.precision [--prompts 32] [--write]

The same judge prompts are answered in one batch, one by one, and without shared prefixes, each time from a cold start.
The table has the largest differences, in nats of a choice's log-probability and in points of an expected score from 1
to 5.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.likelihood_bias.table import markdown
from benchmarks.results import write_section
from benchmarks.throughput.methods import measured
from benchmarks.throughput.workloads import Workload, model, pointwise
from evalbias import LocalLM
from evalbias.measures.arrays import FloatArray

DTYPES = ("float32", "bfloat16", "float16")
HEADINGS = ["dtype", "one by one against one batch", "without against with shared prefixes"]
HEADINGS += ["against float32", "score against float32"]


def answers(folder: Path, work: Workload, dtype: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return (n, c) log-probabilities in one batch, one by one, and without shared prefixes."""
    lm = LocalLM(str(folder), device="cpu", dtype=dtype)
    batch, single = np.array(measured(lm, work)), []
    for prompt, choices in zip(work.prompts, work.choices, strict=True):
        lm.forget()
        single.append(measured(lm, Workload(work.name, [prompt], [choices]))[0])
    unshared = LocalLM(str(folder), device="cpu", dtype=dtype, share_prefixes=False)
    return batch, np.array(single), np.array(measured(unshared, work))


def expected(logprobs: FloatArray) -> FloatArray:
    """Return (n,) expected scores from 1 to c."""
    shares = np.exp(logprobs - logprobs.max(axis=1, keepdims=True))
    scores: FloatArray = shares @ np.arange(1, logprobs.shape[1] + 1) / shares.sum(axis=1)
    return scores


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    data = Path(os.environ.get("EVALBIAS_DATA", "../shared/data"))
    work, rows, exact = pointwise(data, args.prompts), [], None
    with tempfile.TemporaryDirectory() as place:
        folder = model(data, hidden=args.hidden, layers=args.layers, vocabulary=32_000, save_to=Path(place))
        for dtype in DTYPES:
            batch, single, unshared = answers(folder, work, dtype)
            exact = batch if exact is None else exact
            differences = (single - batch, unshared - batch, batch - exact, expected(batch) - expected(exact))
            rows.append([dtype, *(f"{np.abs(d).max():.1e}" for d in differences)])
    text = "\n\n".join(
        [
            "## Precision",
            f"{args.prompts} prompts of the 8-shot pointwise workload on a CPU; a Llama with random weights, "
            f"{args.layers} layers of width {args.hidden}. The figures are the largest differences in nats; those of "
            "the score are in points from 1 to 5. In 16 bits, the rounding that depends on the batch is about as large "
            "as the error of the 16 bits themselves.",
            markdown(HEADINGS, rows),
        ]
    )
    print(text)
    if args.write:
        write_section("precision", text)


if __name__ == "__main__":
    main()
