"""DSPy names that evalbias needs and that DSPy does not export publicly.

Every other module imports them from here, so that a new DSPy release has to be checked in one file only. All of them
were seen in DSPy 3.4.1; the package requires ``dspy>=3.4.1,<3.5``.

* ``request_judgments``, ``non_judgment_properties`` (``dspy._vendor.lm15.judgments``): read the judgments that a
  request asks for. ``dspy.lm15`` exports only ``judgments``, which writes them.
* ``request_to_dict``, ``response_to_dict``, ``response_from_dict`` (``dspy._vendor.lm15.serde``): the JSON form of
  requests and responses. ``dspy.lm15`` exports the types without it.
* ``validate_request`` (``dspy.clients.engines.base``): the check that every DSPy engine runs first.
  ``dspy.clients.engines`` exports the engines without it.
* ``active_trace`` (``dspy.settings.trace``, also in DSPy 2): the trace that optimizers read. The setting is public to
  read but its list, which evalbias edits in place, has no documented interface.
"""

from __future__ import annotations

from typing import Any

import dspy
from dspy._vendor.lm15.judgments import non_judgment_properties, request_judgments
from dspy._vendor.lm15.serde import request_to_dict, response_from_dict, response_to_dict
from dspy.clients.engines.base import validate_request

__all__ = [
    "active_trace",
    "non_judgment_properties",
    "request_judgments",
    "request_to_dict",
    "response_from_dict",
    "response_to_dict",
    "validate_request",
]


def active_trace() -> list[Any] | None:
    """Return the list to which DSPy appends (predictor, inputs, prediction), or None while nothing is traced."""
    trace: list[Any] | None = dspy.settings.trace
    return trace
