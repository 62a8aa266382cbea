"""Coverage, the probability that a judge's model answers with a label, and the warning where it is low."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from evalbias.evaluation.formatting import joined

LOW_COVERAGE = 0.1
"""Median coverage below which answers mean little: the model hardly ever answers with a label."""


def median_coverage(coverage: ArrayLike) -> float:
    """Return the median of (n,) coverages; NaN where the model reports only shares, or there is no model."""
    values = np.atleast_1d(np.asarray(coverage, dtype=np.float64))
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def coverage_warning(coverage: Mapping[str, ArrayLike]) -> str:
    """Return a warning where a model hardly ever answers with a label; empty where it answers, or nothing is known.

    Args:
        coverage: Criterion -> (n,) coverages; NaN where unknown.

    Examples:
        >>> coverage_warning({"wit": [0.048, 0.02, 0.3]})[:69]
        'Do not rely on this judge: its model hardly ever answers with a label'
        >>> coverage_warning({"wit": [0.9, 0.8], "style": []})
        ''
    """
    medians = {name: median_coverage(values) for name, values in coverage.items()}
    low = {name: median for name, median in medians.items() if median < LOW_COVERAGE}  # NaN is not below
    if not low:
        return ""
    judge = "this judge" if len(low) == len(medians) else f"this judge's answers on {joined(list(low))}"
    shares = joined(["less than 0.1 %" if m < 0.001 else f"{100 * m:.2g} %" for m in low.values()])
    return (
        f"Do not rely on {judge}: its model hardly ever answers with a label (median probability {shares}), so its "
        "answers mean little."
    )
