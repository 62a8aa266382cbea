"""Last sentences of the commands: what a result means, in the words of a verdict."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from evalbias.evaluation.estimates import Change, Comparison, Estimate, Measurement
from evalbias.evaluation.loops import LoopSummary
from evalbias.evaluation.words import count, number
from evalbias.measures.resample import MeanStatistic

LEVEL = 0.05


def worsened(comparisons: Mapping[str, Comparison]) -> list[str]:
    """Return what is significantly worse after than before, such as "performance +0.51 -> -0.39".

    A bias is worse if it is farther from that of an unbiased judge, on the side that is of this bias where only one is;
    an agreement if it is lower (paired tests at 5 %).
    """
    changes = [c.changes[name] for c in comparisons.values() for name in c.headlines if name in c.changes]
    return [f"{c.label} {c.before.text()} -> {c.after.text()}" for c in changes if _is_worse(c)]


def _is_worse(change: Change) -> bool:
    if not change.p_value < LEVEL:  # NaN is not below
        return False
    before, after, null = change.before.value, change.after.value, change.after.null
    if null is None:
        return after < before
    if change.after.only_below:
        return null - after > max(null - before, 0.0)
    return abs(after - null) > abs(before - null)


def conclude_ranking(agreement: Measurement | None, documents: int) -> str:
    """Say whether rankings agree with people."""
    if agreement is None:
        return (
            f"Nobody rated the outputs, so it is unknown whether these {count(documents, 'ranking')} are right; "
            "'evalbias measure preference' tells whether the judge prefers a position or longer outputs."
        )
    estimate = agreement["spearman"]
    if np.isnan(estimate.low):
        return f"Whether the rankings agree with people is undefined in {count(documents, 'document')}: give more."
    shown = f"Spearman {estimate.text()} (95 % interval {estimate.interval}, {count(estimate.n, 'document')})"
    if estimate.low > 0:
        return f"The rankings agree with people better than chance does: {shown}."
    if estimate.high < 0:
        return f"The rankings contradict people: {shown}. Do not use this judge."
    return f"The rankings are not shown to agree with people better than chance does: {shown}. Rate more documents."


def conclude_self(summary: LoopSummary, *, rounds: str) -> str:
    """Say whether a model overrates its own outputs in the last round of a loop, and what refining changed."""
    last, first = summary.rounds[-1]["bias"], summary.rounds[0]["bias"]
    if np.isnan(last.low):
        why = last.reason or "too few items have both scores"
        return f"{summary.name}: whether the model overrates its outputs is undefined: {why}."
    end = f"at {rounds} {summary.numbers[-1]}"
    if last.low > 0:
        said = f"the model overrates its own outputs {end} by {_points(last)}"
    elif last.high < 0:
        said = f"the model underrates its own outputs {end} by {_points(last)}"
    else:
        said = f"no self-bias is shown {end}: {_points(last)}"
    change = summary.change.changes["bias"]
    moved = "more" if change.difference.estimate > 0 else "less"
    tested = (
        f"{abs(change.difference.estimate):.2f} {moved} than at {summary.numbers[0]}, a significant change"
        if change.p_value < LEVEL
        else f"no significant change from {number(first.value)} at {summary.numbers[0]}"
    )
    return f"{summary.name}: {said}; {tested}. External feedback decides better: 'evalbias compile refine'."


def conclude_style(change: Comparison) -> str:
    """Say whether a model overrates its own paraphrases."""
    found = change.changes["bias"]
    low, high = found.difference.low, found.difference.high
    shown = f"{number(found.difference.estimate)} points (95 % interval {number(low)} to {number(high)})"
    if np.isnan(low):
        return "Whether the model prefers its own style is undefined: quality and own scores are on different scales."
    if low > 0:
        return f"The model prefers its own style: paraphrased by itself, an output gains {shown} of undue score."
    if high < 0:
        return f"The model does not prefer its own style: paraphrased by itself, an output loses {shown}."
    return f"No preference for the own style is shown: paraphrasing changes the undue score by {shown}."


def conclude_quality(quality: ArrayLike, source: str, *, seed: int) -> str:
    """Say whether a loop made outputs better.

    Args:
        quality: (t, n) expected scores of the outputs after each number of refinements.
        source: Name of the source of these scores.
        seed: Seed for the interval.
    """
    values = np.asarray(quality, dtype=np.float64)
    if len(values) < 2:
        return ""
    found = MeanStatistic().interval(values[-1] - values[0], seed=seed)
    shown = f"{number(found.estimate)} points of {source} (95 % interval {number(found.low)} to {number(found.high)})"
    if np.isnan(found.low):
        why = found.reason or f"{source} scores too few of them"
        return f"Whether the loop improves its outputs is undefined: {why}."
    if found.low > 0:
        return f"The loop improves its outputs by {shown}."
    if found.high < 0:
        return f"The loop makes its outputs worse by {shown}: do without it, or compile it ('evalbias compile refine')."
    return f"The loop is not shown to improve its outputs: {shown}."


def _points(estimate: Estimate) -> str:
    return f"{estimate.text()} points (95 % interval {estimate.interval}, {count(estimate.n, 'item')})"
