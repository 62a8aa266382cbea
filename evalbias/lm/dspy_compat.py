"""DSPy names that evalbias needs and that DSPy does not export publicly.

Every other module imports them from here, so that a new DSPy release has to be checked in one file only. All of them
were seen in DSPy 3.4.1; the package requires ``dspy>=3.4.1,<3.5``.

* ``request_judgments``, ``non_judgment_properties`` (``dspy._vendor.lm15.judgments``): read the judgments that a
  request asks for. ``dspy.lm15`` exports only ``judgments``, which writes them.
* ``request_to_dict``, ``response_to_dict``, ``response_from_dict`` (``dspy._vendor.lm15.serde``): the JSON form of
  requests and responses. ``dspy.lm15`` exports the types without it.
* ``validate_request`` (``dspy.clients.engines.base``): the check that every DSPy engine runs first.
  ``dspy.clients.engines`` exports the engines without it.
* ``LM_CLASS`` (``dspy.clients.base_lm.LM_CLASS_STATE_KEY``): the key of a saved model's class in its state.
* ``active_trace`` (``dspy.settings.trace``, also in DSPy 2): the trace that optimizers read. The setting is public to
  read but its list, which evalbias edits in place, has no documented interface.
* ``decision_type`` (``dspy.adapters.types.decision``): which outputs are decisions; experimental in DSPy.
* ``calling_predictor`` (``dspy.settings.caller_modules``): the module that is being called, as DSPy's own decision
  evidence finds it.
* ``without_truncation_warning`` (logger ``dspy.clients.lm``): DSPy warns of every answer that reached its token limit,
  and offers no setting for answers that are meant to be short.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import dspy
from dspy._vendor.lm15.judgments import non_judgment_properties, request_judgments
from dspy._vendor.lm15.serde import request_to_dict, response_from_dict, response_to_dict
from dspy.adapters.types.decision import Choice, Noul, Score, decision_type
from dspy.clients.base_lm import LM_CLASS_STATE_KEY as LM_CLASS
from dspy.clients.engines.base import validate_request

__all__ = [
    "LM_CLASS",
    "active_trace",
    "calling_predictor",
    "is_decision",
    "non_judgment_properties",
    "request_judgments",
    "request_to_dict",
    "response_from_dict",
    "response_to_dict",
    "validate_request",
    "without_truncation_warning",
]

_short: ContextVar[bool] = ContextVar("_short", default=False)


def _keep(record: logging.LogRecord) -> bool:
    return not (_short.get() and "truncated" in record.getMessage())


logging.getLogger("dspy.clients.lm").addFilter(_keep)


def active_trace() -> list[Any] | None:
    """Return the list to which DSPy appends (predictor, inputs, prediction), or None while nothing is traced."""
    trace: list[Any] | None = dspy.settings.trace
    return trace


def calling_predictor() -> Any:
    """Return the predictor that is being called in this context, or None."""
    caller = (dspy.settings.caller_modules or [None])[-1]
    return caller if isinstance(caller, dspy.Predict) else None


def is_decision(field: Any) -> bool:
    """Return whether an output field is declared as one of DSPy's decisions, with its options."""
    declared = any(
        isinstance(kind, type) and issubclass(kind, Noul | Score | Choice)
        for kind in (field.annotation, *field.metadata)
    )
    return declared and decision_type(field) is not None


@contextmanager
def without_truncation_warning() -> Iterator[None]:
    """Silence DSPy's warning of truncated answers in this context: one token was asked for."""
    token = _short.set(True)
    try:
        yield
    finally:
        _short.reset(token)
