"""Settings by which a judge asks its model: measured, written, or estimated from repeated answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from evalbias.lm.sampled_answers import Sampling
from evalbias.programs.settings import Setting

SAMPLED = "sampled"


class SamplingSetting(Setting[Sampling | None]):
    """Settings by which ``scoring="sampled"`` asks.

    It follows ``scoring``, which is set first: None with any other scoring, and ``Sampling()`` unless another is given.
    """

    def __get__(self, program: Any, owner: type | None = None) -> Sampling | None:
        """Return the settings; None if the judge does not sample."""
        return super().__get__(program) if program.scoring == SAMPLED else None

    def __set__(self, program: Any, value: Sampling | None) -> None:
        """Set the settings; None for the default.

        Raises:
            ValueError: The judge does not sample, or the value is no ``Sampling``.
        """
        if value is not None and program.scoring != SAMPLED:
            raise ValueError(
                f"scoring={program.scoring!r} does not sample: leave sampling out, or give scoring={SAMPLED!r}."
            )
        super().__set__(program, Sampling() if value is None else value)

    def checked(self, value: Sampling | None) -> Sampling | None:
        """Return the settings.

        Raises:
            ValueError: The value is no ``Sampling``.
        """
        if not isinstance(value, Sampling):
            raise ValueError(f"{self.name}={value!r} is no Sampling: give evalbias.Sampling(samples=...).")
        return value

    def dump(self, value: Sampling | None) -> Any:
        """Return the fields."""
        return value and asdict(value)

    def load(self, saved: Any, current: Sampling | None) -> Sampling | None:
        """Return the settings with these fields; the default where none were saved."""
        return Sampling() if saved is None else Sampling(**saved)
