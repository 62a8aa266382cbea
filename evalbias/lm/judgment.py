"""One judgment of a ``dspy.LM``: the requests for its probabilities, and how to read their answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from dspy import lm15

from evalbias.lm.top_logprobs import first_token_row, first_tokens
from evalbias.lm.types import ChoiceLogprobs, Message, NoProbabilities, PromptRefused

FIELD = "score"
LOGPROBS = "candidate_logprobs"
"""Key of ``Response.provider_data`` under which our engines return the log-probabilities before renormalizing."""

COVERAGE = "coverage"
"""Key under which DSPy's own engine returns the probability that any of the choices follows."""


def judgment_request(model: str, messages: Sequence[Message], choices: Sequence[str]) -> lm15.Request:
    """Return the request that asks which of the choices follows the messages, with its probability."""
    fmt = lm15.judgments(**{FIELD: lm15.choice("Which answer follows?", list(choices))})
    return chat_request(model, messages, lm15.Config(response_format=fmt, probabilities="required"))


def first_token_request(model: str, messages: Sequence[Message], top: int) -> lm15.Request:
    """Return the request for the ``top`` most probable first tokens of the answer to the messages."""
    return chat_request(model, messages, lm15.Config(max_tokens=1, temperature=1.0, top_p=1.0, logprobs=top))


def chat_request(model: str, messages: Sequence[Message], config: lm15.Config) -> lm15.Request:
    """Return messages as a request: system messages become its system text, the others its turns.

    Raises:
        ValueError: A message has a role other than system, user and assistant.
    """
    system = "\n\n".join(m["content"] for m in messages if m["role"] == "system") or None
    makers = {"user": lm15.Message.user, "assistant": lm15.Message.assistant}
    turns = []
    for number, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if message["role"] not in makers:
            raise ValueError(f"Message {number} has the role {message['role']!r:.80}: use system, user or assistant.")
        turns.append(makers[message["role"]](message["content"]))
    return lm15.Request(model=model, system=system, messages=tuple(turns), config=config)


def is_measured(response: lm15.Response) -> bool:
    """Return whether a response holds the measured probabilities of a judgment."""
    part = _data(response)
    return part is not None and part.probabilities is not None


def read_judgment(response: lm15.Response, choices: Sequence[str]) -> ChoiceLogprobs:
    """Return the measured answer as log-probabilities, shape (1, len(choices)).

    Our engines return the log-probabilities, DSPy's own engine the shares and their coverage. From a response with
    shares only, the coverage is NaN.

    Raises:
        NoProbabilities: The response has no measured probabilities.
        ValueError: The response has those of other choices.
        PromptRefused: The probabilities sum to more than 1.
    """
    part = _data(response)
    if part is None or part.probabilities is None:
        raise NoProbabilities(response.model, "it answered a judgment without measuring it")
    shares = part.probabilities[FIELD]
    if set(shares) != set(choices):
        raise ValueError(
            f"{response.model} returned probabilities of {sorted(shares)}, not of {sorted(choices)}: use another model."
        )
    details = response.provider_data or {}
    coverage = details.get(COVERAGE, {}).get(FIELD)
    if LOGPROBS in details:
        row = np.array([details[LOGPROBS][FIELD][c] for c in choices], dtype=np.float64)  # (c,)
    else:
        with np.errstate(divide="ignore"):  # a share of 0 is a log-probability of -inf
            row = np.log([shares[c] for c in choices]) + (0.0 if coverage is None else np.log(coverage))
    try:
        return ChoiceLogprobs(tuple(choices), row[None], renormalized=LOGPROBS not in details and coverage is None)
    except ValueError as error:
        raise PromptRefused({0: f"has an answer that cannot be used: {error}."}, names={0: "The prompt"}) from error


def read_first_token(response: lm15.Response, choices: Sequence[str]) -> ChoiceLogprobs:
    """Return the log-probabilities of choices from the reported first tokens, shape (1, c); see ``first_token_row``.

    Raises:
        NoProbabilities: The response has no log-probabilities, or only that of the token it wrote.
    """
    if not response.logprobs:
        raise NoProbabilities(response.model, "its answers carry no log-probabilities")
    try:
        top = first_tokens((token.token, token.logprob) for token in response.logprobs[0].top)
    except ValueError as error:
        raise NoProbabilities(response.model, str(error)) from error
    if len(response.logprobs[0].top) < 2:
        raise NoProbabilities(response.model, "its answers carry no log-probabilities of other tokens")
    return ChoiceLogprobs(tuple(choices), first_token_row(top, choices)[None])


def _data(response: lm15.Response) -> lm15.DataPart | None:
    return next((p for p in response.message.parts if isinstance(p, lm15.DataPart)), None)
