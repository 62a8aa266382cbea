"""Measure the throughput on a real pretrained model beside what a user would pick instead, in one interleaved run.

usage: python -m benchmarks.throughput.real [--models "SmolLM2" "Gemma 3"] [--workloads pointwise population llmbar]
           [--size 64] [--slow-size 16] [--repeats 3] [--threads N] [--methods NAME ...] [--write]

The models come from ``make models``, the servers from ``make test-servers``; what is missing is named. Every method
answers the same prompts from a cold start. Those in 32 bits must agree; for files and arithmetic of fewer bits, the
table has the largest deviation of a log-probability from evalbias in 32 bits, which computes with the same file's
weights. llama.cpp shares the beginning of a prompt with the one before it, which the order of the prompts allows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from benchmarks.likelihood_bias.table import markdown
from benchmarks.pretrained import GEMMA3, SMOLLM2, models_folder
from benchmarks.results import write_section
from benchmarks.servers import SERVERS, Server, llama_file, requantized, vllm
from benchmarks.throughput.memory import peak, reset_peak
from benchmarks.throughput.methods import (
    GENERATE,
    HARNESS,
    LLAMA,
    METHODS,
    OURS,
    PUBLISHED,
    SLOW,
    TITLES,
    VLLM,
    LlamaMethod,
    Method,
    ServerMethod,
    applies,
    ours,
)
from benchmarks.throughput.workloads import WORKLOADS, Workload
from evalbias import LocalLM
from evalbias.lm.files import unpacked

MODELS = {"SmolLM2": SMOLLM2, "Gemma 3": GEMMA3}
HALF = "bfloat16"
TOLERANCE = 2e-3
"""Largest difference in nats between methods that compute in 32 bits."""
CONTEXT = 4096
HEADINGS = ["prompts", "method", "weights", "seconds (range)", "prompts/s", "time / evalbias", "deviation in nats"]
HEADINGS += ["peak memory"]


@dataclass(frozen=True)
class Contender:
    """A method with its weights.

    Attributes:
        title: What the table calls it.
        weights: Format of the weights it computes with.
        run: The method.
        exact: Whether its answers must agree with evalbias in 32 bits.
        size: Number of prompts that it answers; fewer for methods that share no prefix.
    """

    title: str
    weights: str
    run: Method
    exact: bool
    size: int


@dataclass
class Measured:
    """Measurements of one contender.

    Attributes:
        seconds: Time of every repeat.
        memory: Peak memory in bytes.
        deviation: Largest difference of a log-probability from evalbias in 32 bits, in nats.
    """

    seconds: list[float] = field(default_factory=list)
    memory: int = 0
    deviation: float = 0.0


def measured(lm: LocalLM, work: Workload, contenders: Mapping[str, Contender], repeats: int) -> dict[str, Measured]:
    """Time the contenders in turns on the workload."""
    results = {name: Measured() for name in contenders}
    device = lm.engine.loaded.model.device
    for _ in range(repeats):
        truth = np.empty(0)
        for name, one in contenders.items():  # evalbias is the first
            reset_peak(one.run, device)
            started = time.perf_counter()
            answers = np.array(one.run(lm, work))
            results[name].seconds.append(time.perf_counter() - started)
            results[name].memory = max(results[name].memory, peak(one.run, device))
            truth = answers if name == OURS else truth
            deviation = float(np.abs(answers - truth).max())
            if one.exact and deviation > TOLERANCE * max(1.0, float(np.abs(truth).max())):
                raise AssertionError(f"{one.title} deviates by {deviation:.2g} nats on {work.name}.")
            results[name].deviation = max(results[name].deviation, deviation)
    return results


def rows(work: Workload, contenders: Mapping[str, Contender], results: Mapping[str, Measured]) -> list[list[str]]:
    """Return the table's rows."""
    own = statistics.median(results[OURS].seconds)
    body = []
    for name, result in results.items():
        median = statistics.median(result.seconds)
        body.append(
            [
                str(len(work.prompts)),
                contenders[name].title,
                contenders[name].weights,
                f"{median:.2f} ({min(result.seconds):.2f} to {max(result.seconds):.2f})",
                f"{len(work.prompts) / median:.1f}",
                f"{median / own:.2f}x",
                "" if name == OURS else f"{result.deviation:.1e}",
                f"{result.memory / 2**20:.0f} MB",
            ]
        )
    return body


