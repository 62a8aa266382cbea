"""The papers' methods on a prompted judge that agrees with people: rated code snippets (ICE, CoNaLa).

usage: python -m benchmarks.code_judge {agreement,cue,demonstrations,fairness,loops} --lm FILE [FILE ...]
           [--dtype bfloat16] [--problems 75] [--seeds 5] [--reductions sum mean] [--set llmbar] [--no-cue]
           [--api-base URL] [--out DIR] [--write]

``agreement`` asks how well the judge, as it is, agrees with people on each of our sets, and ``cue`` whether it does
better without a cue at the end of the prompt. ``demonstrations`` compares 8 demonstrations of highest RS with 8
random ones, which are not shown again (Ohi et al. 2024), for so many draws of the random ones, on snippets for other
problems. ``fairness`` searches an instruction on pairs of snippets (ZEPO, Zhou et al. 2024) and compares it with the
first one on pairs for other problems; every wording that was tried also gets its agreement with people, on the pairs of
the search. ``--set llmbar`` takes LLMBar-Natural's pairs; with ``--api-base``, a server's model rewords instead of a
grammar. ``loops`` has each model write code for problems, score it, and write it again (Xu et al. 2024): under its own
score, under the likeness to a reference, and under the first model's score. No code is ever run.

The answers of the models are kept in DIR, so that a stopped run goes on.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy
import numpy as np

import evalbias
from benchmarks import sets
from benchmarks.align import SETS, SNIPPETS, Side, drawn, rated, snippets, writer_of
from benchmarks.harness import argument_parser, as_text, finish, keeping_answers, lines, markdown
from benchmarks.position import INSTRUCTION
from benchmarks.self_bias import first_to_last
from evalbias.data import pairs
from evalbias.evaluation import compare_with_baselines, measure, summarize_loop
from evalbias.evaluation.biases import BIASES, measure_all
from evalbias.evaluation.judged import judge_examples
from evalbias.evaluation.loops import LoopScores, compare_loops, run_loops
from evalbias.evaluation.words import mark
from evalbias.measures import QuantileMap, estimate_mean, spearman
from evalbias.measures.resample import Draws
from evalbias.optimizers import ZEPO, Align, BiasedDemos
from evalbias.optimizers.objectives import shares_of
from evalbias.optimizers.offers import without_cue
from evalbias.optimizers.proposers import GrammarParaphraser, LMParaphraser
from evalbias.programs.criterion import PRESETS
from evalbias.programs.feedback import ReferenceFeedback, ScorerFeedback
from evalbias.programs.items import people_choice
from evalbias.programs.judges import REDUCTIONS
from evalbias.programs.loops import STRICT, Improvement, SelfRefine
from evalbias.programs.pairwise import CALIBRATIONS
from evalbias.programs.tasks import TEMPERATURE
from evalbias.programs.writing import PlainPredict

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


PAIRS = ("pairs/llmbar.jsonl.gz", "pairs/evalbiasbench.jsonl")
LONGEST = 1_600  # characters of a source, or of a pair with its source


def judged(args: argparse.Namespace) -> list[tuple[str, Any, Side]]:
    """Return the name of each set, a judge of each of its criteria, and the outputs to score or the pairs."""
    asked: list[tuple[str, Any, Side]] = []
    for name, (_, criterion) in SETS.items():
        asked.append((name, evalbias.PointwiseJudge(criterion), drawn(rated(name), 0, args.problems, 0, each=4)[0]))
    for name in ("topicalchat", "summeval", "tmu-gfm", "newsroom", "webnlg2020"):
        short = [item for item in sets.read(name) if len(item.source) <= LONGEST]
        some, _ = drawn(short, 0, args.problems, 0, each=4)
        asked += [(name, evalbias.PointwiseJudge(criterion), some) for criterion in PRESETS[name]]
    judge, kinds = evalbias.PairwiseJudge(INSTRUCTION, debias="permutation"), dict[str, Side]()
    for row in (row for file in PAIRS for row in lines(file)):
        if len(row["source"]) + sum(map(len, row["outputs"])) <= LONGEST:
            kinds.setdefault(row.get("set", "EvalBiasBench"), []).append(dspy.Example(**row))
    return asked + [(kind, judge, some[: args.pairs]) for kind, some in kinds.items()]


def cue(args: argparse.Namespace, lm: Any) -> str:
    """Return a row for each set and criterion: agreement with a cue at the end of each prompt, and without."""
    body, align = [], Align(seed=args.seed, n_resamples=args.resamples)
    for name, judge, items in judged(args):
        both = (judge, without_cue(judge))
        compared = align.compare(*(judge_examples(either, items, lm=lm) for either in both))
        changes = compared["agreement"].changes
        numbers = ("spearman", "pearson", "error", "accuracy")
        row = [changes[number].text() if number in changes else "" for number in numbers]
        body.append([name, judge.criterion.title, len(items), *row])
        print(*body[-1], sep=" | ", flush=True)
    about = (
        f"Outputs of {args.problems} inputs, at most four of each, or at most {args.pairs} pairs in both orders; "
        'before: each prompt ends with a cue such as "Correctness:" or "Better quality:", after: with the texts or the '
        "question (`judge.cue = False`). \\* p < .05, over inputs, for each row by itself."
    )
    headings = ["set", "criterion", "outputs or pairs", "Spearman", "Pearson", "mean error", "accuracy"]
    return f"{about}\n\n{markdown(headings, body)}"


def agreement(args: argparse.Namespace, lm: Any) -> str:
    """Return a row for each set and criterion: how well the judge agrees with people, beside length alone."""
    body = []
    for name, judge, items in judged(args):
        found = measure(BIASES["agreement"], judge_examples(judge, items, lm=lm), seed=args.seed).estimates
        numbers = [found[n].with_interval if n in found else "" for n in ("spearman", "accuracy", "length_floor")]
        body.append([name, judge.criterion.title, len(items), *numbers])
        print(*body[-1], sep=" | ", flush=True)
    about = (
        f"Outputs of {args.problems} inputs, at most four of each, or at most {args.pairs} pairs, of at most "
        f"{LONGEST:,} characters; without demonstrations, and of pairs both orders averaged. Intervals are of 95 %."
    )
    headings = ["set", "criterion", "outputs or pairs", "Spearman", "accuracy", "length alone"]
    return f"{about}\n\n{markdown(headings, body)}"


def demonstrations(args: argparse.Namespace, lm: Any) -> str:
    """Return the table of highest RS against random demonstrations, one row a draw and reduction of LS."""
    train, test = snippets(0, args.problems, args.problems)
    judge, body = evalbias.PointwiseJudge(RATED, cue=not args.no_cue), []
    for reduction in args.reductions:
        found = []
        for draw in range(args.seeds):
            method = BiasedDemos(8, reduction=reduction, select=False, n_resamples=args.resamples, seed=draw)
            changes = method.compile(judge, trainset=train, valset=test, lm=lm).report.comparison["likelihood"].changes
            found.append(changes)
            body.append([reduction, draw, *(change_cell(changes[name]) for name in COLUMNS)])
            print(*body[-1], sep=" | ", flush=True)
        values = np.array([[(c[name].before.value, c[name].after.value) for name in COLUMNS] for c in found])
        body.append([reduction, "mean", *(f"{as_text(old)} -> {as_text(new)}" for old, new in values.mean(axis=0))])
    text = (
        f"8 demonstrations of highest RS among {len(train) - 8} snippets, against 8 random ones that are not shown "
        f"again; {len(test)} snippets for other problems. BiasScore and performance as in the paper (Spearman), tests "
        f"of {args.resamples:,} swaps of items: \\* p < .05, † p < .06."
    )
    return f"{text}\n\n{markdown(['LS', 'draw', *COLUMNS.values()], body)}"


def change_cell(change: Any) -> str:
    """Return both numbers, marked by the test behind the published stars."""
    p_value = change.p_value if change.p_itemwise is None else change.p_itemwise
    return f"{as_text(change.before.value)} -> {as_text(change.after.value)}{mark(p_value)}"


def fairness(args: argparse.Namespace, lm: Any) -> str:
    """Return the searches, the judges on pairs for other problems, and the tried wordings against agreement."""
    criterion, (train, test) = RATED, snippets(0, args.problems, args.problems)
    if args.set == "llmbar":
        criterion, natural = INSTRUCTION, [pair for pair in sets.read("llmbar") if pair.set == "LLMBar-Natural"]
        train, test = natural[::2], natural[1::2]
    judge = evalbias.PairwiseJudge(criterion, cue=not args.no_cue)
    options = {"criterion": criterion.name, "seed": args.seed}
    searched = pairs(train, limit=args.pairs, ordered=True, **options)
    compared = pairs(test, limit=args.pairs, ordered=False, **options)
    body, curve = [], ""
    proposer: Any = GrammarParaphraser()
    if args.api_base is not None:
        proposer = LMParaphraser(writer_of(args.lm[0], args.api_base))
    for racing in (False, True)[: 1 if args.api_base else 2]:  # writing is slow
        found = ZEPO(proposer, racing=racing, select=False, seed=args.seed).compile(judge, trainset=searched, lm=lm)
        report, name = found.report, "racing" if racing else "all wordings on all pairs"
        ends = [as_text(report.history[place], "+.3f") for place in (0, -1)]
        body.append([name, report.judgments, len(report.tried), *ends])
        if not racing:
            rows = compare_with_baselines(judge, found, compared, lm=lm, n_resamples=args.resamples, seed=args.seed)
            curve = sensitivity(report.tried, searched)
            words = f"First: {judge.predict.signature.instructions!r}. Found: {found.predict.signature.instructions!r}."
            words += f" {len(report.rejected)} wordings were turned down."
    measured = {name: row.measurements for name, row in rows.items()}
    for calibration in CALIBRATIONS:
        calibrated = evalbias.PairwiseJudge(criterion, calibration=calibration, cue=judge.cue)
        calibrated.calibrate(searched, lm=lm)
        measured[f"initial + {calibration}"] = measure_all(judge_examples(calibrated, compared, lm=lm), seed=args.seed)
    judges = [[name, *(as_text(value) for value in numbers(found))] for name, found in measured.items()]
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
        f"Over {len(tried)} wordings, fairness {as_text(least, '+.3f')} to {as_text(fairest, '+.3f')} and accuracy "
        f"{as_text(min(agreement))} to {as_text(max(agreement))}: Spearman's rho {as_text(rho, '+.2f')} (published, "
        "with the agreement of rankings: .75)."
    )


# Refine loops.


SELF_BIAS = {"bias": "Bias", "skewness": "Dskew"}
"""Numbers of a loop, with their headings."""
OWN = "own score, if better"  # the loop of the paper
PUBLISHED = (
    "Published, by people's scores of Yoruba to English, on 25 points and over ten iterations, Bias and Dskew: GPT-4 "
    "8.06 -> 14.6, .452 -> .692; GPT-3.5 19.6 -> 21.9, .803 -> .885; Gemini 9.62 -> 17.6, .455 -> .766."
)
WRITE = dspy.Signature(
    "problem -> code", "Write one line of Python code that solves the problem. Write the code and nothing else."
)
REWRITE = dspy.Signature(
    "problem, draft, feedback -> code",
    "The draft is one line of Python code for the problem, and the feedback tells how good it is. Write one line of "
    "better code. Write the code and nothing else.",
)
MAPPED = 300
"""Problems whose rated snippets tell which likeness to the reference is worth how many of the graders' points."""


