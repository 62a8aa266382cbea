"""A server that speaks vLLM's protocol and gives every token the same log-probability.

usage: python -m benchmarks.throughput.canned TOKENIZER [RATE CACHED]

It prints its address. Its cost is negligible, so that only the client is measured. With RATE it takes the time of a
prefill at RATE tokens a second, one request after another, of the tokens that are not in its prefix cache of CACHED
tokens. ``/counts`` returns how many tokens were asked about and how many of them were cached.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOGPROB = -1.0
"""Log-probability of every token, in nats."""


BLOCK = 16
"""Tokens in a block of the prefix cache, as in vLLM."""


class Prefill:
    """The simulated time of prefills behind a prefix cache, of which the least recently used blocks are dropped.

    Args:
        rate: Tokens a second.
        cached: Capacity of the cache in tokens.
    """

    def __init__(self, rate: float, cached: int) -> None:
        self._rate = rate
        self._capacity = cached // BLOCK
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._free = 0.0
        self.counts = {"tokens": 0, "cached": 0}

    def seconds(self, ids: list[int]) -> float:
        """Return the time until the prefill of a prompt ends, which begins when those before it have ended."""
        prefix, hits = 0, 0
        for start in range(0, len(ids) - BLOCK, BLOCK):  # the last token is always computed
            prefix = hash((prefix, *ids[start : start + BLOCK]))
            hits += prefix in self._blocks
            self._blocks[prefix] = None
            self._blocks.move_to_end(prefix)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        self.counts["tokens"] += len(ids)
        self.counts["cached"] += hits * BLOCK
        now = time.monotonic()
        self._free = max(now, self._free) + (len(ids) - hits * BLOCK) / self._rate
        return self._free - now


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
    """One kept-alive HTTP/1.1 connection whose requests come one after another.

    Args:
        tokenizer: Folder of the tokenizer that the server names.
        prefill: Simulated time; None for none.
    """

    def __init__(self, tokenizer: str, prefill: Prefill | None = None) -> None:
        self._tokenizer = tokenizer
        self._prefill = prefill
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
        found, seconds = answer(path, body, self._tokenizer), 0.0
        if self._prefill is not None and path == "/counts":
            found = self._prefill.counts
        elif self._prefill is not None and "prompt" in body:
            seconds = self._prefill.seconds(body["prompt"])
        sent = json.dumps(found).encode()
        status = "404 Not Found" if found is None else "200 OK"
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._transport.write, head.encode() + sent)
        else:
            self._transport.write(head.encode() + sent)


async def serve(tokenizer: str, prefill: Prefill | None) -> None:
    """Serve on a free port until the process ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Protocol(tokenizer, prefill), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


@contextmanager
def canned_server(tokenizer: Path, *, rate: float | None = None, cached: int = 0) -> Iterator[str]:
    """Start the server in a process of its own and yield its address; see the module for ``rate`` and ``cached``."""
    simulated = [] if rate is None else [str(rate), str(cached)]
    command = [sys.executable, "-m", "benchmarks.throughput.canned", str(tokenizer), *simulated]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Prefill(float(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 2 else None))
