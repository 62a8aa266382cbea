"""Errors of requests to any ``dspy.LM`` that may be about the prompt, and the reason that they give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dspy import lm15
from dspy.utils.exceptions import LMError, LMInvalidRequestError, LMUnsupportedModelError

from evalbias.lm.refusals import STATUSES
from evalbias.lm.types import NoProbabilities, PromptRefused, RequestRefused

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


@contextmanager
def trial_after(refusal: Exception) -> Iterator[None]:
    """Ask about a harmless text, after a refusal; that it is answered shows that the prompt is to blame.

    Raises:
        NoProbabilities: The model reports no probabilities for the harmless text either.
        RequestRefused: The model refuses the harmless text too.
    """
    try:
        yield
    except ERRORS as second:
        if isinstance(second, NoProbabilities) or reason_of(second) is None:
            raise
        raise RequestRefused(
            f"The request {reason_of(refusal)} A harmless text with the same settings is refused too: change the "
            "settings or the model.",
            {},
        ) from refusal


def own_refusal(error: BaseException | None) -> PromptRefused | None:
    """Return the refusal by one of our engines that an error of DSPy stands for."""
    while error is not None and not isinstance(error, PromptRefused):
        error = error.__cause__
    return error
