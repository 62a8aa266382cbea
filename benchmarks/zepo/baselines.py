"""Baselines of pairwise judging: judges that score one output, and BERTScore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dspy
import numpy as np

from evalbias.programs import Criterion, PointwiseJudge
from evalbias.programs.judges import likelihood_scores


def direct(criterion: Criterion, items: Sequence[dspy.Example], lm: Any) -> np.ndarray:
    """Return (n,) most probable labels, the paper's direct scoring (Zhou et al. 2024, appendix A)."""
    return np.array([p.mode for p in PointwiseJudge(criterion).batch(items, lm=lm)])


def g_eval(criterion: Criterion, items: Sequence[dspy.Example], lm: Any) -> np.ndarray:
    """Return (n,) expected scores under the probabilities of the labels (Liu et al., 2023)."""
    return np.array([p.score for p in PointwiseJudge(criterion).batch(items, lm=lm)])


def gpt_score(criterion: Criterion, items: Sequence[dspy.Example], lm: Any) -> np.ndarray:
    """Return (n,) mean log-likelihoods per token of the output (Fu et al., 2023).

    The task that precedes the output asks for one that is good on the aspect, so that aspects differ in their scores.
    """
    aspect = f"The {criterion.output_label.lower()} should be as good as possible on {criterion.title}"
    task = f"{criterion.task} {aspect}: {criterion.definition}"
    return likelihood_scores(items, replace(criterion, task=task), lm, reduction="mean")


class BERTScore:
    """BERTScore F1 of the output against its source (Zhang et al., 2020).

    Args:
        encoder: Folder or name of the encoder.
        layers: Number of the encoder's layers to use.
    """

    def __init__(self, encoder: str, layers: int) -> None:
        from bert_score import BERTScorer

        self._scorer = BERTScorer(model_type=encoder, num_layers=layers)

    def __call__(self, criterion: Criterion, items: Sequence[dspy.Example], lm: Any) -> np.ndarray:
        """Return (n,) scores, which do not depend on the criterion."""
        _, _, f1 = self._scorer.score([e.output for e in items], [e.source for e in items])
        return f1.numpy().astype(np.float64)
