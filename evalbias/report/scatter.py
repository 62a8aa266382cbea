"""The paper's scatter: likelihood score against unfairness score, before | after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evalbias.evaluation.likelihood import LikelihoodMeasurement
from evalbias.measures import unfairness_scores
from evalbias.report.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def likelihood_scatter(
    before: LikelihoodMeasurement, after: LikelihoodMeasurement | None, criterion: str, path: Path
) -> None:
    """Write a PNG with one panel a measurement.

    Raises:
        ImportError: matplotlib is not installed.
    """
    panels = [("before", before)] if after is None else [("before", before), ("after", after)]
    figure = new_figure(5.2 * len(panels), 4.4)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, found) in zip(axes, panels, strict=True):
        _panel(axis, title, found, criterion)
    axes[0].set_ylabel("unfairness score US (model - human)")
    figure.savefig(path, dpi=120)


def _panel(axis: Axes, title: str, found: LikelihoodMeasurement, criterion: str) -> None:
    likelihoods, model, human = found.arrays(criterion)
    kept = np.isfinite(likelihoods) & np.isfinite(model) & np.isfinite(human)
    unfairness = unfairness_scores(model[kept], human[kept], normalization=found.normalization)
    result = found.result()[criterion]
    axis.axhline(0.0, color="0.6", linewidth=1)
    axis.scatter(likelihoods[kept], unfairness, s=12, alpha=0.5, edgecolors="none", color="#2b6cb0")
    axis.set_title(
        f"{criterion}, {title} (n = {result.n}): BiasScore {result.bias_score:+.2f}, "
        f"performance {result.performance:+.2f}",
        fontsize="medium",
    )
    axis.set_xlabel(f"likelihood score LS ({found.reduction} over tokens, nats)")
    axis.spines[["top", "right"]].set_visible(False)
