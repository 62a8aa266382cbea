"""Errors of requests to any ``dspy.LM`` that may be about the prompt, and the reason that they give."""

from __future__ import annotations

from dspy import lm15
from dspy.utils.exceptions import LMError, LMInvalidRequestError, LMUnsupportedModelError

from evalbias.lm.refusals import STATUSES
from evalbias.lm.types import NoProbabilities, PromptRefused

ERRORS = (LMError, lm15.LM15Error, NoProbabilities)
"""Errors of one request, of which ``reason_of`` tells those that may be about the prompt."""


def reason_of(error: BaseException) -> str | None:
    """Return why a model refused a request, as in ``PromptRefused``; None if the prompt cannot be to blame."""
    own = own_refusal(error)
    if own is not None:
        return own.refused[0]
    if isinstance(error, NoProbabilities):
        return f"is answered by {error.model} without token probabilities: {error.reason}."
    if not isinstance(error, LMInvalidRequestError | lm15.InvalidRequestError):
        return None
    if isinstance(error, LMUnsupportedModelError | lm15.UnsupportedModelError):
        return None
    if error.status is not None and error.status not in STATUSES:
        return None
    words = error.message.partition("\n\n")[0].strip()  # DSPy adds advice on conversations
    by = f" by {error.model}" if getattr(error, "model", None) else ""
    return f"is refused{by}: {words.rstrip('.') or f'status {error.status}, and DSPy passes no reason on'}."


def own_refusal(error: BaseException | None) -> PromptRefused | None:
    """Return the refusal by one of our engines that an error of DSPy stands for."""
    while error is not None and not isinstance(error, PromptRefused):
        error = error.__cause__
    return error
