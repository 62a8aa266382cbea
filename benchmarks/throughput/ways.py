"""Ways to ask a model for its probabilities; each gives the log-probability of every choice after every prompt."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.throughput.workloads import Workload
from evalbias import LocalLM, ServerLM
from evalbias.lm.tokens import Scored, choice_sequences, joint
from evalbias.lm.types import MeasuringLM

Answers = list[list[float]]
Way = Callable[[LocalLM, Workload], Answers]


def sequences(lm: LocalLM, work: Workload) -> list[list[Scored]]:
    """The token sequences of every prompt's choices, the same for all ways."""
    loaded, render = lm.engine.loaded, lm.engine._render
    if all(len(choices) == 1 for choices in work.choices):
        pairs = [(render(p), choices[0]) for p, choices in zip(work.prompts, work.choices, strict=True)]
        return [[found] for found in joint(loaded.tokenizer, pairs)]
    return choice_sequences(loaded.tokenizer, [render(p) for p in work.prompts], work.choices[0])


def published_style(lm: LocalLM, work: Workload) -> Answers:
    """One forward pass a prompt, all logits of all positions; choices of one token are read off the last one."""
    model = lm.engine.loaded.model
    done = []
    with torch.inference_mode():
        for row in sequences(lm, work):
            logits = model(torch.tensor([row[0].ids[:-1]], device=model.device)).logits[0].float()  # (T, V)
            logprobs = logits.log_softmax(-1)
            done.append([_sum(logprobs, s) for s in row])
    return done


def generate_scores(lm: LocalLM, work: Workload) -> Answers:
    """The ``generate`` of transformers: one token with ``output_scores``, a prompt at a time."""
    model = lm.engine.loaded.model
    done = []
    with torch.inference_mode():
        for row in sequences(lm, work):
            ids = torch.tensor([row[0].ids[: row[0].start]], device=model.device)
            found = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=1,
                do_sample=False,
                output_scores=True,
                return_dict_in_generate=True,
                pad_token_id=0,
            )
            logprobs = found.scores[0][0].float().log_softmax(-1)
            done.append([float(logprobs[s.ids[s.start]]) for s in row])
    return done


def ours(lm: LocalLM, work: Workload) -> Answers:
    """This package, each time from a cold start."""
    lm.forget()
    return asked(lm, work)


def asked(lm: MeasuringLM, work: Workload) -> Answers:
    """A workload's answers by a measuring model."""
    if all(len(choices) == 1 for choices in work.choices):
        pairs = [(p, choices[0]) for p, choices in zip(work.prompts, work.choices, strict=True)]
        return [[found.total] for found in lm.loglikelihood(pairs)]
    rows: Any = lm.choice_logprobs(work.prompts, work.choices[0]).logprobs
    return [list(row) for row in np.asarray(rows)]


def harness(lm: LocalLM, work: Workload) -> Answers:
    """lm-evaluation-harness's transformers backend, given the same tokens as loglikelihood requests."""
    from lm_eval.models.huggingface import HFLM

    loaded = lm.engine.loaded
    backend = HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=HARNESS_BATCH, backend="causal")
    rows = sequences(lm, work)
    asked = [(("", str(i)), list(s.ids[: s.start]), list(s.ids[s.start :])) for i, row in enumerate(rows) for s in row]
    told = iter(backend._loglikelihood_tokens(asked, disable_tqdm=True))
    return [[next(told)[0] for _ in row] for row in rows]


HARNESS_BATCH = 8

OURS, PUBLISHED, HARNESS, GENERATE, VLLM = "evalbias", "published", "harness", "generate", "vllm"
TITLES = {
    PUBLISHED: "one forward a prompt, full logits",
    HARNESS: "lm-evaluation-harness, transformers",
    GENERATE: "generate, output_scores",
    OURS: "evalbias",
    VLLM: "vLLM server, prefix cache",
}
"""For the table."""
SLOW = (PUBLISHED, GENERATE, HARNESS)
"""They share nothing: their cost is that of every prompt by itself."""

WAYS: dict[str, Way] = {PUBLISHED: published_style, HARNESS: harness, GENERATE: generate_scores, OURS: ours}
"""Those that run in this process."""


class Served:
    """A real vLLM server of the same model, asked by ``ServerLM``; it sleeps while the other ways run.

    Args:
        address: Of the server.
        process: Its process, the first of its group.

    Attributes:
        group: Of its processes.
    """

    def __init__(self, address: str, process: subprocess.Popen[bytes]) -> None:
        self._address = address
        self.group = process.pid
        self._lm = ServerLM("tiny", base_url=address)
        os.killpg(self.group, signal.SIGSTOP)

    def __call__(self, lm: LocalLM, work: Workload) -> Answers:
        """From a cold start: the server forgets its prefixes first."""
        os.killpg(self.group, signal.SIGCONT)
        try:
            reset = self._address.removesuffix("/v1") + "/reset_prefix_cache"
            with urllib.request.urlopen(urllib.request.Request(reset, method="POST")):
                return asked(self._lm, work)
        finally:
            os.killpg(self.group, signal.SIGSTOP)


def applies(way: str, work: Workload) -> bool:
    """Generation tells nothing of given texts."""
    return way != GENERATE or len(work.choices[0]) > 1


def _sum(logprobs: torch.Tensor, sequence: Scored) -> float:
    places = torch.arange(sequence.start - 1, len(sequence.ids) - 1)
    return float(logprobs[places, torch.tensor(sequence.ids[sequence.start :])].sum())
