"""Decision models: Sparrow, which runs in this process and behind a loopback server, and clients in DSPy's form."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from sparrow_decider import Decider

from evalbias.lm.types import ChoiceLogprobs, Decision, MeasuringLM


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

    class Server(ThreadingHTTPServer):
        request_queue_size = 256  # the requests of a whole call come at once

    server = Server(("127.0.0.1", 0), Handler)
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
        return self.answer(state, questions)

    def answer(self, state, questions):
        return sparrow().ask(state, questions)

    async def acall(self, state, questions):
        return self(state, questions)

    def dump_state(self):
        return {"model": self.model}


class FirstOption(MeasuringLM):
    """A model that gives the first of the options a share, and the others the rest evenly."""

    model, decides = "first", True

    def __init__(self, share=0.8):
        self.share = share

    def _shares(self, options):
        return np.array([self.share, *[(1 - self.share) / (options - 1)] * (options - 1)])

    def answer(self, questions, answers):
        for place, one in enumerate(questions):
            if not isinstance(one, Decision):
                raise NotImplementedError("It answers closed questions only.")
            answers[place] = ChoiceLogprobs(one.choices, np.log(self._shares(len(one.choices)))[None])

    def client(self):
        """Return the same in the form of ``dspy.TypeSafe``."""

        def ask(state, questions):
            answers = {}
            for name, one in questions.items():
                if one["type"] == "noul":
                    answers[name] = {"noul": self.share}
                else:
                    labels = [*map(str, range(len(one["criteria"])))] if one["type"] == "score" else [*one["criteria"]]
                    shares = dict(zip(labels, self._shares(len(labels)).tolist(), strict=True))
                    answers[name] = {"probabilities": shares, "confidence": self.share}
            return answers

        client = Client()
        client.answer = ask
        return client
