"""The criteria that a command judges on, and whether people's ratings fit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import typer

from evalbias import data
from evalbias.commands.option_values import read_scale
from evalbias.data.columns import lacking
from evalbias.programs.criteria import PRESETS
from evalbias.programs.criterion import Criterion


def criteria_of(
    spec: str, names: list[str] | None, scale: str | None = None, *, written: Mapping[str, str | None] | None = None
) -> tuple[Criterion, ...]:
    """Return the data set's own criteria by name, or new ones by definition.

    Args:
        spec: Name of the data.
        names: Names and definitions; None takes all of the data set's own.
        scale: Scale of the defined ones, such as ``1-7``; None is 1 to 5.
        written: The criteria's ``task``, ``source_label`` and ``output_label``, where they are given.

    Raises:
        typer.BadParameter: The data set has no criteria of its own, or the scale does not fit.
    """
    presets = {c.name: c for c in PRESETS.get(data.parse_spec(spec)[0], ())}
    if not names and not presets:
        raise typer.BadParameter("the data have no criteria of their own: give --criterion 'name: definition'.")
    chosen = names or list(presets)
    if scale is not None and all(name in presets for name in chosen):
        raise typer.BadParameter(
            f"--scale {scale}: the data set's own criteria have a scale of their own. Leave it out."
        )
    ends = (1, 5) if scale is None else _whole(scale)
    given: dict[str, Any] = {field: text for field, text in (written or {}).items() if text is not None}
    return tuple(replace(presets.get(name) or Criterion.parse(name, scale=ends), **given) for name in chosen)


def _whole(scale: str) -> tuple[int, int]:
    """Read the scale of a prompt, in which every whole number is a label."""
    low, high = read_scale(scale)
    if not (low.is_integer() and high.is_integer()):
        raise typer.BadParameter(f"--scale {scale}: a judge answers with whole numbers. Write the scale as 1-5.")
    return int(low), int(high)


def named_criterion(spec: str, text: str, labels: tuple[str | None, str | None]) -> Criterion:
    """Return a criterion for comparisons.

    Args:
        spec: Name of the data.
        text: Name of one of the data set's own criteria, or a definition.
        labels: Names of source and output in prompts, instead of the criterion's own.
    """
    source, output = labels
    (criterion,) = criteria_of(spec, [text], written={"source_label": source, "output_label": output})
    return criterion


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
            f"The item {one.id!r:.80} of {spec} has one score, and {len(criteria)} criteria are judged: give one "
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
                    f"The item {item.id!r:.80} has {score:g} on {criterion.name}, outside the scale {low} to {high}: "
                    "correct it, or give the scale that people rated on with --scale."
                )
