"""Compare ways to share prompts out among three servers of one model, each with a prefix cache of its own.

usage: python -m benchmarks.throughput.routing [--repeats 3] [--in-flight 32] [--write]

The servers are simulated: they answer after the time of a prefill of the tokens that are not in their cache (see
``canned``). Prompts are random tokens with the lengths and common prefixes of judge prompts. Requests, routing and the
blocks that are found in the caches are real.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.likelihood_bias.table import markdown
from benchmarks.results import write_section
from benchmarks.throughput.canned import canned_server
from evalbias.lm import calls as fleet
from evalbias.lm import routing
from evalbias.lm.dialect import Job
from evalbias.lm.tokens import key_of
from evalbias.lm.transport import Connection, Pool

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


def prompts(documents: int, outputs: int) -> list[tuple[int, ...]]:
    """Return prompts: 1,000 tokens of demonstrations, 700 of a document, 90 of one of its outputs."""
    rng = random.Random(1)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(30_000) for _ in range(count))

    demonstrations = tokens(1_000)
    texts = [tokens(700) for _ in range(documents)]
    return [demonstrations + document + tokens(90) for document in texts for _ in range(outputs)]


def measure(asked: Sequence[tuple[int, ...]], route: Route, in_flight: int) -> tuple[float, float]:
    """Return prompts a second, and the share of tokens that the caches held, of one call to cold servers."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(fleet, "route", route))
        addresses = [stack.enter_context(canned_server(Path(), rate=RATE, cached=CACHED)) for _ in range(SERVERS)]
        pool = Pool(api_key="none", in_flight=in_flight, timeout=120.0)
        connections = [Connection(address, pool, patience=10.0) for address in addresses]
        jobs = [_job(ids) for ids in asked]
        servers: Any = [fleet.Replica(one, one) for one in connections]  # a job posts through its "dialect"
        start = time.perf_counter()
        fleet.Fleet(servers, pool, patience=10.0).all(jobs, jobs.__getitem__, name="canned")
        seconds = time.perf_counter() - start
        counts = [pool.run(connection.get("/counts")) for connection in connections]
        return len(jobs) / seconds, sum(c["cached"] for c in counts) / sum(c["tokens"] for c in counts)


def _job(ids: tuple[int, ...]) -> Job[Any]:
    async def ask(server: Connection) -> Any:
        body = {"model": "canned", "prompt": ids, "max_tokens": 1, "logprob_token_ids": [1, 2, 3, 4, 5]}
        return await server.post("/v1/completions", body)

    return Job(ask, key_of(ids))


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    rows = []
    for documents, outputs in ((60, 5), (300, 1)):
        asked = prompts(documents, outputs)
        values: dict[str, list[tuple[float, float]]] = {way: [] for way in ROUTES}
        for _ in range(args.repeats):
            for way, route in ROUTES.items():
                values[way].append(measure(asked, route, args.in_flight))
        base = statistics.median(rate for rate, _ in values["round robin"])
        for way, pairs in values.items():
            rate, share = (statistics.median(column) for column in zip(*pairs, strict=True))
            name = f"{documents} documents, {outputs} output{'s' * (outputs > 1)} each"
            rows.append([name, way, f"{rate:.0f}", f"{rate / base:.2f}", f"{share:.3f}"])
    headings = ["workload", "prompts go", "prompts/s", "times round robin", "tokens found in a cache"]
    text = "\n\n".join(
        [
            "## Several servers",
            f"300 prompts of 1,790 random tokens (1,000 of demonstrations, 700 of a document, 90 of an output) to "
            f"{SERVERS} cold servers on loopback, {args.in_flight} requests in flight to each; medians of "
            f"{args.repeats} repeats. The servers are simulated: each prefills {RATE:,.0f} tokens a second, one prompt "
            f"after another, and caches {CACHED:,} tokens in blocks of 16. Requests and routing are real.",
            markdown(headings, rows),
        ]
    )
    print(text)
    if args.write:
        write_section("several servers", text)


if __name__ == "__main__":
    main()
