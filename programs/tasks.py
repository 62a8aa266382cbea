"""Three refine loops ready to use: translation, constrained generation, mathematics (Xu et al. 2024, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from evalbias.programs.feedback import (
    ConceptsFeedback,
    ConsistencyFeedback,
    ExactAnswer,
    ExactConcepts,
    FeedbackSource,
    MQMFeedback,
    ReferenceFeedback,
)
from evalbias.programs.feedback.concepts import required_concepts
from evalbias.programs.plain_text import PlainPredict
from evalbias.programs.refine import SelfRefine


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
    """A loop and what its outputs are worth.

    Attributes:
        name: As the command line knows it.
        loop: Under the model's own feedback.
        external: What knows better: by a reference, the exact words, or the right answer.
        source: The field that an output answers to.
        fields: What an item must hold.
    """

    name: str
    loop: SelfRefine
    external: FeedbackSource
    source: str
    fields: tuple[str, ...]


def translation(*, max_iterations: int = 10, critical: float = -5.0, **config: Any) -> RefineTask:
    """Translation under its own MQM feedback; outside it, sacrebleu's chrF by the reference.

    Args:
        max_iterations: Refinements at most.
        critical: See ``MQMFeedback``.
        **config: Of the writing requests; ``max_tokens`` holds for the feedback too.
    """
    writing = {"temperature": 0.0, "max_tokens": 300, **config}
    loop = SelfRefine(
        PlainPredict(Translate, **writing),
        MQMFeedback(critical=critical, **_limit(config)),
        PlainPredict(RefineTranslation, **writing),
        max_iterations=max_iterations,
    )
    return RefineTask(
        "translation", loop, ReferenceFeedback("chrf"), "source", ("source", "target_language", "reference")
    )


def constrained_generation(*, max_iterations: int = 10, **config: Any) -> RefineTask:
    """Sentences that hold all the concepts, under the model's own list of what is missing; outside it, exact match."""
    writing = {"temperature": 0.0, "max_tokens": 400, **config}
    loop = SelfRefine(
        PlainPredict(WriteWithConcepts, **writing),
        ConceptsFeedback(**_limit(config)),
        PlainPredict(RefineWithConcepts, **writing),
        max_iterations=max_iterations,
    )
    return RefineTask("constrained-generation", loop, ExactConcepts(), "concepts", ("concepts",))


def mathematics(*, max_iterations: int = 10, paths: int = 10, **config: Any) -> RefineTask:
    """Solutions under self-consistency over so many paths; outside it, the right answer."""
    writing = {"temperature": 0.0, "max_tokens": 800, **config}
    paths_of = PlainPredict(Solve, **{**writing, "temperature": 0.7})
    loop = SelfRefine(
        PlainPredict(Solve, **writing),
        ConsistencyFeedback(paths_of, paths=paths),
        PlainPredict(RefineSolution, **writing),
        max_iterations=max_iterations,
    )
    return RefineTask("mathematics", loop, ExactAnswer(), "source", ("source", "answer"))


def _limit(config: Mapping[str, Any]) -> dict[str, Any]:
    """What holds for the feedback's requests too."""
    return {name: value for name, value in config.items() if name == "max_tokens"}


TASKS = {"translation": translation, "constrained-generation": constrained_generation, "mathematics": mathematics}


def check_items(task: RefineTask, items: Sequence[dspy.Example]) -> None:
    """Refuse items that lack what the task needs, before anything is written.

    Raises:
        ValueError: An item lacks a field, or has what is no text there; both are named.
    """
    for example in items:
        for name in task.fields:
            if example.get(name) in (None, "", []):
                raise ValueError(f"The item {example.get('id')!r} has no {name!r}: the task {task.name} needs it.")
            if name == "concepts":
                required_concepts(task.name, example)
            elif not isinstance(example[name], str | int | float):
                raise ValueError(f"The item {example.get('id')!r} has the {name} {example[name]!r:.60}: give a text.")
