"""Ordinary models: a ``dspy.LM`` that only writes, with known probabilities of what it writes."""

import itertools
import threading

import dspy
import numpy as np
from dspy import lm15

from evalbias.lm.dspy_seam import AsyncEngine, Engine

_names = itertools.count()


class Writer(Engine):
    """An engine that draws texts, by the request's seed where it takes one.

    Args:
        probabilities: Function from the last message and the system text to {text: probability}.
        seeds: Whether it takes a seed.
        top: How many of its texts are reported as first tokens with their log-probabilities.
    """

    def __init__(self, probabilities, *, seeds=True, top=0):
        self.probabilities, self.seeds, self.top = probabilities, seeds, top
        self.requests, self.lock, self.rng = [], threading.Lock(), np.random.default_rng(0)

    def complete(self, request):
        if request.config.probabilities == "required":
            raise lm15.UnsupportedFeatureError("it only writes")
        if request.config.seed is not None and not self.seeds:
            raise lm15.UnsupportedFeatureError("it takes no seed")
        with self.lock:
            self.requests.append(request)
            seed = self.rng.integers(2**32) if request.config.seed is None else request.config.seed
        texts = self.probabilities(request.messages[-1].text, request.system or "")
        if request.config.temperature == 0:
            text = max(texts, key=texts.get)
        else:
            text = np.random.default_rng(seed).choice(list(texts), p=list(texts.values()))
        logprobs = None
        if self.top and request.config.logprobs is not None:
            tops = tuple(lm15.TopLogprob(token=t, logprob=float(np.log(p))) for t, p in list(texts.items())[: self.top])
            logprobs = (lm15.TokenLogprob(token=str(text), logprob=0.0, top=tops),)
        usage, message = lm15.Usage(input_tokens=1, output_tokens=1, total_tokens=2), lm15.Message.assistant(str(text))
        found = {"message": message, "finish_reason": "stop", "usage": usage, "logprobs": logprobs}
        return lm15.Response(id=None, model=request.model, **found)


def writer(probabilities, *, cache=False, **options):
    """Return the model as a ``dspy.LM`` of its own name, and its engine."""
    engine = Writer(probabilities, **options)
    name = f"writer/{next(_names)}-{id(engine)}"
    return dspy.LM(name, engine=engine, async_engine=AsyncEngine(engine), cache=cache, num_retries=0), engine
