"""DSPy's overhead: ``judge.batch`` against ``dspy.Evaluate`` with threads, on a model of negligible cost.

usage: python -m benchmarks.dspy_overhead [--items 1000] [--repeats 5] [--write]

A second table shows what rendering and tokenizing cost as a share of a cold call of a pretrained model
(``make models``): 8-shot pointwise prompts on WebNLG.

Both judge the same items of the synthetic world with the same eight demonstrations, in turns, without a cache. Memory
is the growth of the process from the 2,000th to the 20,000th judgment, with all scores kept.
"""

from __future__ import annotations

import logging
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import evalbias
from benchmarks.harness import argument_parser, finish, markdown
from benchmarks.pretrained import models_folder
from benchmarks.workloads import Workload, pointwise
from evalbias import LocalLM
from evalbias.data import world
from evalbias.lm.tokens import choice_sequences
from evalbias.optimizers.likelihood import draw_demos, rated_items, with_demos
from evalbias.programs.criterion import SYNTHETIC

RENDERING, TOKENIZING, CALL = "rendering", "tokenizing", "whole call"


def preparation(lm: LocalLM, work: Workload, repeats: int) -> dict[str, list[float]]:
    """Measure the CPU milliseconds a prompt of rendering, of tokenizing, and of a whole call from a cold start.

    CPU time of all threads is measured, so that other processes on the machine do not count. The parts take turns. The
    prompts have the same choices.
    """
    engine, choices = lm.engine, work.choices[0]
    rendered = [engine.render(prompt) for prompt in work.prompts]
    steps: dict[str, Callable[[], object]] = {
        RENDERING: lambda: [engine.render(prompt) for prompt in work.prompts],
        TOKENIZING: lambda: choice_sequences(engine.tokenizer, rendered, choices),
        CALL: lambda: lm.choice_logprobs(work.prompts, choices),
    }
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            lm.engine.scorer.prefixes.clear()
            started = time.process_time()
            step()
            spent[name].append(1e3 * (time.process_time() - started) / len(work.prompts))
    return spent


THREADS = 16


def small_model(folder: Path) -> evalbias.LocalLM:
    """Return a model with one layer of random weights and the embedded judge's tokenizer."""
    tokenizer = evalbias.embedded_judge_lm().engine.loaded.tokenizer
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=4096, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)
    return evalbias.LocalLM(str(folder), device="cpu", dtype="float32", cache=False)


def rates(judge: Any, lm: Any, items: list[dspy.Example], repeats: int) -> dict[str, list[float]]:
    """Measure the judgments per second of both methods in turns; their scores must agree."""
    by_method: dict[str, list[float]] = {"judge.batch": [], f"dspy.Evaluate, {THREADS} threads": []}
    how = {"num_threads": THREADS, "display_progress": False}
    evaluate = dspy.Evaluate(devset=items, metric=lambda _, result, __=None: result.score, **how)
    batch, threads = by_method.values()
    for _ in range(repeats):
        started = time.perf_counter()
        predictions = judge.batch(items, lm=lm)
        batch.append(len(items) / (time.perf_counter() - started))
        started = time.perf_counter()
        evaluated = evaluate(judge).results
        threads.append(len(items) / (time.perf_counter() - started))
        assert all(abs(a.score - b[1].score) < 1e-4 for a, b in zip(predictions, evaluated, strict=True))
    return by_method


def growth(judge: Any, lm: Any, items: list[dspy.Example]) -> float:
    """Measure the growth of the process in bytes per judgment, from the 2,000th to the 20,000th."""
    kept: list[float] = []
    marks = []
    for count in (2_000, 18_000):
        for start in range(0, count, 1_000):
            kept += [p.score for p in judge.batch(items[: min(1_000, count - start)], lm=lm)]
        marks.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
    return (marks[1] - marks[0]) / 18_000


def prepared(name: str, prompts: int, repeats: int) -> str:
    """Measure rendering and tokenizing on a pretrained model; return a paragraph and a table."""
    lm = evalbias.LocalLM(str(models_folder() / name), device="cpu", dtype="float32", cache=False)
    work = pointwise(prompts)
    spent = preparation(lm, work, repeats)
    medians = {step: statistics.median(values) for step, values in spent.items()}
    rows = [
        [step, f"{medians[step]:.2f} ({min(values):.2f} to {max(values):.2f})", f"{medians[step] / medians[CALL]:.1%}"]
        for step, values in spent.items()
    ]
    return "\n\n".join(
        [
            f"Rendering and tokenizing in a cold call: {prompts} prompts, {work.name}, {name} "
            f"({lm.engine.loaded.model.num_parameters():,} parameters) in float32; CPU time of all threads, medians of "
            f"{repeats} interleaved repeats. Goal: at most 3 % together.",
            markdown(["step", "CPU ms a prompt (range)", "share of the call"], rows),
        ]
    )


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--model", default="SmolLM2-135M-Instruct.Q4_1.gguf", help="of EVALBIAS_MODELS")
    parser.add_argument("--prompts", type=int, default=64, help="prompts of the pretrained model")
    args = parser.parse_args()
    logging.getLogger("dspy").setLevel(logging.ERROR)
    items = [e.with_inputs("source", "output") for e in world.examples(max(args.items, 1_000), seed=1)]
    demos, _ = draw_demos(rated_items(world.examples(100, seed=5), SYNTHETIC), 8, seed=0)
    judge = with_demos(evalbias.PointwiseJudge(SYNTHETIC), demos, bins=None)
    with tempfile.TemporaryDirectory() as folder:
        lm = small_model(Path(folder))
        judge.predict.lm = lm
        by_method = rates(judge, lm, items[: args.items], args.repeats)
        grown = growth(judge, lm, items)
    medians = {method: statistics.median(values) for method, values in by_method.items()}
    base = list(medians.values())[1]
    rows = [
        [method, f"{medians[method]:.0f} ({min(values):.0f} to {max(values):.0f})", f"{medians[method] / base:.1f}x"]
        for method, values in by_method.items()
    ]
    text = "\n\n".join(
        [
            "## DSPy's overhead",
            f"{args.items} judgments with 8 demonstrations by a model of one layer, {torch.get_num_threads()} threads; "
            f"medians of {args.repeats} interleaved repeats. Goal: 5x. From the 2,000th to the 20,000th judgment, the "
            f"process grows by {grown:.0f} bytes per judgment.",
            markdown(["method", "judgments/s (range)", "speed-up over Evaluate"], rows),
            prepared(args.model, args.prompts, args.repeats),
        ]
    )
    finish(args, "dspy_overhead", text)


if __name__ == "__main__":
    main()
