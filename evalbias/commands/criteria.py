"""The criteria that a command judges on, and whether people's ratings fit them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import typer

from evalbias import data
from evalbias.data.columns import lacking
from evalbias.programs.criteria import PRESETS
from evalbias.programs.criterion import Criterion


def criteria_of(dataset: str, names: list[str] | None, scale: str) -> tuple[Criterion, ...]:
    """Return the data set's own criteria by name, or new ones by definition.

    Args:
        dataset: Name of the data set.
        names: Names and definitions; None takes all of the data set's own.
        scale: Scale of the defined ones, such as ``1-5``.

    Raises:
        typer.BadParameter: The data set has none of its own, or the scale is malformed.
    """
    presets = {c.name: c for c in PRESETS.get(dataset, ())}
    if not names:
        if not presets:
            raise typer.BadParameter("the data have no criteria of their own: give --criterion 'name: definition'.")
        return tuple(presets.values())
    low, _, high = scale.partition("-")
    if not (low.isdigit() and high.isdigit()):
        raise typer.BadParameter(f"--scale {scale}: write it as 1-5.")
    return tuple(presets.get(n) or Criterion.parse(n, scale=(int(low), int(high))) for n in names)


def named_criterion(spec: str, text: str, labels: tuple[str | None, str | None]) -> Criterion:
    """Return a criterion for comparisons.

    Args:
        spec: Name of the data.
        text: Name of one of the data set's own criteria, or a definition.
        labels: Names of source and output in prompts, instead of the criterion's own.
    """
    (own,) = criteria_of(data.parse_spec(spec)[0], [text], "1-5")  # comparisons do not look at the scale
    source, output = labels
    return replace(own, source_label=source or own.source_label, output_label=output or own.output_label)


def check_rated(items: Sequence[Any], criteria: Sequence[Criterion], spec: str) -> None:
    """Refuse items that nobody rated, and one score for several criteria.

    Raises:
        DataError: No item has a score on any of the criteria, or ``score`` could be that of each.
    """
    if not any(e.get("scores") or "score" in e for e in items):
        raise lacking(spec, list(dict.fromkeys(name for e in items for name in e.keys() if name != "scores")), "score")  # noqa: SIM118
    one = next((e for e in items if "score" in e and e.get("scores") is None), None)
    if one is not None and len(criteria) > 1:
        raise data.DataError(
            f"The item {one.id!r} of {spec} has one score, and {len(criteria)} criteria are judged: give one "
            "--criterion, or scores by criterion ('scores', or columns such as scores.fluency)."
        )


def check_scale(items: Sequence[Any], criteria: Sequence[Criterion]) -> None:
    """Refuse human scores off the scale: one slip would decide the normalization of all of them.

    Raises:
        ValueError: A score lies outside its criterion's scale; the item is named.
    """
    for criterion in criteria:
        low, high = criterion.scale
        for item in items:
            score = data.human_score(item, criterion.name, required=False)
            if score < low or score > high:  # NaN is undefined, not off the scale
                raise ValueError(
                    f"The item {item.id!r} has {score:g} on {criterion.name}, outside the scale {low} to {high}: "
                    "correct it, or give the scale that people rated on with --scale."
                )
