"""Compare ways to share prompts out among three servers of one model, each with a prefix cache of its own.

usage: python -m benchmarks.throughput.routing FOLDER [--items 600] [--repeats 3] [--write]

The servers are simulated: they answer after the time of a prefill of the tokens that are not in their cache (see
``canned``). Requests, routing and the blocks that are found in the caches are real. FOLDER holds the recorded data.
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import evalbias
from benchmarks.likelihood_bias.table import markdown
from benchmarks.results import write_section
from benchmarks.throughput.canned import canned_server
from benchmarks.throughput.workloads import Workload, pointwise, population
from evalbias.lm.servers import fleet, routing

SERVERS = 3
RATE = 50_000.0
"""Tokens a second that a server prefills."""

CACHED = 65_536
"""Tokens in the prefix cache of a server."""

Route = Callable[[Sequence[bytes], Sequence[str], Sequence[int]], list[list[int]]]


def in_turn(keys: Sequence[bytes], servers: Sequence[str], _: Sequence[int]) -> list[list[int]]:
    """Give sorted prompts to the servers in turn, as a load balancer does that a client's sorted prompts reach."""
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return [order[start :: len(servers)] for start in range(len(servers))]


def at_random(keys: Sequence[bytes], servers: Sequence[str], _: Sequence[int]) -> list[list[int]]:
    """Give every prompt to a server drawn at random."""
    rng = random.Random(0)
    places: list[list[int]] = [[] for _ in servers]
    for number in sorted(range(len(keys)), key=keys.__getitem__):
        places[rng.randrange(len(servers))].append(number)
    return places


ROUTES: dict[str, Route] = {"by prefix": routing.route, "round robin": in_turn, "random": at_random}


def measure(workload: Workload, route: Route, tokenizer: Path, in_flight: int) -> tuple[float, float]:
    """Return prompts a second, and the share of tokens that the caches held, of one call to cold servers."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(fleet, "route", route))
        servers = [stack.enter_context(canned_server(tokenizer, rate=RATE, cached=CACHED)) for _ in range(SERVERS)]
        lm = evalbias.ServerLM("canned", base_url=servers, in_flight=in_flight)
        jobs = lm.engine.dialect.choice_jobs(workload.prompts, workload.choices[0])
        before = _counts(lm)
        start = time.perf_counter()
        lm.engine.fleet.all(jobs, jobs.__getitem__, name="canned")
        seconds = time.perf_counter() - start
        tokens, cached = (now - then for now, then in zip(_counts(lm), before, strict=True))
        return len(jobs) / seconds, cached / tokens


def _counts(lm: evalbias.ServerLM) -> tuple[int, int]:
    """Return the tokens that all servers were asked about, and those of them that were cached."""
    replicas, pool = lm.engine.fleet.replicas, lm.engine.fleet.pool
    counts = [pool.run(replica.connection.get("/counts")) for replica in replicas]
    return sum(c["tokens"] for c in counts), sum(c["cached"] for c in counts)


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--items", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    logging.getLogger("dspy").setLevel(logging.ERROR)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        tokenizer = Path(name)
        evalbias.embedded_judge_lm().engine.loaded.tokenizer.save_pretrained(tokenizer)
        for workload in (population(args.folder, args.items), pointwise(args.folder, args.items)):
            values: dict[str, list[tuple[float, float]]] = {way: [] for way in ROUTES}
            for _ in range(args.repeats):
                for way, route in ROUTES.items():
                    values[way].append(measure(workload, route, tokenizer, args.in_flight))
            base = statistics.median(rate for rate, _ in values["round robin"])
            for way, pairs in values.items():
                rate, share = (statistics.median(column) for column in zip(*pairs, strict=True))
                rows.append([workload.name, way, f"{rate:.0f}", f"{rate / base:.2f}", f"{share:.3f}"])
    headings = ["workload", "prompts go", "prompts/s", "times round robin", "tokens found in a cache"]
    text = "\n\n".join(
        [
            "## Several servers",
            f"{args.items} prompts to {SERVERS} cold servers on loopback, {args.in_flight} requests in flight to each; "
            f"medians of {args.repeats} repeats. The servers are simulated: each prefills {RATE:,.0f} tokens a second, "
            f"one request after another, and caches {CACHED:,} tokens in blocks of 16. Requests and routing are real.",
            markdown(headings, rows),
        ]
    )
    print(text)
    if args.write:
        write_section("several servers", text)


if __name__ == "__main__":
    main()
