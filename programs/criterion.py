"""What a judge is asked to judge: one criterion, its scale, and the task whose outputs are judged."""

from __future__ import annotations

from dataclasses import dataclass

from evalbias.measures.likelihood import TOTAL

DEFAULT_TASK = "Write the output that belongs to the source."


@dataclass(frozen=True)
class Criterion:
    """One quality of an output, on a scale of whole numbers.

    Attributes:
        name: What the criterion is called, and its key in an item's scores; the judge's answer follows it in the
            prompt. Not empty, one line, no colon, not "total" (the mean over criteria).
        definition: What is judged, in a sentence or a question. Not empty.
        scale: Lowest and highest score, whole numbers, lowest < highest; every number between is a label.
        task: What the writer of the outputs was asked to do: the description d of the likelihood score
            (Ohi et al. 2024, eq 1).
        source_label: The word that introduces the source in a prompt.
        output_label: The word that introduces the output in a prompt.

    Raises:
        ValueError: An empty name or definition, or a scale that is not two ascending whole numbers.

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

    def __post_init__(self) -> None:
        """Refuse what no prompt can be made of."""
        for field in ("name", "definition", "task", "source_label", "output_label"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"Criterion.{field} is {value!r}: give a text that is not empty.")
        if "\n" in self.name or ":" in self.name:
            raise ValueError(f"Criterion.name is {self.name!r}: it must be one line without a colon.")
        if self.name == TOTAL:
            raise ValueError(f"Criterion.name is {TOTAL!r}, which the mean over criteria is called: choose another.")
        whole = len(self.scale) == 2 and all(isinstance(s, int) and not isinstance(s, bool) for s in self.scale)
        if not whole or self.scale[0] >= self.scale[1]:
            raise ValueError(f"Criterion.scale is {self.scale!r}: give two ascending whole numbers, such as (1, 5).")
        object.__setattr__(self, "scale", (self.scale[0], self.scale[1]))  # a list comes back from JSON

    @property
    def values(self) -> tuple[int, ...]:
        """Every score of the scale, ascending."""
        return tuple(range(self.scale[0], self.scale[1] + 1))

    @property
    def labels(self) -> tuple[str, ...]:
        """The scores as the judge writes them."""
        return tuple(str(value) for value in self.values)

    @property
    def title(self) -> str:
        """The name as a prompt writes it: ``data_coverage`` reads "data coverage"."""
        return self.name.replace("_", " ")

    @property
    def instructions(self) -> str:
        """The judge's instruction before any optimizer touched it."""
        return f"Judge the {self.output_label.lower()} on {self.title}: {self.definition}\n{self.answer_format}"

    @property
    def answer_format(self) -> str:
        """The line of the instruction that names the answers."""
        low, high = self.scale
        return f"Answer with a whole number from {low} (worst) to {high} (best)."

    @classmethod
    def parse(cls, text: str, *, scale: tuple[int, int] = (1, 5)) -> Criterion:
        """Read ``"name: definition"``, the form of the command line.

        Raises:
            ValueError: There is no colon, or nothing on one side of it.
        """
        name, colon, definition = text.partition(":")
        if not colon or not name.strip() or not definition.strip():
            raise ValueError(f"{text!r} is no criterion: write it as 'name: definition'.")
        return cls(name.strip(), definition.strip(), scale=scale)
