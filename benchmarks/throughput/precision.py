"""How far answers depend on the batch, and on the precision: float32, bfloat16 and float16 beside each other.

usage: python -m benchmarks.throughput.precision [--prompts 32] [--write]

The same judge prompts are asked together, each alone, and without sharing, each from a cold start; the table has the
largest differences, in nats of a choice's log-probability and in points of an expected score on the scale of 1 to 5.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.likelihood_bias.table import markdown
from benchmarks.results import write_section
from benchmarks.throughput.ways import asked
from benchmarks.throughput.workloads import Workload, model, pointwise
from evalbias import LocalLM
from evalbias.lm.types import FloatArray

DTYPES = ("float32", "bfloat16", "float16")
HEADINGS = ["dtype", "alone to together", "unshared to together", "to float32", "score to float32"]


def answers(folder: Path, work: Workload, dtype: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log-probabilities (n, c) asked together, each alone, and without sharing."""
    lm = LocalLM(str(folder), device="cpu", dtype=dtype)
    together, alone = np.array(asked(lm, work)), []
    for prompt, choices in zip(work.prompts, work.choices, strict=True):
        lm.forget()
        alone.append(asked(lm, Workload(work.name, [prompt], [choices]))[0])
    unshared = LocalLM(str(folder), device="cpu", dtype=dtype, share_prefixes=False)
    return together, np.array(alone), np.array(asked(unshared, work))


def expected(logprobs: FloatArray) -> FloatArray:
    """(n,) scores from 1 to c."""
    shares = np.exp(logprobs - logprobs.max(axis=1, keepdims=True))
    scores: FloatArray = shares @ np.arange(1, logprobs.shape[1] + 1) / shares.sum(axis=1)
    return scores


def main() -> None:
    """Read the command line."""
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
            together, alone, unshared = answers(folder, work, dtype)
            exact = together if exact is None else exact
            differences = (
                alone - together,
                unshared - together,
                together - exact,
                expected(together) - expected(exact),
            )
            rows.append([dtype, *(f"{np.abs(d).max():.1e}" for d in differences)])
    text = "\n\n".join(
        [
            "## Precision",
            f"{args.prompts} prompts of the 8-shot pointwise workload on a CPU, a Llama of random weights with "
            f"{args.layers} layers of {args.hidden}; largest differences, in nats and in points of 1 to 5. In 16 bits "
            "an answer depends on what it is asked with by rounding, about as much as on the 16 bits themselves.",
            markdown(HEADINGS, rows),
        ]
    )
    print(text)
    if args.write:
        write_section("precision", text)


if __name__ == "__main__":
    main()
