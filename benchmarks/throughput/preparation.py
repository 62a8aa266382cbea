"""Cost of preparing prompts for the model: rendering through the chat template, and tokenizing, in one cold call."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.throughput.workloads import Workload
from evalbias import LocalLM
from evalbias.lm.tokens import choice_sequences

RENDERING, TOKENIZING, CALL = "rendering", "tokenizing", "whole call"


def preparation(lm: LocalLM, work: Workload, repeats: int) -> dict[str, list[float]]:
    """Measure the CPU milliseconds a prompt of rendering, of tokenizing, and of a whole call from a cold start.

    CPU time of all threads is measured, so that other processes on the machine do not count. The parts take turns.

    Args:
        lm: Model with a chat template.
        work: Prompts with the same choices.
        repeats: Number of repeats.
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
            lm.forget()
            started = time.process_time()
            step()
            spent[name].append(1e3 * (time.process_time() - started) / len(work.prompts))
    return spent
