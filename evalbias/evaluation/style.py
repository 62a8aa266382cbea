"""Whether a model favors its own style: outputs of others, judged before and after it paraphrases them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from evalbias.evaluation.external_scores import CachedScorer
from evalbias.evaluation.loop_summary import summarize_loop
from evalbias.evaluation.loops import LoopRun, run_loops
from evalbias.lm.types import FloatArray
from evalbias.measures import Iteration, PermutationTest
from evalbias.programs.feedback.source import FeedbackSource, as_fraction_of_range
from evalbias.programs.plain_text import PlainPredict
from evalbias.programs.refine_step import take_step


class Paraphrase(dspy.Signature):  # type: ignore[misc]
    """Say the text in your own words, in its language and as you would put it. Keep what it means; mend nothing."""

    text: str = dspy.InputField()
    paraphrase: str = dspy.OutputField()


class Paraphrased(dspy.Module):  # type: ignore[misc]
    """An output of somebody else's, heard about as it is and as the model paraphrases it.

    Args:
        feedback: The model's own; its score is what may be biased.
        field: Of the example, that holds the outside output.
        **config: Of the paraphrasing request.

    A call gives the ``steps`` of a loop: 0 is the outside output, 1 its paraphrase, which is always accepted.
    """

    def __init__(self, feedback: FeedbackSource, *, field: str = "output", **config: Any) -> None:
        super().__init__()
        self.feedback = feedback
        self.field = field
        self.paraphrase = PlainPredict(Paraphrase, **{"temperature": 0.0, "max_tokens": 300, **config})

    def forward(self, **example: Any) -> dspy.Prediction:
        """Of one example."""
        outside = str(example[self.field])

        def written() -> str:
            return str(self.paraphrase(text=outside).paraphrase)

        writers = (lambda: outside, written)
        steps = [take_step(k, write, self.feedback, example, lambda _: True) for k, write in enumerate(writers)]
        return dspy.Prediction(steps=steps, stopped="iterations")


@dataclass(frozen=True)
class StyleReport:
    """Self-bias before and after.

    Attributes:
        before: Of the outside outputs; own score and worth as shares of their ranges.
        after: Of the paraphrases.
        bias: Paired permutation test of the Bias, after against before.
        skewness: Of the distance skewness.
        own: (2, n) own scores as shares of their range: of the outside outputs, and of the paraphrases.
        worth: (2, n) what the texts are worth, the same way.
        run: Every output, paraphrase, score and feedback.
        failed: Item -> what went wrong.
    """

    before: Iteration
    after: Iteration
    bias: PermutationTest
    skewness: PermutationTest
    own: FloatArray
    worth: FloatArray
    run: LoopRun
    failed: dict[str, str]


def measure_style(
    program: Paraphrased,
    examples: Sequence[dspy.Example],
    worth: FeedbackSource,
    *,
    lm: Any = None,
    log_dir: Path | None = None,
    num_threads: int = 1,
    progress: Callable[[int], None] | None = None,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> StyleReport:
    """Paraphrase outputs of others, and see whether the bias grows (Xu et al. 2024, Figure 7).

    Args:
        program: With the model's own feedback.
        examples: With ``id``, the outside output, and what the feedback and the worth need.
        worth: What texts are worth.
        lm: In place of the modules' own or DSPy's model.
        log_dir: Where items are logged; a stopped run goes on from there.
        num_threads: Items at a time.
        progress: Called with 1 after every item.
        n_resamples: Of intervals and tests.
        seed: Of intervals and tests.

    Raises:
        ValueError: Not one item came through.
    """
    run = run_loops(program, examples, lm=lm, log_dir=log_dir, num_threads=num_threads, progress=progress)
    if len(run.failed) == len(run.loops):
        raise ValueError(f"No item came through: {next(iter(run.failed.values()), 'there are no items')}")
    asked = CachedScorer(worth, None if log_dir is None else log_dir / "worth.jsonl")
    values = run.worth(examples, asked)
    own, true = as_fraction_of_range(run.own(), run), as_fraction_of_range(values, worth)
    found = summarize_loop("style", own, true, n_resamples=n_resamples, seed=seed)
    before, after = found.rounds
    return StyleReport(before, after, found.bias, found.skewness, own, true, run, asked.failed | run.failed)
