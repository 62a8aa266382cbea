"""Decision models: Sparrow, which runs in this process and behind a loopback server, and clients in DSPy's form."""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import cache

import dspy
import numpy as np
from dspy.experimental import Choice, Noul, Score
from loopback import Handler, listening
from sparrow_decider import Decider

from evalbias.lm.types import ChoiceLogprobs, Decision, MeasuringLM
from evalbias.programs import Criterion

LEVELS = ("hard to follow", "partly clear", "clear")
COHERENCE = Criterion("coherence", "is the summary coherent?", (1, 3), levels=LEVELS)
SUBJECTS = ("the cat", "a mat", "council met", "Monday", "he said")
TEXTS = [f"{a} {b}" for a in SUBJECTS for b in ("sat", "on", "was good")]
ITEMS = [dspy.Example(id=text, source="A council met.", output=text) for text in TEXTS]
Coherent = Score["bad", "fair", "good"]
Kind = Choice[("news", "of a paper"), ("chat", None)]


class Native(dspy.Signature):
    """Judge the summary."""

    summary: str = dspy.InputField()
    coherent: Coherent = dspy.OutputField(desc="How coherent is the summary?")
    ok: Noul = dspy.OutputField(desc="Is the summary coherent?")
    kind: Kind = dspy.OutputField(desc="What is it?")


@cache
def sparrow():
    """Return the decision model, 2 MB of numpy."""
    return Decider.load()


@contextmanager
def sparrow_server(answer=None, *, listing=None):
    """Serve ``/v1/systemone``; yield address and requests. ``answer``, of a body, returns another status and answer."""
    requests = []

    def answered(path, body):
        if not body:
            return (200, listing) if listing and path == "/v1/models" else (404, {})
        requests.append(body)
        if answer is not None and (given := answer(body)) is not None:
            return given
        answers = sparrow().ask(body["state"], body["questions"])
        return 200, {"model": sparrow().name, "answers": answers, "usage": {"input_tokens": 7, "output_tokens": 0}}

    class Deciding(Handler):
        def reply(self, body):
            status, content = answered(self.path, body)
            self.send(status, json.dumps(content).encode())

    with listening(Deciding) as address:
        yield address, requests


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