class Coder(dspy.Module):
    """Writes code as a text, without the fence around it; nothing runs it."""

    def __init__(self, signature: Any) -> None:
        super().__init__()
        self.write = PlainPredict(signature, temperature=TEMPERATURE, max_tokens=60, stop=["\n```\n"])

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Write once."""
        return dspy.Prediction(code=code_in(self.write(**inputs).code))


def code_in(text: str) -> str:
    """Return what stands in the first fence of an answer; all of it where there is none."""
    fenced = re.search(r"```\w*\n(.*?)(?:```|$)", text, re.DOTALL)
    return (fenced[1] if fenced else text).strip()


class Always(Improvement):
    """Acceptance of every refinement."""

    def __call__(self, before: float, after: float) -> bool:
        """Return True."""
        return True


def graders_points(rated: Sequence[dspy.Example], references: Mapping[str, str]) -> tuple[ScorerFeedback, str]:
    """Return chrF mapped by quantiles onto people's points, as on rated snippets, and how both go together there."""
    chrf = ReferenceFeedback("chrf")
    alike = [chrf({"reference": references[snippet.input_id]}, snippet.output).score for snippet in rated]
    people = [snippet.scores[RATED.name] for snippet in rated]
    to_points = QuantileMap.fit(alike, people, metric=chrf.name)

    def points(source: str, output: str, reference: str) -> float:
        return float(to_points([chrf({"reference": reference}, output).score])[0])

    agreement = f"Spearman's rho with people {as_text(spearman(alike, people).value)} on {len(rated)} snippets"
    return of_use(points), agreement


