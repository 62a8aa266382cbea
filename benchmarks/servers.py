"""Real inference servers on the loopback interface, each in the environment that ``make test-servers`` creates."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SERVERS = ROOT / ".servers"
LIMIT = 300
"""Longest time in seconds to wait for a server's first answer."""

Server = tuple[str, subprocess.Popen[bytes]]
"""Address and process of a server."""


@contextmanager
def vllm(folder: Path, *, length: int = 512, space: int = 2) -> Iterator[Server]:
    """Start a vLLM server on the CPU, with a prefix cache of ``space`` GiB."""
    command: list[Any] = [SERVERS / "vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", folder]
    command += ["--served-model-name", "tiny", "--dtype", "float32", "--max-model-len", length, "--max-num-seqs", 64]
    environment = {"VLLM_CPU_KVCACHE_SPACE": str(space), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with serving(command, {**environment, "VLLM_SERVER_DEV_MODE": "1"}) as started:  # can reset its prefix cache
        yield started


@contextmanager
def llama_file(file: Path, options: Sequence[Any]) -> Iterator[Server]:
    """Start llama.cpp's own server on a GGUF file."""
    command: list[Any] = [SERVERS / "llama/bin/llama-server", "--model", file, "--alias", "tiny"]
    with serving([*command, *options], {}) as started:
        yield started


def with_weights(lm: Any, folder: str) -> Path:
    """Write a local model, dequantized, into a folder that other engines read, and return it."""
    for part in (lm.engine.loaded.model, lm.engine.loaded.tokenizer):
        part.save_pretrained(folder)
    return Path(folder)


def requantized(file: Path, kind: str, folder: Path) -> Path:
    """Write a GGUF file in another precision of llama.cpp, such as ``F32`` or ``Q8_0``, and return it."""
    made = folder / f"{file.stem}.{kind}.gguf"
    command: list[Any] = [SERVERS / "llama/bin/llama-quantize", "--allow-requantize", file, made, kind]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return made


def post(url: str) -> None:
    """Send an empty request, such as vLLM's to empty its prefix cache."""
    with urllib.request.urlopen(urllib.request.Request(url, method="POST")):
        pass


@contextmanager
def serving(command: Sequence[Any], environment: Mapping[str, str]) -> Iterator[Server]:
    """Start a server on a free port and wait until it lists its model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/v1"
    log = SERVERS / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*map(str, command), "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(address, process, log)
        yield address, process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"The server stopped; the end of its log: {log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"{address}/models", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"The server did not answer within {LIMIT} s; the end of its log: {log.read_text()[-3000:]}")
