"""Criteria of judges: new ones, those of a user's DSPy signature, and ready-made ones of published data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import dspy

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
        task: Instruction that the writers of the outputs followed; d of the likelihood score (Ohi et al. 2024, eq 1).
        source_label: Word that introduces the source in a prompt.
        output_label: Word that introduces the output in a prompt.
        levels: Description of every score, from the lowest; () for none. On a scale from 0 to 1, the meanings of no and
            yes.
        answers: Word that a judge answers for every score, from the lowest; () for the numbers. Of a scale from 0 to 1,
            a judge's own criterion has the words for no and yes.

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
    answers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for attribute in ("name", "definition", "task", "source_label", "output_label"):
            value = getattr(self, attribute)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"Criterion.{attribute} is {value!r:.80}: give a text that is not empty.")
        if "\n" in self.name or ":" in self.name:
            raise ValueError(f"Criterion.name is {self.name!r:.80}: give one line without a colon.")
        if self.name == TOTAL:
            raise ValueError(f"Criterion.name is {TOTAL!r}, the name of the mean over criteria: choose another.")
        ends = self.scale if isinstance(self.scale, tuple | list) else ()
        whole = len(ends) == 2 and all(isinstance(s, int) and not isinstance(s, bool) for s in ends)
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
        for name, noun in (("levels", "descriptions"), ("answers", "words")):
            texts = getattr(self, name)
            if not isinstance(texts, tuple | list) or not all(isinstance(text, str) and text.strip() for text in texts):
                raise ValueError(f"Criterion.{name} is {texts!r:.80}: give a list of texts that are not empty.")
            if texts and len(texts) != len(self.values):
                raise ValueError(
                    f"Criterion.{name} has {len(texts)} {noun} for the {len(self.values)} scores from {self.scale[0]} "
                    f"to {self.scale[1]}: give one for each, or none."
                )
            object.__setattr__(self, name, tuple(texts))
        if len({word.casefold() for word in self.answers}) < len(self.answers):
            raise ValueError(f"Criterion.answers is {self.answers!r:.80}: give each score a word of its own.")

    @property
    def values(self) -> tuple[int, ...]:
        """All scores of the scale, ascending."""
        return tuple(range(self.scale[0], self.scale[1] + 1))

    @property
    def labels(self) -> tuple[str, ...]:
        """Answers that stand for the scores, ascending: the criterion's words, or the numbers."""
        return self.answers or tuple(str(value) for value in self.values)

    @property
    def title(self) -> str:
        """Name as it is printed in the prompt: "data coverage" for ``data_coverage``."""
        return self.name.replace("_", " ")

    @classmethod
    def parse(cls, text: str, *, scale: tuple[int, int] = (1, 5), levels: tuple[str, ...] = ()) -> Criterion:
        """Parse ``"name: definition"``, as the command line takes it; ``ValueError`` if a part is missing.

        ``"SET:NAME"``, such as ``"summeval:fluency"``, is a criterion of ``PRESETS`` and has its own scale and levels.
        """
        if text in _NAMED:
            return _NAMED[text]
        name, colon, definition = text.partition(":")
        if not colon or not name.strip() or not definition.strip():
            raise ValueError(f"{text!r:.80} is not a criterion: write it as 'name: definition'.")
        return cls(name.strip(), definition.strip(), scale=scale, levels=levels)


# Subject of a judge's question: a criterion, its input fields, and the wording of a user's signature.


@dataclass(frozen=True)
class Asked:
    """Subject of a judge's question."""

    criterion: Criterion
    inputs: Mapping[str, str]  # field -> its label; empty for ``source`` and ``output`` under the criterion's labels
    judged: str  # the field that is judged
    wording: str = ""  # first lines of the instruction; empty for the default of the language
    described: Mapping[str, str] = field(default_factory=dict)  # input field -> its description in a signature

    def field(self, name: str) -> Any:
        return dspy.InputField(**({"desc": self.described[name]} if name in self.described else {}))


