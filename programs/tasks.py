"""Tasks of refine loops, and their demonstrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from evalbias.data.items import item_name
from evalbias.measures import QuantileMap
from evalbias.programs.feedback import (
    ConceptsFeedback,
    ExactAnswer,
    ExactConcepts,
    FeedbackSource,
    MappedFeedback,
    MQMFeedback,
    ReferenceFeedback,
    required_concepts,
)
from evalbias.programs.loops import SelfConsistencyRefine, SelfRefine
from evalbias.programs.writing import PlainPredict
from evalbias.values import read_json

Examples = Mapping[str, Sequence[dspy.Example]]
"""Examples that the prompts of a loop show, by role: "generate", "feedback" and "refine", attributes of the loop."""


def read_examples(name: str) -> Examples:
    """Read built-in examples: ``{"generate": [{FIELD: TEXT, ...}, ...], "feedback": [...], "refine": [...]}``."""
    content = read_json(Path(__file__).with_name(name), "install evalbias again")
    return {role: [dspy.Example(row) for row in rows] for role, rows in content.items()}


def show_examples(loop: SelfRefine, examples: Examples) -> None:
    """Put examples into the prompts of a loop, which has one predictor for each role."""
    for role, rows in examples.items():
        (predictor,) = getattr(loop, role).predictors()
        predictor.demos = list(rows)


TRANSLATION = read_examples("translation.json")
"""Three examples for each prompt, as many as the paper's (tables 7 to 9), in our own words."""
CONCEPTS = read_examples("concepts.json")
"""Two examples of feedback, as many as the paper's (table 12), in our own words; inflected words are covered too."""


# Ready-made refine loops: translation, constrained generation and mathematics (Xu et al. 2024, section 4).

TEMPERATURE = 1.0  # temperature at which outputs, feedback, refinements and solutions are drawn: the published code's


_LANGUAGE: Any = ("source_language", dspy.InputField(default=None), str | None)  # shown if an item names it
TRANSLATE = dspy.Signature(
    "source, target_language -> output",
    "Translate the source into the target language. Write the translation and nothing else.",
).prepend(*_LANGUAGE)
REFINE_TRANSLATION = dspy.Signature(
    "source, target_language, draft, feedback -> output",
    "Mend the errors of the draft that the feedback names. Write the better translation and nothing else.",
).prepend(*_LANGUAGE)
WRITE_WITH_CONCEPTS = dspy.Signature(  # one sentence and exact words, as in the paper's tables 11 and 13
    "concepts: list[str] -> output",
    "Write one sensible sentence in which every concept stands exactly as the list spells it.",
)
REFINE_WITH_CONCEPTS = dspy.Signature(
    "concepts: list[str], draft, feedback -> output",
    "Rewrite the draft so that the concepts it misses and all others stand in it exactly as the list spells them.",
)
SOLVE = dspy.Signature("source -> output", r"Solve the problem step by step and put the answer into \boxed{}.")


@dataclass(frozen=True)
class RefineTask:
    """A refine loop with self-feedback, and an external feedback source to compare with."""

    name: str  # on the command line
    loop: SelfRefine | SelfConsistencyRefine  # under the model's own feedback
    external: FeedbackSource  # a reference metric, an exact match of words, or the correct answer
    fields: tuple[str, ...]  # fields that every item must have; the first is the text to transform


def translation(
    *,
    max_iterations: int = 10,
    metric: FeedbackSource | None = None,
    to_mqm: QuantileMap | None = None,
    feedback_temperature: float = TEMPERATURE,
    seed: int = 0,
    **config: Any,
) -> RefineTask:
    """Make a translation task: MQM self-feedback, with a reference metric as external source.

    Outputs, refinements and feedback are drawn, as in the published code. Feedback that is drawn scores the same text
    differently from time to time, and a lucky score is accepted; at a ``feedback_temperature`` of 0 a text always has
    the same score. ``metric`` is sacrebleu's chrF by default, and ``to_mqm`` maps it onto MQM scores; without it Bias
    is undefined, because the scales differ. The prompts name an item's ``source_language``, if it has one, and contain
    as many examples as the paper's. ``config`` sets ``temperature`` and other options of the writing requests;
    ``max_tokens`` applies to the feedback too.
    """
    write, rewrite = _writer(TRANSLATE, 300, config), _writer(REFINE_TRANSLATION, 300, config)
    feedback = MQMFeedback(temperature=feedback_temperature, **_limit(config))
    loop = SelfRefine(write, feedback, rewrite, max_iterations=max_iterations, seed=seed)
    source = ReferenceFeedback("chrf") if metric is None else metric
    external = source if to_mqm is None else MappedFeedback(source, to_mqm)
    show_examples(loop, TRANSLATION)
    return RefineTask("translation", loop, external, ("source", "target_language", "reference"))


def constrained_generation(
    *, max_iterations: int = 10, feedback_temperature: float = TEMPERATURE, seed: int = 0, **config: Any
) -> RefineTask:
    """Make a task like ``translation``: the model lists missing concepts, with exact match as external source."""
    write, rewrite = _writer(WRITE_WITH_CONCEPTS, 400, config), _writer(REFINE_WITH_CONCEPTS, 400, config)
    feedback = ConceptsFeedback(temperature=feedback_temperature, **_limit(config))
    loop = SelfRefine(write, feedback, rewrite, max_iterations=max_iterations, seed=seed)
    show_examples(loop, CONCEPTS)
    return RefineTask("constrained-generation", loop, ExactConcepts(), ("concepts",))


def mathematics(
    *, max_iterations: int = 10, paths: int = 10, stop: bool = False, seed: int = 0, **config: Any
) -> RefineTask:
    """Make the paper's mathematics task: a vote on ``paths`` new solutions replaces the answer in every iteration.

    ``stop`` ends an item with the first vote that agrees, see ``SelfConsistencyRefine``. The correct answer is the
    external source. The prompt shows no examples. The other arguments are those of ``translation``.
    """
    solve = _writer(SOLVE, 800, config)
    loop = SelfConsistencyRefine(solve, paths=paths, max_iterations=max_iterations, stop=stop, seed=seed)
    return RefineTask("mathematics", loop, ExactAnswer(), ("source", "answer"))


def _writer(signature: Any, max_tokens: int, config: Mapping[str, Any]) -> PlainPredict:
    return PlainPredict(signature, **{"temperature": TEMPERATURE, "max_tokens": max_tokens, **config})


def _limit(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that apply to the feedback's requests too."""
    return {name: value for name, value in config.items() if name == "max_tokens"}


TASKS = {"translation": translation, "constrained-generation": constrained_generation, "mathematics": mathematics}


def check_items(task: RefineTask, items: Sequence[dspy.Example]) -> None:
    """Check that every item has the fields of the task, as texts; ``ValueError`` names the item and the field."""
    for example in items:
        for name in task.fields:
            if example.get(name) in (None, "", []):
                fields = ", ".join(map(repr, example.keys()))
                raise ValueError(
                    f"The item {item_name(example)!r:.80} has no {name!r}: the task {task.name} needs it. The item has "
                    f"{fields}; add the field, or name its column (--map {name}=COLUMN)."
                )
            if name == "concepts":
                required_concepts(task.name, example)
            elif not isinstance(example[name], str | int | float):
                raise ValueError(
                    f"The item {item_name(example)!r:.80} has the {name} {example[name]!r:.60}: give a text."
                )
