"""Refine loops of the embedded model under three kinds of feedback; the true quality of every text is known.

The model was trained to write texts of the synthetic world, about any facts. It cannot follow feedback: a refinement is
another draw, and only the feedback's score decides which text is kept. This isolates the cause of self-bias: of many
texts, a judge with a preference picks those that it overrates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np

import evalbias
from evalbias.data import world
from evalbias.evaluation import LoopSummary, summarize_loop
from evalbias.evaluation.loops import CachedScorer, LoopRun, run_loops
from evalbias.measures.arrays import FloatArray
from evalbias.optimizers.refine import RefineReport
from evalbias.programs import SYNTHETIC, PointwiseJudge, labeled
from evalbias.programs.feedback import Feedback, FeedbackSource, JudgeFeedback
from evalbias.programs.loops import SelfRefine
from evalbias.programs.writing import PlainPredict

ITEMS = 200
REFINEMENTS = 10
RATED = 400
"""Number of rated items that the demonstrations are chosen from."""


class TrueQuality:
    """Feedback source that scores a text with its true quality in the synthetic world.

    Attributes:
        name: Name in reports.
        low: Lowest quality, 1.
        high: Highest quality, 5.
    """

    name = "true quality"
    low, high = (float(end) for end in world.SCALE)

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Return feedback on a text about the example's ``source``."""
        return Feedback(world.true_quality(str(example["source"]), output), "")


@dataclass(frozen=True)
class Arm:
    """The loops of all items under one kind of feedback.

    Attributes:
        name: Name of the feedback.
        run: The loops.
        quality: (t + 1, n) true quality of the outputs.
        commonness: (t + 1,) mean commonness of the phrasings.
        own: Self-bias of the loop's own feedback.
        judged: Self-bias of the plain judge on the same outputs.
    """

    name: str
    run: LoopRun
    quality: FloatArray
    commonness: FloatArray
    own: LoopSummary
    judged: LoopSummary


class WriteAgain(dspy.Module):  # type: ignore[misc]
    """Refiner that ignores draft and feedback and draws again from the generator."""

    def __init__(self, generate: dspy.Module) -> None:
        super().__init__()
        self.generate = generate

    def forward(self, draft: str, feedback: str, **inputs: Any) -> Any:
        """Draw another output."""
        return self.generate(**inputs)


def items(n: int, *, seed: int) -> list[dspy.Example]:
    """Return n items with different facts to write about."""
    drawn = world.documents(n, 1, seed=seed)
    return [dspy.Example(id=e.id, source=e.source, data=e.source) for e in drawn]


def loop(feedback: FeedbackSource) -> SelfRefine:
    """Return a refine loop of the embedded model under a feedback source."""
    write = PlainPredict(dspy.Signature("data -> text", world.TASK), temperature=1.0, max_tokens=24)
    return SelfRefine(write, feedback, WriteAgain(write), max_iterations=REFINEMENTS, perfect=None, field="text")


def arms(*, seed: int, out: Path | None, threads: int) -> list[Arm]:
    """Run the loop under the plain judge, under the judge with RS demonstrations, and under the true quality."""
    lm = fresh_lm()
    rated = world.examples(RATED, seed=seed)
    plain = plain_judge(rated)
    compiled = evalbias.BiasedDemos(k=8, seed=seed, select=False).compile(
        PointwiseJudge(SYNTHETIC), trainset=rated, lm=lm
    )
    for judge in (plain, compiled):
        judge.predict.lm = lm
    judges = {"own judge": JudgeFeedback(plain), "own judge, RS demonstrations": JudgeFeedback(compiled)}
    results, examples = [], items(ITEMS, seed=seed + 1)
    for name, source in {**judges, TrueQuality.name: TrueQuality()}.items():
        folder = None if out is None else out / name.replace(" ", "-").replace(",", "")
        run = run_loops(loop(source), examples, lm=fresh_lm(), log_dir=folder, num_threads=threads)
        quality = run.quality(examples, TrueQuality())
        common = run.quality(examples, Commonness())
        scorer = CachedScorer(judges["own judge"], None if folder is None else folder / "judged.jsonl")
        own = summarize_loop(name, run.own(), quality, seed=seed)
        judged = summarize_loop(name, run.quality(examples, scorer), quality, seed=seed)
        results.append(Arm(name, run, quality, np.nanmean(common, axis=1), own, judged))
    return results


class Commonness:
    """Feedback source that scores how common a text's phrasings are; undefined where the text leaves out a fact.

    Attributes:
        name: Name in reports.
        low: Commonness of the rarest phrasings.
        high: Commonness of the most common phrasings.
    """

    name, low, high = "commonness", -4.0, 4.0

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Return feedback on a text."""
        return Feedback(world.true_commonness(output), "")


def compiled(*, seed: int, out: Path | None, threads: int) -> RefineReport:
    """Compile the loop under the plain judge, with the true quality as external feedback."""
    lm = fresh_lm()
    plain = plain_judge(world.examples(RATED, seed=seed))
    plain.predict.lm = lm
    examples = items(ITEMS, seed=seed + 1)
    half = ITEMS // 2
    optimizer = evalbias.ExternalFeedbackRefine(
        TrueQuality(), seed=seed, num_threads=threads, log_dir=None if out is None else out / "compiled", select=False
    )
    student = loop(JudgeFeedback(plain))
    program = optimizer.compile(student, trainset=examples[:half], valset=examples[half:], lm=fresh_lm())
    report: RefineReport = program.report
    return report


def plain_judge(rated: list[dspy.Example]) -> PointwiseJudge:
    """Return a judge with eight demonstrations drawn at random, which prefers common phrasing."""
    few = dspy.teleprompt.LabeledFewShot(k=8)
    judge: PointwiseJudge = few.compile(PointwiseJudge(SYNTHETIC), trainset=labeled(rated, SYNTHETIC))
    return judge


def fresh_lm() -> evalbias.LocalLM:
    """Return the embedded model with its generator at the first draw, without a cache."""
    lm = evalbias.embedded_judge_lm(device="cpu")
    lm.cache = False
    return lm
