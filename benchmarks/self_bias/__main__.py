"""Measure the self-bias of the recorded loops, and of loops of the embedded model, where the true quality is known.

usage: python -m benchmarks.self_bias [--only recorded|synthetic] [--seed N] [--threads N] [--out DIR] [--write]

The recordings are read from EVALBIAS_DATA (default ../shared/data). A stopped run resumes. ``--write`` puts the tables
into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.results import write_section
from benchmarks.self_bias.recorded import first_to_last, recorded, table, unreadable_answers
from benchmarks.self_bias.synthetic import ITEMS, REFINEMENTS, Arm, arms, compiled
from evalbias.evaluation.words import count, mark, p_equals
from evalbias.optimizers.refine import RefineReport
from evalbias.report.tables import sides_plot, trajectory_plot


def main() -> None:
    """Parse the command line and run the benchmark."""
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
        print("Answers on missing concepts that could not be read:")
        for answer in list(dict.fromkeys(unreadable_answers(folder)))[:10]:
            print(f"  {answer!r:.200}")
    if args.only != "recorded":
        parts["synthetic"] = synthetic(args.seed, args.out, args.threads)
    for name, text in parts.items():
        print(text)
        if args.write:
            write_section(f"self_bias {name}", text)


def synthetic(seed: int, out: Path, threads: int) -> str:
    """Run the loops of the embedded model, write their plots into the folder, and return the section."""
    loops = arms(seed=seed, out=out, threads=threads)
    report = compiled(seed=seed, out=out, threads=threads)
    trajectory_plot([arm.judged for arm in loops], out / "judged.png", rounds="refinement")
    sides_plot(report, out / "sides.png")
    title = "## Self-bias: loops of the embedded model, where the true quality is known"
    settings = (
        f"{ITEMS} texts, {REFINEMENTS} refinements (each a new draw; only the feedback's score decides which is kept), "
        f"seed {seed}."
    )
    return "\n\n".join([title, settings, _arms(loops), _compiled(report)])


def _arms(loops: list[Arm]) -> str:
    rows = []
    for arm in loops:
        own, quality = (first_to_last(arm.own, name) for name in ("own", "expected"))
        bias = first_to_last(arm.judged, "bias", "+.2f") + mark(arm.judged.change["bias"].p_value)
        skewness = first_to_last(arm.judged, "skewness")
        common = f"{arm.commonness[0]:+.2f} -> {arm.commonness[-1]:+.2f}"
        rows.append([arm.name, own, quality, f"{arm.own.rounds[-1]['bias'].value:+.2f}", bias, skewness, common])
    headings = ("feedback", "its score", "true quality (1-5)", "its final Bias", "own judge's Bias")
    return table("", (*headings, "own judge's Dskew", "commonness"), rows).strip()


def _compiled(report: RefineReport) -> str:
    tried = " (tried, but they did not help)" if report.shown is not None and not report.demonstrations else ""
    comparison = report.comparison["self"]
    quality, bias, calls = comparison["quality"], comparison["bias"], comparison.cost["calls"]
    return (
        f"Compiled with the true quality as external feedback ({report.items} items, {report.calls} requests): at most "
        f"{count(report.iterations, 'refinement')}, accepted if better by more than {report.margin:.0%} of the range, "
        f"{count(len(report.demonstrations), 'demonstration')}{tried}. On {quality.after.n} other items: true quality "
        f"{quality.before.value:.2f} -> {quality.after.value:.2f} ({p_equals(quality.p_value)}), "
        f"Bias {bias.before.value:+.2f} -> {bias.after.value:+.2f}, "
        f"requests per item {calls[0]:.1f} -> {calls[1]:.1f}."
    )


if __name__ == "__main__":
    main()