def asked_about(subject: Any, inputs: Mapping[str, str] | None, judged: str | None, *, scores: bool) -> Asked:
    """Return the subject of a judge's question, from a criterion with input fields or from a user's signature.

    Args:
        subject: A ``Criterion``, or a ``dspy.Signature`` with one output field. For a judge that scores, the type of
            that field gives the scale: a number with the bounds ge and le, ``bool``, or a ``Literal`` of consecutive
            whole numbers or of words, worst first.
        inputs: Input field -> label, in the order of the prompt; a signature has its own.
        judged: Field of ``inputs`` that is judged. Defaults to the last field.
        scores: Whether the judge scores outputs; a judge that compares them ignores the type.

    Raises:
        ValueError: The signature has no output that can be judged, or ``judged`` is no input.
    """
    criterion: Any = subject
    described, wording = dict[str, str](), ""
    if isinstance(subject, type) and issubclass(subject, dspy.Signature):
        title = subject.__name__
        if inputs is not None:
            raise ValueError(f"inputs={inputs!r:.80}: {title} has input fields of its own. Leave inputs out.")
        signature: Any = subject
        outputs, input_fields = dict(signature.output_fields), signature.input_fields
        if len(outputs) != 1:
            raise ValueError(
                f"{title} has the outputs {[*outputs]}: a judge gives one. Keep the one that is scored; with "
                "reasoning=True the model writes its reasons by itself."
            )
        ((name, output),) = outputs.items()
        extras = {key: about.json_schema_extra for key, about in {**input_fields, name: output}.items()}
        texts = {key: extra["desc"] for key, extra in extras.items() if extra["desc"] != f"${{{key}}}"}
        definition, described = texts.pop(name, signature.instructions), texts
        scale, answers = _scale_of(f"{title}.{name}", output) if scores else (Criterion.scale, ())
        inputs = {key: extras[key]["prefix"].removesuffix(":") for key in input_fields}
        wording = "\n".join([signature.instructions, *(f"{inputs[key]}: {text}" for key, text in described.items())])
        criterion = Criterion(name, definition, scale=scale, answers=answers)
    if not inputs:
        if judged not in (None, "output"):
            raise ValueError(f"judged={judged!r:.80}: name the judge's input fields too, inputs={{FIELD: LABEL, ...}}.")
        return Asked(criterion, {}, "output")
    check_inputs("inputs", inputs)
    judged = [*inputs][-1] if judged is None else judged
    if judged not in inputs:
        raise ValueError(f"judged={judged!r:.80} is none of the inputs {[*inputs]}: name one of them.")
    if isinstance(criterion, Criterion):  # else the judge refuses it
        source, *_ = [label for name, label in inputs.items() if name != judged] or [criterion.source_label]
        criterion = replace(criterion, source_label=source, output_label=inputs[judged])
    return Asked(criterion, dict(inputs), judged, wording, described)


TAKEN = ("score", "scores", "preference", "candidates", "id", "ids", "input_id", "all_inputs")
"""Reserved fields of items: no input of a judge may have one of these names."""


def check_inputs(name: str, inputs: Any) -> None:
    """Refuse input fields that a judge cannot have; ``name`` names them in errors."""
    named = isinstance(inputs, Mapping) and all(isinstance(part, str) for pair in inputs.items() for part in pair)
    if not named or not all(n.isidentifier() and label.strip() for n, label in inputs.items()):
        raise ValueError(
            f"{name}={inputs!r:.80}: give FIELD -> label in the prompt, such as {{'question': 'Asked', 'answer': "
            "'Answer'}."
        )
    if taken := [name for name in inputs if name in TAKEN]:
        raise ValueError(
            f"{name}: {taken[0]!r} is a field of people's answers or of an item's names: rename the input."
        )
    if len({*inputs.values()}) < len(inputs):
        raise ValueError(f"{name}={inputs!r:.200}: give each field a label of its own.")


def _scale_of(name: str, output: Any) -> tuple[tuple[int, int], tuple[str, ...]]:
    """Return the criterion's scale and answers that follow from the type and bounds of an output field."""
    kind, words = output.annotation, get_args(output.annotation)
    if kind is bool:
        return (0, 1), ()
    if get_origin(kind) is Literal and len(words) > 1:
        if all(isinstance(word, str) for word in words):
            return (0, 1) if len(words) == 2 else (1, len(words)), words
        if all(type(word) is int for word in words) and [*words] == [*range(words[0], words[-1] + 1)]:
            return (words[0], words[-1]), ()
    ends = [(end, getattr(bound, end, None)) for bound in output.metadata for end in ("ge", "le")]
    bounds = {end: value for end, value in ends if value is not None}
    if kind in (int, float) and len(bounds) == 2 and all(float(end).is_integer() for end in bounds.values()):
        return (int(bounds["ge"]), int(bounds["le"])), ()
    raise ValueError(
        f"{name} is {kind if words else getattr(kind, '__name__', kind)!s:.80} with the bounds {bounds or 'none'}, "
        "which says no scale: give int or float with whole bounds, dspy.OutputField(ge=1, le=5), bool, "
        "Literal[1, 2, 3] without gaps, or Literal['bad', 'fair', 'good'], the worst first."
    )


# Ready-made criteria: those of published data sets, of refine loops and of the synthetic world.

PRESETS = {
    data_set: tuple(Criterion(name, **about["every"] | own) for name, own in about["criteria"].items())
    for data_set, about in read_json(Path(__file__).with_name("criteria.json"), "install evalbias again").items()
}
"""Published data set -> criteria on which people rated it, in our own words.

The criteria of webnlg2020 and tmu-gfm paraphrase the prompts of Ohi et al. (2024, appendices A and B).
"""

_NAMED = {f"{data_set}:{criterion.name}": criterion for data_set, some in PRESETS.items() for criterion in some}


def _synthetic(edition: world.Edition) -> Criterion:
    words = {name: getattr(edition, name) for name in ("name", "definition", "task", "source_label", "output_label")}
    return Criterion(scale=world.SCALE, **words)


SYNTHETIC = _synthetic(world.ENGLISH)
"""Quality of a text of the synthetic world, the criterion that the embedded judge was trained on."""

SYNTHETIC_JA = _synthetic(world.JAPANESE)
"""The same quality of a text of the world's Japanese edition, which the embedded judge cannot read."""
