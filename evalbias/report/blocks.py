"""Blocks of a page: what is shown, not how. ``blocks.html.j2`` has one macro for each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

LONGEST_NUMBER = 24
"""Characters of the longest cell that is set like a number."""


@dataclass(frozen=True)
class Words:
    """A paragraph in our own words, in which the glossary's terms are explained.

    Attributes:
        text: The paragraph.
        data: Whether the text comes from a file or a model: then nothing in it is explained.
    """

    kind: ClassVar[str] = "words"
    text: str
    data: bool = False


@dataclass(frozen=True)
class Plot:
    """A plot in two widths, of which the screen decides one.

    Attributes:
        title: What the plot shows, as a sentence.
        caption: How to read it, and what it leaves out.
        wide: SVG for a column of 640 pixels.
        narrow: The same plot, laid out anew for 320 pixels.
    """

    kind: ClassVar[str] = "plot"
    title: str
    caption: str
    wide: str
    narrow: str


@dataclass(frozen=True)
class Table:
    """Numbers by row; the first column names the row.

    Attributes:
        headings: (c,) headings of the columns.
        rows: (r, c) cells.
        caption: Note below the table; may be empty.
    """

    kind: ClassVar[str] = "table"
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    @property
    def prose(self) -> list[bool]:
        """(c,) whether a column holds sentences, which are set from the left and wrapped."""
        return [any(len(row[column]) > LONGEST_NUMBER for row in self.rows) for column in range(len(self.headings))]


@dataclass(frozen=True)
class Facts:
    """Names and values that are looked up, not read: settings, versions, counts."""

    kind: ClassVar[str] = "facts"
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Passage:
    """A text of an item, as it stands in the data.

    Attributes:
        label: What the text is, such as "input".
        text: The text; long ones were cut.
        cut: Number of characters that were cut from its end.
    """

    label: str
    text: str
    cut: int = 0


@dataclass(frozen=True)
class Item:
    """One item with its texts.

    Attributes:
        name: Identifier of the item.
        reason: Why it is shown, with its numbers.
        passages: Its texts; empty where they are not known.
    """

    name: str
    reason: str
    passages: Sequence[Passage]


@dataclass(frozen=True)
class Items:
    """A list of items, the worst first."""

    kind: ClassVar[str] = "items"
    items: Sequence[Item]


Block = Words | Plot | Table | Facts | Items


@dataclass(frozen=True)
class Section:
    """A heading with its blocks.

    Attributes:
        title: The heading.
        blocks: What stands below it, in order.
        finding: The section's result in a sentence, which the top of the page repeats; empty where there is none.
        status: What an audit concludes from it, such as "biased"; empty where it concludes nothing.
        remark: What follows from it, such as what helps; the top of the page repeats it too.
    """

    title: str
    blocks: Sequence[Block]
    finding: str = ""
    status: str = ""
    remark: str = ""
