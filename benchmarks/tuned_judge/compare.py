"""Fine-tuning against demonstrations: how much likelihood bias each leaves, on held-out inputs.

usage: python -m benchmarks.tuned_judge.compare FOLDER --adapters NAME=FOLDER ... [--adapters NAME=FOLDER ...] ...
           [--limit 600] [-k 8] [--train 500] [--dtype bfloat16] [--seed 0] [--write]

The model is asked as it comes, with random demonstrations and with those of highest RS (``BiasedDemos``, which takes
them from ``--train`` training items), and with each adapter. Each ``--adapters`` lists what was trained with one seed,
in the same order: the later ones are compared with the first. LS is that of the model as it comes, so that all judges
are held against the same likelihoods. FOLDER keeps every answer of the models.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import dspy
import numpy as np

from benchmarks.kept_answers import keeping_answers
from benchmarks.likelihood_bias.table import markdown
from benchmarks.pretrained import SMOLLM2, models_folder
from benchmarks.results import write_section
from benchmarks.tuned_judge.evaluate import held_out
from benchmarks.tuned_judge.questions import Rated, rated
from evalbias import BiasedDemos, LocalLM, PointwiseJudge, judge_examples
from evalbias.data.pairing import by_input
from evalbias.evaluation.judged import Judged
from evalbias.lm.cache import JournaledLM
from evalbias.optimizers.likelihood_rules import LikelihoodRule, objective_of
from evalbias.programs.criterion import BINS, Criterion

DATA_SET = "tmu-gfm"
AS_IT_COMES = "zero-shot"
RESAMPLES = 10_000


def opened(folder: Path, name: str, adapter: str | None, dtype: str) -> JournaledLM:
    """Load the model, with an adapter or as it comes; its answers are kept in a file of the folder."""
    lm = LocalLM(str(models_folder() / SMOLLM2), adapter=adapter, dtype=dtype)
    return keeping_answers(lm, folder / f"{name}.journal.jsonl")


def answers(
    criterion: Criterion,
    data_set: Rated,
    test: Sequence[dspy.Example],
    models: Mapping[str, JournaledLM],
    args: argparse.Namespace,
) -> dict[str, Judged]:
    """Return every judge's answers to the test items, by name."""
    known = [e for e in data_set.train if e.scores[criterion.name] == e.scores[criterion.name]]
    train = random.Random(args.seed).sample(known, args.train)
    base = models[AS_IT_COMES]
    judged = {AS_IT_COMES: judge_examples(PointwiseJudge(criterion), test, lm=base, likelihood_lm=base)}
    compiled = BiasedDemos(
        args.k, likelihood_lm=base, bins=BINS.get(data_set.name), select=False, seed=args.seed, n_resamples=RESAMPLES
    ).compile(PointwiseJudge(criterion), trainset=train, valset=test, lm=base)
    judged[f"{args.k} random demonstrations"] = compiled.report.before
    judged[f"{args.k} demonstrations of highest RS"] = compiled.report.after
    for name, lm in models.items():
        if name != AS_IT_COMES:
            judged[name] = judge_examples(PointwiseJudge(criterion), test, lm=lm, likelihood_lm=base)
    return judged


def rows(title: str, judged: Mapping[str, Judged], trainings: Sequence[Sequence[str]], seed: int) -> list[list[str]]:
    """Return the table's rows; of each training, the judges after the first are tested against it.

    With several trainings, rows with the mean and the range over them follow.
    """
    references = {name: group[0] for group in trainings for name in group[1:]}
    estimates, body = {}, []
    for name, one in judged.items():
        reference = judged[references.get(name, name)]
        rule = LikelihoodRule(lambda judge: judge, n_resamples=RESAMPLES, seed=seed)
        rule.objective = objective_of(reference, seed=seed)
        against = ""
        if name in references:
            p_value = rule.p_values([one], reference)[0]
            against = f"p less biased {p_value:.3f}; {rule.loss(one, reference) or 'no loss'}"
        estimates[name] = list(rule.estimates(one).values())
        intervals = [f"{e.value:+.2f} [{e.low:+.2f}, {e.high:+.2f}]" for e in estimates[name]]
        body.append([title, name, *intervals, against])
    if len(trainings) > 1:
        for alike in zip(*trainings, strict=True):
            values = np.array([[e.value for e in estimates[name]] for name in alike]).T
            cells = [f"{found.mean():+.2f} ({found.min():+.2f} to {found.max():+.2f})" for found in values]
            body.append([title, f"mean (range) of {', '.join(alike)}", *cells, ""])
    return body


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--adapters", nargs="+", action="append", required=True)
    parser.add_argument("--limit", type=int, default=600)
    parser.add_argument("--train", type=int, default=500)
    parser.add_argument("-k", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    trainings = [dict(one.split("=", 1) for one in group) for group in args.adapters]
    models = {AS_IT_COMES: opened(args.folder, "model", None, args.dtype)}
    for name, adapter in (pair for group in trainings for pair in group.items()):
        models[name] = opened(args.folder, Path(adapter).name, adapter, args.dtype)
    data_set, body = rated(DATA_SET), []
    test = held_out(data_set, args.limit, args.seed)
    for criterion in data_set.criteria:
        judged = answers(criterion, data_set, test, models, args)
        body += rows(f"{DATA_SET}, {criterion.name}", judged, [list(group) for group in trainings], args.seed)
        print(*body, sep="\n", flush=True)
    text = "\n\n".join(
        [
            "## Fine-tuning against demonstrations",
            f"SmolLM2-135M-Instruct in {args.dtype} as it comes, with demonstrations from {args.train} training items, "
            f"and with LoRA adapters that learned from the training ratings; {len(test)} outputs of "
            f"{len(by_input(test))} inputs that took part in nothing. Likelihood effect at equal quality with LS of "
            "the model as it comes, BiasScore, and Spearman's rho with people, with 95 % intervals over inputs. "
            "Balanced adapters are tested against the one that learned from the same questions unweighted: one-sided p "
            "that the effect is no smaller, and whether performance is lost.",
            markdown(["data set, criterion", "judge", "likelihood effect", "BiasScore", "performance", "test"], body),
        ]
    )
    print(text)
    if args.write:
        write_section("fine_tuning", text)


if __name__ == "__main__":
    main()
