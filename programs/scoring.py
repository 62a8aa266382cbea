"""How a judge asks its model: the check of the options, and their place in a saved judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from evalbias.lm.sampled_answers import Sampling
from evalbias.programs.settings import Setting

SAMPLED = "sampled"


def checked_sampling(scoring: str, sampling: Sampling | None, known: Sequence[str]) -> Sampling | None:
    """Return the sampling settings of a judge; None if it does not sample.

    Raises:
        ValueError: ``scoring`` is not one of ``known``, or ``sampling`` is given for a scoring that does not sample.
    """
    if scoring not in known:
        raise ValueError(f"scoring={scoring!r} is unknown: choose one of {tuple(known)}.")
    if scoring == SAMPLED:
        return sampling or Sampling()
    if sampling is not None:
        raise ValueError(f"scoring={scoring!r} does not sample: leave sampling out, or give scoring={SAMPLED!r}.")
    return None


class SamplingSetting(Setting[Sampling | None]):
    """The sampling settings of a judge; None if it does not sample."""

    def dump(self, value: Sampling | None) -> Any:
        """Return the fields."""
        return None if value is None else asdict(value)

    def load(self, saved: Any, current: Sampling | None) -> Sampling | None:
        """Return the settings with these fields."""
        return None if saved is None else Sampling(**saved)