def own_points(lm: Any) -> ScorerFeedback:
    """Return a model's expected score."""
    judge = evalbias.PointwiseJudge(RATED)

    def points(source: str, output: str, reference: str) -> float:
        return float(judge.batch([dspy.Example(source=source, output=output)], lm=lm)[0].score)

    return of_use(points)


def of_use(points: Callable[[str, str, str], float]) -> ScorerFeedback:
    """Return a score as feedback, under one name, so that a writer is told the same words whoever scores."""
    return ScorerFeedback("usefulness", points, low=RATED.scale[0], high=RATED.scale[1])


def loops(args: argparse.Namespace, models: Mapping[str, Sequence[Any]]) -> str:
    """Return the loops of every model, round by round; a model comes as a writer and as a judge, the best one first."""
    others, drawn = snippets(args.seed, MAPPED, args.problems)
    references = {row["input_id"]: row["reference"] for row in lines(SNIPPETS)}
    expected, agreement = graders_points(others, references)
    items = [
        dspy.Example(id=name, problem=text, source=text, reference=references[name])
        for name, text in {snippet.input_id: snippet.source for snippet in drawn}.items()
    ]
    judges, best = {name: own_points(judge) for name, (_, judge) in models.items()}, next(iter(models))
    length = ScorerFeedback("length", lambda _, output, __: len(output), low=0, high=10_000)
    scorers = {"chrF in graders' points": expected, f"score of {best}": judges[best], "characters": length}
    body, changes, scores = [], [], []
    for name, (writer, _) in models.items():
        arms: dict[str, tuple[ScorerFeedback, Improvement]] = {
            "own score, all accepted": (judges[name], Always()),
            OWN: (judges[name], STRICT),
            "chrF, if better": (expected, STRICT),
        }
        if name != best:
            arms[f"score of {best}, if better"] = judges[best], STRICT
        for arm, (source, accept) in arms.items():
            limits = {"max_iterations": args.refinements, "accept": accept, "seed": args.seed}
            loop = SelfRefine(Coder(WRITE), source, Coder(REWRITE), field="code", **limits)
            folder = args.out / re.sub(r"\W+", "-", f"{name} {arm}")
            run = run_loops(loop, items, lm=writer, log_dir=folder, num_threads=16).checked()
            values = [run.quality(items, scorer) for scorer in (judges[name], *scorers.values())]
            told = summarize_loop(name, values[0], values[1], seed=args.seed)
            if arm == OWN:
                scores.append(LoopScores(name, told.numbers, run.ids, values[0], values[1]))
            for number, measured in zip(told.numbers, told.rounds, strict=True):
                means = (as_text(np.nanmean(rows[number])) for rows in values)
                bias = (f"{measured[part].text()} ({measured[part].interval})" for part in SELF_BIAS)
                body.append([name, arm, number, measured["bias"].n, *means, *bias])
                print(*body[-1], sep=" | ", flush=True)
            draws = Draws(seed=args.seed, resamples=args.resamples)
            gains = (estimate_mean(rows[-1] - rows[0], draws=draws) for rows in values)
            rises = (f"{as_text(gain.value, '+.2f')} ({as_text(gain.low)} to {as_text(gain.high)})" for gain in gains)
            ends = (first_to_last(told, part) + mark(told.change[part].p_value) for part in SELF_BIAS)
            changes.append([name, arm, *rises, *ends])
    columns = ["own score", *scorers]
    text = (
        f"{len(items)} problems, {args.refinements} refinements at most, drawn at temperature {TEMPERATURE:g}; seed "
        f"{args.seed}. Scores are from 0 to 4. Bias is the writer's own score of its code, whichever feedback drives "
        "the loop, less chrF with the reference, which quantiles map onto people's points, as on snippets for other "
        f"problems ({agreement}). Where chrF drives the loop, it rises by construction. No code was run. Intervals are "
        "of 95 %."
    )
    pairs_of_sizes = (
        f"At the last iteration ({OWN}), {pair.first} -> {pair.second}, {pair.items} problems: {title} "
        f"{pair.comparison[part].text()} (p = {pair.comparison[part].p_value:.2f})."
        for pair in compare_loops(scores, seed=args.seed)
        for part, title in SELF_BIAS.items()
    )
    return "\n\n".join(
        [
            f"{text} {PUBLISHED}",
            markdown(["writer", "feedback", "iteration", "n", *columns, *SELF_BIAS.values()], body),
            "Last against first (\\* p < .05, † p < .06):",
            markdown(["writer", "feedback", *columns, *SELF_BIAS.values()], changes),
            *pairs_of_sizes,
        ]
    )


