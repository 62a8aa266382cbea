"""LS, the log-likelihood of an output given its source and the task (Ohi et al. 2024, eq 1), of a criterion's items."""

from __future__ import annotations

from collections.abc import Sequence

import dspy
import numpy as np

from evalbias.lm.types import MeasuringLM
from evalbias.measures.arrays import FloatArray
from evalbias.programs.criterion import Criterion
from evalbias.programs.prompt import likelihood_messages
from evalbias.programs.refused import Refused, answer_items

REDUCTIONS = ("sum", "mean")


def likelihood_scores(
    examples: Sequence[dspy.Example],
    criterion: Criterion,
    lm: MeasuringLM,
    *,
    reduction: str = "sum",
    refused: Refused = "undefined",
) -> FloatArray:
    """Measure (n,) LS, ``log P(output | source, task)`` in nats (Ohi et al. 2024, eq 1); NaN if refused.

    Args:
        examples: Items with ``source`` and ``output``; the same text is scored once.
        criterion: Its task is the description d of eq 1.
        lm: Model whose likelihood is measured.
        reduction: ``"sum"`` over the output's tokens, or ``"mean"`` as in the paper's code.
        refused: See ``PointwiseJudge.batch``.
    """
    return likelihoods_and_refusals(examples, criterion, lm, reduction=reduction, refused=refused)[0]


def likelihoods_and_refusals(
    examples: Sequence[dspy.Example],
    criterion: Criterion,
    lm: MeasuringLM,
    *,
    reduction: str,
    refused: Refused = "undefined",
) -> tuple[FloatArray, dict[int, str]]:
    """Measure (n,) LS as ``likelihood_scores`` does, and return why it is refused by index of an item."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction={reduction!r} is unknown: choose one of {REDUCTIONS}.")
    texts = [(e.source, e.output) for e in examples]
    unique = dict(zip(texts, examples, strict=True))
    questions = [(likelihood_messages(criterion, source), output) for source, output in unique]
    answers, reasons = answer_items(lm.loglikelihood, questions, list(unique.values()), refused=refused)
    keys = list(unique)
    known = {keys[i]: a.total if reduction == "sum" else a.mean for i, a in answers.items()}
    why = {keys[i]: reason for i, reason in reasons.items()}
    values = np.array([known.get(text, np.nan) for text in texts], dtype=np.float64)
    return values, {i: why[text] for i, text in enumerate(texts) if text in why}
