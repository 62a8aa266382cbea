"""Options of the commands that say what changed: between two files of judged outputs, or by an edit of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

from evalbias.options import (
    AuditOptions,
    Coded,
    Items,
    Judging,
    MeasuringModels,
    Options,
    Out,
    Reliable,
    Seeded,
    option,
)

SIDE = "The {} outputs with their scores (for drift, those of the {} judge): data as for an audit, or its run folder."


def _again(name: str) -> Any:
    """Declare an option as an audit does."""
    one = AuditOptions.__dataclass_fields__[name]
    return field(default=one.default, metadata=one.metadata)


class GateOut(Out):
    """Where the result goes, and when it fails a build."""

    fail_on: Sequence[str] = option(
        "Exit with code 1 if the 95 % interval shows the condition, such as 'drift>0.1' (points by which the judge's "
        "part differs from 0) or 'rest<0'; with a question mark, such as 'drift<0.2?', if it shows the contrary. "
        "Code 3 if it shows neither, 1 if the number cannot be measured. Repeatable.",
        (),
    )


class TwoSides(Options):
    """Two files of judged outputs, or the run folders of their audits."""

    before: Any = field(kw_only=False, metadata={"help": SIDE.format("first", "old")})
    after: Any = field(kw_only=False, metadata={"help": SIDE.format("second", "new")})
    mapping: Mapping[str, str] | None = _again("mapping")
    scores_field: str | None = _again("scores_field")
    samples_field: str | None = _again("samples_field")
    criterion: Any = option("Name of the criterion that is judged, where people rated several.")
    scale: tuple[float, float] | None = _again("scale")


class DriftOptions(TwoSides, Seeded):
    """Say whether the system improved or the judge changed.

    Splits the change of the mean score between two periods into the judge's part and the system's, by anchors, texts
    that both judges scored: items of both files with the same input and output. Says in which scores the judge
    changed, in its biases and in its agreement with people, and how many anchors would be enough. The run folder of an
    audit is a stored baseline.
    """

    beside = (GateOut,)
    margin: float | None = option(
        "Smallest change of the judge that is worth finding, in points. By default 0.2 standard deviations of the old "
        "judge's scores."
    )

    def __post_init__(self) -> None:
        if self.margin is not None and not self.margin > 0:
            raise ValueError(f"`margin` is {self.margin}: give points above 0, such as 0.2.")


class GainOptions(Reliable, TwoSides):
    """Say what an optimizer gained by a judge's scores.

    Tells quality from length, likelihood, any feature of yours and the judge's own writing: takes from the gain of the
    mean score what the judge gives for each at equal quality, times its change. What it gives comes from rated items,
    of both versions or of `rated`. Where people rated both versions, says also what they see. Likelihoods are known
    from the run folders of audits that measured them.
    """

    beside: ClassVar[tuple[type[Any], ...]] = (GateOut,)
    rated: Any = option("Further items of the same judge that people rated: data or the run folder of an audit.")
    features: Sequence[str] = _again("features")
    own_system: str | None = _again("own_system")


# Ask a judge about texts with one thing changed.


class Changing(Seeded, Items):
    """What is changed in the texts."""

    kinds: Sequence[str] = option(
        "What is changed: style, authority, bandwagon, label, 'label: a student', distraction, verbosity, injection or "
        "null, by default all; probe run also takes what `probes` does in an audit. Repeatable.",
        (),
    )
    scale: tuple[float, float] | None = _again("scale")


class ProbeEmitOptions(Changing):
    """Write items with one thing changed, and with placebos, for a judge of yours.

    Your judge answers every row in a field of the file, and evalbias probe read says what moves it.
    """

    beside = ()
    out: Path = field(metadata={"help": "The .jsonl file to write."})


class ProbeReadOptions(Seeded, Coded, Items):
    """Say what moves a judge, from its answers to the rows of probe emit, found by their ids."""

    scores_field: str | None = _again("scores_field")
    winner_field: str | None = _again("winner_field")
    swapped_field: str | None = _again("swapped_field")
    scale: tuple[float, float] | None = _again("scale")


class ProbeRunOptions(Judging, Changing):
    """Ask a judge about items with one thing changed, and say what moves it."""

    beside = (MeasuringModels, Out)
    judge: Path | None = _again("judge")
    criterion: Any = option("'name: definition' of a new judge, or the name of a criterion of the data set.")
    limit: int | None = option("Use only this many items, drawn with the seed.")
