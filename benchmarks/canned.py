"""A server of negligible cost that speaks vLLM's protocol and gives every token the same log-probability.

usage: python -m benchmarks.canned TOKENIZER

It prints its address; ``benchmarks.serving`` measures the client against it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOGPROB = -1.0
"""Log-probability of every token, in nats."""


def answer(path: str, body: dict[str, Any], tokenizer: str) -> dict[str, Any] | None:
    """Return the answer at a path; None if there is nothing."""
    if path == "/v1/models":
        return {"data": [{"id": "canned", "owned_by": "vllm", "root": tokenizer, "max_model_len": 1 << 20}]}
    if path != "/v1/completions":
        return None
    top = {f"token_id:{token}": LOGPROB for token in body.get("logprob_token_ids", [])}
    choice: dict[str, Any] = {"text": "", "finish_reason": "length", "logprobs": {"top_logprobs": [top]}}
    if "prompt_logprobs" in body:
        choice["prompt_logprobs"] = [None, *({str(token): {"logprob": LOGPROB}} for token in body["prompt"][1:])]
    return {"choices": [choice], "usage": {"prompt_tokens": len(body["prompt"]), "completion_tokens": 1}}


class Protocol(asyncio.Protocol):
    """One kept-alive HTTP/1.1 connection whose requests come one after another; it names a tokenizer's folder."""

    def __init__(self, tokenizer: str) -> None:
        self._tokenizer = tokenizer
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        """Keep the transport for the answers."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every complete request."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].decode("latin-1").lower()
            length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
            if len(self._received) < end + 4 + length:
                return
            content, self._received = self._received[end + 4 : end + 4 + length], self._received[end + 4 + length :]
            self._answer(head.split(" ")[1], json.loads(content) if content else {})

    def _answer(self, path: str, body: dict[str, Any]) -> None:
        found = answer(path, body, self._tokenizer)
        sent = json.dumps(found).encode()
        status = "404 Not Found" if found is None else "200 OK"
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
        self._transport.write(head.encode() + sent)


async def serve(tokenizer: str) -> None:
    """Serve on a free port until the process ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Protocol(tokenizer), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


@contextmanager
def canned_server(tokenizer: Path) -> Iterator[str]:
    """Start the server in a process of its own and yield its address."""
    command = [sys.executable, "-m", "benchmarks.canned", str(tokenizer)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
