"""Errors of requests to a server, which of them a retry may cure, and what to do about the others."""

from __future__ import annotations

from evalbias.lm.types import ModelChanged

TRANSIENT = frozenset({408, 409, 429})
"""Statuses below 500 that are retried."""

DENIED = frozenset({401, 402, 403})
"""Statuses of a missing or wrong key, of an account without credit, or of a key without permission."""

REDIRECTS = range(300, 400)
"""Statuses that send a request on to another address, which gets neither the texts nor the key."""

KEY_REMEDY = (
    "Give the key as api_key, in EVALBIAS_API_KEY or in the variable that --api-key-env names; OPENAI_API_KEY is sent "
    "to https://api.openai.com only."
)

MISSING = frozenset({404, 405})
"""Statuses of an address or a model that the server does not have; a server of web pages refuses POST with 405."""

SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Codes with which OpenAI's API says, under status 429, that the account has no credit left."""


class RequestError(Exception):
    """A server gave no usable answer to a request."""


class NoAnswer(RequestError):  # noqa: N818 - named for the problem
    """The server cannot be reached, the connection broke, or time ran out."""


class StatusError(RequestError):
    """The server answered with an error status.

    Attributes:
        status: HTTP status.
        reason: The server's own words, at most ``REASON`` characters.
        retry_after: Seconds after which the server asks to try again; None if it does not say.
        code: The server's name for the error; empty if it gives none.
    """

    REASON = 1000

    def __init__(self, status: int, reason: str, retry_after: int | None = None, code: str = "") -> None:
        self.status = status
        self.reason = reason[: self.REASON]
        self.retry_after = retry_after
        self.code = code[: self.REASON]
        super().__init__(f"status {status}, {self.reason}")


class Declined(RequestError):  # noqa: N818 - named for the problem
    """The model declines to answer about one item; the server answered, so there is no error status."""


class NotJSON(RequestError):  # noqa: N818 - named for the problem
    """An answer is not JSON, as when a proxy answers instead of the server, or a web page stands at the address.

    Args:
        url: Address that was asked.
        text: The answer; the error shows its first ``SHOWN`` characters.
    """

    SHOWN = 80

    def __init__(self, url: str, text: str) -> None:
        words = " ".join(text.split())
        super().__init__(f"{url} answers {words[: self.SHOWN]!r}{'...' * (len(words) > self.SHOWN)}, which is not JSON")


class Unreadable(ValueError):  # noqa: N818 - a value error like the others, named for the problem
    """A server's answer lacks the requested values, or they have another form."""


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed."""
    if isinstance(error, StatusError):
        again = error.status in TRANSIENT or (error.status >= 500 and error.status != 501)
        return again and error.code not in SPENT
    return isinstance(error, NoAnswer | NotJSON)


def is_denied(error: BaseException) -> bool:
    """Return whether the server denies access or redirects, so that nothing is known about what it can do."""
    return isinstance(error, StatusError) and (
        error.status in DENIED or error.status in REDIRECTS or error.code in SPENT
    )


def is_missing(error: BaseException) -> bool:
    """Return whether the server has nothing at the address, or no such model."""
    return isinstance(error, StatusError) and error.status in MISSING


def is_fatal(error: BaseException) -> bool:
    """Return whether every other request of the call would fail in the same way."""
    return is_denied(error) or is_missing(error) or isinstance(error, ModelChanged)


def describe_error(error: Exception) -> str:
    """Describe an error of a request and its remedy."""
    if isinstance(error, NoAnswer | Declined):
        return str(error)
    if isinstance(error, NotJSON):
        return f"{error}. Check the address: that of an API usually ends in /v1."
    if not isinstance(error, StatusError):
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        return f"the server's answer cannot be used: {kind}{error}."
    credit = "Add credit to the account, or use another key."
    remedy = {
        401: KEY_REMEDY,
        402: credit,
        403: f"A key with the necessary permission is needed. {KEY_REMEDY}",
        **dict.fromkeys(REDIRECTS, "Texts and keys are not sent on: give that address yourself if you trust it."),
        **dict.fromkeys(MISSING, "Check the address and the model's name."),
        429: credit if error.code in SPENT else "Ask fewer at a time (in_flight), or raise patience.",
    }.get(error.status, "")
    reason = error.reason.rstrip(" .")
    return f"status {error.status}{', ' * bool(reason)}{reason}. {remedy}".rstrip()
