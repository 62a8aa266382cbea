"""Ready-made refine loops: translation, constrained generation and mathematics (Xu et al. 2024, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from evalbias.data.item_names import item_name
from evalbias.measures import QuantileMap
from evalbias.programs.examples import CONCEPTS, NONE, TRANSLATION, LoopExamples, show_examples
from evalbias.programs.feedback import (
    ConceptsFeedback,
    ConsistencyFeedback,
    ExactAnswer,
    ExactConcepts,
    FeedbackSource,
    MappedFeedback,
    MQMFeedback,
    ReferenceFeedback,
)
from evalbias.programs.feedback.concepts import required_concepts
from evalbias.programs.plain_text import PlainPredict
from evalbias.programs.refine import SelfRefine
from evalbias.programs.self_consistency import SelfConsistencyRefine

TEMPERATURE = 1.0
"""Temperature at which outputs, refinements and solutions are drawn: the published code's. The paper states none."""


class Translate(dspy.Signature):  # type: ignore[misc]
    """Translate the source into the target language. Write the translation and nothing else."""

    source: str = dspy.InputField()
    target_language: str = dspy.InputField()
    output: str = dspy.OutputField()


class RefineTranslation(dspy.Signature):  # type: ignore[misc]
    """Mend the errors of the draft that the feedback names. Write the better translation and nothing else."""

    source: str = dspy.InputField()
    target_language: str = dspy.InputField()
    draft: str = dspy.InputField()
    feedback: str = dspy.InputField()
    output: str = dspy.OutputField()


class WriteWithConcepts(dspy.Signature):  # type: ignore[misc]
    """Write a few sensible sentences that hold every one of the concepts."""

    concepts: list[str] = dspy.InputField()
    output: str = dspy.OutputField()


class RefineWithConcepts(dspy.Signature):  # type: ignore[misc]
    """Rewrite the draft so that it also holds what the feedback misses, and stays sensible."""

    concepts: list[str] = dspy.InputField()
    draft: str = dspy.InputField()
    feedback: str = dspy.InputField()
    output: str = dspy.OutputField()


class Solve(dspy.Signature):  # type: ignore[misc]
    r"""Solve the problem step by step and put the answer into \boxed{}."""

    source: str = dspy.InputField()
    output: str = dspy.OutputField()


class RefineSolution(dspy.Signature):  # type: ignore[misc]
    r"""Look at the draft and the feedback, solve the problem again and put the answer into \boxed{}."""

    source: str = dspy.InputField()
    draft: str = dspy.InputField()
    feedback: str = dspy.InputField()
    output: str = dspy.OutputField()


@dataclass(frozen=True)
class RefineTask:
    """A refine loop with self-feedback, and an external feedback source to compare with.

    Attributes:
        name: Name on the command line.
        loop: Loop under the model's own feedback.
        external: External source: a reference metric, an exact match of words, or the correct answer.
        source: Field of an item that the output answers to.
        fields: Fields that every item must have.
    """

    name: str
    loop: SelfRefine | SelfConsistencyRefine
    external: FeedbackSource
    source: str
    fields: tuple[str, ...]


def translation(
    *,
    max_iterations: int = 10,
    critical: float = -5.0,
    metric: FeedbackSource | None = None,
    to_mqm: QuantileMap | None = None,
    examples: LoopExamples = TRANSLATION,
    seed: int = 0,
    **config: Any,
) -> RefineTask:
    """Make a translation task: MQM self-feedback, with a reference metric as external source.

    Outputs and refinements are drawn. The feedback decodes greedily, so that an output has one score; the published
    code draws it too.

    Args:
        max_iterations: Largest number of refinements.
        critical: Weight of a critical error; see ``MQMFeedback``.
        metric: Reference metric. Defaults to sacrebleu's chrF.
        to_mqm: Map of the metric onto MQM scores. Without it Bias is undefined, because the scales differ.
        examples: In-context examples of the prompts. The default has as many as the paper; ``NONE`` shows none.
        seed: Seed for the draws, for models that draw by a seed.
        **config: Settings of the writing requests, such as ``temperature``; ``max_tokens`` applies to the feedback too.
    """
    writing = {"temperature": TEMPERATURE, "max_tokens": 300, **config}
    loop = SelfRefine(
        PlainPredict(Translate, **writing),
        MQMFeedback(critical=critical, **_limit(config)),
        PlainPredict(RefineTranslation, **writing),
        max_iterations=max_iterations,
        seed=seed,
    )
    show_examples(loop, examples)
    source = ReferenceFeedback("chrf") if metric is None else metric
    external = source if to_mqm is None else MappedFeedback(source, to_mqm)
    return RefineTask("translation", loop, external, "source", ("source", "target_language", "reference"))


