"""Options of the commands about refine loops, recorded or run; see ``evalbias.options``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from evalbias.options import GROUPS, Choosing, Judging, Models, Options, Out, Seeded, option


class Mapped(Options):
    """A map of the expected scores."""

    quantile_map: Path | None = option(
        "Pairs of the metric's scores and human MQM scores, needed for Bias: a .jsonl or .csv file with a field "
        "named after the metric and a field mqm."
    )


class SelfOptions(Seeded, Mapped):
    """Measure the self-bias of refine loops.

    Measures Bias and distance skewness of recorded loops, round by round, with intervals. Runs no model. Several loops,
    such as those of several models, are shown side by side.
    """

    loops: Sequence[Path] = field(
        kw_only=False, metadata={"help": "File of recorded loops, or a run folder of evalbias refine run. Repeatable."}
    )
    mapping: Mapping[str, str] | None = option("Names of your columns, such as id=item,self_score=mine. Repeatable.")
    own: str = option("Field that holds the loop's own score.", "self_score")
    expected: str = option("Field that holds the output's expected score.", "expected")
    by: Literal["iteration", "k"] = option("Field that numbers the rounds.", "iteration")
    resamples: int = option("Number of resamples for the intervals and the test.", 2_000)

    def __post_init__(self) -> None:
        if self.own == self.expected:
            raise ValueError(
                f"`own` and `expected` both name {self.own!r}, and a loop would seem to have no Bias: name the field "
                "of each."
            )


class LoopOptions(Seeded, Mapped, Judging):
    """A loop: its task, items and model."""

    beside = (Models, Out)
    task: Literal["translation", "constrained-generation", "mathematics", "mathematics-refiner"] = field(
        metadata={
            "section": "Data",
            "help": "Task of the loop. In mathematics, a vote replaces the answer in every iteration, as in the paper. "
            "In mathematics-refiner, a refiner is told the vote, and its solution is accepted if its score is better.",
        }
    )
    data: Any = field(
        metadata={"help": "Items with the fields of the task: a file of the same formats as for judge, or hf:NAME."}
    )
    mapping: Mapping[str, str] | None = option(
        "Names of your columns, such as source=german,reference=english. Repeatable."
    )
    limit: int | None = option("Process only this many items, from the start.")
    max_tokens: int | None = option("Maximum length of an answer, in tokens. By default, what the task needs.")
    examples: Path | None = option(
        "JSON file of in-context examples for generate, feedback and refine, to replace the built-in ones ({}: none)."
    )
    metric: Literal["chrf", "bleu"] = option("Reference metric for translations.", "chrf")
    threads: int = option("Number of items to process at a time.", 1)

    def __post_init__(self) -> None:
        if self.task != "translation" and (self.metric, self.quantile_map) != ("chrf", None):
            raise ValueError(
                f"`metric` and `quantile_map` are for translations: the task {self.task} defines its own quality."
            )


class StyleOptions(LoopOptions):
    """Measure a model's preference for its own style.

    The model paraphrases outputs that others wrote (field 'output'), and judges both versions.
    """


class FeedbackOptions(LoopOptions):
    """A loop that refines, and the external feedback that it may get."""

    max_iterations: int | None = option("Maximum number of refinements per item (10 if not given).")
    feedback_temperature: float | None = option(
        "Temperature at which the model's own feedback is drawn, 1 as in the published code if not given. At 0 a "
        "text has one score."
    )
    instructscore: Any = option("Model for external feedback: it lists the errors by comparing with the reference.")
    instructscore_prompt: Path | None = option("File with the prompt of `instructscore`: {reference}, {output}.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.feedback_temperature is not None and self.task.startswith("mathematics"):
            raise ValueError("`feedback_temperature` is for feedback in words: in mathematics the feedback is a vote.")
        if self.instructscore is None and self.instructscore_prompt is not None:
            raise ValueError("`instructscore_prompt` is a request to a model: name it with `instructscore`.")


class RefineOptions(FeedbackOptions):
    """Run a refine loop, or best of k, on every item.

    Writes outputs.jsonl and steps.jsonl to the run's folder. A stopped run continues. To see Bias and Dskew for each
    refinement, or by k, run evalbias refine measure --data FOLDER.
    """

    feedback: Literal["own", "external"] = option(
        "Source of feedback: the model itself, or the task's external source.", "own"
    )
    program: Path | None = option("JSON file of a compiled loop, which decides the number of refinements.")
    best_of: int | None = option("Instead of refining, draw this many outputs and keep the one with the best feedback.")
    aspects_lm: Any = option("Model that judges the fluency and understandability of every output; 'same' means `lm`.")
    aspects_api_base: str | None = option("Address of the server that runs `aspects_lm`.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.program is not None and self.max_iterations is not None:
            raise ValueError("`program` decides the refinements: leave `max_iterations` out.")
        if self.program is not None and self.examples is not None:
            raise ValueError("`program` holds the examples of its prompts: leave `examples` out.")
        if self.best_of is not None and (self.max_iterations, self.program) != (None, None):
            raise ValueError("`best_of` draws and does not refine: leave `max_iterations` and `program` out.")
        if self.aspects_lm is None and self.aspects_api_base is not None:
            raise ValueError("`aspects_api_base` is the address of a judge: name it with `aspects_lm`.")
        if self.instructscore is not None and self.feedback == "own":
            raise ValueError("`instructscore` is external feedback: add `feedback` external.")


class CompileRefineOptions(Choosing, FeedbackOptions):
    """Compile a refine loop with less self-bias.

    External feedback decides when to stop, and which refinements become demonstrations. Half of the items are kept for
    comparing before and after.
    """

    k: int = option("Maximum number of demonstrations.", 4)
    budget: int | None = option("Approximate number of requests to the model for training items.")


NAMES = {name for group in GROUPS for name in inspect.get_annotations(group)}
"""Names of the options of all commands."""
