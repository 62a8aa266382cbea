"""How a judge asks its model: the check of the options, and their place in a saved judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from evalbias.lm.sampled_answers import Sampling

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


def scoring_state(scoring: str, sampling: Sampling | None) -> dict[str, Any]:
    """Return both options as a saved judge holds them."""
    return {"scoring": scoring, **({} if sampling is None else {"sampling": asdict(sampling)})}


def scoring_options(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor's options from a saved judge; judges saved without them measure."""
    sampling = state.get("sampling")
    return {
        "scoring": state.get("scoring", "expected"),
        "sampling": None if sampling is None else Sampling(**sampling),
    }
