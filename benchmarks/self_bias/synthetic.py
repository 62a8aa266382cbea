"""Loops of the embedded model, whose truth is known: it writes, and rewrites, under three kinds of feedback.

The model was trained to write texts as the world writes them, about any facts: it cannot follow feedback, so a
refinement is another draw, and the feedback's score alone decides which stays. That isolates what self-bias is made
of: a judge with a liking picks, of many texts, those that flatter it.
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
from evalbias.evaluation.external_scores import CachedScorer
from evalbias.evaluation.loops import LoopRun, run_loops
from evalbias.lm.types import FloatArray
from evalbias.optimizers.refine_report import RefineReport
from evalbias.programs import SYNTHETIC, PointwiseJudge, labeled
from evalbias.programs.feedback import Feedback, FeedbackSource, JudgeFeedback
from evalbias.programs.plain_text import PlainPredict
from evalbias.programs.refine import SelfRefine, WriteAgain

ITEMS = 200
REFINEMENTS = 10
RATED = 400
"""Rated items that demonstrations are chosen from."""


class Truth:
    """The world's own quality of a text.

    Attributes:
        name: For reports.
        low: 1.
        high: 5.
    """

    name = "the truth"
    low, high = (float(end) for end in world.SCALE)

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Feedback on a text about the example's ``source``."""
        return Feedback(world.true_quality(str(example["source"]), output), "")


@dataclass(frozen=True)
class Arm:
    """One loop.

    Attributes:
        name: Who it listens to.
        run: The loop.
        quality: (t + 1, n) the truth.
        commonness: (t + 1,) mean commonness of the phrasings.
        seen: Bias of the loop's own feedback.
        judged: Bias of the plain judge on the same outputs.
    """

    name: str
    run: LoopRun
    quality: FloatArray
    commonness: FloatArray
    seen: LoopSummary
    judged: LoopSummary


def items(n: int, *, seed: int) -> list[dspy.Example]:
    """So many different facts to write about."""
    drawn = world.documents(n, 1, seed=seed)
    return [dspy.Example(id=e.id, source=e.source, data=e.source) for e in drawn]


def loop(feedback: FeedbackSource) -> SelfRefine:
    """Of the embedded model under a feedback."""
    write = PlainPredict(dspy.Signature("data -> text", world.TASK), temperature=1.0, max_tokens=24)
    return SelfRefine(write, feedback, WriteAgain(write), max_iterations=REFINEMENTS, perfect=None, field="text")


def arms(*, seed: int, out: Path | None, threads: int) -> list[Arm]:
    """The loop under the plain judge, under the judge whose demonstrations RS chose, and under the truth."""
    lm = fresh_lm()
    rated = world.examples(RATED, seed=seed)
    plain = plain_judge(rated)
    compiled = evalbias.BiasedDemos(k=8, seed=seed).compile(PointwiseJudge(SYNTHETIC), trainset=rated, lm=lm)
    for judge in (plain, compiled):
        judge.predict.lm = lm
    judges = {"own judge": JudgeFeedback(plain), "own judge, RS demonstrations": JudgeFeedback(compiled)}
    done, written = [], items(ITEMS, seed=seed + 1)
    for name, source in {**judges, "the truth": Truth()}.items():
        folder = None if out is None else out / name.replace(" ", "-").replace(",", "")
        run = run_loops(loop(source), written, lm=fresh_lm(), log_dir=folder, num_threads=threads)
        quality = run.quality(written, Truth())
        common = run.quality(written, Commonness())
        judged = run.quality(
            written, CachedScorer(judges["own judge"], None if folder is None else folder / "judged.jsonl")
        )
        seen = summarize_loop(name, run.own(), quality, seed=seed)
        done.append(
            Arm(name, run, quality, np.nanmean(common, axis=1), seen, summarize_loop(name, judged, quality, seed=seed))
        )
    return done


class Commonness:
    """How common a text's phrasings are, where it speaks of every fact.

    Attributes:
        name: For reports.
        low: Of the rarest phrasings.
        high: Of the commonest.
    """

    name, low, high = "commonness", -4.0, 4.0

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Of a text."""
        return Feedback(world.true_commonness(output), "")


def compiled(*, seed: int, out: Path | None, threads: int) -> RefineReport:
    """The loop under the plain judge, compiled with the truth as external feedback."""
    lm = fresh_lm()
    plain = plain_judge(world.examples(RATED, seed=seed))
    plain.predict.lm = lm
    both = items(ITEMS, seed=seed + 1)
    half = ITEMS // 2
    optimizer = evalbias.ExternalFeedbackRefine(
        Truth(), seed=seed, num_threads=threads, log_dir=None if out is None else out / "compiled"
    )
    program = optimizer.compile(loop(JudgeFeedback(plain)), trainset=both[:half], valset=both[half:], lm=fresh_lm())
    report: RefineReport = program.report
    return report


def plain_judge(rated: list[dspy.Example]) -> PointwiseJudge:
    """A judge with eight demonstrations drawn at random: it likes common phrasing."""
    few = dspy.teleprompt.LabeledFewShot(k=8)
    judge: PointwiseJudge = few.compile(PointwiseJudge(SYNTHETIC), trainset=labeled(rated, SYNTHETIC))
    return judge


def fresh_lm() -> evalbias.LocalLM:
    """The embedded model, from its first draw on."""
    lm = evalbias.embedded_judge_lm(device="cpu")
    lm.cache = False
    return lm
