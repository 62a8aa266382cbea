"""A loopback server that speaks the part of vLLM's protocol which DSPy measures judgments through."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch


@contextmanager
def serving(lm):
    """Serve a ``LocalLM`` of a chat model; yields the address and the list of (path, body) it was asked."""
    asked, lock, loaded = [], threading.Lock(), lm.engine.loaded

    def tokenize(body):
        continued = body["continue_final_message"]
        text = loaded.tokenizer.apply_chat_template(
            body["messages"], tokenize=False, continue_final_message=continued, add_generation_prompt=False
        )
        return {"tokens": loaded.tokenizer(text, add_special_tokens=False)["input_ids"]}

    def complete(body):
        choices = []
        for index, ids in enumerate(body["prompt"]):
            with torch.inference_mode():
                logprobs = loaded.model(torch.tensor([ids])).logits[0, -1].float().log_softmax(-1)
            top = {f"token_id:{i}": float(logprobs[i]) for i in body["logprob_token_ids"]}
            choices.append({"index": index, "text": "", "logprobs": {"top_logprobs": [top]}})
        return {"model": body["model"], "choices": choices}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                asked.append((self.path, body))
                found = {"/tokenize": tokenize, "/v1/completions": complete}[self.path](body)
            sent = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
