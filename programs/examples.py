"""In-context examples of refine loops: built-in ones in our own wording, and those of a user's file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import dspy

from evalbias.runs.values import read_json


@dataclass(frozen=True)
class LoopExamples:
    """Examples that the prompts of a loop show, by role; without examples a prompt is only its instructions.

    Attributes:
        generate: Examples of first outputs.
        feedback: Examples of feedback.
        refine: Examples of refinements, with ``draft`` and ``feedback``.
    """

    generate: tuple[dspy.Example, ...] = ()
    feedback: tuple[dspy.Example, ...] = ()
    refine: tuple[dspy.Example, ...] = ()

    def to_dict(self) -> dict[str, list[dict[str, Any]]]:
        """Return the examples as ``read_examples`` reads them."""
        return {role: [dict(row.items()) for row in getattr(self, role)] for role in ROLES}


NONE = LoopExamples()
ROLES = tuple(field.name for field in fields(LoopExamples))


def read_examples(path: Path) -> LoopExamples:
    """Read examples from a JSON file: ``{"generate": [{FIELD: TEXT, ...}, ...], "feedback": [...], "refine": [...]}``.

    A role that the file does not name has no examples.

    Raises:
        ValueError: The file is not such an object; the message names the role and the example.
    """
    wanted = f"write a JSON object with lists of examples for some of {', '.join(ROLES)}"
    content = read_json(path, wanted)
    if unknown := content.keys() - set(ROLES):
        raise ValueError(f"{path} names {min(unknown)!r:.60}: {wanted}.")
    for role, rows in content.items():
        if not isinstance(rows, list):
            raise ValueError(f"{path}: {role!r:.80} is not a list of examples.")
        for number, row in enumerate(rows, start=1):
            if not isinstance(row, dict):
                raise ValueError(
                    f"{path}: example {number} for {role!r:.80} is {row!r:.60}; give an object with fields."
                )
    return LoopExamples(**{role: tuple(dspy.Example(row) for row in rows) for role, rows in content.items()})


def show_examples(loop: Any, examples: LoopExamples) -> None:
    """Put examples into the prompts of a loop, in place of those that it has.

    Args:
        loop: Loop whose attributes ``generate``, ``feedback`` and ``refine`` are the modules to show examples to, each
            with one predictor. A role that the loop lacks takes none.
        examples: The examples.

    Raises:
        ValueError: An example lacks a field of the prompt or has another one, or the loop asks no model in its role.
    """
    taken: set[int] = set()
    for role in ROLES:
        module, rows = getattr(loop, role, None), getattr(examples, role)
        predictors = module.predictors() if isinstance(module, dspy.Module) else []
        own = [predictor for predictor in predictors if id(predictor) not in taken]
        taken |= {id(predictor) for predictor in own}
        if len(own) == 1:
            own[0].demos = _checked(role, rows, own[0])
        elif rows:
            raise ValueError(f"The loop has no prompt of its own for {role!r:.80}: leave its examples out.")


def _checked(role: str, rows: Sequence[dspy.Example], predictor: dspy.Predict) -> list[dspy.Example]:
    names = list(predictor.signature.fields)
    for number, row in enumerate(rows, start=1):
        if set(row.keys()) != set(names) or any(row[name] in (None, "", []) for name in names):
            raise ValueError(
                f"Example {number} for {role!r:.80} has the fields {sorted(row.keys())!s:.500}: give {names}, filled."
            )
    return list(rows)


_GERMAN = "Die Ärztin riet ihm, drei Wochen lang nicht zu fliegen."
_GERMAN_DRAFT = "The doctor advised him not to travel for three days."
_GERMAN_ERRORS = "'days' is a critical accuracy/mistranslation error\n'travel' is a major accuracy/mistranslation error"
_FORM = "Please send us the signed form by Friday, or your place will be given to someone else."
_FORM_DRAFT = "Veuillez nous envoyer la formulaire signée d'ici vendredi, sinon votre place sera donnée."
_FORM_ERRORS = (
    "'sera donnée' is a major accuracy/omission error\n'la formulaire signée' is a minor fluency/grammar error"
)

TRANSLATION = LoopExamples(
    generate=(
        dspy.Example(
            source="Der Bus fährt heute wegen der Bauarbeiten nicht über den Marktplatz.",
            target_language="English",
            output="Because of the roadworks, the bus is not going via the market square today.",
        ),
        dspy.Example(
            source="The library stays open until eight in the evening on Thursdays.",
            target_language="French",
            output="Le jeudi, la bibliothèque reste ouverte jusqu'à vingt heures.",
        ),
        dspy.Example(
            source="Nadie sabe todavía cuánto costará el puente nuevo.",
            target_language="English",
            output="Nobody knows yet how much the new bridge will cost.",
        ),
    ),
    feedback=(
        dspy.Example(source=_GERMAN, translation=_GERMAN_DRAFT, errors=_GERMAN_ERRORS),
        dspy.Example(source=_FORM, translation=_FORM_DRAFT, errors=_FORM_ERRORS),
        dspy.Example(
            source="El museo abre todos los días menos los lunes.",
            translation="The museum is open every day except Mondays.",
            errors="no-error",
        ),
    ),
    refine=(
        dspy.Example(
            source=_GERMAN,
            target_language="English",
            draft=_GERMAN_DRAFT,
            feedback=_GERMAN_ERRORS,
            output="The doctor advised him not to fly for three weeks.",
        ),
        dspy.Example(
            source=_FORM,
            target_language="French",
            draft=_FORM_DRAFT,
            feedback=_FORM_ERRORS,
            output="Veuillez nous envoyer le formulaire signé d'ici vendredi, sinon votre place sera attribuée à "
            "quelqu'un d'autre.",
        ),
        dspy.Example(
            source="Ci siamo accorti troppo tardi che il treno era già partito.",
            target_language="English",
            draft="We noticed too late that the train is already gone out.",
            feedback="'is already gone out' is a minor fluency/grammar error",
            output="We noticed too late that the train had already left.",
        ),
    ),
)
"""Three examples for each prompt, as many as the paper's (tables 7 to 9), in our own words."""

CONCEPTS = LoopExamples(
    feedback=(
        dspy.Example(
            concepts=["river", "boat", "paddle", "laugh"],
            text="Two friends laughed as they paddled a small boat down the river.",
            missing="none",
        ),
        dspy.Example(
            concepts=["garden", "dig", "child", "spade"],
            text="A child stands in the garden and holds a spade.",
            missing="dig",
        ),
    )
)
"""Two examples of feedback, as many as the paper's (table 12), in our own words; an inflected concept is covered."""
