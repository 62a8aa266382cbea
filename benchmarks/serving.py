"""How fast does ``ServerLM`` ask servers?

usage: python -m benchmarks.serving [--items 1000] [--repeats 3] [--write]

A server of negligible cost is asked, in a process of its own. The prompts are those of a judge with eight
demonstrations, one request each. They are judged as a whole and, in turns, sent only, with tokens that were made
before. CPU time is that of the client's process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evalbias
from benchmarks.canned import canned_server
from benchmarks.harness import argument_parser, finish, markdown
from evalbias.data import world
from evalbias.lm.types import Choices
from evalbias.optimizers.likelihood import draw_demos, rated_items, with_demos
from evalbias.programs.criterion import SYNTHETIC

IN_FLIGHT = (64, 256, 1024)


def measure(call: Callable[[], Any], items: int) -> tuple[float, float]:
    """Return the items per second of wall time, and the milliseconds of CPU per item."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return items / (time.perf_counter() - wall), (time.process_time() - cpu) / items * 1e3


def rates(address: str, in_flight: int, prompts: list[Any], repeats: int) -> list[list[tuple[float, float]]]:
    """Return the measurements of whole judgments and of requests only; the first calls, which connect, are left out."""
    lm = evalbias.ServerLM("canned", base_url=address, in_flight=in_flight)
    (dialect,) = lm.engine.dialects
    prepared: list[Any] = dialect.prepared([Choices(prompt, SYNTHETIC.labels) for prompt in prompts])

    async def sent() -> None:
        await asyncio.gather(*map(dialect.ask, prepared))

    calls: list[Callable[[], Any]] = [
        lambda: lm.choice_logprobs(prompts, SYNTHETIC.labels),
        lambda: lm.engine.pool.run(sent()),
    ]
    measured: list[list[tuple[float, float]]] = [[], []]
    for repeat in range(repeats + 1):
        for call, values in zip(calls, measured, strict=True):
            value = measure(call, len(prompts))
            if repeat:
                values.append(value)
    return measured


def main() -> None:
    """Parse the command line, and measure whole judgments and requests only, by the number in flight."""
    parser = argument_parser(__doc__)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    logging.getLogger("dspy").setLevel(logging.ERROR)
    demos, _ = draw_demos(rated_items(world.examples(100, seed=5), SYNTHETIC), 8, seed=0)
    judge = with_demos(evalbias.PointwiseJudge(SYNTHETIC), demos, bins=None)
    items = [e.with_inputs("source", "output") for e in world.examples(args.items, seed=1)]
    prompts = [judge.messages(item) for item in items]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        evalbias.embedded_judge_lm().engine.loaded.tokenizer.save_pretrained(folder)
        with canned_server(Path(folder)) as address:
            for in_flight in IN_FLIGHT:
                whole, sent = rates(address, in_flight, prompts, args.repeats)
                columns = [column for values in (whole, sent) for column in zip(*values, strict=True)]
                rows.append([str(in_flight), *map(_shown, columns)])
    headings = ["in flight", "judgments/s", "CPU ms a judgment", "requests/s, tokenized before", "CPU ms a request"]
    text = "\n\n".join(
        [
            "## Requests to a server",
            f"{args.items} judgments with 8 demonstrations through `ServerLM`, against a server that gives canned "
            f"answers from a process of its own; medians (ranges) of {args.repeats} repeats, at a load of "
            f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores. Goals: 1,000 judgments/s, at most 1 ms of CPU a "
            "request.",
            markdown(headings, rows),
        ]
    )
    finish(args, "serving", text, section="server client")


def _shown(values: tuple[float, ...]) -> str:
    digits = 0 if min(values) > 20 else 2
    median = statistics.median(values)
    return f"{median:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


if __name__ == "__main__":
    main()
