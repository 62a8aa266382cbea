"""Methods of computing a model's probabilities; each returns the log-probability of every choice after every prompt."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.servers import post
from benchmarks.throughput.workloads import Workload
from evalbias import LocalLM, ServerLM
from evalbias.lm.tokens import Scored, choice_sequences, joint
from evalbias.lm.types import MeasuringLM

Answers = list[list[float]]
Method = Callable[[LocalLM, Workload], Answers]


def sequences(lm: LocalLM, work: Workload) -> list[list[Scored]]:
    """Return the token sequences of every prompt's choices, which are the same for all methods."""
    tokenizer, render = lm.engine.tokenizer, lm.engine.render
    if all(len(choices) == 1 for choices in work.choices):
        pairs = [(render(p), choices[0]) for p, choices in zip(work.prompts, work.choices, strict=True)]
        return [[sequence] for sequence in joint(tokenizer, pairs)]
    return choice_sequences(tokenizer, [render(p) for p in work.prompts], work.choices[0])


def published_style(lm: LocalLM, work: Workload) -> Answers:
    """Run one forward pass per prompt with the logits of all positions; single-token choices share the pass."""
    model = lm.engine.loaded.model
    answers = []
    with torch.inference_mode():
        for row in sequences(lm, work):
            logits = model(torch.tensor([row[0].ids[:-1]], device=model.device)).logits[0].float()  # (T, V)
            logprobs = logits.log_softmax(-1)
            answers.append([_sum(logprobs, s) for s in row])
    return answers


def generate_scores(lm: LocalLM, work: Workload) -> Answers:
    """Call ``generate`` of transformers for one token with ``output_scores``, one prompt at a time."""
    model = lm.engine.loaded.model
    answers = []
    with torch.inference_mode():
        for row in sequences(lm, work):
            ids = torch.tensor([row[0].ids[: row[0].start]], device=model.device)
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=1,
                do_sample=False,
                output_scores=True,
                return_dict_in_generate=True,
                pad_token_id=0,
            )
            logprobs = output.scores[0][0].float().log_softmax(-1)
            answers.append([float(logprobs[s.ids[s.start]]) for s in row])
    return answers


def ours(lm: LocalLM, work: Workload) -> Answers:
    """Run this package from a cold start."""
    lm.forget()
    return measured(lm, work)


def measured(lm: MeasuringLM, work: Workload) -> Answers:
    """Return a measuring model's answers to a workload."""
    if all(len(choices) == 1 for choices in work.choices):
        pairs = [(p, choices[0]) for p, choices in zip(work.prompts, work.choices, strict=True)]
        return [[likelihood.total] for likelihood in lm.loglikelihood(pairs)]
    rows: Any = lm.choice_logprobs(work.prompts, work.choices[0]).logprobs
    return [list(row) for row in np.asarray(rows)]


def harness(lm: LocalLM, work: Workload) -> Answers:
    """Run lm-evaluation-harness's transformers backend on the same tokens, as log-likelihood requests."""
    from lm_eval.models.huggingface import HFLM

    loaded = lm.engine.loaded
    backend = HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=HARNESS_BATCH, backend="causal")
    rows = sequences(lm, work)
    requests = [
        (("", str(i)), list(s.ids[: s.start]), list(s.ids[s.start :])) for i, row in enumerate(rows) for s in row
    ]
    results = iter(backend._loglikelihood_tokens(requests, disable_tqdm=True))
    return [[next(results)[0] for _ in row] for row in rows]


HARNESS_BATCH = 8

OURS, PUBLISHED, HARNESS, GENERATE = "evalbias", "published", "harness", "generate"
VLLM, LLAMA = "vllm", "llama.cpp"
TITLES = {
    PUBLISHED: "one forward pass per prompt, full logits",
    HARNESS: "lm-evaluation-harness, transformers",
    GENERATE: "generate, output_scores",
    OURS: "evalbias",
    VLLM: "vLLM server, prefix cache",
    LLAMA: "llama.cpp server, prompt cache",
}
"""Method -> its name in the table."""
SLOW = (PUBLISHED, GENERATE, HARNESS)
"""Methods that compute every prompt by itself, without a shared prefix."""

METHODS: dict[str, Method] = {PUBLISHED: published_style, HARNESS: harness, GENERATE: generate_scores, OURS: ours}
"""Methods that run in this process."""


class ServerMethod:
    """A real vLLM server with the same model, queried by ``ServerLM``; it is stopped while other methods run.

    Args:
        address: Address of the server.
        process: Process of the server, the leader of its group.
        tokenizer: Folder of the model's tokenizer, if the server is to be given tokens.

    Attributes:
        group: Id of the group of its processes.
    """

    def __init__(self, address: str, process: subprocess.Popen[bytes], *, tokenizer: str | None = None) -> None:
        self._address = address.removesuffix("/v1")
        self.group = process.pid
        self._lm = ServerLM("tiny", base_url=address, tokenizer=tokenizer)
        os.killpg(self.group, signal.SIGSTOP)

    def __call__(self, lm: LocalLM, work: Workload) -> Answers:
        """Run from a cold start: the server first forgets every prompt."""
        os.killpg(self.group, signal.SIGCONT)
        try:
            self._forget()
            return measured(self._lm, work)
        finally:
            os.killpg(self.group, signal.SIGSTOP)

    def _forget(self) -> None:
        post(f"{self._address}/reset_prefix_cache")


class LlamaMethod(ServerMethod):
    """A real llama.cpp server with one slot; see ``ServerMethod``."""

    def _forget(self) -> None:
        post(f"{self._address}/slots/0?action=erase")


def applies(method: str, work: Workload) -> bool:
    """Return whether a method can answer a workload; generation and llama.cpp's server cannot measure given texts."""
    return method not in (GENERATE, LLAMA) or len(work.choices[0]) > 1


def _sum(logprobs: torch.Tensor, sequence: Scored) -> float:
    places = torch.arange(sequence.start - 1, len(sequence.ids) - 1)
    return float(logprobs[places, torch.tensor(sequence.ids[sequence.start :])].sum())
