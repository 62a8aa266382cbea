"""Log-probabilities of texts by llama.cpp, through llama-cpp-python, in the environment of ``make test-servers``.

usage: python llama_texts.py FILE.gguf CONTEXT THREADS

Reads lines of JSON and answers each with one. ``{"ids": [...], "start": n}`` gives the log-probability of the tokens
from ``start`` on. The cache keeps the beginning that a text shares with the one before; ``{}`` empties it. Logits are
computed from the token before ``start`` on, as an evaluation needs no others.
"""

import json
import sys

import numpy as np
from llama_cpp import Llama


def likelihood(llama: Llama, ids: list[int], start: int) -> float:
    """Return the log-probability of the tokens from ``start`` on, after those before them."""
    total = 0
    while total < min(llama.n_tokens, start - 1) and llama.input_ids[total] == ids[total]:
        total += 1
    llama.n_tokens = total  # eval drops what the cache holds from here on
    for tokens, logits in ((ids[total : start - 1], False), (ids[start - 1 : -1], True)):
        llama._logits_all = logits
        if tokens:
            llama.eval(tokens)
    scores = llama.scores[start - 1 : len(ids) - 1].astype(np.float64)
    largest = scores.max(1)
    totals = largest + np.log(np.exp(scores - largest[:, None]).sum(1))
    return float((scores[np.arange(len(scores)), ids[start:]] - totals).sum())


def main() -> None:
    """Answer the lines on standard input."""
    file, context, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    how = {"n_threads": threads, "n_threads_batch": threads, "logits_all": True, "swa_full": True, "verbose": False}
    llama = Llama(file, n_ctx=context, **how)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked:
            print(json.dumps(likelihood(llama, asked["ids"], asked["start"])), flush=True)
        else:
            llama.reset()
            print(json.dumps("empty"), flush=True)


if __name__ == "__main__":
    main()
