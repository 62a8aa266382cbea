"""Sections of texts and scores: what a judge scored, how it ranked, what a loop wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy
import numpy as np
from numpy.typing import ArrayLike

from evalbias.evaluation.loops import LoopRun
from evalbias.report.html.blocks import Item, Items, Section, Words
from evalbias.report.html.plots.scale import shares_of
from evalbias.report.html.plots.sides import sides
from evalbias.report.html.svg import plot
from evalbias.report.html.worst import WORST, passage, passages_of


def scored_section(scores: ArrayLike) -> Section:
    """Show which scores a judge gave.

    Args:
        scores: (n,) scores; NaN where undefined.
    """
    values = np.asarray(scores, dtype=np.float64)
    defined = values[~np.isnan(values)]
    undefined = len(values) - len(defined)
    left_out = f" {undefined:,} without a defined score." if undefined else ""
    if not len(defined):
        return Section("Scores", [Words("No item has a defined score.")])
    finding = f"{len(defined):,} items were scored, {defined.mean():.2f} on average.{left_out}"
    return Section("Scores", [plot(shares_of({"judge": defined}))], finding)


def lowest_section(scores: ArrayLike, examples: Sequence[dspy.Example], ids: Sequence[Any]) -> Section | None:
    """Show the items with the lowest scores; None where no score is defined.

    Args:
        scores: (n,) scores.
        examples: (n,) the items.
        ids: (n,) their identifiers.
    """
    values = np.asarray(scores, dtype=np.float64)
    order = [int(i) for i in np.argsort(values, kind="stable")[:WORST] if not np.isnan(values[i])]
    if not order:
        return None
    items = [Item(str(ids[i]), f"score {values[i]:.2f}", passages_of(examples[i])) for i in order]
    return Section(f"The {len(items)} lowest scores", [Items(items)])


def ranked_section(rows: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[dspy.Example]]) -> Section:
    """Show the first rankings, best output first.

    Args:
        rows: One record per document: ``input_id`` and ``order``, the ids best first.
        groups: The outputs of each document.
    """
    items = []
    for row, group in list(zip(rows, groups, strict=True))[:WORST]:
        outputs = {str(e.get("id")): str(e.output) for e in group}
        source = passages_of({"source": group[0].get("source")})
        ranked = [passage(f"{place}. {name}", outputs[name]) for place, name in enumerate(row["order"], start=1)]
        unranked = len(row.get("unranked", ()))
        said = f"{len(ranked)} outputs ranked" + (f", {unranked} not" if unranked else "")
        items.append(Item(str(row["input_id"]), said, [*source, *ranked]))
    title = "Rankings" if len(items) == len(rows) else f"The first {len(items)} of {len(rows):,} rankings"
    return Section(title, [Words("Best output first; all are in rankings.jsonl."), Items(items)])


def loop_sections(
    run: LoopRun, quality: ArrayLike, examples: Sequence[Mapping[str, Any]], *, limits: tuple[float, float], step: str
) -> list[Section]:
    """Show a loop's own score beside the quality of its outputs, and the items on which they lie farthest apart.

    Args:
        run: The loops.
        quality: (t + 1, n) quality of the outputs.
        examples: (n,) the items.
        limits: Lowest and highest quality.
        step: What a loop does between two rows, such as "refinement".
    """
    own = _shares(run.own(), (run.low, run.high))
    good = _shares(np.asarray(quality, dtype=np.float64), limits)
    drawing = sides(own, good, step)
    sections = [] if drawing is None else [Section("Own score and quality", [plot(drawing)], f"{drawing.title}.")]
    gap = own[-1] - good[-1]
    order = [int(i) for i in np.argsort(-np.nan_to_num(gap, nan=-np.inf), kind="stable")[:WORST] if gap[i] > 0]
    items = []
    for i in order:
        steps = run.loops[i].steps
        last = run.loops[i].at(steps[-1].iteration) if steps else None
        texts = [passage("first output", steps[0].output)]
        if last is not None and last.output != steps[0].output:
            texts.append(passage("last output", last.output))
        said = f"own score {own[-1, i] * 100:.0f} %, quality {good[-1, i] * 100:.0f} % of the way from worst to best"
        items.append(Item(run.ids[i], said, [*passages_of({"source": examples[i].get("source")}), *texts]))
    if items:
        rule = Words("Where the loop's own score of its last output exceeds the quality most.")
        sections.append(Section(f"The {len(items)} items to look at first", [rule, Items(items)]))
    return sections


def _shares(values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    low, high = limits
    return np.asarray((values - low) / (high - low))
