"""Preference for the own style: outputs of others, judged before and after the model paraphrases them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from evalbias.evaluation.comparison import Comparison
from evalbias.evaluation.estimates import N_RESAMPLES
from evalbias.evaluation.external_scores import CachedScorer
from evalbias.evaluation.loop_summary import summarize_loop
from evalbias.evaluation.loops import LoopRun, run_loops
from evalbias.evaluation.measurement import Measurement
from evalbias.programs.feedback.source import FeedbackSource, expected_scores
from evalbias.programs.plain_text import PlainPredict
from evalbias.programs.refine_step import take_step
from evalbias.runs.lock import lock_folder


class Paraphrase(dspy.Signature):  # type: ignore[misc]
    """Say the text in your own words, in its language and as you would put it. Keep what it means; mend nothing."""

    text: str = dspy.InputField()
    paraphrase: str = dspy.OutputField()


class Paraphrased(dspy.Module):  # type: ignore[misc]
    """A loop of two steps: an output of another author as it is, and as the model paraphrases it.

    Args:
        feedback: The model's own feedback, whose score may be biased.
        field: Field of the example with the other author's output.
        **config: Settings of the paraphrasing request.

    A call returns the ``steps`` of a loop: 0 is the given output, 1 its paraphrase, which is always accepted.
    """

    def __init__(self, feedback: FeedbackSource, *, field: str = "output", **config: Any) -> None:
        super().__init__()
        self.feedback = feedback
        self.field = field
        self.paraphrase = PlainPredict(Paraphrase, **{"temperature": 0.0, "max_tokens": 300, **config})

    def forward(self, **example: Any) -> dspy.Prediction:
        """Judge and paraphrase one example's output."""
        given = str(example[self.field])

        def paraphrased() -> str:
            return str(self.paraphrase(text=given).paraphrase)

        writers = (lambda: given, paraphrased)
        steps = [take_step(k, write, self.feedback, example, lambda _: True) for k, write in enumerate(writers)]
        return dspy.Prediction(steps=steps, stopped="iterations")


@dataclass(frozen=True)
class StyleReport:
    """Self-bias before and after paraphrasing; undefined if quality and own scores are on different scales.

    Attributes:
        before: Self-bias of the given outputs.
        after: Self-bias of the paraphrases.
        change: After against before.
        run: Every output, paraphrase, score and feedback.
        failed: Item -> error that stopped it.
    """

    before: Measurement
    after: Measurement
    change: Comparison
    run: LoopRun
    failed: dict[str, str]


def measure_style(
    program: Paraphrased,
    examples: Sequence[dspy.Example],
    quality: FeedbackSource,
    *,
    lm: Any = None,
    log_dir: Path | None = None,
    num_threads: int = 1,
    progress: Callable[[int], None] | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> StyleReport:
    """Paraphrase outputs of others and measure whether the bias grows (Xu et al. 2024, figure 7).

    Args:
        program: Program with the model's own feedback.
        examples: Items with ``id``, the output, and what feedback and quality need.
        quality: Source of the expected scores.
        lm: Model for all modules. Defaults to their own, else DSPy's.
        log_dir: Folder in which items are logged; a stopped run continues from there.
        num_threads: Items at a time.
        progress: Called with 1 after every item.
        n_resamples: Resamples of intervals and tests.
        seed: Seed for intervals and tests.

    Raises:
        ValueError: Every item failed.
    """
    run = run_loops(program, examples, lm=lm, log_dir=log_dir, num_threads=num_threads, progress=progress)
    if len(run.failed) == len(run.loops):
        raise ValueError(f"No item came through: {next(iter(run.failed.values()), 'there are no items')}")
    with nullcontext() if log_dir is None else lock_folder(log_dir):
        scorer = CachedScorer(quality, None if log_dir is None else log_dir / "quality.jsonl")
        expected = expected_scores(run.quality(examples, scorer), quality, run)
    summary = summarize_loop("style", run.own(), expected, n_resamples=n_resamples, seed=seed)
    before, after = summary.rounds
    return StyleReport(before, after, summary.change, run, scorer.failed | run.failed)
