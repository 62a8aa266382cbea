"""Decision models: Sparrow, which runs in this process and behind a loopback server, and clients in DSPy's form."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sparrow_decider import Decider


@cache
def sparrow():
    """Return the decision model, 2 MB of numpy."""
    return Decider.load()


@contextmanager
def sparrow_server(answer=None, *, listing=None):
    """Serve ``/v1/systemone``; yield address and requests. ``answer``, of a body, returns another status and answer."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def reply(self, status, content):
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            self.reply(200 if listing and self.path == "/v1/models" else 404, listing or {})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            requests.append(body)
            if (given := answer and answer(body)) is not None:
                return self.reply(*given)
            answers = sparrow().ask(body["state"], body["questions"])
            usage = {"input_tokens": 7, "output_tokens": 0}
            return self.reply(200, {"model": sparrow().name, "answers": answers, "usage": usage})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Client:
    """A client of decision requests in the form of ``dspy.TypeSafe``: no ``dspy.LM``, and no settings."""

    supports_decision_requests = True

    def __init__(self, *, fail=None, models=("sparrow-1",)):
        self.model, self.history, self.requests = "sparrow", [], []
        self._fail, self._models = fail or (lambda state: None), models

    def __call__(self, state, questions):
        if (error := self._fail(state)) is not None:
            raise error
        self.requests.append((state, questions))
        name = self._models[min(len(self.requests), len(self._models)) - 1]
        self.history.append({"response": {"model": name}})
        return sparrow().ask(state, questions)

    async def acall(self, state, questions):
        return self(state, questions)

    def dump_state(self):
        return {"model": self.model}
