"""The options of the commands that run refine loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from evalbias.commands.options import LM, Columns, Out, Seed
from evalbias.commands.sections import data_option, external_option

SAME = "same"
"""Name of a judge that is the model which writes."""

QuantileMapFile = Annotated[
    Path | None,
    external_option(
        "--quantile-map",
        help="Pairs of the metric's scores and human MQM scores, needed for Bias: a .jsonl or .csv file with a field "
        "named after the metric and a field mqm, or a saved QuantileMap (.json).",
        exists=True,
        dir_okay=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class LoopOptions:
    """Options of every command that runs a loop: its task, items, model and folder."""

    task: Annotated[
        Literal["translation", "constrained-generation", "mathematics", "mathematics-refiner"],
        data_option(
            help="Task of the loop. In mathematics, votes replace the answer, as in the paper. In mathematics-refiner, "
            "a refiner is told the vote, and its solution is accepted if its score is better."
        ),
    ]
    data: Annotated[
        str, data_option(help="Items with the fields of the task: a file of the same formats as for judge, or hf:NAME.")
    ]
    columns: Columns = None
    limit: Annotated[int | None, data_option(help="Process only this many items, from the start.", min=1)] = None
    lm: LM
    max_tokens: Annotated[
        int | None, typer.Option(help="Maximum length of an answer, in tokens. By default, what the task needs.", min=1)
    ] = None
    seed: Seed = 0
    out: Out = None


@dataclass(frozen=True)
class MetricOptions:
    """Options that decide the expected scores of translations."""

    name: Annotated[
        Literal["chrf", "bleu", "comet", "bleurt"],
        external_option(
            "--metric", help="Reference metric for translations; comet and bleurt run in a separate Python environment."
        ),
    ] = "chrf"
    python: Annotated[
        Path | None,
        external_option("--metric-python", help="Python interpreter of the environment that has comet or bleurt."),
    ] = None
    checkpoint: Annotated[
        str | None, external_option(help="Checkpoint of comet (a name or file) or bleurt (a folder).")
    ] = None
    map: QuantileMapFile = None


@dataclass(frozen=True)
class RefineOptions:
    """Options of the commands that run loops; each command uses those that it has.

    Attributes:
        max_iterations: Largest number of refinements; None takes 10, or the compiled loop's.
        examples: File of in-context examples; None takes the task's.
        instructscore: Name of the model of external feedback; None leaves it to the task.
        prompt: File with that model's request; None takes the default.
        program: File of a compiled loop; None takes the task's.
        feedback: Feedback of the loop.
        best_of: Number of outputs to draw and to choose from; None refines.
        aspects_lm: Model that judges fluency and understandability of every output; ``SAME`` is the one that writes,
            and None judges nothing.
        aspects_api_base: Address of that model's server.
        k: Largest number of demonstrations.
        until: See ``ExternalFeedbackRefine``.
        budget: See ``ExternalFeedbackRefine``.
        test_fraction: Fraction of the items kept to compare before and after.
        bare: Whether to compile the result of the search as it is, without choosing on held-back items.
        metric: Reference metric of translations, and its map onto MQM scores.
    """

    max_iterations: int | None = None
    examples: Path | None = None
    instructscore: str | None = None
    prompt: Path | None = None
    program: Path | None = None
    feedback: Literal["own", "external"] = "own"
    best_of: int | None = None
    aspects_lm: str | None = None
    aspects_api_base: str | None = None
    k: int = 4
    until: Literal["quality", "quality or bias"] = "quality"
    budget: int | None = None
    test_fraction: float = 0.5
    bare: bool = False
    metric: MetricOptions = field(default_factory=MetricOptions)

    def check(self) -> None:
        """Refuse options that contradict each other or would do nothing.

        Raises:
            ValueError: Two options do not go together.
        """
        if self.program is not None and self.max_iterations is not None:
            raise ValueError("--program decides the refinements: leave --max-iterations out.")
        if self.program is not None and self.examples is not None:
            raise ValueError("--program holds the examples of its prompts: leave --examples out.")
        if self.best_of is not None and (self.max_iterations, self.program) != (None, None):
            raise ValueError("--best-of draws and does not refine: leave --max-iterations and --program out.")
        if self.instructscore is None and self.prompt is not None:
            raise ValueError("--instructscore-prompt is a request to a model: name it with --instructscore.")
        if self.aspects_lm is None and self.aspects_api_base is not None:
            raise ValueError("--aspects-api-base is the address of a judge: name it with --aspects-lm.")