def constrained_generation(
    *, max_iterations: int = 10, examples: LoopExamples = CONCEPTS, seed: int = 0, **config: Any
) -> RefineTask:
    """Make a constrained-generation task: the model lists missing concepts, with exact match as external source.

    For the arguments, see ``translation``.
    """
    writing = {"temperature": TEMPERATURE, "max_tokens": 400, **config}
    loop = SelfRefine(
        PlainPredict(WriteWithConcepts, **writing),
        ConceptsFeedback(**_limit(config)),
        PlainPredict(RefineWithConcepts, **writing),
        max_iterations=max_iterations,
        seed=seed,
    )
    show_examples(loop, examples)
    return RefineTask("constrained-generation", loop, ExactConcepts(), "concepts", ("concepts",))


def mathematics(
    *, max_iterations: int = 10, paths: int = 10, examples: LoopExamples = NONE, seed: int = 0, **config: Any
) -> RefineTask:
    """Make the paper's mathematics task: votes on ``paths`` new solutions replace the answer until they agree.

    The correct answer is the external source. The paper shows no examples; those for ``generate`` are solutions with
    ``source`` and ``output``. For the other arguments, see ``translation``.
    """
    solve = PlainPredict(Solve, **_solving(config))
    loop = SelfConsistencyRefine(solve, paths=paths, max_iterations=max_iterations, seed=seed)
    show_examples(loop, examples)
    return RefineTask("mathematics", loop, ExactAnswer(), "source", ("source", "answer"))


def mathematics_refiner(
    *, max_iterations: int = 10, paths: int = 10, examples: LoopExamples = NONE, seed: int = 0, **config: Any
) -> RefineTask:
    """Make a mathematics task with a refiner, which is told the vote; its solution is accepted if the score is better.

    The correct answer is the external source. Examples for ``feedback`` are solutions, shown before every path. For the
    other arguments, see ``mathematics``.
    """
    writing = _solving(config)
    loop = SelfRefine(
        PlainPredict(Solve, **writing),
        ConsistencyFeedback(PlainPredict(Solve, **writing), paths=paths, seed=seed),
        PlainPredict(RefineSolution, **writing),
        max_iterations=max_iterations,
        seed=seed,
    )
    show_examples(loop, examples)
    return RefineTask("mathematics-refiner", loop, ExactAnswer(), "source", ("source", "answer"))


def _solving(config: Mapping[str, Any]) -> dict[str, Any]:
    return {"temperature": TEMPERATURE, "max_tokens": 800, **config}


def _limit(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that apply to the feedback's requests too."""
    return {name: value for name, value in config.items() if name == "max_tokens"}


TASKS = {
    "translation": translation,
    "constrained-generation": constrained_generation,
    "mathematics": mathematics,
    "mathematics-refiner": mathematics_refiner,
}


def check_items(task: RefineTask, items: Sequence[dspy.Example]) -> None:
    """Check that every item has the fields that the task needs.

    Raises:
        ValueError: A field is missing or not a text; the message names the item and the field.
    """
    for example in items:
        for name in task.fields:
            if example.get(name) in (None, "", []):
                given = ", ".join(map(repr, example.keys()))
                raise ValueError(
                    f"The item {item_name(example)!r:.80} has no {name!r}: the task {task.name} needs it. The item has "
                    f"{given}; add the field, or name its column (--map {name}=COLUMN)."
                )
            if name == "concepts":
                required_concepts(task.name, example)
            elif not isinstance(example[name], str | int | float):
                raise ValueError(
                    f"The item {item_name(example)!r:.80} has the {name} {example[name]!r:.60}: give a text."
                )
