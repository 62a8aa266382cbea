"""The paper's scatter plot: likelihood score against unfairness score, before and after (Ohi et al. 2024, figure 2)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evalbias.evaluation.estimates import estimate_value
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, Judged
from evalbias.evaluation.likelihood import LikelihoodBias
from evalbias.measures import unfairness_scores
from evalbias.report.figure import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def likelihood_scatter(before: Judged, after: Judged | None, path: Path) -> None:
    """Write a PNG with one panel a judge.

    Args:
        before: Answers of the first judge, with likelihoods and human scores.
        after: Answers of the second judge; None draws one panel.
        path: PNG file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    panels = [("before", before)] if after is None else [("before", before), ("after", after)]
    figure = new_figure(5.2 * len(panels), 4.4)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, judged) in zip(axes, panels, strict=True):
        _panel(axis, title, judged)
    axes[0].set_ylabel("unfairness score US (model - human)")
    save_figure(figure, path)


def _panel(axis: Axes, title: str, judged: Judged) -> None:
    likelihoods, model, human = judged.covariate(LIKELIHOODS), judged.answers, judged.covariate(HUMAN_SCORES)
    kept = np.isfinite(likelihoods) & np.isfinite(model) & np.isfinite(human)
    unfairness = unfairness_scores(model[kept], human[kept])
    axis.axhline(0.0, color="0.6", linewidth=1)
    axis.scatter(likelihoods[kept], unfairness, s=12, alpha=0.5, edgecolors="none", color="#2b6cb0")
    samples = LikelihoodBias().samples(judged)
    bias, performance = (estimate_value(samples[name]) for name in ("bias_score", "performance"))
    axis.set_title(
        f"{judged.criterion}, {title} (n = {kept.sum()}): BiasScore {bias:+.2f}, performance {performance:+.2f}",
        fontsize="medium",
    )
    axis.set_xlabel(f"likelihood score LS ({judged.provenance.get('reduction', 'sum')} over tokens, nats)")