def main() -> None:
    """Run what the command line asks for."""
    parser = argument_parser(__doc__, out="code-judge")
    parser.add_argument("study", choices=["agreement", "cue", "demonstrations", "fairness", "loops"])
    parser.add_argument("--lm", nargs="+", required=True, help="the judge; of loops all writers, the best judge first")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--problems", type=int, default=75, help="problems on each side, with two snippets each")
    parser.add_argument("--seeds", type=int, default=5, help="draws of the random demonstrations")
    parser.add_argument("--reductions", nargs="+", choices=REDUCTIONS, default=REDUCTIONS)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--set", choices=["conala", "llmbar"], default="conala", help="what the pairs are of")
    parser.add_argument("--no-cue", action="store_true", help="demonstrations and fairness of a judge without a cue")
    parser.add_argument("--api-base", help="server of the same model, which rewords the instruction of fairness")
    parser.add_argument("--refinements", type=int, default=3)
    parser.add_argument("--resamples", type=int, default=10_000)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    writers = [evalbias.LocalLM(file, dtype=args.dtype) for file in args.lm]
    judges = [keeping_answers(lm, args.out / f"answers{number or ''}.jsonl") for number, lm in enumerate(writers)]
    if args.study == "loops":
        text = loops(args, {Path(file).stem: two for file, *two in zip(args.lm, writers, judges, strict=True)})
    else:
        study = {"agreement": agreement, "cue": cue, "demonstrations": demonstrations, "fairness": fairness}[args.study]
        text = study(args, judges[0])
    where = "on LLMBar-Natural" if args.set == "llmbar" else "on CoNaLa"
    where = "set by set" if args.study in ("agreement", "cue") else where
    heading = f"## {args.study.capitalize()} {where}\n\n{', '.join(w.model for w in writers)} in {args.dtype}. "
    where += ", without a cue" * args.no_cue
    words = [args.study, *([args.set] if args.set != "conala" else []), *(["no cue"] if args.no_cue else [])]
    words += ["reworded"] if args.api_base else []
    finish(args, "code_judge", heading + text, section=" ".join(words))


if __name__ == "__main__":
    main()
