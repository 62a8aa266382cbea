"""The papers' methods on a prompted judge that agrees with people: rated code snippets (ICE, CoNaLa).

usage: python -m benchmarks.code_judge {demonstrations,fairness} --lm FILE [--dtype bfloat16] [--seeds 5]
           [--problems 75] [--reductions sum mean] [--out DIR] [--write]

``demonstrations`` compares 8 demonstrations of highest RS with 8 random ones, which are not shown again (Ohi et al.
2024), for so many draws of the random ones, on snippets for other problems. ``fairness`` searches an instruction on
pairs of snippets (ZEPO, Zhou et al. 2024) and compares it with the first one on pairs for other problems; every wording
that was tried also gets its agreement with people, on the pairs of the search. The answers of the model are kept in
DIR, so that a stopped run goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import dspy
import numpy as np

import evalbias
from benchmarks.align import snippets
from benchmarks.harness import argument_parser, finish, keeping_answers, markdown, shown
from evalbias.data import pairs
from evalbias.evaluation import compare_with_baselines
from evalbias.evaluation.biases import measure_all
from evalbias.evaluation.judged import judge_examples
from evalbias.evaluation.words import mark
from evalbias.measures import spearman
from evalbias.optimizers import ZEPO, BiasedDemos
from evalbias.optimizers.objectives import shares_of
from evalbias.programs.items import people_choice
from evalbias.programs.judges import REDUCTIONS
from evalbias.programs.pairwise import CALIBRATIONS, FITTED

RATED = evalbias.Criterion(
    "correctness",
    "How useful is the code for the problem?",
    (0, 4),
    "Write code that solves the problem.",
    "Problem",
    "Code",
    levels=(
        "useless: it has nothing to do with the problem",
        "little use: it has a part of what is needed",
        "some use: it must be changed in important places",
        "useful: it needs small changes",
        "very useful: it solves the problem as it stands",
    ),
)
"""The criterion, in the words of the grades that people gave."""
COLUMNS = {"bias_score": "BiasScore", "likelihood_effect": "effect at equal quality", "performance": "performance"}
"""Numbers of a comparison, with their headings."""


def demonstrations(args: argparse.Namespace, lm: Any) -> str:
    """Return the table of highest RS against random demonstrations, one row a draw and reduction of LS."""
    train, test = snippets(0, args.problems, args.problems)
    judge, body = evalbias.PointwiseJudge(RATED), []
    for reduction in args.reductions:
        found = []
        for draw in range(args.seeds):
            method = BiasedDemos(8, reduction=reduction, select=False, n_resamples=args.resamples, seed=draw)
            changes = method.compile(judge, trainset=train, valset=test, lm=lm).report.comparison["likelihood"].changes
            found.append(changes)
            body.append([reduction, draw, *(change_cell(changes[name]) for name in COLUMNS)])
            print(*body[-1], sep=" | ", flush=True)
        values = np.array([[(c[name].before.value, c[name].after.value) for name in COLUMNS] for c in found])
        body.append([reduction, "mean", *(f"{shown(old)} -> {shown(new)}" for old, new in values.mean(axis=0))])
    text = (
        f"8 demonstrations of highest RS among {len(train) - 8} snippets, against 8 random ones that are not shown "
        f"again; {len(test)} snippets for other problems. BiasScore and performance as in the paper (Spearman), tests "
        f"of {args.resamples:,} swaps of items: \\* p < .05, † p < .06."
    )
    return f"{text}\n\n{markdown(['LS', 'draw', *COLUMNS.values()], body)}"


def change_cell(change: Any) -> str:
    """Return both numbers, marked by the test behind the published stars."""
    p_value = change.p_value if change.p_itemwise is None else change.p_itemwise
    return f"{shown(change.before.value)} -> {shown(change.after.value)}{mark(p_value)}"


def fairness(args: argparse.Namespace, lm: Any) -> str:
    """Return the searches, the judges on pairs for other problems, and the tried wordings against agreement."""
    train, test = snippets(0, args.problems, args.problems)
    criterion, limit = RATED.name, args.pairs
    judge = evalbias.PairwiseJudge(RATED)
    searched = pairs(train, limit=limit, criterion=criterion, ordered=True, seed=args.seed)
    compared = pairs(test, limit=limit, criterion=criterion, ordered=False, seed=args.seed)
    body, curve = [], ""
    for racing in (False, True):
        found = ZEPO(racing=racing, select=False, seed=args.seed).compile(judge, trainset=searched, lm=lm)
        report, name = found.report, "racing" if racing else "all wordings on all pairs"
        body.append(
            [
                name,
                report.judgments,
                len(report.tried),
                shown(report.history[0], "+.3f"),
                shown(report.history[-1], "+.3f"),
            ]
        )
        if not racing:
            rows = compare_with_baselines(judge, found, compared, lm=lm, n_resamples=args.resamples, seed=args.seed)
            curve = sensitivity(report.tried, searched)
            words = f"First: {judge.predict.signature.instructions!r}. Found: {found.predict.signature.instructions!r}."
    measured = {name: row.measurements for name, row in rows.items()}
    for calibration in filter(None, CALIBRATIONS):
        calibrated = evalbias.PairwiseJudge(RATED, calibration=calibration)
        if calibration in FITTED:
            calibrated.calibrate(searched, lm=lm)
        measured[f"initial + {calibration}"] = measure_all(judge_examples(calibrated, compared, lm=lm), seed=args.seed)
    judges = [[name, *(shown(value) for value in numbers(found))] for name, found in measured.items()]
    return "\n\n".join(
        [
            f"{len(searched)} pairs of the search, {len(compared)} for other problems, seed {args.seed}.",
            markdown(["search", "judgments", "wordings", "fairness of the first", "of the best"], body),
            markdown(["judge", "first chosen", "accuracy"], judges),
            words,
            curve,
        ]
    )


def numbers(found: Mapping[str, Any]) -> tuple[float, float]:
    """Return the rate of the first place and the agreement with people."""
    return found["position"]["first_rate"].value, found["agreement"]["accuracy"].value


def sensitivity(tried: Sequence[Any], compared: Sequence[dspy.Example]) -> str:
    """Say how fairness and agreement with people go together over the wordings, on the same pairs."""
    better = np.array([people_choice(pair) for pair in compared])
    fair = [wording.objective for wording in tried]
    agreement = [np.mean(np.argmax(shares_of(wording.judged), axis=1) == better) for wording in tried]
    rho, fairest, least = spearman(fair, agreement).value, max(fair), min(fair)
    return (
        f"Over {len(tried)} wordings, fairness {shown(least, '+.3f')} to {shown(fairest, '+.3f')} and accuracy "
        f"{shown(min(agreement))} to {shown(max(agreement))}: Spearman's rho {shown(rho, '+.2f')} (published, with the "
        "agreement of rankings: .75)."
    )


def main() -> None:
    """Run what the command line asks for."""
    parser = argument_parser(__doc__, out="code-judge")
    parser.add_argument("study", choices=["demonstrations", "fairness"])
    parser.add_argument("--lm", required=True)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--problems", type=int, default=75, help="problems on each side, with two snippets each")
    parser.add_argument("--seeds", type=int, default=5, help="draws of the random demonstrations")
    parser.add_argument("--reductions", nargs="+", choices=REDUCTIONS, default=REDUCTIONS)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--resamples", type=int, default=10_000)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    plain = evalbias.LocalLM(args.lm, dtype=args.dtype)
    lm = keeping_answers(plain, args.out / "answers.jsonl")
    text = {"demonstrations": demonstrations, "fairness": fairness}[args.study](args, lm)
    heading = f"## {args.study.capitalize()} on CoNaLa\n\n{plain.model} in {args.dtype}. "
    finish(args, "code_judge", heading + text, section=args.study)


if __name__ == "__main__":
    main()
