"""Table 1 of the likelihood-bias paper (Ohi et al. 2024) for any judge model, with the published figures beside.

usage: python -m benchmarks.likelihood_table --lm MODEL [--adapter DIR] [--dtype auto] [--sets webnlg2020 tmu-gfm]
           [--reductions sum mean] [--limit N] [-k 8] [--resamples 100000] [--seed 0] [--out DIR] [--write]
           [--title TEXT]

Every data set is compiled with LS as the sum over tokens, as the paper writes it, and as the mean, as its code does.
The data are read from EVALBIAS_DATA. The answers of the judge's model are kept in DIR, so a stopped run resumes.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import argument_parser, finish, judge_of, keeping_answers, markdown
from benchmarks.sets import BINS, read
from evalbias import BiasedDemos, PointwiseJudge, data
from evalbias.cli.models import open_lm
from evalbias.evaluation.words import mark
from evalbias.lm.cache import model_identity
from evalbias.optimizers.likelihood import compile_each
from evalbias.options import MeasuringModels
from evalbias.programs.criterion import PRESETS
from evalbias.programs.judges import REDUCTIONS
from evalbias.values import json_number, to_json


@dataclass(frozen=True)
class Published:
    """One judge on one criterion, as printed."""

    bias: str  # BiasScore, before -> after
    performance: str  # Spearman's rho with people, before -> after


JUDGES = ("GPT-3.5", "Llama2-13B")

TABLE: dict[str, dict[str, tuple[Published, Published]]] = {
    "webnlg2020": {
        "text_structure": (Published(".36 -> .23*", ".46 -> .53†"), Published(".17 -> .02*", ".34 -> .36")),
        "relevance": (Published(".43 -> .31*", ".35 -> .38"), Published(".28 -> .15†", ".25 -> .23")),
        "fluency": (Published(".26 -> .29", ".41 -> .55*"), Published(".20 -> .00*", ".33 -> .52†")),
        "correctness": (Published(".36 -> .32", ".44 -> .47"), Published(".21 -> -.01*", ".37 -> .43")),
        "data_coverage": (Published(".40 -> .32*", ".20 -> .30†"), Published(".24 -> .16", ".24 -> .25")),
        "total": (Published(".38 -> .32†", ".48 -> .58*"), Published(".17 -> .02†", ".40 -> .46")),
    },
    "tmu-gfm": {
        "grammar": (Published(".46 -> .37†", ".48 -> .54"), Published(".24 -> .24", ".45 -> .46")),
        "fluency": (Published(".36 -> .29", ".40 -> .47"), Published(".16 -> .09", ".49 -> .48")),
        "total": (Published(".43 -> .37", ".45 -> .52"), Published(".21 -> .18", ".48 -> .52")),
    },
}
"""Data set -> criterion -> figures of the two judges in ``JUDGES``."""


@dataclass(frozen=True)
class Finished:
    """Judges of a data set that were compiled, as JSON data."""

    dataset: str  # name of the data set
    settings: dict[str, Any]
    result: dict[str, Any]  # comparisons and reports by criterion


def number(value: float | None) -> str:
    """Format as the paper does, without a leading zero; None is undefined."""
    return "undefined" if value is None else f"{value:.2f}".replace("0.", ".", 1)


def rows(run: Finished) -> list[list[str]]:
    """Return one row per criterion: our figures, then those of the published judges."""
    body = []
    for name, comparison in run.result["likelihood"].items():
        printed = TABLE.get(run.dataset, {}).get(name)
        published = [f"{p.bias} / {p.performance}" for p in printed] if printed else ["-"] * len(JUDGES)
        changes = [comparison["changes"][estimate] for estimate in ("bias_score", "performance")]
        cells = [_change(change) for change in changes]
        p_values = " / ".join(_p_text(_p_value(change)) for change in changes)
        body.append([name, *cells, p_values, str(changes[0]["after"]["n"]), *published])
    return body


def _change(change: Mapping[str, Any]) -> str:
    before, after = (number(change[side]["value"]) for side in ("before", "after"))
    return f"{before} -> {after}{mark(_p_value(change))}"


def _p_value(change: Mapping[str, Any]) -> float:
    return json_number(change["itemwise_test"]["p_value"])  # the test behind the published stars


def _p_text(p_value: float) -> str:
    return "<.0001" if p_value < 1e-4 else f"{p_value:.4f}"


KINDS = {"intrinsic": {"fluency", "text_structure", "grammar"}, "not intrinsic": {"relevance", "data_coverage"}}
"""Criteria by kind: the output alone decides intrinsic ones, which Ohi et al. (2024) find less prone to bias.

