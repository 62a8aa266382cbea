"""How fast does ``ServerLM`` ask servers?

usage: python -m benchmarks.serving client [--items 1000] [--repeats 3] [--write]
       python -m benchmarks.serving maximum [--prompts 128] [--in-flight 64] [--repeats 3] [--write]

``client`` asks a server of negligible cost in a process of its own. The prompts are those of a judge with eight
demonstrations, one request each. They are judged as a whole and, in turns, sent only, with tokens that were made
before. CPU time is that of the client's process.

``maximum`` asks a real vLLM server beside vLLM's own benchmark client (``vllm bench serve``), which shows the server's
maximum. Both send the same prompts, in the same order and with as many in flight, to one server, which forgets its
prefix cache before every run. vLLM's client sends texts and reads one generated token each; ``ServerLM`` sends tokens
and reads the log-probabilities of five labels. Needs ``make models`` and ``make test-servers``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evalbias
from benchmarks.canned import canned_server
from benchmarks.harness import argument_parser, finish, markdown
from benchmarks.pretrained import SMOLLM2, models_folder
from benchmarks.servers import SERVERS, post, vllm, with_weights
from benchmarks.workloads import Workload, pointwise
from evalbias import LocalLM, ServerLM
from evalbias.data import world
from evalbias.lm.load import load_tokenizer
from evalbias.lm.render import Renderer
from evalbias.lm.tokens import PromptTokenizer
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


def client(args: argparse.Namespace) -> None:
    """Measure whole judgments and requests only, by the number in flight."""
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


CONTEXT = 4096
CLIENT = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main

parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""``vllm bench serve`` without its command, which asks for a package that is named ``vllm``; the CPU build is not."""


def own(lm: ServerLM, work: Workload) -> float:
    """Return the prompts per second of ``ServerLM``, rendering and tokenizing included."""
    started = time.perf_counter()
    lm.choice_logprobs(work.prompts, work.choices[0])
    return len(work.prompts) / (time.perf_counter() - started)


def theirs(address: str, tokenizer: str, prompts: Path, in_flight: int, place: Path) -> float:
    """Return the prompts per second that vLLM's own client reports, without its start."""
    command: list[Any] = [SERVERS / "vllm/bin/python", "-c", CLIENT, "--backend", "openai", "--model", "tiny"]
    command += ["--base-url", address, "--endpoint", "/v1/completions", "--tokenizer", tokenizer]
    command += ["--dataset-name", "custom", "--dataset-path", prompts, "--disable-shuffle", "--skip-chat-template"]
    command += ["--custom-output-len", 1, "--num-prompts", len(prompts.read_text(encoding="utf-8").splitlines())]
    command += ["--max-concurrency", in_flight, "--ready-check-timeout-sec", 0, "--num-warmups", 0, "--disable-tqdm"]
    command += ["--save-result", "--result-dir", place, "--result-filename", "result.json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=dict(os.environ))
    if done.returncode:
        raise RuntimeError(f"vLLM's client stopped; the end of its log: {(done.stdout + done.stderr)[-3000:]}")
    result = json.loads((place / "result.json").read_text(encoding="utf-8"))
    if result["failed"]:
        raise RuntimeError(f"{result['failed']} requests of vLLM's client failed.")
    return float(result["request_throughput"])


def maximum(args: argparse.Namespace) -> None:
    """Measure a real server, in turns with its own client."""
    local = LocalLM(str(models_folder() / SMOLLM2), dtype="float32")
    work = pointwise(args.prompts)
    rates: dict[str, list[float]] = {"ServerLM": [], "vLLM's own client": []}
    with tempfile.TemporaryDirectory() as folder, vllm(with_weights(local, folder), length=CONTEXT) as (api, _):
        address = api.removesuffix("/v1")
        lm = ServerLM("tiny", base_url=api, tokenizer=folder, in_flight=args.in_flight)
        render = Renderer(PromptTokenizer(load_tokenizer(folder, trust_remote_code=False)), {})
        prompts = Path(folder) / "prompts.jsonl"
        lines = [json.dumps({"prompt": render(prompt).alone().text}) for prompt in work.prompts]
        prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        lm.choice_logprobs(work.prompts[:2], work.choices[0])  # connects
        for _ in range(args.repeats):
            post(f"{address}/reset_prefix_cache")
            rates["ServerLM"].append(own(lm, work))
            post(f"{address}/reset_prefix_cache")
            rates["vLLM's own client"].append(theirs(address, folder, prompts, args.in_flight, Path(folder)))
    ratio = statistics.median(rates["ServerLM"]) / statistics.median(rates["vLLM's own client"])
    rows = [[name, _shown(tuple(measured))] for name, measured in rates.items()]
    text = "\n\n".join(
        [
            "## A vLLM server's own maximum",
            f"{args.prompts} prompts with eight demonstrations (WebNLG) to a vLLM server on the CPU with "
            f"SmolLM2-135M-Instruct in float32, {args.in_flight} in flight, on {os.cpu_count()} cores that the clients "
            f"share with the server (load at the end {os.getloadavg()[0]:.1f}); medians (ranges) of {args.repeats} "
            "runs in turns, each from an empty prefix cache. vLLM's client (`vllm bench serve`) sends the same texts "
            "and reads one token each; `ServerLM` tokenizes and reads the log-probabilities of five labels.",
            markdown(["client", "prompts/s"], rows),
            f"`ServerLM` reaches {100 * ratio:.0f} % of vLLM's own client (goal: 95 %).",
        ]
    )
    finish(args, "serving", text, section="server maximum")


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__)
    parser.add_argument("asks", choices=["client", "maximum"])
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    {"client": client, "maximum": maximum}[args.asks](args)


if __name__ == "__main__":
    main()
