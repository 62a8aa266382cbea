"""Run refine loops of a real model on CommonGen Hard: under its own list of missing concepts, and under the true one.

The model's own list is drawn at temperature 1, as in the published code, and once more decoded greedily. With
``--judged``, the model scores its texts from 1 to 5 instead, in self-refinement and in best of k, and the gain by these
scores is split into length, likelihood and the share of the concepts that a text covers.

usage: python -m benchmarks.commongen --lm MODEL [--dtype bfloat16] [--items 30] [--refinements 3] [--judged 8]
           [--max-tokens 150] [--threads 8] [--seed 0] [--out DIR] [--write]

The items are read from EVALBIAS_DATA. A stopped run resumes. ``--write`` puts the table into
benchmarks/results/self_bias.md, or with ``--judged`` into changes.md.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from benchmarks.harness import argument_parser, data_folder, finish, judge_of, markdown
from benchmarks.self_bias import first_to_last
from evalbias.cli.models import open_lm
from evalbias.data.loops import loop_items
from evalbias.evaluation import Judged, LoopSummary, summarize_loop
from evalbias.evaluation.answers import answers_of, resolve
from evalbias.evaluation.changes import compare
from evalbias.evaluation.loops import OWN, CachedScorer, LoopRun, conclude_quality, run_loops
from evalbias.evaluation.words import count, mark
from evalbias.lm.cache import model_identity
from evalbias.measures.arrays import FloatArray
from evalbias.options import AuditOptions, MeasuringModels
from evalbias.programs import Criterion, PointwiseJudge
from evalbias.programs.feedback import ExactConcepts, Feedback, JudgeFeedback
from evalbias.programs.loops import BestOfK, SelfRefine
from evalbias.programs.tasks import WRITE_WITH_CONCEPTS, constrained_generation
from evalbias.values import to_json

HEADINGS = ["feedback", "believes all covered (undefined)", "all covered", "Bias", "Dskew"]
HEADINGS += ["mean share of concepts", "change of the share"]


class CoveredShare:
    """External feedback: the share of the concepts that a text covers, and the list of those that it lacks.

    ``ExactConcepts`` gives no credit for a part of them, so a loop of a weak model accepts nothing.
    """

    name, low, high = "share of the concepts", 0.0, 1.0

    def __init__(self) -> None:
        self._exact = ExactConcepts()

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Search the output for the example's ``concepts``."""
        covered = np.mean([concept.lower() in output.lower() for concept in example["concepts"]])
        return Feedback(float(covered), self._exact(example, output).text)


@dataclass(frozen=True)
class Arm:
    """The loops of all items under one source of feedback."""

    name: str  # name of the feedback
    run: LoopRun  # the loops
    belief: LoopSummary  # self-bias of the model's belief that all concepts are covered
    share: FloatArray  # (t + 1, n) share of the concepts that each output covers

    def row(self, seed: int) -> list[str]:
        """Return the row of the table."""
        own, expected, bias, skewness = (
            first_to_last(self.belief, name) for name in ("own", "expected", "bias", "skewness")
        )
        undefined = ", ".join(str(self.belief.rounds[at]["bias"].undefined) for at in (0, -1))
        bias += mark(self.belief.change["bias"].p_value)
        share = np.nanmean(self.share, axis=1)
        change = conclude_quality(self.share, CoveredShare.name, seed=seed)
        shares = f"{share[0]:.2f} -> {share[-1]:.2f}"
        return [self.name, f"{own} ({undefined})", expected, bias, skewness, shares, change]


def arms(
    lm: Any,
    items: Sequence[dspy.Example],
    *,
    refinements: int,
    max_tokens: int,
    seed: int,
    threads: int,
    out: Path | None,
) -> list[Arm]:
    """Run the loop under the model's own feedback, drawn and greedy, and under the external one.

    All begin with the same outputs, and the beliefs beside the external feedback are drawn.
    """
    results = []
    share = CoveredShare()
    config: dict[str, Any] = {"max_iterations": refinements, "max_tokens": max_tokens, "seed": seed}
    for name, temperature, external in (("own", 1.0, None), ("own, greedy", 0.0, None), ("external", 1.0, share)):
        loop = constrained_generation(feedback_temperature=temperature, **config).loop
        own: Any = loop.feedback
        own.set_lm(lm)
        if external is not None:
            loop.feedback = external
        folder = None if out is None else out / name
        run = run_loops(loop, items, lm=lm, log_dir=folder, num_threads=threads)
        believed = run.quality(items, CachedScorer(own, None if folder is None else folder / "believed.jsonl"))
        covered = run.quality(items, ExactConcepts())
        belief = summarize_loop(name, believed, covered, seed=seed)
        results.append(Arm(name, run, belief, run.quality(items, share)))
    return results


