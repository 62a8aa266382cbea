"""Real servers on the loopback, each in the environment that ``make test-servers`` makes for it."""

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
"""Seconds until a server must answer."""

EXACT = {
    "server": ["--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off"],
    "python": ["--type_k", "0", "--type_v", "0"],
}
"""llama.cpp keeps its keys and values in 16 bits otherwise, which costs .01 nats."""

Server = tuple[str, subprocess.Popen[bytes]]
"""Its address and its process."""


def gguf_of(folder: Path) -> Path:
    """The same model for llama.cpp."""
    file = folder.with_suffix(".gguf")
    subprocess.run([SERVERS / "llama/bin/python", ROOT / "tests/servers/gguf_model.py", folder, file], check=True)
    return file


@contextmanager
def vllm(folder: Path, *, length: int = 512, space: int = 2) -> Iterator[Server]:
    """A vLLM server on the CPU, with its prefix cache; ``space`` in GiB."""
    command: list[Any] = [SERVERS / "vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", folder]
    command += ["--served-model-name", "tiny", "--dtype", "float32", "--max-model-len", length, "--max-num-seqs", 64]
    environment = {"VLLM_CPU_KVCACHE_SPACE": str(space), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with serving(command, {**environment, "VLLM_SERVER_DEV_MODE": "1"}) as started:  # which can forget its prefixes
        yield started


@contextmanager
def llama_server(folder: Path) -> Iterator[Server]:
    """llama.cpp's own server."""
    command: list[Any] = [SERVERS / "llama/bin/llama-server", "--model", gguf_of(folder), "--alias", "tiny"]
    with serving([*command, "--ctx-size", "2048", "--parallel", "4", *EXACT["server"]], {}) as started:
        yield started


@contextmanager
def llama_cpp_python(folder: Path) -> Iterator[Server]:
    """llama-cpp-python's server."""
    command: list[Any] = [SERVERS / "llama/bin/python", "-m", "llama_cpp.server", "--model", gguf_of(folder)]
    command += ["--model_alias", "tiny", "--n_ctx", "512", "--logits_all", "true", *EXACT["python"]]
    with serving(command, {}) as started:
        yield started


@contextmanager
def serving(command: Sequence[Any], environment: Mapping[str, str]) -> Iterator[Server]:
    """Start a server on a free port and wait until it lists its model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/v1"
    log = SERVERS / "log.txt"
    with log.open("wb") as told:
        process = subprocess.Popen(
            [*map(str, command), "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, **environment},
            stdout=told,
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
            raise RuntimeError(f"The server stopped: {log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"{address}/models", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"The server gave no answer in {LIMIT} s: {log.read_text()[-3000:]}")
