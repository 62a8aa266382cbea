"""Rules that end a search; a budget ends it as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Stopping(Protocol):
    """Rule that is applied before every epoch."""

    def __call__(self, history: Sequence[float]) -> str | None:
        """Return the reason to stop, or None to continue.

        Args:
            history: Objective of the incumbent at the start and after every epoch so far.
        """
        ...


class Epochs:
    """Ends the search after a number of epochs.

    Args:
        count: Number of epochs, at least 1 (the paper: 5).
    """

    def __init__(self, count: int = 5) -> None:
        if count < 1:
            raise ValueError(f"epochs={count}: search for at least one.")
        self.count = count

    def __call__(self, history: Sequence[float]) -> str | None:
        """See ``Stopping``."""
        return f"{self.count} epochs" if len(history) > self.count else None


class Patience:
    """Ends the search when several epochs in a row brought nothing better.

    Args:
        patience: Number of epochs without a better incumbent, at least 1.
        epochs: Largest number of epochs.
    """

    def __init__(self, patience: int = 2, epochs: int = 20) -> None:
        if patience < 1:
            raise ValueError(f"patience={patience}: wait for at least one epoch.")
        self.patience, self._epochs = patience, Epochs(epochs)

    def __call__(self, history: Sequence[float]) -> str | None:
        """See ``Stopping``."""
        recent = history[-self.patience - 1 :]
        if len(recent) > self.patience and max(recent[1:]) <= recent[0]:
            return f"nothing better in {self.patience} epochs"
        return self._epochs(history)
