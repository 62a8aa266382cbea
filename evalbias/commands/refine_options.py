"""The options of the commands that run refine loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SAME = "same"
"""Name of a judge that is the model which writes."""


@dataclass(frozen=True)
class MetricOptions:
    """Options that decide the expected scores of translations.

    Attributes:
        name: Reference metric.
        python: Interpreter of a learned metric's environment.
        checkpoint: Checkpoint of a learned metric.
        map: File of a quantile map onto MQM scores, or of pairs; None leaves the metric's own points.
    """

    name: Literal["chrf", "bleu", "comet", "bleurt"] = "chrf"
    python: Path | None = None
    checkpoint: str | None = None
    map: Path | None = None


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
