"""The items on which a judge looks worst, with their texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import dspy
import numpy as np

from evalbias.evaluation.audit import Audit
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LIKELIHOODS
from evalbias.evaluation.loop_summary import LoopSummary
from evalbias.evaluation.measurement import Measurement
from evalbias.evaluation.self_bias import EXPECTED
from evalbias.evaluation.style import StyleReport
from evalbias.measures.arrays import FloatArray
from evalbias.report.html.blocks import Item, Items, Passage, Section, Words
from evalbias.report.html.plots.marks import percent

WORST = 10
LONGEST = {"input": 400, "output": 900}
"""Characters of a text that are shown."""


class Ranked(NamedTuple):
    """Items by how bad they are.

    Attributes:
        badness: (n,) higher is worse; NaN where undefined.
        reason: Says why item i is listed.
        rule: What is listed, as a sentence.
    """

    badness: FloatArray
    reason: Any
    rule: str


def worst_of(result: Any, examples: Sequence[dspy.Example] = ()) -> Section | None:
    """List the worst items of the first measurement in a result that knows any; see ``worst_items``."""
    known = result.examples if isinstance(result, Audit) else examples
    for measurement in _measurements(result):
        if (section := worst_items(measurement, known)) is not None:
            return section
    return None


def _measurements(result: Any) -> Iterator[Measurement]:
    if isinstance(result, Measurement):
        yield result
    elif isinstance(result, LoopSummary):
        yield result.rounds[-1]
    elif isinstance(result, StyleReport):
        yield result.before
    elif isinstance(result, Audit):
        yield from _measurements(result.measurements)
    elif isinstance(result, Mapping | list | tuple):
        for part in result.values() if isinstance(result, Mapping) else result:
            yield from _measurements(part)


def worst_items(
    measurement: Measurement, examples: Sequence[dspy.Example] | None = None, *, count: int = WORST
) -> Section | None:
    """List the items that a reader should look at first; None where nothing says which these are.

    Args:
        measurement: Any measurement of the judge: its columns hold scores, answers and human scores.
        examples: (n,) the items in the measurement's order; None shows their ids only.
        count: Largest number of items.
    """
    ranked = _ranked(measurement)
    if ranked is None:
        return None
    order = np.argsort(-np.nan_to_num(ranked.badness, nan=-np.inf), kind="stable")
    chosen = [int(i) for i in order[:count] if ranked.badness[i] > 0]
    if not chosen:
        return None
    aligned = examples if examples is not None and len(examples) == len(measurement.ids) else None
    items = [
        Item(measurement.ids[i], ranked.reason(i), passages_of(aligned[i]) if aligned is not None else ())
        for i in chosen
    ]
    return Section(f"The {len(items)} items to look at first", (Words(ranked.rule), Items(items)))


def _ranked(measurement: Measurement) -> Ranked | None:
    columns = measurement.columns
    if "answers" in columns:
        if BETTER in columns:
            return _by_people(columns)
        return _by_order(columns) if "answers_swapped" in columns else None
    for name, whose in ((EXPECTED, "expected"), (HUMAN_SCORES, "people")):
        if name in columns and "scores" in columns:
            return _by_gap(columns, name, whose)
    return None


def _by_gap(columns: Mapping[str, FloatArray], name: str, whose: str) -> Ranked | None:
    scores, human = columns["scores"], columns[name]
    both = ~np.isnan(scores + human)
    if both.sum() < 2:
        return None
    likelihoods = columns.get(LIKELIHOODS)
    apart = _standard(scores, both) - _standard(human, both)
    if whose == "expected":  # on one scale: points count as they are
        apart = scores - human

    def reason(i: int) -> str:
        said = f"judge {scores[i]:.2f}, {whose} {human[i]:.2f}"
        if likelihoods is not None and likelihoods.ndim == 1 and not np.isnan(likelihoods[i]):
            below = float(np.nanmean(likelihoods < likelihoods[i]))
            said += f"; likelier than {percent(below)} of the outputs"
        return said

    where = (
        "the expected scores"
        if whose == "expected"
        else "those of people, after both were put on the same mean and spread"
    )
    return Ranked(np.abs(apart), reason, f"The outputs whose scores are farthest from {where}.")


def _by_people(columns: Mapping[str, FloatArray]) -> Ranked:
    better, first = columns[BETTER], first_place(columns["answers"])
    if "answers_swapped" in columns:
        first = (first + 1 - first_place(columns["answers_swapped"])) / 2
    worse = np.where(better == 0, 1 - first, np.where(better == 1, first, np.nan))

    def reason(i: int) -> str:
        return f"people prefer output {better[i] + 1:.0f}, the judge gives it {percent(1 - worse[i])}"

    rule = "The pairs in which the judge most clearly prefers what people like less, averaged over both orders."
    return Ranked(np.where(worse >= 0.5, worse, np.nan), reason, rule)


def first_place(answers: FloatArray) -> FloatArray:
    """Return (n,) the first position's probability from those of all answers (n, c); a tie, the third, counts half."""
    return np.asarray(answers[:, 0] + (answers[:, 2] / 2 if answers.shape[1] == 3 else 0))


def _by_order(columns: Mapping[str, FloatArray]) -> Ranked:
    first, second = (first_place(columns[name]) for name in ("answers", "answers_swapped"))

    def reason(i: int) -> str:
        below, other = percent(first[i]), percent(second[i])
        return f"the first position gets {below} in the order below and {other} in the other order"

    rule = "The pairs in which the order changes the verdict most: without bias the two percentages add up to 100 %."
    return Ranked(np.abs(first + second - 1), reason, rule)


def _standard(values: FloatArray, kept: np.ndarray) -> FloatArray:
    spread = values[kept].std()
    return np.asarray((values - values[kept].mean()) / (spread or 1.0))


def passages_of(example: Mapping[str, Any]) -> tuple[Passage, ...]:
    """Return the texts of an item: its input, and its output or its two."""
    passages = [("input", example.get("source"))]
    outputs = example.get("candidates") or example.get("outputs")
    if outputs:
        passages += [(f"output {n}", text) for n, text in enumerate(outputs, start=1)]
    else:
        passages.append(("output", example.get("output")))
    return tuple(passage(label, str(text)) for label, text in passages if text not in (None, ""))


def passage(label: str, text: str) -> Passage:
    """Return a text as a passage, cut where it is long."""
    longest = LONGEST.get(label, LONGEST["output"])
    return Passage(label, text[:longest], max(0, len(text) - longest))