def contenders_of(
    file: Path, size: int, slow_size: int, chosen: Sequence[str] | None, place: Path, until_done: ExitStack
) -> tuple[LocalLM, dict[str, Contender], list[str]]:
    """Load a model in every method; return ours in 32 bits, the contenders, and the names of those missing."""
    wanted = [OURS, HALF, *(n for n in METHODS if n != OURS), VLLM, LLAMA] if chosen is None else [OURS, *chosen]
    lm = LocalLM(str(file), dtype="float32")
    missing = []
    contenders = {OURS: Contender(TITLES[OURS], "float32", ours, True, size)}
    if HALF in wanted:
        half = LocalLM(str(file), dtype=HALF)
        contenders[HALF] = Contender(TITLES[OURS], HALF, lambda _, work: ours(half, work), False, size)
    for name in (PUBLISHED, GENERATE, HARNESS):
        if name == HARNESS and find_spec("lm_eval") is None:
            missing += [f"{TITLES[HARNESS]} (pip install 'evalbias[bench]')"] * (name in wanted)
        elif name in wanted:
            contenders[name] = Contender(TITLES[name], "float32", METHODS[name], True, slow_size)
    folder = unpacked(str(file))
    if VLLM in wanted and (SERVERS / "vllm/.installed").exists():
        server = until_done.enter_context(vllm(Path(folder), length=CONTEXT, space=2))
        contenders[VLLM] = Contender(TITLES[VLLM], "float32", ServerMethod(*server, tokenizer=folder), True, size)
    elif VLLM in wanted:
        missing.append(f"{TITLES[VLLM]} (make test-servers)")
    if LLAMA in wanted and (SERVERS / "llama/bin/llama-quantize").exists():
        for kind, path in _precisions(file, place).items():
            method = LlamaMethod(*until_done.enter_context(_llama(path, place)), tokenizer=folder)
            contenders[f"{LLAMA} {kind}"] = Contender(TITLES[LLAMA], kind, method, False, size)
    elif LLAMA in wanted:
        missing.append("llama.cpp's server (make test-servers)")
    return lm, contenders, missing


def _precisions(file: Path, place: Path) -> dict[str, Path]:
    """Return the file as it is, and in 8 and 32 bits."""
    kind = file.stem.rsplit(".", 1)[-1].rsplit("-", 1)[-1].upper()
    return {kind: file, "Q8_0": requantized(file, "Q8_0", place), "F32": requantized(file, "F32", place)}


def _llama(file: Path, place: Path) -> AbstractContextManager[Server]:
    """Start llama.cpp's server with one slot, which shares the beginning of every prompt with the one before."""
    slots = place / f"{file.stem}.slots"
    slots.mkdir()
    threads = torch.get_num_threads()
    options = ["--ctx-size", CONTEXT, "--parallel", 1, "--threads", threads, "--threads-batch", threads]
    return llama_file(file, [*options, "--cache-ram", 0, "--slot-save-path", f"{slots}/"])


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=[*MODELS], default=[*MODELS])
    parser.add_argument("--workloads", nargs="+", choices=[*WORKLOADS], default=["pointwise", "population", "llmbar"])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--slow-size", type=int, default=16, help="prompts for methods that share no prefix")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of every method")
    parser.add_argument("--methods", nargs="+", choices=[HALF, *SLOW, VLLM, LLAMA], help="default: all")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # the servers inherit it
    data = Path(os.environ.get("EVALBIAS_DATA", "../shared/data"))
    for name in args.models:
        with ExitStack() as until_done:
            place = Path(until_done.enter_context(tempfile.TemporaryDirectory()))
            file = models_folder() / MODELS[name]
            lm, contenders, missing = contenders_of(file, args.size, args.slow_size, args.methods, place, until_done)
            body = []
            for workload in args.workloads:
                body += _workload(lm, WORKLOADS[workload], data, contenders, args.repeats)
            text = section(name, lm, body, args.repeats, missing)
            print(text, flush=True)
            if args.write:
                write_section(f"throughput {name}", text)


def _workload(
    lm: LocalLM,
    make: Callable[[Path, int], Workload],
    data: Path,
    contenders: Mapping[str, Contender],
    repeats: int,
) -> list[list[str]]:
    """Measure a workload: at the full size, and at the smaller one together with the methods that need it."""
    body = []
    for size in sorted({one.size for one in contenders.values()}):
        work = make(data, size)
        able = {key: one for key, one in contenders.items() if applies(key.split()[0], work)}
        taking_part = {key: one for key, one in able.items() if one.size == size or key == OURS}
        added = rows(work, taking_part, measured(lm, work, taking_part, repeats))
        body += [[work.name, *row] for row in added]
        print(*added, sep="\n", file=sys.stderr, flush=True)
    return body


def section(name: str, lm: LocalLM, body: list[list[str]], repeats: int, missing: list[str]) -> str:
    """Return a model's section for RESULTS.md."""
    weights = sum(p.numel() for p in lm.engine.loaded.model.parameters())
    text = (
        f"{lm.model}, {weights:,} parameters, {torch.get_num_threads()} threads; medians of {repeats} interleaved "
        "repeats, each from a cold start. *Deviation* is the largest difference of a log-probability from evalbias in "
        "float32. Memory is the peak of the method's own processes; vLLM's includes 2 GiB for its KV cache."
    )
    if missing:
        text += f" Missing: {', '.join(missing)}."
    return "\n\n".join([f"## Throughput on a CPU: {name}", text, markdown(["workload", *HEADINGS], body)])


if __name__ == "__main__":
    main()
