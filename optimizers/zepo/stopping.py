"""When the search is over; a budget ends it besides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Stopping(Protocol):
    """Asked before every epoch."""

    def __call__(self, history: Sequence[float]) -> str | None:
        """The reason to stop, or None.

        Args:
            history: The incumbent's objective at the start and after every epoch so far.
        """
        ...


class Epochs:
    """So many epochs.

    Args:
        count: At least 1; the paper's is 5.
    """

    def __init__(self, count: int = 5) -> None:
        if count < 1:
            raise ValueError(f"epochs={count}: search for at least one.")
        self.count = count

    def __call__(self, history: Sequence[float]) -> str | None:
        """See ``Stopping``."""
        return f"{self.count} epochs" if len(history) > self.count else None


class Patience:
    """Until so many epochs brought nothing, or the epochs are over.

    Args:
        patience: Epochs without a better incumbent, at least 1.
        epochs: At most so many.
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
