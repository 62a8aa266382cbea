"""Try weights of 8 bits on a CPU: how much faster the engine is with torch's quantized linear layers, and how far off.

usage: python -m benchmarks.throughput.int8 [--models "SmolLM2" "Gemma 3"] [--prompts 16] [--repeats 3] [--write]

The models come from ``make models``. The linear layers get weights of 8 bits with a scale for each output channel, and
activations of 8 bits with a scale for each call. The same prompts are answered in turns, each time from a cold start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

from benchmarks.likelihood_bias.table import markdown
from benchmarks.pretrained import models_folder
from benchmarks.results import write_section
from benchmarks.throughput.methods import ours
from benchmarks.throughput.precision import expected
from benchmarks.throughput.real import MODELS
from benchmarks.throughput.workloads import Workload, pointwise
from evalbias import LocalLM
from evalbias.evaluation.words import count

EXACT, HALF, EIGHT = "float32", "bfloat16", "int8"
HEADINGS = ["model", "weights", "seconds (range)", "times as fast as float32", "largest deviation in nats"]
HEADINGS += ["mean deviation in nats", "largest deviation of a score"]


def opened(file: str, weights: str) -> LocalLM:
    """Load a model with weights of 32, 16 or 8 bits."""
    lm = LocalLM(file, device="cpu", dtype=HALF if weights == HALF else EXACT)
    if weights == EIGHT:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.ao is deprecated in favor of torchao
            layers = {torch.nn.Linear: per_channel_dynamic_qconfig}
            quantize_dynamic(lm.engine.loaded.model.base_model, layers, dtype=torch.qint8, inplace=True)
    return lm


def rows(file: str, title: str, work: Workload, repeats: int) -> list[list[str]]:
    """Time the three on a workload in turns, and compare their answers."""
    models = {weights: opened(file, weights) for weights in (EXACT, HALF, EIGHT)}
    seconds: dict[str, list[float]] = {weights: [] for weights in models}
    answers = {weights: np.array(ours(lm, work)) for weights, lm in models.items()}
    for _ in range(repeats):
        for weights, lm in models.items():
            started = time.perf_counter()
            ours(lm, work)
            seconds[weights].append(time.perf_counter() - started)
    medians = {weights: statistics.median(spent) for weights, spent in seconds.items()}
    body = []
    for weights, spent in seconds.items():
        off = np.abs(answers[weights] - answers[EXACT])
        scores = np.abs(expected(answers[weights]) - expected(answers[EXACT]))
        deviations = [""] * 3 if weights == EXACT else [f"{v:.2g}" for v in (off.max(), off.mean(), scores.max())]
        times = f"{medians[weights]:.2f} ({min(spent):.2f} to {max(spent):.2f})"
        body.append([title, weights, times, f"{medians[EXACT] / medians[weights]:.2f}", *deviations])
    return body


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=[*MODELS], default=[*MODELS])
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    work = pointwise(Path(os.environ.get("EVALBIAS_DATA", "../shared/data")), args.prompts)
    body = []
    for title in args.models:
        body += rows(str(models_folder() / MODELS[title]), title, work, args.repeats)
    text = "\n\n".join(
        [
            "## Weights of 8 bits on a CPU",
            f"{args.prompts} prompts of the 8-shot pointwise workload on "
            f"{count(torch.get_num_threads(), 'CPU thread')}; medians of {args.repeats} interleaved repeats, "
            f"each from a cold start. int8 is torch's dynamic quantization ({torch.backends.quantized.engine}) of all "
            "linear layers but the head. It was to become an option of LocalLM from 1.4 times the speed of float32 "
            "on, with answers no farther off than those of bfloat16.",
            markdown(HEADINGS, body),
        ]
    )
    print(text)
    if args.write:
        write_section("int8", text)


if __name__ == "__main__":
    main()
