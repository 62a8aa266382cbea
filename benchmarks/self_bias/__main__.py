"""Self-bias: the recorded loops beside their published figures, and loops of the embedded model with a known truth.

usage: python -m benchmarks.self_bias [--only recorded|synthetic] [--seed N] [--threads N] [--out DIR] [--write]

The recordings are read from EVALBIAS_DATA (default ../shared/data). A stopped run goes on where it was. ``--write``
puts the tables into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.results import write_section
from benchmarks.self_bias.recorded import recorded, table
from benchmarks.self_bias.synthetic import ITEMS, REFINEMENTS, Arm, arms, compiled
from evalbias.optimizers.refine_report import RefineReport
from evalbias.report.refine import sides_plot
from evalbias.report.self_bias import trajectory_plot
from evalbias.report.tables import mark


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["recorded", "synthetic"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path("runs/self-bias"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    parts = {}
    if args.only != "synthetic":
        folder = Path(os.environ.get("EVALBIAS_DATA", "../shared/data")) / "self_bias_recorded"
        parts["recorded"] = f"## Self-bias (Xu et al. 2024): the recorded loops\n\n{recorded(folder)}"
    if args.only != "recorded":
        parts["synthetic"] = synthetic(args.seed, args.out, args.threads)
    for name, text in parts.items():
        print(text)
        if args.write:
            write_section(f"self_bias {name}", text)


def synthetic(seed: int, out: Path, threads: int) -> str:
    """Run the loops of the embedded model, and draw them into the folder."""
    found = arms(seed=seed, out=out, threads=threads)
    report = compiled(seed=seed, out=out, threads=threads)
    trajectory_plot([(arm.name, arm.judged.rounds) for arm in found], out / "judged.png", rounds="refinement")
    sides_plot(report, out / "sides.png")
    title = "## Self-bias: loops of the embedded model, the truth known"
    told = f"{ITEMS} texts, {REFINEMENTS} refinements (each a new draw; the score alone decides), seed {seed}."
    return "\n\n".join([title, told, _arms(found), _compiled(report)])


def _arms(found: list[Arm]) -> str:
    rows = []
    for arm in found:
        seen, judged = arm.seen.rounds, arm.judged.rounds
        bias = f"{judged[0].found.bias:+.2f} -> {judged[-1].found.bias:+.2f}{mark(arm.judged.bias.p_value)}"
        skewness = f"{judged[0].found.skewness:.2f} -> {judged[-1].found.skewness:.2f}"
        common = f"{arm.commonness[0]:+.2f} -> {arm.commonness[-1]:+.2f}"
        own = f"{seen[0].found.own:.2f} -> {seen[-1].found.own:.2f}"
        worth = f"{seen[0].found.expected:.2f} -> {seen[-1].found.expected:.2f}"
        rows.append([arm.name, own, worth, f"{seen[-1].found.bias:+.2f}", bias, skewness, common])
    headings = ("the loop listens to", "its score", "truth (1-5)", "its Bias at the end", "own judge's Bias")
    return table("", (*headings, "own judge's Dskew", "commonness"), rows).strip()


def _compiled(report: RefineReport) -> str:
    assert report.validation is not None
    tried = " (tried: they do not help)" if report.shown is not None and not report.demonstrations else ""
    before, after, test = report.validation.before, report.validation.after, report.validation.test
    return (
        f"Compiled with the truth as external feedback ({report.items} items, {report.calls} requests): "
        f"{report.iterations} refinements at most, accepted when better by more than {report.margin:.0%} of the range, "
        f"{len(report.demonstrations)} demonstrations{tried}. On {test.n} other items: truth {before.worth:.2f} -> "
        f"{after.worth:.2f} (p = {test.p_value:.4f}), Bias {before.bias.bias:+.2f} -> {after.bias.bias:+.2f} of the "
        f"range, requests an item {before.calls:.1f} -> {after.calls:.1f}."
    )


if __name__ == "__main__":
    main()
