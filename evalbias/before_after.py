"""Options of the commands that say what changed between two files of judged outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from evalbias.options import AuditOptions, Out, Seeded, option

SIDE = "The {} judge's scores of its own period's outputs and of the anchors: data as for an audit, or its run folder."


def _again(name: str) -> Any:
    """Declare an option as an audit does."""
    one = AuditOptions.__dataclass_fields__[name]
    return field(default=one.default, metadata=one.metadata)


class GateOut(Out):
    """Where the result goes, and when it fails a build."""

    fail_on: Sequence[str] = option(
        "Exit with code 1 if the 95 % interval shows the condition, such as 'drift>0.1' (points by which the judge's "
        "part differs from 0) or 'system<0'; with a question mark, such as 'drift<0.2?', if it shows the contrary. "
        "Code 3 if it shows neither, 1 if the number cannot be measured. Repeatable.",
        (),
    )


class DriftOptions(Seeded):
    """Say whether the system improved or the judge changed.

    Splits the change of the mean score between two periods into the judge's part and the system's, by anchors, texts
    that both judges scored: items of both files with the same input and output. Says in which scores the judge
    changed, in its biases and in its agreement with people, and how many anchors would be enough. The run folder of an
    audit is a stored baseline.
    """

    beside = (GateOut,)
    before: Any = field(kw_only=False, metadata={"help": SIDE.format("old")})
    after: Any = field(kw_only=False, metadata={"help": SIDE.format("new")})
    mapping: Mapping[str, str] | None = _again("mapping")
    scores_field: str | None = _again("scores_field")
    samples_field: str | None = _again("samples_field")
    criterion: Any = option("Name of the criterion that is judged, where people rated several.")
    scale: tuple[float, float] | None = _again("scale")
    margin: float | None = option(
        "Smallest change of the judge that is worth finding, in points. By default 0.2 standard deviations of the old "
        "judge's scores."
    )

    def __post_init__(self) -> None:
        if self.margin is not None and not self.margin > 0:
            raise ValueError(f"`margin` is {self.margin}: give points above 0, such as 0.2.")
