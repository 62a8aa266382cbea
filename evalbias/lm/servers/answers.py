"""Values in a server's JSON: read strictly, so that a missing log-probability never becomes a number."""

from __future__ import annotations

from typing import Any

from evalbias.lm import top_logprobs
from evalbias.lm.servers.errors import Unreadable

TOLERANCE = 0.05
"""Largest difference in nats between two log-probabilities of one token from one server, in bfloat16."""

NEUTRAL = {"temperature": 1.0, "top_p": 1.0}
"""Sampling settings that leave the probabilities unchanged, for servers that report them after sampling's changes."""

ALL_NEUTRAL = {**NEUTRAL, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""``NEUTRAL`` and the settings beyond OpenAI's, which vLLM and SGLang otherwise take from the model's folder."""


def part(answer: Any, *path: Any, kind: type = object) -> Any:
    """Return the value at a path of a server's answer.

    Args:
        answer: The answer, or a part of it.
        *path: Names and indices that lead to the value.
        kind: Type of the value.

    Raises:
        Unreadable: The value is missing, null or of another type.
    """
    name = ".".join(map(str, path)) or "an entry"
    for step in path:
        try:
            answer = answer[step]
        except (KeyError, IndexError, TypeError):
            raise Unreadable(f"{name} is missing") from None
    if answer is None:
        raise Unreadable(f"{name} is null")
    if not isinstance(answer, kind) or (kind is int and isinstance(answer, bool)):
        raise Unreadable(f"{name} is a {type(answer).__name__}, but must be a {kind.__name__}")
    return answer


def logprob_of(value: Any) -> float:
    """Return a log-probability as a float in [-inf, 0].

    Raises:
        Unreadable: The value is NaN, positive by more than rounding, or not a number.
    """
    try:
        return top_logprobs.logprob_of(value)
    except ValueError as error:
        raise Unreadable(str(error)) from None


def check_agreement(after: float, within: float) -> None:
    """Compare two log-probabilities of one token: generated after a text, and read as the text's last token.

    Raises:
        Unreadable: They differ by more than ``TOLERANCE``.
    """
    if abs(after - within) > TOLERANCE:
        raise Unreadable(f"it gives a token {after:.3f} nats after a text, but {within:.3f} nats within the same text")
