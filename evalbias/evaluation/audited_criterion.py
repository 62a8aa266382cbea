"""The criterion of an audit: the judge's own, the one that is named, or the only one that people rated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dspy

from evalbias.data.ratings import is_rated, rated_criteria, single_ratings
from evalbias.evaluation.formatting import joined
from evalbias.evaluation.recorded_judge import QUALITY, as_criterion
from evalbias.programs.criteria import PRESETS
from evalbias.programs.criterion import Criterion
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge


def criterion_asked(
    judge: Any,
    data: Any,
    examples: Sequence[dspy.Example],
    criterion: str | Criterion | None,
    scale: tuple[float, float] | None,
    **written: str | None,
) -> Criterion:
    """Return the criterion of an audit: that of a judge of evalbias, else the one that is named; see ``criterion_of``.

    Raises:
        ValueError: A judge of evalbias is given another criterion, scale, task or label than its own.
    """
    if not isinstance(judge, PointwiseJudge | PairwiseJudge):
        return criterion_of(data, examples, criterion, **written)
    own = judge.criterion
    if prompt := {name: value for name, value in written.items() if value is not None}:
        raise ValueError(
            f"{prompt}: this judge has a task of its own, {own.task!r:.80}, and labels; they define LS. Leave these "
            "out."
        )
    if criterion is not None and (named := _name_of(criterion)) != own.name:
        raise ValueError(
            f"criterion={named!r}: this judge judges {own.name!r:.80}, and is compared with people's ratings of that. "
            f"Leave the criterion out, or audit a judge of {named!r}."
        )
    if scale is not None and tuple(scale) != tuple(own.scale):
        low, high = own.scale
        raise ValueError(f"scale={tuple(scale)}: this judge has a scale of its own, {low:g} to {high:g}. Leave it out.")
    return own


def criterion_of(
    data: Any, examples: Sequence[dspy.Example], criterion: str | Criterion | None, **written: str | None
) -> Criterion:
    """Return the criterion that is named, with the data set's own task where it has one, or the only one rated.

    Args:
        data: The data as the user named them.
        examples: Items.
        criterion: A criterion, its name, ``"name: definition"``, or None.
        **written: ``task``, ``source_label`` and ``output_label`` of the prompt under which the outputs were written,
            in place of the criterion's; None leaves them.

    Raises:
        ValueError: None is named and people rated several, or people rated others than the one that is named.
    """
    given: dict[str, Any] = {name: value for name, value in written.items() if value is not None}
    if given:
        return replace(criterion_of(data, examples, criterion), **given)
    rated = rated_criteria(examples)
    if criterion is not None and rated and not _is_rated_on(examples, _name_of(criterion)):
        names = joined([repr(name) for name in rated])
        raise ValueError(
            f"No item is rated on {_name_of(criterion)!r}; the items are rated on {names:.500}: name one of these "
            "(criterion, --criterion)."
        )
    if isinstance(criterion, Criterion):
        return criterion
    if criterion is None and len(rated) > 1:
        raise ValueError(f"People rated several criteria, {', '.join(rated)}: name one (criterion, --criterion).")
    name = criterion or (rated[0] if rated else QUALITY)
    if ":" in name:
        return Criterion.parse(name)
    known = PRESETS.get(str(data).partition(":")[0], ()) if isinstance(data, str) else ()
    return next((preset for preset in known if preset.name == name), as_criterion(name))


def _name_of(criterion: str | Criterion) -> str:
    if isinstance(criterion, Criterion):
        return criterion.name
    return Criterion.parse(criterion).name if ":" in criterion else criterion


def _is_rated_on(examples: Sequence[dspy.Example], name: str) -> bool:
    return any(is_rated(e, name) or single_ratings(e, name) for e in examples)