CRITERION = Criterion("quality", "does the text use every one of the concepts, in sensible sentences?")
PARTS = ("gain", "length", "likelihood", "people")


def judged_loops(lm: Any, items: Sequence[dspy.Example], *, k: int, threads: int, out: Path, **config: Any) -> Any:
    """Split what best of k and self-refinement gain by the scores of the model's own judge; yields one row a loop.

    What the judge gives at equal coverage is learned from all drafts.
    """
    task, judge = constrained_generation(**config), PointwiseJudge(CRITERION)
    judge.predict.lm = lm
    own, writer, request = JudgeFeedback(judge, source="concepts"), task.loop.generate, WRITE_WITH_CONCEPTS.instructions
    seed, sources = config["seed"], {str(e.id): ", ".join(e.concepts) for e in items}
    refine = SelfRefine(writer, own, task.loop.refine, max_iterations=config["max_iterations"], seed=seed)

    def judged(rows: Sequence[Any]) -> Judged:
        rated = [row | {"source": sources[row["input_id"]]} for row in rows]
        asked = AuditOptions(rated, scores_field=OWN, reliability=1, likelihood_lm=lm, task=request)
        return answers_of(resolve(asked))

    drafts: list[Any] = []
    for name, loop in ((f"best of {k}", BestOfK(writer, own, k=k, seed=seed)), ("self-refinement", refine)):
        run = run_loops(loop, items, lm=lm, log_dir=out / name, num_threads=threads)
        by_id, share = {str(e.id): e for e in items}, CoveredShare()
        if not drafts:
            drafts = [
                {"id": f"{loop.id}/{step.iteration}", "input_id": loop.id, "output": step.output, OWN: step.score}
                | {"rating_1": share(by_id[loop.id], step.output).score}
                for loop in run.loops
                for step in loop.steps[1:]
                if step != loop.at(k) and step.output.strip()
            ]
        quality = run.quality(items, share)
        ends = [
            [
                {"id": loop.id, "input_id": loop.id, "output": step.output, OWN: step.score, "rating_1": value}
                for loop, value in zip(run.loops, quality[at], strict=True)
                if (step := loop.at(at)) is not None and step.output.strip()
            ]
            for at in (0, run.iterations)
        ]
        before, after = (judged(to_json(end)) for end in ends)
        found = compare(before=before, after=after, rated=judged(to_json(drafts)), reliability=1)
        yield [name, *(f"{found[part].text()} ({found[part].interval})" for part in PARTS)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__, out="commongen")
    parser.add_argument("--lm", required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--items", type=int, default=30)
    parser.add_argument("--refinements", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=150)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--judged", type=int, metavar="K", help="split the gains by the model's own judge; best of K")
    args = parser.parse_args(arguments)
    lm = open_lm(args.lm, MeasuringModels(dtype=args.dtype))
    items, _ = loop_items(data_folder("commongen_hard.jsonl"))
    drawn = random.Random(args.seed).sample(items, min(args.items, len(items)))
    title, model = (
        Path(args.lm).name,
        f"Model: {judge_of(model_identity(lm))}. {count(len(drawn), 'item')} of {len(items)}",
    )
    if args.judged:
        config = {"max_iterations": args.refinements, "max_tokens": args.max_tokens, "seed": args.seed}
        rows = [*judged_loops(lm, drawn, k=args.judged, threads=args.threads, out=args.out, **config)]
        text = (
            f"{model}, at most {args.max_tokens} tokens, {count(args.refinements, 'refinement')}; seed {args.seed}. "
            "The model scores its own texts from 1 to 5. Quality is the share of the concepts that a text covers."
        )
        headings = ["loop, last output against first", "gain by its own scores", *PARTS[1:-1], "gain in coverage"]
        finish(args, "changes", f"## Gain: {title} on CommonGen\n\n{text}\n\n{markdown(headings, rows)}", section=title)
        return
    settings = {"refinements": args.refinements, "max_tokens": args.max_tokens, "seed": args.seed}
    made = arms(lm, drawn, **settings, threads=args.threads, out=args.out)
    failed = {item for arm in made for item in arm.run.failed}
    text = "\n\n".join(
        [
            f"## Self-bias: loops of {title} on CommonGen Hard",
            f"{model}, at most "
            f"{args.refinements} refinements of at most {args.max_tokens} tokens; seed {args.seed}; "
            f"{count(len(failed), 'item')} failed. The model's belief is what it answers, whichever feedback drives "
            "the loop; concepts are counted as substrings, as in the paper, and Bias is belief minus truth. First "
            "output -> last; \\* p < .05, † p < .06.",
            markdown(HEADINGS, [arm.row(args.seed) for arm in made]),
        ]
    )
    finish(args, "self_bias", text, section=f"commongen {title}")


if __name__ == "__main__":
    main()
