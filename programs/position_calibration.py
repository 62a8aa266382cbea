"""Calibration of a pairwise judge for position: its kinds, how they are fitted, and how a judge keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from evalbias.measures.arrays import FloatArray
from evalbias.measures.calibration import Correction, Order
from evalbias.measures.position_map import PositionMap, first_shares, fit_position_map
from evalbias.measures.position_offsets import PositionOffsets, batch_offsets, position_prior, prior_offsets
from evalbias.programs.settings import Setting

FITTED = ("batch", "pride", "calibraeval")
"""Kinds that are fitted to comparisons; they need no labels."""
EVERY_ORDER = ("pride", "calibraeval")
"""Kinds whose fit asks every comparison in every rotation of the candidates."""
CALIBRATIONS = (None, "contextual", *FITTED)
FEWEST_COMPARISONS = 10
"""Smallest number of comparisons for a fit to the comparisons that it corrects, and for a map."""

Corrections = dict[int, PositionOffsets | PositionMap]
"""Fitted correction by number of candidates."""


def calibrations_of(count: int) -> tuple[str | None, ...]:
    """Return the kinds that comparisons of so many candidates can have; ``calibraeval`` is for pairs."""
    return CALIBRATIONS if count == 2 else tuple(kind for kind in CALIBRATIONS if kind != "calibraeval")


class CalibrationError(ValueError):
    """The comparisons given do not determine a calibration."""


class CalibrationSetting(Setting[str | None]):
    """The kind of calibration. What was fitted for one kind is forgotten when another is set."""

    def __set__(self, program: Any, value: str | None) -> None:
        """Set the kind."""
        changed = program.settings.values.get(self.name) != value
        super().__set__(program, value)
        if changed:
            program.settings.values["corrections"] = {}


class CorrectionsSetting(Setting[Corrections]):
    """The fitted corrections of a judge."""

    def dump(self, value: Corrections) -> Any:
        """Return the fields of each correction, with text keys, as JSON has them."""
        return {str(count): asdict(correction) for count, correction in value.items()}

    def load(self, saved: Any, current: Corrections) -> Corrections:
        """Return the corrections with these fields."""
        return {int(count): _correction(int(count), fields) for count, fields in saved.items()}

    def reset(self, value: Corrections) -> Corrections:
        """Return no corrections."""
        return {}


def _correction(count: int, fields: dict[str, Any]) -> PositionOffsets | PositionMap:
    numbers = {name: tuple(float(value) for value in values) for name, values in fields.items()}
    if "offsets" not in numbers:
        return PositionMap(**numbers)
    if len(numbers["offsets"]) not in (count, count + 1):  # one more for a tie
        raise TypeError(f"{len(numbers['offsets'])} offsets for {count} candidates")
    return PositionOffsets(**numbers)


def fit_correction(
    calibration: str, logprobs: FloatArray, orders: Sequence[Order], *, min_coverage: float
) -> PositionOffsets | PositionMap:
    """Fit a calibration to comparisons without labels.

    Args:
        calibration: One of ``FITTED``.
        logprobs: Log-probabilities of the answers, shape (n, r, c + t); NaN where undefined.
        orders: Index of the candidate at each position, for each of the r orders; all rotations for a kind in
            ``EVERY_ORDER``.
        min_coverage: Smallest total probability of the answers; prompts below it are left out.

    Raises:
        CalibrationError: Too few comparisons are defined, there are more candidates than the kind takes, or the orders
            contradict each other.
    """
    count = len(orders[0])
    covered = np.exp(logprobs).sum(axis=2, keepdims=True) >= min_coverage
    kept = np.where(covered, logprobs, np.nan)
    if calibration == "calibraeval":
        return _position_map(kept, count)
    if calibration == "pride":
        offsets = prior_offsets(position_prior(kept, orders), ties=kept.shape[2] > count)
    else:
        offsets = batch_offsets(kept)
    if np.isnan(offsets).any():
        raise CalibrationError(
            f"None of {len(kept)} comparisons has a defined, positive probability of every answer: calibration="
            f"{calibration!r} cannot be fitted. Give other comparisons, or a lower min_coverage."
        )
    return PositionOffsets(tuple(offsets.tolist()))


def _position_map(logprobs: FloatArray, count: int) -> PositionMap:
    if count != 2:
        raise CalibrationError(f"calibration='calibraeval' maps pairs, not {count} candidates: use 'pride' for those.")
    shares = first_shares(logprobs)  # (n, 2)
    usable = int((~np.isnan(shares)).all(axis=1).sum())
    if usable < FEWEST_COMPARISONS:
        raise CalibrationError(
            f"{usable} of {len(shares)} pairs are defined in both orders, too few to fit a map: give "
            f"{FEWEST_COMPARISONS} or more."
        )
    position_map = fit_position_map(shares[:, 0], shares[:, 1])
    if position_map is None:
        raise CalibrationError(
            f"The two orders contradict each other in too many of {usable} pairs: no monotone map is better than the "
            "constant 1/2. Use debias='permutation'."
        )
    return position_map


def fit_within(
    calibration: str, logprobs: FloatArray, orders: Sequence[Order], *, min_coverage: float
) -> Correction | None:
    """Fit a calibration to the comparisons that it corrects; None if all of them are undefined anyway.

    Raises:
        ValueError: There are fewer comparisons than ``FEWEST_COMPARISONS``, or they were not asked in every order.
        CalibrationError: See ``fit_correction``.
    """
    if calibration in EVERY_ORDER and len(orders) < len(orders[0]):
        raise ValueError(
            f"calibration={calibration!r} is not fitted, which takes every order of the candidates: call "
            "judge.calibrate(examples) first."
        )
    if len(logprobs) < FEWEST_COMPARISONS:
        name = calibration.capitalize()
        raise ValueError(
            f"{name} calibration over {len(logprobs)} comparisons would remove the preference itself: give "
            f"{FEWEST_COMPARISONS} or more, or call judge.calibrate(examples) first."
        )
    if not (np.exp(logprobs).sum(axis=2) >= min_coverage).any():
        return None
    return fit_correction(calibration, logprobs, orders, min_coverage=min_coverage)
