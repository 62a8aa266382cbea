"""What a plot shows, as data: five kinds of marks, none of which knows a color, a width or matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalbias.evaluation.estimates import Estimate
from evalbias.measures.arrays import FloatArray

Label = str | tuple[str, str, str]  # label of an axis; or what less of it is, what it counts, and what more of it is


@dataclass(frozen=True)
class Intervals:
    """Estimates with their 95 % intervals on one axis."""

    rows: Mapping[str, Sequence[Estimate]]  # name of the row -> its estimate, or two: before above after
    null: float | None = None  # value of an unbiased judge; None where the estimates are not of a bias
    null_words: str = ""  # what is written at this value
    x_label: str = ""  # what the axis counts
    percent: bool = False  # whether the axis runs from 0 to 100 %


@dataclass(frozen=True)
class Dots:
    """Points, and a line with its 95 % band."""

    points: Mapping[str, tuple[FloatArray, FloatArray]]  # group -> (n,) x, (n,) y; several stand in a legend
    line: FloatArray | None = None  # (k, 4) x, y, and the ends of the band; NaN is not drawn
    x_label: Label = ""
    y_label: str = ""
    y_null: str = ""  # what is written where y is 0, the height of an unbiased judge; empty draws nothing there
    x_null: float | None = None  # place of a vertical line, that of an unbiased judge


@dataclass(frozen=True)
class Bars:
    """Histograms on the same edges."""

    heights: Mapping[str, FloatArray]  # name -> (b,) counts, or shares in percent; several stand in a legend
    edges: FloatArray  # (b + 1,) edges of the bars
    x_label: Label = ""
    y_label: str = ""
    percent: bool = False  # whether the heights are shares
    mean: Estimate | None = None  # estimate of the mean, drawn with its interval and with the line of an unbiased judge


@dataclass(frozen=True)
class Lines:
    """What happens step by step."""

    series: Mapping[str, FloatArray]  # name (in the legend) -> (t, 4) x, y, ends of the 95 % band (NaN: none)
    x_label: str = ""
    y_label: str = ""
    percent: bool = False  # whether y is a share
    null: str = ""  # what is written where y is 0, the height of an unbiased judge; empty draws nothing there


@dataclass(frozen=True)
class Stack:
    """Shares that add up to 1, in one bar: name -> share. The first is what an unbiased judge has."""

    shares: Mapping[str, float]


@dataclass(frozen=True)
class Plot:
    """A plot; its marks from the top."""

    title: str  # what it shows, as a sentence
    caption: str  # how to read it, and what it leaves out
    marks: Sequence[Intervals | Dots | Bars | Lines | Stack]
    file: str = ""  # name of a PNG file of it in the run's folder, without ending; empty for none
