"""What a plot shows, as data: five kinds of marks, none of which knows a color, a width or matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalbias.evaluation.estimates import Estimate
from evalbias.measures.arrays import FloatArray

Label = str | tuple[str, str, str]
"""Label of an axis; or what less of it is, what it counts, and what more of it is."""


@dataclass(frozen=True)
class Intervals:
    """Estimates with their 95 % intervals on one axis.

    Attributes:
        rows: Name of the row -> its estimate, or two: before above after.
        null: Value of an unbiased judge; None where the estimates are not of a bias.
        null_words: What is written at this value.
        x_label: What the axis counts.
        percent: Whether the axis runs from 0 to 100 %.
    """

    rows: Mapping[str, Sequence[Estimate]]
    null: float | None = None
    null_words: str = ""
    x_label: str = ""
    percent: bool = False


@dataclass(frozen=True)
class Dots:
    """Points, and a line with its 95 % band.

    Attributes:
        points: Name of a group -> (x, y), each (n,); the names stand in a legend if there are several.
        line: (k, 4) x, y, and the ends of the band; NaN is not drawn. None for no line.
        y_null: What is written where y is 0, the height of an unbiased judge; empty draws nothing there.
        x_null: Place of a vertical line, that of an unbiased judge; None for none.
    """

    points: Mapping[str, tuple[FloatArray, FloatArray]]
    line: FloatArray | None = None
    x_label: Label = ""
    y_label: str = ""
    y_null: str = ""
    x_null: float | None = None


@dataclass(frozen=True)
class Bars:
    """Histograms on the same edges.

    Attributes:
        heights: Name -> (b,) counts, or shares in percent; the names stand in a legend if there are several.
        edges: (b + 1,) edges of the bars.
        percent: Whether the heights are shares.
        mean: Estimate of the mean, drawn with its interval and with the line of an unbiased judge; None for none.
    """

    heights: Mapping[str, FloatArray]
    edges: FloatArray
    x_label: Label = ""
    y_label: str = ""
    percent: bool = False
    mean: Estimate | None = None


@dataclass(frozen=True)
class Lines:
    """What happens step by step.

    Attributes:
        series: Name -> (t, 4) x, y, and the ends of the 95 % band, NaN for none; several stand in a legend.
        percent: Whether y is a share.
        null: What is written where y is 0, the height of an unbiased judge; empty draws nothing there.
    """

    series: Mapping[str, FloatArray]
    x_label: str = ""
    y_label: str = ""
    percent: bool = False
    null: str = ""


@dataclass(frozen=True)
class Stack:
    """Shares that add up to 1, in one bar: name -> share. The first is what an unbiased judge has."""

    shares: Mapping[str, float]


@dataclass(frozen=True)
class Plot:
    """A plot.

    Attributes:
        title: What it shows, as a sentence.
        caption: How to read it, and what it leaves out.
        marks: What is drawn, from the top.
        file: Name of a PNG file of it in the run's folder, without ending; empty for none.
    """

    title: str
    caption: str
    marks: Sequence[Intervals | Dots | Bars | Lines | Stack]
    file: str = ""
