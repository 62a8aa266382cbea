"""Table 1 of the likelihood-bias paper (Ohi et al. 2024) for any judge model, with the published figures beside.

usage: python -m benchmarks.likelihood_table --lm MODEL [--likelihood-lm MODEL] [--sets webnlg2020 tmu-gfm]
           [--reductions sum mean] [--out DIR] [--write] [--title TEXT] [options of evalbias compile likelihood]

Every data set is compiled with LS as the sum over tokens, as the paper writes it, and as the mean, as its code does.
The data are read from EVALBIAS_DATA. A stopped run resumes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import argument_parser, data_folder, finish, judge_of, markdown
from evalbias.evaluation.words import mark
from evalbias.programs.judges import REDUCTIONS
from evalbias.values import json_number


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
    """Run folder of ``evalbias compile likelihood``."""

    dataset: str  # name of the data set
    settings: dict[str, Any]  # content of run.json
    result: dict[str, Any]  # content of result.json

    @classmethod
    def read(cls, dataset: str, folder: Path) -> Finished:
        """Read a run folder."""
        settings, result = (json.loads((folder / f).read_text(encoding="utf-8")) for f in ("run.json", "result.json"))
        return cls(dataset, settings, result)


def number(value: float | None) -> str:
    """Format as the paper does, without a leading zero; None is undefined."""
    return "undefined" if value is None else f"{value:.2f}".replace("0.", ".", 1)


def rows(run: Finished) -> list[list[str]]:
    """Return one row per criterion: our figures, then those of the published judges."""
    body = []
    for name, comparison in run.result["likelihood"].items():
        known = TABLE.get(run.dataset, {}).get(name)
        published = [f"{p.bias} / {p.performance}" for p in known] if known else ["-"] * len(JUDGES)
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
    lm, likelihood_lm = s["lm"], s["likelihood_lm"]
    other = "its own" if likelihood_lm == lm else likelihood_lm["model"]
    headings = ["criterion", "LS", "BiasScore, before -> after", "performance", "p-values, bias / performance", "n"]
    headings += ["words of the demonstrations (of all items)"]
    headings += [f"published: {name}, bias / performance" for name in JUDGES]
    parts = [
        f"### {run.dataset}",
        f"Judge: {judge_of(lm)}; likelihood: {other}, {' and '.join(runs)} over tokens (the paper writes the sum; its "
        "published tables come from code that takes the mean); scores in RS normalized by mean-range; "
        f"k = {s['k']}; seed {s['seed']}; {s['train']['items']} candidate demonstrations, {s['test']['items']} test "
        f"items; R = {s['resamples']}; data hash {s['data_sha256'][:12]}.",
        markdown(headings, side_by_side(runs)),
        "\\* p < .05, † p < .06 (two-sided paired permutation test). Mean BiasScore by kind of criterion:",
        markdown(
            ["kind", "LS", "criteria", "before", "after"],
            [[row[0], reduction, *row[1:]] for reduction, one in runs.items() for row in intrinsic(one)],
        ),
    ]
    return "\n\n".join(parts)


FILES = {"webnlg2020": "upstream/webnlg-challenge-2020", "tmu-gfm": "upstream/tmu-gfm-dataset.csv"}


def compiled(dataset: str, folder: Path, options: list[str]) -> Finished:
    """Run the command and read its run folder."""
    command = [sys.executable, "-m", "evalbias", "compile", "likelihood", "--bare", "--out", str(folder)]
    subprocess.run([*command, "--data", f"{dataset}:{data_folder(FILES[dataset])}", *options], check=True)
    return Finished.read(dataset, folder)


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argument_parser(__doc__, out="likelihood-bias")
    parser.add_argument("--lm", required=True)
    parser.add_argument("--sets", nargs="+", choices=[*TABLE], default=[*TABLE])
    parser.add_argument("--reductions", nargs="+", choices=REDUCTIONS, default=REDUCTIONS)
    parser.add_argument("--candidates", type=Path)
    parser.add_argument("--title", default="a judge")
    args, extra = parser.parse_known_args()
    parts = [f"## Likelihood bias (Ohi et al. 2024, Table 1): {args.title}"]
    for dataset in args.sets:
        options = ["--lm", args.lm, *extra]
        if args.candidates is not None:
            options += ["--candidates", str(args.candidates / f"candidates-{dataset}.txt")]
        started = time.monotonic()
        runs = {
            reduction: compiled(dataset, args.out / f"{dataset}-{reduction}", [*options, "--reduction", reduction])
            for reduction in args.reductions
        }
        parts.append(report(runs))
        print(f"{dataset}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    finish(args, "likelihood_table", "\n\n".join(parts), section=args.title)


if __name__ == "__main__":
    main()