Correctness has features of both kinds and belongs to neither (appendix E).
"""


def intrinsic(run: Finished) -> list[list[str]]:
    """Return the mean BiasScore of the criteria of each kind."""
    body = []
    for heading, members in KINDS.items():
        changes = {
            name: comparison["changes"]["bias_score"]
            for name, comparison in run.result["likelihood"].items()
            if name in members
        }
        if changes:
            before, after = (_mean([c[side]["value"] for c in changes.values()]) for side in ("before", "after"))
            body.append([heading, ", ".join(changes), before, after])
    return body


def _mean(values: Sequence[float | None]) -> str:
    """Average the defined values; undefined ones are counted."""
    defined = [v for v in values if v is not None]
    missing = f" ({len(values) - len(defined)} undefined)" if len(defined) < len(values) else ""
    return number(float(np.mean(defined)) if defined else float("nan")) + missing


def demonstration_words(run: Finished, criterion: str) -> str:
    """Return the mean words of the chosen demonstrations, and of all items; the total has no demonstrations."""
    report = run.result["reports"].get(criterion)
    if report is None:
        return "-"
    return f"{np.mean(report['demonstration_words']):.0f} ({report['mean_words']:.0f})"


def side_by_side(runs: Mapping[str, Finished]) -> list[list[str]]:
    """Return the rows of every criterion, one a reduction of LS, with the lengths of the demonstrations."""
    rows_by_run = [
        [[row[0], reduction, *row[1:5], demonstration_words(run, row[0]), *row[5:]] for row in rows(run)]
        for reduction, run in runs.items()
    ]
    return [row for group in zip(*rows_by_run, strict=True) for row in group]


def report(runs: Mapping[str, Finished]) -> str:
    """Return the report of a data set, by reduction of token log-probabilities to LS; it quotes no item."""
    run = next(iter(runs.values()))
    s = run.settings
    headings = ["criterion", "LS", "BiasScore, before -> after", "performance", "p-values, bias / performance", "n"]
    headings += ["words of the demonstrations (of all items)"]
    headings += [f"published: {name}, bias / performance" for name in JUDGES]
    parts = [
        f"### {run.dataset}",
        f"Judge: {judge_of(s['lm'])}; likelihood: its own, {' and '.join(runs)} over tokens (the paper writes the sum; "
        "its published tables come from code that takes the mean); scores in RS normalized by mean-range; "
        f"k = {s['k']}; seed {s['seed']}; {s['train']} candidate demonstrations, {s['test']} test "
        f"items; R = {s['resamples']}; data hash {s['data_sha256'][:12]}.",
        markdown(headings, side_by_side(runs)),
        "\\* p < .05, † p < .06 (two-sided paired permutation test). Mean BiasScore by kind of criterion:",
        markdown(
            ["kind", "LS", "criteria", "before", "after"],
            [[row[0], reduction, *row[1:]] for reduction, run in runs.items() for row in intrinsic(run)],
        ),
    ]
    return "\n\n".join(parts)


def compiled(dataset: str, reduction: str, lm: Any, args: argparse.Namespace) -> Finished:
    """Compile a judge of every criterion as the paper does, and measure it on a fifth of the items."""
    items = read(dataset)
    train, test = data.split(random.Random(args.seed).sample(items, args.limit or len(items)), seed=args.seed)
    shared = {"reduction": reduction, "n_resamples": args.resamples, "seed": args.seed, "bins": BINS.get(dataset)}
    method = BiasedDemos(args.k, **shared, select=False)
    judges, asked = map(PointwiseJudge, PRESETS[dataset]), keeping_answers(lm, args.out / f"{dataset}.jsonl")
    done = compile_each(method, [*judges], trainset=train, valset=test, lm=asked)
    settings = {name: getattr(args, name) for name in ("k", "seed", "resamples")}
    settings |= {"lm": model_identity(lm), "train": len(train), "test": len(test), "data_sha256": items.sha256}
    return Finished(dataset, settings, to_json({"likelihood": done.comparisons, "reports": done.reports}))


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__, out="likelihood-bias")
    parser.add_argument("--lm", required=True)
    parser.add_argument("--sets", nargs="+", choices=[*TABLE], default=[*TABLE])
    parser.add_argument("--reductions", nargs="+", choices=REDUCTIONS, default=REDUCTIONS)
    parser.add_argument("--adapter")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--limit", type=int)
    parser.add_argument("-k", type=int, default=8)
    parser.add_argument("--resamples", type=int, default=100_000)
    parser.add_argument("--title", default="a judge")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    lm = open_lm(args.lm, MeasuringModels(adapter=args.adapter, dtype=args.dtype))
    parts = [f"## Likelihood bias (Ohi et al. 2024, Table 1): {args.title}"]
    for dataset in args.sets:
        started = time.monotonic()
        runs = {reduction: compiled(dataset, reduction, lm, args) for reduction in args.reductions}
        parts.append(report(runs))
        print(f"{dataset}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    finish(args, "likelihood_table", "\n\n".join(parts), section=args.title)


if __name__ == "__main__":
    main()
