"""Compare ``ServerLM`` on a real vLLM server with vLLM's own benchmark client, which shows the server's maximum.

usage: python -m benchmarks.throughput.served [--prompts 128] [--in-flight 64] [--repeats 3] [--write]

Both send the same prompts, in the same order and with as many in flight, to one server, which forgets its prefix cache
before every run. vLLM's client (``vllm bench serve``) sends texts and reads one generated token each; ``ServerLM``
sends tokens and reads the log-probabilities of five labels. Needs ``make models`` and ``make test-servers``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.likelihood_bias.table import markdown
from benchmarks.pretrained import SMOLLM2, models_folder
from benchmarks.results import write_section
from benchmarks.servers import SERVERS, post, vllm
from benchmarks.throughput.workloads import Workload, pointwise
from evalbias import ServerLM
from evalbias.lm.files import unpacked
from evalbias.lm.load import load_tokenizer
from evalbias.lm.render import Renderer
from evalbias.lm.tokens import PromptTokenizer

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


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    folder = unpacked(str(models_folder() / SMOLLM2))
    work = pointwise(Path(os.environ.get("EVALBIAS_DATA", "../shared/data")), args.prompts)
    rates: dict[str, list[float]] = {"ServerLM": [], "vLLM's own client": []}
    with tempfile.TemporaryDirectory() as place, vllm(Path(folder), length=CONTEXT) as (api, _):
        address = api.removesuffix("/v1")
        lm = ServerLM("tiny", base_url=api, tokenizer=folder, in_flight=args.in_flight)
        render = Renderer(PromptTokenizer(load_tokenizer(folder, trust_remote_code=False)), {})
        prompts = Path(place) / "prompts.jsonl"
        lines = [json.dumps({"prompt": render(prompt).alone().text}) for prompt in work.prompts]
        prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        lm.choice_logprobs(work.prompts[:2], work.choices[0])  # connects
        for _ in range(args.repeats):
            post(f"{address}/reset_prefix_cache")
            rates["ServerLM"].append(own(lm, work))
            post(f"{address}/reset_prefix_cache")
            rates["vLLM's own client"].append(theirs(address, folder, prompts, args.in_flight, Path(place)))
    ratio = statistics.median(rates["ServerLM"]) / statistics.median(rates["vLLM's own client"])
    rows = [[name, f"{statistics.median(r):.2f} ({min(r):.2f} to {max(r):.2f})"] for name, r in rates.items()]
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
    print(text)
    if args.write:
        write_section("server maximum", text)


if __name__ == "__main__":
    main()
