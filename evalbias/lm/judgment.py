"""One judgment in DSPy's contract: a request that asks for measured probabilities, and how to read its answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from dspy import lm15

from evalbias.lm.types import ChoiceLogprobs, Message

FIELD = "score"
LOGPROBS = "candidate_logprobs"
"""Key of ``Response.provider_data`` under which our engines tell the log-probabilities before renormalizing."""

COVERAGE = "coverage"
"""Key under which DSPy's own engine tells the probability that any of the choices follows."""


def judgment_request(model: str, messages: Sequence[Message], choices: Sequence[str]) -> lm15.Request:
    """Ask which of the choices follows the messages, with its probability."""
    fmt = lm15.judgments(**{FIELD: lm15.choice("Which answer follows?", list(choices))})
    return chat_request(model, messages, lm15.Config(response_format=fmt, probabilities="required"))


def chat_request(model: str, messages: Sequence[Message], config: lm15.Config) -> lm15.Request:
    """Messages as a request: system messages become its system text, the others its turns.

    Raises:
        ValueError: A role that is none of system, user and assistant.
    """
    system = "\n\n".join(m["content"] for m in messages if m["role"] == "system") or None
    makers = {"user": lm15.Message.user, "assistant": lm15.Message.assistant}
    turns = []
    for message in messages:
        if message["role"] == "system":
            continue
        if message["role"] not in makers:
            raise ValueError(f"A message has the role {message['role']!r}: use system, user or assistant.")
        turns.append(makers[message["role"]](message["content"]))
    return lm15.Request(model=model, system=system, messages=tuple(turns), config=config)


def read_judgment(response: lm15.Response, choices: Sequence[str]) -> ChoiceLogprobs:
    """The measured answer as log-probabilities, shape (1, len(choices)).

    Our engines tell the log-probabilities, DSPy's own engine the shares and their coverage. Where only shares are
    told the coverage is NaN.

    Raises:
        ValueError: The answer holds no measured probabilities, or not those of the choices.
    """
    part = next((p for p in response.message.parts if isinstance(p, lm15.DataPart)), None)
    if part is None or part.probabilities is None:
        raise ValueError(
            f"{response.model} answered a judgment without measuring it: use LocalLM, or a vLLM or SGLang server."
        )
    shares = part.probabilities[FIELD]
    if set(shares) != set(choices):
        raise ValueError(f"{response.model} answered for {sorted(shares)} where {sorted(choices)} were asked.")
    told = response.provider_data or {}
    if LOGPROBS in told:
        row = np.array([told[LOGPROBS][FIELD][c] for c in choices], dtype=np.float64)
        return ChoiceLogprobs(tuple(choices), row[None])
    coverage = told.get(COVERAGE, {}).get(FIELD)
    with np.errstate(divide="ignore"):  # a share of 0 is a log-probability of -inf
        row = np.log([shares[c] for c in choices]) + (0.0 if coverage is None else np.log(coverage))
    return ChoiceLogprobs(tuple(choices), row[None], renormalized=coverage is None)
