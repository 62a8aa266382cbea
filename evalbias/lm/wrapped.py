"""The base of models that change or watch what another model answers."""

from __future__ import annotations

from typing import Any

from evalbias.lm.types import MeasuringLM


class WrappedLM:
    """A measuring LM around another one; every attribute that a subclass does not define is the wrapped model's.

    Args:
        lm: Model to ask.
    """

    def __init__(self, lm: MeasuringLM) -> None:
        self._lm = lm

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy is asked for these before it has the model
            raise AttributeError(name)
        return getattr(self._lm, name)
