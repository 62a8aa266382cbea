"""Criteria of judges, and ready-made ones of published data sets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from evalbias.data import world
from evalbias.measures.likelihood import TOTAL
from evalbias.values import read_json

DEFAULT_TASK = "Write the output that belongs to the source."

LONGEST_SCALE = 1000
"""Largest difference between the highest and the lowest score; each prompt is followed by every score in between."""


@dataclass(frozen=True)
class Criterion:
    """One quality of an output, on a scale of whole numbers.

    Attributes:
        name: Name of the criterion and its key in an item's scores. The prompt ends with it, right before the answer.
            One line without a colon; not "total", which names the mean over criteria.
        definition: Sentence or question that says what is judged.
        scale: Lowest and highest score, ascending whole numbers at most 1000 apart; those in between are labels too.
        task: Instruction that the outputs were written under; d of the likelihood score (Ohi et al. 2024, eq 1).
        source_label: Word that introduces the source in a prompt.
        output_label: Word that introduces the output in a prompt.
        levels: Description of every score, from the lowest; () for none. Of a scale from 0 to 1 they say what no and
            yes mean.

    Examples:
        >>> Criterion("politeness", "is the reply polite?").labels
        ('1', '2', '3', '4', '5')
    """

    name: str
    definition: str
    scale: tuple[int, int] = (1, 5)
    task: str = DEFAULT_TASK
    source_label: str = "Source"
    output_label: str = "Output"
    levels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in ("name", "definition", "task", "source_label", "output_label"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"Criterion.{field} is {value!r:.80}: give a text that is not empty.")
        if "\n" in self.name or ":" in self.name:
            raise ValueError(f"Criterion.name is {self.name!r:.80}: give one line without a colon.")
        if self.name == TOTAL:
            raise ValueError(f"Criterion.name is {TOTAL!r}, the name of the mean over criteria: choose another.")
        whole = len(self.scale) == 2 and all(isinstance(s, int) and not isinstance(s, bool) for s in self.scale)
        if not whole or self.scale[0] >= self.scale[1]:
            raise ValueError(
                f"Criterion.scale is {self.scale!r:.80}: give two ascending whole numbers, such as (1, 5)."
            )
        if self.scale[1] - self.scale[0] > LONGEST_SCALE:
            raise ValueError(
                f"Criterion.scale is {self.scale!r:.80}, and a judge weighs every whole number on it: give a scale of "
                f"at most {LONGEST_SCALE} steps."
            )
        object.__setattr__(self, "scale", (self.scale[0], self.scale[1]))  # JSON returns a list
        if not isinstance(self.levels, tuple | list) or not all(
            isinstance(one, str) and one.strip() for one in self.levels
        ):
            raise ValueError(f"Criterion.levels is {self.levels!r:.80}: give a list of texts that are not empty.")
        if self.levels and len(self.levels) != len(self.values):
            raise ValueError(
                f"Criterion.levels has {len(self.levels)} descriptions for the {len(self.values)} scores from "
                f"{self.scale[0]} to {self.scale[1]}: give one for each, or none."
            )
        object.__setattr__(self, "levels", tuple(self.levels))

    @property
    def values(self) -> tuple[int, ...]:
        """All scores of the scale, ascending."""
        return tuple(range(self.scale[0], self.scale[1] + 1))

    @property
    def labels(self) -> tuple[str, ...]:
        """The scores as text, as the judge answers them."""
        return tuple(str(value) for value in self.values)

    @property
    def title(self) -> str:
        """The name as the prompt shows it: "data coverage" for ``data_coverage``."""
        return self.name.replace("_", " ")

    @classmethod
    def parse(cls, text: str, *, scale: tuple[int, int] = (1, 5)) -> Criterion:
        """Parse ``"name: definition"``, as the command line takes it; ``ValueError`` if a part is missing.

        ``"SET:NAME"``, such as ``"summeval:fluency"``, is a criterion of ``PRESETS`` and has its own scale.
        """
        if text in _NAMED:
            return _NAMED[text]
        name, colon, definition = text.partition(":")
        if not colon or not name.strip() or not definition.strip():
            raise ValueError(f"{text!r:.80} is not a criterion: write it as 'name: definition'.")
        return cls(name.strip(), definition.strip(), scale=scale)


# Ready-made criteria: those of published data sets, of refine loops and of the synthetic world.

PRESETS = {
    data_set: tuple(Criterion(name, **about["every"] | own) for name, own in about["criteria"].items())
    for data_set, about in read_json(Path(__file__).with_name("criteria.json"), "install evalbias again").items()
}
"""Published data set -> criteria on which people rated it, in our own words.

Those of webnlg2020 and tmu-gfm say what the prompts of Ohi et al. (2024, appendices A and B) say.
"""

_NAMED = {f"{data_set}:{one.name}": one for data_set, some in PRESETS.items() for one in some}

_writing = partial(Criterion, task="Write the text.", output_label="Text")
FLUENCY = _writing("fluency", "does the text read as if a good writer had written it?")
UNDERSTANDABILITY = _writing("understandability", "can a reader who knows nothing else follow what the text says?")
"""Fluency and understandability of a refined text (Xu et al. 2024, section 4.3), from 1 to 5."""


def _synthetic(said: world.Edition) -> Criterion:
    return Criterion(said.name, said.definition, world.SCALE, said.task, said.source_label, said.output_label)


SYNTHETIC = _synthetic(world.ENGLISH)
"""Quality of a text of the synthetic world, the criterion that the embedded judge was trained on."""

SYNTHETIC_JA = _synthetic(world.JAPANESE)
"""The same quality of a text of the world's Japanese edition, which the embedded judge cannot read."""
